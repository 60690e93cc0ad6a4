"""Record batches of exactly the types that Spark accepts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from aiokc import ConsumerRecord, RawRecord, TopicPartition
from aiokc.errors import ConfigError
from aiokc.records import checked_columns, new_builder
from spark_source.schema import columns_of, kafka_schema

TP = TopicPartition("events", 7)
ALL = tuple(kafka_schema(include_headers=True).fieldNames())


def record(offset: int, value: bytes | None = b"v", **changed: object) -> RawRecord:
    fields: dict[str, object] = {"key": b"k", "timestamp": 1_700_000_000_123, "headers": ()}
    return ConsumerRecord(TP.topic, TP.partition, offset, value=value, **(fields | changed))  # type: ignore[arg-type]


def to_batch(records: list[RawRecord], columns: Sequence[str]) -> pa.RecordBatch:
    """Return these records as a task of Spark gets them."""
    builder = new_builder(checked_columns(columns), "us")
    assert builder.append_records(records, 1 << 62, 1 << 30) == len(records)
    return pa.record_batch(builder.finish())


def test_the_columns_are_those_of_sparks_own_source() -> None:
    assert kafka_schema(include_headers=True).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert kafka_schema(include_headers=False).fieldNames() == list(ALL[:-1])


@pytest.mark.parametrize("include_headers", [True, False])
def test_arrow_types_are_the_ones_that_spark_compares_with(include_headers: bool) -> None:
    schema = kafka_schema(include_headers=include_headers)

    batch = to_batch([record(0)], schema.fieldNames())

    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))


def test_every_column_carries_what_the_record_has() -> None:
    records = [
        record(5, None, key=b"", timestamp_type=1, headers=(("h", b"1"), ("h", None))),
        record(6, b"", key=None, timestamp=-1),
    ]

    rows = to_batch(records, ALL).to_pylist()

    assert rows == [
        {
            "key": b"",
            "value": None,
            "topic": "events",
            "partition": 7,
            "offset": 5,
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
            "timestampType": 1,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        },
        {
            "key": None,
            "value": b"",
            "topic": "events",
            "partition": 7,
            "offset": 6,
            "timestamp": datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
            "timestampType": 0,
            "headers": None,
        },
    ]


def test_a_schema_of_the_application_chooses_columns() -> None:
    kafka = kafka_schema(include_headers=True)
    schema = StructType([kafka["offset"], kafka["headers"], kafka["value"]])

    assert columns_of(schema) == ("offset", "headers", "value")
    assert to_batch([record(1)], columns_of(schema)).schema.equals(to_arrow_schema(schema, timezone="UTC"))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (StructField("valeu", BinaryType()), "column 'valeu' of the schema is not one of Kafka's: key, value, topic"),
        (StructField("OFFSET", LongType()), "column 'OFFSET' of the schema is not one of Kafka's: write 'offset'"),
        (StructField("value", StringType()), "column 'value' .* must be a nullable binary, not string: cast it"),
        (StructField("value", BinaryType(), nullable=False), "must be a nullable binary, not NOT NULL binary"),
    ],
)
def test_a_schema_of_other_columns_is_refused(column: StructField, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        columns_of(StructType([column]))


def test_a_schema_that_names_a_column_twice_is_refused() -> None:
    offset, value = (kafka_schema(include_headers=False)[name] for name in ("offset", "value"))

    with pytest.raises(ConfigError, match="the schema names 'offset' more than once: name each column once"):
        columns_of(StructType([offset, value, offset]))


def test_a_schema_of_no_column_is_refused() -> None:
    with pytest.raises(ConfigError, match="the schema names no column: leave it out"):
        columns_of(StructType([]))
