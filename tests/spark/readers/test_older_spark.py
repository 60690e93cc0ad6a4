"""Streams on Spark 4.0 and 4.1, which call their sources in another order. AIOKC_SPARK=4.1.4 runs the real ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from pyspark.sql.datasource import InputPartition

from aiokc.errors import ConfigError
from aiokc.testing import Cluster
from spark_source.offsets import ANCHOR, OffsetJson
from spark_source.options.source_options import for_stream, parse_options
from spark_source.readers.older_spark import UnlimitedStreamReader
from spark_source.readers.stream_reader import AiokcStreamReader
from spark_source.schema import kafka_schema
from spark_source.source import stream_reader_of

from ..deleting import delete_records
from ..installation.test_registration import run


@pytest.fixture(autouse=True)
def patient_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a commit may take longer than a second."""
    monkeypatch.setattr("spark_source.cluster.driver._COMMIT_MS", 30_000)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"events": 1}).in_thread() as running:
        yield running


def started(cluster: Cluster, **more: str) -> UnlimitedStreamReader:
    """Return a reader as a new process has it."""
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "events", **more}
    return UnlimitedStreamReader(for_stream(parse_options(options)), kafka_schema(include_headers=False))


def restarted(cluster: Cluster, newest: OffsetJson, **more: str) -> UnlimitedStreamReader:
    """Return a reader after a restart: before all else, Spark plans an empty batch at the newest offset of its
    checkpoint.
    """
    reader = started(cluster, **more)
    assert reader.partitions(newest, newest) == []
    return reader


def ranges(planned: Sequence[InputPartition]) -> list[tuple[int, int]]:
    return [(part.start, part.until) for task in planned for part in task.value]


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0.dev1", "5.0.0"])
def test_newer_sparks_tell_of_limits(version: str) -> None:
    assert stream_reader_of(version) is AiokcStreamReader


@pytest.mark.parametrize("version", ["4.0.0", "4.0.5", "4.1.4", "4.1.0.dev3"])
def test_older_sparks_do_not(version: str) -> None:
    assert stream_reader_of(version) is UnlimitedStreamReader


