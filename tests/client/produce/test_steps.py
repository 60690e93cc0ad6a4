"""The way of one record through a producer, step by step, from the application's call to its callback."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import Producer, ProducerInterceptor, ProducerRecord, RecordMetadata
from aiokc.client.produce import answers
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
