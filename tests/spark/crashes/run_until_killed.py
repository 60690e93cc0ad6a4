"""A stream in a process of its own, which kills itself with its JVM (SIGKILL) at the point that it is told.

    python -m tests.spark.crashes.run_until_killed BOOTSTRAP TOPIC FOLDER POINT

POINT is one of
    in-batch-0         its offsets are in the checkpoint, nothing was written
    before-commit      batch 1 was written, and is not committed
    between-batches    batch 1 is committed, and nothing more to read
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_source import AiokcDataSource
from spark_source.options.source_options import SourceOptions, for_stream, parse_options
from spark_source.source import stream_reader_of
from tests.producing import produce

from ..file_sink import write_to
from ..session import start_spark

RECORDS = 20


class WriteAfterStart(stream_reader_of(pyspark.__version__)):  # type: ignore[misc]  # the one of this Spark
    """Writes records while the start of the stream is decided: so batch 0 has some, also with latest offsets."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        (topic,) = sorted(options.choice.topics or ())
        self._is_decided, self._into = False, (str(options.client.bootstrap_servers), topic)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        start: dict[str, Any] = super().initialOffset()
        if not self._is_decided:
            produce(*self._into, [b"while batch 0 is planned"] * RECORDS)
        self._is_decided = True
        return start


class WriteAfterStartSource(AiokcDataSource):
    """The source under test, with that reader."""

    @classmethod
    def name(cls) -> str:
        return "write-after-start"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return WriteAfterStart(for_stream(parse_options(self.options)), schema)


def main(bootstrap: str, topic: str, folder: Path, point: str) -> None:
    spark = start_spark("run until killed", folder / "warehouse")
    spark.dataSource.register(WriteAfterStartSource)
    write = write_to(folder / "sink")

    def write_and_die(batch: DataFrame, batch_id: int) -> None:
        if (batch_id, point) == (0, "in-batch-0"):
            die()
        write(batch, batch_id)
        if (batch_id, point) == (1, "before-commit"):
            die()

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "latest"}
    rows = spark.readStream.format("write-after-start").options(**options).load()
    query = (
        rows.writeStream.foreachBatch(write_and_die).option("checkpointLocation", str(folder / "checkpoint")).start()
    )
    query.processAllAvailable()
    produce(bootstrap, topic, [b"for batch 1"] * RECORDS)
    query.processAllAvailable()
    die()


def die() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
