"""The sticky assignors by example. The tests name the results that differ between today's Kafka and older ones."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from aiokc.assignor import Claim, MemberSubscription
from aiokc.core.assignors.sticky import assign_cooperative_sticky, assign_sticky
from aiokc.core.assignors.sticky_claims import cooperative_claim, settle, sticky_claim, sticky_user_data
from aiokc.core.assignors.values import GroupAssignment, Members, PartitionCounts

from .sticky_groups import group, member, partitions, short

NINE = {"A": 5, "B": 4}

# Members that subscribe to the same topics


def test_a_new_group_that_subscribes_alike_gets_the_partitions_in_rotation() -> None:
    assert short(assign_sticky(NINE, group(c0="AB", c1="AB", c2="AB"))) == {
        "c0": "A0 A3 B1",
        "c1": "A1 A4 B2",
        "c2": "A2 B0 B3",
    }


def test_the_partitions_of_a_member_that_left_go_to_the_others_and_nothing_else_moves() -> None:
    assert short(assign_sticky(NINE, group(c0="AB: A0 A3 B1", c2="AB: A2 B0 B3"))) == {
        "c0": "A0 A1 A3 B1 B2",
        "c2": "A2 A4 B0 B3",
    }


def test_a_member_that_joins_gets_its_share_from_the_others() -> None:
    """Today's Kafka: the members above the least share give up their last partitions (older ones: their first)."""
    joined = group(c0="AB: A0 A3 B1", c1="AB: A1 A4 B2", c2="AB: A2 B0 B3", c3="AB")
    assert short(assign_sticky(NINE, joined)) == {"c0": "A0 A3 B1", "c1": "A1 B2", "c2": "A2 B0", "c3": "A4 B3"}
    first_round = short(assign_cooperative_sticky(NINE, joined))
    assert first_round == {"c0": "A0 A3 B1", "c1": "A1 B2", "c2": "A2 B0", "c3": ""}


def test_a_member_joins_where_the_partitions_do_not_divide_evenly() -> None:
    """Today's Kafka: the first member above the least share keeps the extra partition (older ones: the last)."""
    joined = group(c0="T: T0 T1", c1="T: T2 T3", c2="T")
    assert short(assign_sticky({"T": 4}, joined)) == {"c0": "T0 T1", "c1": "T2", "c2": "T3"}
    assert short(assign_cooperative_sticky({"T": 4}, joined)) == {"c0": "T0 T1", "c1": "T2", "c2": ""}


def test_a_member_that_has_everything_gives_up_half_of_it() -> None:
    joined = group(c0="T: T0 T1 T2 T3 T4 T5", c1="T")
    assert short(assign_sticky({"T": 6}, joined)) == {"c0": "T0 T1 T2", "c1": "T3 T4 T5"}
    assert short(assign_cooperative_sticky({"T": 6}, joined)) == {"c0": "T0 T1 T2", "c1": ""}


def test_a_partition_claimed_twice_in_one_generation_has_no_owner() -> None:
    claimed = group(c0="T: T0 T1 T2", c1="T: T2 T3 T4")
    assert short(assign_sticky({"T": 6}, claimed)) == {"c0": "T0 T1 T2", "c1": "T3 T4 T5"}
    assert short(assign_cooperative_sticky({"T": 6}, claimed)) == {"c0": "T0 T1", "c1": "T3 T4 T5"}


def test_javas_first_example_a_member_leaves_four_topics_of_two_partitions() -> None:
    counts = dict.fromkeys("ABCD", 2)
    assert short(assign_sticky(counts, group(C0="ABCD", C1="ABCD", C2="ABCD"))) == {
        "C0": "A0 B1 D0",
        "C1": "A1 C0 D1",
        "C2": "B0 C1",
    }
    assert short(assign_sticky(counts, group(C0="ABCD: A0 B1 D0", C2="ABCD: B0 C1"))) == {
        "C0": "A0 A1 B1 D0",
        "C2": "B0 C0 C1 D1",
    }


def test_surplus_members_get_nothing_and_stay_members() -> None:
    assigned = short(assign_sticky({"T": 2}, group(c0="T", c1="T", c2="T: T0 T1", c3="T")))
    assert assigned == {"c0": "T1", "c1": "", "c2": "T0", "c3": ""}


# Members that subscribe to different topics

SIX = {"A": 1, "B": 2, "C": 3}


