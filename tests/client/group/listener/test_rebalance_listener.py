"""The rebalance listener of a group member: which callbacks, with what, in which order, and of which listener."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import CommitFailed, ConfigError
from aiokc.testing import Cluster
from aiokc.testing.faults import Hold
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest

from ...listening import Gate, Noting, Polling, listening, partitions
from ...virtually import virtually
from ..classic.scripted_group import scripted_group
from ..consumer.group_stories import consumer_of, read, shared
from ..group_member import GroupMember

pytestmark = pytest.mark.timeout(30)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = frozenset({T0, T1})
EAGER: dict[str, Any] = {"partition_assignment_strategy": ["range"]}
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}


# Which callbacks, with what


async def test_a_member_is_told_what_it_gets_and_what_goes_when_it_stops() -> None:
    listener = Noting()
    async with Cluster(topics={"t": 2}) as cluster:
        async with listening(cluster, "t", listener=listener):
            await listener.heard("assigned")
        assert listener.told == [("assigned", BOTH), ("revoked", BOTH)]


async def test_eager_all_goes_before_a_member_joins_again_and_all_it_gets_is_new() -> None:
    """As Java's ConsumerCoordinator.onJoinPrepare and onJoinComplete; a partition that comes back by chance is new."""
    one, two = Noting(), Noting()
    async with (
        Cluster(topics={"t": 6}) as cluster,
        listening(cluster, "t", listener=one, client_id="a", **EAGER) as first,
        Polling(first),
    ):
        await one.heard("assigned")
        async with listening(cluster, "t", listener=two, client_id="b", **EAGER) as second, Polling(second):
            await two.heard("assigned")
            await one.heard("assigned", "revoked", "assigned")
            assert one.told[1] == ("revoked", partitions("t", 6))
            assert [len(got) for _, got in (one.told[2], two.told[0])] == [3, 3]
            assert one.holds | two.holds == partitions("t", 6)
        await one.heard("assigned", "revoked", "assigned", "revoked", "assigned")
        assert one.holds == partitions("t", 6)


async def test_cooperative_only_what_is_taken_away_goes_and_only_what_is_added_is_told() -> None:
    """KIP-429: "assigned" is called at the end of each rebalance, "revoked" only if a partition goes."""
    one, two = Noting(), Noting()
    async with (
        Cluster(topics={"t": 6}) as cluster,
        listening(cluster, "t", listener=one, **COOPERATIVE) as first,
        Polling(first),
    ):
        await one.heard("assigned")
        async with listening(cluster, "t", listener=two, **COOPERATIVE) as second, Polling(second):
            await two.until(lambda: len(two.holds) == 3)
            await one.until(lambda: one.count("revoked") == 1 and len(one.holds) == 3)
            [gone] = [what for call, what in one.told if call == "revoked"]
            assert len(gone) == 3
            assert two.count("revoked") == 0
            assert all(not what for call, what in one.told[1:] if call == "assigned"), "what is kept is not told again"
            assert frozenset(first.assignment()) == one.holds
        await one.until(lambda: one.holds == partitions("t", 6))
        assert one.count("revoked") == 1


async def test_a_member_without_partitions_is_told_of_each_rebalance_all_the_same() -> None:
    """More members than partitions. As in Java, an eager member's callbacks are called with empty sets."""
    one, two = Noting(), Noting()
    async with (
        Cluster(topics={"t": 1}) as cluster,
        listening(cluster, "t", listener=one, client_id="a", **EAGER) as first,
        Polling(first),
    ):
        await one.heard("assigned")
        async with listening(cluster, "t", listener=two, client_id="b", **EAGER) as second, Polling(second):
            await two.heard("assigned")
            assert two.told == [("assigned", frozenset())]
            cluster.add_partitions("t", 2)
            first._runtime.cluster_client.metadata.request_update()
            await two.heard("assigned", "revoked", "assigned")
            assert two.told[1] == ("revoked", frozenset())
            assert len(two.holds) == 1


async def test_cooperative_a_member_without_partitions_is_never_told_that_nothing_goes() -> None:
    one, two = Noting(), Noting()
    async with (
        Cluster(topics={"t": 1}) as cluster,
        listening(cluster, "t", listener=one, **COOPERATIVE) as first,
        Polling(first),
    ):
        await one.heard("assigned")
        async with listening(cluster, "t", listener=two, **COOPERATIVE) as second, Polling(second):
            await two.heard("assigned")
            cluster.add_partitions("t", 2)
            first._runtime.cluster_client.metadata.request_update()
            await two.until(lambda: len(two.holds) == 1)
        assert [what for call, what in two.told if call == "revoked"] == [two.told[-1][1]]
        assert two.told[-1][1], "only what it really had, when it stopped"


