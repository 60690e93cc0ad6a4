"""A stream in a process of its own, with its own JVM: all of it gets SIGKILL at the step that the options name.

    python -m tests.spark.crashes.run_until_dead FOLDER

It starts its Spark, and then waits for a line of JSON on stdin: the options of `DyingSource`. FOLDER has the checkpoint
and the sink. It ends with 3 if it lives on.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from ..file_sink import write_to
from ..session import start_spark
from .dying_source import DyingSource, death

SECONDS = 300


def main(folder: Path) -> int:
    spark = start_spark("run until dead", folder / "warehouse")
    spark.dataSource.register(DyingSource)
    options = json.loads(sys.stdin.readline())
    end = death(options | {"die.group": str(os.getpgid(0))})
    write = write_to(folder / "sink")

    def write_or_die(batch: DataFrame, batch_id: int) -> None:
        end.passes("write")
        write(batch, batch_id)
        end.passes("written")

    rows = spark.readStream.format("dying").options(**(options | end.options())).load()
    writer = rows.writeStream.foreachBatch(write_or_die).option("checkpointLocation", str(folder / "checkpoint"))
    writer.start().awaitTermination(SECONDS)
    return 3


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