def test_topics_with_the_least_choice_are_assigned_first() -> None:
    assert short(assign_sticky(SIX, group(c0="AB", c1="AB", c2="ABC"))) == {"c0": "A0 B1", "c1": "B0", "c2": "C0 C1 C2"}


def test_a_balanced_group_that_did_not_change_keeps_everything() -> None:
    held = group(c0="AB: A0", c1="AB: B0 B1", c2="ABC: C0 C1 C2")
    assert short(assign_sticky(SIX, held)) == {"c0": "A0", "c1": "B0 B1", "c2": "C0 C1 C2"}


@pytest.mark.parametrize("held", ["B0", "B0 B1"])
def test_what_a_member_leaves_goes_to_the_lighter_one(held: str) -> None:
    assigned = short(assign_sticky(SIX, group(c1=f"AB: {held}", c2="ABC: C0 C1 C2")))
    assert assigned == {"c1": "A0 B0 B1", "c2": "C0 C1 C2"}


def test_javas_second_example_each_member_has_one_topic_more() -> None:
    assert short(assign_sticky(SIX, group(C0="A", C1="AB", C2="ABC"))) == {"C0": "A0", "C1": "B0 B1", "C2": "C0 C1 C2"}
    after = short(assign_sticky(SIX, group(C1="AB: B0 B1", C2="ABC: C0 C1 C2")))
    assert after == {"C1": "A0 B0 B1", "C2": "C0 C1 C2"}


def test_partitions_move_until_the_difference_is_one() -> None:
    assigned = short(assign_sticky({"A": 4, "B": 1}, group(c0="A: A0 A1 A2 A3", c1="AB")))
    assert assigned == {"c0": "A1 A2 A3", "c1": "A0 B0"}


def test_a_member_that_gave_up_a_topic_gives_up_its_partitions_and_all_is_balanced_anew() -> None:
    assigned = short(assign_sticky({"A": 2, "B": 2}, group(c0="A: A0 B0", c1="AB: A1 B1")))
    assert assigned == {"c0": "A0 A1", "c1": "B0 B1"}


def test_partitions_that_are_gone_are_dropped() -> None:
    """Java only checks that the topic exists, and would go on assigning A3."""
    assert short(assign_sticky({"A": 2, "B": 1}, group(c0="A: A0 A3", c1="AB: A1 B0"))) == {"c0": "A0", "c1": "A1 B0"}
    assert short(assign_sticky({"A": 2}, group(c0="AC: A0 A3 C7", c1="AC: A1"))) == {"c0": "A0", "c1": "A1"}


def test_free_partitions_move_before_owned_ones() -> None:
    """Member a has one partition too many, and got C3 last. So C3 goes on to f, and not C0."""
    held = group(a="AC: C0 C5", e="A", f="BC", h="AB: A3 B1", i="B", k="ABC: C6", l="C: C4")
    assigned = short(assign_sticky({"A": 4, "B": 2, "C": 7}, held))
    assert (assigned["a"], assigned["f"]) == ("C0 C5", "C1 C3")


def test_without_a_previous_owner_a_partition_goes_to_the_least_loaded_member() -> None:
    assigned = short(assign_sticky({"A": 4, "B": 1}, group(c0="A: A0 A1 A2 A3", c1="AB", c2="A")))
    assert assigned == {"c0": "A2 A3", "c1": "A1 B0", "c2": "A0"}


def test_a_partition_that_must_move_goes_back_to_its_previous_owner() -> None:
    assigned = short(assign_sticky({"A": 4, "B": 1}, group(c0="A: A0 A1 A2 A3", c1="AB: A0 @4", c2="A")))
    assert assigned == {"c0": "A2 A3", "c1": "A0 B0", "c2": "A1"}


def test_a_previous_owner_that_gave_up_the_topic_does_not_get_it_back() -> None:
    """In Java it does get it back, and never reads it."""
    assigned = short(assign_sticky({"A": 4, "B": 1}, group(c0="A: A0 A1 A2 A3", c1="B: A0 @4", c2="A")))
    assert assigned == {"c0": "A2 A3", "c1": "B0", "c2": "A0 A1"}


def test_a_member_takes_its_partition_back_rather_than_another_of_the_same_topic() -> None:
    """k gives A1 to j; then j has too many. A1 goes back, and not A0: otherwise A1 would have moved for nothing."""
    held = group(d="B: B1", f="B", h="B", j="AB: A2", k="AB: A1 A3 B0 B2")
    assert short(assign_sticky({"A": 4, "B": 3}, held)) == {"d": "B1", "f": "B0", "h": "B2", "j": "A0 A2", "k": "A1 A3"}


