"""Kafka as a source of Apache Spark, read by aiokc: ``spark.readStream.format("aiokc")``.

Spark finds the format by itself, through the package ``pyspark_aiokc``. Where another ``pyspark_*`` package breaks
that search, ``spark_source.register(spark)`` makes the format known to one session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lag import LagListener, offsets_behind_latest
from .source import AiokcDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AiokcDataSource", "LagListener", "offsets_behind_latest", "register"]


def register(spark: SparkSession) -> None:
    """Make ``format("aiokc")`` known to this session, also where Spark's own search for it fails."""
    spark.dataSource.register(AiokcDataSource)
