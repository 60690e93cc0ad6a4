"""The first batch of a Fetch response comes whole, however long it is (KIP-74); above a bound an error says what to
raise.
"""

from __future__ import annotations

import asyncio

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.errors import MalformedResponse
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from aiokc.wire.messages.fetch import FetchRequest

pytestmark = pytest.mark.timeout(60)

LONG, SHORT = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_a_batch_that_is_longer_than_all_fetch_limits_is_read_and_stops_no_other_partition() -> None:
    value = bytes(18 << 20)
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", NewRecord(value), partition=0)
        cluster.append("t", NewRecord(b"short"), partition=1)
        sizes: set[int] = set()
        cluster.intercept(FetchRequest, lambda exchange: sizes.add(exchange.request.max_bytes))
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            fetch_max_bytes=1000,
            fetch_max_wait_ms=50,
        )
        consumer.assign([LONG, SHORT])
        got: dict[TopicPartition, bytes | None] = {}
        async with consumer, asyncio.timeout(50):
            while len(got) < 2:
                got |= {tp: records[0].value for tp, records in (await consumer.getmany()).items()}
        assert got == {LONG: value, SHORT: b"short"}
        assert sizes == {1000}, "the most that one Fetch returns, but for such a batch"


async def test_partitions_that_would_fill_an_answer_beyond_the_bound_are_sent_in_several() -> None:
    async with Cluster(topics={"t": 10}) as cluster:
        for partition in range(10):
            for _ in range(20):
                cluster.append("t", NewRecord(bytes(60_000)), partition=partition)
        sizes: set[int] = set()
        cluster.intercept(FetchRequest, lambda exchange: sizes.add(exchange.request.max_bytes))
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", max_response_bytes=4 << 20
        )
        consumer.assign(TopicPartition("t", partition) for partition in range(10))
        got = 0
        async with consumer, asyncio.timeout(50):
            while got < 200:
                got += sum(map(len, (await consumer.getmany()).values()))
        assert max(sizes) == 3 << 20, "a quarter is for what an answer holds beside records"


async def test_an_answer_beyond_the_bound_is_an_error_that_says_what_to_raise() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", NewRecord(bytes(200_000)))
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", max_response_bytes=100_000
        )
        consumer.assign([LONG])
        async with consumer, asyncio.timeout(50):
            with pytest.raises(MalformedResponse, match=r"broker 1 .* max_response_bytes is 100000: raise") as caught:
                await consumer.getmany()
        assert "an answer of 200" in str(caught.value)
        assert "listener" not in str(caught.value)
