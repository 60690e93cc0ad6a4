"""The watchdog thread of a member whose event loop is blocked. The cluster runs in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from aiokc import Consumer, RebalanceListener
from aiokc.client.group import watchdog as watchdog_module
from aiokc.client.group.watchdog import Watchdog
from aiokc.core.group import loop_watch
from aiokc.core.group.classic import heartbeats
from aiokc.core.group.classic.keepalive import ClassicKeepalive
from aiokc.core.group.classic.messages import ClassicGroup
from aiokc.core.group.events import MemberToken, PollClock, Tick
from aiokc.core.group.loop_watch import HeartbeatPlan, by_the_thread
from aiokc.error_codes import ErrorCode
from aiokc.errors import CommitFailed
from aiokc.net.options import ConnectionOptions, Route
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.types import OffsetAndMetadata, TopicPartition
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest
from tests.net.scripted import dead_port
from tests.suite.unused_faults import may_be_unused

from .group_member import GroupMember

T0 = TopicPartition("t", 0)
#: For a blocked loop the thread sends a heartbeat 0.15 + 0.7 s after the loop's last one, and then every 0.15 s.
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 150, "session_timeout_ms": 30_000}
WITHIN = 60.0


@pytest.fixture(autouse=True)
def unhurried_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that is QUICK has the grace of a session of 3 s, though its session is long.

    A busy machine may give a thread no time for seconds: that must not end the session, nor the wait for an answer.
    """
    grace_of = loop_watch.grace_of

    def grace(interval: float, session_timeout: float) -> float:
        return 0.7 if interval < 1.0 else grace_of(interval, session_timeout)

    monkeypatch.setattr(loop_watch, "grace_of", grace)
    monkeypatch.setattr(heartbeats, "grace_of", grace)
    monkeypatch.setattr(watchdog_module, "_LEAST_PATIENCE", WITHIN)


class Heard:
    """The requests of a member that reach the brokers of a cluster, for any thread to look at."""

    def __init__(self, cluster: Cluster) -> None:
        self.requests: list[Any] = []
        self._changed = threading.Condition()
        for api in (JoinGroupRequest, HeartbeatRequest, LeaveGroupRequest, FindCoordinatorRequest):
            may_be_unused(cluster.intercept(api, self._note))

    def _note(self, exchange: Exchange) -> None:
        with self._changed:
            self.requests.append(exchange.request)
            self._changed.notify_all()

    def count(self, kind: type[Any]) -> int:
        return sum(isinstance(request, kind) for request in self.requests)

    def block_until(self, condition: Callable[[], bool]) -> None:
        """Block the calling thread, and the event loop that runs in it, until ``condition`` holds."""
        with self._changed:
            assert self._changed.wait_for(condition, WITHIN), "the condition did not come"

    def block_for(self, more: int, kind: type[Any] = HeartbeatRequest) -> None:
        wanted = self.count(kind) + more
        self.block_until(lambda: self.count(kind) >= wanted)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, topics={"t": 2}, group_min_session_timeout_ms=1_000).in_thread() as running:
        yield running


@pytest.fixture
def heard(cluster: Cluster) -> Heard:
    return Heard(cluster)


@pytest.fixture
async def member(cluster: Cluster, heard: Heard) -> AsyncIterator[GroupMember]:
    async with GroupMember(cluster.bootstrap, "g", "t", **QUICK) as joined:
        joined.poll()
        await joined.assigned(2)
        yield joined


def blocked_for(seconds: float) -> None:
    """Block the loop, as a handler should not do. Here that is what the test is about."""
    time.sleep(seconds)


def is_connected(member: GroupMember) -> bool:
    return member.membership._driver._watchdog._connection is not None


def thread_of(member: GroupMember) -> threading.Thread | None:
    return member.membership._driver._watchdog._thread


def watchdogs() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "aiokc watchdog"]


