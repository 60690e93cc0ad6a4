"""A broker dies while a task reads from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiokc import ClientConfig, TopicPartition
from aiokc.errors import NoBrokersAvailable, RequestTimedOut
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from spark_source import runtimes, worker
from spark_source.options.security_options import NO_SECURITY
from spark_source.options.source_options import SourceOptions
from spark_source.options.topic_choice import subscribe
from spark_source.planning.task_plan import OffsetRange

BATCHES, RECORDS = 60, 10


@pytest.mark.parametrize("dies_at_fetch", [1, 4])
def test_a_leader_that_dies_costs_the_task_no_row(dies_at_fetch: int) -> None:
    with Cluster(brokers=3, topics={"events": 3}).in_thread() as cluster:
        for part in range(3):
            for _ in range(BATCHES):
                cluster.append("events", *[b"x" * 100] * RECORDS, partition=part)
        dying = cluster.leader("events", 0)
        assert dying is not None
        fetched: list[int] = []

        def die(exchange: Exchange) -> None:
            fetched.append(exchange.broker)
            if fetched.count(dying) == dies_at_fetch and exchange.broker == dying:
                cluster.take_down(dying)

        cluster.intercept(ApiKey.FETCH, die)
        config = ClientConfig(bootstrap_servers=cluster.bootstrap, max_partition_fetch_bytes=4096)
        options = SourceOptions(config, subscribe("events"), poll_timeout_ms=30_000)
        task = tuple(OffsetRange(TopicPartition("events", part), 0, BATCHES * RECORDS) for part in range(3))
        try:
            batches = list(worker.read_task(options, ("partition", "offset"), task))
        finally:
            if (runtime := runtimes._runtimes.pop((config, NO_SECURITY), None)) is not None:
                runtime.close()

    rows = [row for batch in batches for row in zip(*(batch.column(n).to_pylist() for n in (0, 1)), strict=True)]
    assert sorted(rows) == [(part, offset) for part in range(3) for offset in range(BATCHES * RECORDS)]
    assert len(fetched) > fetched.count(dying) == dies_at_fetch


def test_a_task_whose_brokers_are_all_gone_fails_within_its_poll_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks: one whose client is connected, and one in a fresh worker. The client's own limit is a minute."""
    monkeypatch.setattr("spark_source.worker._LOOK_MS", 200)
    with Cluster(brokers=2, topics={"events": 1}).in_thread() as cluster:
        cluster.append("events", b"x")
        options = SourceOptions(
            ClientConfig(bootstrap_servers=cluster.bootstrap), subscribe("events"), poll_timeout_ms=20_000
        )
        task = (OffsetRange(TopicPartition("events", 0), 0, 1),)
        assert [len(batch) for batch in worker.read_task(options, ("offset",), task)] == [1]
        for broker in (1, 2):
            cluster.take_down(broker)
        options = replace(options, poll_timeout_ms=400)

        with pytest.raises(RequestTimedOut, match=r"no progress for 0\.4 s"):
            list(worker.read_task(options, ("offset",), task))
        assert not runtimes._runtimes
        with pytest.raises(NoBrokersAvailable):
            list(worker.read_task(options, ("offset",), task))
