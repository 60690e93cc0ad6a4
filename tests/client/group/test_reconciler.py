"""The Reconciler: Revoke, Lost and Assign in every order in which one can overtake another, with a slow listener."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokc import TopicPartition
from aiokc.client.aio.signal import Signal
from aiokc.client.group.rebalance_listener import ListenerCalls
from aiokc.client.group.reconciler import Reconciler
from aiokc.client.offsets.commit_order import CommitOrder
from aiokc.client.offsets.last_commits import LastCommits
from aiokc.core.group.events import Assign, Lost, MemberToken, PollClock, RevocationDone, Revoke
from aiokc.core.subscription.state import Subscription
from aiokc.errors import ListenerTimedOut, UsageError

from ..listening import Gate, Noting
from .listener.test_rebalance_listener import RebalanceListenerOfAnything

pytestmark = [pytest.mark.any_loop, pytest.mark.timeout(30)]

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ME = MemberToken(1, "m")


class Member:
    """The Reconciler of one member. The test plays the machine, and an application that never polls."""

    def __init__(self, listener: Noting, max_poll_interval: float = 60.0, revocation_margin: float = 0.0) -> None:
        self.subscription = Subscription()
        self.subscription.subscribe(["t", "u"])
        self.listener = listener
        self.calls = ListenerCalls(Signal().notify)
        self.calls.listener = listener
        self.polls = PollClock(asyncio.get_running_loop().time())
        self.revocation_done: list[int] = []
        self.moved = Signal()
        self.told_assignor: list[Assign] = []
        self.changes = Reconciler(
            "group 'g'",
            self.subscription,
            self.moved,
            listener=self.calls,
            polls=self.polls,
            max_poll_interval=max_poll_interval,
            revocation_margin=lambda: revocation_margin,
            commits=LastCommits("g", CommitOrder(), None, 1.0),
            tell_assignor=self.told_assignor.append,
        )

    def release(self, revocation_done: RevocationDone) -> None:
        self.revocation_done.append(revocation_done.step)
        self.moved.notify()

    async def until_released(self, step: int) -> None:
        async with asyncio.timeout(10):
            while step not in self.revocation_done:
                await self.moved.wait()


@asynccontextmanager
async def member(
    listener: Noting, max_poll_interval: float = 60.0, revocation_margin: float = 0.0
) -> AsyncIterator[Member]:
    started = Member(listener, max_poll_interval, revocation_margin)
    task = asyncio.get_running_loop().create_task(started.changes.run(started.release))
    try:
        yield started
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_no_listener_hears_of_an_assignment_that_is_lost_before_its_turn() -> None:
    gate = Gate()
    listener = Noting(assigned=gate)
    async with member(listener) as it:
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        await gate.began.wait()
        it.changes.add(Assign(ME, (T0, T1), (T1,), "range"))
        it.changes.add(Lost(3, (T0, T1), "the group forgot it"))
        gate.go_on.set()
        await it.until_released(3)
        assert listener.told == [("assigned", frozenset({T0})), ("lost", frozenset({T0}))]
        assert not it.subscription.assigned


@pytest.mark.parametrize("queued", [(T0,), ()])
async def test_an_assignment_that_was_queued_before_another_subscription_is_none_of_that(
    queued: tuple[TopicPartition, ...],
) -> None:
    async with member(Noting()) as it:
        it.changes.add(Assign(ME, queued, queued, "range"))
        it.subscription.subscribe(["u"])
        it.changes.add(Revoke(2, queued, wait=False))
        await it.until_released(2)
        assert not it.subscription.was_assigned
        it.changes.add(Assign(ME, (U0,), (U0,), "range"))
        it.changes.add(Revoke(3, (U0,), wait=False))
        await it.until_released(3)
        assert it.subscription.was_assigned


async def test_what_is_lost_is_handed_out_no_more_while_a_callback_is_still_running() -> None:
    gate = Gate()
    listener = Noting()
    async with member(listener) as it:
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        await listener.heard("assigned")
        it.subscription.seek(T0, 5)
        assert it.subscription[T0].fetchable
        listener.on["assigned"] = gate
        it.changes.add(Assign(ME, (T0, T1), (T1,), "range"))
        await gate.began.wait()
        assert it.subscription[T0].fetchable, "what is kept goes on while the listener hears of what is added"
        it.changes.add(Lost(3, (T0, T1), "the group forgot it"))
        assert not it.subscription[T0].fetchable
        gate.go_on.set()
        await it.until_released(3)
        assert listener.calls == ["assigned", "assigned", "lost"]


@pytest.mark.parametrize(
    ("reader", "named"), [(ME, "member 'm' of generation 1"), (MemberToken(-1, "m"), "this consumer")]
)
async def test_the_log_names_the_member_that_reads_or_a_consumer_that_is_in_no_generation(
    reader: MemberToken, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Noting()
    with caplog.at_level(logging.INFO, "aiokc.group"):
        async with member(listener) as it:
            it.changes.add(Assign(reader, (T0, T1), (T0, T1), "range"))
            await listener.heard("assigned")
    assert caplog.messages == [f"group 'g': {named} reads t-0, t-1"]


async def test_what_is_added_is_not_fetchable_until_the_listener_is_done() -> None:
    gate = Gate()
    listener = Noting(assigned=gate)
    async with member(listener) as it:
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        await gate.began.wait()
        it.subscription.seek(T0, 5)
        assert not it.subscription[T0].fetchable
        gate.go_on.set()
        async with asyncio.timeout(10):
            while not it.subscription[T0].fetchable:
                await it.moved.wait()


async def test_a_topic_that_is_not_wanted_any_more_stays_blocked_after_its_callback() -> None:
    """The application subscribes to another topic while the listener is called for the former one's partitions."""
    gate = Gate()
    listener = Noting(assigned=gate)
    async with member(listener) as it:
        it.changes.add(Assign(ME, (T0, U0), (T0, U0), "range"))
        await gate.began.wait()
        it.subscription.seek(T0, 5)
        it.subscription.seek(U0, 5)
        it.subscription.subscribe(["u"])
        gate.go_on.set()
        async with asyncio.timeout(10):
            while not it.subscription[U0].fetchable:
                await it.moved.wait()
        assert not it.subscription[T0].fetchable


