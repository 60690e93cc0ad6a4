"""The watchdog thread on a real Kafka: members whose handlers block the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.client.group import watchdog
from aiokc.errors import CommitFailed
from aiokc.testing.kafka import LocalKafka
from tests.producing import Message, produce

from .group_member import GroupMember

pytestmark = pytest.mark.every_kafka

WITHIN = 90.0


@pytest.fixture
def topic(kafka: LocalKafka, topic_name: str) -> str:
    kafka.create_topic(topic_name, 4)
    produce(kafka.bootstrap, topic_name, [Message(b"value", partition=n) for n in range(4)])
    return topic_name


class Handling:
    """A consumer with a loop and a thread of its own. Its ``handler`` blocks that loop while it holds records.

    ``seen`` has the consumer's state when the handler begins, when it ends, and when all has settled again.
    """

    def __init__(self, bootstrap: str, topic: str, handler: Callable[[], Any], **options: Any) -> None:
        self.seen: list[tuple[frozenset[TopicPartition], int, str]] = []
        self.commit_failed: CommitFailed | None = None
        self.begun, self.settled, self.may_stop = threading.Event(), threading.Event(), threading.Event()
        self._topic, self._handler = topic, handler
        self._consumer_options = {"bootstrap_servers": bootstrap, "group_id": topic, **options}

    async def __aenter__(self) -> Handling:
        self._running = asyncio.get_running_loop().create_task(asyncio.to_thread(asyncio.run, self._consume()))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.may_stop.set()
        async with asyncio.timeout(WITHIN):
            await self._running

    async def until(self, event: threading.Event) -> None:
        """Return when the event is set; raise the error if the thread fails before that."""
        waiting = asyncio.get_running_loop().create_task(asyncio.to_thread(event.wait, WITHIN))
        await asyncio.wait([waiting, self._running], return_when=asyncio.FIRST_COMPLETED)
        if self._running.done():
            self.begun.set()
            self.settled.set()
            self._running.result()
        assert await waiting, "nothing has happened in the thread"

    async def _consume(self) -> None:
        async with (
            asyncio.timeout(WITHIN),
            Consumer(
                self._topic, auto_offset_reset="earliest", enable_auto_commit=False, **self._consumer_options
            ) as consumer,
        ):
            while not await consumer.getmany(timeout_ms=100) or len(consumer.assignment()) != 2:
                pass
            self._look(consumer)
            self.begun.set()
            self._handler()
            try:
                await consumer.commit()
            except CommitFailed as error:
                self.commit_failed = error
                moved = consumer._runtime._moved
                while consumer.assignment():
                    await moved.wait(WITHIN)  # they are given up without a call of the application
            self._look(consumer)
            await consumer.getmany(timeout_ms=100)  # raises nothing, whatever happened to the membership meanwhile
            while len(consumer.assignment()) != 2:
                await consumer.getmany(timeout_ms=100)
            self._look(consumer)
            self.settled.set()
            await asyncio.to_thread(self.may_stop.wait, WITHIN)

    def _look(self, consumer: Consumer) -> None:
        membership = consumer._runtime.membership
        assert membership is not None
        self.seen.append((consumer.assignment(), membership.generation, membership.member_id))


async def test_a_handler_that_blocks_the_loop_for_longer_than_the_session_costs_no_membership(
    kafka: LocalKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_LEAST_PATIENCE", 5.0)  # a busy machine may take longer than a second to connect
    options = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
    async with GroupMember(kafka.bootstrap, topic, topic) as other:
        other.poll()
        await other.assigned(4)
        async with Handling(kafka.bootstrap, topic, lambda: time.sleep(7.0), **options) as handling:
            await handling.until(handling.begun)
            generation, history = other.membership.generation, list(other.changed.history)
            await handling.until(handling.settled)
            assert other.membership.generation == generation
            assert other.changed.history == history, "nothing rebalances, and this one keeps what it has"
            assert len(set(handling.seen)) == 1
            assert handling.seen[0][1] == generation
            assert handling.commit_failed is None
            assert handling.seen[0][0] | other.assignment == {TopicPartition(topic, n) for n in range(4)}


@pytest.mark.long
async def test_a_handler_that_blocks_the_loop_for_longer_than_max_poll_interval_loses_its_partitions(
    kafka: LocalKafka, topic: str
) -> None:
    """The member leaves long before its session ends; its late commit fails, and its next getmany() joins again."""
    alone = threading.Event()
    options = {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 500, "max_poll_interval_ms": 2_000}
    async with GroupMember(kafka.bootstrap, topic, topic) as other:
        other.poll()
        await other.assigned(4)
        async with Handling(kafka.bootstrap, topic, lambda: alone.wait(WITHIN), **options) as handling:
            await handling.until(handling.begun)
            await other.assigned(2)
            await other.assigned(4)  # while the handler still blocks
            alone.set()
            await handling.until(handling.settled)
            before, late, again = handling.seen
            assert late == (frozenset(), -1, "")
            assert handling.commit_failed is not None
            assert "max_poll_interval_ms=2000" in str(handling.commit_failed)
            assert again[1] > before[1]
            assert again[2] not in ("", before[2])
            assert again[0] | other.assignment == {TopicPartition(topic, n) for n in range(4)}
