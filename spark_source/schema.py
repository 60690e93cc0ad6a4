"""The columns of the rows: those of Spark's own Kafka source, in its order and with its types."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from aiokc.errors import ConfigError

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

_COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS: Final = StructField("headers", ArrayType(_HEADER))


def kafka_schema(*, include_headers: bool) -> StructType:
    """Return Kafka's columns; with ``include_headers``, ``headers`` is the last one."""
    return StructType([*_COLUMNS, _HEADERS] if include_headers else list(_COLUMNS))


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the names of the columns to read: ``.schema(...)`` may choose some of Kafka's, in any order.

    Raises ConfigError for a column that is not Kafka's, has another type, or is named twice, and for no column at all.
    """
    if not schema.fieldNames():
        raise ConfigError(
            "the schema names no column: leave it out, or name at least one, 'offset bigint' for instance"
        )
    known = {field.name: field for field in kafka_schema(include_headers=True)}
    by_lower = {name.lower(): name for name in known}
    for field in schema:
        if field.name not in known:
            meant = by_lower.get(field.name.lower())
            said = f"write {meant!r}" if meant else ", ".join(known)
            raise ConfigError(f"column {field.name!r} of the schema is not one of Kafka's: {said}")
        if field.dataType != known[field.name].dataType or not field.nullable:
            raise ConfigError(
                f"column {field.name!r} of the schema must be a nullable {known[field.name].dataType.simpleString()}, "
                f"not {'' if field.nullable else 'NOT NULL '}{field.dataType.simpleString()}: cast it after reading"
            )
    names = tuple(schema.fieldNames())
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"the schema names {', '.join(map(repr, repeated))} more than once: name each column once")
    return names
