"""A program that lets Spark show all that it shows of queries whose options hold secrets.

    python -m tests.spark.queries.show_everything FOLDER JOB

JOB is JSON: ``good`` and ``bad`` are lists of options of queries that work and that fail, ``refused`` options that the
source refuses. FOLDER gets the event log and the checkpoints. Prints what a user of Spark could read: plans, answers of
the REST API, pages, progress, errors; Spark's own log, at its level INFO, is stderr.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.request import urlopen

from pyspark.sql import DataFrame, SparkSession

from ..session import start_spark

#: As docs/spark.md advises for views in SQL.
REDACTION = "(?i)secret|password|token|access[.]?key|keystore[.]key|jaas"
_SECONDS = 60


def say(what: str, text: object) -> None:
    sys.stdout.write(f"== {what}\n{text}\n")


def plan_of(rows: DataFrame) -> object:
    return rows._jdf.queryExecution().toString()


def batch(spark: SparkSession, options: Mapping[str, str]) -> None:
    rows = spark.read.format("aiokc").options(**options).load()
    say("plan", plan_of(rows))
    say("rows", rows.count())


def stream(spark: SparkSession, options: Mapping[str, str], folder: Path) -> None:
    rows = spark.readStream.format("aiokc").options(**options, startingOffsets="earliest").load()
    writer = rows.writeStream.foreachBatch(lambda rows, number: say("batch", f"{number}: {rows.count()} {rows!r}"))
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    try:
        query.awaitTermination(_SECONDS)
    finally:
        say("progress", [progress.json for progress in query.recentProgress])
        say("status", query.status)
        query.explain(True)  # prints


def in_sql(spark: SparkSession, options: Mapping[str, str]) -> None:
    given = ", ".join(f"'{name}' '{escaped(value)}'" for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW records USING aiokc OPTIONS ({given})")
    say("rows of the view", spark.sql("SELECT count(*) FROM records").collect())
    say("described", spark.sql("DESCRIBE EXTENDED records").collect())


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")


def fails(run: Callable[[], None]) -> None:
    try:
        run()
    except Exception as error:
        say("failed", f"{error!r}\n{''.join(traceback.format_exception(error))}")
    else:
        say("NOT FAILED", "")


def pages(spark: SparkSession) -> None:
    url = spark.sparkContext.uiWebUrl
    application = spark.sparkContext.applicationId
    api = f"{url}/api/v1/applications/{application}"
    for page in (
        f"{api}/sql?details=true&planDescription=true&length=1000",
        f"{api}/environment",
        f"{api}/jobs",
        f"{api}/stages?details=true",
        f"{url}/SQL/",
        f"{url}/StreamingQuery/",
        f"{url}/jobs/",
        f"{url}/environment/",
        *(f"{url}/SQL/execution/?id={number}" for number in range(3)),
    ):
        with urlopen(page, timeout=_SECONDS) as answer:
            say(page, answer.read().decode())


def main(folder: Path, job: Mapping[str, list[dict[str, str]]]) -> None:
    (events := folder / "events").mkdir()
    spark = start_spark(
        "all that Spark shows",
        folder / "warehouse",
        config={
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": events.as_uri(),
            "spark.log.level": "INFO",
            "spark.redaction.regex": REDACTION,
        },
    )
    for number, options in enumerate(job["good"]):
        batch(spark, options)
        in_sql(spark, options)
        if not number:
            stream(spark, options, folder / f"good-{number}")
    for number, options in enumerate(job["bad"]):
        fails(lambda: batch(spark, options))  # noqa: B023 (called at once)
        fails(lambda: stream(spark, options, folder / f"bad-{number}"))  # noqa: B023
    for options in job["refused"]:
        fails(lambda: batch(spark, options))  # noqa: B023
    fails(lambda: in_sql(spark, job["bad"][0]))
    fails(lambda: in_sql(spark, job["refused"][0]))
    pages(spark)
    spark.stop()
    say("done", "")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
