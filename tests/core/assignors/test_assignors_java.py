"""The range and roundrobin assignors give the same result as Apache Kafka's own, on random groups."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from aiokc.assignor import Group, MemberSubscription
from aiokc.core.assignors.registry import ASSIGNORS
from aiokc.types import TopicPartition
from tests.suite.peers.java_programs import answers_of

pytestmark = pytest.mark.kafka

CASES = 1_000


class Case:
    """A random group: up to 9 members, some of them static, and up to 5 topics, some of which do not exist.

    In three of five groups, members have racks, and partitions have replicas in some racks. Partition counts differ
    little, so that there are topics to co-partition.
    """

    def __init__(self, random: Random) -> None:
        self.assignor = random.choice(["range", "range", "roundrobin"])
        racks = random.sample(["r1", "r2", "r3"], random.randint(1, 3)) if random.random() < 0.6 else []
        largest = random.choice([3, 12])
        self.counts = {topic: random.randint(1, largest) for topic in "ABCDE" if random.random() < 0.8}
        replicas = random.randint(1, 2)
        self.racks = {
            TopicPartition(topic, number): frozenset(random.choices(racks, k=replicas)) if racks else frozenset[str]()
            for topic, count in self.counts.items()
            for number in range(count)
        }
        self.members: dict[str, MemberSubscription] = {}
        alike = frozenset(random.sample("ABCDE", random.randint(1, 5))) if random.random() < 0.5 else None
        for number in random.sample(range(20), random.randint(1, 9)):
            topics = alike if alike is not None else frozenset(random.sample("ABCDE", random.randint(0, 5)))
            instance_id = f"i{random.randint(0, 10**9)}" if random.random() < 0.3 else None
            rack = random.choice(["r1", "r2", "r4"]) if racks and random.random() < 0.8 else None
            self.members[f"m{number}"] = MemberSubscription(topics, rack_id=rack, group_instance_id=instance_id)

    def __str__(self) -> str:
        counts = ",".join(
            f"{topic}=" + "/".join("+".join(sorted(self.racks[TopicPartition(topic, n)])) or "-" for n in range(count))
            for topic, count in self.counts.items()
        )
        members = [
            f"{member_id}|{member.group_instance_id or ''}|{','.join(sorted(member.topics))}|{member.rack_id or ''}"
            for member_id, member in self.members.items()
        ]
        return ";".join([self.assignor, counts, *members])

    def assigned(self) -> dict[str, set[str]]:
        assignment = ASSIGNORS[self.assignor].assign(Group(self.counts, self.members, self.racks))
        return {member_id: {str(tp) for tp in tps} for member_id, tps in assignment.items()}


def parsed(answer: str) -> dict[str, set[str]]:
    parts = (member.split(":") for member in answer.split(";"))
    return {member_id: set(filter(None, partitions.split(","))) for member_id, partitions in parts}


def test_every_member_gets_what_javas_assignor_would_give_it() -> None:
    random = Random(20)
    cases = [Case(random) for _ in range(CASES)]
    oracle = Path(__file__).with_name("JavaAssignors.java")
    answers = answers_of(oracle, "\n".join(map(str, cases)))
    assert len(answers) == CASES
    without_racks = [ASSIGNORS[case.assignor].assign(Group(case.counts, case.members)) for case in cases]
    near = sum(
        case.assigned() != {member_id: {str(tp) for tp in tps} for member_id, tps in ranges.items()}
        for case, ranges in zip(cases, without_racks, strict=True)
    )
    assert near > CASES // 10, "racks made no difference"
    for case, answer in zip(cases, answers, strict=True):
        assert case.assigned() == parsed(answer), str(case)
