"""What Spark gets from the entry point."""

from __future__ import annotations

import pytest

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
