"""Tasks whose topic is deleted or cut while they read, or was recreated before, or whose partition has no leader."""

from __future__ import annotations

import asyncio
import logging
import re
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from aiokc import Client, ClientConfig, ErrorCode, TopicPartition
from aiokc.errors import OffsetOutOfRange, RequestTimedOut, UnknownTopic
from aiokc.records import NewRecord, encode_batch
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from spark_source import runtimes, worker
from spark_source.data_loss import DataLoss
from spark_source.options.source_options import SourceOptions, for_batch, for_stream, parse_options
from spark_source.options.topic_choice import subscribe
from spark_source.planning.task_plan import OffsetRange, Task
from spark_source.readers.reader import AiokcBatchReader
from spark_source.readers.stream_reader import AiokcStreamReader

from .patience import assert_times_out, read_with_more_time

EVENTS, OTHER = TopicPartition("events", 0), TopicPartition("other", 0)


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokc.client.cluster.cluster_client._NEW_TOPIC_SECONDS", 0.1)


@contextmanager
def two_topics() -> Iterator[Cluster]:
    with Cluster(topics={"events": 1, "other": 1}).in_thread() as running:
        for topic in ("events", "other"):
            running.append(topic, *[b"x"] * 3)
        yield running
    for config in list(runtimes._runtimes):
        runtimes._runtimes.pop(config).close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with two_topics() as running:
        yield running


def delete(cluster: Cluster) -> None:
    cluster.delete_topic("events")


def recreate(cluster: Cluster) -> None:
    cluster.recreate_topic("events")
    cluster.append("events", *[b"another record"] * 5)


Event = Callable[[Cluster], None]
events = pytest.mark.parametrize(
    ("event", "said"),
    [(delete, "the partition is gone"), (recreate, "its topic was deleted and created again after this was planned")],
)


def planned(cluster: Cluster, *ranges: tuple[TopicPartition, int, int]) -> Task:
    """Return a task that is planned now: for the topics that exist now."""
    ids = {tp.topic: cluster._state.topics.id_of(tp.topic) for tp, _, _ in ranges}
    return tuple(OffsetRange(tp, start, until, topic_id=ids[tp.topic]) for tp, start, until in ranges)


def prepared(cluster: Cluster, event: Event) -> tuple[SourceOptions, Task]:
    """Return a task and its options, in a worker that has read before; the event comes with the task's first Fetch."""
    task = planned(cluster, (EVENTS, 0, 3), (OTHER, 0, 3))
    options = SourceOptions(
        ClientConfig(bootstrap_servers=cluster.bootstrap), subscribe("events", "other"), poll_timeout_ms=20_000
    )
    assert offsets_read(options, task) == {"events": [0, 1, 2], "other": [0, 1, 2]}
    happened: list[bool] = []

    def happen(exchange: Exchange) -> None:
        if not happened:
            happened.append(True)
            event(cluster)

    cluster.intercept(ApiKey.FETCH, happen)
    return options, task


def read_while(event: Event, *, fail: bool) -> dict[str, list[int]]:
    """Return what is read. A partition that is deleted may be unknown for as long as the timeout, so that is short.

    A second attempt has a cluster of its own, and a worker that has read there: else it would not meet the event.
    """

    def read(timeout_ms: int) -> dict[str, list[int]]:
        with two_topics() as cluster:
            options, task = prepared(cluster, event)
            return offsets_read(replace(options, poll_timeout_ms=timeout_ms, fail_on_data_loss=fail), task)

    return read_with_more_time(read, (2_000, 20_000) if event is delete else (20_000,))


def offsets_read(options: SourceOptions, task: Task) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for batch in worker.read_task(options, ("topic", "offset"), task):
        for row in batch.to_pylist():
            found.setdefault(row["topic"], []).append(row["offset"])
    return found


@events
def test_it_is_a_loss_of_data(event: Event, said: str) -> None:
    with pytest.raises(DataLoss, match=f"topic 'events', partition 0: .*{said}.*\\. Wanted: offsets 0 to 3"):
        read_while(event, fail=True)


