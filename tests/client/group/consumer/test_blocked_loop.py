"""The watchdog thread of a member of a consumer group, while the event loop is blocked and when it comes back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.client.group.watchdog import Watchdog
from aiokc.core.group.consumer.events import KEEPALIVE, MemberHeartbeat, Unheard
from aiokc.core.group.consumer.keepalive import ConsumerKeepalive
from aiokc.core.group.consumer.messages import ConsumerGroup
from aiokc.core.group.events import Event, MemberToken, PollClock
from aiokc.core.group.loop_watch import HeartbeatPlan
from aiokc.error_codes import ErrorCode
from aiokc.net.options import ConnectionOptions, Route
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.cluster.hosting import Flag
from aiokc.testing.faults import disconnect
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest
from tests.net.scripted import dead_port
from tests.suite.unused_faults import may_be_unused

from .group_stories import BOTH, Told, consumer_of, shared

WITHIN = 20.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"t": 2}, group_consumer_heartbeat_interval_ms=150).in_thread() as running:
        yield running


@pytest.fixture
def thread_has_heard(monkeypatch: pytest.MonkeyPatch) -> Flag:
    """Set when the thread has handed the loop an answer, or that there is none."""
    flag, hear = Flag(), Watchdog._hear

    def _hear(self: Watchdog, *what: Any) -> None:
        hear(self, *what)
        flag.set()

    monkeypatch.setattr(Watchdog, "_hear", _hear)
    return flag


class Epochs:
    """The epochs of the heartbeats that reach the coordinator, for any thread to look at. ``full``: those that list
    partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self.seen: list[int] = []
        self.full: list[int] = []
        self._changed = threading.Condition()
        may_be_unused(cluster.intercept(ConsumerGroupHeartbeatRequest, self._note))

    def _note(self, exchange: Exchange) -> None:
        with self._changed:
            self.seen.append(exchange.request.member_epoch)
            if lists_partitions(exchange):
                self.full.append(exchange.request.member_epoch)
            self._changed.notify_all()

    def block_until(self, epoch: int) -> None:
        """Block the event loop until a heartbeat of this epoch has come."""
        with self._changed:
            assert self._changed.wait_for(lambda: epoch in self.seen, WITHIN), f"no heartbeat of epoch {epoch}"

    async def more(self, consumer: Consumer, count: int) -> None:
        """Poll until so many more heartbeats have come."""
        until = len(self.seen) + count
        while len(self.seen) < until:
            await consumer.getmany(timeout_ms=50)


def lists_partitions(exchange: Exchange) -> bool:
    """The thread's heartbeats always do; the loop's only where the coordinator does not know them yet."""
    return exchange.request.topic_partitions is not None


@pytest.mark.any_loop
async def test_the_thread_follows_epochs_that_rise_while_the_loop_is_blocked(cluster: Cluster) -> None:
    """It adopts each epoch: the second heartbeat of the epoch before the newest would be fenced."""
    told, epochs = Told(), Epochs(cluster)
    async with consumer_of(cluster, told) as consumer:
        await shared(consumer)
        for epoch in (3, 4, 5):
            assert cluster.bump_epoch("g") == epoch
            epochs.block_until(epoch)
        while consumer.group_metadata().generation_id < 5:
            await consumer.getmany(timeout_ms=50)
        assert told.events == [("assigned", BOTH)]
        assert consumer.assignment() == BOTH
        assert cluster.members("g") == [consumer.group_metadata().member_id]


async def test_the_loop_need_not_know_what_the_thread_was_not_told(cluster: Cluster) -> None:
    """The answer that raises the epoch is lost on its way to the thread, and the loop goes on under the epoch before.

    The thread says so, and the loop's next heartbeat lists what the member owns: the coordinator accepts that.
    """
    told, was_lost = Told(), threading.Event()
    async with consumer_of(cluster, told) as consumer:
        await shared(consumer)

        async def lose_answer(exchange: Exchange) -> None:
            await exchange.handle()
            exchange.abort()
            was_lost.set()

        cluster.intercept(
            ConsumerGroupHeartbeatRequest,
            lose_answer,
            times=1,
            where=lists_partitions,
        )
        assert cluster.bump_epoch("g") == 3
        assert was_lost.wait(WITHIN)
        while consumer.group_metadata().generation_id < 3:
            await consumer.getmany(timeout_ms=50)
        assert told.events == [("assigned", BOTH)]
        assert consumer.assignment() == BOTH


def without_the_second(answer: Any) -> None:
    for topic in answer.assignment.topic_partitions:
        topic.partitions = [0]


def fenced(answer: Any) -> None:
    answer.error_code = ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("as_it_was", [without_the_second, fenced])
async def test_an_answer_that_the_thread_hears_late_does_not_set_the_member_back(
    cluster: Cluster, thread_has_heard: Flag, as_it_was: Callable[[Any], None]
) -> None:
    """It may be older than what the loop knows: a partition has become free since, or the loop has acknowledged a
    revocation that this heartbeat did not know of. The epoch need not tell: it was the same before."""
    told, handled, went_on = Told(), threading.Event(), Flag()

    async def answer_late(exchange: Exchange) -> Any:
        answer = await exchange.handle()
        as_it_was(answer)
        handled.set()
        await went_on.wait()
        return answer

    async with consumer_of(cluster, told) as consumer:
        await shared(consumer)
        await settled(cluster, consumer)
        cluster.intercept(ConsumerGroupHeartbeatRequest, answer_late, times=1, where=lists_partitions)
        epochs = Epochs(cluster)
        assert handled.wait(WITHIN)  # blocks the loop
        await epochs.more(consumer, 2)
        before = len(epochs.full)
        went_on.set()
        await thread_has_heard.wait()
        await epochs.more(consumer, 3)
        assert len(epochs.full) > before, "it asks again what it may hold"
        assert told.events == [("assigned", BOTH)]
        assert consumer.assignment() == BOTH


