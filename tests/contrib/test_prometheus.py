"""Consumers as Prometheus sees them: scraped, and read by prometheus_client's own parsers."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from aiokc import Consumer
from aiokc.contrib.prometheus import collector, exposition
from aiokc.contrib.series import SERIES, Kind, Scope
from aiokc.errors import ConfigError, KafkaError
from aiokc.testing import Cluster

from ..client.virtually import virtually
from .consumers import T0, T1, application, consumer

pytestmark = pytest.mark.timeout(30)

ONE = {"client_id": "c", "group": "g"}


def scraped(registry: CollectorRegistry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All samples by name and labels; the same in both text formats."""
    found = _samples(parse(exposition(registry).decode()))
    assert _samples(parse_open(generate_open(registry).decode())).keys() == found.keys()  # type: ignore[no-untyped-call]
    return found


def _samples(families: Any) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    samples = [sample for family in families for sample in family.samples]
    found = {(one.name, frozenset(one.labels.items())): one.value for one in samples}
    assert len(found) == len(samples), "no series is there twice"
    return found


def of(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float:
    return found[f"aiokc_consumer_{name}", frozenset((ONE | labels).items())]


def test_a_scrape_has_what_health_and_metrics_tell() -> None:
    async def story(cluster: Cluster) -> None:
        registry = CollectorRegistry()
        cluster.append("t", *[b"v"] * 10)
        async with consumer(cluster, "t", group_id="g") as reader:
            collector(reader, registry=registry)
            await reader.wait_assigned()
            await reader.getmany(T0, max_records=4)
            await reader.position(T1)
            await reader.commit()
            await asyncio.sleep(5.0)
            metrics, found = reader.metrics(), scraped(registry)
            assert of(found, "polls_total") == 2
            assert of(found, "records_total") == 4
            assert of(found, "fetched_bytes_total") == metrics.bytes > 0
            assert of(found, "fetch_seconds_count") == metrics.fetches.count > 0
            assert of(found, "fetch_seconds_sum") == pytest.approx(metrics.fetches.total_ms / 1e3)
            assert of(found, "fetch_seconds_max") == pytest.approx(metrics.fetches.max_ms / 1e3)
            assert of(found, "join_seconds_count") == of(found, "sync_seconds_count") == 1
            assert of(found, "rebalance_seconds_count") == of(found, "commit_seconds_count") == 1
            assert of(found, "heartbeat_seconds_count") == metrics.heartbeats.count > 0
            assert of(found, "lag", topic="t", partition="0") == 6
            assert of(found, "lead", topic="t", partition="0") == 4
            assert of(found, "position", topic="t", partition="0") == 4
            assert of(found, "committed", topic="t", partition="0") == 4
            assert of(found, "committed", topic="t", partition="1") == 0
            assert of(found, "buffered_records") == 6
            assert of(found, "user_seconds_total") == pytest.approx(5.0, abs=0.1)
            assert of(found, "poll_wait_seconds_total") == pytest.approx(metrics.poll_wait_ms / 1e3)
            assert of(found, "assigned_partitions") == 2
            assert of(found, "last_poll_age_seconds") == pytest.approx(5.0, abs=0.1)
            assert of(found, "up") == 1
            assert of(found, "stalled_partitions") == 0
            assert of(found, "loop_lag_seconds_count") == metrics.loop_lag.count >= 4
            assert of(found, "deserialization_failures_total") == of(found, "lost_partitions_total") == 0
            assert of(found, "revoked_partitions_total") == of(found, "failed_commits_total") == 0
            assert not [name for name, _ in found if "node" in name], "left out by default"
        stopped = scraped(registry)
        assert of(stopped, "up") == 0
        assert of(stopped, "revoked_partitions_total") == 2

    virtually(story)


def test_a_partition_counts_as_stalled_after_a_minute() -> None:
    """A scrape while a partition waits for an answer finds it without records, too: no alarm for that."""

    async def story(cluster: Cluster) -> None:
        registry = CollectorRegistry()
        cluster.append("t", b"1", b"two", b"3")
        async with consumer(cluster, "t", group_id="g", value_deserializer=int) as reader:
            collector(reader, registry=registry)
            reading = asyncio.ensure_future(application(reader, 1.0))
            counted = []
            for _ in range(12):
                await asyncio.sleep(10.0)
                counted.append(of(scraped(registry), "stalled_partitions"))
                assert reader.health().stalled.keys() == {T0}
            assert counted == [0.0] * 6 + [1.0] * 6
            reading.cancel()
            await asyncio.wait([reading])

    virtually(story)


def test_every_series_of_the_table_is_exported_under_its_names() -> None:
    async def story(cluster: Cluster) -> None:
        registry = CollectorRegistry()
        cluster.append("t", b"v")
        async with consumer(cluster, "t", group_id="g") as reader:
            collector(reader, registry=registry, nodes=True)
            await reader.getmany()
            await reader.commit()
            await asyncio.sleep(5.0)
            found = scraped(registry)
            assert {name for name, _ in found} == {name for series in SERIES for name in series.prometheus_names}
            types = {family.name: family.type for family in parse(generate_latest(registry).decode())}
            for series in SERIES:
                kind = {Kind.COUNTER: "counter", Kind.LATENCY: "summary"}.get(series.kind, "gauge")
                assert types[f"aiokc_consumer_{series.prometheus}"] == kind
            leader = cluster.leader("t")
            assert of(found, "node_connected", node=str(leader)) == 1
            assert of(found, "node_request_seconds_count", node=str(leader)) > 0

    virtually(story)


@pytest.mark.parametrize(
    ("options", "protocols"),
    [
        ({"group_id": "g", "group_protocol": "consumer"}, ["consumer", "consumer"]),
        ({"group_id": "g", "group_protocol": "classic"}, ["classic", "classic"]),
        ({"group_id": "g", "group_protocol": "auto"}, [None, "consumer"]),
        ({}, [None, None]),
    ],
)
def test_the_group_protocol_is_the_one_in_use(options: dict[str, Any], protocols: list[str | None]) -> None:
    async def story(cluster: Cluster) -> None:
        registry, seen = CollectorRegistry(), []
        reader = consumer(cluster, "t", **options)
        collector(reader, registry=registry)
        for _ in range(2):
            labels = [dict(of_it) for name, of_it in scraped(registry) if name == "aiokc_consumer_group_protocol"]
            seen.append(labels[0]["protocol"] if labels else None)
            await reader.start()
            await reader.wait_assigned()
        await reader.stop()
        assert seen == protocols

    virtually(story)


def test_sums_by_topic_instead_of_a_series_for_each_partition() -> None:
    async def story(cluster: Cluster) -> None:
        registry = CollectorRegistry()
        for partition in (0, 1):
            cluster.append("t", *[b"v"] * 10, partition=partition)
        async with consumer(cluster, "t", group_id="g") as reader:
            collector(reader, registry=registry, per_partition=False)
            await reader.wait_assigned()
            await reader.getmany(T0, max_records=4)
            await asyncio.sleep(1.0)
            found = scraped(registry)
            assert of(found, "lag", topic="t") == 16
            assert of(found, "lead", topic="t") == 0
            assert not [labels for _, labels in found if "partition" in dict(labels)]
            assert len(found) < 60

    virtually(story)


def test_several_consumers_and_what_labels_can_hold() -> None:
    async def story(cluster: Cluster) -> None:
        registry = CollectorRegistry()
        strange = 'say "ü"\\\n'
        one, two = consumer(cluster, group_id="g"), consumer(cluster, client_id=strange)
        made = collector(one, registry=registry)
        made.add(two)
        found = scraped(registry)
        assert of(found, "up") == 0
        labels = frozenset({"client_id": strange, "group": ""}.items())
        assert found["aiokc_consumer_up", labels] == 0
        with pytest.raises(ConfigError, match="two consumers have client_id='c' and group_id='g'"):
            made.add(consumer(cluster, group_id="g"))
        with pytest.raises(ConfigError, match="series of consumers already, of a collector that nobody has closed"):
            collector(two, registry=registry)
        made.remove(two)
        assert len([name for name, _ in scraped(registry) if name == "aiokc_consumer_up"]) == 1
        made.close()
        assert scraped(registry) == {}
        made.close()  # again, which does nothing, also not to the next one
        for _ in range(2):
            with collector(two, registry=registry) as made:
                assert len([name for name, _ in scraped(registry) if name == "aiokc_consumer_up"]) == 1
        assert scraped(registry) == {}

    virtually(story)


async def test_a_consumer_that_was_stopped_makes_room_for_the_next_one() -> None:
    """A task that restarts its consumer may hold the last one still, by the error that ended it."""
    registry = CollectorRegistry()
    async with Cluster(topics={"t": 1}) as cluster:
        async with consumer(cluster, "t", group_id="g") as ended:
            made = collector(ended, registry=registry)
            with pytest.raises(ConfigError, match="two consumers"):
                made.add(consumer(cluster, "t", group_id="g"))
        never = consumer(cluster, "t", group_id="g")
        made.add(never)
        cluster.take_down(1)
        with pytest.raises(KafkaError):
            await never.start(timeout_ms=50)
        cluster.heal()
        cancelled = consumer(cluster, "t", group_id="g")
        made.add(cancelled)
        await cancelled.start()
        background = cancelled._runtime.cluster_client.background._task
        assert background is not None
        background.cancel()
        await asyncio.wait([background])
        async with consumer(cluster, "t", group_id="g") as successor:
            made.add(successor)
            assert of(scraped(registry), "up") == 1
        await cancelled.stop()


def test_the_collector_keeps_no_consumer_alive() -> None:
    async def story(cluster: Cluster) -> None:
        registry = CollectorRegistry()
        made = collector(consumer(cluster, group_id="g"), registry=registry)
        gc.collect()
        assert scraped(registry) == {}
        made.add(consumer(cluster, group_id="g"))
        for number in range(10):
            made.add(consumer(cluster, client_id=f"worker-{number}"))
        gc.collect()
        made.add(kept := consumer(cluster, client_id="kept"))
        assert [client for _, client in made._consumers.alive()] == [kept]
        assert len(made._consumers._clients) == 1, "those that are gone are forgotten"

    virtually(story)


async def test_a_scrape_comes_in_another_thread() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", *[b"v"] * 100)
        registry = CollectorRegistry()
        async with Consumer(bootstrap_servers=cluster.bootstrap, client_id="c", auto_offset_reset="earliest") as reader:
            reader.assign([T0])
            collector(reader, registry=registry)
            await reader.getmany()
            text = await asyncio.to_thread(exposition, registry)
            assert b'aiokc_consumer_records_total{client_id="c",group=""} 100.0\n' in text


def test_the_table_names_no_series_twice() -> None:
    names = [name for series in SERIES for name in series.prometheus_names]
    assert len(names) == len(set(names))
    others = [name for series in SERIES for name in series.otel_names]
    assert len(others) == len(set(others))
    assert {series.scope for series in SERIES} == set(Scope)
