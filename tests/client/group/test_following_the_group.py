"""Which topics a member follows in the metadata: the whole group's while it leads the group, else only its own."""

from __future__ import annotations

import asyncio

import pytest

from aiokc import Consumer
from aiokc.testing import Cluster

from ..listening import Noting, Polling, listening
from ..virtually import virtually

pytestmark = pytest.mark.timeout(30)


def followed(consumer: Consumer) -> frozenset[str] | set[str] | None:
    return consumer._runtime.cluster_client.metadata.followed


def test_a_former_leader_does_not_follow_the_topics_of_others() -> None:
    """If it did, each refresh of the metadata would name them for as long as the consumer lives."""

    async def story(cluster: Cluster) -> None:
        hears, other_hears = Noting(), Noting()
        first = listening(cluster, "t", listener=hears)
        async with first, Polling(first):
            await hears.until(lambda: len(hears.holds) == 1)
            second = listening(cluster, "u", listener=other_hears)
            async with second, Polling(second):
                await other_hears.until(lambda: len(other_hears.holds) == 1)
                assert followed(first) == {"t", "u"}
                assert followed(second) == {"u"}
                cluster.expire_member("g", first._runtime.membership.member_id)  # type: ignore[union-attr]
                await hears.until(lambda: hears.calls[-2:] == ["lost", "assigned"])
                await asyncio.sleep(1)
                assert followed(second) == {"t", "u"}, "it leads now"
                assert followed(first) == {"t"}

    virtually(story, topics={"t": 1, "u": 1}, brokers=1)
