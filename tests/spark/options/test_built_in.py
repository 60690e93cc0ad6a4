"""Spark's own Kafka source is the oracle: the same options over the same topics give the same rows and refusals.

Where the two differ on purpose, the case says so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.query import StreamingQuery

from aiokc import KafkaError
from aiokc.testing.kafka import LocalKafka
from spark_source import AiokcDataSource, offsets_behind_latest
from spark_source.offsets import ANCHOR
from spark_source.schema import kafka_schema
from tests.producing import Message, produce

from ..queries.test_stream_query import wait_until
from .built_in_cases import BOTH_REFUSE, ONLY_AIOKC_REFUSES, SAME_ROWS, SAME_TASKS, START_MS, Case, lay_out

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(240)]

BOTH = ("kafka", "aiokc")


@pytest.fixture(scope="module")
def topics(kafka: LocalKafka) -> tuple[str, str]:
    a, b = (f"built-in-{name}-{uuid4().hex[:8]}" for name in "ab")
    lay_out(kafka, a, b)
    return a, b


def load(spark: SparkSession, source: str, bootstrap: str, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format(source).options(**{"kafka.bootstrap.servers": bootstrap, **options}).load()


@pytest.mark.parametrize("case", SAME_ROWS, ids=lambda case: case.what)
def test_the_same_rows(spark: SparkSession, kafka: LocalKafka, topics: tuple[str, str], case: Case) -> None:
    def read(source: str) -> tuple[object, list[Row]]:
        rows = load(spark, source, kafka.bootstrap, case.given(*topics))
        return rows.schema, sorted(rows.collect(), key=lambda row: (row.topic, row.partition, row.offset))

    expected, found = map(read, BOTH)

    assert found == expected
    assert found[1], "an empty case shows nothing"


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.what, marks=() if case is SAME_TASKS[-1] else pytest.mark.long) for case in SAME_TASKS],
)
def test_the_same_tasks(spark: SparkSession, kafka: LocalKafka, topics: tuple[str, str], case: Case) -> None:
    expected, found = (by_task(load(spark, source, kafka.bootstrap, case.given(*topics))) for source in BOTH)

    assert found == expected


def test_on_purpose_a_batch_query_too_has_no_more_records_in_a_task(
    spark: SparkSession, kafka: LocalKafka, topics: tuple[str, str]
) -> None:
    """The built-in source obeys maxRecordsPerPartition alone in streams only."""
    options = {"subscribe": topics[0], "maxRecordsPerPartition": "4"}

    expected, found = (by_task(load(spark, source, kafka.bootstrap, options)) for source in BOTH)

    assert max(map(len, found)) == 4 < max(map(len, expected))
    assert sorted(chain(*found)) == sorted(chain(*expected))


def by_task(rows: DataFrame) -> list[list[tuple[str, int, int]]]:
    """Return the records that each task read."""
    tasks = defaultdict[int, list[tuple[str, int, int]]](list)
    for task, *place in rows.select(spark_partition_id(), "topic", "partition", "offset").collect():
        tasks[task].append((*place,))
    return sorted(tasks.values())


def planned_by_aiokc(bootstrap: str, options: Mapping[str, str]) -> Sequence[InputPartition]:
    """Do in this process what Spark has aiokc's source do until a batch query is planned."""
    source = AiokcDataSource({"kafka.bootstrap.servers": bootstrap, **options})
    return source.reader(source.schema()).partitions()


@pytest.mark.parametrize("case", BOTH_REFUSE, ids=lambda case: f"{case.what}: {' '.join(case.options)}")
def test_both_refuse(spark: SparkSession, kafka: LocalKafka, topics: tuple[str, str], case: Case) -> None:
    """aiokc's errors reach the application as errors of Spark's (test_batch_query.py::test_wrong_options)."""
    given = {"fetchOffset.retryIntervalMs": "1", **case.given(*topics)}

    with pytest.raises(Exception):  # noqa: B017, PT011 (the built-in source raises all kinds)
        load(spark, "kafka", kafka.bootstrap, given).collect()
    with pytest.raises(KafkaError) as caught:
        planned_by_aiokc(kafka.bootstrap, given)

    assert case.said.replace("{a}", topics[0]).replace("{b}", topics[1]) in str(caught.value)


@pytest.mark.parametrize("case", ONLY_AIOKC_REFUSES, ids=lambda case: f"{case.what}: {' '.join(case.options)}")
def test_on_purpose_only_aiokc_refuses(
    spark: SparkSession, kafka: LocalKafka, topics: tuple[str, str], case: Case
) -> None:
    load(spark, "kafka", kafka.bootstrap, case.given(*topics)).collect()

    with pytest.raises(KafkaError) as caught:
        planned_by_aiokc(kafka.bootstrap, case.given(*topics))
    assert case.said in str(caught.value)


