"""What belongs to the open transaction: its partitions, groups and offsets, and what the coordinator knows of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...types import TopicPartition
from ..offsets.portions import AT_ONCE
from ..produce.identity import ProducerIdentity
from .events import AddOffsetsToTxn, AddPartitionsToTxn, ControlRequest, SendOffsets, TxnOffsetCommit

#: How often a request is sent again whose answer says what passes soon, or never: with the default pauses some two
#: seconds.
RETRIES: Final = 5


class OpenTransaction:
    """One transaction, from its begin to its end. ``uses_v2`` holds for all of it (KIP-890).

    Without ``uses_v2`` a partition, or a group, has to be added before anything is sent to it. With it the first
    request to a partition adds that partition, even if the request itself then fails.

    A request has ``AT_ONCE`` partitions at most, so that neither writing it nor reading its answer holds the loop for
    long. More of them take several, one after the other.
    """

    def __init__(self, *, uses_v2: bool) -> None:
        self.uses_v2 = uses_v2
        #: The partitions to which records were appended.
        self.partitions: set[TopicPartition] = set()
        self._new: dict[TopicPartition, None] = {}  # appended to, and not added yet
        self._groups: set[str] = set()  # added
        self._offsets: list[SendOffsets] = []  # portions of calls that are not answered yet, in their order
        self.may_be_known = False  # something of it was sent, so the coordinator may know of it, and it has to be ended
        self.has_paused = False  # CONCURRENT_TRANSACTIONS was answered to the first request
        self.retries_left = RETRIES
        self.is_ending = False  # an EndTxn was sent

    @property
    def has_added(self) -> bool:
        """Whether the coordinator has answered that something is part of the transaction."""
        return bool(self._groups) or len(self._new) < len(self.partitions)

    def is_added(self, partition: TopicPartition) -> bool:
        """Whether batches for ``partition`` may be sent."""
        return partition in self.partitions and (self.uses_v2 or partition not in self._new)

    def append(self, partition: TopicPartition) -> None:
        if partition not in self.partitions:
            self.partitions.add(partition)
            if not self.uses_v2:
                self._new[partition] = None

    def send_offsets(self, call: SendOffsets) -> None:
        if len(call.offsets) <= AT_ONCE:
            self._offsets.append(call)
            return
        pairs = list(call.offsets.items())
        for begin in range(0, len(pairs), AT_ONCE):
            self._offsets.append(replace(call, offsets=dict(pairs[begin : begin + AT_ONCE])))

    def take_offsets(self) -> list[int]:
        """Return the numbers of the calls whose offsets are not all answered, and forget these."""
        portions, self._offsets = self._offsets, []
        return list(dict.fromkeys(portion.number for portion in portions))

    def abandon(self, number: int) -> bool:
        """Forget the offsets of this call; return whether they were still to be answered."""
        left = [call for call in self._offsets if call.number != number]
        was_waiting = len(left) < len(self._offsets)
        self._offsets = left
        return was_waiting

    def next_request(self, identity: ProducerIdentity) -> ControlRequest | None:
        """Return the request that adds something to the transaction; None where there is nothing to add.

        Any thread may call this: health() asks whether there is one, while the loop's thread takes offsets out.
        """
        if new := tuple(self._new.copy())[:AT_ONCE]:
            return AddPartitionsToTxn(identity, new)
        call = next(iter(self._offsets), None)
        if call is None:
            return None
        if not self.uses_v2 and call.group.group_id not in self._groups:
            return AddOffsetsToTxn(identity, call.group.group_id)
        return TxnOffsetCommit(identity, call.group, call.offsets, self.uses_v2)

    def added(self, request: ControlRequest) -> int | None:
        """``request`` was answered without an error. Return the number of the call whose last offsets it stored."""
        match request:
            case AddPartitionsToTxn():
                for partition in request.partitions:
                    self._new.pop(partition, None)
            case AddOffsetsToTxn():
                self._groups.add(request.group_id)
            case TxnOffsetCommit() if self._offsets and self._offsets[0].offsets is request.offsets:
                number = self._offsets.pop(0).number
                return None if self._offsets and self._offsets[0].number == number else number
        return None
