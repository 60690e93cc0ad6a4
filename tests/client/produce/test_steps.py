"""The way of one record through a producer, step by step, from the application's call to its callback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Producer, ProducerInterceptor, ProducerRecord, RecordMetadata
from aiokc.client.produce import answers
from aiokc.client.produce import sender as sender_module
from aiokc.client.produce.producer_ids import ProducerIds
from aiokc.core.produce import partition_queues
from aiokc.core.produce.accumulator import RecordAccumulator
from aiokc.net.connection import Connection
from aiokc.testing import ApiKey, Cluster
from aiokc.wire.lone_batch import LoneBatch
from tests.client.virtually import virtually

pytestmark = pytest.mark.timeout(30)


def test_each_record_takes_each_step_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    class Noting(ProducerInterceptor):
        def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
            steps.append("on_send")
            return record

        def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Any, /) -> None:
            steps.append("on_acknowledgement")

    def serializing(what: str) -> Any:
        def serialize(data: str) -> bytes:
            steps.append(what)
            return data.encode()

        return serialize

    def choose(topic: str, key: bytes | None, value: bytes | None, partitions: Any, available: Any) -> int:
        steps.append("partitioner")
        return 1

    def noted(owner: Any, name: str, step: str) -> None:
        as_ever = getattr(owner, name)

        def note(*arguments: Any, **options: Any) -> Any:
            steps.append(step)
            return as_ever(*arguments, **options)

        monkeypatch.setattr(owner, name, note)

    async def story(cluster: Cluster) -> None:
        cluster.intercept(ApiKey.PRODUCE, lambda exchange: steps.append("broker"))
        async with Producer(
            bootstrap_servers=cluster.bootstrap,
            key_serializer=serializing("key serializer"),
            value_serializer=serializing("value serializer"),
            partitioner=choose,
            interceptors=[Noting()],
        ) as producer:
            await producer.partitions_for("t")
            noted(RecordAccumulator, "append", "accumulator")
            noted(RecordAccumulator, "drain", "sender")
            noted(Connection, "write_lone", "connection")
            noted(LoneBatch, "stored_at", "answer")
            noted(answers, "settle_stored", "batch")
            for value in ("first", "second"):
                steps.clear()
                producer.send_soon("t", value, "key", on_done=lambda metadata, error: steps.append("callback"))
                await producer.flush()
                assert steps == [
                    "on_send",
                    "key serializer",
                    "value serializer",
                    "partitioner",
                    "accumulator",
                    "sender",
                    "connection",
                    "broker",
                    "answer",
                    "batch",
                    "on_acknowledgement",
                    "callback",
                ]
        assert [record.value for record in cluster.records("t", 1)] == [b"first", b"second"]

    virtually(story, brokers=1)


def test_what_happens_while_the_sender_looks_at_the_partitions_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. The sender looks at partition 0, of which nothing may be sent yet. It lets others run.
    2. Partition 0 may be sent, and the sender is woken: it does not sleep, so nobody hears that.
    3. It looks at partition 1, of which nothing may be sent either, and the round is over.
    """
    monkeypatch.setattr(partition_queues, "MOST_LOOKED_AT", 1)
    monkeypatch.setattr(sender_module, "SLICE_SECONDS", 0.0)
    allowed: set[int] = set()
    running: list[Producer[bytes, bytes]] = []
    monkeypatch.setattr(ProducerIds, "may_drain", lambda _, tp: tp.partition in allowed)
    ready = RecordAccumulator.ready

    def in_between(self: RecordAccumulator, *arguments: Any, **options: Any) -> Any:
        found = ready(self, *arguments, **options)
        if not found.round_is_over:
            allowed.add(0)
            running[0]._runtime.sender.wake.notify()
        return found

    async def story(cluster: Cluster) -> None:
        async with Producer[bytes, bytes](bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
            running.append(producer)
            await producer.partitions_for("t")
            monkeypatch.setattr(RecordAccumulator, "ready", in_between)
            first, second = (producer.send_soon("t", b"", partition=number) for number in range(2))
            began = asyncio.get_running_loop().time()
            await first
            assert asyncio.get_running_loop().time() - began < 1.0
            assert not second.done()
            allowed.add(1)
            producer._runtime.sender.wake.notify()
            await second

    virtually(story, topics={"t": 2})


@pytest.fixture
def one_partition_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_queues, "MOST_LOOKED_AT", 1)
    monkeypatch.setattr(sender_module, "SLICE_SECONDS", 0.0)


@pytest.mark.usefixtures("one_partition_a_step")
def test_all_partitions_hurry_where_one_call_has_asked_for_it() -> None:
    async def story(cluster: Cluster) -> None:
        async with Producer[bytes, bytes](bootstrap_servers=cluster.bootstrap, linger_ms=60_000) as producer:
            await producer.partitions_for("t")
            sent = [producer.send_soon("t", b"", partition=number) for number in range(3)]
            await asyncio.sleep(1.0)
            began = asyncio.get_running_loop().time()
            producer._runtime.sender.hurry()
            for delivery in sent:
                await delivery
            assert asyncio.get_running_loop().time() - began < 1.0

    virtually(story, topics={"t": 3})


@pytest.mark.usefixtures("one_partition_a_step")
def test_a_leader_is_looked_for_also_where_the_last_partition_of_a_round_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: Cluster) -> None:
        async with Producer[bytes, bytes](bootstrap_servers=cluster.bootstrap, linger_ms=60_000) as producer:
            cluster.create_topic("alone", 2, replication_factor=1)
            await producer.partitions_for("alone")
            leader = cluster.leader("alone", 0)
            assert leader is not None
            cluster.take_down(leader)
            metadata = producer._runtime.cluster_client.metadata
            while (await producer.partitions_for("alone"))[0].leader is not None:
                await metadata.changed.wait()
            asked: list[float] = []
            with monkeypatch.context() as patched:
                patched.setattr(metadata, "request_missing", lambda: asked.append(asyncio.get_running_loop().time()))
                for number in range(2):
                    producer.send_soon("alone", b"", partition=number)
                await asyncio.sleep(1.0)
            assert asked
            cluster.bring_up(leader)
            metadata.request_update()
            await producer.flush()

    virtually(story, topics={"t": 1})
