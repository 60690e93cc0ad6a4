"""A group of members of different clients on one topic of a real broker, and what its members read."""

from __future__ import annotations

from itertools import count, pairwise
from typing import TypeAlias

from aiokc.testing import Cluster
from aiokc.testing.kafka import LocalKafka
from aiokc.types import TopicPartition
from tests.producing import Message, produce
from tests.testing.groups.foreign_members import AiokafkaMember, ConfluentMember

from .mixed_members import Historian, JavaMember, OurMember

Member: TypeAlias = OurMember | ConfluentMember | AiokafkaMember | JavaMember
PARTITIONS = 12


class MixedGroup:
    """One group on one topic of a real Kafka or the Cluster, and what its members read."""

    def __init__(self, kafka: LocalKafka | Cluster, topic: str, strategy: str) -> None:
        self.witness = Historian()
        self._kafka, self._topic, self._strategy = kafka, topic, strategy
        self._members: dict[str, Member] = {}
        self._numbers = count()
        self._partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def joins(self, name: str, kind: type[Member], strategy: str | None = None) -> None:
        """The member joins; all members share the partitions evenly, and read what is written from now on."""
        self.witness.forget()
        strategy = strategy or self._strategy
        member = kind(name, self._kafka.bootstrap, self._topic, self._topic, self.witness, strategy)
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
