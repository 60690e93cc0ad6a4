"""The Spark session that is measured, and how it loads each of the sources."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from aiokc.testing.kafka.spark_jars import spark_kafka_jars

from ..cases import PARTITIONS, Case
from .cases import TWO
from .prebuilt import PrebuiltSource

ROOT: Final = Path(__file__).resolve().parent.parent.parent
#: The settings of the session, the same for all sources.
SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


def start(slots: int, folder: Path) -> SparkSession:
    """Start a session of so many task slots; its Python processes import what this one does."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    paths = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    builder = SparkSession.builder.master(f"local[{slots}]").appName("benchmark")
    config = SETTINGS | {"spark.jars": spark_kafka_jars(), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    for name, value in config.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(PrebuiltSource)
    return spark


def options(source: str, bootstrap: str, case: Case) -> dict[str, str]:
    """Return the options with which this source reads the topic from its first record on."""
    if source in ("prebuilt", "drained"):
        shape = {"tasks": str(PARTITIONS), "rows": str(case.records), "value.size": str(case.value_size)}
        return shape if source == "prebuilt" else {**shape, "drain": bootstrap, "topic": case.topic}
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": case.topic, "startingOffsets": "earliest"}


def load(spark: SparkSession, source: str, given: dict[str, str], columns: str, *, stream: bool) -> DataFrame:
    """Return these columns; Spark's own source takes no schema, so its columns are selected after the load."""
    name = "prebuilt" if source == "drained" else source
    reader = (spark.readStream if stream else spark.read).format(name).options(**given)
    if columns != TWO:
        return reader.load()
    if source == "kafka":
        return reader.load().select("value", "offset")
    return reader.schema("value binary, offset bigint").load()
