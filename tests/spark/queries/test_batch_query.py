"""Batch queries on a real Spark and a real Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructType

from aiokc.testing.kafka import LocalKafka
from spark_source.schema import kafka_schema
from tests.producing import Message, produce, produce_in_transaction

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.every_spark, pytest.mark.timeout(180)]


def load(spark: SparkSession, options: Mapping[str, str], **more: str) -> DataFrame:
    return spark.read.format("aiokc").options(**options).options(**more).load()


def offsets_of(rows: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in rows.select("partition", "offset").collect())


def test_every_column_as_produced(
    spark: SparkSession, kafka: LocalKafka, topic: str, options: Mapping[str, str]
) -> None:
    messages = [
        Message(b"value", b"key", (("h", b"1"), ("h", None), ("é", b"")), timestamp=1_700_000_000_123, partition=0),
        Message(None, None, timestamp=1, partition=0),
        Message(b"", b"", timestamp=1_700_000_000_999, partition=2),
        Message(bytes(range(256)), b"\x00", timestamp=1_700_000_001_000, partition=2),
    ]
    produce(kafka.bootstrap, topic, messages)

    rows = load(spark, options, includeHeaders="true")

    assert rows.schema == kafka_schema(include_headers=True)
    found = [tuple(row) for row in rows.orderBy("partition", "offset").collect()]
    headers = [("h", b"1"), ("h", None), ("é", b"")]
    first, second = datetime.fromtimestamp(1_700_000_000.123), datetime.fromtimestamp(0.001)
    third, fourth = datetime.fromtimestamp(1_700_000_000.999), datetime.fromtimestamp(1_700_000_001)
    assert [row[:-1] for row in found] == [
        (b"key", b"value", topic, 0, 0, first, 0),
        (None, None, topic, 0, 1, second, 0),
        (b"", b"", topic, 2, 0, third, 0),
        (b"\x00", bytes(range(256)), topic, 2, 1, fourth, 0),
    ]
    assert [row[-1] and [tuple(header) for header in row[-1]] for row in found] == [headers, None, None, None]
    assert load(spark, options).schema == kafka_schema(include_headers=False)


def test_timestamps_of_the_broker(spark: SparkSession, kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, config={"message.timestamp.type": "LogAppendTime"})
    produce(kafka.bootstrap, topic_name, [Message(b"x", timestamp=1)])

    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic_name}
    row = load(spark, options).select("timestampType", "timestamp").first()

    assert row is not None
    assert row.timestampType == 1
    assert row.timestamp.year > 2020


def test_many_records_of_several_topics(
    spark: SparkSession, kafka: LocalKafka, topic: str, options: Mapping[str, str]
) -> None:
    other = f"{topic}-other"
    kafka.create_topic(other)
    produce(kafka.bootstrap, topic, (b"%d" % n * 50 for n in range(30_000)), codec="lz4", linger_ms=20)
    produce(kafka.bootstrap, other, [b"x"] * 7)

    rows = load(spark, {**options, "subscribe": f"{topic}, {other}"})

    counted = {row.topic: row["count"] for row in rows.groupBy("topic").count().collect()}
    assert counted == {topic: 30_000, other: 7}
    assert rows.where(f"topic = '{topic}'").select("partition", "offset").distinct().count() == 30_000


def test_offsets_per_partition(spark: SparkSession, kafka: LocalKafka, topic: str, options: Mapping[str, str]) -> None:
    produce(kafka.bootstrap, topic, [Message(b"x", partition=part) for part in (0, 1, 2) for _ in range(5)])

    rows = load(
        spark,
        options,
        startingOffsets=json.dumps({topic: {"0": 3, "1": -2, "2": 5}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 2, "2": -1}}),
    )

    assert offsets_of(rows) == [(0, 3), (0, 4), (1, 0), (1, 1)]


def test_an_empty_topic(spark: SparkSession, topic: str, options: Mapping[str, str]) -> None:
    assert load(spark, options).count() == 0


def test_transactions(spark: SparkSession, kafka: LocalKafka, topic: str, options: Mapping[str, str]) -> None:
    produce_in_transaction(kafka.bootstrap, topic, [Message(b"yes", partition=0)] * 2)
    produce_in_transaction(kafka.bootstrap, topic, [Message(b"no", partition=0)] * 2, commit=False)

    committed = load(spark, options, **{"kafka.isolation.level": "read_committed"})

    assert offsets_of(committed) == [(0, 0), (0, 1)]
    assert offsets_of(load(spark, options)) == [(0, 0), (0, 1), (0, 3), (0, 4)]


def test_a_schema_chooses_columns(
    spark: SparkSession, kafka: LocalKafka, topic: str, options: Mapping[str, str]
) -> None:
    produce(kafka.bootstrap, topic, [Message(b"x", partition=1)])

    rows = spark.read.format("aiokc").schema("offset long, value binary").options(**options).load()

    assert [tuple(row) for row in rows.collect()] == [(0, b"x")]
    other = spark.read.format("aiokc").schema(StructType().add("body", BinaryType())).options(**options).load()
    with pytest.raises(PySparkException, match="column 'body' of the schema is not one of Kafka's"):
        other.collect()


def test_found_by_name_in_sql_too(
    spark: SparkSession, kafka: LocalKafka, topic: str, options: Mapping[str, str]
) -> None:
    produce(kafka.bootstrap, topic, [b"x"] * 3)
    given = ", ".join(f"'{name}' '{value}'" for name, value in options.items())

    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW records USING AIOKC OPTIONS ({given})")

    assert spark.sql("SELECT count(*) FROM records").collect()[0][0] == 3
    with pytest.raises(PySparkException, match="a table of Spark's catalog can't be USING aiokc"):
        spark.sql(f"CREATE TABLE kept USING AIOKC OPTIONS ({given})")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"startingOffset": "earliest"}, "unknown option 'startingoffset'; did you mean 'startingOffsets'?"),
        ({"kafka.max.poll.records": "5"}, "option 'kafka.max.poll.records' has no meaning here"),
        ({"startingOffsets": "latest"}, "startingOffsets of a batch query cannot be latest"),
        (
            {"startingOffsets": '{"no-such-topic":{"0":1}}'},
            "startingOffsets names no-such-topic-0, which",
        ),
        pytest.param(
            {"subscribe": "no-such-topic"},
            "option 'subscribe': no topic 'no-such-topic' on the cluster at 127.0.0.1",
            marks=pytest.mark.long,
        ),
    ],
)
def test_wrong_options(
    spark: SparkSession, topic: str, options: Mapping[str, str], changed: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=re.escape(message)):
        load(spark, {**options, **changed}).collect()


def test_no_broker_listens_at_the_address(spark: SparkSession, unused_tcp_port: int, topic_name: str) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    rows = load(
        spark,
        {"kafka.bootstrap.servers": address, "subscribe": topic_name},
        **{"kafka.default.api.timeout.ms": "700", "fetchOffset.retryIntervalMs": "1"},
    )

    with pytest.raises(PySparkException, match="NoBrokersAvailable") as caught:
        rows.collect()

    assert address in str(caught.value)


def test_a_start_that_the_log_does_not_hold(
    spark: SparkSession, kafka: LocalKafka, topic: str, options: Mapping[str, str]
) -> None:
    produce(kafka.bootstrap, topic, [Message(b"x", partition=0)] * 5)
    offsets = json.dumps({topic: {"0": 9, "1": 0, "2": 0}})

    with pytest.raises(PySparkException, match=r"data loss: topic .*partition 0: .*offset 9 on; available: 0 to 5"):
        load(spark, options, startingOffsets=offsets).collect()
    assert load(spark, options, startingOffsets=offsets, failOnDataLoss="false").count() == 0
