"""Resets: where reading starts without a committed offset, and where it continues if the position is out of range."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import Consumer, OffsetAndMetadata, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import NoOffsetForPartition, OffsetOutOfRange
from aiokc.testing import ApiKey
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold

from ..stage import T0, Stage, play, scenario

#: What is written to t-0 at first: offsets 0 to 99, of which 0 to 56 are deleted again.
BEGIN, END = 57, 100
POLICIES = {"earliest": BEGIN, "latest": END, "none": None}


def written(stage: Stage) -> None:
    for number in range(END):
        stage.cluster.append("t", b"%d" % number)
    stage.cluster.trim("t", to=BEGIN)


async def begins(stage: Stage, consumer: Consumer, tp: TopicPartition, expected: int | None) -> None:
    """Check that a consumer starts at this offset, or raises an error (None)."""
    await stage.until(lambda: tp in consumer.assignment())
    if expected is None:
        with pytest.raises(NoOffsetForPartition, match=str(tp)):
            await consumer.getmany(timeout_ms=10_000)
    else:
        assert await consumer.position(tp) == expected


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_committed(policy: str) -> None:
    """Given no committed offset: earliest begins at the log's start (57), latest at its end, none raises
    NoOffsetForPartition.
    """

    async def story(stage: Stage) -> None:
        written(stage)
        async with stage.consumer("t", group_id="g", auto_offset_reset=policy) as consumer:
            await begins(stage, consumer, T0, POLICIES[policy])

    play(story, topics={"t": 1})


@pytest.mark.parametrize("policy", POLICIES)
def test_a_committed_offset_wins(policy: str) -> None:
    """Given a committed offset that is in the log, whatever the policy, then reading begins there; and the
    application's seek() wins over both.
    """

    async def story(stage: Stage) -> None:
        written(stage)
        options = {"group_id": "g", "auto_offset_reset": policy}
        async with stage.consumer(**options) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 70)
            assert (await consumer.getone()).offset == 70
            await consumer.commit({T0: 60})
        async with stage.consumer("t", **options) as consumer:
            assert (await consumer.getone()).offset == 60
        async with stage.consumer(**options) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 80)
            assert (await consumer.getone()).offset == 80

    play(story, topics={"t": 1})


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_committed_is_deleted(policy: str) -> None:
    """Given a committed offset that retention has deleted since, or a position out of range for the same reason, then
    the policy decides; none raises OffsetOutOfRange, which names partition and offset.
    """

    async def story(stage: Stage) -> None:
        written(stage)
        options = {"group_id": "g", "auto_offset_reset": policy}
        async with stage.consumer(**options) as consumer:
            consumer.assign([T0])
            await consumer.commit({T0: 5})
        async with stage.consumer("t", **options) as consumer:
            if policy == "none":
                with pytest.raises(OffsetOutOfRange, match="t-0 at 5") as raised:
                    await consumer.getmany(timeout_ms=10_000)
                assert raised.value.offsets == {T0: 5}
                return
            reached = await consumer.getmany(timeout_ms=10_000)
            offsets = [record.offset for record in reached.get(T0, [])]
            assert offsets[:1] == ([BEGIN] if policy == "earliest" else [])
            assert await consumer.position(T0) == END

    play(story, topics={"t": 1})


@pytest.mark.parametrize("policy", POLICIES)
def test_a_topic_that_is_subscribed_to_later(policy: str) -> None:
    """Given a group that has committed for one topic and subscribes to another one too, then the new topic starts by
    the policy, and the old one at its committed offset.
    """

    async def story(stage: Stage) -> None:
        written(stage)
        old = TopicPartition("old", 0)
        stage.cluster.append("old", b"0", b"1")
        options = {"group_id": "g", "auto_offset_reset": policy}
        async with stage.consumer(**options) as consumer:
            consumer.assign([old])
            await consumer.commit({old: 1})
        async with stage.consumer("old", "t", **options) as consumer:
            if policy != "none":
                await begins(stage, consumer, old, 1)
            await begins(stage, consumer, T0, POLICIES[policy])

    play(story, topics={"t": 1, "old": 1})


@scenario(topics={"t": 1})
async def test_a_seek_while_the_reset_is_looked_up_wins(stage: Stage) -> None:
    """Given a reset whose ListOffsets is in flight, when the application seeks, then reading continues there."""
    written(stage)
    hold = Hold()
    stage.cluster.intercept(ApiKey.LIST_OFFSETS, hold, times=1)
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        await hold.arrived()
        consumer.seek(T0, 90)
        hold.release()
        assert (await consumer.getone()).offset == 90


@scenario(topics={"t": 1})
async def test_out_of_range_with_a_policy_goes_on(stage: Stage) -> None:
    """Given OFFSET_OUT_OF_RANGE for the current position and the policy earliest, then it is reset, and reading goes on
    at the log's start.
    """
    written(stage)
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 500)
        batch = await consumer.getmany()
        assert [record.offset for record in batch[T0]] == list(range(BEGIN, END))


@scenario(topics={"t": 1})
async def test_out_of_range_for_a_position_that_is_no_more(stage: Stage) -> None:
    """Given OFFSET_OUT_OF_RANGE for a position that the application has left by a seek meanwhile, then it is ignored:
    the position is not reset, and with the policy none no error is raised.
    """
    written(stage)
    hold = Hold()

    async def out_of_range(exchange: Exchange) -> Any:
        await hold(exchange)
        return ErrorCode.OFFSET_OUT_OF_RANGE

    async with stage.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 500)
        fault = stage.cluster.intercept(ApiKey.FETCH, out_of_range, times=1)
        consumer.seek(T0, 501)
        await fault.caught()
        consumer.seek(T0, OffsetAndMetadata(77))
        hold.release()
        assert (await consumer.getone()).offset == 77


@scenario(topics={"t": 1})
async def test_out_of_range_without_a_policy_raises(stage: Stage) -> None:
    """Given OFFSET_OUT_OF_RANGE and the policy none, then OffsetOutOfRange names the partition and the offset; after a
    seek reading goes on.
    """
    written(stage)
    async with stage.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 500)
        with pytest.raises(OffsetOutOfRange, match="t-0 at 500") as raised:
            await consumer.getmany(timeout_ms=10_000)
        assert raised.value.offsets == {T0: 500}
        consumer.seek(T0, 99)
        assert (await consumer.getone()).offset == 99
