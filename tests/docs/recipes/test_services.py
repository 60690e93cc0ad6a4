"""Requests and replies, a transaction that buries, and the probes, as on their pages: where brokers refuse or lack."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aiokc import Consumer, Producer
from aiokc.contrib import health
from aiokc.errors import AuthorizationFailed
from aiokc.testing import ApiKey, Cluster, ErrorCode

from .programs import of, program, until


async def test_a_reply_in_a_partition_that_came_later_arrives() -> None:
    names = program("class Requests", "docs/guide/services.md")
    async with Cluster(brokers=1, topics={"events-requests": 1, "events-replies": 1}) as cluster:
        names.globals["Consumer"] = of(cluster, Consumer, metadata_max_age_ms=100)
        async with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
            requests, ready = names.Requests(producer, "events-replies"), asyncio.Event()
            receiving = asyncio.create_task(requests.receive(ready))
            async with asyncio.timeout(20):
                await ready.wait()
            cluster.add_partitions("events-replies", 2)
            asked = asyncio.create_task(requests.ask(b"a"))
            await until(lambda: cluster.end_offset("events-requests") == 1)
            (request,) = cluster.records("events-requests")
            async with Producer(bootstrap_servers=cluster.bootstrap) as server:
                headers = [("request-id", dict(request.headers)["request-id"])]
                await server.send_and_wait("events-replies", b"A", headers=headers, partition=1)
            async with asyncio.timeout(10):
                assert await asked == b"A"
            receiving.cancel()
            await asyncio.wait([receiving])


async def test_requests_and_replies_fail_where_one_side_can_not_start() -> None:
    names = program("class Requests", "docs/guide/services.md")
    async with Cluster(brokers=1, topics={"events-requests": 1, "events-replies": 1}) as cluster:
        names.globals.update(Consumer=of(cluster, Consumer), Producer=of(cluster, Producer))
        cluster.intercept(
            ApiKey.LIST_OFFSETS,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            where=lambda exchange: exchange.request.topics[0].name == "events-requests",
        )
        async with asyncio.timeout(20):
            with pytest.raises(ExceptionGroup) as failed:
                await names.main()
        assert failed.group_contains(AuthorizationFailed)


async def test_a_record_that_a_rebalance_kept_from_being_buried_is_buried_by_the_next_run() -> None:
    names = program("async def bury(failed", "docs/guide/transactions.md")
    async with Cluster(brokers=1, topics={"events": 1, "events-totals": 1, "events-dead": 1}) as cluster:
        names.globals.update(Consumer=of(cluster, Consumer), Producer=of(cluster, Producer))
        refusal = cluster.intercept(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, times=2)
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        names.globals["asyncio"] = SimpleNamespace(**{**vars(asyncio), "sleep": sleep})
        cluster.append("events", b"no JSON")
        said: list[Any] = []
        names.globals["print"] = lambda *words: said.append(words)
        running = asyncio.create_task(names.main())
        await until(lambda: bool(said) or running.done())
        assert not running.done(), running.exception()
        await refusal.caught()
        running.cancel()
        await asyncio.wait([running])
        assert [words[:2] for words in said] == [("buried", b"no JSON")]
        assert waits == [1, 1]


async def test_a_consumer_of_a_misspelled_topic_is_not_ready_where_brokers_create_topics() -> None:
    names = program("serve(consumer", "docs/production.md")
    probes: list[health.Probe] = []

    def serve(consumer: Consumer[Any, Any], port: int) -> Any:
        probes.append(health.Probe(consumer))
        return health.serve(consumer, port=0)

    async with Cluster(brokers=1) as cluster:
        names.globals.update(Consumer=of(cluster, Consumer), serve=serve)
        running = asyncio.create_task(names.main())
        await until(lambda: bool(probes) and (probes[0].look().ready or "events" in str(probes[0].look().reasons)))
        assert not probes[0].look().ready
        cluster.create_topic("events", 1)  # which raises an error if a broker has created it
        await until(lambda: probes[0].look().ready)
        running.cancel()
        await asyncio.wait([running])
