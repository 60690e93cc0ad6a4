"""Answers of a coordinator that contradict themselves: they end nothing, rewind nothing, and health() tells of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from aiokc import SubscriptionPattern, TopicPartition
from aiokc.errors import AssignmentFailed, KafkaError, MalformedResponse
from aiokc.testing import Cluster
from aiokc.testing.faults import garble
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.fetch import FetchRequest
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


def _assigned(answer: Any) -> list[Any]:
    """The topics that the answer assigns; none where it says nothing of the assignment."""
    return answer.assignment.topic_partitions if answer.assignment is not None else []


def _doubled_partitions(answer: Any) -> None:
    for topic in _assigned(answer):
        topic.partitions = [*topic.partitions, *topic.partitions]


def _doubled_topics(answer: Any) -> None:
    _assigned(answer).extend(_assigned(answer)[:])


def _negative_partitions(answer: Any) -> None:
    for topic in _assigned(answer):
        topic.partitions = [-1, *topic.partitions, -2147483648]


def _unknown_id(answer: Any) -> None:
    if answer.assignment is not None:
        _assigned(answer).append(ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=NOWHERE, partitions=[0, 5]))


def _interval(milliseconds: int) -> Change:
    def change(answer: Any) -> None:
        answer.heartbeat_interval_ms = milliseconds

    return change


def _epoch(number: int) -> Change:
    def change(answer: Any) -> None:
        answer.member_epoch = number

    return change


def _older_epoch(answer: Any) -> None:
    answer.member_epoch -= 1


def _another_member(answer: Any) -> None:
    answer.member_id = "who"


def _no_assignment(answer: Any) -> None:
    answer.assignment = None


#: What an answer says besides what is right, the error that health() has of it, and its words. The rest of it holds.
BESIDES: dict[str, tuple[Change, type[KafkaError], str]] = {
    "partitions twice": (_doubled_partitions, MalformedResponse, "assigned partitions twice"),
    "topics twice": (_doubled_topics, MalformedResponse, "assigned partitions twice"),
    "negative partitions": (_negative_partitions, MalformedResponse, "assigned partition -1 of topic"),
    "topic of nobody": (_unknown_id, AssignmentFailed, str(NOWHERE)),
    "no interval": (_interval(0), MalformedResponse, "a heartbeat interval of 0 ms"),
    "negative interval": (_interval(-5), MalformedResponse, "a heartbeat interval of -5 ms"),
}
#: What makes the whole answer worthless: it is ignored, as if none had come.
WORTHLESS: dict[str, tuple[Change, type[KafkaError], str]] = {
    "epoch of a leave": (_epoch(-1), MalformedResponse, "the epoch -1"),
    "epoch of a static member's leave": (_epoch(-2), MalformedResponse, "the epoch -2"),
    "epoch of a join": (_epoch(0), MalformedResponse, "the epoch 0"),
    "epoch that goes back": (_older_epoch, MalformedResponse, "the epoch 1"),
    "another member": (_another_member, MalformedResponse, "as if it were member 'who'"),
}
STRANGE = BESIDES | WORTHLESS


def _reassigning(cluster: Cluster, change: Change) -> Change:
    """Assign both partitions in each answer, and change that."""

    def both(answer: Any) -> None:
        topic_id = cluster._state.topics.id_of("t")
        topics = [ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=[0, 1])]
        answer.assignment = Assignment(topic_partitions=topics)
        change(answer)

    return both


@pytest.mark.parametrize("what", BESIDES)
def test_what_an_answer_says_too_much_or_too_little_changes_nothing(what: str) -> None:
    """From the join on, over a rebalance: each record comes once, and heartbeats keep their pace."""

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.intercept(ConsumerGroupHeartbeatRequest, answering(BESIDES[what][0]), where=of_client("a"))
        for partition in (0, 1):
            cluster.append("t", b"%d" % partition, partition=partition)
        async with consumer_of(cluster, told, client_id="a") as one:
            assert sorted(await read(one, 2)) == [b"0", b"1"]
            begun = asyncio.get_running_loop().time()
            await polls(one, 60.0)
            mine = [when for when, _ in heartbeats(asked) if when > begun + 10.0]  # a new member asks more often
            assert 9 <= len(mine) <= 11
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


@pytest.mark.parametrize("what", STRANGE)
def test_what_makes_no_sense_is_told_until_it_ends_and_costs_no_record(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As the member's own, the epoch -1 would make its next heartbeat a farewell (KAFKA-19335)."""
    change, kind, said = STRANGE[what]

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told) as consumer:
            assert await read(consumer, 1) == [b"one"]
            assert consumer.health().last_error is None
            strange = cluster.intercept(ConsumerGroupHeartbeatRequest, answering(_reassigning(cluster, change)))
            await polls(consumer, 30.0)
            assert strange.hits > 3
            error = consumer.health().last_error
            assert type(error) is kind
            assert said in str(error)
            assert consumer.health().running
            assert consumer.health().error is None
            cluster.append("t", b"two")
            assert await read(consumer, 1) == [b"two"]
            strange.cancel()
            cluster.intercept(ConsumerGroupHeartbeatRequest, answering(_reassigning(cluster, lambda answer: None)))
            await polls(consumer, 10.0)
            assert consumer.health().last_error is None
            assert told.events == [("assigned", BOTH)]
            assert [sent for _, sent in heartbeats(asked) if sent.member_epoch < 0] == []
            assert len(heartbeats(asked)) < 3 * 40

    virtually(story)
    (warning, *_) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said in warning
    assert ("failed, trying again" in warning) is (what in WORTHLESS)


