"""The same topic through Spark: rides per minute and city, counted by a streaming query over format("aiokc")."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RECORDS_PER_BATCH = 5000
TABLE = "rides_per_minute"
_OLDEST_JAVA = 17
_INSTALL_JAVA = (
    f"install a JDK {_OLDEST_JAVA} or newer (apt-get install openjdk-17-jdk-headless), or name one in JAVA_HOME"
)


def missing() -> str | None:
    """Return what Spark lacks on this machine and how to get it, in one line; None where it can run."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'aiokc[spark]'"
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{java_home}/bin" if java_home else None)
    if java is None:
        return f"no java found: {_INSTALL_JAVA}"
    # On macOS there is always one; without a JDK it only says that it needs one.
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        return f"{java} is {said.splitlines()[0] if said else 'no Java'}: {_INSTALL_JAVA}"
    return None


class Counted(NamedTuple):
    """The result of the query: rides by minute and city, and each record (partition, offset) that was counted."""

    rides: Counter[tuple[datetime, str]]
    records: list[tuple[int, int]]
    batches: int


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """Run a Spark on two cores, with all its files and all that it says in ``folder``."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # its workers need what this process has
    builder = SparkSession.builder.master("local[2]").appName("aiokc demo")
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # it lives for seconds
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    with _stderr_into(folder / "spark.log"):
        spark = builder.config(map=settings).getOrCreate()
    try:
        yield spark
    except Exception:
        sys.stderr.write((folder / "spark.log").read_text())
        raise
    finally:
        spark.stop()


@contextmanager
def _stderr_into(path: Path) -> Iterator[None]:
    """What is started in here writes its stderr to ``path`` for as long as it lives."""
    saved = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def count_rides(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    checkpoint: Path,
    *,
    show: Callable[[int, int], None],
    stop: threading.Event,
) -> Counted:
    """Read all that is in the topic now, in several micro-batches; ``show`` learns of each (number, rows).

    Ends early, with what is counted by then, when ``stop`` is set.
    """
    from pyspark.sql import functions as F  # noqa: N812 (PySpark's own habit)

    records = (
        spark.readStream.format("aiokc")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
        .load()
    )
    ride = F.from_json(F.col("value").cast("string"), "id string, customer string, city string, at timestamp")
    query = (
        records.select(ride.alias("ride"), "partition", "offset")
        .groupBy(F.window("ride.at", "1 minute"), "ride.city")
        .agg(F.count("*").alias("rides"), F.collect_list(F.struct("partition", "offset")).alias("records"))
        .writeStream.format("memory")
        .queryName(TABLE)
        .outputMode("complete")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    batches = _follow(query, show, stop)
    # As seconds: a collected timestamp is a datetime in the time zone of this machine.
    minute = F.col("window.start").cast("long").alias("minute")
    rows = spark.table(TABLE).select(minute, "city", "rides", "records").collect()
    found = Counter({(datetime.fromtimestamp(row.minute, UTC), row.city): row.rides for row in rows})
    return Counted(found, [(record.partition, record.offset) for row in rows for record in row.records], batches)


def _follow(query: StreamingQuery, show: Callable[[int, int], None], stop: threading.Event) -> int:
    """Wait for the end of the query, or end it; return how many micro-batches had rows. Raises what ended it."""
    shown: set[int] = set()
    ended = False
    while not ended:
        if stop.is_set():
            query.stop()
        ended = bool(query.awaitTermination(1))
        for progress in query.recentProgress:
            if progress.batchId not in shown and progress.numInputRows:
                shown.add(progress.batchId)
                show(progress.batchId, progress.numInputRows)
    return len(shown)
