"""Exactly-once when processes die: nothing lost, nothing twice, whichever process dies and wherever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from aiokc.testing.kafka import LocalKafka
from tests.producing import Message, add_partitions, produce

from ..file_sink import write_to, written_in
from ..session import ROOT
from .dying_source import DyingSource
from .run_until_dead import SECONDS
from .test_killed_and_restarted import expected

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(SECONDS + 60)]


class RunningProducer:
    """Writes a few records at a time until it is stopped. Adds partitions to the topic once it is told to."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failed: Exception | None = None

    def __enter__(self) -> RunningProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(60)
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._ending.wait(0.5):
                produce(self._bootstrap, self._topic, [b"while it runs and dies"] * 5)
        except Exception as error:
            self._failed = error


class Runs:
    """Processes of run_until_dead, one after the other; each starts its JVM while the one before still works."""

    def __init__(self, folder: Path, count: int) -> None:
        self._command = [sys.executable, "-m", "tests.spark.crashes.run_until_dead", str(folder)]
        self._left = count
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Runs:
        self._start()
        return self

    def __iter__(self) -> Iterator[subprocess.Popen[str]]:
        while self._started:
            run = self._started[-1]
            if self._left:
                self._start()
            yield run
            self._started.remove(run)

    def __exit__(self, *_: object) -> None:
        for run in self._started:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
            run.communicate(timeout=30)

    def _start(self) -> None:
        self._left -= 1
        self._started.append(
            subprocess.Popen(
                self._command,
                cwd=ROOT,
                start_new_session=True,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )


SAMPLE = 5  # with this seed it dies between the sink's write and the commit
STEPS = ("latest", "planned", "reading", "write", "written")


@pytest.mark.parametrize(
    ("deaths", "seed"),
    [
        pytest.param(1, SAMPLE, id="once"),
        pytest.param(25, 7, id="25-times", marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_killed_again_and_again_while_a_producer_runs(
    kafka: LocalKafka, topic_name: str, read_stream: DataStreamReader, tmp_path: Path, deaths: int, seed: int
) -> None:
    kafka.create_topic(topic_name, partitions=3)
    produce(kafka.bootstrap, topic_name, [b"before the stream starts at the earliest"] * 100)
    random = Random(seed)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "subscribe": topic_name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "20",
        "maxPartitions": "2",
    }

    with RunningProducer(kafka.bootstrap, topic_name), Runs(tmp_path, deaths) as runs:
        for number, run in enumerate(runs, 1):
            point = f"{random.choice(STEPS)}:{random.randint(1, 4)}"
            die = {"die.at": point, "die.folder": str(tmp_path / f"death-{number}")}
            _, said = run.communicate(json.dumps(options | die) + "\n", timeout=SECONDS + 20)
            assert run.returncode == -signal.SIGKILL, f"{point}: {said}"
            if number == (deaths + 1) // 2:
                add_partitions(kafka.bootstrap, topic_name, 5)
    produce(kafka.bootstrap, topic_name, [Message(b"at the end", partition=part) for part in range(5)])

    finish(read_stream.option("startingOffsets", "earliest"), tmp_path)

    assert written_in(tmp_path / "sink") == expected(kafka, topic_name)


@pytest.mark.parametrize("point", [pytest.param("latest:2", marks=pytest.mark.long), "planned:2", "reading:3"])
def test_a_killed_python_process_costs_a_restart_and_no_row(
    spark: SparkSession,
    kafka: LocalKafka,
    topic: str,
    options: Mapping[str, str],
    read_stream: DataStreamReader,
    tmp_path: Path,
    point: str,
) -> None:
    """The planning process (latest, planned) or a worker amid its range (reading) dies, while a producer goes on."""
    produce(kafka.bootstrap, topic, [b"x"] * 60)
    spark.dataSource.register(DyingSource)
    die = {"die.at": point, "die.folder": str(tmp_path / "death")}
    given = {**options, **die, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    with RunningProducer(kafka.bootstrap, topic):
        query = start(spark.readStream.format("dying").options(**given).load(), tmp_path)
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(120)
    produce(kafka.bootstrap, topic, [b"x"] * 10)

    finish(read_stream.option("startingOffsets", "earliest"), tmp_path)

    assert written_in(tmp_path / "sink") == expected(kafka, topic)


def start(rows: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    writer = rows.writeStream.foreachBatch(write_to(folder / "sink"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return (writer.trigger(**trigger) if trigger else writer).start()


def finish(stream: DataStreamReader, folder: Path) -> None:
    """Go on from the checkpoint, without a death, to the end of the topic."""
    assert start(stream.load(), folder, availableNow=True).awaitTermination(120)
