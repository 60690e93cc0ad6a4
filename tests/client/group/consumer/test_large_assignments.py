"""An assignment of thousands of partitions: what comes of it does not hold the event loop in one piece."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.client.group.driver import MembershipDriver
from aiokc.core.group.consumer.events import MemberAlive
from aiokc.core.group.consumer.messages import ConsumerGroup
from aiokc.core.group.events import Event
from aiokc.testing import Cluster

PARTITIONS = 1_500


async def test_an_answer_is_read_in_one_step_and_acted_upon_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together the two would hold the loop for twice as long."""
    steps: list[str] = []
    answered, feed = ConsumerGroup.answered, MembershipDriver.feed

    def _answered(self: ConsumerGroup, *given: Any) -> Event:
        event = answered(self, *given)
        if isinstance(event, MemberAlive) and event.assignment:
            steps.append("read")
            asyncio.get_running_loop().call_soon(steps.append, "another task runs")
        return event

    def _feed(self: MembershipDriver, event: Event) -> None:
        if isinstance(event, MemberAlive) and event.assignment:
            steps.append("acted upon")
        feed(self, event)

    monkeypatch.setattr(ConsumerGroup, "answered", _answered)
    monkeypatch.setattr(MembershipDriver, "feed", _feed)
    async with (
        Cluster(topics={"t": PARTITIONS}) as cluster,
        Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g", group_protocol="consumer") as consumer,
    ):
        assert len(await consumer.wait_assigned(timeout_ms=20_000)) == PARTITIONS
    assert steps[:3] == ["read", "another task runs", "acted upon"]
