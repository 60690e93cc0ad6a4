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
from ..in_use import InUse
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
        self.stream = RecordStream(runtime, user, self._step)
        #: The iterator, which ends when the consumer is stopped. ``items`` are the records that need no poll.
        self.steps: Steps[ConsumerRecord[K | None, V | None]] = self.stream.steps

    async def one(self) -> ConsumerRecord[K | None, V | None]:
        """Decode many records and hand out one; ``steps.items`` then has those that may follow without a poll."""
        self.stream.close()  # sets `ahead`: how many to decode
        began = asyncio.get_running_loop().time() if self._runtime.observers.all else None
        try:
            batch: ConsumerRecords[K | None, V | None] = await self._hand_out((), None, self.stream.ahead, 1, None)
        except Exception as error:
            self._failed(began, error)
            raise
        tp, records = next(iter(batch.items()))
        if self._runtime.hands_out_raw_records:
            self.stream.begin(tp)
        if began is not None:
            self.stream.observed(tp, records[0], asyncio.get_running_loop().time() - began)
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
        handing_out = self._hand_out(partitions, timeout, decode, most, None)
        return self._observed(handing_out) if self._runtime.observers.all else handing_out

    def columns(
        self, partitions: tuple[TopicPartition, ...], timeout: float | None, wanted: ColumnPoll
    ) -> Coroutine[Any, Any, RecordColumns]:
        """Hand out records as columns, as ``wanted`` says. ``timeout`` is in seconds; None: no limit."""
        handing_out = self._hand_out(partitions, timeout, 0, 0, wanted)
        return self._observed(handing_out) if self._runtime.observers.all else handing_out

    async def _observed(self, handing_out: Coroutine[Any, Any, Any]) -> Any:
        """Return what a call hands out, and tell the observers of it."""
        time = asyncio.get_running_loop().time
        began = time()
        try:
            batch = await handing_out
        except Exception as error:
            self._failed(began, error)
            raise
        if batch:
            seconds, observers = time() - began, self._runtime.observers
            if isinstance(batch, RecordColumns):
                observers.batch(dict.fromkeys(batch.next_offsets, ()), len(batch), seconds)
            else:
                observers.batch(batch, sum(map(len, batch.values())), seconds)
        return batch

    def _failed(self, began: float | None, error: Exception) -> None:
        """Tell the observers that a call has raised ``error``; the end of a consumer that is stopped is no error."""
        if began is not None and not isinstance(error, ConsumerClosed | UsageError):
            self._runtime.observers.batch({}, 0, asyncio.get_running_loop().time() - began, error)

    def _raise_first(self, only: frozenset[TopicPartition] | None) -> None:
        """Raise the errors that come before any record, and those that had to wait since the last call had records."""
        self._runtime.before_records(only)
        if self._has_returned:
            self._has_returned = False
            self._runtime.raise_held_back(only)

    async def _hand_out(
        self,
        partitions: tuple[TopicPartition, ...],
        timeout: float | None,
        decode: int,
        most: int,
        columns: ColumnPoll | None,
    ) -> Any:
        runtime, user, collector = self._runtime, self._user, self._runtime.collector
        runtime.listener.refuse_inside("asking for records")
        self.stream.close()
        only = frozenset(map(checked_partition, partitions)) or None
        time = asyncio.get_running_loop().time
        deadline = None if timeout is None else time() + timeout
        passed: ConsumerRecords[K | None, V | None] | None = None  # the batches that interceptors left nothing of
        user.refuse_others()
        runtime.polling_begins(only)
        user.enters()
        try:
            while True:
                if time() > user.time_slice.ends:
                    await user.time_slice.give_way()
                self._raise_first(only)
                served: list[Serving] | None = []
                if columns is not None:
                    table = await columns.read(only, partial(runtime.after_waiting, only), user.time_slice)
                    if table:
                        self._has_returned = True
                        return table
                else:
                    waits_at = collector.decode_at_once(decode, most, only, user.time_slice.ends, served)
                    if waits_at is not None:
                        await collector.give_way(waits_at, user.time_slice)
                        await collector.decode(decode, user.time_slice, only, enough=most)
                        runtime.after_waiting(only)
                        served = None
                    if runtime.deserializing is not None:
                        await runtime.deserialize(most, only, deadline, user.time_slice)
                        served = None
                    batch = collector.take(most, only, served)
                    if batch:
                        self._has_returned = True
                        if runtime.interceptors is None:
                            return batch
                        passed = batch = runtime.intercept(batch, passed)
                        if batch or (deadline is not None and time() >= deadline):
                            return batch
                        continue
                if collector.has_undecoded(only):
                    continue  # No await from here to the wait: what arrives in between would not wake this task.
                runtime.raise_errors()
                collector.user_waits(only)
                left = None if deadline is None else deadline - time()
                if left is not None and left <= 0:
                    await asyncio.sleep(0)  # a loop that polls with timeout 0 must not starve the other tasks
                    return table if columns is not None else passed if passed is not None else ConsumerRecords()
                await runtime.changed.wait(left)
                user.time_slice.begins()
        finally:
            runtime.polling_ends()
            user.leaves()
