"""Errors found while there are records to return: those records first, then the error, even if more records follow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.errors import AuthorizationFailed, NoOffsetForPartition
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.fetch import FetchRequest

from ...cluster.test_pattern import refreshed
from ...listening import Noting
from .forbidden_topic import forbid_u
from .refused_fetches import refuse_the_second

pytestmark = pytest.mark.timeout(60)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MANY = 3_000


def reading(cluster: Cluster, *partitions: TopicPartition, **options: Any) -> ConsumerType:
    consumer = Consumer(
        **{"bootstrap_servers": cluster.bootstrap, "auto_offset_reset": "earliest", "max_poll_records": 10, **options}
    )
    consumer.assign(partitions)
    return consumer


async def some(consumer: ConsumerType) -> list[int]:
    return [record.offset for record in (await consumer.getmany())[T0]]


async def one(consumer: ConsumerType) -> list[int]:
    return [(await consumer.getone()).offset]


async def columns(consumer: ConsumerType) -> list[int]:
    before = await consumer.position(T0)
    await consumer.getmany_columns(max_records=10)
    return list(range(before, await consumer.position(T0)))


@pytest.mark.parametrize("read", [some, one, columns])
async def test_a_partition_that_always_has_records_keeps_back_no_error_of_another_one(
    read: Callable[[ConsumerType], Awaitable[list[int]]],
) -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", *(b"%d" % number for number in range(MANY)))
        cluster.append("t", b"x", partition=1)
        cluster.intercept(FetchRequest, refuse_the_second)
        async with reading(cluster, T0, T1) as consumer:
            offsets: list[int] = []
            errors = 0
            async with asyncio.timeout(20):
                while len(offsets) < MANY:
                    try:
                        offsets += await read(consumer)
                    except AuthorizationFailed:
                        errors += 1
                        if errors == 1:
                            assert 0 < len(offsets) < MANY
            assert errors >= 1
            assert offsets == list(range(MANY)), "nothing is lost by it, and nothing repeated"


async def test_what_is_paused_keeps_its_error() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", *(b"%d" % number for number in range(MANY)))
        cluster.append("t", b"x", partition=1)
        cluster.intercept(FetchRequest, refuse_the_second)
        async with reading(cluster, T0, T1) as consumer:
            for number in range(2):  # by the second call it is T1's turn
                assert await some(consumer) == [*range(10 * number, 10 * number + 10)]
            consumer.pause(T1)
            assert await some(consumer) == [*range(20, 30)]
            consumer.resume(T1)
            with pytest.raises(AuthorizationFailed, match="t-1"):
                await some(consumer)
            assert await some(consumer) == [*range(30, 40)]


async def test_a_missing_offset_is_raised_between_records() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", *(b"%d" % number for number in range(MANY)))
        async with reading(cluster, T0, auto_offset_reset="none", group_id="g") as consumer:
            consumer.seek(T0, 0)
            assert await some(consumer) == [*range(10)]
            consumer.assign([T0, T1])
            finder = consumer._runtime.finder
            async with asyncio.timeout(20):
                while not finder.errors._kept:
                    await finder.found.wait()
            with pytest.raises(NoOffsetForPartition, match="t-1"):
                await some(consumer)
            assert await some(consumer) == [*range(10, 20)]
            consumer.seek(T1, 0)
            assert await some(consumer) == [*range(20, 30)]


async def test_a_topic_that_may_not_be_read_is_raised_once_for_each_snapshot_of_the_cluster() -> None:
    async with Cluster(topics={"t": 1, "u": 1}) as cluster:
        cluster.append("t", *(b"%d" % number for number in range(MANY)))
        cluster.intercept(MetadataRequest, forbid_u)
        async with reading(cluster, T0) as consumer:
            metadata = consumer._runtime.cluster_client.metadata
            offsets = await some(consumer)
            consumer.assign([T0, TopicPartition("u", 0)])
            await refreshed(consumer, lambda: "u" in metadata.cluster.errors)
            told: list[int] = []
            while len(offsets) < MANY:
                try:
                    offsets += await some(consumer)
                except AuthorizationFailed:
                    told.append(metadata.cluster.version)
            assert offsets == [*range(MANY)]
            assert 1 <= len(told) == len(set(told))


@pytest.mark.parametrize("as_columns", [False, True], ids=["records", "columns"])
async def test_an_error_of_the_listener_comes_before_records_that_were_decoded_meanwhile(as_columns: bool) -> None:
    """The callback fails (it tried to seek, perhaps) while a batch is being decoded in a thread."""

    async def fail(partitions: frozenset[TopicPartition]) -> None:
        if T1 in partitions:
            raise LookupError("no offset is stored for it")

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", NewRecord(bytes(400_000)))
        consumer = Consumer(
            "t", listener=Noting(assigned=fail), bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        )
        async with consumer:
            fetcher = consumer._runtime.fetcher
            async with asyncio.timeout(20):
                while not fetcher.collector.has_undecoded():
                    await fetcher.arrived.wait()
            buffer = fetcher._buffer.of(T0)
            kind, opened, go_on = type(buffer), threading.Event(), threading.Event()
            right: Any = kind.open  # type: ignore[union-attr]

            def slowly(self: Any, unread: Any) -> Any:
                opened.set()
                go_on.wait(20)
                return right(self, unread)

            kind.open = slowly  # type: ignore[union-attr, method-assign]
            try:
                waiting = asyncio.create_task(consumer.getmany_columns() if as_columns else consumer.getmany())
                await asyncio.to_thread(opened.wait, 20)
                kind.open = right  # type: ignore[union-attr, method-assign]
                cluster.add_partitions("t", 2)
                cluster.append("t", b"one", partition=1)
                await refreshed(consumer, lambda: T1 in consumer.assignment())
                async with asyncio.timeout(20):
                    while fetcher._buffer.of(T1) is None:
                        await fetcher.arrived.wait()
                go_on.set()
                with pytest.raises(LookupError):
                    await waiting
            finally:
                go_on.set()
                kind.open = right  # type: ignore[union-attr, method-assign]
            got: set[TopicPartition] = set()
            while got != {T0, T1}:
                got |= (await consumer.getmany()).keys()
            assert await consumer.position(T0) == 1


async def test_an_error_of_a_partition_that_was_given_up_is_dropped() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", *(b"%d" % number for number in range(MANY)))
        cluster.append("t", b"x", partition=1)
        cluster.intercept(FetchRequest, refuse_the_second)
        async with reading(cluster, T0, T1) as consumer:
            collector = consumer._runtime.fetcher.collector
            async with asyncio.timeout(20):
                while not collector._held_back:
                    await some(consumer)
            consumer.assign([T0])
            before = await consumer.position(T0)
            assert await some(consumer) == list(range(before, before + 10))
            assert collector._held_back == {}
