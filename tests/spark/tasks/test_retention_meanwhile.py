"""Retention deletes the oldest records after a batch query was planned: a query from the earliest begins later."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from aiokc import LATEST, ClientConfig, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.records import ControlType, NewRecord, encode_batch, encode_control_batch
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire import Response
from spark_source import runtimes, worker
from spark_source.data_loss import DataLoss
from spark_source.options.source_options import SourceOptions
from spark_source.options.topic_choice import subscribe
from spark_source.planning.task_plan import OffsetRange

TP, RECORDS = TopicPartition("events", 0), 10
LOSS = "its oldest records were deleted"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"events": 1}).in_thread() as running:
        for _ in range(RECORDS):  # each a batch of its own
            running.append("events", b"x" * 1000)
        yield running
    for config in list(runtimes._runtimes):
        runtimes._runtimes.pop(config).close()


def trim_at(cluster: Cluster, starts: dict[int, int]) -> None:
    """Make the log start at ``starts[n]`` once the nth Fetch comes."""
    fetches: list[Exchange] = []

    def trim(exchange: Exchange) -> None:
        fetches.append(exchange)
        if (start := starts.get(len(fetches))) is not None:
            exchange.call.cluster.topics.partition(*TP).log.trim(start)

    cluster.intercept(ApiKey.FETCH, trim)


def read(cluster: Cluster, *task: OffsetRange, fail: bool = True, **changed: Any) -> list[int]:
    config = ClientConfig(**{"bootstrap_servers": cluster.bootstrap, "max_partition_fetch_bytes": 1, **changed})
    options = SourceOptions(config, subscribe("events"), fail_on_data_loss=fail, offset_retry_ms=0)
    return [n for batch in worker.read_task(options, ("offset",), task) for n in batch.column(0).to_pylist()]


@pytest.mark.parametrize(
    ("starts", "left"), [({1: 4}, [4, 5, 6, 7]), ({1: 4, 2: 6}, [6, 7]), ({1: 8}, []), ({1: 10}, [])]
)
def test_a_range_from_the_earliest_begins_where_the_log_does(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, starts: dict[int, int], left: list[int]
) -> None:
    trim_at(cluster, starts)

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        assert read(cluster, OffsetRange(TP, 0, 8, from_earliest=True)) == left

    assert caplog.text == ""


def test_a_range_that_has_only_skipped_a_control_record_begins_where_the_log_does(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in a task with another partition, whose rows come with an error of this one."""
    cluster.add_partitions("events", 2)
    other = TopicPartition("events", 1)
    log = cluster._partition(*other).log
    log.append(encode_control_batch(ControlType.COMMIT, producer_id=7, producer_epoch=0), 0)
    for _ in range(2):
        cluster.append("events", b"x" * 1000, partition=1)

    def trim(exchange: Exchange) -> None:
        if any(part.partition == 1 and part.fetch_offset == 1 for part in exchange.request.topics[0].partitions):
            exchange.call.cluster.topics.partition(*other).log.trim(2)

    cluster.intercept(ApiKey.FETCH, trim)

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        task = OffsetRange(TP, 0, 1), OffsetRange(other, 0, 3, from_earliest=True)
        assert read(cluster, *task, max_partition_fetch_bytes=1100) == [0, 2]  # each Fetch brings a batch of each

    assert caplog.text == ""


def test_a_range_from_a_given_offset_and_one_of_a_stream_do_not(cluster: Cluster) -> None:
    trim_at(cluster, {1: 4})

    with pytest.raises(DataLoss, match=f"{LOSS}. Wanted: offsets 0 to 8"):
        read(cluster, OffsetRange(TP, 0, 8))


def test_what_is_missing_behind_a_record_of_the_same_range_is_a_loss(cluster: Cluster) -> None:
    trim_at(cluster, {3: 6})

    with pytest.raises(DataLoss, match=f"{LOSS}. Wanted: offsets 2 to 8"):
        read(cluster, OffsetRange(TP, 0, 8, from_earliest=True))


def test_what_is_missing_behind_a_record_that_was_read_is_a_loss(cluster: Cluster) -> None:
    """One task reads both pieces, the second when the first is done: the log is trimmed within the second."""
    trim_at(cluster, {3: 6})

    with pytest.raises(DataLoss, match=f"{LOSS}. Wanted: offsets 2 to 8"):
        read(cluster, OffsetRange(TP, 0, 2, from_earliest=True), OffsetRange(TP, 2, 8))


