"""Answers of a coordinator that contradict themselves: they end nothing, rewind nothing, and health() tells of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from aiokc import TopicPartition
from aiokc.errors import AssignmentFailed, MalformedResponse
from aiokc.testing import Cluster
from aiokc.testing.faults import garble
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.group import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

from ....virtually import virtually
from ..group_stories import (
    BOTH,
    Told,
    answering,
    asked_of,
    consumer_of,
    heartbeats,
    of_client,
    polls,
    read,
    shared,
)

Change: TypeAlias = Callable[[Any], None]
NOWHERE = UUID(int=77)


def _topics(answer: Any) -> list[Any]:
    if answer.assignment is None:
        answer.assignment = Assignment(topic_partitions=[])
    topics: list[Any] = answer.assignment.topic_partitions
    return topics


def _doubled_partitions(answer: Any) -> None:
    for topic in _topics(answer) if answer.assignment is not None else []:
        topic.partitions = [*topic.partitions, *topic.partitions]


def _doubled_topics(answer: Any) -> None:
    if answer.assignment is not None:
        answer.assignment.topic_partitions *= 2


def _negative_partitions(answer: Any) -> None:
    for topic in _topics(answer) if answer.assignment is not None else []:
        topic.partitions = [-1, *topic.partitions, -2147483648]


def _unknown_id(answer: Any) -> None:
    if answer.assignment is not None:
        _topics(answer).append(ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=NOWHERE, partitions=[0, 5]))


def _no_interval(answer: Any) -> None:
    answer.heartbeat_interval_ms = 0


def _negative_interval(answer: Any) -> None:
    answer.heartbeat_interval_ms = -5


def _negative_epoch(answer: Any) -> None:
    answer.member_epoch = -1


def _static_leave_epoch(answer: Any) -> None:
    answer.member_epoch = -2


def _no_epoch(answer: Any) -> None:
    answer.member_epoch = 0


def _older_epoch(answer: Any) -> None:
    answer.member_epoch -= 1


def _no_assignment(answer: Any) -> None:
    answer.assignment = None


#: What an answer says besides what is right. The rest of it holds.
BESIDES = [
    _doubled_partitions,
    _doubled_topics,
    _negative_partitions,
    _unknown_id,
    _no_interval,
    _negative_interval,
]
#: Epochs that make the whole answer worthless.
EPOCHS = [_negative_epoch, _static_leave_epoch, _no_epoch, _older_epoch]


@pytest.mark.parametrize("change", BESIDES)
def test_what_an_answer_says_too_much_or_too_little_changes_nothing(change: Change) -> None:
    """From the join on, over a rebalance: each record comes once, and heartbeats keep their pace."""

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.intercept(ConsumerGroupHeartbeatRequest, answering(change), where=of_client("a"))
        for partition in (0, 1):
            cluster.append("t", b"%d" % partition, partition=partition)
        async with consumer_of(cluster, told, client_id="a") as one:
            assert sorted(await read(one, 2)) == [b"0", b"1"]
            begun = asyncio.get_running_loop().time()
            await polls(one, 60.0)
            mine = [when for when, _ in heartbeats(asked) if when > begun]
            assert 11 <= len(mine) <= 13
            cluster.bump_epoch("g")
            await polls(one, 12.0)
            assert told.events == [("assigned", BOTH)]
            await one.commit()
            async with consumer_of(cluster) as two:
                await shared(one, two)
                assert one.assignment() | two.assignment() == BOTH
                assert await two.getmany(timeout_ms=2_000) == {}
            assert "lost" not in [what for what, _ in told.events]

    virtually(story)


@pytest.mark.parametrize("change", EPOCHS)
@pytest.mark.parametrize("since_join", [True, False])
def test_an_epoch_that_is_none_or_goes_back_is_told_and_asked_for_again(change: Change, since_join: bool) -> None:
    """As its own, -1 would make the member's next heartbeat a farewell (KAFKA-19335)."""
    if since_join and change is _older_epoch:
        change = _no_epoch

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        bad = answering(change)
        if since_join:
            strange = cluster.intercept(ConsumerGroupHeartbeatRequest, bad)
        async with consumer_of(cluster, told) as one:
            if not since_join:
                assert await read(one, 1) == [b"one"]
                strange = cluster.intercept(ConsumerGroupHeartbeatRequest, bad)
                cluster.append("t", b"two")
                assert await read(one, 1) == [b"two"]
            await polls(one, 30.0)
            assert strange.hits > 3
            assert isinstance(one.health().last_error, MalformedResponse)
            assert one.health().running
            assert one.health().error is None
            strange.cancel()
            if since_join:
                assert await read(one, 1) == [b"one"]
            await polls(one, 10.0)
            assert one.health().last_error is None
            assert told.events == [("assigned", BOTH)]
            assert [sent for _, sent in heartbeats(asked) if sent.member_epoch < 0] == []
            seconds = asyncio.get_running_loop().time()
            assert len(heartbeats(asked)) < 3 * seconds

    virtually(story)


