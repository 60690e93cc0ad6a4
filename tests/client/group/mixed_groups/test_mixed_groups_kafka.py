"""Groups of aiokc and other clients on a real broker: each client leads for a while, and no record goes unread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokc.testing.kafka import LocalKafka
from tests.testing.groups.foreign_members import AiokafkaMember, ConfluentMember

from .mixed_group import PARTITIONS, Member, MixedGroup
from .mixed_members import JavaMember, OurMember

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400), pytest.mark.every_kafka]


@pytest.fixture
def group(kafka: LocalKafka, topic_name: str, request: pytest.FixtureRequest) -> Iterator[MixedGroup]:
    kafka.create_topic(topic_name, PARTITIONS)
    group = MixedGroup(kafka, topic_name, request.param)
    yield group
    group.end()


@pytest.mark.parametrize(
    ("group", "others"),
    [
        pytest.param("range", [JavaMember, ConfluentMember, AiokafkaMember], marks=pytest.mark.long),
        pytest.param("roundrobin", [JavaMember, ConfluentMember, AiokafkaMember], marks=pytest.mark.long),
        pytest.param("sticky", [JavaMember, AiokafkaMember], marks=pytest.mark.long),
        ("cooperative-sticky", [JavaMember, ConfluentMember]),
    ],
    indirect=["group"],
    ids=["range", "roundrobin", "sticky", "cooperative-sticky"],
)
def test_all_clients_share_what_there_is_whoever_leads(group: MixedGroup, others: list[type[Member]]) -> None:
    names = {kind: kind.__name__.removesuffix("Member").lower() for kind in others}
    group.joins("ours", OurMember)  # the first member leads
    for kind in others:
        group.joins(names[kind], kind)
    group.leaves("ours")  # now another client leads
    for kind in others[1:]:
        group.leaves(names[kind])
    group.joins("ours-2", OurMember)
    group.joins("ours-3", OurMember)  # three members, of which Java's leads
    group.leaves(names[others[0]])
    for kind in others[1:]:
        group.leaves("ours-2")
        group.leaves("ours-3")
        group.joins(names[kind], kind)  # each other client leads once
        group.joins("ours-2", OurMember)
        group.joins("ours-3", OurMember)
        group.leaves(names[kind])


@pytest.mark.parametrize("group", ["range", "roundrobin"], indirect=True)
def test_we_lead_an_eager_group_with_aiokafka_and_it_leads_us(group: MixedGroup) -> None:
    group.joins("ours", OurMember)
    group.joins("aiokafka", AiokafkaMember)
    group.leaves("ours")
    group.joins("ours-2", OurMember)