def with_another_topic(cluster: Cluster) -> TopicPartition:
    """Return the partition of a second topic, which has as many records."""
    cluster.create_topic("other", 1)
    for _ in range(RECORDS):
        cluster.append("other", b"x" * 1000)
    return TopicPartition("other", 0)


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("topic", ["other", "events"])
def test_a_leader_that_does_not_know_yet_where_its_log_ends_is_not_believed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, topic: str, fail: bool
) -> None:
    """It has just been elected, and is asked once more, also where the error was about another partition."""
    other = with_another_topic(cluster)

    async def answer_too_early(exchange: Exchange) -> Response | None:
        response: Any = await exchange.handle()
        for part in (part for answer in response.topics if answer.name == topic for part in answer.partitions):
            part.offset = 6
        return response  # type: ignore[no-any-return]

    def asks_for_the_end(exchange: Exchange) -> bool:
        asked = (part for asked in exchange.request.topics if asked.name == topic for part in asked.partitions)
        return any(part.timestamp == LATEST for part in asked)

    trim_at(cluster, {1: 4})
    cluster.intercept(ApiKey.LIST_OFFSETS, answer_too_early, times=1, where=asks_for_the_end)

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        task = OffsetRange(TP, 0, RECORDS, from_earliest=True), OffsetRange(other, 0, RECORDS)
        found = read(cluster, *task, fail=fail)

    assert sorted(found) == sorted([*range(4, RECORDS), *range(RECORDS)])
    assert caplog.text == ""


@pytest.mark.parametrize(("call_ms", "look_ms"), [(2_000, 10_000), (60_000, 2_000)], ids=["call", "look"])
def test_a_leader_that_is_away_while_a_loss_of_another_log_is_looked_at_is_waited_for(
    cluster: Cluster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    call_ms: int,
    look_ms: int,
) -> None:
    """It does not say where its log ends, but gives its records in time: the task need not fail."""
    other = with_another_topic(cluster)

    async def be_away(exchange: Exchange) -> Response | None:
        response: Any = await exchange.handle()
        for part in (part for answer in response.topics if answer.name == "other" for part in answer.partitions):
            part.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return response  # type: ignore[no-any-return]

    trim_at(cluster, {1: 4})
    cluster.intercept(ApiKey.LIST_OFFSETS, be_away)
    monkeypatch.setattr("spark_source.worker._LOOK_MS", look_ms)

    with caplog.at_level(logging.INFO, logger="spark_source"):
        task = OffsetRange(TP, 0, RECORDS, from_earliest=True), OffsetRange(other, 0, RECORDS)
        found = read(cluster, *task, default_api_timeout_ms=call_ms)

    assert sorted(found) == sorted([*range(4, RECORDS), *range(RECORDS)])
    assert caplog.text.count(f"not all leaders said where the logs of {other} end") == 1


@pytest.mark.parametrize("fail", [True, False])
def test_a_log_that_is_cut_while_a_loss_of_another_one_is_looked_at_is_a_loss(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, fail: bool
) -> None:
    """`events` is trimmed, and `other` cut beyond what was read of it. The next read finds it written on."""
    other = with_another_topic(cluster)
    happened: list[str] = []

    def happen(exchange: Exchange) -> None:
        """Trim `events` at the first Fetch; make `other` as long as it was at the first one of the next read."""
        parts = (part for topic in exchange.request.topics for part in topic.partitions)
        if not happened:
            happened.append("trimmed")
            exchange.call.cluster.topics.partition(*TP).log.trim(4)
        elif len(happened) == 1 and any(part.fetch_offset == 4 for part in parts):
            happened.append("written on")
            cluster.append("other", *[b"another record"] * 2)

    def cut(exchange: Exchange) -> None:
        cluster.truncate("other", to=6)
        cluster.append("other", *[b"another record"] * 2)

    cluster.intercept(ApiKey.FETCH, happen)
    cluster.intercept(ApiKey.LIST_OFFSETS, cut, times=1)
    task = OffsetRange(TP, 0, RECORDS, from_earliest=True), OffsetRange(other, 0, RECORDS)
    ended = "its log ends before offsets that were read or planned already"
    said = rf"topic 'other', partition 0: {ended}\. Wanted: offsets \d to 10 \(exclusive\); available: 0 to 8"

    if fail:
        with pytest.raises(DataLoss, match=said):
            read(cluster, *task)
    else:
        with caplog.at_level(logging.WARNING, logger="spark_source"):
            assert sorted(read(cluster, *task, fail=False)) == sorted([*range(4, RECORDS), *range(8)])
        assert len(re.findall(said, caplog.text)) == 1


@pytest.mark.parametrize("fail", [True, False])
def test_what_lies_behind_an_open_transaction_is_not_lost_with_it(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, fail: bool
) -> None:
    """The range ends at a given number. With read_committed the log seems to end where the transaction begins."""
    log = cluster._partition(*TP)
    log.log.append(encode_batch([NewRecord(b"x")] * 5, producer_id=7, transactional=True), 0)
    fetches: list[Exchange] = []

    def trim_then_commit(exchange: Exchange) -> None:
        fetches.append(exchange)
        if len(fetches) == 1:
            log.log.trim(8)
        elif len(fetches) == 4:  # 8 and 9 are read
            log.log.append(encode_control_batch(ControlType.COMMIT, producer_id=7, producer_epoch=0), 0)

    cluster.intercept(ApiKey.FETCH, trim_then_commit, times=None)

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        found = read(cluster, OffsetRange(TP, 0, 15, from_earliest=True), fail=fail, isolation_level="read_committed")

    assert found == list(range(8, 15))
    assert caplog.text == ""
