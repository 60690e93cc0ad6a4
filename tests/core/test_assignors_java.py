"""Our assignors beside Apache Kafka's own, on random groups."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest

from aiokc.core.assignment import MemberSubscription
from aiokc.core.assignors import ASSIGNORS
from aiokc.testing.kafka_jars import java, libs

pytestmark = pytest.mark.kafka

CASES = 400


class Case:
    """A random group: up to 9 members of which some are static, up to 5 topics of which some do not exist."""

    def __init__(self, random: Random) -> None:
        self.assignor = random.choice(["range", "roundrobin"])
        self.counts = {topic: random.randint(1, 12) for topic in "ABCDE" if random.random() < 0.8}
        self.members: dict[str, MemberSubscription] = {}
        alike = frozenset(random.sample("ABCDE", random.randint(1, 5))) if random.random() < 0.5 else None
        for number in random.sample(range(20), random.randint(1, 9)):
            topics = alike if alike is not None else frozenset(random.sample("ABCDE", random.randint(0, 5)))
            instance_id = f"i{random.randint(0, 10**9)}" if random.random() < 0.3 else None
            self.members[f"m{number}"] = MemberSubscription(topics, group_instance_id=instance_id)

    def __str__(self) -> str:
        counts = ",".join(f"{topic}={count}" for topic, count in self.counts.items())
        members = [
            f"{member_id}|{member.group_instance_id or ''}|{','.join(sorted(member.topics))}"
            for member_id, member in self.members.items()
        ]
        return ";".join([self.assignor, counts, *members])

    def assigned(self) -> dict[str, set[str]]:
        assignment = ASSIGNORS[self.assignor].assign(self.counts, self.members)
        return {member_id: {str(tp) for tp in tps} for member_id, tps in assignment.items()}


def parsed(answer: str) -> dict[str, set[str]]:
    parts = (member.split(":") for member in answer.split(";"))
    return {member_id: set(filter(None, partitions.split(","))) for member_id, partitions in parts}


def test_every_member_gets_what_javas_assignor_would_give_it() -> None:
    random = Random(20)
    cases = [Case(random) for _ in range(CASES)]
    oracle = Path(__file__).with_name("JavaAssignors.java")
    answered = subprocess.run(
        [java(), "-cp", str(libs() / "*"), str(oracle)],
        input="\n".join(map(str, cases)),
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    answers = answered.stdout.splitlines()
    assert len(answers) == CASES
    for case, answer in zip(cases, answers, strict=True):
        assert case.assigned() == parsed(answer), str(case)
