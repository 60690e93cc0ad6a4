from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.assignor import Group, MemberSubscription
from aiokc.core.assignors.range import assign_range
from aiokc.core.assignors.registry import ASSIGNORS, BuiltIn, assign_roundrobin, assignors
from aiokc.core.assignors.values import GroupAssignment
from aiokc.errors import ConfigError
from aiokc.types import TopicPartition


def members(**topics: str) -> dict[str, MemberSubscription]:
    """c0="A B" -> {"c0": a member that subscribes to A and B}"""
    return {name: MemberSubscription(frozenset(wanted.split())) for name, wanted in topics.items()}


def short(assignment: GroupAssignment) -> dict[str, str]:
    return {member: " ".join(f"{tp.topic}{tp.partition}" for tp in tps) for member, tps in assignment.items()}


def test_range_splits_each_topic_into_contiguous_ranges() -> None:
    assignment = assign_range({"A": 5, "B": 4}, members(c0="A B", c1="A B", c2="A B"))
    assert short(assignment) == {"c0": "A0 A1 B0 B1", "c1": "A2 A3 B2", "c2": "A4 B3"}


def test_range_gives_the_remainder_of_every_topic_to_the_first_members() -> None:
    assignment = assign_range({"t": 3, "u": 3}, members(C0="t u", C1="t u"))
    assert short(assignment) == {"C0": "t0 t1 u0 u1", "C1": "t2 u2"}


def test_range_leaves_surplus_members_with_an_empty_assignment() -> None:
    assignment = assign_range({"T": 4}, members(c1="T", c2="T", c3="T", c4="T", c5="T", c6="T"))
    assert short(assignment) == {"c1": "T0", "c2": "T1", "c3": "T2", "c4": "T3", "c5": "", "c6": ""}


def test_range_counts_only_the_subscribers_of_a_topic() -> None:
    assignment = assign_range({"A": 1, "B": 2, "C": 3}, members(c0="A B", c1="A B", c2="A B C"))
    assert short(assignment) == {"c0": "A0 B0", "c1": "B1", "c2": "C0 C1 C2"}


def test_members_are_ordered_as_strings() -> None:
    assignment = assign_range({"T": 4}, members(c1="T", c2="T", c10="T"))
    assert short(assignment) == {"c1": "T0 T1", "c10": "T2", "c2": "T3"}


def test_member_ids_compare_by_utf16_code_units() -> None:
    emoji, tilde = "\U0001f600", "\uff5e"  # by code points the other way round
    assignment = assign_range(
        {"T": 1}, {tilde: MemberSubscription(frozenset("T")), emoji: MemberSubscription(frozenset("T"))}
    )
    assert short(assignment) == {emoji: "T0", tilde: ""}


def test_static_members_come_before_dynamic_ones_and_by_instance_id() -> None:
    group = {
        "a-dynamic": MemberSubscription(frozenset("T")),
        "x": MemberSubscription(frozenset("T"), group_instance_id="second"),
        "y": MemberSubscription(frozenset("T"), group_instance_id="first"),
    }
    assert short(assign_range({"T": 3}, group)) == {"y": "T0", "x": "T1", "a-dynamic": "T2"}
    assert short(assign_roundrobin({"T": 3}, group)) == {"y": "T0", "x": "T1", "a-dynamic": "T2"}


def test_roundrobin_goes_on_from_topic_to_topic() -> None:
    assignment = assign_roundrobin({"A": 1, "B": 2, "C": 3}, members(c0="A B C", c1="A B C", c2="A B C"))
    assert short(assignment) == {"c0": "A0 C0", "c1": "B0 C1", "c2": "B1 C2"}


def test_roundrobin_deals_two_topics_to_two_members() -> None:
    assignment = assign_roundrobin({"t": 3, "u": 3}, members(C0="t u", C1="t u"))
    assert short(assignment) == {"C0": "t0 t2 u1", "C1": "t1 u0 u2"}


def test_roundrobin_skips_members_without_the_topic() -> None:
    counts = {"A": 1, "B": 2, "C": 3}
    assert short(assign_roundrobin(counts, members(c0="A B", c1="A B", c2="A B C"))) == {
        "c0": "A0",
        "c1": "B0",
        "c2": "B1 C0 C1 C2",
    }
    assert short(assign_roundrobin(counts, members(c1="A B", c2="A B C"))) == {"c1": "A0 B1", "c2": "B0 C0 C1 C2"}


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=lambda a: a.name)
def test_a_topic_without_metadata_is_no_error(assignor: BuiltIn) -> None:
    group = Group({"A": 1, "empty": 0}, members(c0="A gone empty", c1="gone"))
    assert short(assignor.assign(group)) == {"c0": "A0", "c1": ""}
    assert short(assignor.assign(Group({}, members(c0="")))) == {"c0": ""}


def test_assignors_are_found_by_name_in_the_order_of_preference() -> None:
    assert [a.name for a in assignors(["roundrobin", "range"])] == ["roundrobin", "range"]
    with pytest.raises(ConfigError, match="'ranged'; did you mean 'range'"):
        assignors(["range", "ranged"])
    with pytest.raises(ConfigError, match="unknown assignor 'mine'; there are 'range', 'roundrobin', 'sticky'"):
        assignors(["mine"])


topics = st.sampled_from("ABCD")
groups = st.dictionaries(
    st.text("abc019", min_size=1, max_size=3),
    st.builds(
        MemberSubscription,
        topics=st.frozensets(topics),
        group_instance_id=st.none() | st.text("abc019", min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=lambda a: a.name)
@given(counts=st.dictionaries(topics, st.integers(1, 9)), group=groups)
def test_each_partition_has_exactly_one_owner_and_the_owner_wants_it(
    assignor: BuiltIn, counts: dict[str, int], group: dict[str, MemberSubscription]
) -> None:
    assignment = assignor.assign(Group(counts, group))
    assert assignment.keys() == group.keys()
    owners = Counter(tp for tps in assignment.values() for tp in tps)
    wanted = {topic for member in group.values() for topic in member.topics} & counts.keys()
    assert owners == Counter(TopicPartition(topic, n) for topic in wanted for n in range(counts[topic]))
    assert all(tp.topic in group[member].topics for member, tps in assignment.items() for tp in tps)


@given(
    counts=st.dictionaries(topics, st.integers(1, 9)), names=st.sets(st.text("abc", min_size=1, max_size=3), min_size=1)
)
def test_roundrobin_is_balanced_where_all_subscribe_alike(counts: dict[str, int], names: set[str]) -> None:
    sizes = [len(tps) for tps in assign_roundrobin(counts, members(**dict.fromkeys(names, "A B C D"))).values()]
    assert max(sizes) - min(sizes) <= 1


def test_range_lets_a_member_without_a_rack_read_anywhere() -> None:
    """It counts as near to all partitions, so it gets more than what members with a rack do not take."""
    group = {name: MemberSubscription(frozenset({"t"}), rack_id=rack) for name, rack in (("c0", None), ("c1", "r1"))}
    racks = {TopicPartition("t", number): frozenset({rack}) for number, rack in enumerate(("r1", "r2", "r1", "r2"))}
    assert short(assign_range({"t": 4}, group, racks)) == {"c0": "t0 t1", "c1": "t2 t3"}