async def test_what_the_loops_own_answer_said_is_asked_for_again_if_the_threads_comes_first(
    cluster: Cluster, thread_has_heard: Flag
) -> None:
    """The loop's heartbeat is under way when the loop is blocked. The coordinator handles the thread's first, and says
    only then, in its answer to the loop's, what has changed: it will say so again only if it is asked."""
    told, arrived = Told(), Flag()

    async def handle_after_the_threads(exchange: Exchange) -> None:
        arrived.set()
        await thread_has_heard.wait()

    async with consumer_of(cluster, told) as consumer:
        await shared(consumer)
        await settled(cluster, consumer)
        cluster.intercept(
            ConsumerGroupHeartbeatRequest,
            handle_after_the_threads,
            times=1,
            where=lambda exchange: not lists_partitions(exchange),
        )
        await arrived.wait()
        epochs = Epochs(cluster)
        epochs.block_until(2)  # the thread's
        await thread_has_heard.wait()
        await epochs.more(consumer, 2)
        assert len(epochs.full) >= 2, "the thread's, and the loop's"
        assert told.events == [("assigned", BOTH)]


def a_watchdog() -> tuple[Watchdog, MemberHeartbeat, HeartbeatPlan]:
    """A watchdog whose thread does not run, a heartbeat, and the plan by which the watchdog is to send it."""
    group = ConsumerGroup(group_id="g", max_poll_interval_ms=300_000)
    options = ConnectionOptions(client_id="test", max_response_bytes=1 << 20)
    watchdog = Watchdog(ConsumerKeepalive(group), PollClock(), options, 1.0)
    watchdog.start(lambda: None)
    sent = MemberHeartbeat(1, MemberToken(1, "m"), contents=KEEPALIVE)
    return watchdog, sent, HeartbeatPlan(sent, due=0.0, grace=0.02, interval=0.01, max_poll_interval=1e9)


async def test_only_a_heartbeat_that_was_sent_may_be_unheard(cluster: Cluster) -> None:
    """A refused connection leaves no doubt: the answer to the loop's own heartbeat still counts."""
    watchdog, sent, plan = a_watchdog()

    async def heard(port: int) -> list[Event]:
        watchdog._watch = plan, Route("broker 1", ("127.0.0.1", port), "localhost")
        await asyncio.to_thread(watchdog._beat, watchdog._watch)
        return watchdog.retract()

    assert await heard(dead_port()) == []
    cluster.intercept(ConsumerGroupHeartbeatRequest, disconnect(), times=1)
    assert await heard(int(cluster.bootstrap.rpartition(":")[2])) == [Unheard(sent)]


async def test_a_heartbeat_is_unheard_too_if_the_thread_fails_to_read_its_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(keepalive: ConsumerKeepalive, sent: MemberHeartbeat, response: object) -> Event:
        raise MemoryError

    monkeypatch.setattr(ConsumerKeepalive, "_answered", answered)
    watchdog, sent, plan = a_watchdog()
    address = "127.0.0.1", int(cluster.bootstrap.rpartition(":")[2])
    watchdog._watch = plan, Route("broker 1", address, "localhost")
    with pytest.raises(MemoryError):
        await asyncio.to_thread(watchdog._beat, watchdog._watch)
    assert watchdog.retract() == [Unheard(sent)]
    watchdog._disconnect()


async def test_the_threads_goodbye_does_not_remove_a_member_that_has_joined_again(cluster: Cluster) -> None:
    """The last heartbeat names no epoch, and it is handled after the join, which goes over another connection."""
    told, leaving, joined_again, handled = Told(), threading.Event(), Flag(), Flag()

    async def handle_late(exchange: Exchange) -> Any:
        leaving.set()
        await joined_again.wait()
        answer = await exchange.handle()
        handled.set()
        return answer

    async with consumer_of(cluster, told, max_poll_interval_ms=600_000) as consumer:
        await shared(consumer)
        former = consumer.group_metadata().member_id
        cluster.intercept(
            ConsumerGroupHeartbeatRequest,
            handle_late,
            times=1,
            where=lambda exchange: exchange.request.member_epoch == -1,
        )
        membership = consumer._runtime.membership
        assert membership is not None
        membership._polls.last -= 600.0
        assert leaving.wait(WITHIN)  # blocks the loop
        while len(told.events) < 3:
            await consumer.getmany(timeout_ms=50)
        joined_again.set()
        await handled.wait()
        assert cluster.members("g") == [consumer.group_metadata().member_id]
        epochs = Epochs(cluster)
        await epochs.more(consumer, 3)
        assert told.events == [("assigned", BOTH), ("lost", BOTH), ("assigned", BOTH)]
        assert former not in cluster.members("g")


async def settled(cluster: Cluster, consumer: Consumer) -> None:
    """Poll until the member's heartbeats have nothing to tell any more."""
    epochs = Epochs(cluster)
    while len(epochs.seen) == len(epochs.full):
        await consumer.getmany(timeout_ms=50)
    cluster.heal()  # the next interception is to be the first one
