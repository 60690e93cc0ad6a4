"""Holdings: what a member with thousands of partitions pays for a heartbeat whose answer says nothing new."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiokc.core.group.consumer.events import TopicIdPartition, topic_ids_of
from aiokc.core.group.consumer.holdings import Holdings
from aiokc.types import TopicPartition

NAMES = {UUID(int=number): f"topic-{number}" for number in range(30)}
TARGET = frozenset(TopicIdPartition(topic_id, partition) for topic_id in NAMES for partition in range(30))


def counted_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with each call that Python makes to compare or hash a UUID."""
    calls = list[str]()
    for name in ("__hash__", "__eq__", "__lt__"):
        plain = getattr(UUID, name)

        def counted(*given: object, name: str = name, plain: object = plain) -> object:
            calls.append(name)
            return plain(*given)  # type: ignore[operator]

        monkeypatch.setattr(UUID, name, counted)
    return calls


def test_an_answer_that_says_nothing_new_does_not_go_through_the_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """UUIDs are compared and hashed in Python. For ten thousand partitions that holds the loop for tens of ms."""
    holdings = Holdings()
    holdings.aim_at(TARGET)
    holdings.named(NAMES)
    assert len(holdings.take()) == len(TARGET)
    calls = counted_calls(monkeypatch)
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


def test_whether_there_is_something_to_take_is_seen_without_taking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    unnamed, holdings = Holdings(), Holdings()
    unnamed.aim_at(TARGET)
    assert not unnamed.is_behind, "no topic of it has a name yet"
    holdings.aim_at(TARGET)
    holdings.named(NAMES)
    calls = counted_calls(monkeypatch)
    assert holdings.is_behind
    assert len(calls) < len(TARGET) / 2
    calls.clear()
    taken = holdings.take()
    assert len(calls) < 2 * len(TARGET), "each partition is hashed once, and each topic looked up once"
    monkeypatch.undo()
    assert len(taken) == len(TARGET)


@pytest.mark.parametrize("more", [0, 1])
def test_a_second_id_of_a_name_is_nothing_to_take(more: int) -> None:
    holdings = Holdings()
    old, new = UUID(int=100), UUID(int=101)
    holdings.named({old: "t", new: "t"})
    holdings.aim_at([TopicIdPartition(old, 0)])
    holdings.take()
    holdings.aim_at([TopicIdPartition(old, 0), *(TopicIdPartition(new, number) for number in range(1 + more))])
    assert holdings.is_behind is bool(more)


def test_of_two_ids_of_a_name_one_is_taken() -> None:
    holdings = Holdings()
    ids = [UUID(int=100), UUID(int=101)]
    holdings.named(dict.fromkeys(ids, "t"))
    holdings.aim_at([TopicIdPartition(topic_id, 0) for topic_id in ids])
    assert holdings.take() == (TopicPartition("t", 0),)
    assert [*holdings.held] == [TopicIdPartition(ids[0], 0)]


def test_the_topics_of_many_partitions_are_hashed_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted_calls(monkeypatch)
    found = topic_ids_of(TARGET)
    assert calls.count("__hash__") <= len(NAMES)
    monkeypatch.undo()
    assert found == NAMES.keys()
    assert topic_ids_of([TopicIdPartition(UUID(int=1), 0), TopicIdPartition(UUID(int=1), 1)]) == {UUID(int=1)}
