"""The Spark data source: ``spark.readStream.format("aiokc")`` reads Kafka through aiokc. What is not here is internal.

Spark finds the format by itself, through the package ``pyspark_aiokc``. If another ``pyspark_*`` package breaks that
search, ``spark_source.register(spark)`` makes the format known to one session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lag import LagListener, offsets_behind_latest
from .source import AiokcDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AiokcDataSource", "LagListener", "offsets_behind_latest", "register"]


def register(spark: SparkSession) -> None:
    """Make ``format("aiokc")`` known to this session, even if Spark's own search for it fails."""
    spark.dataSource.register(AiokcDataSource)