@pytest.mark.any_loop
async def test_a_blocked_loop_is_spoken_for_and_nothing_has_happened_when_it_is_back(
    member: GroupMember, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    token = member.membership._machine.member
    lookups = heard.count(FindCoordinatorRequest)
    heard.block_for(8)
    beaten = [request for request in heard.requests if isinstance(request, HeartbeatRequest)]
    assert {(one.generation_id, one.member_id) for one in beaten} == {(1, token.member_id)}
    await member.membership.moved.wait(WITHIN)
    await member.membership.commit({T0: OffsetAndMetadata(1)}, timeout=WITHIN)
    assert member.membership._machine.member == token
    assert member.changed.history == [frozenset(), member.assignment]
    assert heard.count(FindCoordinatorRequest) == lookups, "a coordinator that answers the thread is no silent one"
    # of the watchdog alone: on a starved machine the loop, once back, may warn of a heartbeat that it had no time for
    blocked = [record.levelno for record in caplog.records if "the event loop is blocked" in record.message]
    assert blocked == [logging.WARNING]


async def test_the_thread_hangs_up_when_the_loop_is_back(member: GroupMember, heard: Heard) -> None:
    heard.block_for(5)
    assert is_connected(member)
    async with asyncio.timeout(WITHIN):
        while is_connected(member):
            await member.membership.moved.wait(0.05)
    beaten = heard.count(HeartbeatRequest)
    async with asyncio.timeout(WITHIN):
        while heard.count(HeartbeatRequest) < beaten + 5:
            await member.membership.moved.wait(0.05)
    assert member.membership.generation == 1


async def test_a_rebalance_that_begins_meanwhile_is_joined_when_the_loop_is_back(
    cluster: Cluster, member: GroupMember, heard: Heard
) -> None:
    joins = heard.count(JoinGroupRequest)
    rebalance = cluster.intercept(HeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS, times=0)
    cluster._interceptions.insert(0, cluster._interceptions.pop())  # before the interceptions that only note requests
    rebalance.times = 3
    heard.block_for(3)  # the thread goes on with its heartbeats: the group waits for this member
    assert rebalance.hits == 3
    assert heard.count(JoinGroupRequest) == joins
    await member.until(lambda: member.membership.generation == 2)
    assert member.changed.history == [frozenset(), member.assignment, frozenset(), member.assignment]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID])
async def test_the_thread_sends_nothing_for_a_member_that_the_coordinator_does_not_know(
    cluster: Cluster, member: GroupMember, heard: Heard, code: ErrorCode
) -> None:
    refused = cluster.intercept(HeartbeatRequest, code)
    cluster._interceptions.insert(0, cluster._interceptions.pop())
    watchdog = member.membership._driver._watchdog
    deadline = time.monotonic() + WITHIN
    while watchdog._done is None and time.monotonic() < deadline:
        blocked_for(0.01)
    said = refused.hits  # 1, or 2 if a heartbeat of the loop was on its way
    blocked_for(0.5)  # three intervals
    assert refused.hits == said in (1, 2)
    cluster.heal()
    if code is ErrorCode.UNKNOWN_MEMBER_ID:
        await member.until(lambda: len(member.changed.history) == 3)  # lost
    else:
        assert "same group_instance_id" in str(await member.failed())


async def test_a_coordinator_that_breaks_off_is_connected_to_again(
    cluster: Cluster, member: GroupMember, heard: Heard
) -> None:
    heard.block_for(3)
    for node in (1, 2):
        cluster.disconnect(node)
    heard.block_for(3)
    token = member.membership._machine.member
    await member.membership.commit({T0: OffsetAndMetadata(1)}, timeout=WITHIN)
    assert member.membership._machine.member == token
    assert len(member.changed.history) == 2


@pytest.mark.any_loop
async def test_after_max_poll_interval_the_thread_leaves_and_the_next_poll_joins_again(cluster: Cluster) -> None:
    heard = Heard(cluster)
    async with GroupMember(cluster.bootstrap, "g", "t", **QUICK, max_poll_interval_ms=2_000) as member:
        member.poll()
        await member.assigned(2)
        member.take(T0, 0)
        left = member.membership.member_id
        heard.block_until(lambda: heard.count(LeaveGroupRequest) > 0)
        [leave] = [request for request in heard.requests if isinstance(request, LeaveGroupRequest)]
        assert leave.members[0].member_id == left
        assert "event loop was blocked" in (leave.members[0].reason or "")
        beaten = heard.count(HeartbeatRequest)
        blocked_for(0.5)  # the loop stays blocked, but there is no member any more to send heartbeats for
        assert heard.count(HeartbeatRequest) == beaten
        await member.assigned(0)
        with pytest.raises(CommitFailed, match="max_poll_interval_ms=2000"):
            await member.membership.commit({T0: OffsetAndMetadata(1)}, timeout=WITHIN)
        member.poll()
        await member.assigned(2)
        assert member.membership.member_id != left


async def test_a_member_that_only_waited_for_records_joins_again_by_itself(cluster: Cluster) -> None:
    heard = Heard(cluster)
    async with GroupMember(cluster.bootstrap, "g", "t", **QUICK, max_poll_interval_ms=2_000) as member:
        member.poll()
        await member.assigned(2)
        heard.block_until(lambda: heard.count(LeaveGroupRequest) > 0)
        await member.until(lambda: len(member.changed.history) == 4)
        assert len(member.assignment) == 2


