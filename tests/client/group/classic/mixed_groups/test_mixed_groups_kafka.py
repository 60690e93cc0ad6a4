"""Groups of aiokc and other clients on a real broker: each client leads for a while, and no record goes unread."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from typing import TypeAlias

import pytest

from aiokc.testing.kafka import LocalKafka
from aiokc.types import TopicPartition
from tests.producing import Message, produce
from tests.testing.groups.foreign_members import AiokafkaMember, ConfluentMember

from .mixed_members import Historian, JavaMember, OurMember

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180), pytest.mark.every_kafka]

Member: TypeAlias = OurMember | ConfluentMember | AiokafkaMember | JavaMember
PARTITIONS = 12


class MixedGroup:
    """One group on one topic, and what its members read."""

    def __init__(self, kafka: LocalKafka, topic: str, strategy: str) -> None:
        self.witness = Historian()
        self._kafka, self._topic, self._strategy = kafka, topic, strategy
        self._members: dict[str, Member] = {}
        self._numbers = count()
        self._partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def joins(self, name: str, kind: type[Member]) -> None:
        """The member joins; all members share the partitions evenly, and read what is written from now on."""
        self.witness.forget()
        member = kind(name, self._kafka.bootstrap, self._topic, self._topic, self.witness, self._strategy)
        self._members[name] = member
        member.start()
        self._settle()

    def leaves(self, name: str) -> None:
        self.witness.forget()
        self._members.pop(name).leave()
        if self._members:
            self._settle()

    def _settle(self) -> None:
        self.witness.until_shared(self._partitions, self._members)
        if self._strategy == "cooperative-sticky":
            self._assert_nothing_needless()
        values = [b"%d" % next(self._numbers) for _ in range(60)]
        messages = [Message(value, partition=number % PARTITIONS) for number, value in enumerate(values)]
        produce(self._kafka.bootstrap, self._topic, messages)
        self.witness.until_read(values)

    def _assert_nothing_needless(self) -> None:
        """Members gave up only partitions that they had to, and keep what they got: no partition went and came back."""
        for name, history in self.witness.history.items():
            for earlier, later in pairwise(history):
                grows = len(history[-1]) > len(history[0])
                assert (earlier < later) if grows else (earlier > later), f"{name}: {history}"

    def end(self) -> None:
        for name in list(self._members):
            self._members.pop(name).leave()


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
