"""Members of a KIP-848 group: patterns, restarts, applications that stop polling, blocked loops."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest

from aiokc import Client, Consumer, TopicPartition
from aiokc.admin import GroupDescription
from aiokc.client.group import watchdog

from .readers import PARTITIONS, WITHIN, Broker, Heard, reading, write

pytestmark = [pytest.mark.every_kafka(since="4.0"), pytest.mark.timeout(120)]

# The session timeout of both brokers' groups is 6 s.
LONGER_THAN_A_SESSION = 8.0
SHORTER_THAN_A_SESSION = 5.5
ATTEMPTS = 4  # a machine may be so busy that a static member is not back within its session


@pytest.fixture
def topic(broker: Broker, topic_name: str) -> str:
    broker.create_topic(topic_name, PARTITIONS)
    return topic_name


async def test_topics_by_pattern_come_as_they_are_created(broker: Broker, topic: str) -> None:
    write(broker, topic, 40)
    async with reading(broker, topic, re.compile(re.escape(topic) + "(-more)?")) as reader:
        await reader.holds(PARTITIONS)
        broker.create_topic(f"{topic}-more", 2)
        assert len(await reader.holds(PARTITIONS + 2)) == 6
        await reader.has_read(40)
    assert set(reader.got.values()) == {1}


async def test_a_static_member_that_restarts_is_given_back_what_it_had_and_no_other_member_notices(
    broker: Broker, topic: str
) -> None:
    async with reading(broker, topic, [topic]) as one:
        await one.holds(PARTITIONS)
        for _ in range(ATTEMPTS):
            async with reading(broker, topic, [topic], group_instance_id="i") as two:
                mine = await two.holds(2)
                kept = await one.holds(2)
                calls = list(one.heard.calls)
                left = time.monotonic()
            async with reading(broker, topic, [topic], group_instance_id="i") as two:
                again = await two.holds(2)
                if time.monotonic() - left < SHORTER_THAN_A_SESSION:
                    assert again == mine
                    assert one.consumer.assignment() == kept
                    assert one.heard.calls == calls
                    break
        else:
            pytest.fail("no restart was within the session")


async def test_a_static_member_parks_its_partitions_by_unsubscribe_and_frees_them_where_it_leaves_for_good(
    broker: Broker, topic: str
) -> None:
    """KIP-1092 for the last one."""
    options: dict[str, Any] = {"group_id": topic, "group_protocol": "consumer", "group_instance_id": "i"}

    async def has_its_part(consumer: Consumer[Any, Any]) -> frozenset[TopicPartition]:
        async with asyncio.timeout(WITHIN):
            while len(consumer.assignment()) != PARTITIONS // 2:
                await consumer.getmany(timeout_ms=100)
        return consumer.assignment()

    async with (
        reading(broker, topic, [topic]) as one,
        Client(bootstrap_servers=broker.bootstrap) as client,
        Consumer(topic, bootstrap_servers=broker.bootstrap, client_rack="east", **options) as two,
    ):
        mine, kept = await has_its_part(two), await one.holds(PARTITIONS // 2)
        group = (await client.describe_groups([topic]))[topic]
        assert isinstance(group, GroupDescription)
        assert {member.group_instance_id: member.rack for member in group.members} == {None: None, "i": "east"}
        for _ in range(ATTEMPTS):
            calls, left = list(one.heard.calls), time.monotonic()
            two.unsubscribe()
            await one.has_polled(10)
            two.subscribe([topic])
            again = await has_its_part(two)
            if time.monotonic() - left < SHORTER_THAN_A_SESSION:
                assert again == mine
                break
            mine, kept = again, await one.holds(PARTITIONS // 2)
        else:
            pytest.fail("no return was within the session")
        two.enforce_rebalance("which no member can do")
        assert await has_its_part(two) == mine
        assert (one.consumer.assignment(), one.heard.calls) == (kept, calls)
        await two.stop(leave=True)
        await one.holds(PARTITIONS)


async def test_an_application_that_stops_polling_loses_its_partitions_and_gets_them_back(
    broker: Broker, topic: str
) -> None:
    write(broker, topic, 40)
    heard = Heard()
    options: dict[str, Any] = {"group_id": topic, "group_protocol": "consumer", "auto_offset_reset": "earliest"}
    consumer: Consumer[Any, Any] = Consumer(
        bootstrap_servers=broker.bootstrap, max_poll_interval_ms=1_000, enable_auto_commit=False, **options
    )
    consumer.subscribe([topic], listener=heard)
    async with consumer:
        await consumer.wait_assigned(timeout_ms=30_000)
        async with reading(broker, topic, [topic]) as other:
            await other.has_read(40)  # all of it: the first consumer is not polled, and is thrown out by itself
            assert ("lost", PARTITIONS) in heard.calls or ("lost", PARTITIONS // 2) in heard.calls
            assert await other.holds(PARTITIONS)
            await consumer.getmany(timeout_ms=100)
            polling = asyncio.get_running_loop().create_task(consumer.getmany())
            await other.holds(PARTITIONS // 2)
            write(broker, topic, 8)
            async with asyncio.timeout(WITHIN):
                assert await polling


async def test_a_loop_that_is_blocked_for_longer_than_a_session_stays_in_the_group(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread follows the epoch, which another member raises; then the loop gives up what it must."""
    monkeypatch.setattr(watchdog, "_LEAST_PATIENCE", 5.0)  # a busy machine may take longer than a second to connect
    async with reading(broker, topic, [topic]) as one:
        await one.holds(PARTITIONS)

        def other_program() -> int:
            async def join() -> int:
                async with reading(broker, topic, [topic]) as two:
                    return len(await two.holds(2))

            return asyncio.run(join())

        joining = asyncio.get_running_loop().run_in_executor(None, other_program)
        time.sleep(LONGER_THAN_A_SESSION)  # noqa: ASYNC251 (this is what is tested)
        async with asyncio.timeout(WITHIN):
            assert await joining == 2
        await one.holds(PARTITIONS)
    assert [name for name, _ in one.heard.calls if name == "lost"] == []