async def test_a_member_that_only_waited_joins_again_though_the_loop_is_back_before_the_threads_answer(
    cluster: Cluster,
) -> None:
    hold, arrived = Hold(), threading.Event()

    async def hold_answer(exchange: Exchange) -> None:
        arrived.set()
        await hold(exchange)

    cluster.intercept(LeaveGroupRequest, hold_answer, times=1)
    async with GroupMember(cluster.bootstrap, "g", "t", **QUICK, max_poll_interval_ms=1_000) as member:
        member.poll()
        await member.assigned(2)
        driver = member.membership._driver
        assert arrived.wait(WITHIN)  # blocks the loop
        assert driver._watchdog.has_heard
        driver.feed(Tick())  # the first thing that runs on the loop after that
        assert member.membership.generation == -1
        hold.release()
        await member.until(lambda: len(member.changed.history) == 4)
        assert len(member.assignment) == 2


async def test_a_poll_that_comes_right_after_the_thread_has_left_finds_no_assignment(cluster: Cluster) -> None:
    """The application polls a moment too late: the thread's LeaveGroup counts, and the poll must not hide it."""
    heard = Heard(cluster)
    async with GroupMember(cluster.bootstrap, "g", "t", **QUICK, max_poll_interval_ms=2_000) as member:
        member.poll()
        await member.assigned(2)
        member.take(T0, 0)
        heard.block_until(lambda: heard.count(LeaveGroupRequest) > 0)
        member.poll()  # the first thing that runs on the loop after that
        assert member.membership.generation == -1
        await member.until(lambda: len(member.changed.history) == 4)


async def test_a_static_member_falls_silent_and_does_not_leave(cluster: Cluster) -> None:
    heard = Heard(cluster)
    options = {**QUICK, "max_poll_interval_ms": 600_000, "group_instance_id": "i"}
    async with GroupMember(cluster.bootstrap, "g", "t", **options) as member:
        member.poll()
        await member.assigned(2)
        member.take(T0, 0)
        heard.block_for(4)
        member.membership._polls.last -= 600.0  # the rest of the interval, and more
        watchdog = member.membership._driver._watchdog
        deadline = time.monotonic() + WITHIN
        while watchdog._rests_until != math.inf and time.monotonic() < deadline:
            blocked_for(0.01)  # a heartbeat may be under way
        beaten = heard.count(HeartbeatRequest)
        blocked_for(0.5)
        assert heard.count(HeartbeatRequest) == beaten
        assert heard.count(LeaveGroupRequest) == 0
        await member.assigned(0)


class Blocking(RebalanceListener):
    """Blocks the loop in on_partitions_revoked until ``polled_by`` is over and the thread has spoken, then commits.

    It begins with a leap of ``seconds``: as if it had blocked the loop for so long already.
    """

    consumer: Consumer
    polled_by = math.inf
    polls: PollClock

    def __init__(self, heard: Heard, seconds: float) -> None:
        self.heard = heard
        self.seconds = seconds
        self.left_meanwhile: int | None = None

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        heard = self.heard
        self.polls.last -= self.seconds
        blocked_for(max(0.0, self.polled_by - time.monotonic()))
        beaten = heard.count(HeartbeatRequest)
        heard.block_until(lambda: heard.count(HeartbeatRequest) >= beaten + 2 or heard.count(LeaveGroupRequest) > 0)
        self.left_meanwhile = heard.count(LeaveGroupRequest)
        self.consumer.commit_soon({T0: 1})


async def test_a_listener_that_blocks_the_loop_in_the_last_revocation_has_max_poll_interval_from_its_beginning(
    cluster: Cluster, heard: Heard
) -> None:
    listener = Blocking(heard, seconds=59.0)
    cluster.append("t", b"0")
    options: dict[str, Any] = {**QUICK, "max_poll_interval_ms": 600_000, "enable_auto_commit": False}
    options |= {"group_id": "g", "auto_offset_reset": "earliest"}
    async with Consumer("t", bootstrap_servers=cluster.bootstrap, listener=listener, **options) as consumer:
        listener.consumer = consumer
        assert await consumer.getone() is not None
        membership = consumer._runtime.membership
        assert membership is not None
        listener.polls = membership._polls
        membership._polls.last -= 540.0
        listener.polled_by = membership._polls.last + 600.0 - listener.seconds
    assert listener.left_meanwhile == 0
    assert cluster.committed("g") == {T0: 1}


