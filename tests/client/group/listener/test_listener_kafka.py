"""The rebalance listener and patterns on a real Kafka, with another client as producer and as member."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer as OtherConsumer
from confluent_kafka.admin import AdminClient

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.client.aio.signal import Signal
from aiokc.client.group import watchdog
from aiokc.testing.kafka import LocalKafka
from tests.producing import produce

from ...listening import Noting, Polling, partitions

pytestmark = pytest.mark.timeout(90)


def reading(kafka: LocalKafka, group: str, wanted: Any, listener: RebalanceListener, **options: Any) -> Consumer:
    return Consumer(
        wanted,
        listener=listener,
        **{
            "bootstrap_servers": kafka.bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 100,
            **options,
        },
    )


class CommitFirst(Noting):
    """Commits all that was returned before partitions are revoked."""

    consumer: Consumer

    def __init__(self) -> None:
        super().__init__(revoked=self._commit)

    async def _commit(self, _: object) -> None:
        await self.consumer.commit()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_commit_in_revoked_hands_over_exactly_what_was_read(
    kafka: LocalKafka, topic_name: str, strategy: str
) -> None:
    """Members join and leave while records are read: each record is returned once."""
    kafka.create_topic(topic_name, 6)
    sent = [b"%d" % number for number in range(300)]
    produce(kafka.bootstrap, topic_name, sent[:150])
    options: dict[str, Any] = {"partition_assignment_strategy": [strategy], "max_poll_records": 5}
    one, two = CommitFirst(), CommitFirst()
    async with reading(kafka, topic_name, topic_name, one, **options) as first, Polling(first) as first_user:
        one.consumer = first
        await first_user.has(20)
        async with reading(kafka, topic_name, topic_name, two, **options) as second, Polling(second) as second_user:
            two.consumer = second
            one.changed.followed_by(two.changed)
            await two.until(lambda: len(two.holds) == 3 and len(one.holds) == 3)
            produce(kafka.bootstrap, topic_name, sent[150:])
            moved = Signal()
            first_user.changed.followed_by(moved)
            second_user.changed.followed_by(moved)
            async with asyncio.timeout(30):
                while len(first_user.values) + len(second_user.values) < 300:
                    await moved.wait()
        await one.until(lambda: one.holds == partitions(topic_name, 6))
    assert Counter(first_user.values + second_user.values) == Counter(sent)
    assert one.told[-1] == ("revoked", partitions(topic_name, 6))


async def test_beside_a_member_of_another_client_both_are_told_the_same(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, 6)
    told: list[tuple[str, frozenset[int]]] = []
    other = OtherConsumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": topic_name,
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 100,
        }
    )
    other.subscribe(
        [topic_name],
        on_assign=lambda _, got: told.append(("assigned", frozenset(tp.partition for tp in got))),
        on_revoke=lambda _, gone: told.append(("revoked", frozenset(tp.partition for tp in gone))),
    )
    loop = asyncio.get_running_loop()
    listener = Noting()
    try:
        async with asyncio.timeout(80):
            while len(told) < 1:
                await loop.run_in_executor(None, other.poll, 0.1)
            ours = reading(kafka, topic_name, topic_name, listener, partition_assignment_strategy=["range"])
            async with ours, Polling(ours):
                while len(told) < 3 or len(listener.holds) != 3:
                    await loop.run_in_executor(None, other.poll, 0.1)
                assert [call for call, _ in told] == ["assigned", "revoked", "assigned"]
                assert told[1] == ("revoked", frozenset(range(6)))
                assert {tp.partition for tp in listener.holds} | told[2][1] == set(range(6))
                assert listener.calls == ["assigned"]
                await loop.run_in_executor(None, other.close)
                await listener.heard("assigned", "revoked", "assigned")
                assert len(listener.holds) == 6
    finally:
        other.close()


async def test_a_callback_that_blocks_the_loop_for_longer_than_the_session_costs_no_membership(
    kafka: LocalKafka, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow ``def`` callback holds up its own process, not the group: the watchdog thread sends the heartbeats."""
    monkeypatch.setattr(watchdog, "_LEAST_PATIENCE", 5.0)  # a busy machine may take longer than a second to connect

    class Slow(Noting):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:  # type: ignore[override]
            time.sleep(7.0)
            self.told.append(("assigned", partitions))
            self.holds |= partitions
            self.changed.notify()

    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"0"])
    listener = Slow()
    async with reading(kafka, topic_name, topic_name, listener, session_timeout_ms=6_000) as consumer:
        assert (await consumer.getone()).value == b"0"
        await consumer.commit()
        assert listener.calls == ["assigned"]


async def test_topics_that_match_come_and_go(kafka: LocalKafka, topic_name: str) -> None:
    first, second, third = (f"{topic_name}-{number}" for number in range(3))
    kafka.create_topic(first)
    kafka.create_topic(f"other-{topic_name}")
    listener = Noting()
    pattern = re.compile(f"{re.escape(topic_name)}-.*|__.*")  # the second half matches internal topics only
    async with (
        reading(kafka, topic_name, pattern, listener, metadata_max_age_ms=200) as consumer,
        Polling(consumer) as user,
    ):
        await listener.until(lambda: listener.holds == {TopicPartition(first, 0)})
        produce(kafka.bootstrap, first, [b"0"])
        assert await user.has(1) == [b"0"]
        await consumer.commit()
        kafka.create_topic(second)
        await listener.until(lambda: len(listener.holds) == 2)
        produce(kafka.bootstrap, second, [b"1"])
        assert await user.has(2) == [b"0", b"1"]
        await consumer.commit()
        loop = asyncio.get_running_loop()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        await loop.run_in_executor(None, admin.delete_topics([first])[first].result)
        await listener.until(lambda: listener.holds == {TopicPartition(second, 0)})
        kafka.create_topic(third)
        await listener.until(lambda: listener.holds == {TopicPartition(second, 0), TopicPartition(third, 0)})
        assert consumer.subscription() == {second, third}
        assert user.errors == []


async def test_without_a_group_topics_that_match_are_found_too(kafka: LocalKafka, topic_name: str) -> None:
    first, second = f"{topic_name}-1", f"{topic_name}-2"
    kafka.create_topic(first)
    produce(kafka.bootstrap, first, [b"before"])
    listener = Noting()
    options: dict[str, Any] = {"group_id": None, "metadata_max_age_ms": 200, "auto_offset_reset": "latest"}
    async with reading(kafka, topic_name, re.compile(f"{re.escape(topic_name)}-.*"), listener, **options) as consumer:
        await listener.heard("assigned")
        assert await consumer.position(TopicPartition(first, 0)) == 1
        kafka.create_topic(second)
        produce(kafka.bootstrap, second, [b"after"])
        assert (await consumer.getone()).value == b"after"
    assert listener.told[-1][0] == "revoked"
