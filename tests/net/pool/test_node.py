"""Pauses between attempts to connect to one broker; the clock is a number."""

from __future__ import annotations

from random import Random

import pytest

from aiokc.config import ClientConfig
from aiokc.core.backoff import Backoff
from aiokc.core.connection.traffic import NodeTraffic
from aiokc.errors import ConnectionFailed
from aiokc.net.brokers.node import FAILURE_COUNTS_SECONDS, Attempt, Node, Purpose
from aiokc.net.brokers.nodes import Nodes
from aiokc.types import Broker

ERROR = ConnectionFailed("refused")


class NoJitter(Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


@pytest.fixture
def node() -> Node:
    return node_at("h")


def node_at(host: str, *, node_id: int = 1) -> Node:
    backoffs = growing(0.05, 1.0), growing(1.0, 30.0), growing(10.0, 30.0)
    return Node(Broker(node_id, host, 9092), *backoffs, NodeTraffic(), FAILURE_COUNTS_SECONDS)


def growing(shortest: float, longest: float) -> Backoff:
    return Backoff(shortest, longest, NoJitter())


def test_names() -> None:
    assert node_at("h").name == "broker 1 (h:9092)"
    assert node_at("::1", node_id=-1).name == "bootstrap server [::1]:9092"


def test_the_pause_grows_with_each_failure_up_to_the_maximum(node: Node) -> None:
    now, pauses = 100.0, []
    for _ in range(7):
        node.failure(ERROR, now)
        pauses.append(node.retry_at - now)
        now = node.retry_at
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_failures_of_several_purposes_at_once_count_as_one(node: Node) -> None:
    node.failure(ERROR, 100.0)
    node.failure(ERROR, 100.01)
    assert node.retry_at == pytest.approx(100.05)
    node.failure(ERROR, 100.05)
    assert node.retry_at == pytest.approx(100.15)


def test_an_answer_starts_again_from_the_shortest_pause(node: Node) -> None:
    for now in (100.0, 200.0, 300.0):
        node.failure(ERROR, now)
    assert node.view(set(), 300.0).failed
    node.answered()
    assert not node.view(set(), 300.0).failed
    node.failure(ERROR, 400.0)
    assert node.retry_at == pytest.approx(400.05)


async def test_a_failure_counts_as_long_as_the_broker_is_needed_and_for_a_while(node: Node) -> None:
    for now in (100.0, 200.0, 300.0):
        node.failure(ERROR, now)
        assert node.trouble(node.retry_at + 29) is ERROR
        assert node.trouble(node.retry_at + 31) is None
    assert not node.view(set(), 400.0).failed
    assert node.view({1}, 400.0).failed, "for the same request it counts, however long the other brokers took"
    attempt = node.attempts[Purpose.DATA] = Attempt(node, Purpose.DATA)
    assert node.trouble(400.0) is ERROR
    attempt.settle(ERROR)
    assert node.trouble(400.0) is None
    node.refused(ERROR, 430.0)
    assert node.trouble(459.0) is ERROR
    assert node.trouble(461.0) is None


def test_brokers_that_failed_long_ago_are_asked_before_bootstrap_servers() -> None:
    """Only their names may be what fails: those of bootstrap servers need not resolve any more."""
    nodes = Nodes(ClientConfig(bootstrap_servers="h:9092"), Random(1))
    for node in nodes.set_brokers({node_id: Broker(node_id, "h", 9092 + node_id) for node_id in (1, 2)}):
        node.failure(ERROR, 100.0)
    tried, order = set[int](), list[int]()
    while (found := nodes.least_loaded(tried, now=200.0, overdue=False)) is not None:
        found.failure(ERROR, 200.0)
        tried.add(found.broker.node_id)
        order.append(found.broker.node_id)
    assert (sorted(order[:2]), order[2:]) == ([1, 2], [-1])


def test_each_attempt_that_fails_gives_the_next_one_more_time(node: Node) -> None:
    now, limits = 100.0, [node.setup_timeout]
    for _ in range(3):
        node.not_connected(ERROR, now)
        limits.append(node.setup_timeout)
        now = node.retry_at
    assert limits == [10.0, 20.0, 30.0, 30.0]


def test_attempts_for_several_purposes_that_fail_at_once_count_as_one(node: Node) -> None:
    node.not_connected(ERROR, 100.0)
    node.not_connected(ERROR, 100.01)
    assert node.setup_timeout == 20.0


def test_a_failed_request_leaves_the_limit_of_attempts_alone(node: Node) -> None:
    node.failure(ERROR, 100.0)
    assert node.setup_timeout == 10.0


def test_counters_outlive_a_broker_that_was_connected_to_and_no_other() -> None:
    """A broken or hostile broker may name others without end."""
    nodes = Nodes(ClientConfig(bootstrap_servers="h:9092"), Random(1))
    for node_id in range(100):
        (new,) = nodes.set_brokers({node_id: Broker(node_id, "h", 9092)})
        new.traffic.connects += node_id == 7
    assert sorted(nodes.metrics) == [7, 99]
    assert nodes.metrics[7].connects == 1
    nodes.set_brokers({7: Broker(7, "elsewhere", 9092)})
    assert (sorted(nodes.metrics), nodes.metrics[7].connects) == ([7], 1)
