"""A Fetch beside the one that a broker parks: for what was sought, assigned or resumed since; once, within bounds."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any

import pytest

from aiokc.config import ClientConfig
from aiokc.core.fetch.beside import FetchBeside
from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.planner import Demand, FetchPlanner, Plans
from aiokc.core.fetch.session import FetchPlan
from aiokc.core.fetch.stall_watch import NO_WAIT
from aiokc.core.subscription.state import Subscription
from aiokc.types import TopicPartition

from .test_fetch import A0, A1, B0, add, batch, cluster, reading

MS = 1e-3


class Parked:
    """A planner whose only broker got a Fetch of A0 and A1 at 0 ms, and has not answered it. B0 is led by it, too."""

    def __init__(self, *partitions: TopicPartition, demand: Demand | None = None, **options: Any) -> None:
        self.subscription: Subscription = reading(*(partitions or (A0, A1)), at=10)
        self.config = ClientConfig(**options)
        self.buffer = FetchBuffer(budget=self.config.fetch_buffer_bytes)
        self.planner = FetchPlanner(self.subscription, self.buffer, self.config)
        self.demand = demand or Demand()
        self.busy: dict[int, int] = {}
        self.beside: dict[int, int] = {}
        (first,) = self.plan(0.0).fetches
        assert not first.is_beside
        self.first = first
        self.busy = {1: first.max_bytes}

    def plan(self, now: float) -> Plans:
        snapshot = cluster(dict.fromkeys((A0, A1, B0, *self.subscription.assigned), 1))
        while self.planner.look(snapshot, now, 100).more:
            pass
        return self.planner.plan(self.busy, now, self.demand, self.beside)

    def beside_at(self, now: float) -> list[tuple[TopicPartition, int]]:
        """What a Fetch beside asks for that is planned at this time; it counts as in flight from then on."""
        fetches = self.plan(now).fetches
        if not fetches:
            return []
        (plan,) = fetches
        assert plan.is_beside
        assert (plan.session.session_id, plan.session.epoch, plan.max_wait_ms) == (0, -1, 0), "in no session, at once"
        self.beside = {1: plan.max_bytes}
        return asked(plan)


def asked(plan: FetchPlan) -> list[tuple[TopicPartition, int]]:
    return [(target.tp, target.offset) for target in plan.session.asked]


def test_what_was_sought_is_asked_for_once_the_fetch_in_flight_seems_to_be_parked() -> None:
    parked = Parked()
    assert parked.plan(6 * MS).beside_at == inf, "it asks for all that is wanted"
    parked.subscription.seek(A0, 3)
    early = parked.plan(1 * MS)
    assert early.fetches == []
    assert early.beside_at == pytest.approx(5 * MS)
    assert parked.beside_at(5 * MS) == [(A0, 3)]
    parked.beside = {}
    assert parked.beside_at(20 * MS) == [], "it was asked for: there was nothing"


def test_what_was_assigned_or_resumed_is_asked_for_too() -> None:
    parked = Parked()
    parked.subscription.assign([A0, A1, B0])
    parked.subscription.seek(B0, 7)
    parked.subscription.pause(A1, True)
    assert parked.beside_at(5 * MS) == [(B0, 7)]
    parked.beside, parked.busy = {}, {}
    (following,) = parked.plan(6 * MS).fetches
    assert asked(following) == [(A0, 10), (B0, 7)]
    parked.busy = {1: following.max_bytes}
    parked.subscription.pause(A1, False)
    assert parked.beside_at(20 * MS) == [(A1, 10)]


def test_what_was_paused_only_for_a_moment_is_asked_for_already() -> None:
    parked = Parked()
    parked.subscription.pause(A1, True)
    parked.plan(1 * MS)
    parked.subscription.pause(A1, False)
    assert parked.beside_at(20 * MS) == []


def test_it_goes_on_behind_the_records_that_came_until_the_session_asks_for_them() -> None:
    parked = Parked()
    parked.subscription.seek(A0, 3)
    assert parked.beside_at(5 * MS) == [(A0, 3)]
    add(parked.buffer, parked.subscription, A0, 3, batch(3, 4))
    assert parked.beside_at(20 * MS) == [], "one at a time"
    parked.beside = {}
    assert parked.beside_at(20 * MS) == [(A0, 7)]
    parked.busy = {}
    (following,) = parked.plan(21 * MS).fetches
    assert asked(following) == [(A1, 10), (A0, 7)], "the session asks for the same: what comes twice is dropped"
    parked.busy, parked.beside = {1: following.max_bytes}, {}
    add(parked.buffer, parked.subscription, A0, 7, batch(7, 4))
    assert parked.beside_at(40 * MS) == [], "the answer to that one brings it, and is on its way"


def test_a_consumer_that_seeks_all_the_time_asks_every_5_ms() -> None:
    parked = Parked()
    times = []
    for number in range(1000):
        parked.subscription.seek(A0, number)
        if parked.beside_at(number * MS / 4):
            times.append(number / 4)
        parked.beside = {}
    assert 45 <= len(times) <= 50
    assert min(later - earlier for earlier, later in pairwise(times)) >= 5.0


def test_no_more_than_250_partitions_at_once() -> None:
    many = [TopicPartition("c", number) for number in range(600)]
    parked = Parked()
    parked.subscription.assign([A0, A1, *many])
    for tp in many:
        parked.subscription.seek(tp, 0)
    counts = []
    for number in range(1, 6):
        counts.append(len(parked.beside_at(number * 5.1 * MS)))
        parked.beside = {}
    assert counts == [250, 250, 100, 0, 0]


def test_a_fetch_that_the_broker_does_not_park_for_long_needs_none_beside() -> None:
    parked = Parked(fetch_max_wait_ms=20)
    parked.subscription.seek(A0, 3)
    assert parked.plan(6 * MS).beside_at == inf
    assert parked.beside_at(19 * MS) == []


def test_what_it_may_bring_is_within_the_budget() -> None:
    parked = Parked(fetch_buffer_bytes=100_000, max_partition_fetch_bytes=10_000, fetch_max_bytes=100_000)
    for tp in (A0, A1):
        parked.subscription.seek(tp, 3)
    (beside,) = parked.plan(5 * MS).fetches
    assert beside.max_bytes == 20_000
    parked.beside, parked.busy = {1: beside.max_bytes}, {1: 70_000}
    assert parked.plan(6 * MS).fetches == []
    parked.busy = {}
    parked.planner.answered(1, has_more=True)
    (following,) = parked.plan(7 * MS).fetches
    assert following.max_bytes + beside.max_bytes <= 100_000


def test_its_answer_says_nothing_of_what_the_other_one_leaves_out() -> None:
    parked = Parked()
    parked.planner.answered(1, has_more=True, is_of_some=True)
    assert parked.planner.turn(1) == (1, 0, NO_WAIT)
    parked.planner.answered(1, has_more=True)
    parked.planner.answered(1, has_more=True, is_of_some=True)
    assert parked.planner.turn(1) == (1, 1, 2 + 10)
    parked.planner.answered(1, has_more=False)
    assert parked.planner.turn(1) == (1, 1, NO_WAIT)
    assert parked.planner.turn(7) == (7, 0, NO_WAIT)


def test_there_is_none_without_room() -> None:
    parked = Parked(fetch_buffer_bytes=100_000, max_partition_fetch_bytes=10_000)
    parked.busy = {1: 95_000}
    parked.subscription.seek(A0, 3)
    assert parked.beside_at(5 * MS) == []
    parked.busy = {1: 10_000}
    assert parked.beside_at(6 * MS) == [(A0, 3)]


def test_nor_does_that_of_a_fetch_which_leaves_partitions_out_for_want_of_room() -> None:
    parked = Parked(demand=Demand(waits=True, only=frozenset({A0})), fetch_buffer_bytes=100_000)
    assert not parked.first.is_of_some
    parked.busy, parked.beside = {}, {7: 100_000}
    (confined,) = parked.plan(1 * MS).fetches
    assert (confined.is_confined, confined.is_of_some) == (True, True)
    parked.demand = Demand(waits=True)
    (of_all,) = parked.plan(2 * MS).fetches
    assert not of_all.is_of_some, "the application waits for all of them"


def test_a_plan_for_one_of_many_brokers_looks_at_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle consumer of hundreds of brokers plans after each answer: its cost must not grow with their square."""
    partitions = [TopicPartition("t", index) for index in range(50)]
    snapshot, subscription = cluster({tp: tp.partition for tp in partitions}), reading(*partitions)
    planner = FetchPlanner(subscription, FetchBuffer(), ClientConfig())
    planner.look(snapshot, 0.0, 100)
    busy = {fetch.node_id: fetch.max_bytes for fetch in planner.plan({}, 0.0).fetches}
    assert len(busy) == 50
    looks: list[FetchBeside] = []
    reason = FetchBeside.at.fget  # type: ignore[attr-defined]

    def at(beside: FetchBeside) -> float:
        looks.append(beside)
        return float(reason(beside))

    monkeypatch.setattr(FetchBeside, "at", property(at))
    del busy[7]
    planner.answered(7, has_more=False)
    assert [fetch.node_id for fetch in planner.plan(busy, 1.0).fetches] == [7]
    assert len(looks) <= 1
    subscription.seek(partitions[9], 5)
    planner.look(snapshot, 1.0, 100)
    assert planner.plan(busy | {7: 1}, 1.0).fetches[0].node_id == 9
    assert {id(beside) for beside in looks} == {id(planner._nodes[9].beside)}
