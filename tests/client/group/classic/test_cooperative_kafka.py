"""Cooperative rebalancing on a real broker: which partitions members keep, and that they read and commit meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.core.group.classic.membership import Membership
from aiokc.core.group.classic.transitions import State
from aiokc.core.group.events import Event, SendJoin
from aiokc.testing.kafka import LocalKafka
from tests.producing import Message, add_partitions, produce

from ..group_member import WITHIN, GroupMember, settled, soon

pytestmark = [pytest.mark.kafka, pytest.mark.every_kafka]


@pytest.fixture
def topic(kafka: LocalKafka, topic_name: str) -> str:
    kafka.create_topic(topic_name, 6)
    return topic_name


class CooperativeMember(GroupMember):
    """A member with cooperative-sticky, whose JoinGroup waits while ``may_join`` is not set."""

    def __init__(self, bootstrap: str, group_id: str, *topics: str, **options: object) -> None:
        super().__init__(
            bootstrap,
            group_id,
            *topics,
            **{"partition_assignment_strategy": ["cooperative-sticky"], **options},
        )
        self.may_join = asyncio.Event()
        self.may_join.set()
        join = self.classic._requests.join

        async def when_allowed(effect: SendJoin) -> Event:
            await self.may_join.wait()
            return await join(effect)

        self.classic._requests.join = when_allowed  # type: ignore[method-assign]

    @property
    def state(self) -> State:
        assert isinstance(self.membership._machine, Membership)
        return self.membership._machine.state

    async def becomes(self, state: State) -> None:
        async with asyncio.timeout(WITHIN):
            while self.state is not state:
                await self.membership.moved.wait()


def everything(topic: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in range(6))


async def test_members_give_up_only_what_others_need_and_nothing_has_two_readers(kafka: LocalKafka, topic: str) -> None:
    async with (
        CooperativeMember(kafka.bootstrap, topic, topic) as one,
        CooperativeMember(kafka.bootstrap, topic) as two,
        CooperativeMember(kafka.bootstrap, topic) as three,
    ):
        for member in (one, two, three):
            member.poll()
        assert await one.assigned(6) == everything(topic)
        two.subscribe(topic)
        await settled(one, two, counts=(3, 3))
        halves = one.assignment, two.assignment
        positions = {tp: one.subscription[tp] for tp in one.assignment}
        three.subscribe(topic)
        await settled(one, two, three, counts=(2, 2, 2))
        assert one.assignment < halves[0]
        assert two.assignment < halves[1]
        assert three.assignment == (halves[0] - one.assignment) | (halves[1] - two.assignment)
        for tp in one.assignment:
            assert one.subscription[tp] is positions[tp], "given up and taken back"
        # Each member's partitions only become fewer: none is given up and taken back.
        assert [len(held) for held in one.changed.history] == [0, 6, 3, 2]
        assert [len(held) for held in two.changed.history] == [0, 3, 2]
        await two.leave()
        await settled(one, three, counts=(3, 3))
        assert one.assignment | three.assignment == everything(topic)
        for tp in one.assignment & positions.keys():
            assert one.subscription[tp] is positions[tp]


async def test_a_member_reads_and_commits_while_the_group_waits_for_others(kafka: LocalKafka, topic: str) -> None:
    """A member whose JoinGroup is parked, because another member does not join, reads on without a pause."""
    stop = asyncio.Event()
    read: Counter[TopicPartition] = Counter()

    async with Consumer(
        bootstrap_servers=kafka.bootstrap,
        group_id=topic,
        partition_assignment_strategy=["cooperative-sticky"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
    ) as consumer:
        consumer.subscribe([topic])
        membership = consumer._runtime.membership
        assert membership is not None
        machine = membership._machine
        assert isinstance(machine, Membership)

        async def consume() -> None:
            while not stop.is_set():
                for tp, records in (await consumer.getmany(timeout_ms=50)).items():
                    read[tp] += len(records)
                await consumer.commit()  # raises nothing, whatever the group is doing

        task = asyncio.get_running_loop().create_task(consume())
        async with (
            CooperativeMember(kafka.bootstrap, topic, topic) as slow,
            CooperativeMember(kafka.bootstrap, topic) as late,
        ):
            slow.poll()
            late.poll()
            await slow.assigned(3)
            async with asyncio.timeout(WITHIN):
                while not (mine := consumer.assignment()):  # each member hears of its share in its own time
                    await consumer._runtime.changed.wait(0.1)
            slow.may_join.clear()
            late.subscribe(topic)
            async with asyncio.timeout(WITHIN):
                while machine.state is not State.JOINING:
                    await membership.moved.wait()
                await slow.becomes(State.JOINING)
            parked_since = membership.generation
            for tp in mine:
                before = read[tp]
                await asyncio.to_thread(produce, kafka.bootstrap, topic, [_to(tp)] * 10)
                async with asyncio.timeout(WITHIN):
                    while read[tp] < before + 10:
                        await consumer._runtime.changed.wait(0.1)
            assert machine.state is State.JOINING, "the rebalance was over too soon: this showed nothing"
            assert membership.generation == parked_since
            assert consumer.assignment() == mine
            committed = await consumer.committed(*mine)
            assert all(committed[tp] is not None for tp in mine)
            slow.may_join.set()
            await late.assigned(2)
            async with asyncio.timeout(WITHIN):
                while len(consumer.assignment()) != 2:
                    await consumer._runtime.changed.wait()
            assert consumer.assignment() < mine
            stop.set()
            await soon(task)


def _to(tp: TopicPartition) -> Message:
    return Message(b"value", partition=tp.partition)


async def test_a_revocation_waits_for_the_records_in_hand_while_the_rest_is_read(kafka: LocalKafka, topic: str) -> None:
    async with (
        CooperativeMember(kafka.bootstrap, topic, topic) as one,
        CooperativeMember(kafka.bootstrap, topic) as two,
    ):
        one.poll()
        two.poll()
        await one.assigned(6)
        for tp in one.assignment:
            one.take(tp, 0)
        two.subscribe(topic)
        await one.becomes(State.REVOKING)
        blocked = {tp for tp, position in one.subscription.assigned.items() if position.blocked}
        assert len(blocked) == 3
        assert two.assignment == frozenset()
        one.poll()  # it has processed what it held
        await settled(one, two, counts=(3, 3))
        assert two.assignment == blocked


async def test_one_rolling_bounce_migrates_a_group_from_range_to_cooperative_sticky(
    kafka: LocalKafka, topic: str
) -> None:
    """With the default (both assignors) members stay eager, as in Java. Members restarted without range cooperate."""

    def member(*strategy: str) -> CooperativeMember:
        return CooperativeMember(kafka.bootstrap, topic, partition_assignment_strategy=strategy)

    both = "range", "cooperative-sticky"
    async with (
        member(*both) as one,
        member(*both) as two,
        member("cooperative-sticky") as three,
        member("cooperative-sticky") as four,
        member("cooperative-sticky") as five,
    ):
        for each in (one, two, three, four, five):
            each.poll()
        assert not one.classic.is_cooperative
        one.subscribe(topic)
        two.subscribe(topic)
        await settled(one, two, counts=(3, 3))
        await one.leave()
        three.subscribe(topic)
        await settled(two, three, counts=(3, 3))
        assert two.assignment | three.assignment == everything(topic)
        await two.leave()
        four.subscribe(topic)
        await settled(three, four, counts=(3, 3))
        halves = three.assignment, four.assignment
        five.subscribe(topic)
        await settled(three, four, five, counts=(2, 2, 2))
        assert three.assignment < halves[0]
        assert four.assignment < halves[1]


async def test_a_topic_that_is_dropped_goes_and_the_others_stay(kafka: LocalKafka, topic: str) -> None:
    other = f"{topic}-other"
    kafka.create_topic(other, 2)
    async with CooperativeMember(kafka.bootstrap, topic, topic, other) as one:
        one.poll()
        await one.assigned(8)
        positions = {tp: one.subscription[tp] for tp in one.assignment}
        one.subscribe(topic)
        assert await one.assigned(6) == everything(topic)
        await one.becomes(State.STABLE)
        for tp in one.assignment:
            assert one.subscription[tp] is positions[tp]


class Named(RebalanceListener):
    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.moved = asyncio.Event()

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("revoked", len(partitions)))
        self.moved.set()

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("assigned", len(partitions)))
        self.moved.set()


async def test_enforcing_a_rebalance_takes_nothing_from_a_cooperative_member(kafka: LocalKafka, topic: str) -> None:
    told = Named()
    async with Consumer(
        bootstrap_servers=kafka.bootstrap, group_id=topic, partition_assignment_strategy=["cooperative-sticky"]
    ) as consumer:
        consumer.subscribe([topic], listener=told)
        await _poll_until(consumer, lambda: told.told == [("assigned", 6)])
        membership = consumer._runtime.membership
        assert membership is not None
        before = membership.generation
        consumer.enforce_rebalance("to see what happens")
        await _poll_until(consumer, lambda: len(told.told) == 2)
        assert told.told[1] == ("assigned", 0)
        assert membership.generation == before + 1
        assert consumer.assignment() == everything(topic)


async def _poll_until(consumer: Consumer, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN):
        while not condition():
            await consumer.getmany(timeout_ms=50)


@pytest.mark.parametrize("restarts", ["leader", "follower"])
async def test_a_static_member_that_restarts_disturbs_no_other_member(
    kafka: LocalKafka, topic: str, restarts: str
) -> None:
    """KIP-345, and for the leader KIP-814: it learns that it leads, keeps the assignment, and follows the topics."""

    def member(name: str, *topics: str) -> CooperativeMember:
        return CooperativeMember(kafka.bootstrap, topic, *topics, group_instance_id=name)

    async with member("leader", topic) as leader, member("follower") as follower:
        leader.poll()
        follower.poll()
        await leader.assigned(6)
        follower.subscribe(topic)
        await settled(leader, follower, counts=(3, 3))
        stays, goes = (follower, leader) if restarts == "leader" else (leader, follower)
        positions = {tp: stays.subscription[tp] for tp in stays.assignment}
        generation, held = stays.membership.generation, goes.assignment
        await goes.leave()
        async with member(restarts, topic) as again:
            again.poll()
            assert await again.assigned(3) == held
            assert again.membership.generation == stays.membership.generation == generation
            assert {tp: stays.subscription[tp] for tp in stays.assignment} == positions
            await asyncio.to_thread(add_partitions, kafka.bootstrap, topic, 8)
            for each in (again, stays):
                each.metadata.request_update()
            await settled(again, stays, counts=(4, 4))
            assert again.assignment > held
            assert stays.assignment > positions.keys()