async def test_partitions_are_served_again_only_if_their_topic_is_wanted_again() -> None:
    listener = Noting()
    async with member(listener) as it:
        it.changes.add(Assign(ME, (T0, U0), (T0, U0), "range"))
        await listener.heard("assigned")
        async with asyncio.timeout(10):
            while it.subscription[U0].blocked:
                await it.moved.wait()
        it.subscription.seek(T0, 5)
        it.subscription.seek(U0, 5)
        it.subscription.subscribe(["another"])
        it.subscription.subscribe(["u"])
        assert not it.subscription[U0].fetchable
        it.changes.serve_again()
        assert it.subscription[U0].fetchable
        assert not it.subscription[T0].fetchable


async def test_what_an_assign_left_out_as_not_wanted_is_taken_by_the_next_one() -> None:
    listener = Noting()
    async with member(listener) as it:
        it.subscription.subscribe(["t"])
        it.changes.add(Assign(ME, (T0, U0), (T0, U0), "range"))
        await listener.heard("assigned")
        it.subscription.subscribe(["t", "u"])
        it.changes.add(Assign(ME, (T0, U0), (), "range"))
        await listener.heard("assigned", "assigned")
        assert listener.told == [("assigned", frozenset({T0})), ("assigned", frozenset({U0}))]
        assert set(it.subscription.assigned) == {T0, U0}


async def test_a_revocation_that_is_overtaken_by_a_larger_one_is_told_for_the_rest_only() -> None:
    """stop() during a cooperative revocation: the callback under way has reported its partitions already."""
    gate = Gate()
    listener = Noting(revoked=gate)
    async with member(listener) as it:
        it.changes.add(Assign(ME, (T0, T1), (T0, T1), "range"))
        await listener.heard("assigned")
        it.changes.add(Revoke(2, (T0,), wait=True))
        await gate.began.wait()
        it.changes.add(Revoke(3, (T0, T1), wait=False))
        gate.go_on.set()
        await it.until_released(3)
        assert listener.told[1:] == [("revoked", frozenset({T0})), ("revoked", frozenset({T1}))]
        assert it.revocation_done == [3], "the first one is overruled, and its end is not waited for"


