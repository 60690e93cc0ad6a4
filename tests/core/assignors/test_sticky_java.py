"""The sticky assignors give the same result as Apache Kafka's own, on random groups with old and double claims.

Java takes members in the order of a hash map. With ids of one small letter that is the order of the ids, so the two
agree in every partition. The groups leave out where aiokc differs on purpose (test_sticky.py): claims of stale members
to topics that they do not subscribe to any more and, where subscriptions differ, colliding claims of cooperative
members.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from aiokc.assignor import Claim, MemberSubscription
from aiokc.core.assignors import sticky_general
from aiokc.core.assignors.sticky import assign_cooperative_sticky, assign_sticky
from aiokc.core.assignors.sticky_claims import sticky_user_data
from aiokc.types import TopicPartition
from tests.suite.peers.java_programs import answers_of

from .sticky_groups import member

pytestmark = pytest.mark.kafka

CASES = 1000
ASSIGN = {"sticky": assign_sticky, "cooperative-sticky": assign_cooperative_sticky}


HELD = [TopicPartition(topic, number) for topic in ("A", "B") for number in (0, 3, 7)]


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Case]]:
    random = Random(54)
    return {assignor: [Case(random, assignor) for _ in range(CASES)] for assignor in ASSIGN}


@pytest.fixture(scope="module")
def answers(cases: dict[str, list[Case]]) -> dict[str, list[str]]:
    """Java's answers to all cases, and its user data. One process gives all, because Java takes seconds to start."""
    asked = {assignor: list(map(str, some)) for assignor, some in cases.items()}
    asked["user data"] = [f"userdata;42;{','.join(map(str, HELD))}", "userdata;1;"]
    said = iter(ask_java([line for lines in asked.values() for line in lines]))
    return {what: list(islice(said, len(lines))) for what, lines in asked.items()}


def ask_java(lines: Sequence[str]) -> list[str]:
    return answers_of(Path(__file__).with_name("JavaStickyAssignors.java"), "\n".join(lines))


class Case:
    """A random group: up to 9 members, with or without the same topics, and old, double or lopsided claims."""

    def __init__(self, random: Random, assignor: str) -> None:
        self.assignor = assignor
        counts = {topic: random.randint(1, 9) for topic in "ABCDE"[: random.randint(1, 5)]}
        names = random.sample("abcdefghijkl", random.randint(1, 9))
        alike = frozenset(random.sample(sorted(counts), random.randint(1, len(counts))))
        is_alike = random.random() < 0.4
        topics = {
            name: alike if is_alike else frozenset(random.sample(sorted(counts), random.randint(1, len(counts))))
            for name in names
        }
        generations = {name: random.choice([3, 4, 5]) if random.random() < 0.2 else 5 for name in names}
        newest = max(generations.values())
        held: dict[str, list[TopicPartition]] = {name: [] for name in names}
        favourite, lopsided = random.choice(names), random.choice([0, 0.7])
        collide = 0.1 if is_alike or assignor == "sticky" else 0
        for tp in [TopicPartition(topic, number) for topic in sorted(counts) for number in range(counts[topic])]:
            may = [name for name in names if tp.topic in topics[name] or generations[name] == newest]
            fans = [name for name in may if tp.topic in topics[name] or random.random() < 0.05]
            if favourite in fans and random.random() < lopsided:
                held[favourite].append(tp)
            elif fans and random.random() < 0.85:
                for name in random.sample(fans, 2 if len(fans) > 1 and random.random() < collide else 1):
                    held[name].append(tp)
        self.counts = {topic: count for topic, count in counts.items() if any(topic in t for t in topics.values())}
        self.members = {name: member(topics[name], held[name], generations[name]) for name in names}

    def __str__(self) -> str:
        counts = ",".join(f"{topic}={count}" for topic, count in self.counts.items())
        return ";".join([self.assignor, counts, *(self._told(*item) for item in self.members.items())])

    def _told(self, name: str, one: MemberSubscription) -> str:
        topics, owned, data = ",".join(sorted(one.topics)), "", ""
        if self.assignor == "sticky":
            data = (one.user_data or b"").hex()
        else:
            owned = ",".join(map(str, one.owned))
        return "|".join([name, str(one.generation_id), topics, owned, data])

    def assigned(self) -> dict[str, set[str]]:
        assignment = ASSIGN[self.assignor](self.counts, self.members)
        return {name: {str(tp) for tp in held} for name, held in assignment.items()}


def parsed(answer: str) -> dict[str, set[str]]:
    parts = (one.split(":") for one in answer.split(";"))
    return {name: set(filter(None, held.split(","))) for name, held in parts}


def javas_choice(movements: sticky_general._Movements, tp: TopicPartition, owner: str, target: str) -> TopicPartition:
    """Return the partition that Java moves back instead of ``tp``: the first of a hash set, by ``tp``'s own path.

    Only here does aiokc choose otherwise: it takes the smallest partition of those that ``owner`` has from ``target``.
    """

    def bucket(one: TopicPartition) -> int:
        code = 31 * (31 + one.partition) + ord(one.topic)
        return (code ^ (code >> 16)) & 15

    first_owner, _ = movements._paths.get(tp, (owner, owner))
    return min(movements._moved[tp.topic, target, first_owner], key=bucket, default=tp)


@pytest.mark.parametrize("assignor", ASSIGN)
def test_every_member_gets_what_javas_assignor_would_give_it(
    assignor: str, cases: dict[str, list[Case]], answers: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = list(zip(cases[assignor], map(parsed, answers[assignor]), strict=True))
    assert len(both) == CASES
    different = [case for case, answer in both if case.assigned() != answer]
    assert len(different) <= CASES // 100
    monkeypatch.setattr(sticky_general._Movements, "instead_of", javas_choice)
    for case, answer in both:
        assert case.assigned() == answer, str(case)


def test_a_java_member_sends_the_same_user_data(answers: dict[str, list[str]]) -> None:
    [some, none] = answers["user data"]
    assert [bytes.fromhex(some), bytes.fromhex(none)] == [
        sticky_user_data(Claim(tuple(HELD), 42)),
        sticky_user_data(Claim((), 1)),
    ]