def test_bytes_that_make_no_sense_are_told_and_asked_for_again() -> None:
    async def story(cluster: Cluster) -> None:
        told = Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told) as one:
            assert await read(one, 1) == [b"one"]
            strange = cluster.intercept(ConsumerGroupHeartbeatRequest, garble())
            await strange.caught(3)
            await polls(one, 1.0)
            assert one.health().last_error is not None
            strange.cancel()
            cluster.append("t", b"two")
            assert await read(one, 1) == [b"two"]
            await polls(one, 10.0)
            assert one.health().last_error is None
            assert told.events == [("assigned", BOTH)]

    virtually(story)


def test_a_join_that_is_answered_without_an_assignment_asks_for_it() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"one")
        cluster.intercept(ConsumerGroupHeartbeatRequest, answering(_no_assignment), times=1)
        async with consumer_of(cluster) as one:
            assert await read(one, 1) == [b"one"]
            assert one.assignment() == BOTH

    virtually(story)


@pytest.mark.parametrize("protocol", ["consumer", "auto"])
@pytest.mark.parametrize("foreign", [False, True], ids=["an id that nobody knows", "a topic never subscribed to"])
def test_topics_that_cannot_be_read_are_told_and_the_others_read_on(foreign: bool, protocol: str) -> None:
    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        topic_id = cluster._state.topics.named("u").topic_id if foreign else NOWHERE
        more = ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=[0])
        strange = cluster.intercept(
            ConsumerGroupHeartbeatRequest, answering(lambda answer: _topics(answer).append(more))
        )
        strange.times = 1
        cluster.append("t", b"one")
        async with consumer_of(cluster, group_protocol=protocol) as one:
            assert await read(one, 1) == [b"one"]
            begun = asyncio.get_running_loop().time()
            await polls(one, 120.0)
            error = one.health().last_error
            assert isinstance(error, AssignmentFailed)
            assert str(topic_id) in str(error)
            assert "does not subscribe" in str(error)
            assert one.assignment() == BOTH
            assert len([when for when, _ in asked.of(MetadataRequest) if when > begun]) <= 2 * 120 / 5 + 2
            cluster.append("t", b"two")
            assert await read(one, 1) == [b"two"]
            cluster.add_partitions("t", 3)  # the next assignment is a good one
            await polls(one, 20.0)
            assert one.assignment() == BOTH | {TopicPartition("t", 2)}
            assert one.health().last_error is None

    virtually(story, topics={"t": 2, "u": 1})


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 60), marks=pytest.mark.long)])
def test_answers_that_are_strange_at_random_cost_no_record_and_repeat_none(seeds: range) -> None:
    """Members come and go while half of all answers are strange. Records come twice only after a loss."""
    for seed in seeds:
        random = Random(seed)

        def change(answer: Any, random: Random = random) -> None:
            if random.random() < 0.5:
                random.choice(BESIDES + EPOCHS)(answer)

        async def story(cluster: Cluster, change: Change = change, random: Random = random) -> None:
            strange = cluster.intercept(ConsumerGroupHeartbeatRequest, answering(change))
            got: list[bytes] = []
            told = Told()

            async def live(consumer: Any, seconds: float) -> None:
                until = asyncio.get_running_loop().time() + seconds
                async with consumer:
                    while asyncio.get_running_loop().time() < until:
                        batches = await consumer.getmany(timeout_ms=200)
                        got.extend(record.value for batch in batches.values() for record in batch)
                    assert consumer.health().running
                    assert consumer.health().error is None

            async def write() -> None:
                for number in range(200):
                    cluster.append("t", b"%d" % number, partition=random.randrange(2))
                    await asyncio.sleep(0.5)
                strange.cancel()

            lives = [160.0, *(random.uniform(10.0, 90.0) for _ in range(3))]
            await asyncio.gather(
                write(), *(live(consumer_of(cluster, told, enable_auto_commit=True), seconds) for seconds in lives)
            )
            written = [b"%d" % number for number in range(200)]
            assert set(got) == set(written)
            assert sorted(got, key=int) == written or "lost" in [what for what, _ in told.events]

        virtually(story)
