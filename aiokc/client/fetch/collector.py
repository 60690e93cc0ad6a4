"""Decodes buffered batches into records, in time slices, as far as a call needs, and hands the records out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID
from weakref import WeakSet

from ...config import ClientConfig
from ...core.cluster.avoided_replicas import AvoidedReplicas
from ...core.counters import FetchCounters
from ...core.fetch.buffer import FetchBuffer, Serving
from ...core.fetch.partition.frame_memory import Run
from ...core.fetch.partition.partition_buffer import PartitionBuffer
from ...core.fetch.partition.record_sequence import RecordSequence
from ...core.fetch.planner import Demand
from ...core.subscription.position import PartitionPosition
from ...core.subscription.state import Subscription
from ...errors import CorruptRecord, KafkaError, RecordError, fresh
from ...records import NATIVE
from ...types import BatchEnd, ConsumerRecords, TopicPartition
from ..aio.signal import Signal
from ..aio.time_slice import TimeSlice
from .batch_opening import BatchOpening

# How many records decoding takes between two looks at the clock. Such a step takes 0.1 ms in C and 0.4 ms in Python;
# larger steps would save nothing more.
_SLICE_RECORDS = 2048 if NATIVE else 256

# Makes a BatchEnd without the Python function that NamedTuple has for it, which takes longer than all the rest.
_end: Final[Callable[[tuple[int, int | None, int, UUID | None]], BatchEnd]] = partial(tuple.__new__, BatchEnd)


def _joined(first: Sequence[Any], second: RecordSequence[Any, Any]) -> RecordSequence[Any, Any]:
    assert isinstance(first, RecordSequence)
    for part in second.parts:
        first.add(part)
    return first


@dataclass(slots=True)
class HandOut:
    """What one call hands out: where each partition's part ends, and the buffers whose error is due.

    ``skipped`` are partitions whose position has moved on without a record.
    """

    ends: dict[TopicPartition, BatchEnd] = field(default_factory=dict)
    skipped: list[TopicPartition] = field(default_factory=list)
    failed: list[PartitionBuffer] = field(default_factory=list)


class FetchCollector:
    """The consuming side of the fetch buffer.

    ``wake`` is notified when there is more to fetch: when the buffer has room, or when the error of a partition was
    raised. ``resume_at`` is set where the last plan left partitions out for want of room: they can be fetched once no
    more bytes than this are buffered (None: none was left out).
    """

    def __init__(
        self,
        config: ClientConfig,
        subscription: Subscription,
        buffer: FetchBuffer,
        counters: FetchCounters,
        wake: Signal,
        arrived: Signal,
        avoided: AvoidedReplicas | None = None,
    ) -> None:
        self.resume_at: int | None = None
        self._retry_backoff = config.retry_backoff_ms / 1e3
        self.subscription = subscription
        self.buffer = buffer
        self._has_taken = False  # whether the application has taken records since the last Fetch was sent
        self.waits = False  # whether a call of the application waits for records
        self._waits_for: frozenset[TopicPartition] | None = None
        self.counters = counters
        self._wake = wake
        self._avoided = avoided or AvoidedReplicas()
        self._take = PartitionBuffer.take
        self._held_back: dict[TopicPartition, PartitionBuffer] = {}  # with an error to raise once a call may
        self._failed_as_columns: dict[TopicPartition, PartitionBuffer] = {}
        self._read_again: dict[TopicPartition, tuple[int, int]] = {}  # tokens and offsets where columns have failed
        self.raised: WeakSet[KafkaError] = WeakSet()  # errors of requests that a call has raised
        self._unreadable: dict[TopicPartition, tuple[int, int]] = {}  # tokens and positions where reading has failed
        self.opening = BatchOpening(arrived)
        self.skipped: list[TopicPartition] = []  # what the last ``take`` has moved on without a record

    def hand_out_typed(self) -> None:
        """From here on ``take`` only hands out what client/fetch/deserializing.py has deserialized."""
        self._take = PartitionBuffer.take_typed

    async def decode(
        self, count: int, time_slice: TimeSlice, only: Iterable[TopicPartition] | None = None, *, enough: int = 0
    ) -> None:
        """Decode until there are up to ``count`` records in all, letting other tasks run after each time slice.

        It goes on to no further partition once there are ``enough`` records (default: ``count``), nor, once there is
        any, where the buffer has no memory to open another batch. If it is cancelled, everything decoded so far stays
        in the buffers for the next call.

        After each time slice it goes on where it has stopped: to pass thousands of partitions again takes longer than a
        slice. What comes meanwhile, of others, may wait for the next call.
        """
        wanted, enough = count, enough or count
        order = rest = self.buffer.servable(self.subscription, only)
        passed: list[Serving] = []
        while not self._decode_in_order(order, count, enough, time_slice.ends, passed, has_some=count < wanted):
            await time_slice.give_way()
            stopped_at = passed.pop()
            ready = sum([len(buffer.ready) for buffer, _ in passed])
            count, enough = count - ready, enough - ready
            order = self.buffer.going_on(stopped_at, rest, self.subscription)
            passed.clear()

    def decode_at_once(
        self,
        count: int,
        enough: int,
        only: Iterable[TopicPartition] | None,
        until: float,
        served: list[Serving] | None = None,
    ) -> bool:
        """Decode as ``decode`` does, but without an await, and at most until the loop's time ``until``.

        Return whether all is done: else the caller has to let other tasks run. The buffers that it passed are appended
        to ``served``, for ``take`` if no other task runs in between.
        """
        if self.buffer.is_empty:  # as for whoever is quicker than the records come
            return True
        order = self.buffer.servable(self.subscription, only)
        return self._decode_in_order(order, count, enough, until, served)

    def _decode_in_order(
        self,
        order: Iterable[Serving],
        count: int,
        enough: int,
        until: float,
        served: list[Serving] | None,
        *,
        has_some: bool = False,
    ) -> bool:
        """Decode as ``decode_at_once`` does, what comes in this order. ``has_some``: others have records already."""
        time = asyncio.get_running_loop().time
        for serving in order:
            buffer = serving[0]
            if served is not None:
                served.append(serving)
            if has_some and self._has_to_wait(buffer):
                break  # Those that have records go behind this one, so it is the first at one of the next calls.
            if not self._decode(buffer, count, enough, until, time):
                return False
            ready = len(buffer.ready)
            has_some = has_some or ready > 0
            count -= ready
            enough -= ready
            if enough <= 0:
                break
        return True

    def _decode(
        self, buffer: PartitionBuffer, count: int, enough: int, until: float, time: Callable[[], float]
    ) -> bool:
        """Decode up to ``count`` records of one partition; return False if time is over.

        A batch that a thread has to open ends them: until that is done, it counts as one that has not come.
        """
        ready = len(buffer.ready)
        while ready < count and (first := buffer.first) is not None:
            if type(first) is not Run:  # which needs no memory, and no opening
                if ready and self._has_to_wait(buffer, ahead=ready >= enough):
                    break
                if self.opening.takes_long(buffer):
                    self.opening.begin(buffer)
                    break
            buffer.decode(min(_SLICE_RECORDS, count - ready))
            ready = len(buffer.ready)
            if time() > until:
                return False
        return True

    def _has_to_wait(self, buffer: PartitionBuffer, *, ahead: bool = False) -> bool:
        """Whether the next record of a partition is not worth another open batch to a call that has records.

        Records to decode ``ahead`` of calls to come are worth none as soon as the budget is exceeded.
        """
        has_no_room = self.buffer.is_over_budget if ahead else self.buffer.is_far_over_budget
        return has_no_room and buffer.needs_memory

    def has_undecoded(self, only: Iterable[TopicPartition] | None = None) -> bool:
        """Whether records wait to be decoded or deserialized: they may have come while other tasks ran.

        Those of a batch that waits for a thread do not count: ``arrived`` tells of them.
        """
        if self.buffer.is_empty:
            return False
        holds_up, servable = self.opening.holds_up, self.buffer.servable(self.subscription, only)
        return any(buffer.ready or (buffer.undecoded and not holds_up(buffer)) for buffer, _ in servable)

    def user_waits(self, only: frozenset[TopicPartition] | None) -> None:
        """The application waits for records of ``only`` (None: any), and gets none, until it takes records."""
        self.waits, self._waits_for = True, only
        if self.resume_at is not None:
            self._wake.notify()

    @property
    def demand(self) -> Demand:
        """What the application does, for the planner: whether it takes records, or waits for some.

        A call that got nothing, because its time was over or it raised, counts as one that waits until another call
        takes records: an application that polls without waiting has to get them at some time. But the application may
        be at work on something else for long. So while the buffer is full, it waits no more once there is something to
        hand out: else each partition in turn would be fetched into the full buffer.
        """
        waits = self.waits
        if waits and self.resume_at is not None:
            waits = not self.buffer.can_hand_out(self.subscription, self._waits_for)
        return Demand(self._has_taken, waits, self._waits_for)

    def sent(self) -> None:
        """A Fetch is sent: ``demand`` counts the records that the application takes from now on."""
        self._has_taken = False

    def take(
        self, count: int, only: Collection[TopicPartition] | None = None, served: Iterable[Serving] | None = None
    ) -> ConsumerRecords[Any, Any]:
        """Hand out up to ``count`` decoded records. Positions advance here, in the tick in which records are returned.

        ``served``: the buffers that ``decode_at_once`` passed, in this tick. Raises the error of a partition only if
        there is no record to hand out.
        """
        if self.buffer.settle():
            self._tell_of_room()
        batch: ConsumerRecords[Any, Any] = ConsumerRecords()
        step = HandOut()
        for buffer, position in self.buffer.servable(self.subscription, only) if served is None else served:
            try:
                records, after = self._take(buffer, count)
            except MemoryError:
                if not batch:
                    raise
                break  # as in ``_take_of_runs``
            if records:
                batch[buffer.tp] = records
                count -= len(records)
            self.hand_out(buffer, position, len(records), after, step)
            if count <= 0:
                break
        batch.end_at(self.handed_out(step, only))
        return batch

    def take_in_turn(self, count: int, until: float) -> ConsumerRecords[Any, Any] | None:
        """Do as ``decode_at_once`` and ``take`` do with up to ``count`` records of the partitions in turn.

        It returns fewer only where the next ones can't be had at once: an error comes first, a batch is to be opened,
        the next partition may not be handed out, nothing more is buffered, there is no memory for them, or the loop's
        time ``until`` is over.
        None: nothing was handed out, since that is so from the beginning; what was decoded stays for the next call.
        """
        batch = self.take_runs(count, until)
        if batch is not None:
            return batch
        serving = self.buffer.in_turn(self.subscription)
        if serving is None:
            return None
        buffer, _ = serving
        time = asyncio.get_running_loop().time
        if not self._decode(buffer, count, count, until, time):
            return None
        served = [serving]
        if len(buffer.ready) < count:
            served.clear()
            if not self.decode_at_once(count, count, None, until, served):
                return None
            if sum(len(buffer.ready) for buffer, _ in served) < count:
                return None
        return self.take(count, None, served)

    def take_runs(self, count: int, until: float) -> ConsumerRecords[Any, Any] | None:
        """Do as ``take_in_turn`` does, as long as the partitions in turn have runs; no error is due where they have."""
        serving = self.buffer.in_turn(self.subscription) if count <= _SLICE_RECORDS else None
        return None if serving is None else self._take_of_runs(serving, count, until)

    def _take_of_runs(self, serving: Serving, count: int, until: float) -> ConsumerRecords[Any, Any] | None:
        """Do as ``take_runs`` does, from the partition in turn on.

        Nearly every call ends here, so it is short. What the last call handed out is settled here where that may make
        room which is wanted, else by the next poll, a millisecond later at most: to copy records that the application
        still holds frees nothing as long as their frame has others.
        """
        if self.resume_at is not None and self.buffer.settling_frees and self.buffer.settle():
            self._tell_of_room()
        batch: ConsumerRecords[Any, Any] = ConsumerRecords()
        ends: dict[TopicPartition, BatchEnd] = {}
        left = count
        while True:
            buffer, position = serving
            try:
                taken = buffer.take_of_runs(left)
            except MemoryError:
                if not ends:
                    raise
                break  # the positions of other partitions have moved: only this call can return their records
            if taken is None:
                break
            records, goes_on = taken
            left -= len(records)
            tp, after, epoch = buffer.tp, buffer.taken, buffer.taken_epoch
            self.subscription.hand_out(tp, after, epoch)
            if tp in ends:  # it is in turn again: its runs are many, and small
                records = _joined(batch[tp], records)
            batch[tp] = records
            ends[tp] = _end((after, epoch, position.assignment_token, position.topic_id))
            if goes_on:
                self.buffer.served_of_run(buffer)
                break
            self.buffer.served(buffer, position)
            if self.buffer.is_far_over_budget and self.buffer.settling_frees:
                self.subscription.changes.notify()  # the next call has to look: that settles what was handed out
            following = self.buffer.in_turn(self.subscription) if left else None
            if following is None or self._has_to_wait(following[0]) or asyncio.get_running_loop().time() > until:
                break
            serving = following
        if not ends:
            return None
        self.counters.records += count - left
        self._has_taken, self.waits = True, False
        if self.resume_at is not None and (self.buffer.settling_frees or self.buffer.bytes <= self.resume_at):
            self._make_room()
        batch.end_at(ends)
        return batch

    def hand_out(
        self, buffer: PartitionBuffer, position: PartitionPosition, count: int, after: int, step: HandOut
    ) -> None:
        """Hand out ``count`` records of a partition, which may be 0: those before the offset ``after``."""
        if count:
            epoch = buffer.taken_epoch
            step.ends[buffer.tp] = BatchEnd(after, epoch, position.assignment_token, position.topic_id)
            self.counters.records += count
            self.subscription.hand_out(buffer.tp, after, epoch)
        else:
            if after > position.position:  # offsets that hold no record
                position.skip_to(after, buffer.taken_epoch)
                step.skipped.append(buffer.tp)
            if buffer.undecoded:
                return
        self.buffer.served(buffer, position)
        is_over = position.until is not None and position.position >= position.until
        if buffer.error is not None and buffer.at_error and not is_over:  # else it lies behind what is wanted
            step.failed.append(buffer)

    def handed_out(self, step: HandOut, only: Collection[TopicPartition] | None) -> dict[TopicPartition, BatchEnd]:
        """End one call, after all its partitions: return where the records that it hands out end.

        Raises the error of a partition, or why a batch of ``only`` is not open, only if the call hands out nothing;
        else ``raise_held_back`` raises it later.
        """
        self.skipped = step.skipped
        if step.ends:
            self._has_taken, self.waits = True, False
        if self.resume_at is not None:
            self._make_room()
        if not step.ends and step.failed:
            self._raise(step.failed[0])
        if not step.ends:
            self._raise_unopened(only)
        elif self._unopened(None) is not None:
            self.subscription.changes.notify()  # the next call has to look
        for buffer in step.failed:
            self._held_back[buffer.tp] = buffer
            self.subscription.changes.notify()  # the next call has to look
        return step.ends

    def _make_room(self) -> None:
        """Settle what is handed out just now: copies of it rather than no room to read ahead."""
        with suppress(MemoryError):  # the next call settles it; to raise here would lose all that is handed out
            self.buffer.settle()
        self._tell_of_room()

    def fetch_again(self, tp: TopicPartition) -> None:
        """Drop what is buffered of ``tp``, and have it fetched again, from the position on."""
        self.buffer.drop(tp)
        self._wake.notify()

    def failed_as_columns(self, buffers: Iterable[PartitionBuffer]) -> None:
        """Note that the errors of these buffers came up while columns were made: they may be of these columns alone."""
        self._failed_as_columns.update((buffer.tp, buffer) for buffer in buffers)

    def read_as_records(self) -> None:
        """Records are asked for: what could not be read as columns is fetched again, if its error was not raised yet.

        A record may have an error as a record, too. That is found anew, then. It is fetched again once for each place:
        while other partitions have records, a call for records may return before it is there, and the next one, for
        columns, fails at it again. Calls that alternate so would never read the record, nor tell of its error.
        """
        while self._failed_as_columns:
            tp, buffer = self._failed_as_columns.popitem()
            place = buffer.token, buffer.next
            if self.buffer.is_current(buffer) and self._read_again.get(tp) != place:
                self._forget_others(self._read_again)
                self._read_again[tp] = place
                self.fetch_again(tp)

    def left_out(self, resume_at: int | None) -> None:
        """Set ``resume_at``. If there is no room to read ahead, the frames of what was handed out must not fill it.

        One step of settling is done here. ``wake`` is notified if that makes room, or if there is more to settle: then
        the next plan goes on with it.
        """
        self.resume_at = resume_at
        if resume_at is not None:
            with suppress(MemoryError):  # not the fetcher's end: the application's next call settles it, or raises
                self.settle()

    async def settle_all(self, time_slice: TimeSlice) -> None:
        """The application asks for more, or nothing more is handed out: let go of the frames of what it was given.

        Of the sequences that it still holds, each has a copy of its own part of the frame from here on. Lets other
        tasks run after each MiB.
        """
        while self.settle():
            await time_slice.give_way()

    def settle(self) -> bool:
        """Make a step of ``settle_all``; return whether there is more to do."""
        if self.buffer.settle():
            self._tell_of_room()
        return not self.buffer.is_settled

    def _tell_of_room(self) -> None:
        """Wake the fetcher if there is room to read ahead again, or will be once the rest is settled (``left_out``)."""
        if self.resume_at is not None and (self.buffer.bytes <= self.resume_at or not self.buffer.is_settled):
            self._wake.notify()

    def raise_held_back(self, only: Collection[TopicPartition] | None = None) -> None:
        """Raise an error that an earlier call held back, since other partitions had records: they may always have."""
        self._raise_unopened(only)
        for tp, buffer in list(self._held_back.items()):
            position = self.subscription.get(tp, buffer.token)
            if position is None or not self.buffer.is_current(buffer) or not buffer.at_error:
                del self._held_back[tp]
            elif position.fetchable and (only is None or tp in only):
                del self._held_back[tp]
                self._raise(buffer)

    def _raise_unopened(self, only: Collection[TopicPartition] | None) -> None:
        """Raise why a large batch is not open, if this call asks for its partition."""
        buffer = self._unopened(only)
        if buffer is not None:
            self.opening.raise_failure(buffer)

    def _unopened(self, only: Collection[TopicPartition] | None) -> PartitionBuffer | None:
        """The buffer that has waited longest for a call that raises why its batch is not open; None: this one may not.

        That of a partition which may not be handed out (a paused one, say) is kept until it may: else an application
        that pauses it every now and then might never be told.
        """
        for buffer in self.opening.failed:
            position = self.subscription.get(buffer.tp, buffer.token)
            if position is not None and position.fetchable and (only is None or buffer.tp in only):
                return buffer
        return None

    def is_unreadable(self, tp: TopicPartition, position: PartitionPosition) -> bool:
        """Whether the application was told that nothing can be read at this position, and has left it there."""
        return self._unreadable.get(tp) == (position.token, position.position)

    def _forget_others(self, places: dict[TopicPartition, tuple[int, int]]) -> None:
        """Forget the places of partitions that were given up or sought: short-lived topics may come by the thousand."""
        for tp in [tp for tp, (token, _) in places.items() if self.subscription.get(tp, token) is None]:
            del places[tp]

    def _raise(self, buffer: PartitionBuffer) -> None:
        error = buffer.error
        assert error is not None
        position = self.subscription.get(buffer.tp, buffer.token)
        if isinstance(error, RecordError) and position is not None:
            self._forget_others(self._unreadable)
            self._unreadable[buffer.tp] = position.token, position.position
        at = asyncio.get_running_loop().time() + self._retry_backoff
        if isinstance(error, CorruptRecord) and position is not None and error.broker == position.read_replica:
            self._avoided.damaged(error.broker, at)  # else each retry would read the same bytes again
        self.raised.add(error)
        failed = self.buffer.clear_error(error)
        self.subscription.retry_later([tp for tp, token in failed if self.subscription.get(tp, token) is not None], at)
        self.subscription.move_to_end(buffer.tp)
        self._wake.notify()  # for the fetcher to fetch it again at that time: no other event may come until then
        raise fresh(error)
