"""Answers of a coordinator that contradict themselves: health() tells of them, and the member reads on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from aiokc.errors import AssignmentFailed, KafkaError, MalformedResponse
from aiokc.testing import Cluster
from aiokc.wire.messages.group import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

from ....virtually import virtually
from ..group_stories import BOTH, Told, altered, consumer_of, polls, read

FOREIGN = UUID(int=77)


def epoch(number: int) -> Callable[[Any], None]:
    def change(answer: Any) -> None:
        answer.member_epoch = number

    return change


def interval(milliseconds: int) -> Callable[[Any], None]:
    def change(answer: Any) -> None:
        answer.heartbeat_interval_ms = milliseconds

    return change


def member(member_id: str) -> Callable[[Any], None]:
    def change(answer: Any) -> None:
        answer.member_id = member_id

    return change


def assigns(cluster: Cluster, *numbers: int, foreign: bool = False) -> Callable[[Any], None]:
    """Assign these partitions of the topic t, and one of a topic that nobody knows."""

    def change(answer: Any) -> None:
        topics = [
            ConsumerGroupHeartbeatResponseTopicPartitions(
                topic_id=cluster._state.topics.id_of("t"), partitions=list(numbers)
            )
        ]
        if foreign:
            topics.append(ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=FOREIGN, partitions=[0]))
        answer.assignment = Assignment(topic_partitions=topics)

    return change


ANSWERS: dict[str, tuple[Callable[[Cluster], Callable[[Any], None]], type[KafkaError], str]] = {
    "epoch of a leave": (lambda cluster: epoch(-1), MalformedResponse, "the epoch -1"),
    "epoch that goes back": (lambda cluster: epoch(1), MalformedResponse, "the epoch 1"),
    "another member": (lambda cluster: member("who"), MalformedResponse, "as if it were member 'who'"),
    "no interval": (lambda cluster: interval(0), MalformedResponse, "a heartbeat interval of 0 ms"),
    "partitions twice": (lambda cluster: assigns(cluster, 0, 1, 1), MalformedResponse, "assigned partitions twice"),
    "negative partition": (lambda cluster: assigns(cluster, 0, 1, -1), MalformedResponse, "partition -1 of topic"),
    "topic of nobody": (lambda cluster: assigns(cluster, 0, 1, foreign=True), AssignmentFailed, str(FOREIGN)),
}


#: Answers that are ignored as a whole, as if none had come.
IGNORED = ("epoch of a leave", "epoch that goes back", "another member")


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_makes_no_sense_is_told_and_costs_no_record(answer: str, caplog: pytest.LogCaptureFixture) -> None:
    make, kind, said = ANSWERS[answer]

    async def story(cluster: Cluster) -> None:
        told = Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told) as consumer:
            assert await read(consumer, 1) == [b"one"]
            assert consumer.health().last_error is None
            bad = cluster.intercept(ConsumerGroupHeartbeatRequest, altered(make(cluster)))
            await polls(consumer, 15.0)
            error = consumer.health().last_error
            assert type(error) is kind
            assert said in str(error)
            cluster.append("t", b"two")
            assert await read(consumer, 1) == [b"two"]
            bad.cancel()
            cluster.intercept(ConsumerGroupHeartbeatRequest, altered(assigns(cluster, 0, 1)))
            await polls(consumer, 6.0)
            assert consumer.health().last_error is None
            assert consumer.assignment() == BOTH
            assert {what for what, _ in told.events} == {"assigned"}

    virtually(story)
    (warning, *_) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said in warning
    assert ("failed, trying again" in warning) is (answer in IGNORED)