LOST = Lost(4, (T0,), "the group forgot it")
STOP = Revoke(4, (T0,), wait=False)


@pytest.mark.parametrize("last", [LOST, STOP], ids=["lost", "stopped"])
@pytest.mark.parametrize("again", [False, True], ids=["", "unsubscribed twice"])
async def test_what_overrules_the_revocation_of_an_unsubscribe_is_told_to_its_listener(
    last: Lost | Revoke, again: bool
) -> None:
    """The next subscription has its own listener, which has never heard of these partitions."""
    gate = Gate()
    first, second = Noting(assigned=gate), Noting()
    async with member(first) as it:
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        await gate.began.wait()
        it.subscription.unsubscribe()
        it.changes.add(Revoke(2, (T0,), wait=True))
        it.subscription.subscribe(["t"])
        it.calls.listener = second
        if again:
            it.subscription.unsubscribe()
            it.changes.add(Revoke(3, (T0,), wait=True))
            it.subscription.subscribe(["t"])
        it.changes.add(last)
        gate.go_on.set()
        await it.until_released(4)
        assert first.told[1:] == [("lost" if last is LOST else "revoked", frozenset({T0}))]
        assert second.told == []
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        it.changes.add(Revoke(5, (T0,), wait=False))
        await it.until_released(5)
        assert second.told == [("assigned", frozenset({T0})), ("revoked", frozenset({T0}))]


async def test_a_listener_that_replaces_another_hears_of_all_that_follows() -> None:
    """Without unsubscribe() it takes over what the former one was told: a loss, too, that overrules a revocation."""
    gate = Gate()
    first, second = Noting(assigned=gate), RebalanceListenerOfAnything()
    async with member(first) as it:
        it.changes.add(Assign(ME, (T0, T1), (T0, T1), "range"))
        await gate.began.wait()
        it.changes.add(Revoke(2, (T0,), wait=True))
        it.calls.listener = second
        it.changes.add(Lost(3, (T0, T1), "the group forgot it"))
        gate.go_on.set()
        await it.until_released(3)
        assert first.calls == ["assigned"]
        assert second.told == [("lost", frozenset({T0, T1}))]


async def test_a_callback_ends_with_what_is_left_since_the_last_poll() -> None:
    """A member that is not polled for max_poll_interval_ms leaves its group, whatever its listener is doing."""
    gate = Gate()
    listener = Noting(assigned=gate)
    async with member(listener, max_poll_interval=60.0) as it:
        loop = asyncio.get_running_loop()
        it.polls.last = loop.time() - 59.9
        start = loop.time()
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        await listener.until(lambda: listener.done == 1)
        assert loop.time() - start < 15
        with pytest.raises(ListenerTimedOut, match=r"Noting.on_partitions_assigned\(\) for t-0 was cancelled"):
            it.calls.raise_error()
        it.calls.raise_error()  # raises nothing: each error is raised once


@pytest.mark.parametrize(
    ("change", "time"),
    [(Assign(ME, (T0, T1), (T1,), "range"), 60.0), (Revoke(2, (T0,), wait=True), 68.0)],
    ids=["assignment", "revocation"],
)
async def test_only_a_revocation_has_the_margin(change: Assign | Revoke, time: float) -> None:
    """The group waits for a revocation. Of an assignment nobody waits for the end: a poll has to come in time."""
    gate = Gate()
    async with member(Noting(), revocation_margin=8.0) as it:
        it.polls.waiting = True
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        await it.listener.until(lambda: it.listener.done == 1)
        it.listener.on = {"assigned": gate, "revoked": gate}
        since = asyncio.get_running_loop().time()
        it.changes.add(change)
        await gate.began.wait()
        assert it.calls._scope is not None
        assert it.calls._scope.deadline == pytest.approx(since + time, abs=2)
        gate.go_on.set()


