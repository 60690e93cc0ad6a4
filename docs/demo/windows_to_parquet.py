"""A pipeline to copy: events from Kafka, counted by key and minute, appended to Parquet.

    python docs/demo/windows_to_parquet.py localhost:9092 events out [--available-now]

It can be stopped, killed and started again at any time: ``out/checkpoint`` has the offsets, the open windows and the
watermark, and Spark's file sink lists in ``out/counts/_spark_metadata`` which files are part of the result. Read that
folder with Spark (``spark.read.parquet("out/counts")``), and each window is there once.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def counts(events: DataFrame) -> DataFrame:
    """Return how many events of each key there were in each minute; a minute is complete when all are 30 s past it."""
    from pyspark.sql import functions as f

    return (
        events.select("timestamp", f.col("key").cast("string").alias("key"))
        .withWatermark("timestamp", "30 seconds")
        .groupBy(f.window("timestamp", "1 minute"), "key")
        .count()
        .select(f.col("window.start").alias("minute"), "key", "count")
    )


def start(spark: SparkSession, bootstrap: str, topic: str, out: Path, *, available_now: bool) -> StreamingQuery:
    """Start the pipeline, or go on with it; with ``available_now`` it ends when all that is there is read."""
    events = (
        spark.readStream.format("aiokc")
        .schema("key binary, timestamp timestamp")  # of each record, only these are decoded
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000_000)
        .load()
    )
    writer = (
        counts(events)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(out / "counts"))
        .option("checkpointLocation", str(out / "checkpoint"))
    )
    trigger = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="10 seconds")
    return trigger.start()


def main() -> None:
    """Run until it is stopped, or until all is read."""
    parser = argparse.ArgumentParser(description="Counts events by key and minute, from Kafka into Parquet files.")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("out", type=Path)
    parser.add_argument("--available-now", action="store_true")
    given = parser.parse_args()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("windows to Parquet")
    spark = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    start(spark, given.bootstrap, given.topic, given.out, available_now=given.available_now).awaitTermination()


if __name__ == "__main__":
    main()
