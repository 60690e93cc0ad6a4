"""A topic that a KIP-848 member may not describe, among others: the member stays, or hears that it was removed."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import ANY

import pytest

from aiokc import Consumer
from aiokc.errors import AuthorizationFailed
from aiokc.testing import Acl, Cluster
from aiokc.testing.faults import lose_answer
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest

from ....virtually import virtually
from ..group_stories import Told, consumer_of, of_client, polls, shared

ANYONE = "ANONYMOUS"
SESSION = 6.0
#: The anonymous user of a test may do what is granted, and no more.
OPTIONS: dict[str, Any] = {
    "topics": {"t": 2, "secret": 1},
    "super_users": (),
    "group_consumer_session_timeout_ms": int(1e3 * SESSION),
    "group_consumer_heartbeat_interval_ms": 500,
}


async def read_on(consumer: Consumer, seconds: float) -> tuple[list[bytes], int]:
    """Poll for so long. Return what was read, and how many calls said that the topic is forbidden."""
    loop = asyncio.get_running_loop()
    until, values, errors = loop.time() + seconds, list[bytes](), 0
    while loop.time() < until:
        try:
            for batch in (await consumer.getmany(timeout_ms=100)).values():
                values += [bytes(record.value or b"") for record in batch]
        except AuthorizationFailed:
            errors += 1
            await asyncio.sleep(0.1)
    return values, errors


@pytest.mark.parametrize("how", ["subscribed to", "taken away"])
def test_a_member_reads_on_what_it_may_and_no_more_than_that(how: str) -> None:
    """The coordinator refuses each heartbeat that names the topic. It would remove the member, and never tell it."""

    async def story(cluster: Cluster) -> None:
        told, topics = Told(), ("t", "secret") if how == "taken away" else ("t",)
        async with consumer_of(cluster, told, topics, client_id="a") as one, consumer_of(cluster) as two:
            while not two.assignment() or len(one.assignment() | two.assignment()) < len(topics) + 1:
                await asyncio.gather(polls(one, 0.1), polls(two, 0.1))
            before = len(told.events)
            cluster.revoke(ANYONE, "secret")
            if how == "taken away":
                cluster.intercept(ConsumerGroupHeartbeatRequest, lose_answer(), times=1, where=of_client("a"))
            else:
                one.subscribe(["t", "secret"], listener=told)
            await asyncio.gather(read_on(one, 3 * SESSION), read_on(two, 3 * SESSION))
            assert sorted(cluster.members("g")) == sorted(each.group_metadata().member_id for each in (one, two))
            assert "lost" not in [what for what, _ in told.events[before:]]
            for partition in (0, 1):
                cluster.append("t", b"%d" % partition, partition=partition)
            (mine, errors), (others, _) = await asyncio.gather(read_on(one, 1.0), read_on(two, 1.0))
            assert errors
            assert sorted(mine + others) == [b"0", b"1"]

    virtually(story, **OPTIONS)


@pytest.mark.parametrize("protocol", ["consumer", "auto"])
def test_a_member_joins_without_a_topic_that_it_may_not_describe_and_reads_it_once_it_may(protocol: str) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"one")
        cluster.append("secret", b"two")
        cluster.revoke(ANYONE, "secret")
        async with consumer_of(cluster, topics=("t", "secret"), group_protocol=protocol) as consumer:
            values, errors = await read_on(consumer, 3 * SESSION)
            assert values == [b"one"]
            assert errors
            assert {tp.topic for tp in consumer.assignment()} == {"t"}
            assert consumer.health().group_protocol == "consumer"
            cluster.grant(Acl(ANYONE, "Read", topic="secret"))
            assert await read_on(consumer, 3 * SESSION) == ([b"two"], ANY)
            assert consumer.health().last_error is None

    virtually(story, **OPTIONS)


def test_a_further_topic_is_read_beside_one_that_is_forbidden() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.revoke(ANYONE, "secret")
        cluster.append("u", b"one")
        async with consumer_of(cluster) as consumer:
            await shared(consumer)
            consumer.subscribe(["t", "u", "secret"])
            assert (await read_on(consumer, 2 * SESSION))[0] == [b"one"]
            assert {tp.topic for tp in consumer.assignment()} == {"t", "u"}

    virtually(story, **OPTIONS | {"topics": {"t": 2, "u": 1, "secret": 1}})


@pytest.mark.parametrize("is_in_doubt", [False, True])
def test_a_further_topic_is_read_beside_one_that_is_held_and_forbidden(is_in_doubt: bool) -> None:
    """What is held of the forbidden one is given up for it: a heartbeat that names that one tells of no other."""

    async def story(cluster: Cluster) -> None:
        cluster.append("u", b"one")
        async with consumer_of(cluster, topics=("t", "secret")) as consumer:
            await shared(consumer, total=3)
            cluster.revoke(ANYONE, "secret")
            if is_in_doubt:
                cluster.intercept(ConsumerGroupHeartbeatRequest, lose_answer(), times=1)
            await read_on(consumer, 3 * SESSION)
            assert {tp.topic for tp in consumer.assignment()} == {"t", "secret"}
            consumer.subscribe(["t", "u", "secret"])
            assert (await read_on(consumer, SESSION))[0] == [b"one"]
            assert {tp.topic for tp in consumer.assignment()} == {"t", "u"}
            cluster.grant(Acl(ANYONE, "Read", topic="secret"))
            cluster.append("secret", b"two")
            assert (await read_on(consumer, 3 * SESSION))[0] == [b"two"]

    virtually(story, **OPTIONS | {"topics": {"t": 2, "u": 1, "secret": 1}})


@pytest.mark.parametrize("stays", [("u", "secret"), ("secret",)])
def test_a_topic_that_was_left_goes_to_others_though_a_forbidden_one_is_held(stays: tuple[str, ...]) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, topics=("t", "u", "secret")) as one, consumer_of(cluster, topics=("x",)) as two:
            while len(one.assignment() | two.assignment()) < 5:
                await asyncio.gather(polls(one, 0.1), polls(two, 0.1))
            cluster.revoke(ANYONE, "secret")
            await read_on(one, SESSION)
            one.subscribe(stays)
            two.subscribe(["t"])
            for partition in (0, 1):
                cluster.append("t", b"%d" % partition, partition=partition)
            _, (values, _) = await asyncio.gather(read_on(one, 2 * SESSION), read_on(two, 2 * SESSION))
            assert sorted(values) == [b"0", b"1"]
            assert {tp.topic for tp in one.assignment()} == {*stays} - {"secret"}
            cluster.grant(Acl(ANYONE, "Read", topic="secret"))
            cluster.append("secret", b"two")
            assert (await read_on(one, 3 * SESSION))[0] == [b"two"]

    virtually(story, **OPTIONS | {"topics": {"t": 2, "u": 1, "secret": 1, "x": 1}})
