"""What is subscribed to next is read, whatever came before; and a pattern without a match holds up nobody."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from aiokc import ErrorCode, TopicPartition
from aiokc.errors import UsageError
from aiokc.testing import ApiKey

from ..stage import T0, T1, Member, Stage, scenario
from .test_rebalancing import COOPERATIVE, EAGER, fill
from .test_unsubscribing import Slow

U0 = TopicPartition("u", 0)
CONSUMER = {"group_protocol": "consumer"}
PROTOCOLS = pytest.mark.parametrize(
    "protocol", [EAGER, COOPERATIVE, CONSUMER], ids=["eager", "cooperative", "consumer"]
)


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_a_static_member_comes_back_with_a_pattern_that_matches_another_topic_by_now(protocol: dict[str, Any]) -> None:
    """Given a static member that has unsubscribed, when a topic is created, and the member subscribes to a pattern that
    matches it, too, then it reads both topics. It knows of the new one only from the look that comes before it joins.
    """

    @scenario(topics={"t": 2})
    async def story(stage: Stage) -> None:
        async with stage.member("c1", re.compile("t|u"), group_instance_id="one", **protocol).reads() as c1:
            await stage.until(lambda: c1.owned == {T0, T1})
            c1.consumer.unsubscribe()
            await stage.until(lambda: c1.told[-1] == "revoked")
            await asyncio.sleep(1)
            stage.cluster.create_topic("u", 1)
            c1.consumer.subscribe(re.compile("t|u"), listener=c1)
            c1.reads()
            await stage.until(lambda: c1.owned == {T0, T1, U0})

    story()


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_a_static_member_whose_join_was_refused_joins_with_what_its_pattern_matches_by_now(
    protocol: dict[str, Any],
) -> None:
    """Given a static member whose coordinator loads its groups, when a topic that the pattern matches is created before
    the next attempt, then the member joins with both.
    """

    @scenario(topics={"t": 2})
    async def story(stage: Stage) -> None:
        loading = stage.cluster.intercept(ApiKey.JOIN_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        c1 = stage.member("c1", re.compile("t|u"), group_instance_id="one", **protocol)
        async with c1.reads():
            await loading.caught()
            stage.cluster.create_topic("u", 1)
            await loading.caught(10)
            loading.cancel()
            await stage.until(lambda: c1.owned == {T0, T1, U0})

    story()


@PROTOCOLS
def test_a_failure_after_unsubscribe_does_not_end_the_next_subscription(protocol: dict[str, Any]) -> None:
    """Given a member that gives up its partitions after unsubscribe(), when the coordinator refuses it, then the
    application hears nothing of that, and what it subscribes to next is read: it is another attempt.
    """

    @scenario(topics={"t": 2})
    async def story(stage: Stage) -> None:
        async with stage.member("c1", **protocol).reads() as c1:
            await stage.until(lambda: c1.owned == {T0, T1})
            revoked = Slow(c1, "on_partitions_revoked")
            c1.consumer.unsubscribe()
            await revoked.entered.wait()
            api = ApiKey.CONSUMER_GROUP_HEARTBEAT if protocol == CONSUMER else ApiKey.HEARTBEAT
            await stage.cluster.intercept(api, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1).caught()
            await asyncio.sleep(1)
            revoked.gate.set()
            await asyncio.sleep(1)
            assert c1.consumer.health().error is None
            c1.consumer.subscribe(["t"], listener=c1)
            c1.reads()
            await stage.until(lambda: c1.owned == {T0, T1})
            assert all(isinstance(error, UsageError) for error in c1.errors)  # of reading while nothing is subscribed

    story()


async def _holding_records(stage: Stage, member: Member) -> None:
    """The application holds records of both partitions, and its pattern matches nothing any more."""
    fill(stage, 10, 2)
    seen = 0
    while seen < 20:
        seen += sum(map(len, (await member.consumer.getmany()).values()))
    member.consumer.subscribe(re.compile("nothing"), listener=member)
    await asyncio.sleep(1)
    assert member.told == ["assigned"]


@PROTOCOLS
def test_stopping_waits_for_no_application_where_a_pattern_matches_nothing_any_more(protocol: dict[str, Any]) -> None:
    """Given an application that holds records, and a pattern that matches no topic any more, when the consumer stops,
    then the listener hears of the revocation, and the member leaves its group at once.
    """

    @scenario(topics={"t": 2})
    async def story(stage: Stage) -> None:
        c1 = stage.member("c1", re.compile("t"), **protocol)
        await c1.consumer.start()
        await _holding_records(stage, c1)
        began = stage.loop.time()
        await c1.consumer.stop()
        assert stage.loop.time() - began < 1
        assert c1.told == ["assigned", "revoked"]
        if protocol == CONSUMER:
            assert stage.of("c1", "ConsumerGroupHeartbeat")[-1].member_epoch == -1
        else:
            assert len(stage.of("c1", "LeaveGroup")) == 1

    story()


@PROTOCOLS
def test_unsubscribing_waits_for_no_application_where_a_pattern_matches_nothing_any_more(
    protocol: dict[str, Any],
) -> None:
    """As above, when the application unsubscribes: it need not poll for the partitions to go."""

    @scenario(topics={"t": 2})
    async def story(stage: Stage) -> None:
        async with stage.member("c1", re.compile("t"), **protocol) as c1:
            await _holding_records(stage, c1)
            c1.consumer.unsubscribe()
            await asyncio.sleep(1)
            assert c1.told == ["assigned", "revoked"]

    story()


@PROTOCOLS
def test_the_poll_limit_holds_where_a_pattern_matches_nothing_any_more(protocol: dict[str, Any]) -> None:
    """Given an application that holds records and hangs, when its pattern matches no topic any more, then another
    member gets its partitions when max_poll_interval_ms is over; and the application reads again by its next poll.
    """

    @scenario(topics={"t": 2})
    async def story(stage: Stage) -> None:
        async with stage.member("c1", re.compile("t"), max_poll_interval_ms=10_000, **protocol) as c1:
            await _holding_records(stage, c1)
            async with stage.member("c2", **protocol).reads() as c2:
                await asyncio.sleep(7)
                assert c2.owned == set()
                await stage.until(lambda: c2.owned == {T0, T1})
                assert c1.told == ["assigned", "lost"]
                c1.consumer.subscribe(re.compile("t"), listener=c1)
                c1.reads()
                await stage.until(lambda: len(c1.owned) == len(c2.owned) == 1)

    story()


def test_what_a_pattern_misses_is_not_asked_for_once_it_is_unsubscribed() -> None:
    """Given a pattern of which a topic is gone, or not known to a broker yet, when the application unsubscribes, then
    nobody asks for that topic any more.
    """

    @scenario(topics={"t": 2, "u": 1})
    async def story(stage: Stage) -> None:
        async with stage.member("c1", re.compile("t|u"), **EAGER).reads() as c1:
            await stage.until(lambda: c1.owned == {T0, T1, U0})
            stage.cluster.delete_topic("u")
            metadata = c1.consumer._runtime.cluster_client.metadata
            metadata.request_update()
            await stage.until(lambda: "u" not in metadata.cluster.topics)
            await asyncio.sleep(0.2)
            c1.consumer.unsubscribe()
            await asyncio.sleep(10)
            asked = len(stage.of("c1", "Metadata"))
            await asyncio.sleep(60)
            assert len(stage.of("c1", "Metadata")) <= asked + 1

    story()


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("asks", ["first", "second"])
def test_static_members_whose_deployment_adds_a_topic_read_it_after_one_rebalance(
    protocol: dict[str, Any], asks: str
) -> None:
    """Given static members that restart with one more topic, so that their group gives them what they had (KIP-814),
    when one of them, leader or not, enforces a rebalance, then every partition of both topics has a reader.
    """

    @scenario(topics={"t": 2, "u": 1})
    async def story(stage: Stage) -> None:
        one, two = {"group_instance_id": "one", **protocol}, {"group_instance_id": "two", **protocol}
        async with stage.member("c1", **one).reads() as c1, stage.member("c2", **two).reads() as c2:
            await stage.until(lambda: len(c1.owned) == len(c2.owned) == 1)
        async with stage.member("c1", "t", "u", **one).reads() as c1, stage.member("c2", "t", "u", **two).reads() as c2:
            await asyncio.sleep(60)
            assert c1.owned | c2.owned == {T0, T1}
            (c1 if asks == "first" else c2).consumer.enforce_rebalance()
            await stage.until(lambda: c1.owned | c2.owned == {T0, T1, U0})

    story()
