"""Groups of the consumer protocol (KIP-848) on the Cluster, with members of aiokc, librdkafka and Java."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokc.testing import Cluster
from aiokc.testing.kafka.jars import run_tool
from tests.suite.peers.java_programs import QUICK_JVM
from tests.testing.groups.foreign_members import CONSUMER_PROTOCOL, ConfluentMember

from .mixed_group import PARTITIONS, Member, MixedGroup
from .mixed_members import JavaMember, OurMember

pytestmark = pytest.mark.timeout(400)
#: Java's consumer comes with a Kafka.
JAVA = pytest.param(JavaMember, marks=pytest.mark.kafka)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(topics={"t": PARTITIONS}, group_consumer_heartbeat_interval_ms=200)
    with cluster.in_thread() as running:
        yield running


@pytest.fixture
def group(cluster: Cluster) -> Iterator[MixedGroup]:
    group = MixedGroup(cluster, "t", CONSUMER_PROTOCOL)
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


@pytest.mark.kafka
@pytest.mark.long
def test_kafkas_tool_describes_a_group_of_both_protocols(cluster: Cluster, group: MixedGroup) -> None:
    group.joins("new", OurMember)
    group.joins("old", OurMember, "range")

    def told(*words: str) -> list[list[str]]:
        tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        said = run_tool(tool, "--bootstrap-server", cluster.bootstrap, *words, jvm=QUICK_JVM, timeout=60)
        return [line.split() for line in said.splitlines() if line.startswith(("t ", "GROUP "))]

    heading, row = told("--list", "--type", "--state")
    assert (heading, row) == (["GROUP", "TYPE", "STATE"], ["t", "Consumer", "Stable"])
    heading, row = told("--describe", "--group", "t", "--state", "--verbose")
    epochs = {cell for name, cell in zip(heading, row, strict=True) if "EPOCH" in name}
    assert len(epochs) == 1, "it is stable: the assignment is that of the group's epoch"
    heading, *rows = told("--describe", "--group", "t", "--members", "--verbose")
    client, count = heading.index("CLIENT-ID"), heading.index("#PARTITIONS")
    assert {row[client]: (row[count], row[-1]) for row in rows} == {"new": ("6", "true"), "old": ("6", "false")}
