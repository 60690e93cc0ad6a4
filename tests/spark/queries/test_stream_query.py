"""Streaming queries on a real Spark and a real Kafka."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from aiokc.testing.kafka import LocalKafka
from tests.producing import Message, Stored, add_partitions, produce

from ..deleting import delete_records
from ..file_sink import write_to, written_in

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.every_spark, pytest.mark.timeout(180)]

Start: TypeAlias = Callable[..., StreamingQuery]


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    return tmp_path / "sink"


@pytest.fixture
def start(sink: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a query into the idempotent sink; queries that still run after the test are stopped."""
    queries: list[StreamingQuery] = []

    def started(rows: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = rows.writeStream.foreachBatch(write_to(sink)).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        queries.append((writer.trigger(**trigger) if trigger else writer).start())
        return queries[-1]

    yield started
    for query in queries:
        query.stop()


def wait_until(is_true: Callable[[], bool], *queries: StreamingQuery, seconds: float = 120) -> None:
    """Return once the condition holds; raise the error of a query, or AssertionError after the deadline."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"still not so after {seconds} s: {[query.status for query in queries]}"
        for query in queries:
            assert not query.awaitTermination(timeout=1), "the query ended"


def wait_for_batches(query: StreamingQuery) -> None:
    """Return once a batch was finished: the start of the stream is decided then."""
    wait_until(lambda: query.lastProgress is not None, query)


def once_each(stored: list[Stored]) -> Counter[Stored]:
    return Counter(stored)


def test_everything_written_while_it_runs_arrives_once(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, sink: Path, start: Start
) -> None:
    stored = produce(kafka.bootstrap, topic, [b"before"] * 100)
    query = start(read_stream.option("startingOffsets", "earliest").load())
    for _ in range(3):
        query.processAllAvailable()
        assert written_in(sink) == once_each(stored)
        stored += produce(kafka.bootstrap, topic, [b"later"] * 500, codec="zstd")
    query.processAllAvailable()

    assert written_in(sink) == once_each(stored)


def test_from_latest_only_what_comes_then(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, sink: Path, start: Start
) -> None:
    produce(kafka.bootstrap, topic, [b"before"] * 10)
    query = start(read_stream.load())
    wait_for_batches(query)
    stored = produce(kafka.bootstrap, topic, [b"later"] * 10)
    query.processAllAvailable()

    assert written_in(sink) == once_each(stored)


@pytest.mark.long
def test_from_given_offsets(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, sink: Path, start: Start
) -> None:
    stored = produce(kafka.bootstrap, topic, [Message(b"x", partition=part) for part in (0, 1, 2) for _ in range(5)])
    offsets = json.dumps({topic: {"0": 3, "1": -2, "2": -1}})
    query = start(read_stream.option("startingOffsets", offsets).load())
    query.processAllAvailable()

    expected = [place for place in stored if place.partition == 1 or (place.partition == 0 and place.offset >= 3)]
    assert written_in(sink) == once_each(expected)


def test_new_partitions_are_read_from_their_start(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, sink: Path, start: Start
) -> None:
    query = start(read_stream.load())
    wait_for_batches(query)
    add_partitions(kafka.bootstrap, topic, 5)
    stored = produce(kafka.bootstrap, topic, [Message(b"x", partition=part) for part in range(5)])
    wait_until(lambda: len(written_in(sink)) == 5, query)

    assert written_in(sink) == once_each(stored)


@pytest.mark.every_spark(since="4.2")
def test_available_now_in_batches_and_again(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, sink: Path, start: Start
) -> None:
    rows = read_stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "100").load()
    stored = produce(kafka.bootstrap, topic, [Message(b"x", partition=n % 3) for n in range(450)])

    first = start(rows, availableNow=True)
    assert first.awaitTermination(120)

    assert written_in(sink) == once_each(stored)
    assert max(progress.numInputRows for progress in first.recentProgress) <= 102
    (last,) = first.recentProgress[-1].sources
    assert json.loads(last.endOffset) == json.loads(last.latestOffset) == {topic: {"0": 150, "1": 150, "2": 150}}
    stored += produce(kafka.bootstrap, topic, [b"x"] * 10)

    assert start(rows, availableNow=True).awaitTermination(120)

    assert written_in(sink) == once_each(stored)


@pytest.mark.every_spark(since="4.2")
def test_available_now_leaves_to_the_next_run_what_is_written_meanwhile(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, sink: Path, tmp_path: Path
) -> None:
    stored = produce(kafka.bootstrap, topic, [Message(b"x", partition=n % 3) for n in range(30)])
    later: list[Stored] = []
    write = write_to(sink)

    def write_and_produce(batch: DataFrame, batch_id: int) -> None:
        write(batch, batch_id)
        if not later:
            later.extend(produce(kafka.bootstrap, topic, [Message(b"x", partition=n % 3) for n in range(30)]))

    rows = read_stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "15").load()
    writer = rows.writeStream.foreachBatch(write_and_produce).option("checkpointLocation", str(tmp_path / "checkpoint"))

    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert written_in(sink) == once_each(stored)

    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert written_in(sink) == once_each(stored + later)


@pytest.mark.parametrize(
    "trigger", [{"once": True}, pytest.param({"processingTime": "200 milliseconds"}, marks=pytest.mark.long)]
)
def test_other_triggers(
    kafka: LocalKafka,
    topic: str,
    read_stream: DataStreamReader,
    sink: Path,
    start: Start,
    trigger: dict[str, Any],
) -> None:
    stored = produce(kafka.bootstrap, topic, [b"x"] * 10)
    query = start(read_stream.option("startingOffsets", "earliest").load(), **trigger)
    if "once" in trigger:
        assert query.awaitTermination(120)
    else:
        query.processAllAvailable()

    assert written_in(sink) == once_each(stored)


@pytest.mark.long
def test_counts_by_window(spark: SparkSession, kafka: LocalKafka, topic: str, read_stream: DataStreamReader) -> None:
    times = [0, 1_000, 59_999, 60_000, 61_000, 180_000]
    produce(kafka.bootstrap, topic, [Message(b"x", timestamp=1_700_000_040_000 + ms) for ms in times])
    counts = (
        read_stream.option("startingOffsets", "earliest")
        .load()
        .withWatermark("timestamp", "1 minute")
        .groupBy(window("timestamp", "1 minute"))
        .count()
    )
    query = counts.writeStream.format("memory").queryName("counts").outputMode("complete").start()
    try:
        query.processAllAvailable()
        found = spark.sql("SELECT unix_timestamp(window.start), count FROM counts ORDER BY 1").collect()
    finally:
        query.stop()

    assert [tuple(row) for row in found] == [(1_700_000_040, 3), (1_700_000_100, 2), (1_700_000_220, 1)]


def test_an_unknown_topic(spark: SparkSession, kafka: LocalKafka, start: Start) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "no-such-topic"}
    query = start(spark.readStream.format("aiokc").options(**options).load())

    with pytest.raises(StreamingQueryException, match="'subscribe': no topic 'no-such-topic' on the cluster at"):
        query.awaitTermination(120)


@pytest.mark.long
def test_no_broker_listens_at_the_address(
    spark: SparkSession, topic_name: str, unused_tcp_port: int, start: Start
) -> None:
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{unused_tcp_port}",
        "subscribe": topic_name,
        "kafka.default.api.timeout.ms": "700",
        "fetchOffset.retryIntervalMs": "1",
    }
    query = start(spark.readStream.format("aiokc").options(**options).load())
    began = time.monotonic()

    with pytest.raises(StreamingQueryException, match=f"NoBrokersAvailable.*127.0.0.1:{unused_tcp_port}"):
        query.awaitTermination(120)

    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("more", "schema", "trigger", "message"),
    [
        ({}, "value string", {}, "column 'value' of the schema must be a nullable binary"),
        pytest.param(
            {"endingOffsets": "latest"},
            "value binary",
            {"availableNow": True},
            "endingOffsets ends a batch query.*availableNow",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_a_stream_cannot_have(
    read_stream: DataStreamReader,
    topic: str,
    start: Start,
    more: dict[str, str],
    schema: str,
    trigger: dict[str, Any],
    message: str,
) -> None:
    """The reason is all that Spark shows: it has got a reader that it can stop."""
    query = start(read_stream.options(**more).schema(schema).load(), **trigger)

    with pytest.raises(StreamingQueryException, match=message) as caught:
        query.awaitTermination(120)

    assert "UnboundLocalError" not in str(caught.value)


def test_records_deleted_before_they_were_read(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, sink: Path, start: Start
) -> None:
    stored = produce(kafka.bootstrap, topic, [Message(b"x", partition=1)] * 10)
    rows = read_stream.option("startingOffsets", "earliest").load()
    assert start(rows, availableNow=True).awaitTermination(120)
    produce(kafka.bootstrap, topic, [Message(b"lost", partition=1)] * 10)
    delete_records(kafka.bootstrap, topic, partition=1, before=15)

    query = start(rows, availableNow=True)

    message = (
        r"data loss: topic .*, partition 1: its oldest records were deleted\. Wanted: offsets 10 to 20 .*: 15 to 20"
    )
    with pytest.raises(StreamingQueryException, match=message):
        query.awaitTermination(120)
    assert written_in(sink) == once_each(stored)


@pytest.mark.long
def test_with_fail_on_data_loss_false_it_goes_on_with_what_is_left(
    kafka: LocalKafka, topic: str, read_stream: DataStreamReader, sink: Path, start: Start
) -> None:
    stored = produce(kafka.bootstrap, topic, [Message(b"x", partition=1)] * 10)
    rows = read_stream.options(startingOffsets="earliest", failOnDataLoss="false", maxOffsetsPerTrigger="3").load()
    assert start(rows, availableNow=True).awaitTermination(120)
    stored += produce(kafka.bootstrap, topic, [Message(b"x", partition=1)] * 10)
    delete_records(kafka.bootstrap, topic, partition=1, before=15)

    after = start(rows, availableNow=True)
    assert after.awaitTermination(120)

    assert [progress.numInputRows for progress in after.recentProgress] == [3, 2], "no batch of deleted offsets only"
    assert written_in(sink) == once_each([place for place in stored if not 10 <= place.offset < 15])