@events
def test_with_fail_on_data_loss_false_the_others_are_read(
    event: Event, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="spark_source"):
        assert read_while(event, fail=False) == {"other": [0, 1, 2]}

    assert said in caplog.text


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_is_deleted_while_its_loss_is_looked_at(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fail: bool
) -> None:
    """Retention has deleted records of it. It is listed still, and deleted before the offsets of its log are asked."""
    monkeypatch.setattr("spark_source.cluster.driver._PATIENCE_MS", 200)
    options, task = prepared(cluster, lambda cluster: cluster._partition(*EVENTS).log.trim(2))
    listed: list[Exchange] = []

    def delete_once(exchange: Exchange) -> None:
        listed.append(exchange)
        if len(listed) == 1:
            delete(cluster)

    cluster.intercept(ApiKey.LIST_OFFSETS, delete_once)
    said = r"topic 'events', partition 0: the partition is gone\. Wanted: offsets 0 to 3"

    if fail:
        with pytest.raises(DataLoss, match=said):
            offsets_read(options, task)
    else:
        with caplog.at_level(logging.WARNING, logger="spark_source"):
            assert offsets_read(replace(options, fail_on_data_loss=False), task) == {"other": [0, 1, 2]}
        assert re.search(said, caplog.text)
    assert listed


def test_a_topic_that_stays_listed_though_its_leader_does_not_know_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no loss as far as anybody knows: Spark tries the task again."""
    looks: list[object] = []

    async def unknown(*asked: object, **settings: object) -> Any:
        looks.append(asked)
        raise UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    options, task = prepared(cluster, lambda cluster: cluster._partition(*EVENTS).log.trim(2))
    monkeypatch.setattr("spark_source.worker.log_ranges", unknown)

    with pytest.raises(OffsetOutOfRange, match=r"events-0 at 0: .*\(.*\); if Spark's other attempts") as raised:
        offsets_read(options, task)

    assert len(looks) == 2
    assert "seek()" not in "".join(traceback.format_exception(raised.value)), "that is what a Consumer can do"


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_was_recreated_before_it_was_planned_is_read(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, fail: bool
) -> None:
    """The worker's client, which stays, has metadata of the former topic: nobody has told it of the new one."""
    options = SourceOptions(
        ClientConfig(bootstrap_servers=cluster.bootstrap), subscribe("events", "other"), fail_on_data_loss=fail
    )
    assert offsets_read(options, planned(cluster, (EVENTS, 0, 3), (OTHER, 0, 1))) == {"events": [0, 1, 2], "other": [0]}
    recreate(cluster)

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        found = offsets_read(options, planned(cluster, (EVENTS, 0, 5), (OTHER, 1, 3)))

    assert found == {"events": [0, 1, 2, 3, 4], "other": [1, 2]}
    assert "data loss" not in caplog.text


