"""A task reads no record of another topic than the one that it was planned for, also with a client that is new.

A client that has read the former topic hears of the new one by an error. One that is new knows nothing but the new one:
that of Spark's next attempt after such an error, and that of a worker that has just been started.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from aiokc import ClientConfig, TopicPartition
from aiokc.records import ControlType, NewRecord, encode_batch, encode_control_batch
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from spark_source import runtimes, worker
from spark_source.data_loss import DataLoss
from spark_source.options.source_options import SourceOptions, for_batch, for_stream, parse_options
from spark_source.options.topic_choice import subscribe
from spark_source.planning.task_plan import OffsetRange, Task
from spark_source.readers.reader import AiokcBatchReader
from spark_source.readers.stream_reader import AiokcStreamReader
from spark_source.schema import kafka_schema

from .patience import read_with_more_time

pytestmark = pytest.mark.timeout(60)

EVENTS, SECOND, OTHER = TopicPartition("events", 0), TopicPartition("events", 1), TopicPartition("other", 0)
SAID = "its topic was deleted and created again after this was planned"
IDS = "(: its id was [-0-9a-f]{36} and is [-0-9a-f]{36})"
COLUMNS = tuple(kafka_schema(include_headers=True).names)


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokc.client.cluster.cluster_client._NEW_TOPIC_SECONDS", 0.1)
    monkeypatch.setattr("spark_source.cluster.topics_view._MAX_AGE_SECONDS", 0.0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"events": 2, "other": 1}).in_thread() as running:
        for tp in (EVENTS, SECOND, OTHER):
            running.append(tp.topic, *[b"x"] * 3, partition=tp.partition)
        yield running
    end_worker()


def end_worker() -> None:
    """Do what Spark's end of a worker process does: the next task has a new client."""
    for config in list(runtimes._runtimes):
        runtimes._runtimes.pop(config).close()


def recreate(cluster: Cluster, *values: bytes) -> None:
    """Recreate the topic "events", with these records in each partition."""
    cluster.recreate_topic("events")
    for tp in (EVENTS, SECOND):
        for value in values:
            cluster.append("events", value, partition=tp.partition)


def planned(cluster: Cluster, *ranges: tuple[TopicPartition, int, int]) -> Task:
    """Return a task that is planned now: for the topics that exist now."""
    ids = {tp.topic: cluster._state.topics.id_of(tp.topic) for tp, _, _ in ranges}
    return tuple(OffsetRange(tp, start, until, topic_id=ids[tp.topic]) for tp, start, until in ranges)


def options_for(cluster: Cluster, *, fail: bool) -> SourceOptions:
    config = ClientConfig(bootstrap_servers=cluster.bootstrap)
    return SourceOptions(config, subscribe("events", "other"), fail_on_data_loss=fail, poll_timeout_ms=20_000)


def rows(options: SourceOptions, task: Task, columns: Sequence[str] = COLUMNS) -> list[dict[str, Any]]:
    return [row for batch in worker.read_task(options, columns, task) for row in batch.to_pylist()]


def places(options: SourceOptions, task: Task) -> list[tuple[str, int]]:
    return [(row["topic"], row["offset"]) for row in rows(options, task)]


@pytest.mark.parametrize("columns", [COLUMNS, ("value",), ("partition",)], ids=["all", "value", "partition"])
def test_a_new_worker_reads_nothing_of_the_new_topic(cluster: Cluster, columns: tuple[str, ...]) -> None:
    task = planned(cluster, (EVENTS, 0, 3))
    recreate(cluster, *[b"new"] * 5)

    with pytest.raises(DataLoss, match=f"topic 'events', partition 0: {SAID}{IDS}. Wanted: offsets 0 to 3 .*: 0 to 5 "):
        rows(options_for(cluster, fail=True), task, columns)


def test_the_next_attempt_of_a_task_fails_too(cluster: Cluster) -> None:
    """With failOnDataLoss=true the query would succeed by Spark's second attempt, which has a client of its own."""
    task = planned(cluster, (EVENTS, 0, 3))
    happened: list[bool] = []

    def happen(exchange: Exchange) -> None:
        if not happened:
            happened.append(True)
            recreate(cluster, *[b"new"] * 5)

    cluster.intercept(ApiKey.FETCH, happen)
    for _ in range(3):
        with pytest.raises(DataLoss, match=SAID):
            rows(options_for(cluster, fail=True), task)
        assert not runtimes._runtimes


