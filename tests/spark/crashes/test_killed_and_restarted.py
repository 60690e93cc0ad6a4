"""A JVM is killed between two steps of a batch, and another one goes on from the checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.streaming.readwriter import DataStreamReader

from aiokc.testing.kafka import LocalKafka
from spark_source.offsets import ANCHOR
from tests.producing import Stored, produce

from ..file_sink import write_to, written_in
from ..queries.test_stream_query import wait_for_batches
from ..session import ROOT
from .run_until_killed import RECORDS

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.every_spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("point", "batches_done", "records_read"),
    [
        pytest.param("before-commit", 1, 2 * RECORDS, marks=pytest.mark.long),
        pytest.param("between-batches", 2, 2 * RECORDS, marks=pytest.mark.long),
    ],
)
def test_killed_and_restarted(
    kafka: LocalKafka,
    topic_name: str,
    read_stream: DataStreamReader,
    tmp_path: Path,
    point: str,
    batches_done: int,
    records_read: int,
) -> None:
    kafka.create_topic(topic_name, partitions=3)
    before = produce(kafka.bootstrap, topic_name, [b"before the stream starts at latest"] * 10)
    command = [
        sys.executable,
        "-m",
        "tests.spark.crashes.run_until_killed",
        kafka.bootstrap,
        topic_name,
        str(tmp_path),
        point,
    ]

    returncode, said = run_alone(command, seconds=280)

    assert returncode == -signal.SIGKILL, said
    assert len(written_in(tmp_path / "sink")) == records_read
    committed = list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    assert len(committed) == batches_done
    produce(kafka.bootstrap, topic_name, [b"while nobody reads"] * 10)

    writer = read_stream.load().writeStream.foreachBatch(write_to(tmp_path / "sink"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        produce(kafka.bootstrap, topic_name, [b"after the restart"] * 10)
        query.processAllAvailable()
    finally:
        query.stop()

    assert written_in(tmp_path / "sink") == expected(kafka, topic_name) - Counter(before)


def test_killed_in_batch_0_while_others_write(
    kafka: LocalKafka, topic_name: str, read_stream: DataStreamReader, tmp_path: Path
) -> None:
    """With latest: what was written between its start and its death would be lost if its start were stored nowhere."""
    kafka.create_topic(topic_name, partitions=3)
    before = produce(kafka.bootstrap, topic_name, [b"before the stream starts at latest"] * 10)
    arguments = [kafka.bootstrap, topic_name, str(tmp_path), "in-batch-0"]
    with writing(kafka.bootstrap, topic_name):
        returncode, said = run_alone(
            [sys.executable, "-m", "tests.spark.crashes.run_until_killed", *arguments], seconds=280
        )
    assert returncode == -signal.SIGKILL, said
    assert not written_in(tmp_path / "sink")
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    logged = json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1])
    starts, ends = ({int(part): at for part, at in found[topic_name].items()} for found in (logged[ANCHOR], logged))
    assert sum(ends.values()) > sum(starts.values()) >= len(before)

    writer = read_stream.load().writeStream.foreachBatch(write_to(tmp_path / "sink"))
    with writing(kafka.bootstrap, topic_name):
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        wait_for_batches(query)
    try:
        query.processAllAvailable()
    finally:
        query.stop()

    due = [place for place in expected(kafka, topic_name) if place.offset >= starts[place.partition]]
    assert written_in(tmp_path / "sink") == Counter(due)


@contextmanager
def writing(bootstrap: str, topic: str) -> Iterator[None]:
    """Write some records, again and again, in a thread."""
    done = Event()

    def write() -> None:
        while not done.wait(0.5):
            produce(bootstrap, topic, [b"at any time"] * 5)

    with ThreadPoolExecutor(1) as thread:
        work = thread.submit(write)
        try:
            yield
        finally:
            done.set()
        work.result()


def run_alone(command: list[str], *, seconds: float) -> tuple[int, str]:
    """Run a process in a session of its own, so that its JVM is killed with it. Return its exit code and its output."""
    with subprocess.Popen(
        command, cwd=ROOT, start_new_session=True, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            _, said = process.communicate(timeout=seconds)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said


def expected(kafka: LocalKafka, topic: str) -> Counter[Stored]:
    """Return the partition and offset of every record of the topic, as another client sees them."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "enable.auto.commit": False})
    found: Counter[Stored] = Counter()
    try:
        for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            found.update(Stored(partition, offset) for offset in range(low, high))
    finally:
        consumer.close()
    return found
