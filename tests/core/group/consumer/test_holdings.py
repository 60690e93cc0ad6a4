"""Holdings: what a member with thousands of partitions pays for a heartbeat whose answer says nothing new."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiokc.core.group.consumer.events import TopicIdPartition
from aiokc.core.group.consumer.holdings import Holdings

NAMES = {UUID(int=number): f"topic-{number}" for number in range(30)}
TARGET = frozenset(TopicIdPartition(topic_id, partition) for topic_id in NAMES for partition in range(30))


def test_an_answer_that_says_nothing_new_does_not_go_through_the_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """UUIDs are compared and hashed in Python. For ten thousand partitions that holds the loop for tens of ms."""
    holdings = Holdings()
    holdings.aim_at(TARGET)
    holdings.named(NAMES)
    assert len(holdings.take()) == len(TARGET)
    calls = list[str]()
    for name in ("__hash__", "__eq__", "__lt__"):
        plain = getattr(UUID, name)

        def counted(*given: object, name: str = name, plain: object = plain) -> object:
            calls.append(name)
            return plain(*given)  # type: ignore[operator]

        monkeypatch.setattr(UUID, name, counted)
    holdings.named({})
    assert not holdings.unnamed
    assert not holdings.is_behind
    assert len(calls) <= 2 * len(NAMES)
    monkeypatch.undo()


def test_what_is_taken_is_in_order_of_topic_ids_and_numbers() -> None:
    holdings = Holdings()
    holdings.aim_at(TARGET)
    holdings.named(NAMES)
    holdings.take()
    assert [*holdings.held] == sorted(TARGET)
