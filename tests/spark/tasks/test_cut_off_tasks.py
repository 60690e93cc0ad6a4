"""Tasks that Spark cuts off, as a limit does: it closes the socket of the Python worker that still writes to it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from aiokc import TopicPartition
from aiokc.testing import Cluster
from spark_source import runtimes
from spark_source.planning.task_plan import OffsetRange
from spark_source.source import AiokcDataSource

# More than a socket takes, and more than ever waits for Spark: the read is in its middle.
RECORDS, RECORD = 30_000, b"x" * 1000
SECONDS = 60.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 1}).in_thread() as running:
        for _ in range(RECORDS // 1000):
            running.append("t", *[RECORD] * 1000)
        yield running


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not after {SECONDS:g} s"
        time.sleep(0.01)


def connections(cluster: Cluster) -> int:
    return sum(len(broker.connections) for broker in cluster._brokers.values())


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "aiokc in a Spark worker"]


@pytest.mark.timeout(60)
def test_the_broken_pipe_is_met_by_pyspark_and_ends_the_thread_and_the_connections_of_the_read(
    cluster: Cluster,
) -> None:
    """The error is raised in PySpark's own generator, which writes to a socket as its worker does. The read learns of
    it when it is closed.
    """
    source = AiokcDataSource({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t"})
    task = InputPartition((OffsetRange(TopicPartition("t", 0), 0, RECORDS),))
    read: Any = records_to_arrow_batches(source.reader(source.schema()).read(task), 10_000, source.schema(), source)
    ours, sparks = socket.socketpair()
    limit = threading.Thread(target=take_one_batch, args=(sparks,))
    limit.start()
    with ours:
        outfile = ours.makefile("wb")
        first = next(read)
        assert len(readers()) == 1
        assert connections(cluster) > 0
        with pytest.raises(BrokenPipeError):
            write_all(first, read, outfile)
        with pytest.raises(BrokenPipeError):  # about what is left in the buffer: PySpark's daemon prints this one
            outfile.close()
    limit.join(SECONDS)
    assert readers() == []
    assert runtimes._runtimes == {}
    until(lambda: connections(cluster) == 0)


def write_all(first: pa.RecordBatch, read: Any, outfile: BinaryIO) -> None:
    with closing(read), pa.ipc.new_stream(outfile, first.schema) as stream:
        stream.write_batch(first)
        for batch in read:
            stream.write_batch(batch)


def take_one_batch(sparks: socket.socket) -> None:
    with sparks, sparks.makefile("rb") as infile:
        pa.ipc.open_stream(infile).read_next_batch()


@pytest.mark.spark
@pytest.mark.timeout(180)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_limit_has_its_rows_and_nothing_stays_connected(
    spark: SparkSession, cluster: Cluster, streaming: bool, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
    rows = (spark.readStream if streaming else spark.read).format("aiokc").options(**options).load().limit(3)
    assert read_all(rows, tmp_path) == [(0, 0), (0, 1), (0, 2)]
    until(lambda: connections(cluster) == 0)  # the worker too: PySpark ends it, and no later task has it


def read_all(rows: DataFrame, folder: Path) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []

    def note(batch: DataFrame, _: int) -> None:
        found.extend((row.partition, row.offset) for row in batch.select("partition", "offset").collect())

    if not rows.isStreaming:
        note(rows, 0)
        return found
    writer = rows.writeStream.foreachBatch(note).option("checkpointLocation", str(folder))
    assert writer.trigger(availableNow=True).start().awaitTermination(100)
    return found
