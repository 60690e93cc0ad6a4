"""A call that asks for records: again and again what there is, until that is something or the time is over."""

from __future__ import annotations

import asyncio
from typing import Any, Generic

from ..types import ConsumerRecord, ConsumerRecords, K, RecordColumns, TopicPartition, V
from .column_collector import ColumnPoll
from .polling import SingleUser
from .reading import Reading
from .run_of_records import RunOfRecords


class Poll(Generic[K, V]):
    """What getmany, getone, the iterator and getmany_columns have in common.

    From the last await to the return nothing can be cancelled: positions move in between.
    """

    def __init__(self, reading: Reading, user: SingleUser) -> None:
        self._reading = reading
        self._user = user
        self.run = RunOfRecords(reading, user)

    async def one(self, decode_ahead: int) -> ConsumerRecord[K | None, V | None]:
        """Hand out one record, of as many as are decoded ahead; ``run`` has those that may follow without a poll."""
        tp, records = next(iter((await self.records((), None, decode_ahead, 1)).items()))
        if self._reading.hands_out_raw_records:
            self.run.begin(tp)
        return records[0]

    async def records(
        self, partitions: tuple[TopicPartition, ...], timeout_ms: int | None, decode: int, most: int
    ) -> ConsumerRecords[K | None, V | None]:
        """Hand out up to ``most`` records, of ``decode`` that are decoded."""
        batch: ConsumerRecords[K | None, V | None] = await self._hand_out(partitions, timeout_ms, decode, most, None)
        return batch

    async def columns(
        self, partitions: tuple[TopicPartition, ...], timeout_ms: int | None, wanted: ColumnPoll
    ) -> RecordColumns:
        """Hand out columns of records."""
        batch: RecordColumns = await self._hand_out(partitions, timeout_ms, 0, 0, wanted)
        return batch

    async def _hand_out(
        self,
        partitions: tuple[TopicPartition, ...],
        timeout_ms: int | None,
        decode: int,
        most: int,
        columns: ColumnPoll | None,
    ) -> Any:
        reading = self._reading
        reading.listener.refuse_inside("asking for records")
        self.run.close()
        only = frozenset(partitions) or None
        deadline = None if timeout_ms is None else asyncio.get_running_loop().time() + timeout_ms / 1e3
        passed: ConsumerRecords[K | None, V | None] | None = None  # what interceptors left nothing of
        with self._user, reading.polling(only):
            while True:
                await self._user.give_way()
                reading.listener.raise_error()  # before any record: he may have failed to seek
                reading.check(only)
                reading.run_callbacks()
                if columns is not None:
                    table = await columns.read(only)
                    if table:
                        return table
                else:
                    await reading.collector.decode(decode, only, enough=most)
                    if reading.deserializing is not None:
                        await reading.deserialize(most, only, deadline)
                    batch = reading.collector.take(most, only)
                    if batch:
                        if reading.interceptors is None:
                            return batch
                        passed = batch = reading.intercept(batch, passed)
                        if batch or (deadline is not None and asyncio.get_running_loop().time() >= deadline):
                            return batch
                        continue
                if reading.collector.has_undecoded(only):
                    continue  # no await from here to the wait, or what arrives in between would wake nobody
                reading.raise_errors()
                reading.collector.user_waits(only)
                left = None if deadline is None else deadline - asyncio.get_running_loop().time()
                if left is not None and left <= 0:
                    await asyncio.sleep(0)  # a loop that polls with timeout 0 must not starve the others
                    return table if columns is not None else passed if passed is not None else ConsumerRecords()
                await reading.changed.wait(left)