def test_a_stream_reads_a_recreated_topic_from_its_first_record(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver looks at the topics every two seconds, and plans for the new one. Its worker is the same as before."""
    monkeypatch.setattr("spark_source.cluster.topics_view._MAX_AGE_SECONDS", 0.0)
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "events",
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
    }
    reader = AiokcStreamReader(for_stream(parse_options(given)), StructType([StructField("offset", LongType())]))

    def next_batch(start: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        end = reader.latestOffset(start, ReadAllAvailable())
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
        return end, [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    try:
        end, found = next_batch(reader.initialOffset())
        assert found == [0, 1, 2]
        recreate(cluster)
        assert next_batch(end)[1] == [0, 1, 2, 3, 4]
    finally:
        reader.stop()


def test_a_batch_query_reads_a_topic_that_was_recreated_since_the_last_one(cluster: Cluster) -> None:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "events"}
    schema = StructType([StructField("offset", LongType())])

    def rows() -> list[int]:
        reader = AiokcBatchReader(for_batch(parse_options(given)), schema)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    assert rows() == [0, 1, 2]
    recreate(cluster)
    assert rows() == [0, 1, 2, 3, 4]


def cut_at_fetch(cluster: Cluster, number: int) -> tuple[SourceOptions, Task]:
    """Return a task that reads record for record, and its options. The log is cut at the nth Fetch, and written on."""
    fetches: list[Exchange] = []

    def cut(exchange: Exchange) -> None:
        fetches.append(exchange)
        if len(fetches) == number:
            cluster.truncate("events", to=1)
            for _ in range(9):
                cluster.append("events", b"another record")

    for _ in range(3):
        cluster.append("events", b"x")
    cluster.intercept(ApiKey.FETCH, cut)
    config = ClientConfig(bootstrap_servers=cluster.bootstrap, max_partition_fetch_bytes=1)
    return SourceOptions(config, subscribe("events")), planned(cluster, (EVENTS, 3, 8))


def test_a_log_that_is_cut_while_it_is_read_is_a_loss(cluster: Cluster) -> None:
    options, task = cut_at_fetch(cluster, 3)

    with pytest.raises(DataLoss, match=r"its log was cut while it was read\. Wanted: offsets 5 to 8") as raised:
        offsets_read(options, task)

    assert "seek()" not in "".join(traceback.format_exception(raised.value)), "that is what a Consumer can do"


def test_with_fail_on_data_loss_false_the_rest_of_a_log_that_is_cut_is_read(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    options, task = cut_at_fetch(cluster, 3)

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        assert offsets_read(replace(options, fail_on_data_loss=False), task) == {"events": [3, 4, 5, 6, 7]}

    assert "its log was cut while it was read. Wanted: offsets 5 to 8" in caplog.text


ENDED = "its log ends before offsets that were read or planned already. Wanted: offsets 3 to 4"


def read_what_was_cut(timeout_ms: int, *, fail: bool = True) -> dict[str, list[int]]:
    """Read two partitions of which one has lost its last record since the task was planned."""
    with two_topics() as cluster:
        cluster.append("events", b"x")
        config = ClientConfig(bootstrap_servers=cluster.bootstrap)
        options = SourceOptions(config, subscribe("events", "other"), poll_timeout_ms=timeout_ms, offset_retry_ms=0)
        task = planned(cluster, (EVENTS, 0, 4), (OTHER, 0, 3))
        cluster.truncate("events", to=3)
        return offsets_read(replace(options, fail_on_data_loss=fail), task)


def test_a_log_that_is_cut_to_what_is_read_is_a_loss() -> None:
    """A Fetch at its end is valid, and has no records: only the end of the log tells, once the timeout is over."""
    with pytest.raises(DataLoss, match=f"topic 'events', partition 0: {ENDED}"):
        read_with_more_time(read_what_was_cut)


def test_with_fail_on_data_loss_false_a_log_that_is_cut_to_what_is_read_ends_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="spark_source"):
        found = read_with_more_time(lambda timeout_ms: read_what_was_cut(timeout_ms, fail=False))

    assert found == {"events": [0, 1, 2], "other": [0, 1, 2]}
    assert caplog.text.count(ENDED) == 1


@pytest.mark.parametrize(
    "answers",
    [
        [{EVENTS: (0, 3)}, {EVENTS: (0, 4)}],
        [{EVENTS: (0, 3)}, UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
        [RequestTimedOut("no answer from the leader")],
        [],
    ],
    ids=["a new leader that was behind", "a topic that is gone", "a leader that can't be asked", "no answer"],
)
def test_a_log_whose_end_is_not_certain_is_waited_for(monkeypatch: pytest.MonkeyPatch, answers: list[Any]) -> None:
    """It is no loss as far as anybody knows: Spark tries the task again."""
    left: list[Any] = []

    async def answer(client: Client, partitions: Collection[TopicPartition], **settings: object) -> Any:
        if not partitions:
            return {}
        if not left:
            await asyncio.Event().wait()
        if isinstance(told := left.pop(0), Exception):
            raise told
        return told

    def read(timeout_ms: int) -> None:
        left[:] = answers
        read_what_was_cut(timeout_ms)

    monkeypatch.setattr("spark_source.worker._LOOK_MS", 20_000 if answers else 500)
    monkeypatch.setattr("spark_source.worker.log_ranges", answer)

    assert_times_out(read, r"no progress for N(\.0)? s: events-0 at offset 3 ")
    assert not left


def test_what_lies_behind_an_open_transaction_is_waited_for(cluster: Cluster) -> None:
    log = cluster._partition(*EVENTS).log
    log.append(encode_batch([NewRecord(b"x")], producer_id=7, transactional=True), 0)
    config = ClientConfig(bootstrap_servers=cluster.bootstrap, isolation_level="read_committed")
    options, task = SourceOptions(config, subscribe("events")), planned(cluster, (EVENTS, 0, 4))

    def read(timeout_ms: int) -> None:
        offsets_read(replace(options, poll_timeout_ms=timeout_ms, offset_retry_ms=0), task)

    assert_times_out(read, r"no progress for N(\.0)? s: events-0 at offset 3 ")


def test_a_partition_that_no_broker_leads_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_source.worker._LOOK_MS", 2_000)
    with Cluster(brokers=2).in_thread() as cluster:
        cluster.create_topic("events", 2, replication_factor=1)
        config = ClientConfig(bootstrap_servers=cluster.bootstrap)
        options = SourceOptions(config, subscribe("events"))
        for part in range(2):
            cluster.append("events", b"x", partition=part)
        cluster.take_down(cluster.leader("events", 1) or 0)
        task = tuple(OffsetRange(TopicPartition("events", part), 0, 1) for part in range(2))

        def read(timeout_ms: int) -> None:
            list(worker.read_task(replace(options, poll_timeout_ms=timeout_ms), ("offset",), task))

        assert_times_out(read, r"no progress for N(\.0)? s: events-1 at offset 0 .*no broker leads it now")
        assert not runtimes._runtimes, "a task that is tried again has a client of its own"
