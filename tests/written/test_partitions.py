"""Records with keys go where Java's producer, and librdkafka's, puts them: on a real broker, with ten thousand keys."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

import pytest

from aiokc import Producer, ProducerRecord
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.kafka.jars import java_command
from tests.comparison.rows import read_by_confluent
from tests.producing import Message, produce
from tests.suite.child_process import run_to_end
from tests.suite.peers.java_programs import QUICK_JVM

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

KEYS: Final = 10_000
PARTITIONS: Final = 7


def keys() -> list[bytes]:
    """Different keys, of which Java's console producer takes one from each line; the shortest is empty."""
    random = Random(21)
    words = {
        "".join(chr(random.choice((random.randint(32, 126), 0x431, 0x1F511))) for _ in range(n % 40))
        for n in range(2 * KEYS)
    }
    return [word.encode() for word in sorted(words)[:KEYS]]


def java_writes(bootstrap: str, topic: str, given: list[bytes]) -> None:
    command = java_command(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=\t"),
        jvm=(*QUICK_JVM, "-Dfile.encoding=UTF-8", "-Dstdin.encoding=UTF-8"),
    )
    done = run_to_end(command, seconds=60, given="".join(f"{key.decode()}\tv\n" for key in given))
    assert done.returncode == 0, done.stderr


async def aiokc_writes(bootstrap: str, topic: str, given: list[bytes], **options: Any) -> None:
    """Send some of the keys in each way that there is."""
    async with Producer(bootstrap_servers=bootstrap, **options) as producer:
        await producer.partitions_for(topic)
        for key in given[::3]:
            await producer.send(topic, b"v", key)
        for key in given[1::3]:
            producer.send_soon(topic, b"v", key)
        await producer.send_many(topic, [ProducerRecord(topic, b"v", key) for key in given[2::3]])
        await producer.flush()


async def places(kafka: LocalKafka, topic: str) -> dict[bytes | None, int]:
    """Return the partition of each key that is in a topic."""
    rows = await asyncio.to_thread(read_by_confluent, kafka.bootstrap, {topic: PARTITIONS}, "read_committed")
    found = {row[4]: row[0] for row in rows[topic]}
    assert len(found) == len(rows[topic])
    return found


async def test_keys_go_where_java_puts_them(kafka: LocalKafka, topic_name: str) -> None:
    given = keys()
    ours, theirs = f"{topic_name}-ours", f"{topic_name}-theirs"
    for topic in (ours, theirs):
        kafka.create_topic(topic, PARTITIONS)
    await asyncio.to_thread(java_writes, kafka.bootstrap, theirs, given)
    await aiokc_writes(kafka.bootstrap, ours, given)
    found = await places(kafka, ours)
    assert found.keys() == set(given)
    assert found == await places(kafka, theirs)


async def test_keys_go_where_librdkafka_puts_them(kafka: LocalKafka, topic_name: str) -> None:
    given = [key for key in keys() if key]  # to librdkafka an empty key is none
    ours, theirs = f"{topic_name}-ours", f"{topic_name}-theirs"
    for topic in (ours, theirs):
        kafka.create_topic(topic, PARTITIONS)
    messages = [Message(b"v", key) for key in given]
    await asyncio.to_thread(produce, kafka.bootstrap, theirs, messages, partitioner="consistent_random")
    await aiokc_writes(kafka.bootstrap, ours, given, partitioner="consistent_random")
    assert await places(kafka, ours) == await places(kafka, theirs)
