"""ACLs that change while a consumer runs: which calls raise, which go on, and what recovers.

The brokers are a real one, and those of the cluster in Python.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokc import Client, Consumer, Producer, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed

from .actors.members import SECONDS, committed, read, read_after
from .actors.places import Place, place

__all__ = ["place"]

pytestmark = [pytest.mark.every_kafka, pytest.mark.any_loop(uvloop="long"), pytest.mark.timeout(60)]


async def refused(consumer: Consumer[Any, Any]) -> AuthorizationFailed:
    """Return the error that the consumer raises, within a time."""
    with pytest.raises(AuthorizationFailed) as raised:
        await read(consumer, 1_000)
    return raised.value


async def test_a_topic_that_is_forbidden_and_then_allowed(place: Place, topic_name: str) -> None:
    """The error names the topic and the right that is missing. The consumer lives on, and reads once it may."""
    place.new_topic(topic_name)
    place.grant("GROUP", topic_name)
    async with Consumer(topic_name, group_id=topic_name, **place.options()) as consumer:
        error = await refused(consumer)
        assert error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert topic_name in str(error)
        place.grant("TOPIC", topic_name)
        assert await read_after(AuthorizationFailed, consumer, 2) == [b"0", b"1"]
        await consumer.commit()
        assert await committed(consumer, topic_name) == 2


async def test_a_topic_that_is_missing_looks_forbidden_and_the_error_says_so(place: Place, topic_name: str) -> None:
    async with Client(**place.options_of_clients()) as client:
        with pytest.raises(AuthorizationFailed, match=topic_name) as raised:
            await client.list_topics([topic_name])
    assert "does not exist" in str(raised.value)


async def test_a_topic_that_is_forbidden_while_it_is_read_leaves_its_neighbour_alone(
    place: Place, topic_name: str
) -> None:
    """The application can then go on with the other topic, and with both once it may read again: nothing is lost."""
    kept, lost = (place.new_topic(f"{topic_name}-{name}") for name in ("kept", "lost"))
    place.grant("TOPIC", kept)
    right = place.grant("TOPIC", lost)
    async with Consumer(**place.options()) as consumer:
        consumer.assign([TopicPartition(kept, 0), TopicPartition(lost, 0)])
        assert Counter(await read(consumer, 4)) == {b"0": 2, b"1": 2}
        place.revoke(right)
        error = await refused(consumer)
        while "fetching" not in str(error):  # a Fetch that waited at the broker was allowed, and would get new records
            error = await refused(consumer)
        assert error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert lost in str(error)
        assert kept not in str(error)
        place.produce(lost, b"2")
        place.produce(kept, b"3")
        assert await read_after(AuthorizationFailed, consumer, 1) == [b"3"]
        place.grant("TOPIC", lost)
        assert await read_after(AuthorizationFailed, consumer, 1) == [b"2"]


async def test_a_group_that_is_forbidden(place: Place, topic_name: str) -> None:
    """Reading by assign() continues; subscribe() works as soon as the group is allowed."""
    place.new_topic(topic_name)
    place.grant("TOPIC", topic_name)
    async with Consumer(group_id=topic_name, **place.options()) as consumer:
        consumer.subscribe([topic_name])
        error = await refused(consumer)
        assert error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert topic_name in str(error)
        consumer.unsubscribe()
        place.grant("GROUP", topic_name)
        consumer.subscribe([topic_name])
        assert await read_after(AuthorizationFailed, consumer, 2) == [b"0", b"1"]


async def test_a_forbidden_group_does_not_stop_consumers_that_assign(place: Place, topic_name: str) -> None:
    place.new_topic(topic_name)
    place.grant("TOPIC", topic_name)
    partition = TopicPartition(topic_name, 0)
    async with Consumer(group_id=topic_name, **place.options()) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert await read(consumer, 2) == [b"0", b"1"]
        with pytest.raises(AuthorizationFailed) as raised:
            await consumer.commit()
        assert raised.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        place.produce(topic_name, b"2")
        assert await read(consumer, 1) == [b"2"]


async def test_a_member_whose_group_is_forbidden_later_commits_nothing_and_comes_back(
    place: Place, topic_name: str
) -> None:
    """Its commit is refused; when the group is allowed again, a new consumer starts where the last commit was.

    The first member could not leave the group: the second one gets its partition when the session of the first ends.
    """
    place.new_topic(topic_name)
    place.grant("TOPIC", topic_name)
    right = place.grant("GROUP", topic_name)
    member = place.options(group_id=topic_name, session_timeout_ms=6_000, heartbeat_interval_ms=500)
    async with Consumer(topic_name, **member) as consumer:
        assert await read(consumer, 2) == [b"0", b"1"]
        await consumer.commit()
        place.revoke(right)
        place.produce(topic_name, b"2")
        with pytest.raises(AuthorizationFailed) as raised:
            await _commit_again_and_again(consumer)
        assert raised.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    place.grant("GROUP", topic_name)
    async with Consumer(topic_name, **member) as consumer:
        assert await read(consumer, 1) == [b"2"]


async def _commit_again_and_again(consumer: Consumer[Any, Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            await consumer.getmany(timeout_ms=100)
            await consumer.commit()


async def test_a_transactional_id_that_is_forbidden_and_then_allowed(place: Place, topic_name: str) -> None:
    """The producer of that id does not start, and the error names the id. Others write on."""
    place.new_topic(topic_name)
    place.grant("TOPIC", topic_name)
    place.grant("TOPIC", topic_name, "WRITE")
    options = place.options_of_clients()
    async with Producer(**options) as other:
        forbidden = Producer(transactional_id=topic_name, **options)
        with pytest.raises(AuthorizationFailed, match=topic_name) as raised:
            await forbidden.start()
        assert raised.value.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        await (await other.send(topic_name, b"2"))
        place.grant("TRANSACTIONAL_ID", topic_name, "WRITE")
        async with Producer(transactional_id=topic_name, **options) as producer, producer.transaction():
            await producer.send(topic_name, b"3")
    async with Consumer(**place.options(isolation_level="read_committed")) as consumer:
        consumer.assign([TopicPartition(topic_name, 0)])
        assert await read(consumer, 4) == [b"0", b"1", b"2", b"3"]
