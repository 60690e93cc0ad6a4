"""A small Spark on this machine: two threads, no web pages, no address but loopback."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from aiokc.testing.kafka.spark_jars import spark_kafka_jars

ROOT = Path(__file__).parents[2]

#: No call of the JVM takes longer, unless start_spark() gets another limit; calls that wait give a lower one.
CALL_SECONDS: Final = 150


def start_spark(
    name: str,
    warehouse: Path,
    *,
    master: str = "local[2]",
    config: Mapping[str, str] | None = None,
    python: str = sys.executable,
    call_seconds: float = CALL_SECONDS,
) -> SparkSession:
    """Start a session whose Python processes can import what this one can; no data source is registered in it.

    A call to the JVM that takes longer than ``call_seconds`` raises an error.
    """
    # Spark runs a format that it has found by itself with the driver's interpreter, on the executors too.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    paths = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # A JVM that lives for a minute starts faster than it becomes fast.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.log.level": "ERROR",
        "spark.sql.streaming.stopTimeout": "60s",
        # format("kafka"), the oracle
        "spark.jars": spark_kafka_jars(),
        **(config or {}),
    }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _bound_calls(spark, call_seconds)
    _keep_calls_in_step(spark)
    return spark


def _bound_calls(spark: SparkSession, seconds: float) -> None:
    """Limit every call of the JVM to these seconds, from this thread and from others that have never called it.

    Otherwise, where a test's time limit has interrupted a call that waits, the next call of the same thread
    (query.stop() in a ``finally``) would wait behind it on the same connection, for ever.
    """
    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    client.java_parameters.read_timeout = seconds
    client.get_thread_connection().socket.settimeout(seconds)


def _keep_calls_in_step(spark: SparkSession) -> None:
    """Close the connection of a call that a test's time limit interrupts: the thread's next call gets a new one.

    py4j keeps the connection after an exception that is no Exception. The answer to the interrupted call is still to
    come there, and would be taken for that of the next call: no later call of the thread would get its own answer.
    """
    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    send = client.send_command

    def send_command(*args: Any, **options: Any) -> Any:
        try:
            return send(*args, **options)
        except BaseException:
            connection = client.get_thread_connection()
            if connection is not None:
                connection.close(reset=True)
            raise

    client.send_command = send_command
