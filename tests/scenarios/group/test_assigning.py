"""The exact assignments of the built-in assignors: the same as those of Java's current ones."""

from __future__ import annotations

import pytest

from aiokc.assignor import Group
from aiokc.core.assignors.registry import ASSIGNORS
from tests.core.assignors.sticky_groups import group, short

FIVE_FOUR = {"A": 5, "B": 4}
ONE_TWO_THREE = {"A": 1, "B": 2, "C": 3}
TWO_TOPICS = {"t": 3, "u": 3}


def assigned(assignor: str, counts: dict[str, int], **said: str) -> dict[str, str]:
    return short(ASSIGNORS[assignor].assign(Group(counts, group(**said))))


def test_range() -> None:
    """Given topics of 5 and 4 partitions and three members that read both, then each topic is cut into ranges, and the
    first members get the remainder of each.
    """
    assert assigned("range", FIVE_FOUR, c0="AB", c1="AB", c2="AB") == {
        "c0": "A0 A1 B0 B1",
        "c1": "A2 A3 B2",
        "c2": "A4 B3",
    }


def test_range_with_remainders_surplus_members_and_different_subscriptions() -> None:
    """Given an uneven division, more members than partitions, ids that sort as strings, or members that do not all read
    a topic, then range gives these results.
    """
    assert assigned("range", TWO_TOPICS, C0="tu", C1="tu") == {"C0": "t0 t1 u0 u1", "C1": "t2 u2"}
    surplus = assigned("range", {"T": 4}, c1="T", c2="T", c3="T", c4="T", c5="T", c6="T")
    assert surplus == {"c1": "T0", "c2": "T1", "c3": "T2", "c4": "T3", "c5": "", "c6": ""}
    assert assigned("range", {"T": 4}, c1="T", c2="T", c10="T") == {"c1": "T0 T1", "c10": "T2", "c2": "T3"}
    assert assigned("range", ONE_TWO_THREE, c0="AB", c1="AB", c2="ABC") == {"c0": "A0 B0", "c1": "B1", "c2": "C0 C1 C2"}


def test_roundrobin() -> None:
    """Given members with the same or different subscriptions, then roundrobin deals all partitions in turn, from topic
    to topic, and skips a member that is not subscribed to the topic.
    """
    all_read_all = assigned("roundrobin", ONE_TWO_THREE, c0="ABC", c1="ABC", c2="ABC")
    assert all_read_all == {"c0": "A0 C0", "c1": "B0 C1", "c2": "B1 C2"}
    uneven = assigned("roundrobin", ONE_TWO_THREE, c0="AB", c1="AB", c2="ABC")
    assert uneven == {"c0": "A0", "c1": "B0", "c2": "B1 C0 C1 C2"}
    assert assigned("roundrobin", ONE_TWO_THREE, c1="AB", c2="ABC") == {"c1": "A0 B1", "c2": "B0 C0 C1 C2"}
    assert assigned("roundrobin", TWO_TOPICS, C0="tu", C1="tu") == {"C0": "t0 t2 u1", "C1": "t1 u0 u2"}


def test_sticky_through_the_life_of_a_group_that_reads_alike() -> None:
    """Given a fresh group, a member that leaves, or one that joins instead, then sticky moves only the partitions that
    it must. The newcomer gets the last partitions of the members above the least share (older Kafka: their first), and
    the cooperative assignor holds those back for one rebalance.
    """
    fresh = {"c0": "A0 A3 B1", "c1": "A1 A4 B2", "c2": "A2 B0 B3"}
    assert assigned("sticky", FIVE_FOUR, c0="AB", c1="AB", c2="AB") == fresh
    held = {name: f"AB: {partitions}" for name, partitions in fresh.items()}
    left = assigned("sticky", FIVE_FOUR, c0=held["c0"], c2=held["c2"])
    assert left == {"c0": "A0 A1 A3 B1 B2", "c2": "A2 A4 B0 B3"}
    joined = assigned("sticky", FIVE_FOUR, **held, c3="AB")
    assert joined == {"c0": "A0 A3 B1", "c1": "A1 B2", "c2": "A2 B0", "c3": "A4 B3"}
    first_round = assigned("cooperative-sticky", FIVE_FOUR, **held, c3="AB")
    assert first_round == joined | {"c3": ""}


