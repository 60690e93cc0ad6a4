"""The entry point for Spark: the DataSource named "aiokc".

Spark imports this module in a process that it starts only to search for data sources. If a module raises there, Spark
finds no Python data source in the whole session. So this module imports nothing but PySpark until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .readers.reader import StreamReader


class AiokcDataSource(DataSource):
    """Kafka topics as rows: the columns, options and offsets of Spark's own Kafka source, read by aiokc.

    Options are checked when the source is loaded: ConfigError names the option and says what to do. What only a stream
    can't have fails the query when it starts.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        from .options.source_options import parse_options

        super().__init__(dict(options))
        self._parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return "aiokc"

    def schema(self) -> StructType:
        from .schema import kafka_schema

        return kafka_schema(include_headers=self._parsed.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from .options.source_options import for_batch
        from .readers.reader import AiokcBatchReader

        return AiokcBatchReader(for_batch(self._parsed), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        from aiokc.errors import ConfigError

        from .options.source_options import for_stream

        reader = stream_reader_of(pyspark.__version__)
        try:
            return reader(for_stream(self._parsed), schema)
        except ConfigError as error:
            return reader.refusing(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        raise _only_reads()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        raise _only_reads()


def _only_reads() -> Exception:
    from aiokc.errors import ConfigError

    from .options.topic_choice import ONLY_READS

    return ConfigError(ONLY_READS)


def stream_reader_of(spark: str) -> type[StreamReader]:
    """Return the class that reads streams for this version of Spark."""
    if tuple(int(part) for part in spark.split(".")[:2]) < (4, 2):
        from .readers.older_spark import UnlimitedStreamReader

        return UnlimitedStreamReader
    from .readers.stream_reader import AiokcStreamReader

    return AiokcStreamReader
