"""The rebalance listener of a member of a group: which callbacks, with what, when, and what they may do."""

from __future__ import annotations

import pytest

from aiokc import TopicPartition
from aiokc.testing import Cluster

from .listening import Noting, listening

pytestmark = pytest.mark.timeout(30)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = frozenset({T0, T1})


async def test_a_member_is_told_what_it_gets_and_what_goes_when_it_stops() -> None:
    listener = Noting()
    async with Cluster(topics={"t": 2}) as cluster:
        async with listening(cluster, "t", listener=listener):
            await listener.heard("assigned")
        assert listener.told == [("assigned", BOTH), ("revoked", BOTH)]
