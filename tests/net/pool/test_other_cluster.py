"""Clients whose broker's address leads to another cluster for a while: nothing of that cluster counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from aiokc import Client, Consumer, Producer, TopicPartition
from aiokc.errors import KafkaError
from aiokc.net.brokers.node import Node
from aiokc.testing import Cluster
from tests.client.reading import values
from tests.client.virtually import port_of, virtually

T0 = TopicPartition("t", 0)


@asynccontextmanager
async def taken_over(home: Cluster, **options: Any) -> AsyncIterator[Cluster]:
    """Let another cluster have the address of broker 1, and give it back."""
    home.take_down(1)
    async with Cluster(topics={"t": 1}, port=port_of(home, 1), random=Random(5), **options) as other:
        other.append("t", *(b"other %d" % number for number in range(30)))
        yield other
        assert other.committed("g") == {}
        assert other.end_offset("t") == 30
    home.bring_up(1)


@pytest.mark.parametrize("as_version", ["2.8", "4.4"])
@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_consumer_goes_on_where_it_was(
    group_id: str | None, as_version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(home: Cluster) -> None:
        home.append("t", *(b"home %d" % number for number in range(10)))
        consumer = Consumer(
            bootstrap_servers=home.bootstrap,
            group_id=group_id,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=1_000,
            session_timeout_ms=60_000,
        )
        consumer.subscribe(["t"]) if group_id else consumer.assign([T0])
        async with consumer:
            read = await values(consumer, 10)
            await asyncio.sleep(2)
            async with taken_over(home, as_version=as_version):
                assert await consumer.getmany(timeout_ms=10_000) == {}
                assert "restart the client" in str(consumer.health().last_error)
            home.append("t", b"home 10")
            read += await values(consumer, 1)
            assert await consumer.getmany(timeout_ms=5_000) == {}
            assert read == [b"home %d" % number for number in range(11)]
            assert consumer.health().cluster_id == home._state.cluster_id
        assert home.committed("g") == ({T0: 11} if group_id else {})

    with caplog.at_level(logging.WARNING, logger="aiokc"):
        virtually(story, brokers=1, topics={"t": 1}, as_version=as_version)
    told = [one.getMessage() for one in caplog.records if one.name == "aiokc.net"]
    assert sum("belongs to cluster" in text for text in told) == 1, told


@pytest.mark.parametrize("as_version", ["2.8", "4.4"])
def test_a_producer_sends_nothing_to_another_cluster(as_version: str) -> None:
    async def story(home: Cluster) -> None:
        async with Producer(bootstrap_servers=home.bootstrap) as producer:
            await producer.send_and_wait("t", b"1")
            async with taken_over(home, as_version=as_version):
                sent = await producer.send("t", b"2")
                await asyncio.sleep(15)
                assert not sent.done()
            await sent
        assert [record.value for record in home.records("t")] == [b"1", b"2"]

    virtually(story, brokers=1, topics={"t": 1}, as_version=as_version)


def test_calls_fail_as_for_brokers_that_cannot_be_reached() -> None:
    async def story(home: Cluster) -> None:
        async with Client(bootstrap_servers=home.bootstrap) as client:
            await client.list_topics(["t"])
            async with taken_over(home):
                for call in (client.list_topics, client.describe_topics):
                    with pytest.raises(KafkaError, match=r"belongs to cluster .* restart the client"):
                        await call(["t"], timeout_ms=5_000)
                with pytest.raises(KafkaError, match="belongs to cluster"):
                    await client.describe_cluster(timeout_ms=5_000)
            assert (await client.describe_cluster()).cluster_id == home._state.cluster_id

    virtually(story, brokers=1, topics={"t": 1})


def test_an_attempt_that_leads_to_another_cluster_ends_no_connection_to_this_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their requests in flight go on."""
    ended: list[str] = []
    monkeypatch.setattr(Node, "disown", lambda node: ended.append(node.name))

    async def story(home: Cluster) -> None:
        async with Client(bootstrap_servers=home.bootstrap) as client:
            await client.list_topics(["t"])
            async with taken_over(home):
                with pytest.raises(KafkaError, match="belongs to cluster"):
                    await client.list_topics(["t"], timeout_ms=2_000)
        assert ended == []

    with caplog.at_level(logging.WARNING, logger="aiokc"):
        virtually(story, brokers=1, topics={"t": 1})
    assert sum("belongs to cluster" in one.getMessage() for one in caplog.records) == 1