def test_a_member_that_alone_reads_its_topics_keeps_them_whatever_its_load() -> None:
    assigned = short(assign_sticky({"A": 9, "B": 2}, group(c0="A", c1="B", c2="B: B0 B1")))
    assert assigned == {"c0": "A0 A1 A2 A3 A4 A5 A6 A7 A8", "c1": "B0", "c2": "B1"}


# Both algorithms


@pytest.mark.parametrize("assign", [assign_sticky, assign_cooperative_sticky])
def test_topics_without_metadata_are_no_error_and_every_member_has_an_entry(
    assign: Callable[[PartitionCounts, Members], GroupAssignment],
) -> None:
    assert short(assign({"A": 1, "E": 0}, group(c0="AXE", c1="X"))) == {"c0": "A0", "c1": ""}
    assert short(assign({"A": 1}, group(c0="AX", c1="AX"))) == {"c0": "A0", "c1": ""}
    assert short(assign({}, group(c0="", c1=""))) == {"c0": "", "c1": ""}


def test_members_are_in_the_order_of_their_ids_as_strings() -> None:
    assert short(assign_sticky({"T": 2}, group(c2="T", c10="T", c3="T"))) == {"c10": "T0", "c2": "T1", "c3": ""}


# Cooperative rebalancing


def test_a_partition_is_handed_over_in_two_rounds() -> None:
    """KIP-429: the first round gives it up, the second assigns it. Partitions that do not move are read on."""
    first = assign_cooperative_sticky({"P": 6}, group(c1="P: P0 P1 P2", c2="P: P3 P4 P5", c3="P"))
    assert short(first) == {"c1": "P0 P1", "c2": "P3 P4", "c3": ""}
    second = assign_cooperative_sticky({"P": 6}, {name: member("P", held, 6) for name, held in first.items()})
    assert short(second) == {"c1": "P0 P1", "c2": "P3 P4", "c3": "P2 P5"}


def test_a_handover_between_members_that_subscribe_to_different_topics() -> None:
    joined = group(c0="A: A0 A1 A2 A3", c1="AB")
    assert short(assign_cooperative_sticky({"A": 4, "B": 1}, joined)) == {"c0": "A1 A2 A3", "c1": "B0"}


def test_a_partition_of_a_topic_given_up_is_held_back_until_its_owner_knows() -> None:
    left = group(c0="A: A0 B0", c1="AB: A1")
    assert short(assign_cooperative_sticky({"A": 2, "B": 1}, left)) == {"c0": "A0", "c1": "A1"}


def test_a_double_claim_is_held_back_where_members_subscribe_differently_too() -> None:
    """Java gives it to one of the two at once, while the other still reads it."""
    claimed = group(c0="A: A0", c1="AB: A0")
    assert short(assign_cooperative_sticky({"A": 2, "B": 1}, claimed)) == {"c0": "A1", "c1": "B0"}


def test_a_partition_does_not_go_to_a_member_only_because_it_once_had_it() -> None:
    """c1 claims T2 from an older generation, and c0 reads it. c1 gets it after c0 has given it up."""
    claimed = group(c0="T: T0 T1 T2", c1="T: T2 @4")
    assert short(assign_sticky({"T": 3}, claimed)) == {"c0": "T0 T1", "c1": "T2"}
    assert short(assign_cooperative_sticky({"T": 3}, claimed)) == {"c0": "T0 T1", "c1": ""}


def test_an_older_claim_does_not_interrupt_the_owner() -> None:
    claimed = group(c0="T: T0 T1 @6", c1="T: T1 T2 @5", c2="T: T2 T3 @6")
    assert short(assign_cooperative_sticky({"T": 4}, claimed))["c0"] == "T0 T1"


# What members claim


def test_the_newest_claim_wins_and_the_older_one_is_the_previous_owners() -> None:
    claims = settle(
        {
            "a": Claim(tuple(partitions("T0 T1")), 4),
            "b": Claim(tuple(partitions("T0")), 5),
            "c": Claim(tuple(partitions("T0")), 3),
        },
        {"T": 2},
    )
    [t0, t1] = partitions("T0 T1")
    assert claims.holders == {t0: "b", t1: "a"}
    assert claims.previous == {t0: "a", t1: "a"}
    assert not claims.contested


