"""A worker process serves queries with different options of their clients: it keeps the clients that it used last."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from aiokc import ClientConfig, TopicPartition
from aiokc.testing import Cluster
from spark_source import runtimes, worker
from spark_source.options.source_options import SourceOptions
from spark_source.options.topic_choice import subscribe
from spark_source.planning.task_plan import OffsetRange, Task

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"events": 1}).in_thread() as running:
        running.append("events", b"x")
        yield running
    for config in list(runtimes._runtimes):
        runtimes._runtimes.pop(config).close()


def readers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "aiokc in a Spark worker"}


def task_as(cluster: Cluster, client_id: str) -> tuple[SourceOptions, Task]:
    config = ClientConfig(bootstrap_servers=cluster.bootstrap, client_id=client_id)
    return SourceOptions(config, subscribe("events")), (OffsetRange(TopicPartition("events", 0), 0, 1),)


def read_as(cluster: Cluster, client_id: str) -> None:
    options, task = task_as(cluster, client_id)
    assert [len(batch) for batch in worker.read_task(options, ("offset",), task)] == [1]


def test_only_the_clients_that_were_used_last_are_kept(cluster: Cluster) -> None:
    before = readers()

    for client_id in ("a", "b", "c", "d", "a", "e", "f"):
        read_as(cluster, client_id)

    assert [config.client_id for config, _ in runtimes._runtimes] == ["d", "a", "e", "f"]
    assert {runtime.thread._thread for runtime in runtimes._runtimes.values()} == readers() - before


def test_a_client_that_is_kept_is_used_again(cluster: Cluster) -> None:
    read_as(cluster, "a")
    (kept,) = runtimes._runtimes.values()
    read_as(cluster, "b")

    read_as(cluster, "a")

    assert list(runtimes._runtimes.values())[-1] is kept


@pytest.mark.parametrize(("seconds", "kept"), [(59, ["a", "b", "c"]), (60, ["b", "c"])])
def test_a_client_that_is_unused_for_a_minute_is_closed_by_the_next_task(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, seconds: int, kept: list[str]
) -> None:
    """Its query has ended, and its password may be exchanged: a client that stays would log in with it again."""
    now = 100.0
    monkeypatch.setattr(runtimes, "time", SimpleNamespace(monotonic=lambda: now))
    before = readers()
    read_as(cluster, "a")
    options, task = task_as(cluster, "b")
    batches = worker.read_task(options, ("offset",), task)
    next(batches)
    now += seconds  # the task of "b" takes so long
    assert list(batches) == []

    read_as(cluster, "c")

    assert [config.client_id for config, _ in runtimes._runtimes] == kept
    assert {runtime.thread._thread for runtime in runtimes._runtimes.values()} == readers() - before


def test_a_client_that_is_used_each_minute_is_kept(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(runtimes, "time", SimpleNamespace(monotonic=lambda: now))
    read_as(cluster, "a")
    (kept,) = runtimes._runtimes.values()
    for _ in range(2):
        now += 59
        read_as(cluster, "a")
        read_as(cluster, "b")

    assert next(iter(runtimes._runtimes.values())) is kept


def test_a_client_that_is_not_closed_well_takes_no_other_with_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task fails, and its own client is still there for the next one."""
    now = 100.0
    monkeypatch.setattr(runtimes, "time", SimpleNamespace(monotonic=lambda: now))
    read_as(cluster, "a")
    (kept,) = runtimes._runtimes.values()
    read_as(cluster, "b")
    close = runtimes.Runtime.close

    def close_badly(runtime: runtimes.Runtime) -> None:
        close(runtime)
        raise RuntimeError("the loop is closed")

    monkeypatch.setattr(runtimes.Runtime, "close", close_badly)
    now += 60
    with pytest.raises(RuntimeError, match="the loop is closed"):
        read_as(cluster, "a")
    monkeypatch.setattr(runtimes.Runtime, "close", close)

    assert list(runtimes._runtimes.values()) == [kept]
    read_as(cluster, "a")


def use_others(cluster: Cluster) -> None:
    for client_id in ("b", "c", "d", "e"):
        read_as(cluster, client_id)


def abandon_a_read(cluster: Cluster) -> None:
    options, task = task_as(cluster, "a")
    batches = worker.read_task(options, ("offset",), task)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    read_as(cluster, "a")


@pytest.mark.parametrize("give_up", [use_others, abandon_a_read])
def test_a_client_that_is_given_up_does_not_stay_in_memory(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, give_up: Callable[[Cluster], None]
) -> None:
    """The first reads exempt all that there is from garbage collection, so the client of the first query, too."""
    monkeypatch.setattr(runtimes.settling, "_unsettled_reads", 2)
    for _ in range(2):
        read_as(cluster, "a")
    (kept,) = runtimes._runtimes.values()
    assert kept._client is not None
    inside = weakref.ref(kept._client._cluster)
    del kept
    assert inside() is not None

    give_up(cluster)

    gc.collect()  # as PySpark's worker does after each task
    assert inside() is None
    assert gc.get_freeze_count() > 10_000, "what stays is exempt again"
