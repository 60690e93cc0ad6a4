"""``aiokc produce`` against a real Kafka: librdkafka reads what it sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from aiokc.testing.kafka import LocalKafka
from tests.cli.running import aiokc

pytestmark = pytest.mark.timeout(60)


def read(bootstrap: str, topic: str, count: int) -> list[Any]:
    """Return ``count`` committed messages of partitions 0 and 1, in the order of the log."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    try:
        found: list[Any] = []
        while len(found) < count:
            some = consumer.consume(count - len(found), timeout=20)
            assert some, f"{len(found)} of {count}"
            found += some
        return sorted(found, key=lambda one: (one.partition(), one.offset()))
    finally:
        consumer.close()


async def test_librdkafka_reads_what_is_sent(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, 2)

    async def produce(*words: str, stdin: bytes) -> tuple[int, str]:
        result = await aiokc("produce", topic_name, *words, bootstrap=kafka.bootstrap, stdin=stdin)
        return result.code, result.err

    code, err = await produce("--json", "--transaction", stdin=b'{"value":"aborted"}\nbad')
    assert (code, "line 2: is no JSON" in err) == (1, True)
    lines = [
        {"value": "v", "key": "k", "partition": 0, "timestamp": 5, "headers": [["h", "1"], ["n", None]]},
        {"value": None, "key": "00ff", "key_encoding": "hex", "partition": 1, "timestamp": 6},
    ]
    text = "\n".join(map(json.dumps, lines)).encode()
    assert await produce("--json", "--transaction", "-z", "zstd", stdin=text) == (
        0,
        f"2 records stored in {topic_name}\n",
    )
    assert (await produce("-K", ":", "-p", "0", stdin=b"a:1\n"))[0] == 0
    one, three, two = await asyncio.to_thread(read, kafka.bootstrap, topic_name, 3)
    assert (one.key(), one.value(), one.timestamp()[1]) == (b"k", b"v", 5)
    assert one.headers() == [("h", b"1"), ("n", None)]
    assert (two.key(), two.value(), two.timestamp()[1], two.partition()) == (b"\0\xff", None, 6, 1)
    assert (three.key(), three.value()) == (b"a", b"1")
