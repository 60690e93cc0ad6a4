"""Changes of a log under a running stream: transactions, markers, compaction, a recreated topic."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from aiokc.testing.kafka import LocalKafka
from tests.producing import Message, Stored, produce, produce_in_transaction

from ..file_sink import written_in
from .test_stream_query import Start, sink, start, wait_until

__all__ = ["sink", "start"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(180)]


def transactional(kafka: LocalKafka, topic: str) -> Any:
    """Return a producer with a transaction that is open."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def test_an_open_transaction_is_waited_for_and_an_aborted_one_left_out(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, sink: Path, start: Start
) -> None:
    committed = read_stream.option("kafka.isolation.level", "read_committed").option("startingOffsets", "earliest")
    stored = produce_in_transaction(kafka.bootstrap, topic, [Message(b"yes", partition=0)] * 3)
    produce_in_transaction(kafka.bootstrap, topic, [Message(b"no", partition=0)] * 3, commit=False)
    producer = transactional(kafka, topic)
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    stored_behind = produce(kafka.bootstrap, topic, [Message(b"behind it", partition=0)])

    query = start(committed.load())  # its first batch ends on the marker of the aborted transaction
    query.processAllAvailable()
    assert written_in(sink) == Counter(stored)
    producer.commit_transaction(30)
    wait_until(lambda: len(written_in(sink)) == 5, query)

    assert stored_behind == [Stored(0, 9)]
    assert written_in(sink) == Counter([*stored, Stored(0, 8), Stored(0, 9)])


@pytest.mark.long
def test_a_batch_of_nothing_but_markers(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, sink: Path, start: Start
) -> None:
    stored = produce_in_transaction(kafka.bootstrap, topic, [Message(b"yes", partition=1)] * 2)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "1", "kafka.isolation.level": "read_committed"}

    assert start(read_stream.options(**options).load(), availableNow=True).awaitTermination(90)

    assert written_in(sink) == Counter(stored)


def recreate(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    deadline = time.monotonic() + 30
    while True:
        try:
            admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
            return
        except Exception:  # it is still being deleted
            if time.monotonic() > deadline:
                raise


@pytest.mark.parametrize(
    "records", [pytest.param(2, id="smaller", marks=pytest.mark.long), pytest.param(9, id="larger")]
)
def test_a_topic_recreated_while_it_runs(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, sink: Path, start: Start, records: int
) -> None:
    produce(kafka.bootstrap, topic, [Message(b"old", partition=0)] * 5)
    query = start(read_stream.option("startingOffsets", "earliest").load())
    query.processAllAvailable()
    recreate(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, [Message(b"new", partition=0)] * records)

    # The loss shows when a batch is planned, or, if it was planned before, when its task reads.
    with pytest.raises(StreamingQueryException, match=r"data loss: .*(created again|ends before|it is gone)"):
        query.awaitTermination(90)


@pytest.mark.long
def test_a_compacted_topic(
    kafka: LocalKafka,
    topic_name: str,
    options: Mapping[str, str],
    spark: SparkSession,
    sink: Path,
    start: Start,
) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    kafka.create_topic(topic_name, config=config)
    for round_ in range(4):  # each round rolls a segment
        produce(kafka.bootstrap, topic_name, [Message(b"%d" % round_, b"key %d" % n) for n in range(50)])
        time.sleep(0.2)

    def offsets_left() -> list[int]:
        rows = spark.read.format("aiokc").options(**options).load().select("offset").collect()
        return sorted(row.offset for row in rows)

    eventually(lambda: len(offsets_left()) < 150, seconds=60)
    left = offsets_left()
    stream = spark.readStream.format("aiokc").options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="30")

    assert start(stream.load(), availableNow=True).awaitTermination(120)

    assert max(left) == 199
    assert set(written_in(sink)) >= {Stored(0, offset) for offset in offsets_left()}
    assert set(written_in(sink)) <= {Stored(0, offset) for offset in left}
    assert max(written_in(sink).values()) == 1


def eventually(is_true: Callable[[], bool], *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"still not so after {seconds} s"
        time.sleep(0.5)
