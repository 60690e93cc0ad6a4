"""Properties of every sticky assignment: it is valid, even, and moves few partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import assume, given
from hypothesis import strategies as st

from aiokc.assignor import MemberSubscription
from aiokc.core.assignors.sticky import assign_cooperative_sticky, assign_sticky
from aiokc.core.assignors.values import GroupAssignment, Members
from aiokc.types import TopicPartition

from .sticky_groups import member

TOPICS = "ABCD"
ids = st.text("abc019", min_size=1, max_size=3)
some_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
some_topics = st.frozensets(st.sampled_from(TOPICS))
# With claims that no correct member makes: to partitions that do not exist, that it does not subscribe to, or that
# other members claim, too.
some_partitions = st.frozensets(st.builds(TopicPartition, st.sampled_from(TOPICS + "X"), st.integers(-1, 10)))
any_group = st.dictionaries(ids, st.builds(member, some_topics, some_partitions, st.integers(0, 3)), min_size=1)
alike = st.builds(
    lambda topics, held: {name: member(topics, *claim) for name, claim in held.items()},
    some_topics,
    st.dictionaries(ids, st.tuples(some_partitions, st.integers(0, 3)), min_size=1),
)
groups = any_group | alike


def all_partitions(counts: Mapping[str, int], members: Members) -> Counter[TopicPartition]:
    wanted = {topic for one in members.values() for topic in one.topics} & counts.keys()
    return Counter(TopicPartition(topic, number) for topic in wanted for number in range(counts[topic]))


def holding(members: Members, assignment: GroupAssignment, generation_id: int = 9) -> dict[str, MemberSubscription]:
    """Return the same members in the next rebalance, after they got ``assignment``."""
    return {name: member(one.topics, assignment.get(name, ()), generation_id) for name, one in members.items()}


def moved(members: Members, assignment: GroupAssignment) -> list[TopicPartition]:
    return [tp for name, held in assignment.items() for tp in held if tp not in members[name].owned]


@given(counts=some_counts, members=groups)
def test_each_partition_has_exactly_one_owner_and_the_owner_wants_it(
    counts: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    assignment = assign_sticky(counts, members)
    assert assignment.keys() == members.keys()
    assert Counter(tp for held in assignment.values() for tp in held) == all_partitions(counts, members)
    assert all(tp.topic in members[name].topics for name, held in assignment.items() for tp in held)


@given(counts=some_counts, members=groups)
def test_no_partition_could_go_to_a_member_with_two_fewer(
    counts: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    assignment = assign_sticky(counts, members)
    for held in assignment.values():
        lightest = {
            topic: min(len(assignment[name]) for name, one in members.items() if topic in one.topics)
            for topic in {tp.topic for tp in held}
        }
        assert all(len(held) <= load + 1 for load in lightest.values())


@given(counts=some_counts, members=groups)
def test_nothing_moves_where_nothing_changed(counts: dict[str, int], members: dict[str, MemberSubscription]) -> None:
    held = holding(members, assign_sticky(counts, members))
    assert not moved(held, assign_sticky(counts, held))
    assert not moved(held, assign_cooperative_sticky(counts, held))


@given(counts=some_counts, members=alike, data=st.data())
def test_the_others_keep_all_they_have_when_a_member_leaves(
    counts: dict[str, int], members: dict[str, MemberSubscription], data: st.DataObject
) -> None:
    held = holding(members, assign_sticky(counts, members))
    gone = held.pop(data.draw(st.sampled_from(sorted(held))))
    if held:
        assert sorted(moved(held, assign_sticky(counts, held))) == sorted(gone.owned)


@given(counts=some_counts, members=alike, name=ids)
def test_only_the_newcomers_share_moves_when_a_member_joins(
    counts: dict[str, int], members: dict[str, MemberSubscription], name: str
) -> None:
    held = holding(members, assign_sticky(counts, members))
    assume(name not in held)
    held[name] = member(next(iter(held.values())).topics)
    assignment = assign_sticky(counts, held)
    assert sorted(moved(held, assignment)) == sorted(assignment[name])


@given(counts=some_counts, members=groups)
def test_the_order_in_which_members_joined_does_not_matter(
    counts: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    assert assign_sticky(counts, members) == assign_sticky(counts, dict(reversed(members.items())))


@given(counts=some_counts, members=groups)
def test_a_cooperative_round_holds_back_what_a_member_of_the_newest_generation_still_reads(
    counts: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    newest = max(one.generation_id for one in members.values())
    for name, held in assign_cooperative_sticky(counts, members).items():
        others = [one.owned for other, one in members.items() if other != name and one.generation_id == newest]
        assert not any(tp in owned for tp in held for owned in others)


@given(counts=some_counts, members=alike)
def test_cooperative_members_that_subscribe_alike_are_done_after_two_rounds(
    counts: dict[str, int], members: dict[str, MemberSubscription]
) -> None:
    first = assign_cooperative_sticky(counts, members)
    second = assign_cooperative_sticky(counts, holding(members, first))
    assert Counter(tp for held in second.values() for tp in held) == all_partitions(counts, members)
    assert all(set(first[name]) <= set(second[name]) for name in members)


@given(counts=some_counts, members=groups)
def test_cooperative_rebalancing_ends(counts: dict[str, int], members: dict[str, MemberSubscription]) -> None:
    """Nearly always after two rounds. A third one balances what only shows once all partitions are assigned."""
    for generation_id in range(4, 9):
        assignment = assign_cooperative_sticky(counts, members)
        if Counter(tp for held in assignment.values() for tp in held) == all_partitions(counts, members):
            break
        members = holding(members, assignment, generation_id)
    assert Counter(tp for held in assignment.values() for tp in held) == all_partitions(counts, members)
    settled = holding(members, assignment)
    assert not moved(settled, assign_cooperative_sticky(counts, settled))
