"""seek_to_beginning() and its kin in a rebalance: "all assigned" leaves out what goes, and nothing is half done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.errors import UsageError
from aiokc.testing import ApiKey
from aiokc.testing.faults import Hold

from ..stage import T0, T1, Member, Stage, scenario

TEN = tuple(b"%d" % number for number in range(10))
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}


async def two_partitions(stage: Stage, c1: Member) -> None:
    """c1 has both partitions, and has read nothing; the group has committed 5 of each."""
    for tp in (T0, T1):
        stage.cluster.append("t", *TEN, partition=tp.partition)
    await c1.consumer.wait_assigned()
    for tp in (T0, T1):
        assert await c1.consumer.position(tp) == 0
    await c1.consumer.commit({T0: 5, T1: 5})


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("call", ["seek_to_beginning", "seek_to_end"])
def test_all_assigned_means_those_that_stay(call: str, strategy: str) -> None:
    """Given a member with two partitions that seeks in all of them, when another member gets one of them before the
    answer comes, then the call returns, and an application that named no partition is told of no mistake.
    """

    @scenario(topics={"t": 2}, brokers=3)
    async def story(stage: Stage) -> None:
        options: dict[str, Any] = {"partition_assignment_strategy": [strategy]}
        async with stage.member("c1", **options) as c1:
            await two_partitions(stage, c1)
            hold = Hold()
            stage.cluster.intercept(ApiKey.LIST_OFFSETS, hold, times=1)
            seeking = asyncio.ensure_future(getattr(c1.consumer, call)())
            await hold.arrived()
            async with stage.member("c2", **options).reads():
                await stage.until(lambda: "revoked" in c1.told)
                hold.release()
                await seeking

    story()


@pytest.mark.parametrize("named", [(), (T0, T1)], ids=["all", "named"])
def test_a_seek_to_committed_offsets_is_not_half_done(named: tuple[TopicPartition, ...]) -> None:
    """Given a member that seeks to committed offsets in a cooperative rebalance, when one of its partitions goes before
    the answer comes, then that is left out if all were meant; if it was named, UsageError says so, and nothing moves.
    """

    @scenario(topics={"t": 2}, brokers=3)
    async def story(stage: Stage) -> None:
        async with stage.member("c1", **COOPERATIVE) as c1:
            await two_partitions(stage, c1)
            before = len(stage.events)
            async with stage.member("c2", **COOPERATIVE).reads():
                await stage.until(lambda: "JoinGroup" in stage.names("c1", "JoinGroup", since=before))
                hold = Hold()
                stage.cluster.intercept(ApiKey.OFFSET_FETCH, hold, times=1, where=lambda x: x.client_id == "c1")
                seeking = asyncio.ensure_future(c1.consumer.seek_to_committed(*named))
                await stage.until(lambda: "revoked" in c1.told)
                [kept] = c1.owned
                hold.release()
                if named:
                    with pytest.raises(UsageError, match=f"t-{1 - kept.partition}: not assigned any more"):
                        await seeking
                else:
                    found = await seeking
                    assert {tp: offset.offset for tp, offset in found.items() if offset is not None} == {kept: 5}
                assert await c1.consumer.position(kept) == (0 if named else 5)

    story()


@pytest.mark.parametrize("named", [(), (T0,)], ids=["all", "named"])
def test_a_seek_to_committed_offsets_undoes_no_seek_of_a_later_assignment(named: tuple[TopicPartition, ...]) -> None:
    """Given a consumer that seeks to committed offsets, when its partition goes, and comes back, and the application
    seeks in it, all before the answer comes, then the later seek stands.
    """

    @scenario(topics={"t": 2}, brokers=3)
    async def story(stage: Stage) -> None:
        stage.cluster.append("t", *TEN)
        async with Consumer(bootstrap_servers=stage.cluster.bootstrap, group_id="g", enable_auto_commit=False) as one:
            one.assign([T0])
            await one.commit({T0: 5})
            hold = Hold()
            stage.cluster.intercept(ApiKey.OFFSET_FETCH, hold, times=1)
            seeking = asyncio.ensure_future(one.seek_to_committed(*named))
            await hold.arrived()
            one.assign([T1])
            one.assign([T0])
            one.seek(T0, 7)
            hold.release()
            if named:
                with pytest.raises(UsageError, match=r"t-0: .*assigned again"):
                    await seeking
            else:
                assert await seeking == {}
            assert await one.position(T0) == 7

    story()
