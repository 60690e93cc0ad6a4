"""The heartbeat plan: when the watchdog thread sends heartbeats for a member whose event loop is blocked."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.backoff import Backoff
from aiokc.core.group.classic.heartbeats import Heartbeats
from aiokc.core.group.events import MemberToken
from aiokc.core.group.loop_watch import (
    AskLoop,
    Beat,
    HeartbeatPlan,
    NextStep,
    Rest,
    SayGoodbye,
    Seen,
    by_the_thread,
    grace_of,
    least_rest,
    next_step,
)

MEMBER, STATIC = MemberToken(5, "m-1"), MemberToken(5, "m-1", "instance")
VIGIL = HeartbeatPlan(by_the_thread(MEMBER), due=103.0, grace=1.5, interval=3.0, max_poll_interval=300.0)


def watched(plan: HeartbeatPlan, seen: Seen, until: float, polled: float = 100.0) -> list[tuple[float, NextStep]]:
    """Return what the thread does from ``seen.loop_alive`` on, for a loop that never gives a sign of life again."""
    now = seen.loop_alive
    done: list[tuple[float, NextStep]] = []
    while now < until:
        step = next_step(plan, seen, polled, now)
        if isinstance(step, Rest):
            assert step.until > now, "it would not rest at all"
            now = step.until
            continue
        done.append((now, step))
        if isinstance(step, AskLoop):
            seen.asked = now
        elif isinstance(step, Beat):
            seen.spoken = now
        else:
            break
    return done


def test_a_healthy_loop_is_never_asked() -> None:
    assert next_step(VIGIL, Seen(100.0), 100.0, 100.0) == Rest(103.75)
    on_time = HeartbeatPlan(by_the_thread(MEMBER), due=106.0, grace=1.5, interval=3.0, max_poll_interval=300.0)
    assert next_step(on_time, Seen(103.0), 100.0, 103.75) == Rest(106.75)


def test_a_loop_that_waits_for_a_slow_answer_is_asked_once_per_interval() -> None:
    seen = Seen(100.0)
    assert next_step(VIGIL, seen, 100.0, 103.75) == AskLoop()
    seen.asked = 103.75
    seen.loop_alive = 103.76
    assert next_step(VIGIL, seen, 100.0, 103.77) == Rest(106.75)


def test_for_a_blocked_loop_a_heartbeat_is_sent_each_interval_once_the_grace_is_over() -> None:
    steps = watched(VIGIL, Seen(100.0), 115.0)
    assert steps == [(103.75, AskLoop()), (104.5, Beat()), (107.5, Beat()), (110.5, Beat()), (113.5, Beat())]


def test_for_a_loop_that_is_back_no_heartbeat_is_sent() -> None:
    seen = Seen(100.0)
    watched(VIGIL, seen, 108.0)
    seen.loop_alive = 108.0
    assert isinstance(next_step(VIGIL, seen, 100.0, 108.0), Rest)


def test_after_max_poll_interval_a_dynamic_member_leaves() -> None:
    steps = watched(VIGIL, Seen(100.0), math.inf)
    assert steps[-2:] == [(398.5, Beat()), (400.0, SayGoodbye())]


def test_after_max_poll_interval_a_static_member_falls_silent() -> None:
    static = HeartbeatPlan(by_the_thread(STATIC), due=103.0, grace=1.5, interval=3.0, max_poll_interval=300.0)
    seen = Seen(100.0)
    assert watched(static, seen, math.inf)[-1] == (398.5, Beat())
    assert next_step(static, seen, 100.0, 400.0) == Rest(math.inf)


def test_for_a_member_that_polled_long_ago_no_heartbeat_is_sent() -> None:
    late = HeartbeatPlan(by_the_thread(MEMBER), due=103.0, grace=1.5, interval=3.0, max_poll_interval=4.0)
    assert watched(late, Seen(100.0), math.inf) == [(103.75, AskLoop()), (104.5, SayGoodbye())]


@pytest.mark.parametrize(("interval", "session", "grace"), [(3, 45, 10.5), (3, 6, 0.75), (5, 6, 0.5), (0.02, 0.2, 0.5)])
def test_the_grace(interval: float, session: float, grace: float) -> None:
    assert grace_of(interval, session) == grace


@given(interval=st.floats(0.5, 20.0), more=st.floats(1.5, 5.0), last=st.floats(0.0, 1.0), end=st.floats(1.0, 500.0))
def test_the_session_is_kept_alive_whenever_the_loop_stops(
    interval: float, more: float, last: float, end: float
) -> None:
    """The coordinator hears of the member more often than once in a session, from the loop or from the thread."""
    session = interval * more + 0.5
    sent = 100.0
    plan = HeartbeatPlan(
        by_the_thread(MEMBER), sent + interval, grace_of(interval, session), interval, max_poll_interval=end
    )
    steps = watched(plan, Seen(sent + last * interval), math.inf, polled=sent)
    heard = [sent, *(when for when, step in steps if not isinstance(step, AskLoop))]
    assert all(after - before < session for before, after in pairwise(heard))
    assert isinstance(steps[-1][1], SayGoodbye)


def test_nothing_is_to_be_done_before_the_first_look() -> None:
    assert next_step(VIGIL, Seen(50.0), 100.0, VIGIL.first_look - 0.01) == Rest(VIGIL.first_look)
    assert next_step(VIGIL, Seen(50.0), 100.0, VIGIL.first_look) == AskLoop()


def test_the_heartbeat_plan_ignores_heartbeats_that_come_sooner_than_usual() -> None:
    """The session has just begun, so there is no hurry, and the thread need not be woken for each assignment."""
    heartbeats = Heartbeats(3.0, 45.0, Backoff(0.1, 1.0, Random(1)))
    heartbeats.start(100.0)
    plan = heartbeats.plan(MEMBER, 300.0)
    assert plan.first_look == 100.0 + least_rest(3.0, 45.0)
    heartbeats.expect_another_round(100.0)
    assert heartbeats.deadline == 100.1
    assert heartbeats.plan(MEMBER, 300.0) == plan
