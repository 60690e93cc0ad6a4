"""Features of aiokc's source that Spark's own does not have, on a real Spark and a real Kafka."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.readwriter import DataStreamReader

from aiokc.testing.kafka import LocalKafka
from spark_source import LagListener
from tests.producing import Message, produce

from ..file_sink import written_in
from .test_batch_query import load, offsets_of
from .test_stream_query import Start, sink, start, wait_until

__all__ = ["sink", "start"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(180)]


@pytest.fixture
def group(kafka: LocalKafka, topic: str) -> Iterator[Consumer]:
    """A consumer of another client, which reads the offsets of a group; the group is named after the topic."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "enable.auto.commit": False})
    yield consumer
    consumer.close()


def committed(group: Consumer, topic: str) -> list[int]:
    """Return the group's offsets of the three partitions; a negative number where there is none."""
    found = group.committed([TopicPartition(topic, part) for part in range(3)], timeout=30)
    return [place.offset for place in found]


def test_a_partial_json(spark: SparkSession, kafka: LocalKafka, topic: str, options: Mapping[str, str]) -> None:
    produce(kafka.bootstrap, topic, [Message(b"x", partition=part) for part in (0, 1, 2) for _ in range(4)])

    rows = load(
        spark,
        options,
        startingOffsets=json.dumps({topic: {"0": 3}}),
        startingOffsetsDefault="earliest",
        endingOffsets=json.dumps({topic: {"1": 2}}),
        endingOffsetsDefault="latest",
    )

    assert offsets_of(rows) == [(0, 3), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_many_partitions_in_few_tasks(
    spark: SparkSession, kafka: LocalKafka, topic_name: str, options: Mapping[str, str]
) -> None:
    kafka.create_topic(topic_name, partitions=20)
    stored = produce(kafka.bootstrap, topic_name, [Message(b"x" * n, partition=n % 20) for n in range(200)])

    rows = load(spark, options, maxPartitions="3")

    found = rows.select(spark_partition_id(), "partition", "offset").collect()
    assert sorted(row[1:] for row in found) == sorted((place.partition, place.offset) for place in stored)
    assert sorted({row[0] for row in found}) == [0, 1, 2]


def test_group_offsets_follow_the_stream(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, start: Start, sink: Path, group: Consumer
) -> None:
    group.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    produce(kafka.bootstrap, topic, [Message(b"x", partition=0)] * 3)
    options = {"kafka.group.id": topic, "commitOffsets": "true"}
    given = {"startingOffsets": "committed", "startingOffsetsDefault": "latest"}
    query = start(read_stream.options(**options, **given).load())
    query.processAllAvailable()
    wait_until(lambda: committed(group, topic) == [3, 0, 0], query)
    produce(kafka.bootstrap, topic, [Message(b"x", partition=2)] * 5)
    query.processAllAvailable()
    wait_until(lambda: committed(group, topic) == [3, 0, 5], query)
    query.stop()
    # A commit has a second. On a busy machine that may be too little for a new process, and this run does not try
    # again: then there is another run, and each one has to commit what it has read itself.
    for run in (1, 2):
        produce(kafka.bootstrap, topic, [Message(b"x", partition=1)] * 2)
        assert start(read_stream.options(**options).load(), availableNow=True).awaitTermination(120)
        if committed(group, topic) == [3, 2 * run, 5]:
            break

    assert committed(group, topic) == [3, 2 * run, 5]
    read = sorted((place.partition, place.offset) for place in written_in(sink))
    assert read == [(0, 1), (0, 2), *((1, at) for at in range(2 * run)), *((2, at) for at in range(5))]


def test_from_what_a_group_has_committed(
    spark: SparkSession, kafka: LocalKafka, topic: str, options: Mapping[str, str], group: Consumer
) -> None:
    produce(kafka.bootstrap, topic, [Message(b"x", partition=part) for part in (0, 1, 2) for _ in range(4)])
    group.commit(offsets=[TopicPartition(topic, part, part + 1) for part in range(3)], asynchronous=False)

    rows = load(spark, {**options, "kafka.group.id": topic}, startingOffsets="committed")

    assert offsets_of(rows) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    stranger = {"kafka.group.id": f"nobody-{uuid.uuid4().hex[:8]}", "startingOffsets": "committed"}
    with pytest.raises(Exception, match=r"has committed nothing for .*-0, .*-1, .*-2; say where these start in"):
        load(spark, {**options, **stranger}).collect()


def test_a_listener_hears_of_the_lag(
    spark: SparkSession, kafka: LocalKafka, topic: str, read_stream: DataStreamReader, start: Start
) -> None:
    told: list[dict[str, float]] = []
    listener = LagListener(lambda name, numbers: told.append(numbers))
    produce(kafka.bootstrap, topic, [Message(b"x", partition=0)] * 6)
    spark.streams.addListener(listener)
    try:
        bounded = read_stream.options(startingOffsets="earliest", maxOffsetsPerTrigger="4").load()
        query = start(bounded)
        query.processAllAvailable()
        wait_until(lambda: len(told) >= 2, query)
    finally:
        spark.streams.removeListener(listener)

    assert [numbers["maxOffsetsBehindLatest"] for numbers in told[:2]] == [2, 0]


def test_a_line_for_each_task(spark: SparkSession, kafka: LocalKafka, topic: str, options: Mapping[str, str]) -> None:
    produce(kafka.bootstrap, topic, [Message(b"x" * 100, partition=1)] * 6)
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        load(spark, options).collect()
        logged = spark.tvf.python_worker_logs().where("logger = 'spark_source.worker'").collect()
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")

    lines = [row.msg for row in logged]
    (line,) = [line for line in lines if topic in line]
    assert line.startswith(f"task done: {topic}-1 [0, 6): 6 records, ")
    assert re.search(r", \d{3,4} bytes in 1 Arrow batches, [1-9] fetches, waited for Spark \d+ ms of \d+ ms$", line)
