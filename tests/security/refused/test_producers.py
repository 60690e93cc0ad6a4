"""Producers that may not write, or not any more: the call or the record is told so, all others go on.

The brokers are a real one, and those of the cluster in Python.
"""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import Consumer, Producer, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, RecordRefused

from ..actors.members import read
from ..actors.places import Place, place

__all__ = ["place"]

pytestmark = [pytest.mark.every_kafka, pytest.mark.any_loop(uvloop="long"), pytest.mark.timeout(60)]


def producing(place: Place, **options: Any) -> Producer[bytes, bytes]:
    return Producer(**place.options_of_clients(), metadata_max_age_ms=500, linger_ms=0, **options)


async def refusal(producer: Producer[bytes, bytes], topic: str) -> RecordRefused:
    with pytest.raises(RecordRefused) as raised:
        await producer.send_and_wait(topic, b"refused")
    return raised.value


async def values_of(place: Place, topic: str, count: int) -> list[bytes | None]:
    """Return the first records that readers of committed records see; fail where there are others."""
    async with Consumer(**place.options(isolation_level="read_committed"), group_id=None) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return await read(consumer, count)


async def test_a_topic_that_may_not_be_seen_is_refused_at_once(place: Place, topic_name: str) -> None:
    seen, hidden = (place.new_topic(f"{topic_name}-{name}") for name in ("seen", "hidden"))
    place.grant("TOPIC", seen, "WRITE")
    async with producing(place) as producer:
        with pytest.raises(AuthorizationFailed, match=hidden) as raised:
            await producer.send(hidden, b"2")
        assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await producer.send_and_wait(seen, b"2")


async def test_a_topic_that_may_be_seen_and_not_written_refuses_its_record_alone(place: Place, topic_name: str) -> None:
    free, forbidden = (place.new_topic(f"{topic_name}-{name}") for name in ("free", "forbidden"))
    for name in (free, forbidden):
        place.grant("TOPIC", name, "READ")
    place.grant("TOPIC", free, "WRITE")
    async with producing(place) as producer:
        others = [await producer.send(free, b"%d" % number) for number in (2, 3)]
        error = await refusal(producer, forbidden)
        assert (error.code, error.persisted, error.topic) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no", forbidden)
        assert [(await one).offset for one in others] == [2, 3]
        place.grant("TOPIC", forbidden, "WRITE")
        await producer.send_and_wait(forbidden, b"2")
    assert await values_of(place, forbidden, 3) == [b"0", b"1", b"2"]


async def test_a_right_that_is_withdrawn_while_records_are_sent(place: Place, topic_name: str) -> None:
    """The sequence of what was refused is used again: neither a gap nor a duplicate is left in the log."""
    place.new_topic(topic_name)
    place.grant("TOPIC", topic_name, "READ")
    right = place.grant("TOPIC", topic_name, "WRITE")
    async with producing(place) as producer:
        await producer.send_and_wait(topic_name, b"2")
        place.revoke(right)
        assert (await refusal(producer, topic_name)).persisted == "no"
        place.grant("TOPIC", topic_name, "WRITE")
        await producer.send_and_wait(topic_name, b"3")
    assert await values_of(place, topic_name, 4) == [b"0", b"1", b"2", b"3"]


async def test_a_transaction_in_which_a_right_is_missing_is_aborted_and_the_next_one_is_not(
    place: Place, topic_name: str
) -> None:
    free, forbidden = (place.new_topic(f"{topic_name}-{name}") for name in ("free", "forbidden"))
    for name in (free, forbidden):
        place.grant("TOPIC", name, "READ")
    place.grant("TOPIC", free, "WRITE")
    place.grant("TRANSACTIONAL_ID", topic_name, "WRITE")
    async with producing(place, transactional_id=topic_name) as producer:

        async def send_to_both() -> None:
            async with producer.transaction():
                await producer.send(free, b"aborted")
                await producer.send(forbidden, b"refused")

        with pytest.raises((RecordRefused, AuthorizationFailed), match=forbidden):
            await send_to_both()
        async with producer.transaction():
            await producer.send(free, b"2")
    assert await values_of(place, free, 3) == [b"0", b"1", b"2"]


async def test_offsets_of_a_group_that_may_not_be_used_end_the_transaction_alone(place: Place, topic_name: str) -> None:
    place.new_topic(topic_name)
    for operation in ("READ", "WRITE"):
        place.grant("TOPIC", topic_name, operation)
    place.grant("TRANSACTIONAL_ID", topic_name, "WRITE")
    right = place.grant("GROUP", topic_name)
    async with (
        producing(place, transactional_id=topic_name) as producer,
        Consumer(topic_name, group_id=topic_name, **place.options(isolation_level="read_committed")) as consumer,
    ):
        batch = await consumer.getmany()
        place.revoke(right)

        async def send_and_commit() -> None:
            async with producer.transaction() as transaction:
                await producer.send(topic_name, b"aborted")
                await transaction.send_offsets(batch, consumer.group_metadata())

        with pytest.raises(AuthorizationFailed, match=topic_name):
            await send_and_commit()
        async with producer.transaction():
            await producer.send(topic_name, b"2")
    assert await values_of(place, topic_name, 3) == [b"0", b"1", b"2"]
