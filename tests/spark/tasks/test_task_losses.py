"""Tasks whose topic is deleted while they read, or whose partition has no leader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from aiokc import ClientConfig, TopicPartition
from aiokc.errors import RequestTimedOut
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from spark_source import worker
from spark_source.data_loss import DataLoss
from spark_source.options.source_options import SourceOptions
from spark_source.options.topic_choice import subscribe
from spark_source.planning.task_plan import OffsetRange

TASK = (OffsetRange(TopicPartition("events", 0), 0, 3), OffsetRange(TopicPartition("other", 0), 0, 3))


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokc.client.cluster.cluster_client._NEW_TOPIC_SECONDS", 0.1)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"events": 1, "other": 1}).in_thread() as running:
        for topic in ("events", "other"):
            running.append(topic, *[b"x"] * 3)
        yield running
    for config in list(worker._runtimes):
        worker._runtimes.pop(config).close()


def delete(cluster: Cluster) -> None:
    cluster.delete_topic("events")


def recreate(cluster: Cluster) -> None:
    cluster.recreate_topic("events")
    cluster.append("events", *[b"another record"] * 5)


Event = Callable[[Cluster], None]
EVENTS = [(delete, "the partition is gone"), (recreate, "its topic deleted and created again, while it was read")]


def options_for(cluster: Cluster, event: Event) -> SourceOptions:
    """Return options of a task in a worker that has read before; the event comes with the next Fetch of events."""
    options = SourceOptions(
        ClientConfig(bootstrap_servers=cluster.bootstrap),
        subscribe("events", "other"),
        poll_timeout_ms=500 if event is delete else 20_000,  # that long a partition may be unknown
    )
    assert offsets_read(options) == {"events": [0, 1, 2], "other": [0, 1, 2]}
    happened: list[bool] = []

    def happen(exchange: Exchange) -> None:
        if not happened:
            happened.append(True)
            event(cluster)

    cluster.intercept(ApiKey.FETCH, happen)
    return options


def offsets_read(options: SourceOptions) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for batch in worker.read_task(options, ("topic", "offset"), TASK):
        for row in batch.to_pylist():
            found.setdefault(row["topic"], []).append(row["offset"])
    return found


@pytest.mark.parametrize(("event", "said"), EVENTS)
def test_it_is_a_loss_of_data(cluster: Cluster, event: Event, said: str) -> None:
    options = options_for(cluster, event)

    with pytest.raises(DataLoss, match=f"topic 'events', partition 0: .*{said}. Wanted: offsets 0 to 3"):
        offsets_read(options)


@pytest.mark.parametrize(("event", "said"), EVENTS)
def test_with_fail_on_data_loss_false_the_others_are_read(
    cluster: Cluster, event: Event, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = replace(options_for(cluster, event), fail_on_data_loss=False)

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        assert offsets_read(options) == {"other": [0, 1, 2]}

    assert said in caplog.text


def test_a_partition_that_no_broker_leads_is_named() -> None:
    with Cluster(brokers=2).in_thread() as cluster:
        cluster.create_topic("events", 2, replication_factor=1)
        config = ClientConfig(bootstrap_servers=cluster.bootstrap)
        options = SourceOptions(config, subscribe("events"), poll_timeout_ms=500)
        for part in range(2):
            cluster.append("events", b"x", partition=part)
        cluster.take_down(cluster.leader("events", 1) or 0)
        task = tuple(OffsetRange(TopicPartition("events", part), 0, 1) for part in range(2))

        said = r"no progress for 0\.5 s: events-1 at offset 0 .*no broker leads it now"
        with pytest.raises(RequestTimedOut, match=said):
            list(worker.read_task(options, ("offset",), task))

        assert not worker._runtimes, "a task that is tried again has a client of its own"
