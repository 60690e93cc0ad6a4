"""An answer about thousands of partitions holds the event loop for no longer than a part of it takes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any
from weakref import ref

import pytest

from aiokc import Client, ErrorCode, TopicPartition
from aiokc.client.cluster import list_offsets
from aiokc.core.cluster.snapshot import Cluster as Snapshot
from aiokc.errors import BrokerError, KafkaError, RequestTimedOut, broker_error
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold
from aiokc.types import LATEST, Broker
from aiokc.wire import Response
from aiokc.wire.messages.discovery import MetadataRequest, MetadataResponse, MetadataResponseBroker
from aiokc.wire.messages.offsets import ListOffsetsRequest

from ..virtually import virtually


class Rounds:
    """How often the loop has gone round."""

    def __init__(self) -> None:
        self.number = 0

    async def count(self) -> None:
        while True:
            self.number += 1
            await asyncio.sleep(0)


async def test_a_thousand_offsets_are_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, read_in = Rounds(), Counter[int]()
    read_offsets = list_offsets.read_offsets

    def noted(response: Any) -> Iterator[Any]:
        for one in read_offsets(response):
            read_in[rounds.number] += 1
            yield one

    monkeypatch.setattr(list_offsets, "read_offsets", noted)
    partitions = [TopicPartition("t", number) for number in range(1_000)]
    async with (
        Cluster(topics={"t": 1_000}) as cluster,
        Client(bootstrap_servers=cluster.bootstrap) as client,
        asyncio.TaskGroup() as tasks,
    ):
        counting = tasks.create_task(rounds.count())
        found = await client.list_offsets(dict.fromkeys(partitions, LATEST))
        counting.cancel()
    assert found.keys() == {*partitions}
    assert read_in.total() == 1_000
    assert max(read_in.values()) <= 250


@pytest.mark.parametrize("is_moved", [True, False])
async def test_newer_metadata_are_compared_in_steps_and_only_where_topics_have_changed(
    monkeypatch: pytest.MonkeyPatch, is_moved: bool
) -> None:
    rounds, looked_in, all_seen = Rounds(), Counter[int](), asyncio.Event()
    leader = Snapshot.leader

    def noted(cluster: Snapshot, tp: TopicPartition) -> Broker | None:
        looked_in[rounds.number] += 1
        if looked_in.total() >= 6_000:
            all_seen.set()
        return leader(cluster, tp)

    asked = dict.fromkeys((TopicPartition("t", number) for number in range(3_000)), LATEST)
    async with Cluster(brokers=2, topics={"t": 3_000, "u": 2}) as cluster:
        for tp in asked:
            cluster.move_leader(*tp, to=1)
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.TaskGroup() as tasks:
            await client.list_offsets({TopicPartition("u", 0): LATEST, TopicPartition("u", 1): LATEST, **asked})
            hold = Hold()
            held = cluster.intercept(ListOffsetsRequest, hold)
            listing = tasks.create_task(client.list_offsets(asked))
            await held.caught()
            monkeypatch.setattr(Snapshot, "leader", noted)
            counting = tasks.create_task(rounds.count())
            if is_moved:
                cluster.move_leader("t", 0, to=2)
            metadata = client._cluster.metadata
            before = metadata.refreshed_at
            metadata.request_update()
            while metadata.refreshed_at == before:
                await metadata.changed.wait(10)
            if is_moved:
                await all_seen.wait()
            hold.release()
            assert (await listing).keys() == asked.keys()
            counting.cancel()
    assert max(looked_in.values(), default=0) <= (2_000 if is_moved else 0)


def test_of_thousands_of_errors_only_the_last_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt brings one for each partition, and a call may make hundreds."""
    made: list[ref[BrokerError]] = []
    kept: list[int] = []

    def noted(code: int, message: str, *, needs: str) -> BrokerError:
        error = broker_error(code, message, needs=needs)
        made.append(ref(error))
        return error

    def denied(exchange: Exchange) -> ErrorCode:
        kept.append(sum(one() is not None for one in made))
        return ErrorCode.OFFSET_NOT_AVAILABLE

    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            cluster.intercept(ListOffsetsRequest, denied)
            asked = dict.fromkeys((TopicPartition("many", number) for number in range(100)), LATEST)
            with pytest.raises(RequestTimedOut, match="OFFSET_NOT_AVAILABLE"):
                await client.list_offsets(asked, timeout_ms=5_000)

    monkeypatch.setattr(list_offsets, "broker_error", noted)
    virtually(story, brokers=1, topics={"many": 100})
    assert len(made) >= 500
    assert max(kept) == 1


def test_metadata_with_tens_of_thousands_of_brokers_are_refused() -> None:
    async def fault(exchange: Exchange) -> Response | None:
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        response.brokers = [MetadataResponseBroker(node_id=number, host="h", port=1) for number in range(50_000)]
        return response

    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            cluster.intercept(MetadataRequest, fault)
            with pytest.raises(KafkaError, match="its answer to Metadata names 50,000 brokers"):
                await client.describe_topics(["t"], timeout_ms=2_000)
            cluster.heal()
            assert (await client.describe_topics(["t"])).keys() == {"t"}

    virtually(story, brokers=1, topics={"t": 1})
