"""The test cluster's assignors: every partition has one subscribed owner, in shares that differ by one at most."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from aiokc.testing.groups.consumer.assignors import ASSIGNORS, Candidate, Targets, assign_range, assign_uniform

TOPICS = [UUID(int=number) for number in range(1, 4)]


def _members(random: Random, before: Targets, *, alike: bool) -> list[Candidate]:
    some = frozenset(random.sample(TOPICS, random.randint(1, 3)))
    return [
        Candidate(
            f"m{number}",
            None,
            some if alike else frozenset(random.sample(TOPICS, random.randint(1, 3))),
            before.get(f"m{number}", frozenset()),
        )
        for number in range(random.randint(1, 6))
    ]


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("name", [*ASSIGNORS])
def test_each_partition_has_one_owner_that_subscribes_to_it(name: str, alike: bool) -> None:
    random = Random(5)
    before: Targets = {}
    for _ in range(300):
        members = _members(random, before, alike=alike)
        sizes = {topic: random.randint(1, 7) for topic in sorted({topic for one in members for topic in one.topics})}
        before = ASSIGNORS[name](members, sizes, alike)
        owned = [tp for one in members for tp in before[one.member_id]]
        assert sorted(owned) == [(topic, number) for topic, size in sizes.items() for number in range(size)]
        assert all(tp[0] in one.topics for one in members for tp in before[one.member_id])
        if name == "uniform" and alike:
            shares = [len(share) for share in before.values()]
            assert max(shares) - min(shares) <= 1


def test_uniform_moves_no_more_than_it_must() -> None:
    sizes = {TOPICS[0]: 12}
    topics = frozenset(sizes)
    two = assign_uniform([Candidate(name, None, topics, frozenset()) for name in "bc"], sizes, True)
    three = assign_uniform([Candidate(name, None, topics, two.get(name, frozenset())) for name in "abc"], sizes, True)
    assert {name: len(share) for name, share in three.items()} == {"a": 4, "b": 4, "c": 4}
    assert three["b"] < two["b"]
    assert three["c"] < two["c"]


def test_uniform_evens_out_what_different_subscriptions_allow() -> None:
    first, second = TOPICS[:2]
    members = [
        Candidate("a", None, frozenset({first}), frozenset()),
        Candidate("b", None, frozenset({first, second}), frozenset((first, number) for number in range(4))),
    ]
    found = assign_uniform(members, {first: 4, second: 4}, False)
    assert found == {
        "a": frozenset((first, number) for number in range(4)),
        "b": frozenset((second, number) for number in range(4)),
    }


def test_range_gives_blocks_to_static_members_first() -> None:
    topic = TOPICS[0]
    members = [
        Candidate(name, instance, frozenset({topic}), frozenset()) for name, instance in (("a", None), ("z", "i"))
    ]
    found = assign_range(members, {topic: 3}, True)
    assert found == {"z": frozenset({(topic, 0), (topic, 1)}), "a": frozenset({(topic, 2)})}


@pytest.mark.parametrize("name", [*ASSIGNORS])
def test_of_members_that_are_taken_to_be_alike_the_first_one_speaks_for_all(name: str) -> None:
    """Kafka does so, too, where one that subscribes to nothing joins while an assignment is due."""
    topic = TOPICS[0]

    def found(*idle: str) -> dict[str, int]:
        members = [
            Candidate(one, None, frozenset() if one in idle else frozenset({topic}), frozenset()) for one in ("a", "b")
        ]
        return {one: len(share) for one, share in ASSIGNORS[name](members, {topic: 4}, True).items()}

    assert found("b") == {"a": 2, "b": 2}
    assert found("a") == {"a": 0, "b": 0}
