"""What Spark gets from the entry point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from aiokc.errors import ConfigError
from spark_source.schema import kafka_schema
from spark_source.source import AiokcDataSource


def test_who_writes_hears_that_the_source_only_reads() -> None:
    """Also with a column `topic` in place of the option, and the options that reading needs."""
    source = AiokcDataSource({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "events"})
    schema = kafka_schema(include_headers=False)

    with pytest.raises(ConfigError, match=r"this source writes nothing; write with format\('kafka'\)"):
        source.writer(schema, False)
    with pytest.raises(ConfigError, match="this source writes nothing"):
        source.streamWriter(schema, False)


@pytest.mark.parametrize(
    ("more", "column", "message"),
    [
        ({"endingOffsets": "latest"}, StructField("offset", LongType()), r"endingOffsets ends a batch query"),
        ({}, StructField("value", StringType()), r"column 'value' of the schema must be a nullable binary"),
    ],
)
@pytest.mark.parametrize(
    ("release", "ask"),
    [
        ("4.3.0", lambda reader: reader.prepareForTriggerAvailableNow()),
        ("4.3.0", lambda reader: reader.getDefaultReadLimit()),
        ("4.3.0", lambda reader: reader.latestOffset({}, ReadAllAvailable())),
        ("4.3.0", lambda reader: reader.reportLatestOffset()),
        ("4.1.4", lambda reader: reader.latestOffset()),
        *(
            (release, ask)
            for release in ("4.3.0", "4.1.4")
            for ask in (
                lambda reader: reader.initialOffset(),
                lambda reader: reader.partitions({}, {"events": {"0": 1}}),
                lambda reader: reader.partitions({"events": {"0": 1}}, {"events": {"0": 1}}),  # first after a restart
                lambda reader: reader.commit({"events": {"0": 1}}),
                lambda reader: reader.read(InputPartition(None)),
            )
        ),
    ],
)
def test_what_a_stream_cannot_have_is_told_when_spark_asks(
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, str],
    column: StructField,
    message: str,
    release: str,
    ask: Callable[[Any], object],
) -> None:
    """Spark stops the reader in any case. If there is none, it shows that this has failed, in place of the reason."""
    monkeypatch.setattr("pyspark.__version__", release)
    source = AiokcDataSource({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "events", **more})
    reader = source.streamReader(StructType([column]))

    for _ in range(2):
        with pytest.raises(ConfigError, match=message):
            ask(reader)
    reader.stop()