def test_sticky_at_the_edges_of_a_group_that_reads_alike() -> None:
    """Given an uneven division, one member that owns everything, a partition that two members claim, or topics of two
    partitions, then sticky gives these results; with T:4 the first of the two with more keeps it (older Kafka: the
    last).
    """
    four = {"c0": "T: T0 T1", "c1": "T: T2 T3", "c2": "T"}
    assert assigned("sticky", {"T": 4}, **four) == {"c0": "T0 T1", "c1": "T2", "c2": "T3"}
    everything = {"c0": "T: T0 T1 T2 T3 T4 T5", "c1": "T"}
    assert assigned("sticky", {"T": 6}, **everything) == {"c0": "T0 T1 T2", "c1": "T3 T4 T5"}
    assert assigned("cooperative-sticky", {"T": 6}, **everything) == {"c0": "T0 T1 T2", "c1": ""}
    twice = {"c0": "T: T0 T1 T2", "c1": "T: T2 T3 T4"}
    assert assigned("sticky", {"T": 6}, **twice) == {"c0": "T0 T1 T2", "c1": "T3 T4 T5"}
    assert assigned("cooperative-sticky", {"T": 6}, **twice) == {"c0": "T0 T1", "c1": "T3 T4 T5"}
    twos = dict.fromkeys("ABCD", 2)
    fresh = {"C0": "A0 B1 D0", "C1": "A1 C0 D1", "C2": "B0 C1"}
    assert assigned("sticky", twos, C0="ABCD", C1="ABCD", C2="ABCD") == fresh
    left = assigned("sticky", twos, C0=f"ABCD: {fresh['C0']}", C2=f"ABCD: {fresh['C2']}")
    assert left == {"C0": "A0 A1 B1 D0", "C2": "B0 C0 C1 D1"}


def test_sticky_where_members_read_different_topics() -> None:
    """Given members that read different topics, then sticky balances what can be balanced, and keeps what is balanced.
    Where two results are equally good the result is that of Java's code, not that of the examples in its documentation.
    """
    fresh = assigned("sticky", ONE_TWO_THREE, c0="AB", c1="AB", c2="ABC")
    assert fresh == {"c0": "A0 B1", "c1": "B0", "c2": "C0 C1 C2"}
    prior = {"c0": "A0", "c1": "B0 B1", "c2": "C0 C1 C2"}
    kept = assigned("sticky", ONE_TWO_THREE, c0="AB: A0", c1="AB: B0 B1", c2="ABC: C0 C1 C2")
    assert kept == prior
    for held in (prior["c1"], fresh["c1"]):
        left = assigned("sticky", ONE_TWO_THREE, c1=f"AB: {held}", c2="ABC: C0 C1 C2")
        assert left == {"c1": "A0 B0 B1", "c2": "C0 C1 C2"}


@pytest.mark.parametrize(
    ("counts", "said", "expected"),
    [
        ({"A": 4, "B": 1}, {"c0": "A: A0 A1 A2 A3", "c1": "AB"}, {"c0": "A1 A2 A3", "c1": "A0 B0"}),
        ({"A": 2, "B": 2}, {"c0": "A: A0 B0", "c1": "AB: A1 B1"}, {"c0": "A0 A1", "c1": "B0 B1"}),
        ({"A": 2, "B": 1}, {"c0": "A: A0 A3", "c1": "AB: A1 B0"}, {"c0": "A0", "c1": "A1 B0"}),
        (
            {"A": 4, "B": 1},
            {"c0": "A: A0 A1 A2 A3", "c1": "AB", "c2": "A"},
            {"c0": "A2 A3", "c1": "A1 B0", "c2": "A0"},
        ),
        (
            {"A": 4, "B": 1},
            {"c0": "A: A0 A1 A2 A3", "c1": "AB: A0 @4", "c2": "A"},
            {"c0": "A2 A3", "c1": "A0 B0", "c2": "A1"},
        ),
    ],
    ids=["movement", "a topic given up", "a topic that shrank", "to the least loaded", "back to its previous owner"],
)
def test_sticky_moves_partitions(counts: dict[str, int], said: dict[str, str], expected: dict[str, str]) -> None:
    """Given members that read different topics and a group out of balance, then these partitions move, and no others.
    That no partition could go to a member with two fewer is a property test beside the other ones of sticky.
    """
    assert assigned("sticky", counts, **said) == expected
