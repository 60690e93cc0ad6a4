"""Fetched and not yet handed out: the buffers of all partitions, and in which order they are served."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from ...errors import KafkaError
from ...types import TopicPartition
from ...wire import FrameBuffers
from ..subscription.position import PartitionPosition
from ..subscription.state import Subscription
from .fetched_partition import FetchedPartition, Limits
from .frame_memory import FrameMemory
from .partition_buffer import PartitionBuffer

#: A buffer that may be handed out, and where its partition stands.
Serving: TypeAlias = tuple[PartitionBuffer, PartitionPosition]

# How many partitions serving looks at before it goes to the trouble of listing all.
_FIRST_FEW: Final = 16


class FetchBuffer:
    """All partitions' buffers. Only claims that still hold are served; the rest is dropped when it is met.

    What happened here that changes from where a partition is fetched on, or whether, is told by ``take_touched``.
    """

    def __init__(
        self, limits: Limits | None = None, buffers: FrameBuffers | None = None, *, budget: int = sys.maxsize
    ) -> None:
        self._limits = limits or Limits()
        self._budget = budget
        # In the order of service. A plain dict whose first keys are deleted again and again is slow to find its first.
        self._partitions: OrderedDict[TopicPartition, PartitionBuffer] = OrderedDict()
        self._memory = FrameMemory(buffers)
        self._open: dict[TopicPartition, None] = {}  # those of which something is decompressed, or decoded
        self._touched: dict[TopicPartition, None] = {}

    @property
    def bytes(self) -> int:
        """The memory that what was fetched and not taken yet occupies: frames, and what is decompressed already.

        Spare buffers for the next frames count as well.
        """
        return self._memory.bytes + self._memory.buffers.spare_bytes

    @property
    def is_crowded(self) -> bool:
        """Whether that is more than it may be: no batch is to be opened that can wait."""
        return self.bytes > self._budget

    def take_touched(self) -> list[TopicPartition]:
        """Return the partitions whose buffers were filled, emptied or dropped since the last call."""
        if not self._touched:
            return []
        touched, self._touched = self._touched, {}
        return list(touched)

    @property
    def has_touched(self) -> bool:
        return bool(self._touched)

    def add(self, fetched: FetchedPartition, position: PartitionPosition) -> None:
        """Store what arrived for a claim that still holds, all of it."""
        arriving = self.begin(fetched, position)
        while arriving is not None:
            arriving = self.add_more(arriving, position)

    def begin(self, fetched: FetchedPartition, position: PartitionPosition) -> PartitionBuffer | None:
        """Store the first of what arrived for a claim that still holds; return where more of it is to be added."""
        buffer = self._partitions.get(fetched.tp)
        if buffer is None or buffer.token != position.token:
            self._drop(fetched.tp)
            buffer = PartitionBuffer(
                fetched.tp, position.token, position.position, self._limits, self._memory, position.leader_epoch
            )
            self._partitions[fetched.tp] = buffer
        buffer.begin(fetched)
        return self._has_added(buffer, position)

    def add_more(self, buffer: PartitionBuffer, position: PartitionPosition) -> PartitionBuffer | None:
        """Store some more of what arrived; return where there is still more to be added. The claim must still hold."""
        buffer.add_more()
        return self._has_added(buffer, position)

    def leave_rest(self, buffer: PartitionBuffer) -> None:
        """Store no more of what arrived: it is fetched again."""
        buffer.leave_rest()
        self._touched[buffer.tp] = None

    def _has_added(self, buffer: PartitionBuffer, position: PartitionPosition) -> PartitionBuffer | None:
        self._touched[buffer.tp] = None
        self._drop_if_done(buffer, position)
        return buffer if buffer.is_arriving else None

    def fail(self, tp: TopicPartition, position: PartitionPosition, error: KafkaError) -> None:
        """Put ``error`` behind whatever is buffered of this claim."""
        offset, _, _ = self.frontier(tp, position)
        self.add(FetchedPartition(tp, position.token, offset, memoryview(b""), error=error), position)

    def frontier(self, tp: TopicPartition, position: PartitionPosition) -> tuple[int, int | None, bool]:
        """The next offset to ask for, the leader epoch of the last record before it, and whether that was read.

        That is behind what is buffered for this claim, else the position.
        """
        buffer = self._partitions.get(tp)
        return frontier(buffer if buffer is not None and buffer.token == position.token else None, position)

    def of(self, tp: TopicPartition) -> PartitionBuffer | None:
        """What is buffered of ``tp``, if anything is."""
        return self._partitions.get(tp)

    def is_current(self, buffer: PartitionBuffer) -> bool:
        """Whether it was not dropped."""
        return self._partitions.get(buffer.tp) is buffer

    def served(self, buffer: PartitionBuffer, position: PartitionPosition) -> None:
        """It had its turn: all others come first now. Where a record was refused, it is still the turn of that."""
        if buffer.refused is None:
            self._partitions.move_to_end(buffer.tp)
        if buffer.is_open:
            self._open[buffer.tp] = None
        else:
            self._open.pop(buffer.tp, None)
        if buffer.empty:
            self._touched[buffer.tp] = None
            self._drop_if_done(buffer, position)

    def pass_by(self, buffer: PartitionBuffer) -> None:
        """All others come first now, whatever this one holds."""
        if self.is_current(buffer):
            self._partitions.move_to_end(buffer.tp)

    def _drop_if_done(self, buffer: PartitionBuffer, position: PartitionPosition) -> None:
        """Keep only what holds something, so that serving costs nothing for the partitions that have no records."""
        if buffer.next == position.position and buffer.empty:
            self._drop(buffer.tp)

    def _drop(self, tp: TopicPartition) -> None:
        buffer = self._partitions.pop(tp, None)
        self._open.pop(tp, None)
        if buffer is not None:
            buffer.drop()
            self._touched[tp] = None

    def drop(self, tp: TopicPartition) -> None:
        """Forget what is buffered of ``tp``: it is fetched again, from the position on."""
        self._drop(tp)

    def clear_error(self, error: KafkaError) -> list[TopicPartition]:
        """Forget it, and return where it was: more than one partition where one request failed for many.

        They are asked again, from their positions.
        """
        failed = [tp for tp, buffer in self._partitions.items() if buffer.error is error and not buffer.ready]
        for tp in failed:
            self._drop(tp)
        return failed

    def servable(self, subscription: Subscription, only: Iterable[TopicPartition] | None = None) -> Iterator[Serving]:
        """The buffers that may be handed out now, in the order of service: who was served comes last.

        They are those that are there at the beginning. Most callers have enough with the first few: that is all that
        they pay for. Where memory is short, those come first whose batches are open: each one more would need more.
        """
        wanted = None if only is None else frozenset(only)
        for tp in self._in_order():
            buffer = self._partitions.get(tp)
            if buffer is None or (wanted is not None and tp not in wanted):
                continue
            position = subscription.get(tp, buffer.token)
            if position is None or not position.fetchable:
                continue
            # The latter: behind offsets that hold no record.
            if buffer.ready or not buffer.empty or buffer.next > position.position:
                yield buffer, position

    def _in_order(self) -> Iterator[TopicPartition]:
        first = list(self._open) if self.is_crowded else []
        first += islice(self._partitions, _FIRST_FEW)
        if len(self._partitions) <= _FIRST_FEW:
            return iter(dict.fromkeys(first))
        return self._and_others(list(dict.fromkeys(first)))

    def _and_others(self, first: list[TopicPartition]) -> Iterator[TopicPartition]:
        yield from first
        seen = frozenset(first)
        yield from [tp for tp in self._partitions if tp not in seen]


def frontier(buffer: PartitionBuffer | None, position: PartitionPosition) -> tuple[int, int | None, bool]:
    """Do as FetchBuffer.frontier, of what is buffered for this claim (None: nothing)."""
    if buffer is None:
        return position.position, position.leader_epoch, position.epoch_is_read
    return buffer.end, buffer.epoch, position.epoch_is_read or buffer.end > position.position
