"""FetchBuffer.in_turn: it is what servable() yields first, or nothing, whatever has become of that partition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.partition.fetched_partition import FetchedPartition
from aiokc.core.subscription.state import Subscription
from aiokc.records import Codec, NewRecord, encode_batch
from aiokc.types import EARLIEST, TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def buffered(*, budget: int = 1 << 30, codec: Codec = Codec.NONE) -> tuple[FetchBuffer, Subscription]:
    """Return a buffer with records of both partitions, ZERO in turn."""
    subscription = Subscription()
    subscription.assign([ZERO, ONE])
    buffer = FetchBuffer(budget=budget)
    for tp in (ZERO, ONE):
        subscription.seek(tp, 0)
        records = memoryview(encode_batch([NewRecord(b"v")] * 9, codec=codec))
        buffer.add(FetchedPartition(tp, subscription[tp].token, 0, records), subscription[tp])
    return buffer, subscription


def in_turn(buffer: FetchBuffer, subscription: Subscription) -> TopicPartition | None:
    found = buffer.in_turn(subscription)
    if found is None:
        return None
    assert found == next(buffer.servable(subscription))
    return found[0].tp


def test_it_is_the_partition_that_was_served_least_recently() -> None:
    buffer, subscription = buffered()
    for wanted in (ZERO, ONE, ZERO, ONE):
        assert in_turn(buffer, subscription) == wanted
        part, position = next(buffer.servable(subscription))
        part.decode(1)
        part.take(1)
        buffer.served(part, position)


@pytest.mark.parametrize(
    "change",
    [
        lambda subscription: subscription.pause(ZERO, True),
        lambda subscription: subscription.block([ZERO]),
        lambda subscription: subscription.await_reset(ZERO, EARLIEST),
        lambda subscription: subscription.await_validation(ZERO),
        lambda subscription: subscription.seek(ZERO, 5),
        lambda subscription: subscription.assign([ONE]),
    ],
    ids=["paused", "blocked", "its offset is looked up", "its leader is asked", "sought", "revoked"],
)
def test_there_is_none_where_the_first_may_not_be_handed_out(change: Callable[[Subscription], object]) -> None:
    buffer, subscription = buffered()
    change(subscription)
    assert in_turn(buffer, subscription) is None
    assert [part.tp for part, _ in buffer.servable(subscription)] == [ONE]


def test_there_is_none_where_the_budget_wants_open_batches_first() -> None:
    buffer, subscription = buffered(budget=1, codec=Codec.GZIP)
    _, (part, position) = buffer.servable(subscription)
    part.decode(2)
    part.take(1)
    buffer.served(part, position)
    assert part.tp == ONE
    assert next(buffer.servable(subscription))[0].tp == ONE
    assert in_turn(buffer, subscription) is None


def test_a_partition_that_is_passed_by_comes_last_whatever_the_budget() -> None:
    """Its open batch gives it no precedence: a deserializer refuses its next record, and would do so at every call."""
    buffer, subscription = buffered(budget=1, codec=Codec.GZIP)
    part, position = next(buffer.servable(subscription))
    part.decode(2)
    part.take(1)
    buffer.served(part, position)
    assert next(buffer.servable(subscription))[0] is part
    buffer.pass_by(part)
    assert [part.tp for part, _ in buffer.servable(subscription)] == [ONE, ZERO]
    assert in_turn(buffer, subscription) == ONE
