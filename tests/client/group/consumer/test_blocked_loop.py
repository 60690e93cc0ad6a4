"""The watchdog thread of a member of a consumer group: epochs that rise while the event loop is blocked."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest
from tests.suite.unused_faults import may_be_unused

from .group_stories import BOTH, Told, consumer_of, shared

WITHIN = 20.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"t": 2}, group_consumer_heartbeat_interval_ms=150).in_thread() as running:
        yield running


class Epochs:
    """The epochs of the heartbeats that reach the coordinator, for any thread to look at."""

    def __init__(self, cluster: Cluster) -> None:
        self.seen: list[int] = []
        self._changed = threading.Condition()
        may_be_unused(cluster.intercept(ConsumerGroupHeartbeatRequest, self._note))

    def _note(self, exchange: Exchange) -> None:
        with self._changed:
            self.seen.append(exchange.request.member_epoch)
            self._changed.notify_all()

    def block_until(self, epoch: int) -> None:
        """Block the event loop until a heartbeat of this epoch has come."""
        with self._changed:
            assert self._changed.wait_for(lambda: epoch in self.seen, WITHIN), f"no heartbeat of epoch {epoch}"


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

    Its heartbeat says nothing of what the member owns, so the coordinator refuses it: it asks again, and says all.
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
            where=lambda exchange: exchange.request.topic_partitions is not None,  # the thread's lists them always
        )
        assert cluster.bump_epoch("g") == 3
        assert was_lost.wait(WITHIN)
        while consumer.group_metadata().generation_id < 3:
            await consumer.getmany(timeout_ms=50)
        assert told.events == [("assigned", BOTH)]
        assert consumer.assignment() == BOTH