async def test_a_heartbeat_plan_that_the_loop_has_retracted_is_not_carried_out(cluster: Cluster, heard: Heard) -> None:
    """The loop comes back after the thread has read its heartbeat plan and before it sends: then it sends nothing.

    No other heartbeat is due while this test runs, however busy the machine is.
    """
    unhurried = {"heartbeat_interval_ms": 100_000, "session_timeout_ms": 600_000}
    async with GroupMember(cluster.bootstrap, "g", "t", **unhurried) as member:
        member.poll()
        await member.assigned(2)
        watchdog = member.membership._driver._watchdog
        watch = watchdog._watch
        assert watch is not None
        assert watchdog.retract() == []
        await asyncio.to_thread(watchdog._leave, watch)
        await asyncio.to_thread(watchdog._beat, watch)
        assert heard.count(LeaveGroupRequest) == 0
        assert heard.count(HeartbeatRequest) == 0
        assert not watchdog.has_heard


# The life of the thread


async def test_the_thread_lives_as_long_as_the_membership(cluster: Cluster) -> None:
    async with GroupMember(cluster.bootstrap, "g", **QUICK) as member:
        member.poll()
        assert thread_of(member) is None
        member.subscribe("t")
        await member.assigned(2)
        thread = thread_of(member)
        assert thread is not None
        assert thread in watchdogs()
        await member.leave()
    await asyncio.to_thread(thread.join, WITHIN)
    assert not thread.is_alive()


async def test_while_others_are_waited_for_the_thread_is_there_and_the_assignment_does_not_wake_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else fifty members of one loop would start and wake fifty threads at the moment when all get their partitions."""
    hold = Hold()

    async def hold_joined(exchange: Exchange) -> None:
        if exchange.request.member_id:
            await hold(exchange)

    cluster.intercept(JoinGroupRequest, hold_joined)
    async with GroupMember(cluster.bootstrap, "g", "t", heartbeat_interval_ms=3_000) as member:
        member.poll()
        await hold.arrived()
        watchdog = member.membership._driver._watchdog
        assert watchdog._thread is not None
        async with asyncio.timeout(WITHIN):
            while watchdog._rests_until == math.inf:  # until the thread runs
                await member.membership.moved.wait(0.01)
        woken: list[None] = []
        monkeypatch.setattr(watchdog._wake, "set", lambda: woken.append(None))
        hold.release()
        await member.assigned(2)
        assert watchdog._watch is not None
        assert woken == []
        monkeypatch.undo()


def test_a_plan_that_came_since_the_thread_has_looked_is_looked_at_before_it_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop does not wake the thread, because it believes that the thread is about to look anyway."""
    group = ClassicGroup(group_id="g", session_timeout_ms=1_000, rebalance_timeout_ms=1_000, assignors=())
    watchdog = Watchdog(
        ClassicKeepalive(group), PollClock(), ConnectionOptions(client_id="test", max_response_bytes=1_000), 1.0
    )
    plan = HeartbeatPlan(by_the_thread(MemberToken(1, "m")), due=0.0, grace=0.02, interval=0.01, max_poll_interval=1e9)
    newer = plan, Route("broker 1", ("127.0.0.1", dead_port()), "localhost")
    seen: list[object] = []
    looked_again = threading.Event()

    def step(self: Watchdog, watch: object) -> float:
        seen.append(watch)
        self._watch = newer
        if len(seen) == 2:
            looked_again.set()
        return math.inf

    monkeypatch.setattr(Watchdog, "_step", step)

    async def prepare() -> None:
        watchdog.start(lambda: None)
        watchdog.prepare()

    asyncio.run(prepare())
    assert looked_again.wait(WITHIN)
    watchdog.stop()
    assert seen[:2] == [None, newer]


async def test_the_thread_ends_with_a_member_that_crashes(member: GroupMember) -> None:
    thread = member.membership._driver._watchdog._thread
    assert thread is not None
    await member.crash()
    await asyncio.to_thread(thread.join, WITHIN)
    assert not thread.is_alive()


def test_the_thread_ends_with_a_loop_that_is_closed_without_a_word() -> None:
    group = ClassicGroup(group_id="g", session_timeout_ms=1_000, rebalance_timeout_ms=1_000, assignors=())
    options = ConnectionOptions(client_id="test", max_response_bytes=1_000)
    watchdog = Watchdog(ClassicKeepalive(group), PollClock(), options, 1.0)

    async def watch() -> None:
        watchdog.start(lambda: None)
        plan = HeartbeatPlan(
            by_the_thread(MemberToken(1, "m")), due=0.0, grace=0.02, interval=0.01, max_poll_interval=1e9
        )
        watchdog.watch(plan, Route("broker 1", ("127.0.0.1", dead_port()), "localhost"))

    asyncio.run(watch())
    assert watchdog._thread is not None
    watchdog._thread.join(WITHIN)
    assert not watchdog._thread.is_alive()


