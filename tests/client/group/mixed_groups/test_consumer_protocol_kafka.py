"""Groups of the consumer protocol (KIP-848) with members of aiokc, librdkafka and Java, and groups that move to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokc.testing.kafka import LocalKafka
from tests.testing.groups.foreign_members import CONSUMER_PROTOCOL, ConfluentMember

from .mixed_group import PARTITIONS, Member, MixedGroup
from .mixed_members import AUTO, JavaMember, OurMember

pytestmark = [pytest.mark.kafka, pytest.mark.every_kafka(since="4.0"), pytest.mark.timeout(600)]


@pytest.fixture
def group(kafka: LocalKafka, topic_name: str) -> Iterator[MixedGroup]:
    kafka.create_topic(topic_name, PARTITIONS)
    group = MixedGroup(kafka, topic_name, CONSUMER_PROTOCOL)
    yield group
    group.end()


def test_members_of_all_clients_share_one_group(group: MixedGroup) -> None:
    group.joins("ours", OurMember)
    group.joins("java", JavaMember)
    group.joins("confluent", ConfluentMember)
    group.leaves("ours")
    group.joins("ours-2", OurMember)
    group.leaves("java")
    group.leaves("confluent")


@pytest.mark.long
def test_each_client_may_speak_another_protocol(group: MixedGroup) -> None:
    group.joins("java", JavaMember, "range")
    group.joins("confluent", ConfluentMember)
    group.joins("ours", OurMember, AUTO)
    group.leaves("confluent")
    group.joins("confluent-2", ConfluentMember, "range")
    group.leaves("ours")  # the last one of the consumer protocol
    group.joins("ours-2", OurMember, AUTO)


@pytest.mark.parametrize(
    ("kind", "classic"),
    [
        (OurMember, "range"),
        (OurMember, "cooperative-sticky"),
        pytest.param(ConfluentMember, "range", marks=pytest.mark.long),
        pytest.param(JavaMember, "range", marks=pytest.mark.long),
        pytest.param(JavaMember, "cooperative-sticky", marks=pytest.mark.long),
    ],
)
def test_a_group_moves_to_the_protocol_and_back_one_member_after_the_other(
    group: MixedGroup, kind: type[Member], classic: str
) -> None:
    """A rolling restart: the coordinator converts the group by its first member that joins so, and back by its last.

    librdkafka's cooperative-sticky is not among them: it stores user data in its assignments, and a group with such an
    assignor stays classic.
    """
    group.joins("one", OurMember, classic)
    group.joins("two", kind, classic)
    for strategy in (CONSUMER_PROTOCOL, classic):
        for name, member in (("one", OurMember), ("two", kind)):
            group.leaves(name)
            group.joins(name, member, strategy)