async def test_revoked_is_told_once_where_the_join_has_to_be_repeated() -> None:
    """Java's needsJoinPrepare: a refused or a lost JoinGroup is the same rebalance."""
    listener = Noting()
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        member.listener.listener = listener
        member.poll()
        await listener.heard("assigned")
        joins = len(script.of(JoinGroupRequest))
        script.instead(JoinGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        script.instead(SyncGroupRequest, ErrorCode.REBALANCE_IN_PROGRESS)
        script.instead(HeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS)
        await listener.heard("assigned", "revoked", "assigned")
        assert len(script.of(JoinGroupRequest)) == joins + 4


async def test_revoked_is_over_before_the_member_joins_again() -> None:
    joins: list[int] = []

    async def count(_: object) -> None:
        joins.append(len(script.of(JoinGroupRequest)))
        await asyncio.sleep(0.1)
        joins.append(len(script.of(JoinGroupRequest)))

    listener = Noting(revoked=count)
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        member.listener.listener = listener
        member.poll()
        await listener.heard("assigned")
        script.instead(HeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS)
        await listener.heard("assigned", "revoked", "assigned")
        assert joins == [2, 2]
        assert len(script.of(JoinGroupRequest)) == 3


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_what_the_group_has_given_to_others_is_lost_and_not_revoked(strategy: str) -> None:
    """After UNKNOWN_MEMBER_ID. The default on_partitions_lost() does nothing: Java's calls onPartitionsRevoked()."""
    listener = Noting()
    async with (
        Cluster(topics={"t": 2}) as cluster,
        listening(cluster, "t", listener=listener, partition_assignment_strategy=[strategy]) as consumer,
        Polling(consumer),
    ):
        await listener.heard("assigned")
        cluster.expire_member("g")
        await listener.heard("assigned", "lost", "assigned")
        assert listener.told == [("assigned", BOTH), ("lost", BOTH), ("assigned", BOTH)]
    assert RebalanceListener().on_partitions_lost(BOTH) is None


async def test_an_application_that_stops_polling_hears_of_the_loss_and_joins_again_with_its_next_poll() -> None:
    """The member leaves, on_partitions_lost() is called, the assignment is empty, a late commit fails, and getmany()
    raises nothing."""
    listener = Noting()
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0", b"1")
        left = cluster.intercept(LeaveGroupRequest, lambda exchange: None)
        async with listening(cluster, "t", listener=listener, max_poll_interval_ms=600_000) as consumer:
            assert (await consumer.getone()).value == b"0"
            membership = consumer._runtime.membership
            assert membership is not None
            membership._polls.last -= 600.0
            await listener.heard("assigned", "lost")
            await left.caught()
            assert consumer.assignment() == frozenset()
            with pytest.raises(CommitFailed):
                await consumer.commit({T0: 1})
            assert (await consumer.getone()).value == b"0"
            assert listener.told == [("assigned", BOTH), ("lost", BOTH), ("assigned", BOTH)]


async def test_a_failed_member_loses_what_it_has() -> None:
    """MemberFenced: another consumer has taken the place of this static member."""
    listener = Noting()
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t", group_instance_id="i") as member:
        member.listener.listener = listener
        member.poll()
        await listener.heard("assigned")
        script.instead(HeartbeatRequest, ErrorCode.FENCED_INSTANCE_ID)
        await member.failed()
        await listener.heard("assigned", "lost")


async def test_a_loss_that_overtakes_a_revocation_is_told_once() -> None:
    """The group forgets the member during on_partitions_revoked(): those partitions are not reported again as lost."""
    gate = Gate()
    listener = Noting(revoked=gate)
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        member.listener.listener = listener
        member.poll()
        await listener.heard("assigned")
        script.instead(HeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)
        await gate.began.wait()
        async with asyncio.timeout(10):
            while member.membership.generation != -1:
                await member.membership.moved.wait()
        gate.go_on.set()
        await listener.heard("assigned", "revoked", "assigned")


async def test_what_is_lost_is_gone_before_the_listener_hears_of_it() -> None:
    gate = Gate()
    listener = Noting(lost=gate)
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        member.listener.listener = listener
        member.poll()
        await listener.heard("assigned")
        script.instead(HeartbeatRequest, ErrorCode.UNKNOWN_MEMBER_ID)
        await gate.began.wait()
        assert member.assignment == frozenset(), "what is lost is gone at once, whatever the listener does"
        assert len(script.of(JoinGroupRequest)) == 2, "and the member joins again when it has been told"
        gate.go_on.set()
        await listener.heard("assigned", "lost", "assigned")


# Which listener is called


async def test_unsubscribe_tells_the_listener_what_goes_and_leaves_the_group_after_that() -> None:
    async def look(_: object) -> None:
        members.append(cluster.members("g"))

    members: list[list[str]] = []
    listener = Noting(revoked=look)
    async with Cluster(topics={"t": 2}) as cluster, listening(cluster, "t", listener=listener) as consumer:
        await listener.heard("assigned")
        left = cluster.intercept(LeaveGroupRequest, lambda exchange: None)
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        await listener.heard("assigned", "revoked")
        await left.caught()
        assert listener.told[1] == ("revoked", BOTH)
        assert len(members[0]) == 1, "still a member while the callback runs"


async def test_a_new_subscription_replaces_the_listener() -> None:
    """As in Java: the listener of the last subscribe() gets all later calls. If it named none, there are no calls."""
    old, new = Noting(), RebalanceListenerOfAnything()
    async with Cluster(topics={"t": 2, "u": 1}) as cluster:
        async with listening(cluster, "t", listener=old) as consumer, Polling(consumer):
            await old.heard("assigned")
            consumer.subscribe(["u"], listener=new)
            await new.until(lambda: new.told == [("revoked", BOTH), ("assigned", partitions("u", 1))])
            consumer.subscribe(["t"])
            async with asyncio.timeout(10):
                while consumer.assignment() != BOTH:
                    await consumer._runtime.changed.wait()
        assert old.calls == ["assigned"]
        assert len(new.calls) == 2


async def test_the_old_listener_hears_of_what_unsubscribe_gave_up_even_if_another_one_follows_at_once() -> None:
    old, new = Noting(), Noting()
    async with (
        Cluster(topics={"t": 2, "u": 1}) as cluster,
        listening(cluster, "t", listener=old) as consumer,
        Polling(consumer),
    ):
        await old.heard("assigned")
        consumer.unsubscribe()
        consumer.subscribe(["u"], listener=new)
        await new.heard("assigned")
        await old.heard("assigned", "revoked")
        assert new.told == [("assigned", partitions("u", 1))]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("end", ["stop", "unsubscribe", "loss"])
def test_the_old_listener_hears_of_them_also_if_the_last_commit_is_cut_short(protocol: str, end: str) -> None:
    """What ends the revocation is a change of its own, and the application has subscribed anew before it."""

    async def story(cluster: Cluster) -> None:
        old, new = Noting(), Noting()
        cluster.append("t", b"0")
        async with consumer_of(cluster, old, group_protocol=protocol, enable_auto_commit=True) as consumer:
            assert await read(consumer, 1) == [b"0"]
            await consumer.getmany(timeout_ms=10)  # so the record is processed
            cluster.intercept(OffsetCommitRequest, hold := Hold(), times=1)
            consumer.unsubscribe()
            await hold.arrived()
            consumer.subscribe(["t"], listener=new)
            if end == "unsubscribe":
                consumer.unsubscribe()
            if end == "loss":
                [member] = cluster.members("g")
                cluster.expire_member("g", member)
                if protocol == "classic":
                    hold.release()  # the refused commit is the loss; in KIP-848 a heartbeat is, by another connection
                await shared(consumer)
        assert old.told == [("assigned", BOTH), ("lost" if end == "loss" else "revoked", BOTH)]
        assert new.told == ([("assigned", BOTH), ("revoked", BOTH)] if end == "loss" else [])

    virtually(story)


async def test_no_listener_hears_of_partitions_assigned_by_hand() -> None:
    listener = Noting()
    async with Cluster(topics={"t": 2}) as cluster:
        async with listening(cluster, "t", listener=listener) as consumer:
            await listener.heard("assigned")
            consumer.unsubscribe()
            await listener.heard("assigned", "revoked")
            consumer.assign([T0])
            assert await consumer.getmany(timeout_ms=50) == {}
        await listener.heard("assigned", "revoked")


@pytest.mark.parametrize("listener", [Noting, object(), print])
def test_a_listener_is_an_instance_of_the_class_that_says_what_it_may_do(listener: object) -> None:
    with pytest.raises(ConfigError, match="must be a RebalanceListener"):
        Consumer("t", listener=listener)  # type: ignore[arg-type]


def test_a_listener_without_topics_is_an_error() -> None:
    with pytest.raises(ConfigError, match="comes with the topics"):
        Consumer(listener=Noting())


class RebalanceListenerOfAnything(Noting):
    """Accepts a revocation of partitions whose assignment another listener heard of."""

    async def _note(self, what: str, partitions: frozenset[TopicPartition]) -> None:
        self.told.append((what, partitions))
        self.changed.notify()