def test_the_thread_ends_with_a_closed_loop_though_it_has_no_heartbeat_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog_module, "_LOOP_CLOSED_SECONDS", 0.05)
    group = ClassicGroup(group_id="g", session_timeout_ms=1_000, rebalance_timeout_ms=1_000, assignors=())
    options = ConnectionOptions(client_id="test", max_response_bytes=1_000)
    watchdog = Watchdog(ClassicKeepalive(group), PollClock(), options, 1.0)

    async def join() -> None:
        watchdog.start(lambda: None)
        watchdog.prepare()

    asyncio.run(join())
    assert watchdog._thread is not None
    watchdog._thread.join(WITHIN)
    assert not watchdog._thread.is_alive()


async def test_a_thread_that_cannot_be_started_is_tried_again_with_the_next_plan(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process may have no more threads just now. The member must not stay without a watchdog for good."""

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    group = ClassicGroup(group_id="g", session_timeout_ms=1_000, rebalance_timeout_ms=1_000, assignors=())
    options = ConnectionOptions(client_id="test", max_response_bytes=1_000)
    watchdog = Watchdog(ClassicKeepalive(group), PollClock(), options, 1.0)
    watchdog.start(lambda: None)
    plan = HeartbeatPlan(by_the_thread(MemberToken(1, "m")), due=1e9, grace=1e9, interval=1e9, max_poll_interval=1e9)
    route = Route("broker 1", ("127.0.0.1", dead_port()), "localhost")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        watchdog.prepare()
        watchdog.watch(plan, route)
    (said,) = [each for each in caplog.messages if "has no thread" in each]
    assert "can't start new thread" in said
    watchdog.watch(plan, route)
    assert watchdog._thread is not None
    watchdog.stop()
    await asyncio.to_thread(watchdog._thread.join, WITHIN)


async def test_a_forked_child_has_no_watchdog(member: GroupMember) -> None:
    assert watchdogs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child only checks its threads, and ends
        child = os.fork()
    if child == 0:
        os._exit(len(watchdogs()))
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    await member.membership.commit({T0: OffsetAndMetadata(1)}, timeout=WITHIN)


def test_a_loop_with_a_clock_of_its_own_is_never_watched() -> None:
    async def happen() -> None:
        async with Cluster(topics={"t": 2}) as cluster, GroupMember(cluster.bootstrap, "g", "t") as member:
            member.poll()
            await member.assigned(2)
            assert member.membership._driver._watchdog._thread is None

    loop = VirtualLoop()
    try:
        loop.run_until_complete(happen())
    finally:
        loop.end()


async def test_heartbeats_of_the_thread_that_fail_are_warned_of(
    cluster: Cluster, member: GroupMember, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    """It has warned that it sends them. Until the loop is back, nothing else tells that none arrives."""
    caplog.set_level(logging.DEBUG, "aiokc.group")
    coordinator = cluster.coordinator("g")
    cluster.take_down(coordinator)

    def told() -> list[logging.LogRecord]:
        return [record for record in caplog.records if "a heartbeat from the watchdog failed" in record.getMessage()]

    deadline = time.monotonic() + WITHIN
    while len(told()) < 3 and time.monotonic() < deadline:
        blocked_for(0.01)
    assert [record.levelno for record in told()[:3]] == [logging.WARNING, logging.DEBUG, logging.DEBUG]
    assert f"broker {coordinator}" in told()[0].getMessage()


@pytest.mark.parametrize("failing", ["_connect", "_hear"])
async def test_after_a_failure_of_the_thread_a_blocked_loop_gets_heartbeats_again(
    member: GroupMember, heard: Heard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    """Memory that is short for a moment must not cost the membership when the loop is blocked next, days later."""
    token = member.membership._machine.member
    original = getattr(Watchdog, failing)
    failed = 0

    def fail(watchdog: Watchdog, *arguments: Any) -> Any:
        nonlocal failed
        if failed < 2:
            failed += 1
            raise MemoryError
        return original(watchdog, *arguments)

    monkeypatch.setattr(watchdog_module, "_AFTER_FAILURE_SECONDS", 0.01)
    monkeypatch.setattr(Watchdog, failing, fail)
    heard.block_until(lambda: failed == 2 and heard.count(HeartbeatRequest) > 0)
    heard.block_for(3)
    assert len([each for each in caplog.messages if "the watchdog of the event loop has failed" in each]) == 1
    await member.membership.commit({T0: OffsetAndMetadata(1)}, timeout=WITHIN)
    assert member.membership._machine.member == token
