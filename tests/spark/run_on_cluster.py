"""A stream on executors that are processes of their own; a Python worker dies in the middle of its range.

    python -m tests.spark.run_on_cluster MASTER FOLDER OPTIONS

OPTIONS are those of `DyingSource`, as JSON. FOLDER gets the checkpoint and the sink. The code of this project is not on
the executors' path: it is sent there as a zip (--py-files), which has no native decoder.
"""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path

from .dying_source import DyingSource
from .file_sink import write_to
from .session import ROOT, start_spark


def pure_zip(folder: Path) -> Path:
    """Return a zip of the packages' Python files."""
    target = folder / "aiokc.zip"
    with zipfile.ZipFile(target, "w") as packed:
        for package in ("aiokc", "spark_source", "pyspark_aiokc", "tests"):
            for file in (ROOT / package).rglob("*.py"):
                packed.write(file, file.relative_to(ROOT))
    return target


def where_the_code_is() -> list[str]:
    """Return what this process has imported."""
    import aiokc
    import spark_source

    return [str(aiokc.__file__), str(spark_source.__file__)]


def main(master: str, folder: Path, options: dict[str, str]) -> None:
    elsewhere = folder / "elsewhere"
    shutil.rmtree(elsewhere, ignore_errors=True)
    elsewhere.mkdir(parents=True)
    config = {
        "spark.submit.pyFiles": str(pure_zip(folder)),
        "spark.executorEnv.PYTHONPATH": str(elsewhere),
        "spark.executor.memory": "512m",
    }
    spark = start_spark("run on a cluster", folder / "warehouse", master=master, config=config)
    spark.dataSource.register(DyingSource)
    rows = spark.readStream.format("dying").options(**options).load()
    writer = rows.writeStream.foreachBatch(write_to(folder / "sink"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination(180)
    places = spark.sparkContext.parallelize(range(2), 2).map(lambda _: tuple(where_the_code_is())).distinct().collect()
    sys.stdout.write(json.dumps(places))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