def test_an_older_claim_counts_where_it_is_not_disputed() -> None:
    """Today's Kafka; older ones emptied the claims of all members but those of the newest generation."""
    assert short(assign_sticky({"T": 2}, group(a="T @9", b="T: T0 @2"))) == {"a": "T1", "b": "T0"}


def test_a_dispute_of_old_generations_does_not_touch_a_newer_claim() -> None:
    claims = settle({name: Claim(tuple(partitions("T0")), g) for name, g in {"a": 4, "b": 4, "c": 5}.items()}, {"T": 1})
    assert dict(claims.holders) == {partitions("T0")[0]: "c"}
    assert not claims.contested


@pytest.mark.parametrize("nonsense", ["T9", "T-1", "X0"])
def test_claims_to_partitions_that_do_not_exist_are_ignored(nonsense: str) -> None:
    claims = settle({"a": Claim(tuple(partitions(nonsense)), 5), "b": Claim((), 9)}, {"T": 3})
    assert not claims.holders
    assert not claims.previous


VERSION_0 = struct.pack(">i h1s i ii", 1, 1, b"T", 2, 0, 7)


def test_sticky_user_data_of_both_versions() -> None:
    held = partitions("T0 T7")
    assert sticky_user_data(Claim(tuple(held), 42)) == VERSION_0 + struct.pack(">i", 42)
    assert sticky_claim(member("T", held, 42)) == Claim(tuple(held), 42)
    assert sticky_user_data(Claim()) is None
    assert sticky_claim(MemberSubscription(frozenset("T"), user_data=VERSION_0)) == Claim(tuple(held), -1)


@pytest.mark.parametrize("data", [None, b"", b"\0", VERSION_0[:-1], b"\x7f\xff\xff\xff", b"\0\0\0\1\0\1\xff\0\0\0\0"])
def test_user_data_that_cannot_be_read_is_no_claim(data: bytes | None) -> None:
    assert sticky_claim(MemberSubscription(frozenset("T"), user_data=data)) == Claim((), -1)


def test_a_cooperative_member_says_its_generation_in_the_subscription_or_before_kip_792_in_user_data() -> None:
    held = tuple(partitions("T0"))
    subscription = MemberSubscription(frozenset("T"), held, 7, struct.pack(">i", 6))
    assert cooperative_claim(subscription) == Claim(held, 7)
    assert cooperative_claim(MemberSubscription(frozenset("T"), held, -1, struct.pack(">i", 6))) == Claim(held, 6)
    assert cooperative_claim(MemberSubscription(frozenset("T"), held, -1, b"\0")) == Claim(held, -1)
    assert cooperative_claim(MemberSubscription(frozenset("T"), held)) == Claim(held, -1)


# Size


@pytest.mark.parametrize("alike", [True, False])
def test_a_thousand_partitions_and_a_hundred_members_take_less_than_a_second(alike: bool) -> None:
    counts = {f"topic-{i}": 50 for i in range(20)}
    random = Random(1)
    topics = {f"m{i:02}": list(counts) if alike else random.sample(sorted(counts), 3) for i in range(100)}
    before = time.process_time()
    fresh = assign_sticky(counts, {name: member(topics[name]) for name in topics})
    stayed = list(topics)[:-10]
    assign_sticky(counts, {name: member(topics[name], fresh[name]) for name in stayed})
    assign_cooperative_sticky(counts, {name: member(topics[name], fresh.get(name, ())) for name in topics})
    assert time.process_time() - before < 1


class CountedTopics(frozenset[str]):
    """Topics that count how often anything looks for one among them."""

    asked = 0

    def __contains__(self, topic: object) -> bool:
        CountedTopics.asked += 1
        return super().__contains__(topic)


def test_members_that_do_not_read_a_topic_are_not_searched_for_each_of_its_partitions() -> None:
    some, many = CountedTopics(["some"]), CountedTopics(["many"])
    members = {f"m{i:03}": MemberSubscription(many if i % 2 else some) for i in range(200)}
    members["both"] = MemberSubscription(CountedTopics(["some", "many"]))
    CountedTopics.asked = 0
    assignment = assign_sticky({"some": 10, "many": 1000}, members)
    assert Counter(map(len, assignment.values())) == {10: 91, 9: 10, 1: 10, 0: 90}
    assert CountedTopics.asked < 7 * 1010