class Streams:
    """The same stream from both sources, each with its own checkpoint. It keeps what the tasks of each batch read."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark, self._bootstrap, self._folder = spark, bootstrap, folder
        self.queries: dict[str, StreamingQuery] = {}
        self.batches: dict[str, list[list[list[tuple[str, int, int]]]]] = {source: [] for source in BOTH}

    def start(self, options: Mapping[str, str], **trigger: Any) -> None:
        for source in BOTH:
            self.start_one(source, {"kafka.bootstrap.servers": self._bootstrap, **options}, **trigger)

    def start_one(self, source: str, given: Mapping[str, str], **trigger: Any) -> StreamingQuery:
        rows = self._spark.readStream.format(source).options(**given).load()
        writer = rows.writeStream.foreachBatch(self._keep(self.batches[source]))
        writer = writer.option("checkpointLocation", str(self._folder / source))
        self.queries[source] = (writer.trigger(**trigger) if trigger else writer).start()
        return self.queries[source]

    def _keep(self, kept: list[list[list[tuple[str, int, int]]]]) -> Any:
        def keep(batch: DataFrame, batch_id: int) -> None:
            if tasks := by_task(batch):
                kept.append(tasks)

        return keep

    def end_offsets(self, source: str) -> list[dict[str, Any]]:
        """Return the last line of each entry of the offset log, without the anchor, and without repeated ones."""
        logged = (self._folder / source / "offsets").glob("[0-9]*")
        files = sorted(logged, key=lambda file: int(file.name))
        ends = [json.loads(file.read_text().splitlines()[-1]) for file in files]
        plain = [{topic: parts for topic, parts in end.items() if topic != ANCHOR} for end in ends]
        return [end for end, before in zip(plain, [None, *plain], strict=False) if end != before]

    def stop(self) -> None:
        for query in self.queries.values():
            query.stop()


@pytest.fixture
def streams(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Iterator[Streams]:
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100")
    both = Streams(spark, kafka.bootstrap, tmp_path)
    yield both
    both.stop()
    spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


def test_the_same_micro_batches(topics: tuple[str, str], streams: Streams) -> None:
    subscribed = {"subscribe": f"{topics[0]},{topics[1]}", "startingOffsets": "earliest"}

    streams.start(subscribed | {"maxOffsetsPerTrigger": "9", "maxRecordsPerPartition": "3"}, availableNow=True)
    for query in streams.queries.values():
        assert query.awaitTermination(120)

    assert streams.batches["aiokc"] == streams.batches["kafka"]
    assert len(streams.batches["aiokc"]) > 3
    assert streams.end_offsets("aiokc") == streams.end_offsets("kafka")


def test_both_wait_for_the_least_number_of_records(kafka: LocalKafka, topic: str, streams: Streams) -> None:
    def all_know(end: int) -> bool:
        known = [query.lastProgress.sources[0].latestOffset for query in streams.queries.values() if query.lastProgress]
        return [json.loads(text) if text else None for text in known] == [{topic: {"0": end, "1": 0, "2": 0}}] * 2

    options = {"subscribe": topic, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h", "startingOffsets": "earliest"}
    produce(kafka.bootstrap, topic, [Message(b"x", partition=0)])
    streams.start(options)
    wait_until(lambda: all_know(1), *streams.queries.values())
    produce(kafka.bootstrap, topic, [Message(b"x", partition=0)] * 3)
    wait_until(lambda: all_know(4), *streams.queries.values())
    progress = {source: query.lastProgress for source, query in streams.queries.items()}
    assert progress["aiokc"]
    assert progress["kafka"]
    of_kafka = {name: float(value) for name, value in progress["kafka"].sources[0].metrics.items()}
    assert offsets_behind_latest(progress["aiokc"]) == of_kafka
    produce(kafka.bootstrap, topic, [Message(b"x", partition=0)] * 2)
    wait_until(lambda: [len(streams.batches[source]) for source in BOTH] == [2, 2], *streams.queries.values())

    sizes = {source: [len(task) for batch in streams.batches[source] for task in batch] for source in BOTH}
    assert sizes == {"kafka": [1, 5], "aiokc": [1, 5]}


@pytest.mark.parametrize(
    ("options", "said_by_kafka", "said"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries", "endingOffsets ends a batch"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            r"minOffsetPerTrigger\(9\) is higher than the maxOffsetsPerTrigger\(8\)",
            "minOffsetsPerTrigger (9) is more than",
        ),
    ],
)
def test_both_refuse_as_streams(
    kafka: LocalKafka, topics: tuple[str, str], streams: Streams, options: dict[str, str], said_by_kafka: str, said: str
) -> None:
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topics[0], **options}

    with pytest.raises(PySparkException, match=said_by_kafka):
        streams.start_one("kafka", given).awaitTermination(120)
    with pytest.raises(KafkaError) as caught:
        AiokcDataSource(given).streamReader(kafka_schema(include_headers=False)).initialOffset()

    assert said in str(caught.value)


def test_the_same_rows_as_streams(
    spark: SparkSession, kafka: LocalKafka, topics: tuple[str, str], tmp_path: Path
) -> None:
    """What differs between batches and streams is planned elsewhere; so one stream has most of it."""
    a, b = topics

    def read(source: str, **options: str) -> tuple[object, list[Row]]:
        rows = spark.readStream.format(source).options(**{"kafka.bootstrap.servers": kafka.bootstrap}, **options).load()
        found: list[Row] = []
        writer = rows.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        checkpoint = str(tmp_path / f"{source}-{len(options)}")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return rows.schema, sorted(found, key=lambda row: (row.topic, row.partition, row.offset))

    later = str(START_MS + 3_000)
    assigned = [read(source, assign=json.dumps({a: [0, 1]}), startingTimestamp=later) for source in BOTH]
    by_pattern = [
        read(source, subscribePattern=f"{a}|{b}", startingOffsets="earliest", includeHeaders="true") for source in BOTH
    ]

    assert assigned[0] == assigned[1]
    assert {row.partition for row in assigned[1][1]} == {0, 1}
    assert by_pattern[0] == by_pattern[1]
    assert {row.topic for row in by_pattern[1][1]} == {a, b}
