"""Membership in a classic group on a real Kafka: joining, commits, rebalances, static members, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from confluent_kafka import Consumer as OtherConsumer

from aiokc.error_codes import ErrorCode
from aiokc.errors import BrokerError, CommitFailed, MemberFenced
from aiokc.net.pool import Purpose
from aiokc.testing.kafka import LocalKafka
from aiokc.types import OffsetAndMetadata, TopicPartition
from aiokc.wire.messages.group import LeaveGroupRequest, MemberIdentity
from tests.producing import add_partitions

from ..group_member import WITHIN, GroupMember, settled, soon

pytestmark = pytest.mark.every_kafka


@pytest.fixture
def topic(kafka: LocalKafka, topic_name: str) -> str:
    kafka.create_topic(topic_name, 6)
    return topic_name


def numbers(partitions: Iterable[TopicPartition]) -> list[int]:
    return sorted(tp.partition for tp in partitions)


async def test_members_share_the_partitions_and_take_over_those_of_a_member_that_leaves(
    kafka: LocalKafka, topic: str
) -> None:
    async with (
        GroupMember(kafka.bootstrap, topic, topic) as one,
        GroupMember(kafka.bootstrap, topic, topic) as two,
        GroupMember(kafka.bootstrap, topic) as three,
    ):
        for member in (one, two, three):
            member.poll()
        await settled(one, two, counts=(3, 3))
        assert one.assignment | two.assignment == {TopicPartition(topic, n) for n in range(6)}
        three.subscribe(topic)
        await settled(one, two, three, counts=(2, 2, 2))
        assert len(one.assignment | two.assignment | three.assignment) == 6
        assert one.membership.generation == two.membership.generation == three.membership.generation
        await three.leave()
        assert three.assignment == frozenset()
        await settled(one, two, counts=(3, 3))


async def test_partitions_of_a_crashed_member_are_taken_over_after_the_session_timeout(
    kafka: LocalKafka, topic: str
) -> None:
    async with (
        GroupMember(kafka.bootstrap, topic, topic, session_timeout_ms=1000) as one,
        GroupMember(kafka.bootstrap, topic, topic, session_timeout_ms=1000) as two,
    ):
        one.poll()
        two.poll()
        await settled(one, two, counts=(3, 3))
        await one.crash()
        assert numbers(await two.assigned(6)) == [0, 1, 2, 3, 4, 5]


async def test_a_member_can_share_a_group_with_another_client(kafka: LocalKafka, topic: str) -> None:
    other = OtherConsumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": topic,
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 100,
        }
    )
    other.subscribe([topic])
    loop = asyncio.get_running_loop()
    try:
        while len(other.assignment()) != 6:
            await soon(loop.run_in_executor(None, other.poll, 0.1))
        async with GroupMember(kafka.bootstrap, topic, topic) as ours:
            ours.poll()
            while len(other.assignment()) != 3 or len(ours.assignment) != 3:  # the other member leads
                await soon(loop.run_in_executor(None, other.poll, 0.1))
            assert numbers([*other.assignment(), *ours.assignment]) == [0, 1, 2, 3, 4, 5]
            await soon(loop.run_in_executor(None, other.close))
            await ours.assigned(6)
    finally:
        other.close()


async def test_the_leader_assigns_topics_that_only_others_read(kafka: LocalKafka, topic: str) -> None:
    second = f"{topic}-second"
    kafka.create_topic(second, 4)
    async with (
        GroupMember(kafka.bootstrap, topic, topic) as one,
        GroupMember(kafka.bootstrap, topic) as two,
    ):
        one.poll()
        two.poll()
        await one.assigned(6)  # it leads from here on
        two.subscribe(second)
        await settled(one, two, counts=(6, 4))
        assert one.metadata.followed == frozenset({topic, second})
        one.subscribe(topic, second)
        await settled(one, two, counts=(8, 2))
        one.subscribe(topic)
        await settled(one, two, counts=(6, 4))
        assert one.metadata.followed == frozenset({topic, second})
        await two.leave()
        await one.until(lambda: one.metadata.followed == frozenset({topic}))


async def test_new_partitions_are_assigned_without_the_user(kafka: LocalKafka, topic: str) -> None:
    async with GroupMember(kafka.bootstrap, topic, topic) as member:
        member.poll()
        await member.assigned(6)
        add_partitions(kafka.bootstrap, topic, 8)
        async with asyncio.timeout(WITHIN):
            while len(member.metadata.cluster.topics[topic].partitions) != 8:
                member.metadata.request_update()  # as metadata_max_age_ms would after a while
                await member.metadata.changed.wait()
        assert numbers(await member.assigned(8)) == list(range(8))


async def test_another_subscription_replaces_the_assignment(kafka: LocalKafka, topic: str) -> None:
    second = f"{topic}-second"
    kafka.create_topic(second, 2)
    async with GroupMember(kafka.bootstrap, topic, topic) as member:
        member.poll()
        await member.assigned(6)
        member.subscribe(second)
        await member.assigned(2)
        assert {tp.topic for tp in member.assignment} == {second}
        member.unsubscribe()
        assert member.assignment == frozenset()
        member.subscribe(topic)
        await member.assigned(6)


# Commits


async def test_what_is_committed_is_found_again(kafka: LocalKafka, topic: str) -> None:
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with GroupMember(kafka.bootstrap, topic, topic, enable_auto_commit=False) as member:
        member.poll()
        await member.assigned(6)
        await member.membership.commit({zero: OffsetAndMetadata(7, "a note", 0)}, timeout=WITHIN)
        found = await member.membership.committed([zero, one], timeout=WITHIN)
        assert found == {zero: OffsetAndMetadata(7, "a note", 0), one: None}


async def test_commits_of_a_manual_assignment_need_no_membership(kafka: LocalKafka, topic: str) -> None:
    zero = TopicPartition(topic, 0)
    async with GroupMember(kafka.bootstrap, topic) as reader, GroupMember(kafka.bootstrap, topic) as member:
        reader.assign(zero)
        await reader.membership.commit({zero: OffsetAndMetadata(3)}, timeout=WITHIN)
        assert (await reader.membership.committed([zero], timeout=WITHIN))[zero] == OffsetAndMetadata(3)
        assert reader.membership.member_id == ""
        member.poll()
        member.subscribe(topic)
        await member.assigned(6)
        with pytest.raises(CommitFailed, match="the group has members"):
            await reader.membership.commit({zero: OffsetAndMetadata(4)}, timeout=WITHIN)


async def test_auto_commit_stores_what_the_user_came_back_from(kafka: LocalKafka, topic: str) -> None:
    zero = TopicPartition(topic, 0)
    async with GroupMember(kafka.bootstrap, topic, topic, auto_commit_interval_ms=20) as member:
        member.poll()
        await member.assigned(6)
        member.take(zero, 5)
        member.poll()
        member.take(zero, 9)
        async with asyncio.timeout(WITHIN):
            while (await member.membership.committed([zero], timeout=WITHIN))[zero] is None:
                pass
        assert (await member.membership.committed([zero], timeout=WITHIN))[zero] == OffsetAndMetadata(5)


async def test_the_last_auto_commit_comes_with_leaving(kafka: LocalKafka, topic: str) -> None:
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with GroupMember(kafka.bootstrap, topic, topic) as member:
        member.poll()
        await member.assigned(6)
        member.take(zero, 5)
        member.poll()
        member.take(zero, 9)
        member.take(one, 2)
        await member.leave()
        found = await member.membership.committed([zero, one], timeout=WITHIN)
        assert found == {zero: OffsetAndMetadata(5), one: OffsetAndMetadata(0)}


async def test_a_manual_assignment_is_committed_with_leaving_too(kafka: LocalKafka, topic: str) -> None:
    zero = TopicPartition(topic, 0)
    async with GroupMember(kafka.bootstrap, topic) as member:
        member.assign(zero)
        member.take(zero, 5)
        member.poll()
        await member.leave()
        assert (await member.membership.committed([zero], timeout=WITHIN))[zero] == OffsetAndMetadata(5)


# Rebalances


async def test_a_rebalance_waits_for_the_batch_in_hand_and_commits_it(kafka: LocalKafka, topic: str) -> None:
    zero = TopicPartition(topic, 0)
    async with (
        GroupMember(kafka.bootstrap, topic, topic, session_timeout_ms=5_000) as one,
        GroupMember(kafka.bootstrap, topic) as two,
    ):
        one.poll()
        await one.assigned(6)
        one.take(zero, 5)
        two.poll()
        two.subscribe(topic)
        blocked = one.subscription[zero]
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(WITHIN):
            while not blocked.blocked:
                await one.membership.moved.wait(1.0)
        end = loop.time() + 5.6
        while loop.time() < end:  # for longer than the session: a member without heartbeats is out by then
            await one.membership.moved.wait(1.0)
        assert blocked.blocked
        assert len(one.assignment) == 6
        assert two.assignment == frozenset()
        member_id = one.membership.member_id
        one.poll()
        await settled(one, two, counts=(3, 3))
        assert one.membership.member_id == member_id
        found = await two.membership.committed([zero], timeout=WITHIN)
        assert found[zero] == OffsetAndMetadata(5)


async def test_committing_the_batch_in_hand_lets_the_rebalance_go_on(kafka: LocalKafka, topic: str) -> None:
    zero = TopicPartition(topic, 0)
    async with (
        GroupMember(kafka.bootstrap, topic, topic) as one,
        GroupMember(kafka.bootstrap, topic) as two,
    ):
        one.poll()
        await one.assigned(6)
        one.take(zero, 5)
        two.poll()
        two.subscribe(topic)
        async with asyncio.timeout(WITHIN):
            while not one.subscription[zero].blocked:
                await one.membership.moved.wait(1.0)
        assert (len(one.assignment), len(two.assignment)) == (6, 0)
        await one.membership.commit({zero: OffsetAndMetadata(5)}, timeout=WITHIN)
        await settled(one, two, counts=(3, 3))
        assert numbers(one.assignment | two.assignment) == [0, 1, 2, 3, 4, 5]


async def test_a_member_that_is_not_polled_leaves_and_comes_back_with_the_next_poll(
    kafka: LocalKafka, topic: str
) -> None:
    zero = TopicPartition(topic, 0)
    async with GroupMember(kafka.bootstrap, topic, topic, max_poll_interval_ms=500) as member:
        member.poll()
        await member.assigned(6)
        member.take(zero, 5)
        await member.assigned(0)
        with pytest.raises(CommitFailed, match="max_poll_interval_ms=500"):
            await member.membership.commit({zero: OffsetAndMetadata(5)}, timeout=WITHIN)
        member.poll()
        await member.assigned(6)
        assert (await member.membership.committed([zero], timeout=WITHIN))[zero] is None


async def test_a_commit_after_eviction_fails_and_the_member_joins_anew(kafka: LocalKafka, topic: str) -> None:
    zero = TopicPartition(topic, 0)
    async with GroupMember(kafka.bootstrap, topic, topic, heartbeat_interval_ms=30_000) as member:
        member.poll()
        await member.assigned(6)
        evicted = member.membership.member_id
        await member.pool.request(
            await member.membership.offsets.requests.lookup.coordinator(10.0),
            LeaveGroupRequest(group_id=topic, members=[MemberIdentity(member_id=evicted)]),
            purpose=Purpose.COORDINATOR,
            timeout=WITHIN,
        )
        with pytest.raises(CommitFailed, match="the group has gone on without"):
            await member.membership.commit({zero: OffsetAndMetadata(5)}, timeout=WITHIN)
        await member.until(lambda: member.membership.member_id not in ("", evicted))
        await member.assigned(6)
        assert [len(assignment) for assignment in member.changed.history] == [0, 6, 0, 6]
        assert (await member.membership.committed([zero], timeout=WITHIN))[zero] is None


# Static members


async def test_a_second_consumer_with_the_same_instance_id_fences_the_first(kafka: LocalKafka, topic: str) -> None:
    async with GroupMember(kafka.bootstrap, topic, topic, group_instance_id="only") as first:
        first.poll()
        await first.assigned(6)
        async with GroupMember(kafka.bootstrap, topic, topic, group_instance_id="only") as second:
            second.poll()
            error = await first.failed()
            assert isinstance(error, MemberFenced)
            assert "same group_instance_id" in str(error)
            assert first.assignment == frozenset()
            with pytest.raises(MemberFenced):
                await first.membership.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)}, timeout=WITHIN)
            await second.assigned(6)


async def test_a_static_member_that_restarts_keeps_its_partitions_without_a_rebalance(
    kafka: LocalKafka, topic: str
) -> None:
    async with GroupMember(kafka.bootstrap, topic, topic, group_instance_id="leader") as leader:
        leader.poll()
        await leader.assigned(6)
        async with GroupMember(kafka.bootstrap, topic, topic, group_instance_id="follower") as follower:
            follower.poll()
            await settled(leader, follower, counts=(3, 3))
            held, generation = follower.assignment, follower.membership.generation
            await follower.leave()
        async with GroupMember(kafka.bootstrap, topic, topic, group_instance_id="follower") as again:
            again.poll()
            assert await again.assigned(3) == held
            assert again.membership.generation == leader.membership.generation == generation


# Errors that only the application can repair


async def test_members_without_a_common_assignor_are_told_so(kafka: LocalKafka, topic: str) -> None:
    async with (
        GroupMember(kafka.bootstrap, topic, topic, partition_assignment_strategy=["range"]) as one,
        GroupMember(kafka.bootstrap, topic, partition_assignment_strategy=["roundrobin"]) as two,
    ):
        one.poll()
        await one.assigned(6)
        two.poll()
        two.subscribe(topic)
        error = await two.failed()
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert "partition_assignment_strategy=[roundrobin]" in str(error)
        with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
            await two.membership.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)}, timeout=WITHIN)
        await two.leave()


async def test_a_session_timeout_that_the_broker_does_not_allow_is_named(kafka: LocalKafka, topic: str) -> None:
    async with GroupMember(kafka.bootstrap, topic, topic, session_timeout_ms=500) as member:
        member.poll()
        error = await member.failed()
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert "session_timeout_ms=500" in str(error)
