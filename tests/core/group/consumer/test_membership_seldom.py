"""The machine of the consumer protocol in rare moments: slow answers, words of a former membership, two ids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiokc.core.group.auto import AutoMachine
from aiokc.core.group.consumer.events import JoinDeclined, MemberHeartbeat
from aiokc.core.group.events import (
    Assign,
    Complain,
    CoordinatorLost,
    IdentityLost,
    IllegalTransition,
    NotNow,
    RevocationDone,
    Revoke,
    Subscribed,
    Unpolled,
)
from aiokc.errors import ConnectionFailed, UnsupportedVersion
from aiokc.types import TopicPartition

from ..classic.test_membership_rules import new_membership
from .consumer_member import ID, INTERVAL, NEW_ID, OTHER_ID, T0, TOPICS, Member, ids, only

BOTH = frozenset({"t", "u"})
U0 = TopicPartition("u", 0)


def test_the_interval_runs_from_the_heartbeat_not_from_its_answer() -> None:
    """A coordinator that takes long to answer would else see the heartbeats of its members ever more seldom."""
    member = Member().stable(0)
    member.wait(INTERVAL)
    member.now += 2.0
    assert member.answer(2) == []
    assert member.wait(INTERVAL - 2.1) == []
    only(MemberHeartbeat, member.wait(0.1))


def test_the_thread_that_left_for_a_former_membership_has_not_left_for_this_one() -> None:
    member = Member().stable(0)
    former = member.machine.member
    member.wait(INTERVAL)
    lost = member.feed(IdentityLost(member.beat, "gone", keep_member_id=True))
    assert lost
    member.feed(RevocationDone(member.machine._step))
    member.answer(5, ids(0))
    member.settled(5)
    assert member.feed(Unpolled(former)) == []
    assert member.machine.in_group
    assert member.feed(Unpolled(replace(former, generation_id=5))) != []


def test_the_failure_of_a_former_memberships_heartbeat_is_no_news_of_the_coordinator() -> None:
    """Else the coordinator that has just answered the join would be looked up anew."""
    member = Member().stable(0)
    member.wait(INTERVAL)
    former = member.beat
    member.feed(IdentityLost(former, "gone", keep_member_id=True))
    member.feed(RevocationDone(member.machine._step))
    member.answer(5, ids(0))
    assert member.feed(CoordinatorLost(former, 1, ConnectionFailed("broker 1: gone"))) == []
    assert member.feed(NotNow(former, ConnectionFailed("broker 1: gone"))) == []


def test_of_two_topic_ids_with_one_name_the_newer_one_waits_for_the_end_of_the_older_one() -> None:
    """A coordinator assigns a recreated topic before it takes away the one that was deleted."""
    member = Member().stable(0)
    member.wait(INTERVAL)
    assert not [one for one in member.answer(3, ids(0) | ids(0, topic_id=NEW_ID)) if isinstance(one, Assign)]
    assert member.machine._holdings.topic_ids == {T0: ID}
    member.settled(3)
    member.wait(INTERVAL)
    assign = only(Assign, member.revoked(member.answer(4, ids(0, topic_id=NEW_ID))))
    assert (assign.partitions, assign.topic_ids) == ((T0,), {T0: NEW_ID})


def test_a_topic_that_is_dropped_and_wanted_again_while_a_heartbeat_is_under_way_is_assigned_again() -> None:
    """The subscription has blocked what it holds of it, and the coordinator never hears that anything was dropped."""
    member = Member().stable()
    member.feed(Subscribed(BOTH))
    member.answer(3, ids(0) | ids(0, topic_id=OTHER_ID))
    member.settled(3)
    member.wait(INTERVAL)
    assert member.feed(Subscribed(TOPICS)) == []
    assign = only(Assign, member.feed(Subscribed(BOTH)))
    assert (set(assign.partitions), assign.added) == ({T0, U0}, ())
    assert member.answer(3) == []
    assert not member.machine.is_settling


def test_a_topic_that_comes_back_during_a_revocation_is_assigned_after_it() -> None:
    member = Member().stable()
    member.feed(Subscribed(BOTH))
    member.answer(3, ids(0) | ids(0, topic_id=OTHER_ID))
    member.settled(3)
    member.feed(Subscribed(TOPICS))
    effects = member.answer(4, ids(0))
    assert only(Revoke, effects).partitions == (U0,)
    assert not any(isinstance(one, Assign) for one in member.feed(Subscribed(BOTH))), "others are about to get it"
    assert only(Assign, member.revoked(effects)).partitions == (T0,)


def test_a_topic_that_was_held_without_being_wanted_is_assigned_once_it_is_wanted() -> None:
    """The coordinator counts it as this member's already, so its answers say nothing new of it."""
    member = Member().stable(0)
    member.wait(INTERVAL)
    only(Complain, member.answer(3, ids(0) | ids(0, topic_id=OTHER_ID)))
    assert set(only(Assign, member.feed(Subscribed(BOTH))).partitions) == {T0, U0}


def test_a_member_in_the_group_does_not_become_a_classic_one_with_what_it_holds() -> None:
    """No answer means that (see messages.py). If one did, that had to be heard of: others would read the same."""
    member = Member().stable(0)
    member.wait(INTERVAL)
    machine = AutoMachine(member.machine, new_membership(member.polls), lambda error: None)
    with pytest.raises(IllegalTransition):
        machine.on(JoinDeclined(member.beat, UnsupportedVersion("no API 68")), member.now)
    assert machine.declined is None


def test_a_member_that_becomes_a_classic_one_keeps_its_last_name_until_that_one_has_joined() -> None:
    """A coordinator accepts a transaction's offsets without a member's name, whatever other members read by now."""
    member = Member().stable(0)
    machine = AutoMachine(member.machine, new_membership(member.polls), lambda error: None)
    last = member.machine.member
    member.wait(INTERVAL)
    member.feed(IdentityLost(member.beat, "the feature was switched off"))
    member.feed(RevocationDone(member.machine._step))
    member.wait(INTERVAL)
    machine.on(JoinDeclined(member.beat, UnsupportedVersion("no API 68")), member.now)
    assert machine.declined is not None
    assert machine.member.generation_id == -1
    assert machine.last_member == last
    late = replace(member.beat, number=member.beat.number - 1)
    assert machine.on(JoinDeclined(late, UnsupportedVersion("no API 68")), member.now) == [], (
        "answered behind the newer"
    )