def test_with_fail_on_data_loss_false_a_new_worker_reads_the_others(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Ranges of one task come in the same batches, and a partition may have several: each row comes once, or never."""
    cluster.append("other", *[b"x"] * 3)
    task = planned(cluster, (EVENTS, 0, 2), (EVENTS, 2, 3), (SECOND, 1, 3), (OTHER, 0, 3), (OTHER, 3, 6))
    recreate(cluster, *[b"new"] * 5)

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        found = places(options_for(cluster, fail=False), task)

    assert found == [("other", offset) for offset in range(6)]
    for lost in (
        "partition 0: {}. Wanted: offsets 0 to 2",
        "0: {}. Wanted: offsets 2 to 3",
        "1: {}. Wanted: offsets 1",
    ):
        assert re.search(lost.format(SAID + IDS), caplog.text)
    assert caplog.text.count(SAID) == 3


def test_a_topic_that_is_read_as_it_was_planned_is_no_loss(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    recreate(cluster, *[b"new"] * 5)
    task = planned(cluster, (EVENTS, 0, 5), (SECOND, 2, 4), (OTHER, 0, 3))

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        found = places(options_for(cluster, fail=True), task)

    events = [("events", offset) for offset in (0, 1, 2, 2, 3, 3, 4)]
    assert sorted(found) == events + [("other", offset) for offset in range(3)]
    assert "data loss" not in caplog.text


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize(
    ("start", "until", "values"), [(2, 3, 1), (1, 3, 1), (1, 3, 2), (0, 3, 0)], ids=["behind", "at", "within", "empty"]
)
def test_a_new_topic_that_is_shorter_than_the_range(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, fail: bool, start: int, until: int, values: int
) -> None:
    """The range begins behind the new log's end, at it, or before it: what the task waits for never comes."""
    task = planned(cluster, (EVENTS, start, until), (OTHER, 0, 3))
    recreate(cluster, *[b"new"] * values)
    options = options_for(cluster, fail=fail)

    def read(timeout_ms: int) -> list[tuple[str, int]]:
        return places(replace(options, poll_timeout_ms=timeout_ms), task)

    if fail:
        with pytest.raises(DataLoss, match=f"{SAID}{IDS}?. Wanted: offsets {start} to {until} .*: 0 to {values} "):
            read_with_more_time(read)
    else:
        with caplog.at_level(logging.WARNING, logger="spark_source"):
            assert read_with_more_time(read) == [("other", offset) for offset in range(3)]
        assert SAID in caplog.text


def test_a_broker_that_still_names_the_former_topic_changes_nothing(cluster: Cluster) -> None:
    """The worker has read the new topic. It asks what is there, and the broker that answers has not heard of it yet."""
    task = planned(cluster, (EVENTS, 0, 3))
    (former,) = {part.topic_id for part in task}
    recreate(cluster, *[b"new"] * 5)
    fetched: list[Exchange] = []
    named: list[bool] = []
    cluster.intercept(ApiKey.FETCH, fetched.append, times=None)

    async def behind(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        if fetched and not named:
            named.append(True)
            for topic in answer.topics:
                topic.topic_id = former
        return answer

    cluster.intercept(ApiKey.METADATA, behind, times=None)

    with pytest.raises(DataLoss, match=SAID):
        rows(options_for(cluster, fail=True), task)
    assert named


@pytest.mark.parametrize("fail", [True, False])
def test_a_leader_that_still_serves_the_former_topic_is_asked_again(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, fail: bool
) -> None:
    """The worker's client, which stays, knows the former topic, and so does the leader that it knows of it."""
    options, answers = options_for(cluster, fail=fail), []

    async def keep(exchange: Exchange) -> Any:
        answers.append(await exchange.handle())
        return answers[0]

    cluster.intercept(ApiKey.FETCH, keep, times=1)
    assert len(rows(options, planned(cluster, (EVENTS, 0, 3)))) == 3
    recreate(cluster, *[b"new"] * 5)
    cluster.intercept(ApiKey.FETCH, keep, times=1)

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        found = rows(options, planned(cluster, (EVENTS, 0, 4)))

    assert [row["value"] for row in found] == [b"new"] * 4
    assert "data loss" not in caplog.text


def hold_no_record(cluster: Cluster, tp: TopicPartition) -> None:
    """Write three offsets of which no record is left to read: those of compacted records, and a marker."""
    log = cluster._partition(*tp)
    log.log.append(encode_batch([NewRecord(b"0"), NewRecord(b"1", offset_delta=1)], last_offset_delta=2), 0)
    log.log.append(encode_control_batch(ControlType.COMMIT, producer_id=7, producer_epoch=0), 0)


@pytest.mark.parametrize("fail", [True, False])
def test_a_new_topic_that_has_no_record_in_the_range(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, fail: bool
) -> None:
    """There is no row to tell of. But the records that were planned are gone."""
    task = planned(cluster, (EVENTS, 2, 3))
    recreate(cluster)
    hold_no_record(cluster, EVENTS)

    if fail:
        with pytest.raises(DataLoss, match=f"{SAID}{IDS}?. Wanted: offsets 2 to 3 .*: 0 to 4 "):
            rows(options_for(cluster, fail=True), task)
    else:
        with caplog.at_level(logging.WARNING, logger="spark_source"):
            assert rows(options_for(cluster, fail=False), task) == []
        assert SAID in caplog.text


def test_a_range_without_a_record_hands_no_batch_to_spark(cluster: Cluster) -> None:
    recreate(cluster)
    hold_no_record(cluster, EVENTS)
    task = planned(cluster, (EVENTS, 2, 4))

    assert list(worker.read_task(options_for(cluster, fail=True), COLUMNS, task)) == []


def test_a_stream_reads_each_record_of_the_new_topic_once(cluster: Cluster) -> None:
    """A batch is planned, the topic is recreated, the batch is read in a new worker, and the next one is planned."""
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "events",
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
    }
    reader = AiokcStreamReader(for_stream(parse_options(given)), schema())
    try:
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, ReadAllAvailable())
        parts = reader.partitions(begin, end)
        recreate(cluster, *[b"new"] * 5)

        assert [batch for part in parts for batch in reader.read(part)] == []

        end_worker()
        later = reader.latestOffset(end, ReadAllAvailable())
        found = [batch.to_pylist() for part in reader.partitions(end, later) for batch in reader.read(part)]
        assert [row["value"] for batch in found for row in batch] == [b"new"] * 10
    finally:
        reader.stop()


def test_a_batch_query_reads_nothing_of_a_topic_that_was_recreated_after_its_planning(cluster: Cluster) -> None:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "events"}
    reader = AiokcBatchReader(for_batch(parse_options(given)), schema())
    parts = reader.partitions()
    recreate(cluster, *[b"new"] * 5)

    for part in parts:
        with pytest.raises(DataLoss, match=SAID):
            list(reader.read(part))


def schema() -> StructType:
    return kafka_schema(include_headers=False)
