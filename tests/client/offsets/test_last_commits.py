"""The last commits of a revocation: which ones it waits for, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from aiokc.client.offsets.commit_order import CommitOrder
from aiokc.client.offsets.last_commits import LastCommits
from aiokc.testing import Cluster

from ..virtually import virtually

pytestmark = pytest.mark.timeout(30)

LATE = 1_000_000.0


def test_it_waits_for_what_was_called_for_before_and_for_what_the_listener_calls_for() -> None:
    async def story(cluster: Cluster) -> None:
        loop, order = asyncio.get_running_loop(), CommitOrder()
        last = LastCommits("g", order, None, 5.0)
        for wait in (last.finish, last.finish_those_of_the_listener):
            slot = order.take()
            began = loop.time()
            loop.call_later(2.0, slot.end)
            await wait(LATE)
            assert loop.time() == pytest.approx(began + 2.0)

    virtually(story)


def test_a_commit_that_does_not_end_has_its_time_once() -> None:
    """Else it would hold up the revocation twice, before the listener and after it."""

    async def story(cluster: Cluster) -> None:
        loop, order = asyncio.get_running_loop(), CommitOrder()
        last = LastCommits("g", order, None, 5.0)
        order.take()
        began = loop.time()
        await last.finish(LATE)
        assert loop.time() == pytest.approx(began + 5.0)
        await last.finish_those_of_the_listener(LATE)
        assert loop.time() == pytest.approx(began + 5.0), "the listener has called for none"
        order.take()
        await last.finish_those_of_the_listener(LATE)
        assert loop.time() == pytest.approx(began + 10.0)

    virtually(story)


@pytest.mark.parametrize("how", ["cut short", "within", "until"])
def test_what_the_listener_calls_for_may_be_given_up(how: str) -> None:
    """A loss cuts it short, stop() leaves less time, or the member has to join again."""

    async def story(cluster: Cluster) -> None:
        loop, order = asyncio.get_running_loop(), CommitOrder()
        last = LastCommits("g", order, None, 5.0)
        order.take()
        began = loop.time()
        if how == "cut short":
            loop.call_later(1.0, last.cut_short)
        elif how == "within":
            loop.call_later(0.5, last.within, 0.5)
        await last.finish_those_of_the_listener(began + 1.0 if how == "until" else LATE)
        assert loop.time() == pytest.approx(began + 1.0)
        assert len(order.queue) == 1, "it has left the queue itself"

    virtually(story)
