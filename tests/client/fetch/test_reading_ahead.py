"""The next Fetch to a broker with a backlog is on its way before the records of the last one are handed out."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from aiokc.wire.messages.fetch import FetchRequest

pytestmark = pytest.mark.timeout(60)

KIB = 1 << 10
BUDGET = 512 * KIB
VALUE = bytes(4 * KIB)
TOTAL = 5 * BUDGET // len(VALUE)


@pytest.mark.parametrize("brokers", [3, 8])
async def test_idle_brokers_take_nothing_from_a_busy_one(brokers: int) -> None:
    """One broker has five times what the buffer holds, all others have nothing, and their polls are parked."""
    names = [TopicPartition("t", number) for number in range(brokers)]
    async with Cluster(brokers=brokers, topics={"t": len(names)}) as cluster:
        busy = cluster.leader("t", 0)
        backlog = names[0]
        parked: Counter[int] = Counter()
        cluster.intercept(FetchRequest, lambda exchange: parked.update([exchange.broker]))
        options: dict[str, Any] = {"fetch_buffer_bytes": BUDGET, "max_partition_fetch_bytes": BUDGET // brokers}
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)
        consumer.assign(names)
        most = taken = without = 0
        async with consumer, asyncio.timeout(20):
            while min(parked.values(), default=0) < 3 or len(parked) < brokers:
                await consumer.getmany(timeout_ms=20)
            for _ in range(TOTAL):
                cluster.append("t", NewRecord(VALUE), partition=backlog.partition)
            fetcher, subscription = consumer._runtime.fetcher, consumer._runtime.subscription
            while taken < TOTAL:
                taken += sum(map(len, (await consumer.getmany(max_records=4)).values()))
                buffered = fetcher._buffer.bytes
                most = max(most, buffered + sum(fetcher._busy.values()))
                is_fetched = fetcher._buffer.frontier(backlog, subscription[backlog])[0] == TOTAL
                without += busy not in fetcher._busy and buffered < BUDGET // 2 and not is_fetched
        assert without == 0, "calls returned records while no Fetch to the busy broker was on its way"
        assert most <= BUDGET + 4 * len(VALUE), "and what of a batch, or of an answer, is no record"
