"""Reading ranges as a Spark task does, from a real Kafka, without a Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from aiokc import ClientConfig, TopicPartition
from aiokc.testing.kafka import LocalKafka
from spark_source import runtimes
from spark_source.data_loss import DataLoss
from spark_source.options.security_options import NO_SECURITY
from spark_source.options.source_options import SourceOptions
from spark_source.options.topic_choice import subscribe
from spark_source.planning.task_plan import OffsetRange
from spark_source.worker import read_task
from tests.producing import Message, produce, produce_in_transaction

from ..deleting import delete_records
from .patience import read_with_more_time

pytestmark = pytest.mark.kafka


@pytest.fixture
def tp(kafka: LocalKafka, topic_name: str) -> TopicPartition:
    kafka.create_topic(topic_name)
    return TopicPartition(topic_name, 0)


@pytest.fixture
def options(kafka: LocalKafka, topic_name: str) -> Iterator[SourceOptions]:
    config = ClientConfig(bootstrap_servers=kafka.bootstrap, client_id=topic_name)
    yield SourceOptions(config, subscribe(topic_name), poll_timeout_ms=20_000)
    runtime = runtimes._runtimes.pop((config, NO_SECURITY), None)
    if runtime is not None:
        runtime.close()


def offsets_read(options: SourceOptions, wanted: OffsetRange) -> list[int]:
    batches = read_task(options, ("offset", "value"), (wanted,))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_range_is_read_to_its_end(kafka: LocalKafka, tp: TopicPartition, options: SourceOptions) -> None:
    produce(kafka.bootstrap, tp.topic, [b"%d" % n for n in range(100)])

    assert offsets_read(options, OffsetRange(tp, 10, 60)) == list(range(10, 60))
    assert offsets_read(options, OffsetRange(tp, 60, 60)) == []


def test_a_large_range_comes_in_batches_of_some_megabytes(
    kafka: LocalKafka, tp: TopicPartition, options: SourceOptions
) -> None:
    produce(kafka.bootstrap, tp.topic, [os.urandom(1000)] * 20_000, linger_ms=20, batch_size=500_000)

    batches = list(read_task(options, ("offset", "value"), (OffsetRange(tp, 0, 20_000),)))

    assert sum(batch.num_rows for batch in batches) == 20_000
    assert all(2_000_000 < batch.nbytes < 8_000_000 for batch in batches[:-1])


def test_a_range_that_ends_with_control_records(kafka: LocalKafka, tp: TopicPartition, options: SourceOptions) -> None:
    produce_in_transaction(kafka.bootstrap, tp.topic, [b"x"] * 3)

    assert offsets_read(options, OffsetRange(tp, 0, 4)) == [0, 1, 2]
    assert offsets_read(options, OffsetRange(tp, 3, 4)) == []


def test_connections_are_kept_from_task_to_task(kafka: LocalKafka, tp: TopicPartition, options: SourceOptions) -> None:
    produce(kafka.bootstrap, tp.topic, [b"x"] * 10)
    offsets_read(options, OffsetRange(tp, 0, 5))
    runtime = runtimes._runtimes[options.client, NO_SECURITY]

    assert offsets_read(options, OffsetRange(tp, 5, 10)) == [5, 6, 7, 8, 9]
    assert runtimes._runtimes[options.client, NO_SECURITY] is runtime


def test_a_read_that_is_abandoned_takes_its_client_along(
    kafka: LocalKafka, tp: TopicPartition, options: SourceOptions
) -> None:
    produce(kafka.bootstrap, tp.topic, [os.urandom(1000)] * 20_000, linger_ms=20, batch_size=500_000)
    batches = read_task(options, ("offset", "value"), (OffsetRange(tp, 0, 20_000),))
    next(batches)

    batches.close()  # type: ignore[attr-defined]

    assert not runtimes._runtimes
    assert len(offsets_read(options, OffsetRange(tp, 0, 10))) == 10


def test_records_that_were_deleted(kafka: LocalKafka, tp: TopicPartition, options: SourceOptions) -> None:
    produce(kafka.bootstrap, tp.topic, [b"x"] * 10)
    delete_records(kafka.bootstrap, tp.topic, partition=0, before=4)

    with pytest.raises(DataLoss, match=r"oldest records were deleted.*offsets 2 to 8 .*; available: 4 to 10"):
        offsets_read(options, OffsetRange(tp, 2, 8))
    assert not runtimes._runtimes
    lenient = SourceOptions(options.client, options.choice, fail_on_data_loss=False)
    assert offsets_read(lenient, OffsetRange(tp, 2, 8)) == [4, 5, 6, 7]
    assert offsets_read(lenient, OffsetRange(tp, 0, 3)) == []


def test_offsets_that_were_never_written(kafka: LocalKafka, tp: TopicPartition, options: SourceOptions) -> None:
    produce(kafka.bootstrap, tp.topic, [b"x"] * 5)

    def read_to_the_ninth(timeout_ms: int) -> list[int]:
        return offsets_read(replace(options, poll_timeout_ms=timeout_ms), OffsetRange(tp, 0, 9))

    with pytest.raises(DataLoss, match=r"offsets 7 to 9 .*; available: 0 to 5"):
        offsets_read(options, OffsetRange(tp, 7, 9))
    with pytest.raises(DataLoss, match=r"offsets 5 to 9 .*; available: 0 to 5"):
        read_with_more_time(read_to_the_ninth)


def test_a_process_ends_although_its_threads_still_wait(kafka: LocalKafka, tp: TopicPartition) -> None:
    produce(kafka.bootstrap, tp.topic, [Message(b"x")])
    script = f"""
from aiokc import ClientConfig, TopicPartition
from spark_source import runtimes, worker
from spark_source.options.security_options import NO_SECURITY
from spark_source.options.source_options import SourceOptions
from spark_source.planning.task_plan import OffsetRange
from spark_source.options.topic_choice import subscribe
import os
options = SourceOptions(ClientConfig(bootstrap_servers={kafka.bootstrap!r}), subscribe({tp.topic!r}))
wanted = OffsetRange(TopicPartition({tp.topic!r}, 0), 0, 1)
assert len(list(worker.read_task(options, ("value",), (wanted,)))) == 1
child = os.fork()
if child == 0:
    assert not runtimes._runtimes
    assert len(list(worker.read_task(options, ("value",), (wanted,)))) == 1
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
next(worker.read_task(options, ("value",), (wanted,)))  # and nobody closes anything
"""

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False)

    assert ended.returncode == 0, ended.stderr
