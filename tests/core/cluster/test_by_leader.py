"""What is asked about partitions, by the leader that can tell."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import TypeVar

import pytest

from aiokc.core.cluster.by_leader import former_leaders, group_by_leader, is_any_led
from aiokc.core.cluster.snapshot import Cluster
from aiokc.types import Broker, PartitionInfo, TopicInfo, TopicPartition

R = TypeVar("R")


def topic(name: str, leaders: list[int | None]) -> TopicInfo:
    return TopicInfo(name, {number: PartitionInfo(name, number, leader) for number, leader in enumerate(leaders)})


def brokers(*node_ids: int) -> Mapping[int, Broker]:
    return {one: Broker(one, "h", one) for one in node_ids}


def test_partitions_without_a_known_leader_are_left_out() -> None:
    leaders = [1, 2, 1, None, 9]  # 9 is no broker of the snapshot
    cluster = Cluster(brokers=brokers(1, 2), topics={"t": topic("t", leaders)})
    asked = {TopicPartition("t", number): f"about {number}" for number in (2, 1, 0, 3, 4, 5)}
    asked[TopicPartition("u", 0)] = "another topic"
    grouped = group_by_leader(cluster, asked)
    assert grouped == {
        1: {TopicPartition("t", 0): "about 0", TopicPartition("t", 2): "about 2"},
        2: {TopicPartition("t", 1): "about 1"},
    }
    assert list(grouped[1]) == [TopicPartition("t", 2), TopicPartition("t", 0)]  # in the order of what is asked


def done(steps: Generator[None, None, R]) -> tuple[R, int]:
    """Return the result, and after how many steps it came."""
    for number in range(100):
        try:
            next(steps)
        except StopIteration as end:
            return end.value, number
    raise AssertionError("no end")


T = [TopicPartition("t", number) for number in range(4)]
BEFORE = Cluster(1, brokers=brokers(1, 2, 3), topics={"t": topic("t", [1, 2, None, 3])})


@pytest.mark.parametrize(
    ("leaders", "known", "former"),
    [
        ([1, 2, None, 3], (1, 2, 3), set()),
        ([2, 2, None, 3], (1, 2, 3), {1}),
        ([3, 1, None, None], (1, 2, 3), {1, 2}),
        ([1, 2, 1, 3], (1, 2, 3), {None}),
        ([1, 2, None, 9], (1, 2, 3), set()),
        ([1, 2, None, 9], (1, 2, 9), {3}),
        ([], (1, 2, 3), set()),
    ],
)
def test_the_former_leaders_of_partitions_that_have_another_one(
    leaders: list[int | None], known: tuple[int, ...], former: set[int | None]
) -> None:
    now = Cluster(2, brokers=brokers(*known), topics={"t": topic("t", leaders)})
    assert done(former_leaders(BEFORE, now, T)) == (former, 0)
    assert done(is_any_led(now, T)) == (any(leaders), 0)


def test_a_broker_that_is_back_leads_again_what_has_not_changed() -> None:
    away = replace(BEFORE, brokers=brokers(1, 2))
    assert done(former_leaders(away, BEFORE, T)) == ({None}, 0)


def test_nothing_is_looked_at_where_no_topic_has_changed() -> None:
    partitions = iter(T)
    now = replace(BEFORE, version=2, brokers=dict(BEFORE.brokers), topics=dict(BEFORE.topics))
    assert done(former_leaders(BEFORE, now, partitions)) == (set(), 0)
    assert list(partitions) == T


def test_thousands_of_partitions_are_looked_at_in_steps() -> None:
    many = [TopicPartition("t", number) for number in range(2_500)]
    before = Cluster(1, brokers=brokers(1, 2), topics={"t": topic("t", [None] * 2_500)})
    now = replace(before, version=2, topics={"t": topic("t", [None] * 2_499 + [1])})
    assert done(former_leaders(before, now, many)) == ({None}, 2)
    assert done(is_any_led(now, many)) == (True, 2)
    assert done(is_any_led(before, many)) == (False, 2)
