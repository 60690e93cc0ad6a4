"""An application on executors that are processes of their own: a batch query, and a stream whose source dies.

    python -m tests.spark.installation.run_on_cluster MASTER FOLDER JOB

JOB is JSON: ``options`` of `DyingSource`, ``config`` of the session, which says what is sent to the executors, their
``python``, and whether to ``register`` the format. FOLDER gets the checkpoint and the sink. Prints JSON: where the
executors have the code from, whether they decode natively, and how many rows the batch query had.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import spark_source

from ..crashes.dying_source import DyingSource
from ..file_sink import write_to
from ..session import start_spark

#: Executors that are processes of their own take their time to start. The test that runs this has a limit of its own.
SECONDS = 250


def what_it_imports() -> tuple[str, str, bool]:
    """Return where this process has the code from, and whether that decodes natively."""
    import aiokc
    from aiokc.records import NATIVE

    return str(aiokc.__file__), str(spark_source.__file__), NATIVE


def main(master: str, folder: Path, job: dict[str, Any]) -> None:
    options = job["options"]
    spark = start_spark(
        "run on a cluster",
        folder / "warehouse",
        master=master,
        config=job["config"],
        python=job["python"],
        call_seconds=SECONDS,
    )
    if job["register"]:
        spark_source.register(spark)
    plain = {name: value for name, value in options.items() if not name.startswith(("die.", "maxOffsets"))}
    count = spark.read.format("aiokc").options(**plain).load().count()
    spark.dataSource.register(DyingSource)
    rows = spark.readStream.format("dying").options(**options).load()
    writer = rows.writeStream.foreachBatch(write_to(folder / "sink"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS - 10), query.status
    places = spark.sparkContext.parallelize(range(2), 2).map(lambda _: what_it_imports()).distinct().collect()
    sys.stdout.write(json.dumps({"imported": places, "count": count}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
