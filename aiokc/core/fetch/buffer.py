"""The fetch buffer: what is fetched and not handed out, of all partitions, and in which order they are served."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, TypeAlias

from ...errors import KafkaError
from ...types import TopicPartition
from ...wire import FrameBuffers
from ..subscription.position import FETCHING, PartitionPosition
from ..subscription.state import Subscription
from .partition.fetched_partition import FetchedPartition, Limits
from .partition.frame_memory import FrameMemory
from .partition.partition_buffer import PartitionBuffer

#: A buffer that may be handed out, and its partition's position.
Serving: TypeAlias = tuple[PartitionBuffer, PartitionPosition]

# ``servable`` looks at so many partitions before it lists all others, which costs more.
_FIRST_FEW: Final = 16


class FetchBuffer:
    """The buffers of all partitions. It serves only buffers whose token is current.

    A buffer of an older token (its partition was revoked, sought or reset) is dropped by FetchPlanner.look, or once
    more of its partition arrives. ``take_touched`` tells the planner for which partitions the next offset to fetch, or
    whether to fetch at all, may have changed; ``take_filled`` tells it in which an answer was stored, and
    nothing else has changed. One that is emptied is fetched from the same offset on: that is no news.
    """

    def __init__(
        self, limits: Limits | None = None, buffers: FrameBuffers | None = None, *, budget: int = sys.maxsize
    ) -> None:
        self._limits = limits or Limits()
        # In the order of service. Not a plain dict: if its first keys are deleted again and again, finding the first
        # key that is left becomes slow.
        self._partitions: OrderedDict[TopicPartition, PartitionBuffer] = OrderedDict()
        self._memory = FrameMemory(buffers, budget=budget)
        #: Lets go of the frames of the records that were handed out, as FrameMemory.settle does: in steps. Records that
        #: are still in use are copied.
        self.settle: Final = self._memory.settle
        #: Copies some more of what is left of an old frame, as FrameMemory.replace does, where adding has begun that.
        self.replace: Final = self._memory.replace
        self._open: dict[TopicPartition, None] = {}  # those with something decompressed or decoded
        self._touched: dict[TopicPartition, None] = {}
        self._filled: dict[TopicPartition, PartitionBuffer] = {}

    @property
    def bytes(self) -> int:
        """The memory in use: frames with unread batches, decompressed batches, spare buffers for the next frames."""
        return self._memory.in_use

    @property
    def is_settled(self) -> bool:
        """Whether ``settle`` has nothing to do."""
        return self._memory.is_settled

    @property
    def settling_frees(self) -> bool:
        """Whether ``settle`` may make room: a frame is kept only for what was handed out."""
        return self._memory.settling_frees

    @property
    def is_replacing(self) -> bool:
        """Whether ``replace`` has something to do."""
        return self._memory.is_replacing

    @property
    def is_empty(self) -> bool:
        """Whether nothing is buffered of any partition."""
        return not self._partitions

    def offsets(self, subscription: Subscription) -> int:
        """How many offsets of current holds lie between what was handed out and what was fetched last."""
        count = 0
        for tp, buffer in list(self._partitions.items()):
            position = subscription.get(tp, buffer.token)
            if position is not None:
                count += max(0, buffer.end - position.position)
        return count

    @property
    def is_over_budget(self) -> bool:
        """Whether ``bytes`` exceeds the budget: then no batch is to be opened that can wait."""
        return self._memory.is_over_budget

    @property
    def is_far_over_budget(self) -> bool:
        """Whether ``bytes`` exceeds the budget so far that a call which has records opens no other batch."""
        return self._memory.is_far_over_budget

    def take_touched(self) -> list[TopicPartition]:
        """Return the partitions of whose buffers ``take_filled`` does not tell all that has happened since."""
        if not self._touched:
            return []
        touched, self._touched = self._touched, {}
        return list(touched)

    def take_filled(self, most: int) -> list[PartitionBuffer]:
        """Return up to ``most`` of the buffers in which an answer was stored since, and which go on behind it."""
        filled = self._filled
        if len(filled) > most:
            return [filled.pop(tp) for tp in list(islice(filled, most))]
        self._filled = {}
        return list(filled.values())

    @property
    def has_touched(self) -> bool:
        """Whether ``take_touched`` or ``take_filled`` has anything to tell."""
        return bool(self._touched or self._filled)

    def add(self, fetched: FetchedPartition, position: PartitionPosition) -> None:
        """Store all that arrived under a token that is current."""
        arriving = self.begin(fetched, position)
        while arriving is not None:
            arriving = self.add_more(arriving, position)

    def begin(self, fetched: FetchedPartition, position: PartitionPosition) -> PartitionBuffer | None:
        """Store the first batches of what arrived under a current token.

        Return the buffer to give to ``add_more`` for the others, or None if there are no others.
        """
        buffer = self._current(fetched.tp, position)
        buffer.begin(fetched)
        return self._has_added(buffer, position)

    def add_run(
        self, tp: TopicPartition, offset: int, records: memoryview, position: PartitionPosition, broker: int
    ) -> PartitionBuffer | None:
        """Store what arrived under a current token, if it is one run, and return its buffer. None: nothing is stored.

        It does what ``begin`` does, for what nearly every partition brings where partitions are many.
        """
        buffer = self._current(tp, position)
        if not buffer.add_run(records, offset, broker):
            return None
        self._filled[tp] = buffer
        return buffer

    def _current(self, tp: TopicPartition, position: PartitionPosition) -> PartitionBuffer:
        buffer = self._partitions.get(tp)
        if buffer is not None:
            if buffer.token == position.token:
                return buffer
            self.drop(tp)
        buffer = self._partitions[tp] = PartitionBuffer(
            tp, position.token, position.position, self._limits, self._memory, position.leader_epoch, position.until
        )
        return buffer

    def add_more(self, buffer: PartitionBuffer, position: PartitionPosition) -> PartitionBuffer | None:
        """Store some more of what arrived; return the buffer if there is still more. The token must be current."""
        buffer.add_more()
        return self._has_added(buffer, position)

    def leave_rest(self, buffer: PartitionBuffer) -> None:
        """Store no more of what arrived: the rest is fetched again."""
        buffer.leave_rest()
        self._touched[buffer.tp] = None

    def _has_added(self, buffer: PartitionBuffer, position: PartitionPosition) -> PartitionBuffer | None:
        if buffer.undecoded:  # as nearly always
            self._filled[buffer.tp] = buffer
            return buffer if buffer.is_arriving else None
        self._touched[buffer.tp] = None
        if buffer.empty and buffer.next == position.position:  # partitions without records must cost nothing to serve
            self._forget(buffer.tp)
        return buffer if buffer.is_arriving else None

    def fail(self, tp: TopicPartition, position: PartitionPosition, error: KafkaError) -> None:
        """Put ``error`` behind everything that is buffered under this token."""
        offset, _, _ = self.frontier(tp, position)
        self.add(FetchedPartition(tp, position.token, offset, memoryview(b""), error=error), position)

    def frontier(self, tp: TopicPartition, position: PartitionPosition) -> tuple[int, int | None, bool]:
        """The next offset to fetch, the leader epoch of the last record before it, and whether that record was read.

        This offset lies behind what is buffered under the position's token. It is the position if nothing is.
        """
        buffer = self._partitions.get(tp)
        return frontier(buffer if buffer is not None and buffer.token == position.token else None, position)

    def of(self, tp: TopicPartition) -> PartitionBuffer | None:
        """The buffer of ``tp``, or None."""
        return self._partitions.get(tp)

    def holds(self, tp: TopicPartition) -> bool:
        """Whether anything of ``tp`` is buffered: records, or an error."""
        buffer = self._partitions.get(tp)
        return buffer is not None and not buffer.empty

    def is_current(self, buffer: PartitionBuffer) -> bool:
        """Whether this buffer was not dropped."""
        return self._partitions.get(buffer.tp) is buffer

    def served(self, buffer: PartitionBuffer, position: PartitionPosition) -> None:
        """Put a partition that was served behind all others, unless a deserializer refused its next record."""
        if buffer.empty:
            at_end = buffer.next == position.position
            if not at_end or buffer.end != position.position or buffer.epoch != position.leader_epoch:
                self._touched[buffer.tp] = None
            if at_end:
                return self._forget(buffer.tp)
        if buffer.refused is None:
            self._partitions.move_to_end(buffer.tp)
        if buffer.is_open:
            self._open[buffer.tp] = None
        else:
            self._open.pop(buffer.tp, None)

    def served_of_run(self, buffer: PartitionBuffer) -> None:
        """Do as ``served`` does, where the run goes on and nothing else is decoded: what is open stays so."""
        self._partitions.move_to_end(buffer.tp)

    def pass_by(self, buffer: PartitionBuffer) -> None:
        """Put the partition behind all others, whatever its buffer holds.

        Also behind those without an open batch, while the buffer is over its budget: nothing of it can be handed out,
        so it would come first, and fail, at every call.
        """
        if self.is_current(buffer):
            self._partitions.move_to_end(buffer.tp)
            self._open.pop(buffer.tp, None)

    def _forget(self, tp: TopicPartition) -> None:
        self._partitions.pop(tp, None)
        if self._open:
            self._open.pop(tp, None)

    def drop(self, tp: TopicPartition) -> None:
        """Drop what is buffered of ``tp``: it is fetched again, from the position on."""
        buffer = self._partitions.pop(tp, None)
        self._open.pop(tp, None)
        if buffer is not None:
            buffer.drop()
            self._touched[tp] = None

    def clear_error(self, error: KafkaError) -> list[tuple[TopicPartition, int]]:
        """Drop the buffers that are at ``error``; return their partitions and tokens: one request may fail for many.

        They are fetched again, from their positions on. One with records before the error keeps both.
        """
        at_error = (buffer for buffer in self._partitions.values() if buffer.error is error and buffer.at_error)
        failed = [(buffer.tp, buffer.token) for buffer in at_error]
        for tp, _ in failed:
            self.drop(tp)
        return failed

    def servable(self, subscription: Subscription, only: Iterable[TopicPartition] | None = None) -> Iterator[Serving]:
        """Yield the buffers that may be handed out now, in the order of service: the last served comes last.

        Buffers that appear meanwhile may be among them, or not. Most callers stop after the first few, and pay only
        for those. While the buffer ``is_over_budget``, buffers with open batches come first, because opening another
        batch would need more memory.
        """
        wanted = None if only is None else frozenset(only)
        for tp in self._in_order() if wanted is None or len(wanted) != 1 else wanted:
            buffer = self._partitions.get(tp)
            if buffer is None or (wanted is not None and tp not in wanted):
                continue
            position = subscription.get(tp, buffer.token)
            if position is None or position.state is not FETCHING or position.paused or position.blocked:
                continue
            # ``next`` may be ahead of the position without a record: behind offsets that hold none.
            if not buffer.empty or buffer.next > position.position:
                yield buffer, position

    def still_servable(self, serving: Serving, subscription: Subscription) -> bool:
        """Whether a buffer that ``servable`` has yielded, before other tasks ran, may still be handed out."""
        buffer, position = serving
        if subscription.get(buffer.tp, buffer.token) is not position or not position.fetchable:
            return False
        return self.is_current(buffer) and (not buffer.empty or buffer.next > position.position)

    def going_on(self, stopped_at: Serving, rest: Iterator[Serving], subscription: Subscription) -> Iterator[Serving]:
        """Return ``stopped_at`` and the ``rest`` of what ``servable`` yields, after other tasks have run.

        ``rest`` is the iterator of ``servable`` itself. Chains of chains, one more after each time slice, would end
        Python: each of them takes a part of the stack.
        """
        return chain([stopped_at], rest) if self.still_servable(stopped_at, subscription) else rest

    def can_hand_out(self, subscription: Subscription, only: Iterable[TopicPartition] | None) -> bool:
        """Whether anything may be handed out now, as far as is known: not refused by a deserializer, and no error."""
        serving = self.servable(subscription, only)
        return any(not buffer.empty and not buffer.at_error and buffer.refused is None for buffer, _ in serving)

    def in_turn(self, subscription: Subscription) -> Serving | None:
        """Return what ``servable`` yields first, where that is the first in the order of service; else None."""
        tp = next(iter(self._partitions), None)
        if tp is None or (self._open and self.is_over_budget):
            return None
        buffer = self._partitions[tp]
        position = subscription.get(tp, buffer.token)
        return None if position is None or not position.fetchable else (buffer, position)

    def _in_order(self) -> Iterator[TopicPartition]:
        first = list(islice(self._partitions, _FIRST_FEW))
        if self._open and self.is_over_budget:
            first = list(dict.fromkeys(chain(self._open, first)))
        if len(self._partitions) <= _FIRST_FEW:
            return iter(first)
        return chain(first, self._others(first))

    def _others(self, first: list[TopicPartition]) -> Iterator[TopicPartition]:
        seen = frozenset(first)
        yield from [tp for tp in self._partitions if tp not in seen]


def frontier(buffer: PartitionBuffer | None, position: PartitionPosition) -> tuple[int, int | None, bool]:
    """Do as FetchBuffer.frontier does, with the buffer of the position's token (None: nothing is buffered)."""
    if buffer is None:
        return position.position, position.leader_epoch, position.epoch_is_read
    return buffer.end, buffer.epoch, position.epoch_is_read or buffer.end > position.position
