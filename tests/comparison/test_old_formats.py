"""The same records as confluent-kafka reads, from logs that only some brokers have.

Message sets of magic 0 and 1, on a broker that still writes them: those that it makes of newer batches, and those of
producers of that time. And logs with holes, of every format, as the log cleaner leaves them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from aiokc import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP
from aiokc.records import split_batches
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.kafka.jars import KAFKA_VERSION
from tests.producing import Message, produce

from .logs import any_messages, write_codecs, write_compacted
from .rows import read_by_confluent
from .test_record_for_record import Written, read_in_python
from .ways import ISOLATION_LEVELS, WAYS, read_all

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]

#: The last release of which the tests have brokers that write message sets.
OLD: Final = "2.8.2"
FORMATS: Final = {0: "0.9.0", 1: "0.10.0", 2: "0.11.0"}
CODECS: Final = ("none", "gzip", "snappy", "lz4")
CLEANER: Final = {"log.cleaner.backoff.ms": "100"}


@pytest.fixture(scope="module")
def old_kafka() -> Iterator[LocalKafka]:
    with LocalKafka(version=OLD, config=CLEANER) as running:
        yield running


def written(kafka: LocalKafka, topics: dict[str, int]) -> Written:
    expected = {
        (topic, level): rows
        for level in ISOLATION_LEVELS
        for topic, rows in read_by_confluent(kafka.bootstrap, topics, level).items()
    }
    return Written(kafka.bootstrap, {topic: topic for topic in topics}, topics, expected)


def compare(log: Written) -> None:
    found = asyncio.run(read_all(log.bootstrap, log.partitions, ISOLATION_LEVELS))
    assert log.differences(found) == []
    assert log.differences(read_in_python(log, {level: list(WAYS) for level in ISOLATION_LEVELS})) == []


def stored(kafka: LocalKafka, topic: str, partition: int) -> Counter[tuple[int, int]]:
    """Magic and codec of each batch that lies on the broker's disk."""
    assert kafka.folder is not None
    found: Counter[tuple[int, int]] = Counter()
    for segment in segments(kafka, topic, partition):
        found.update((header.magic, header.codec) for header, _ in split_batches(memoryview(segment.read_bytes())))
    return found


def segments(kafka: LocalKafka, topic: str, partition: int) -> list[Path]:
    assert kafka.folder is not None
    return sorted((kafka.folder / "node-1" / "data" / f"{topic}-{partition}").glob("*.log"))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("written_by", ["broker", "producer"])
def test_message_sets(old_kafka: LocalKafka, topic_name: str, magic: int, written_by: str) -> None:
    options: dict[str, object] = {}
    if written_by == "producer":  # librdkafka, as with a broker that knows nothing newer
        options = {"api_version_request": False, "broker_version_fallback": FORMATS[magic]}
    config = {"message.format.version": FORMATS[magic]}
    partitions = write_codecs(
        old_kafka, topic_name, Random(magic), 500, config=config, codecs=CODECS, headers=False, **options
    )
    for partition in range(partitions):
        assert set(stored(old_kafka, topic_name, partition)) == {(magic, partition)}

    log = written(old_kafka, {topic_name: partitions})

    rows = log.rows(topic_name, "read_committed")
    assert len(rows) == 4 * 500
    assert {row[3] for row in rows} == {CREATE_TIME if magic else NO_TIMESTAMP}
    compare(log)


def test_append_time(old_kafka: LocalKafka, topic_name: str) -> None:
    config = {"message.format.version": FORMATS[1], "message.timestamp.type": "LogAppendTime"}
    partitions = write_codecs(old_kafka, topic_name, Random(5), 100, config=config, codecs=CODECS, headers=False)
    log = written(old_kafka, {topic_name: partitions})
    assert {row[3] for row in log.rows(topic_name, "read_committed")} == {LOG_APPEND_TIME}
    compare(log)


def test_all_formats_in_one_log(old_kafka: LocalKafka, topic_name: str) -> None:
    """A topic that went through upgrades of its brokers, and one downgrade."""
    chance = Random(6)
    old_kafka.create_topic(topic_name, config={"message.format.version": FORMATS[0]})
    for magic, codec in ((0, "none"), (0, "gzip"), (1, "lz4"), (1, "none"), (2, "snappy"), (0, "lz4"), (2, "none")):
        set_format(old_kafka, topic_name, magic)
        produce(old_kafka.bootstrap, topic_name, any_messages(chance, 60, 0, headers=False), codec=codec, linger_ms=20)
    assert {magic for magic, _ in stored(old_kafka, topic_name, 0)} == {0, 1, 2}
    log = written(old_kafka, {topic_name: 1})
    assert len(log.rows(topic_name, "read_uncommitted")) >= 7 * 61
    compare(log)


def set_format(kafka: LocalKafka, topic: str, magic: int) -> None:
    """Return once the broker writes that format: it reports success before the log uses it."""
    entry = ConfigEntry("message.format.version", FORMATS[magic], incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)
    deadline = time.monotonic() + 60
    while True:
        produce(kafka.bootstrap, topic, [Message(b"in which format?", partition=0)])
        data = memoryview(segments(kafka, topic, 0)[-1].read_bytes())
        if [header.magic for header, _ in split_batches(data)][-1] == magic:
            return
        assert time.monotonic() < deadline, f"{topic} is not written in format {magic}"


@pytest.mark.parametrize("magic", FORMATS)
def test_holes_of_a_log_cleaner_of_old(old_kafka: LocalKafka, topic_name: str, magic: int) -> None:
    config = {"message.format.version": FORMATS[magic], "segment.bytes": "20000"}  # magic 0 knows no time
    compare_compacted(old_kafka, topic_name, write_compacted(old_kafka, topic_name, Random(magic), 2_000, config))


def test_holes(topic_name: str) -> None:
    with LocalKafka(version=KAFKA_VERSION, config=CLEANER) as kafka:
        compare_compacted(kafka, topic_name, write_compacted(kafka, topic_name, Random(7), 2_000, {}))


def compare_compacted(kafka: LocalKafka, topic: str, partitions: int) -> None:
    """Compare once the cleaner is done with all but the last segments: what it changes meanwhile is no difference."""
    deadline = time.monotonic() + 60
    while True:
        log = written(kafka, {topic: partitions})
        left = Counter(row[0] for row in log.rows(topic, "read_uncommitted"))
        if max(left.values()) < 1_500 and log == written(kafka, {topic: partitions}):
            break
        assert time.monotonic() < deadline, f"not compacted: {left}"
    for partition in range(partitions):
        offsets = [row[1] for row in log.rows(topic, "read_uncommitted") if row[0] == partition]
        assert offsets != list(range(offsets[0], offsets[0] + len(offsets)))
    compare(log)
