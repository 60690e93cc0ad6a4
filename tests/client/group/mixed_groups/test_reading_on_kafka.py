"""Groups that read all the time while they move to KIP-848 and back, and while members are killed and paused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokc.testing.kafka import LocalKafka
from tests.testing.groups.foreign_members import CONSUMER_PROTOCOL

from .reading_on import PARTITIONS, ReadingGroup

pytestmark = [pytest.mark.kafka, pytest.mark.every_kafka(since="4.0"), pytest.mark.timeout(400)]


@pytest.fixture
def group(kafka: LocalKafka, topic_name: str) -> Iterator[ReadingGroup]:
    kafka.create_topic(topic_name, PARTITIONS)
    group = ReadingGroup(kafka, topic_name)
    yield group
    group.end()


@pytest.mark.parametrize(
    ("kind", "classic"),
    [
        ("aiokc", "range"),
        pytest.param("aiokc", "cooperative-sticky", marks=pytest.mark.long),
        pytest.param("confluent", "range", marks=pytest.mark.long),
        pytest.param("java", "range", marks=pytest.mark.long),
        pytest.param("java", "cooperative-sticky", marks=pytest.mark.long),
    ],
)
def test_a_group_moves_to_the_protocol_and_back_and_reads_each_record_once(
    group: ReadingGroup, kind: str, classic: str
) -> None:
    for name in ("one", "two"):
        group.joins(name, kind, classic)
    for strategy in (CONSUMER_PROTOCOL, classic):
        for name in ("one", "two"):
            group.leaves(name)
            group.joins(name, kind, strategy)
    group.stops_writing()
    assert group.account.told_twice() == {}


@pytest.mark.long
def test_all_clients_move_one_after_the_other(group: ReadingGroup) -> None:
    kinds = ("aiokc", "confluent", "java")
    for kind in kinds:
        group.joins(kind, kind, "range")
    for strategy in (CONSUMER_PROTOCOL, "range"):
        for kind in kinds:
            group.leaves(kind)
            group.joins(kind, kind, strategy)
    group.stops_writing()
    assert group.account.told_twice() == {}


@pytest.mark.long
@pytest.mark.parametrize("kinds", [("aiokc", "aiokc"), ("aiokc", "confluent", "java")], ids=len)
def test_only_what_a_killed_or_paused_member_had_in_hand_comes_again(
    group: ReadingGroup, kinds: tuple[str, ...]
) -> None:
    names = [f"{kind}-{number}" for number, kind in enumerate(kinds)]
    for name, kind in zip(names, kinds, strict=True):
        group.joins(name, kind)
    for name, kind in zip(names, kinds, strict=True):
        group.is_paused(name)
        group.is_killed(name)
        group.joins(f"{name}-again", kind)
    group.stops_writing()
