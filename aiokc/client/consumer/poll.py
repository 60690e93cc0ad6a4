"""The loop of getmany(), getone(), the iterator and getmany_columns(): look, else wait; cancelled, it loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Generic

from ...core.fetch.buffer import Serving
from ...errors import ConsumerClosed, UsageError
from ...types import ConsumerRecord, ConsumerRecords, K, RecordColumns, TopicPartition, V
from ..aio.single_user import SingleUser
from ..aio.steps import Steps
from ..arguments import checked_partition
from ..fetch.column_collector import ColumnPoll
from ..fetch.intercepting import ConsumerInterceptors
from ..in_use import InUse
from .poll_lease import PollLease
from .record_stream import RecordStream
from .runtime import ConsumerRuntime


class Poll(Generic[K, V]):
    """What getmany, getone, the iterator and getmany_columns have in common.

    Positions move between the last await and the return. As there is no await in between, a cancelled call loses no
    record.
    """

    def __init__(self, runtime: ConsumerRuntime, user: SingleUser) -> None:
        self._runtime = runtime
        self._user = user
        self._has_returned = False  # the last call returned records, so that an error may have had to wait
        self.in_use: InUse | None = None  # set once there is an iterator, which may outlive the Consumer
        #: Lets getmany() do without a poll for as long as nothing has happened since the last one.
        self.lease = PollLease(runtime, user)
        self.stream = RecordStream(runtime, user, self._step)
        #: The iterator, which ends when the consumer is stopped. ``items`` are the records that need no poll.
        self.steps: Steps[ConsumerRecord[K | None, V | None]] = self.stream.steps

    async def one(self) -> ConsumerRecord[K | None, V | None]:
        """Decode many records and hand out one; ``steps.items`` then has those that may follow without a poll."""
        self.stream.close()  # sets `ahead`: how many to decode
        began = asyncio.get_running_loop().time() if self._runtime.observers.all else None
        try:
            batch = await self._hand_out((), None, self.stream.ahead, 1, False)
        except Exception as error:
            self._failed(began, error)
            raise
        tp, records = next(iter(batch.items()))
        if self._runtime.hands_out_raw_records:
            self.stream.begin(tp)
        if began is not None:
            self.stream.observed(tp, records[0], began)
        return records[0]

    async def _step(self) -> ConsumerRecord[K | None, V | None]:
        try:
            return await self.one()
        except ConsumerClosed:
            if not self._runtime.stopped:
                raise
            raise StopAsyncIteration from None

    def records(
        self, partitions: tuple[TopicPartition, ...], timeout: float | None, decode: int, most: int
    ) -> Coroutine[Any, Any, ConsumerRecords[K | None, V | None]]:
        """Decode up to ``decode`` records and hand out up to ``most``. ``timeout`` is in seconds; None: no limit."""
        return self._hand_out(partitions, timeout, decode, most, bool(self._runtime.observers.all))

    def columns(
        self, partitions: tuple[TopicPartition, ...], timeout: float | None, wanted: ColumnPoll
    ) -> Coroutine[Any, Any, RecordColumns]:
        """Hand out records as columns, as ``wanted`` says. ``timeout`` is in seconds; None: no limit."""
        return self._hand_out_columns(partitions, timeout, wanted, bool(self._runtime.observers.all))

    def _failed(self, began: float | None, error: Exception) -> None:
        """Tell the observers that a call has raised ``error``; the end of a consumer that is stopped is no error."""
        if began is not None and not isinstance(error, ConsumerClosed | UsageError):
            self._runtime.observers.batch({}, asyncio.get_running_loop().time() - began, error)

    def _raises(self, began: float | None, error: Exception, only: frozenset[TopicPartition] | None) -> None:
        """A call that has begun raises ``error`` and hands out nothing.

        An error that the next calls raise, too, may come before they wait: a deserializer refuses the record again, a
        topic is still forbidden. A buffer full of what can't be handed out must not keep the others from being fetched.
        """
        self._runtime.collector.user_waits(only)
        self._failed(began, error)

    def _raise_first(self, only: frozenset[TopicPartition] | None) -> bool:
        """Raise the errors that come before any record, and those that had to wait since the last call had records.

        Return whether that was all: errors that may wait do so, unless the last call had records.
        """
        self._runtime.errors.before_records(only)
        has_returned, self._has_returned = self._has_returned, False
        if has_returned:
            self._runtime.errors.raise_held_back(only)
        return has_returned and only is None

    def _enter(self, partitions: tuple[TopicPartition, ...], began: float | None) -> frozenset[TopicPartition] | None:
        """Begin a call for records; return the partitions to which it is limited, None for all.

        ``polling_ends`` of the runtime and ``leaves`` of the user must follow, unless this raises.
        """
        try:
            self._runtime.listener.refuse_inside("asking for records")
            self.stream.close()
            only = frozenset(map(checked_partition, partitions)) or None
            self._user.refuse_others()
            self._runtime.polling_begins(only)
        except Exception as error:
            self._failed(began, error)
            raise
        self._user.enters()
        return only

    async def _may_have_more(self, only: frozenset[TopicPartition] | None, deadline: float | None) -> bool:
        """Nothing is buffered: wait until something happens; return False where the call's time is over."""
        runtime = self._runtime
        runtime.errors.raise_any()
        runtime.collector.user_waits(only)
        left = None if deadline is None else deadline - asyncio.get_running_loop().time()
        if left is not None and left <= 0:
            await asyncio.sleep(0)  # a loop that polls with timeout 0 must not starve the other tasks
            return False
        await runtime.changed.wait(left)
        self._user.time_slice.begins()
        return True

    def _intercept(
        self,
        interceptors: ConsumerInterceptors,
        batch: ConsumerRecords[K | None, V | None],
        before: ConsumerRecords[K | None, V | None] | None,
    ) -> ConsumerRecords[K | None, V | None]:
        """Return what the interceptors leave of a batch; ``before`` is the last one that they left nothing of."""
        subscription = self._runtime.subscription
        gone = frozenset() if before is None else subscription.given_up(before.assignment_tokens)
        left = interceptors.left_of(batch, before, gone)
        if not left:
            # The application holds no records while its call waits: a rebalance need not wait for the next call.
            subscription.mark_processed()
            self._runtime.source.polled()
        return left

    def _passed_over(self, passed: ConsumerRecords[K | None, V | None] | None) -> ConsumerRecords[K | None, V | None]:
        """Return the empty batch of a call whose time is over; ``passed``: the last one that interceptors emptied.

        It ends where ``passed`` ends, except for the partitions that were given up while the call waited: they may have
        another reader by now, whose position a commit of the batch would move.
        """
        batch: ConsumerRecords[K | None, V | None] = ConsumerRecords()
        if passed is not None:
            gone = self._runtime.subscription.given_up(passed.assignment_tokens)
            ends = {tp: end for tp, end in passed.ends.items() if tp not in gone}
            batch.end_at(ends, unseen=ends)
        return batch

    async def _look_closer(
        self, decode: int, most: int, only: frozenset[TopicPartition] | None, deadline: float | None
    ) -> ConsumerRecords[Any, Any]:
        """Decode, and deserialize, what any of the partitions has, and take that. Awaits nothing once it has taken."""
        runtime, collector, time_slice = self._runtime, self._runtime.collector, self._user.time_slice
        served: list[Serving] | None = []
        if not collector.decode_at_once(decode, most, only, time_slice.ends, served):
            await time_slice.give_way()
            await collector.decode(decode, time_slice, only, enough=most)
            runtime.errors.after_waiting(only)
            served = None
        if runtime.deserializing is not None:
            await runtime.deserialize(most, only, deadline, time_slice)
            served = None
        return collector.take(most, only, served)

    async def _hand_out(
        self,
        partitions: tuple[TopicPartition, ...],
        timeout: float | None,
        decode: int,
        most: int,
        is_observed: bool,
    ) -> ConsumerRecords[K | None, V | None]:
        runtime, user, collector = self._runtime, self._user, self._runtime.collector
        time = asyncio.get_running_loop().time
        began = time() if is_observed else None
        deadline = None if timeout is None else time() + timeout
        passed: ConsumerRecords[K | None, V | None] | None = None  # the batches that interceptors left nothing of
        only = self._enter(partitions, began)
        changes = runtime.changes
        takes_runs = decode == most and only is None and runtime.hands_out_raw_records  # as nearly always
        try:
            collector.read_as_records()
            await collector.settle_all(user.time_slice)
            while True:
                if time() > user.time_slice.ends:
                    await user.time_slice.give_way()
                as_of = changes.count
                has_seen_all = self._raise_first(only)
                runs = collector.take_runs(most, user.time_slice.ends) if takes_runs else None
                if runs is not None:
                    batch, self._has_returned = runs, True
                    break
                batch = await self._look_closer(decode, most, only, deadline)
                if batch:
                    self._has_returned = True
                    if runtime.interceptors is None:
                        break
                    passed = batch = self._intercept(runtime.interceptors, batch, passed)
                    if batch or (deadline is not None and time() >= deadline):
                        break
                # No await between this look and the wait: what arrives in between would not wake this task.
                elif not collector.has_undecoded(only) and not await self._may_have_more(only, deadline):
                    batch = self._passed_over(passed)
                    break
        except Exception as error:
            self._raises(began, error, only)
            raise
        finally:
            runtime.polling_ends()
            user.leaves()
        if has_seen_all and batch:
            self.lease.begin(as_of)
        if began is not None and batch:
            runtime.observers.batch(batch, time() - began)
        return batch

    async def _hand_out_columns(
        self, partitions: tuple[TopicPartition, ...], timeout: float | None, wanted: ColumnPoll, is_observed: bool
    ) -> RecordColumns:
        runtime, user = self._runtime, self._user
        time = asyncio.get_running_loop().time
        began = time() if is_observed else None
        deadline = None if timeout is None else time() + timeout
        only = self._enter(partitions, began)
        try:
            await runtime.collector.settle_all(user.time_slice)
            while True:
                if time() > user.time_slice.ends:
                    await user.time_slice.give_way()
                self._raise_first(only)
                columns = await wanted.read(only, partial(runtime.errors.after_waiting, only), user.time_slice)
                if columns:
                    self._has_returned = True
                    break
                # No await between this look and the wait, as above.
                if not runtime.collector.has_undecoded(only) and not await self._may_have_more(only, deadline):
                    break
        except Exception as error:
            self._raises(began, error, only)
            raise
        finally:
            runtime.polling_ends()
            user.leaves()
        if began is not None and columns:
            runtime.observers.batch(dict.fromkeys(columns.next_offsets, ()), time() - began, count=len(columns))
        return columns