@pytest.mark.parametrize("what", [what for what in WORTHLESS if what != "epoch that goes back"])
def test_a_join_whose_answers_are_worthless_goes_on_until_one_is_not(what: str) -> None:
    change, kind, _ = WORTHLESS[what]

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        strange = cluster.intercept(ConsumerGroupHeartbeatRequest, answering(change))
        async with consumer_of(cluster, told) as consumer:
            await polls(consumer, 30.0)
            assert strange.hits > 3
            assert type(consumer.health().last_error) is kind
            assert consumer.health().running
            assert consumer.health().error is None
            strange.cancel()
            assert await read(consumer, 1) == [b"one"]
            await polls(consumer, 10.0)
            assert consumer.health().last_error is None
            assert told.events == [("assigned", BOTH)]
            assert [sent for _, sent in heartbeats(asked) if sent.member_epoch < 0] == []
            assert len(heartbeats(asked)) < 3 * 40

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
            ConsumerGroupHeartbeatRequest, answering(lambda answer: _assigned(answer).append(more))
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


@pytest.mark.parametrize("topics", [("t",), SubscriptionPattern("t")], ids=["names", "pattern"])
def test_a_topic_id_that_no_broker_knows_is_asked_for_less_and_less_often(topics: Any) -> None:
    """At first the brokers may not have heard of the topic yet. What lasts for minutes is asked for every 10 s."""

    async def story(cluster: Cluster) -> None:
        asked, loop = asked_of(cluster), asyncio.get_running_loop()
        cluster.intercept(ConsumerGroupHeartbeatRequest, answering(_unknown_id))
        async with consumer_of(cluster, topics=topics) as consumer:
            await consumer.wait_assigned()
            begun = loop.time()
            await polls(consumer, 300.0)
            times = [when - begun for when, _ in asked.of(MetadataRequest)]
            assert len([when for when in times if -1.0 <= when < 0.5]) >= 3, "at first they are asked at once"
            assert len([when for when in times if when > 150.0]) <= 2 * 150 / 9, "by name and by id"

    virtually(story)


@pytest.mark.parametrize("topics", [("t",), SubscriptionPattern("t")], ids=["names", "pattern"])
def test_partitions_that_their_topic_does_not_have_are_told_and_not_read(
    topics: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def change(answer: Any) -> None:
        for topic in _assigned(answer):
            topic.partitions.append(7)

    absent = TopicPartition("t", 7)

    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        cluster.append("t", b"one")
        strange = cluster.intercept(ConsumerGroupHeartbeatRequest, answering(change))
        async with consumer_of(cluster, topics=topics) as consumer:
            assert await read(consumer, 1) == [b"one"]
            await polls(consumer, 20.0)
            error = consumer.health().last_error
            assert isinstance(error, AssignmentFailed)
            assert "partitions that their topics do not have, as the brokers say (t-7)" in str(error)
            assert consumer.assignment() == BOTH | {absent}, "the coordinator counts on the member for it"
            cluster.append("t", b"two")
            assert await read(consumer, 1) == [b"two"]
            fetched = {
                number.partition for _, sent in asked.of(FetchRequest) for t in sent.topics for number in t.partitions
            }
            assert fetched == {0, 1}
            strange.cancel()
            cluster.add_partitions("t", 8)  # the brokers were behind
            cluster.append("t", b"seven", partition=7)
            assert await read(consumer, 1) == [b"seven"]
            await polls(consumer, 10.0)
            assert consumer.health().last_error is None

    virtually(story)
    assert any("(t-7)" in record.getMessage() for record in caplog.records if record.levelname == "WARNING")


def test_partitions_that_were_just_added_are_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster) as consumer:
            await shared(consumer)
            cluster.add_partitions("t", 4)
            await polls(consumer, 30.0)
            assert len(consumer.assignment()) == 4
            assert consumer.health().last_error is None

    virtually(story)
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 60), marks=pytest.mark.long)])
def test_answers_that_are_strange_at_random_cost_no_record_and_repeat_none(seeds: range) -> None:
    """Members come and go while half of all answers are strange. Records come twice only after a loss."""
    for seed in seeds:
        random = Random(seed)

        def change(answer: Any, random: Random = random) -> None:
            if random.random() < 0.5:
                random.choice(list(STRANGE.values()))[0](answer)

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