def test_nothing_is_imported_that_older_sparks_do_not_have() -> None:
    done = run(
        "import sys, pyspark.sql.datasource; sys.modules['pyspark.sql.streaming.datasource'] = None;"
        "import pyspark_aiokc, spark_source.readers.reader; from spark_source.source import stream_reader_of;"
        "print(pyspark_aiokc.DefaultSource.name(), stream_reader_of('4.1.4').__name__)"
    )

    assert done.stdout.split() == ["aiokc", "UnlimitedStreamReader"], done.stderr


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_an_option_that_needs_limits_is_refused(cluster: Cluster, option: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{option} needs Spark 4\.2 or newer"):
        started(cluster, **{option: "10"})


def test_a_new_query_is_asked_for_its_first_end_before_its_start(cluster: Cluster) -> None:
    cluster.append("events", b"before", b"before")
    reader = started(cluster)

    first = reader.latestOffset()
    start = reader.initialOffset()

    assert start == {"events": {"0": 2}}
    assert reader.partitions(start, first) == []
    cluster.append("events", b"x", b"x", b"x")
    second = reader.latestOffset()
    assert second == {"events": {"0": 5}}
    assert ranges(reader.partitions(first, second)) == [(2, 5)]
    assert reader.latestOffset() == second, "equal offsets, so that Spark plans no batch"
    reader.stop()


def test_batch_0_from_latest_is_repeated_from_where_it_began(cluster: Cluster) -> None:
    cluster.append("events", b"before", b"before")
    reader = started(cluster)
    start = reader.initialOffset()
    cluster.append("events", b"in batch 0")
    first = reader.latestOffset()
    assert ranges(reader.partitions(start, first)) == [(2, 3)]
    reader.stop()
    cluster.append("events", b"while nobody reads")

    again = restarted(cluster, first)

    assert ranges(again.partitions(again.initialOffset(), first)) == [(2, 3)]
    assert ANCHOR in first
    second = again.latestOffset()
    assert second == {"events": {"0": 4}}
    assert ranges(again.partitions(first, second)) == [(3, 4)]
    again.stop()


def test_a_finished_batch_0_is_no_loss_once_its_records_are_deleted(cluster: Cluster) -> None:
    cluster.append("events", b"x", b"x")
    reader = started(cluster, startingOffsets="earliest")
    first = reader.latestOffset()
    assert ranges(reader.partitions(reader.initialOffset(), first)) == [(0, 2)]
    reader.stop()
    delete_records(cluster.bootstrap, "events", partition=0, before=2)

    again = restarted(cluster, first, startingOffsets="earliest")

    assert again.latestOffset() == first
    again.stop()


def test_where_sparks_own_source_began_a_batch_0_is_not_guessed(cluster: Cluster) -> None:
    cluster.append("events", b"x")
    end: OffsetJson = {"events": {"0": 1}}
    reader = restarted(cluster, end)

    with pytest.raises(ConfigError, match=r"batch 0 .*planned by format\('kafka'\)"):
        reader.partitions(reader.initialOffset(), end)
    reader.stop()


def test_a_partition_that_is_added_is_read_from_its_start(cluster: Cluster) -> None:
    reader = started(cluster)
    first = reader.latestOffset()
    reader.partitions(reader.initialOffset(), first)
    reader.stop()
    cluster.add_partitions("events", 2)
    cluster.append("events", b"x", partition=1)

    again = restarted(cluster, first)
    second = again.latestOffset()

    assert {topic: ends for topic, ends in second.items() if topic != ANCHOR} == {"events": {"0": 0, "1": 1}}
    assert ranges(again.partitions(first, second)) == [(0, 1)]
    again.stop()


def test_the_group_follows_finished_batches(cluster: Cluster) -> None:
    group = {"commitOffsets": "true", "kafka.group.id": "lag", "startingOffsets": "earliest"}
    cluster.append("events", b"x", b"x")
    reader = started(cluster, **group)
    first = reader.latestOffset()
    reader.partitions(reader.initialOffset(), first)
    assert cluster.committed("lag") == {}, "batch 0 is not finished"

    reader.latestOffset()

    assert list(cluster.committed("lag").values()) == [2]
    reader.stop()


def test_a_batch_that_was_not_finished_is_planned_again_first_of_all(cluster: Cluster) -> None:
    """If what Spark plans first were always "so that sources know", the records of that batch would be skipped."""
    cluster.append("events", b"x", b"x", b"x")
    first: OffsetJson = {"events": {"0": 1}}

    again = started(cluster)

    assert ranges(again.partitions(first, {"events": {"0": 3}})) == [(1, 3)]
    again.stop()


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_restart_with_the_wrapper_of_available_now_is_refused(cluster: Cluster, starting: str) -> None:
    """The wrapper asks for the end of the run before Spark has said where the query stopped."""
    cluster.append("events", b"x", b"x", b"x")
    first = started(cluster, startingOffsets=starting)
    end = first.latestOffset()
    first.partitions(first.initialOffset(), end)
    first.stop()
    cluster.append("events", b"x")
    again = started(cluster, startingOffsets=starting)
    again.latestOffset()

    with pytest.raises(ConfigError, match=r"^spark\.sql\.streaming\.triggerAvailableNowWrapper\.enabled=true can't"):
        again.partitions(end, end)
    again.stop()


def test_a_new_query_may_find_no_topic(cluster: Cluster) -> None:
    """Its batch 0 ends where it begins, as the empty batch does that Spark plans after a restart."""
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribePattern": "later"}
    reader = UnlimitedStreamReader(for_stream(parse_options(options)), kafka_schema(include_headers=False))

    assert reader.latestOffset() == {}
    assert reader.partitions(reader.initialOffset(), {}) == []
    reader.stop()
