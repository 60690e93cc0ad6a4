"""Groups of the consumer protocol (KIP-848) on the Cluster, with members of aiokc, librdkafka and Java."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokc.testing import Cluster
from tests.testing.groups.foreign_members import CONSUMER_PROTOCOL, ConfluentMember

from .mixed_group import PARTITIONS, Member, MixedGroup
from .mixed_members import JavaMember, OurMember

pytestmark = pytest.mark.timeout(120)
#: Java's consumer comes with a Kafka.
JAVA = pytest.param(JavaMember, marks=pytest.mark.kafka)


@pytest.fixture
def group() -> Iterator[MixedGroup]:
    cluster = Cluster(topics={"t": PARTITIONS}, group_consumer_heartbeat_interval_ms=200)
    with cluster.in_thread() as running:
        group = MixedGroup(running, "t", CONSUMER_PROTOCOL)
        yield group
        group.end()


@pytest.mark.parametrize("kind", [OurMember, ConfluentMember, JAVA])
def test_members_come_and_go(group: MixedGroup, kind: type[Member]) -> None:
    group.joins("one", kind)
    group.joins("two", OurMember)
    group.joins("three", kind)
    group.leaves("two")
    group.leaves("one")


@pytest.mark.parametrize(
    "kind", [OurMember, ConfluentMember, pytest.param(JavaMember, marks=[pytest.mark.kafka, pytest.mark.long])]
)
def test_a_group_moves_to_the_protocol_and_back_one_member_after_the_other(
    group: MixedGroup, kind: type[Member]
) -> None:
    group.joins("one", OurMember, "range")
    group.joins("two", kind, "range")
    for strategy in (CONSUMER_PROTOCOL, "range"):
        for name, member in (("one", OurMember), ("two", kind)):
            group.leaves(name)
            group.joins(name, member, strategy)