@pytest.mark.parametrize("leaves_by", ["stop", "unsubscribe"])
async def test_a_member_that_leaves_has_the_whole_time_however_long_ago_the_last_poll_was(leaves_by: str) -> None:
    """The application does not poll any more, so nobody waits for that: only the group waits, for this revocation."""
    gate = Gate()
    listener = Noting(revoked=gate)
    async with member(listener, max_poll_interval=60.0) as it:
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        await listener.heard("assigned")
        it.polls.last -= 59.99
        if leaves_by == "unsubscribe":
            it.subscription.unsubscribe()
        it.changes.add(Revoke(2, (T0,), wait=leaves_by == "unsubscribe"))
        await gate.began.wait()
        assert it.calls._scope is not None
        assert it.calls._scope.deadline > asyncio.get_running_loop().time() + 30
        gate.go_on.set()
        await it.until_released(2)
        it.calls.raise_error()


async def test_an_application_that_waits_for_records_polls_all_the_time() -> None:
    gate = Gate()
    listener = Noting(assigned=gate)
    async with member(listener, max_poll_interval=0.3) as it:
        loop = asyncio.get_running_loop()
        it.polls.last, it.polls.waiting = loop.time() - 100.0, True
        start = loop.time()
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        await listener.until(lambda: listener.done == 1)
        assert loop.time() - start >= 0.29


async def test_the_loss_of_a_member_that_is_not_polled_is_told_with_time_of_its_own() -> None:
    gate = Gate()
    listener = Noting(lost=gate)
    async with member(listener, max_poll_interval=20.0) as it:
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        await listener.heard("assigned")
        it.polls.last -= 100.0
        it.changes.add(Lost(2, (T0,), "it was not polled"))
        await gate.began.wait()
        gate.go_on.set()
        await it.until_released(2)
        it.calls.raise_error()


async def test_an_end_of_the_task_itself_is_no_error_of_the_listener() -> None:
    """Also not after an earlier callback was cancelled at its deadline. A CancelledError that a callback gets from what
    it awaits is the callback's error."""
    gate = Gate()
    listener = Noting(assigned=gate)
    async with member(listener, max_poll_interval=0.05) as it:
        it.polls.waiting = True
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        await listener.until(lambda: listener.done == 1)

        async def await_cancelled(_: object) -> None:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

        listener.on["assigned"] = await_cancelled
        it.changes.add(Assign(ME, (T0, T1), (T1,), "range"))
        await listener.until(lambda: listener.done == 2)
        gate.began.clear()
        listener.on["assigned"] = gate
        it.changes._max_poll_interval = 60.0  # the task must end before the callback's time is over
        it.changes.add(Assign(ME, (T0, T1, U0), (U0,), "range"))
        await gate.began.wait()
    for expected in (ListenerTimedOut, UsageError):
        with pytest.raises(expected):
            it.calls.raise_error()
    it.calls.raise_error()  # raises nothing: the third callback has no error, because the whole task was cancelled


@pytest.mark.parametrize(("what", "share"), [("assigned", 1 / 4), ("revoked", 3 / 4)])
async def test_stop_limits_the_callback_that_is_running(what: str, share: float) -> None:
    """New partitions are about to be revoked again: on_partitions_assigned() gets less time than a revocation."""
    gate = Gate()
    listener = Noting(**{what: gate})
    async with member(listener) as it:
        it.changes.add(Assign(ME, (T0,), (T0,), "range"))
        if what == "revoked":
            await listener.heard("assigned")
            it.changes.add(Revoke(2, (T0,), wait=False))
        await gate.began.wait()
        loop = asyncio.get_running_loop()
        start = loop.time()
        done = listener.done
        it.calls.end_within(0.4)
        await listener.until(lambda: listener.done > done)
        assert loop.time() - start >= 0.4 * share - 0.01
        with pytest.raises(ListenerTimedOut, match=r"for t-0 was cancelled: .* of the 0.4 s that stop\(\) had"):
            it.calls.raise_last_error()
