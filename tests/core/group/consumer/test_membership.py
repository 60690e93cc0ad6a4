"""The machine of the consumer protocol, story by story. Names in brackets are those of Java's states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from aiokc.core.group.consumer.events import (
    InstanceUnreleased,
    Interests,
    JoinDeclined,
    LeaveByHeartbeat,
    MemberAlive,
    MemberHeartbeat,
    TopicsNamed,
)
from aiokc.core.group.consumer.transitions import State
from aiokc.core.group.events import (
    Assign,
    Complain,
    CoordinatorLost,
    Effect,
    Enforced,
    Event,
    Fail,
    Fatal,
    ForgetCoordinator,
    IdentityLost,
    Leave,
    Left,
    Lost,
    MemberToken,
    NotNow,
    Polled,
    RevocationDone,
    Revoke,
    Subscribed,
    Tick,
    Unpolled,
)
from aiokc.core.group.loop_watch import Beat, NextStep, SayGoodbye, Seen, next_step
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    BrokerError,
    CommitFailed,
    ConnectionFailed,
    MemberFenced,
    UnsupportedVersion,
    broker_error,
)
from aiokc.types import TopicPartition

from .consumer_member import BACKOFF, ID, INTERVAL, MAX_POLL, NEW_ID, OTHER_ID, T0, T1, T2, TOPICS, Member, ids, only

GONE = ConnectionFailed("broker 1: gone")
STRANGE = UUID(int=77)


def kinds(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


# Joining


def test_a_join_says_everything_and_owns_nothing() -> None:
    member = Member()
    sent = only(MemberHeartbeat, member.feed(Subscribed(TOPICS)))
    assert sent.joins
    assert sent.contents.is_full
    assert sent.contents.interests is not None
    assert sent.contents.interests.names == TOPICS
    assert sent.contents.owned == frozenset()
    assert member.machine.is_rebalancing
    with pytest.raises(CommitFailed, match="it has not joined its group yet"):
        member.machine.commit_token()


def test_the_first_answer_assigns_and_is_acknowledged_at_once() -> None:
    member = Member()
    member.feed(Subscribed(TOPICS))
    effects = member.answer(2, ids(0, 1))
    assign = only(Assign, effects)
    assert assign.partitions == assign.added == (T0, T1)
    assert assign.member.generation_id == 2
    assert only(MemberHeartbeat, effects).contents.owned == ids(0, 1)
    assert kinds(effects) == ["Assign", "MemberHeartbeat"]
    assert member.machine.commit_token().generation_id == 2


def test_an_empty_first_assignment_is_an_assignment() -> None:
    """Since Kafka 4.3 a second member gets its part only by the next computed target (KIP-1263)."""
    member = Member()
    member.feed(Subscribed(TOPICS))
    assert only(Assign, member.answer(2, ())).partitions == ()
    assert not member.machine.is_settling
    member.wait(INTERVAL)
    assert only(Assign, member.answer(3, ids(1))).added == (T1,)


def test_a_first_answer_without_an_assignment_is_asked_for_it() -> None:
    member = Member()
    member.feed(Subscribed(TOPICS))
    sent = only(MemberHeartbeat, member.answer(2))
    assert sent.contents.is_full
    assert only(Assign, member.answer(2, ids(0))).added == (T0,)


def test_the_next_heartbeats_say_nothing_and_keep_the_coordinators_pace() -> None:
    member = Member().stable(0)
    count = len(member.sent)
    member.wait(INTERVAL - 0.1)
    assert len(member.sent) == count
    sent = only(MemberHeartbeat, member.wait(0.2))
    assert (sent.contents.interests, sent.contents.owned) == (None, None)
    assert not sent.contents.is_full
    member.answer(2, interval=1.0)
    assert len(member.wait(1.0)) == 1


def test_a_member_that_has_joined_asks_four_times_an_interval_what_others_give_up_for_it() -> None:
    member = Member()
    member.feed(Subscribed(TOPICS))
    member.answer(2, ids())
    member.settled(2)
    joined = member.now
    asked: list[float] = []
    while member.now < joined + 3 * INTERVAL:
        if member.wait(0.25):
            asked.append(member.now - joined)
            member.settled(2)
    assert asked == [1.25, 2.5, 3.75, 5.0, 6.25, 11.25]


def test_a_coordinator_that_answers_late_is_not_asked_again_at_once() -> None:
    member = Member()
    member.feed(Subscribed(TOPICS))
    member.answer(2, ids())
    member.settled(2)
    member.wait(3.0)
    assert member.answer(2) == []
    assert member.wait(INTERVAL / 4 - 0.1) == []
    assert kinds(member.wait(0.1)) == ["MemberHeartbeat"]


def test_an_answer_without_an_interval_keeps_the_last_one() -> None:
    member = Member().stable(0)
    member.wait(INTERVAL)
    member.answer(2, interval=None)
    assert member.wait(INTERVAL - 0.1) == []
    assert kinds(member.wait(0.1)) == ["MemberHeartbeat"]


def test_a_join_without_an_answer_is_repeated_whole() -> None:
    member = Member()
    member.feed(Subscribed(TOPICS))
    effects = member.feed(NotNow(member.beat, GONE))
    assert kinds(effects) == ["Complain"]
    assert member.wait(BACKOFF - 0.01) == []
    sent = only(MemberHeartbeat, member.wait(0.02))
    assert sent.joins
    assert sent.contents.is_full


def test_an_answer_to_an_older_heartbeat_changes_nothing() -> None:
    """KAFKA-19335: a late answer that carried -1 made the next join carry -1."""
    member = Member()
    member.feed(Subscribed(TOPICS))
    old = member.beat
    member.feed(NotNow(old, None))
    member.wait(BACKOFF)
    assert member.answer(7, ids(0), sent=old) == []
    assert member.machine.state is State.JOINING


@pytest.mark.parametrize("epoch", [0, -1, -2, 1])
def test_an_epoch_that_goes_back_is_no_epoch(epoch: int) -> None:
    member = Member().stable(0)
    member.wait(INTERVAL)
    assert kinds(member.answer(epoch, ids(1))) == ["Complain"]
    assert member.machine.member.generation_id == 2
    assert only(MemberHeartbeat, member.wait(BACKOFF)).contents.is_full


# Reconciling


def test_what_goes_is_given_up_before_anything_is_said_or_taken() -> None:
    member = Member().stable(0, 1)
    member.wait(INTERVAL)
    effects = member.answer(2, ids(0, 2))
    assert only(Revoke, effects).partitions == (T1,)
    assert kinds(effects) == ["Revoke"]
    held_meanwhile = member.wait(INTERVAL)
    assert [one.contents.owned for one in held_meanwhile if isinstance(one, MemberHeartbeat)] == [None]
    member.answer(2)
    effects = member.revoked(effects)
    assert kinds(effects) == ["Assign", "MemberHeartbeat"]
    assert only(Assign, effects).partitions == (T0, T2)
    assert only(Assign, effects).added == (T2,)
    assert member.beat.contents.owned == ids(0, 2)


def test_a_full_heartbeat_during_a_revocation_still_lists_what_goes() -> None:
    member = Member().stable(0, 1)
    member.wait(INTERVAL)
    member.answer(2, ids(0))
    member.wait(INTERVAL)
    member.feed(NotNow(member.beat, GONE))
    assert only(MemberHeartbeat, member.wait(1.0)).contents.owned == ids(0, 1)


def test_a_newer_target_waits_for_the_revocation_under_way() -> None:
    member = Member().stable(0, 1)
    member.wait(INTERVAL)
    revoke = only(Revoke, member.answer(2, ids(0)))
    member.wait(INTERVAL)
    assert member.answer(3, ids()) == []
    assert only(Revoke, member.feed(RevocationDone(revoke.step))).partitions == (T0,)


def test_a_target_that_takes_nothing_away_any_more_gives_it_back() -> None:
    member = Member().stable(0, 1)
    member.wait(INTERVAL)
    revoke = only(Revoke, member.answer(2, ids(0)))
    member.wait(INTERVAL)
    member.answer(3, ids(0, 1))
    assert only(Assign, member.feed(RevocationDone(revoke.step))).added == (T1,)


def test_null_is_no_news_and_an_empty_list_takes_everything() -> None:
    member = Member().stable(0, 1)
    member.wait(INTERVAL)
    assert member.answer(3) == []
    member.wait(INTERVAL)
    assert only(Revoke, member.answer(3, ())).partitions == (T0, T1)


def test_the_same_set_again_reconciles_nothing() -> None:
    """KAFKA-15890: full answers repeat the assignment."""
    member = Member().stable(0, 1)
    member.wait(INTERVAL)
    assert member.answer(2, ids(0, 1)) == []


def test_an_id_without_a_name_is_taken_when_it_has_one_and_takes_nothing_away() -> None:
    """KAFKA-16198: the resolution of a topic revoked all others."""
    member = Member().stable(0)
    member.wait(INTERVAL)
    assert member.answer(3, ids(0) | ids(5, topic_id=OTHER_ID), names={ID: "t"}) == []
    assert member.machine.unnamed_topics == {OTHER_ID}
    assert member.feed(TopicsNamed({})) == []
    effects = member.feed(TopicsNamed({OTHER_ID: "u"}))
    assert only(Assign, effects).partitions[0] == T0
    assert [tp.topic for tp in only(Assign, effects).added] == ["u"]


def test_a_recreated_topic_goes_by_its_old_id_and_comes_by_its_new_one() -> None:
    member = Member().stable(0)
    member.wait(INTERVAL)
    effects = member.answer(3, ids(0, topic_id=NEW_ID))
    assert only(Revoke, effects).partitions == (T0,)
    assign = only(Assign, member.revoked(effects))
    assert (assign.added, assign.topic_ids) == ((T0,), {T0: NEW_ID})
    assert member.beat.contents.owned == ids(0, topic_id=NEW_ID)


def test_a_member_asks_every_second_while_it_holds_a_topic_that_was_recreated() -> None:
    member = Member().stable(0)
    assert member.feed(TopicsNamed({}, frozenset({OTHER_ID}))) == [], "it holds nothing of that"
    assert [type(effect) for effect in member.feed(TopicsNamed({}, frozenset({ID})))] == [MemberHeartbeat]
    for _ in range(3):  # the coordinator has not heard of it yet
        assert member.answer(2) == []
        assert member.feed(TopicsNamed({}, frozenset({ID}))) == [], "which is nothing new"
        assert member.wait(0.9) == []
        assert len(member.wait(0.1)) == 1
    effects = member.answer(3, ids(0, topic_id=NEW_ID))
    assert member.wait(INTERVAL - 0.1) == [], "it knows what it is waiting for: the application"
    member.revoked(effects)
    member.settled(3)
    assert member.wait(INTERVAL - 0.1) == []


def test_topics_that_the_member_never_subscribed_to_are_told() -> None:
    member = Member().stable(0)
    member.wait(INTERVAL)
    effects = member.answer(3, ids(0) | ids(0, topic_id=OTHER_ID))
    assert "does not subscribe" in str(only(Complain, effects).error)


# Patterns that the coordinator matches


def test_a_join_and_a_change_say_names_and_pattern_always() -> None:
    """Epoch 0 of a known member only updates: what it leaves out would stay in force."""
    member = Member()
    member.feed(Subscribed(frozenset(), "t.*"))
    assert member.beat.joins
    assert member.beat.contents.interests == Interests(frozenset(), "t.*")
    assert kinds(member.answer(2, ids(0))) == ["Assign", "MemberHeartbeat"], "topics of a pattern are not foreign"
    member.settled(2)
    member.feed(Subscribed(TOPICS))
    assert member.beat.contents.interests == Interests(TOPICS, "")


def test_an_answer_about_the_former_pattern_gives_nothing_and_is_asked_for_again() -> None:
    member = Member()
    member.feed(Subscribed(frozenset(), "t.*"))
    member.answer(2, ids(0))
    member.settled(2)
    member.wait(INTERVAL)
    member.feed(Subscribed(frozenset(), "u.*"))
    effects = member.answer(3, ids(0, 1))
    assert kinds(effects) == ["MemberHeartbeat"]
    assert member.beat.contents.is_full
    assert member.beat.contents.interests == Interests(frozenset(), "u.*")
    assert only(Revoke, member.answer(3, ids(0, topic_id=OTHER_ID))).partitions == (T0,)


def test_what_the_former_pattern_still_had_to_give_is_not_taken() -> None:
    member = Member()
    member.feed(Subscribed(frozenset(), "t.*"))
    member.answer(2, ids(0, 1))
    member.settled(2)
    member.wait(INTERVAL)
    revoke = only(Revoke, member.answer(3, ids(0, 2)))
    member.feed(Subscribed(frozenset(), "u.*"))
    assert only(Assign, member.feed(RevocationDone(revoke.step))).partitions == (T0,)


def test_another_pattern_after_unsubscribe_begins_with_nothing() -> None:
    member = Member()
    member.feed(Subscribed(frozenset(), "t.*"))
    member.answer(2, ids(0))
    member.settled(2)
    effects = member.feed(Subscribed(frozenset()))
    member.feed(Subscribed(frozenset(), "u.*"))
    assert only(Assign, member.revoked(effects)).partitions == ()
    assert only(MemberHeartbeat, member.answer(2)).contents.is_full
    assert only(Assign, member.answer(3, ids(0, topic_id=OTHER_ID))).added == (TopicPartition("u", 0),)


def test_a_member_that_leaves_does_not_say_that_it_subscribes_to_nothing() -> None:
    """It may subscribe again before it has left, and then has its partitions still."""
    member = Member().stable(0)
    effects = member.feed(Subscribed(frozenset()))
    assert kinds(effects) == ["Revoke"]
    assert [one.contents.interests for one in member.wait(INTERVAL) if isinstance(one, MemberHeartbeat)] == [None]


# What is told, after a failure


def test_only_what_was_answered_counts_as_told() -> None:
    member = Member().stable(0)
    member.feed(Subscribed(frozenset({"t", "u"})))
    assert member.beat.contents.interests is not None
    assert member.beat.contents.owned is None
    member.feed(NotNow(member.beat, None))
    sent = only(MemberHeartbeat, member.wait(1.0))
    assert sent.contents.interests is not None
    assert sent.contents.owned == ids(0)


def test_a_subscription_that_changes_while_a_heartbeat_is_under_way_follows_it() -> None:
    member = Member().stable(0)
    member.wait(INTERVAL)
    assert member.feed(Subscribed(frozenset({"u"}))) == []
    sent = only(MemberHeartbeat, member.answer(2))
    assert sent.contents.interests is not None
    assert sent.contents.interests.names == frozenset({"u"})


def test_a_rebalance_cannot_be_enforced_only_asked_about() -> None:
    member = Member().stable(0)
    assert kinds(member.feed(Enforced("why not"))) == ["MemberHeartbeat"]
    assert member.feed(Enforced("again")) == []
    assert kinds(member.answer(2)) == ["MemberHeartbeat"], "the first one may have been answered without the news"
    assert member.answer(2) == []


def test_another_coordinator_changes_nothing_of_the_membership() -> None:
    member = Member().stable(0)
    member.wait(INTERVAL)
    error = broker_error(ErrorCode.NOT_COORDINATOR, "group 'g'")
    assert kinds(member.feed(CoordinatorLost(member.beat, 1, error))) == ["ForgetCoordinator", "Complain"]
    assert member.machine.member.generation_id == 2
    assert only(MemberHeartbeat, member.wait(1.0)).contents.owned == ids(0)


# Losing


def test_a_fenced_member_drops_everything_before_it_joins_again() -> None:
    member = Member().stable(0, 1)
    member.wait(INTERVAL)
    effects = member.feed(IdentityLost(member.beat, "fenced", keep_member_id=True))
    lost = only(Lost, effects)
    assert lost.partitions == (T0, T1)
    assert member.wait(100.0) == [], "no heartbeat before the listener has heard of it"
    sent = only(MemberHeartbeat, member.feed(RevocationDone(lost.step)))
    assert sent.joins
    assert sent.contents.owned == frozenset()


def test_fenced_with_a_topic_that_no_broker_could_name() -> None:
    """The coordinator refuses a join that lists partitions, those of the topic without a name, too."""
    member = Member().stable(0)
    member.wait(INTERVAL)
    member.answer(3, ids(0) | ids(0, topic_id=STRANGE))
    member.settled(3)
    member.wait(INTERVAL)
    lost = only(Lost, member.feed(IdentityLost(member.beat, "fenced", keep_member_id=True)))
    assert lost.partitions == (T0,)
    sent = only(MemberHeartbeat, member.feed(RevocationDone(lost.step)))
    assert sent.joins
    assert sent.contents.owned == frozenset()
    assert member.machine.unnamed_topics == frozenset()


def test_fenced_during_a_revocation() -> None:
    member = Member().stable(0, 1)
    member.wait(INTERVAL)
    revoke = only(Revoke, member.answer(2, ids(0)))
    member.wait(INTERVAL)
    lost = only(Lost, member.feed(IdentityLost(member.beat, "fenced")))
    assert lost.partitions == (T0, T1)
    assert member.feed(RevocationDone(revoke.step)) == [], "the result of what was overtaken"
    assert kinds(member.feed(RevocationDone(lost.step))) == ["MemberHeartbeat"]


def test_a_join_that_is_fenced_waits_and_tries_again() -> None:
    """Brokers without KAFKA-19233 fence a known member that joins, until its session ends."""
    member = Member()
    member.feed(Subscribed(TOPICS))
    error = BrokerError(ErrorCode.FENCED_MEMBER_EPOCH)
    assert member.feed(IdentityLost(member.beat, "fenced", error=error)) == [Complain(error, member.beat)]
    assert member.wait(BACKOFF / 2) == []
    assert kinds(member.wait(BACKOFF)) == ["MemberHeartbeat"]


def stop_polling(member: Member) -> list[Effect]:
    member.polls.waiting = False
    member.polls.last = member.now
    effects: list[Effect] = []
    while not effects or not isinstance(effects[-1], Lost):
        member.now = member.machine.deadline
        effects = member.feed(Tick())
        if member.machine._heartbeats.unanswered is not None:
            member.answer(2)
    assert member.now == pytest.approx(member.polls.last + MAX_POLL)
    assert member.machine.needs_poll
    return effects


def test_an_application_that_does_not_poll_leaves_and_comes_back_by_its_next_poll() -> None:
    member = Member().stable(0)
    effects = stop_polling(member)
    leave, lost = only(LeaveByHeartbeat, effects), only(Lost, effects)
    assert leave.member.generation_id == -1
    assert member.feed(RevocationDone(lost.step)) == []
    assert member.machine.state is State.UNSUBSCRIBED
    assert only(MemberHeartbeat, member.feed(Polled())).joins


def test_an_application_whose_pattern_matches_nothing_has_to_poll_while_its_revocation_waits_for_that() -> None:
    member = Member().stable(0)
    revoke = only(Revoke, member.feed(Subscribed(frozenset(), matched=True)))
    assert revoke.wait
    effects = stop_polling(member)
    leave, lost = only(LeaveByHeartbeat, effects), only(Lost, effects)
    assert leave.member.generation_id == -1
    assert member.feed(RevocationDone(revoke.step)) == []
    assert member.feed(RevocationDone(lost.step)) == []
    assert member.feed(Subscribed(TOPICS, matched=True)) == [], "it does not poll yet"
    assert only(MemberHeartbeat, member.feed(Polled())).joins


def test_a_member_that_has_unsubscribed_need_not_be_polled_while_its_listener_is_told() -> None:
    member = Member().stable(0)
    member.polls.waiting = False
    revoke = only(Revoke, member.feed(Subscribed(frozenset())))
    while member.now < member.polls.last + 2 * MAX_POLL:
        member.now = member.machine.deadline
        member.feed(Tick())
        member.answer(2)
    only(LeaveByHeartbeat, member.feed(RevocationDone(revoke.step)))


@pytest.mark.parametrize("goes", [Leave(), Subscribed(frozenset())], ids=["leave", "unsubscribe"])
def test_the_thread_does_not_leave_for_a_member_during_its_last_revocation(goes: Event) -> None:
    """Its listener, which blocks the loop, has max_poll_interval from the beginning of that revocation."""
    member = Member().stable(0)
    member.polls.waiting = False
    member.now = member.polls.last + MAX_POLL - 1.0
    only(Revoke, member.feed(goes))
    assert spoken(member, member.now + MAX_POLL - 1.0) == Beat()
    assert spoken(member, member.now + MAX_POLL) == SayGoodbye()
    member.now += 1.0
    member.feed(goes)
    assert spoken(member, member.now + MAX_POLL - 1.0) == SayGoodbye(), "called twice, it has no more time"


def spoken(member: Member, now: float) -> NextStep:
    """What the thread does at ``now``, where the loop has given no sign of life since it was asked for one."""
    plan = member.machine.plan
    assert plan is not None
    return next_step(plan, Seen(loop_alive=0.0, asked=1.0), member.polls.last, now)


def test_a_member_that_subscribes_again_during_its_last_revocation_has_to_be_polled_from_then_on() -> None:
    member = Member().stable(0)
    member.polls.waiting = False
    revoke = only(Revoke, member.feed(Subscribed(frozenset())))
    member.now += MAX_POLL + 1.0
    since = member.now
    assert {*kinds(member.feed(Subscribed(frozenset({"u"})))), *kinds(member.feed(Tick()))} <= {"MemberHeartbeat"}
    member.feed(RevocationDone(revoke.step))
    while member.now < since + MAX_POLL:
        assert member.machine.state is State.STABLE
        member.answer(2)
        member.now = member.machine.deadline
        member.feed(Tick())
    assert (member.now, member.machine.state) == (since + MAX_POLL, State.FENCED)


@pytest.mark.parametrize(
    ("instance_id", "leave_group", "epoch"),
    [(None, None, -1), (None, True, -1), (None, False, None), ("i", None, -2), ("i", True, -1), ("i", False, -2)],
)
def test_how_a_closing_member_leaves(instance_id: str | None, leave_group: bool | None, epoch: int | None) -> None:
    """KIP-1092: a dynamic member stays by saying nothing; a static one parks its partitions, or leaves for good."""
    member = Member(instance_id).stable(0)
    effects = member.feed(Leave(leave_group))
    assert only(Revoke, effects).wait is False
    effects = member.revoked(effects)
    if epoch is None:
        assert effects == []
    else:
        leave = only(LeaveByHeartbeat, effects)
        assert leave.member.generation_id == epoch
        assert not member.machine.has_left
        member.feed(Left(leave.step))
    assert member.machine.has_left


def unpolled(member: Member) -> None:
    member.feed(RevocationDone(only(Lost, stop_polling(member)).step))


def refused(member: Member) -> None:
    member.wait(INTERVAL)
    effects = member.feed(Fatal(member.beat, broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    member.feed(RevocationDone(only(Lost, effects).step))


def unpolled_and_back(member: Member) -> None:
    unpolled(member)
    member.feed(Polled())


def unsubscribed(member: Member) -> None:
    member.revoked(member.feed(Subscribed(frozenset())))


@pytest.mark.parametrize(
    ("goes", "leave_group", "leaves_group"),
    [
        (unpolled, True, True),
        (unpolled, None, False),
        (unpolled_and_back, True, True),
        (refused, True, True),
        (unsubscribed, True, False),
    ],
)
def test_a_static_member_that_has_parked_its_partitions_can_still_leave_its_group(
    goes: Callable[[Member], None], leave_group: bool | None, leaves_group: bool
) -> None:
    member = Member("i").stable(0)
    goes(member)
    effects = member.feed(Leave(leave_group))
    if leaves_group:
        leave = only(LeaveByHeartbeat, effects)
        assert leave.member == MemberToken(-1, "m", "i")
        assert not member.machine.has_left
        assert member.feed(Left(leave.step)) == []
    else:
        assert effects == []
    assert member.machine.has_left


def test_a_member_that_never_asked_to_join_says_nothing_when_it_closes() -> None:
    member = Member()
    assert member.feed(Leave()) == []
    assert member.machine.has_left


def test_a_member_whose_join_is_not_answered_says_goodbye() -> None:
    member = Member()
    member.feed(Subscribed(TOPICS))
    assert only(LeaveByHeartbeat, member.feed(Leave())).member.generation_id == -1


def test_unsubscribe_leaves_after_the_revocation_and_subscribe_meanwhile_stays() -> None:
    member = Member().stable(0)
    effects = member.feed(Subscribed(frozenset()))
    assert kinds(effects) == ["Revoke"], "no heartbeat says that it subscribes to nothing"
    member.feed(Subscribed(TOPICS))
    effects = member.revoked(effects)
    assert only(Assign, effects).added == (T0,), "the coordinator still counts on this member"
    effects = member.feed(Subscribed(frozenset()))
    assert only(LeaveByHeartbeat, member.revoked(effects)).member.generation_id == -1
    assert member.machine.state is State.UNSUBSCRIBED


def test_fenced_while_it_unsubscribes_it_sends_no_leave() -> None:
    member = Member().stable(0)
    member.wait(INTERVAL)
    member.feed(Subscribed(frozenset()))
    lost = only(Lost, member.feed(IdentityLost(member.beat, "fenced")))
    assert member.feed(RevocationDone(lost.step)) == []
    assert member.machine.state is State.UNSUBSCRIBED


# Refusals that end the membership


def test_a_refusal_is_raised_once_and_tried_again_by_a_poll() -> None:
    member = Member()
    member.feed(Subscribed(TOPICS))
    error = broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group 'g'")
    effects = member.feed(Fatal(member.beat, error))
    assert only(Fail, effects).error is error
    assert member.machine.has_failed
    assert member.wait(1_000) == []
    assert only(MemberHeartbeat, member.feed(Polled())).joins


def test_a_member_that_is_refused_again_and_again_asks_more_and_more_seldom() -> None:
    member = Member()
    member.feed(Subscribed(TOPICS))
    error = broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group 'g'")
    waits = []
    for _ in range(8):
        member.feed(Fatal(member.beat, error))
        assert member.feed(Polled()) == []
        waits.append(member.machine.deadline - member.now)
        assert only(MemberHeartbeat, member.wait(waits[-1])).joins
    assert waits == sorted(waits)
    assert waits[-1] > 5 * waits[0]
    member.feed(Fatal(member.beat, error))
    member.feed(Subscribed(frozenset()))
    assert only(MemberHeartbeat, member.feed(Subscribed(TOPICS))).joins, "another subscription is another attempt"


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.FENCED_INSTANCE_ID])
@pytest.mark.parametrize("is_told", [True, False])
def test_after_a_failure_behind_unsubscribe_the_next_subscription_is_another_attempt(
    code: ErrorCode, is_told: bool
) -> None:
    """The application has heard nothing of it: no poll would follow."""
    member = Member().stable(0)
    member.wait(INTERVAL)
    member.feed(Subscribed(frozenset()))
    lost = only(Lost, member.feed(Fatal(member.beat, broker_error(code, "group 'g'"))))
    if is_told:
        member.feed(RevocationDone(lost.step))
    member.feed(Subscribed(TOPICS))
    if not is_told:
        member.feed(RevocationDone(lost.step))
    member.wait(MAX_POLL / 2)
    assert member.beat.joins


def test_leaving_waits_for_no_application_that_a_revocation_waits_for() -> None:
    """A pattern that matches nothing any more has nothing subscribed, as after unsubscribe(), and holds records."""
    member = Member().stable(0)
    waiting = only(Revoke, member.feed(Subscribed(frozenset())))
    assert waiting.wait
    leaving = only(Revoke, member.feed(Leave()))
    assert not leaving.wait
    assert member.feed(RevocationDone(waiting.step)) == []
    assert member.feed(Leave()) == []
    only(LeaveByHeartbeat, member.feed(RevocationDone(leaving.step)))


def test_a_fenced_instance_is_never_joined_again_by_itself() -> None:
    """Two consumers of one instance would throw each other out for ever."""
    member = Member("i").stable(0)
    member.wait(INTERVAL)
    effects = member.feed(Fatal(member.beat, MemberFenced(ErrorCode.FENCED_INSTANCE_ID, "group 'g'")))
    assert only(Lost, effects).partitions == (T0,)
    assert member.feed(Polled()) == []


def test_a_declined_join_of_a_member_that_has_no_other_protocol_is_a_refusal() -> None:
    member = Member()
    member.feed(Subscribed(TOPICS))
    assert kinds(member.feed(JoinDeclined(member.beat, UnsupportedVersion("off")))) == ["Fail"]


# Static members


def unreleased(member: Member) -> list[Effect]:
    return member.feed(InstanceUnreleased(member.beat, BrokerError(ErrorCode.UNRELEASED_INSTANCE_ID, "in use")))


def test_an_instance_in_use_is_refused_where_no_join_of_this_member_is_in_doubt() -> None:
    member = Member("i")
    member.feed(Subscribed(TOPICS))
    assert kinds(unreleased(member)) == ["Fail"]


def test_a_static_member_whose_join_may_have_been_taken_leaves_first_and_joins_again() -> None:
    """The lost answer would lock it out for a whole session: a static member can't join under its own id twice."""
    member = Member("i")
    member.feed(Subscribed(TOPICS))
    member.feed(NotNow(member.beat, GONE))
    member.wait(BACKOFF)
    leave = only(LeaveByHeartbeat, unreleased(member))
    assert leave.member.generation_id == -2
    assert member.wait(100.0) == [], "it waits for the answer"
    assert only(MemberHeartbeat, member.feed(Left(leave.step))).joins
    assert kinds(unreleased(member)) == ["Fail"], "then it is another consumer"


def test_a_static_member_whose_goodbye_may_be_lost_leaves_once_more_and_joins_again() -> None:
    member = Member("i").stable(0)
    member.feed(RevocationDone(only(Revoke, member.feed(Subscribed(frozenset()))).step))
    member.feed(Subscribed(TOPICS))
    again = only(LeaveByHeartbeat, unreleased(member))
    assert again.member == MemberToken(-2, "m", "i")
    assert only(MemberHeartbeat, member.feed(Left(again.step))).joins
    assert kinds(unreleased(member)) == ["Fail"], "then it is another consumer"


def test_a_static_member_leaves_under_every_id_that_the_coordinator_may_know_it_by() -> None:
    """The thread's goodbye for its former id may still be under way, and the answer to its join under the new one."""
    member = Member("i").stable(0)
    lost = only(Lost, member.feed(Unpolled(member.machine.member)))
    member.feed(RevocationDone(lost.step))
    member.feed(Polled())
    member.feed(NotNow(member.beat, GONE))
    member.wait(BACKOFF)
    for member_id in ("m2", "m"):
        leave = only(LeaveByHeartbeat, unreleased(member))
        assert leave.member == MemberToken(-2, member_id, "i")
        assert only(MemberHeartbeat, member.feed(Left(leave.step))).member.member_id == "m2"
    assert kinds(unreleased(member)) == ["Fail"]


def test_a_goodbye_that_the_coordinator_may_not_have_heard_is_said_again_after_a_pause() -> None:
    member = Member("i").stable(0)
    lost = only(Lost, member.feed(Unpolled(member.machine.member)))
    member.feed(RevocationDone(lost.step))
    member.feed(Polled())
    leave = only(LeaveByHeartbeat, unreleased(member))
    assert member.feed(Left(leave.step, is_taken=False)) == []
    assert only(MemberHeartbeat, member.wait(BACKOFF)).joins
    again = only(LeaveByHeartbeat, unreleased(member))
    assert again.member == leave.member
    assert only(MemberHeartbeat, member.feed(Left(again.step))).joins
    assert kinds(unreleased(member)) == ["Fail"]


# The watchdog


def test_the_thread_says_everything_and_its_answers_count() -> None:
    member = Member().stable(0)
    plan = member.machine.plan
    assert plan is not None
    assert isinstance(plan.heartbeat, MemberHeartbeat)
    assert plan.heartbeat.contents.is_full
    assert plan.heartbeat.contents.owned == ids(0)
    member.wait(INTERVAL)
    late = member.beat
    effects = member.answer(3, ids(0, 1), sent=plan.heartbeat)
    assert only(Assign, effects).added == (T1,)
    second = replace(plan.heartbeat, member=replace(plan.member, generation_id=3))
    assert member.answer(4, ids(0, 1), sent=second) == []
    assert kinds(member.wait(0.0)) == ["MemberHeartbeat"], "one for all of them"
    assert member.beat.contents.owned == ids(0, 1), "which the thread could not know of"
    assert member.answer(2, ids(0), sent=late) == [], "the answer to what the loop had sent before is stale by now"
    assert member.machine.member.generation_id == 4


def test_the_thread_has_left_for_an_application_that_did_not_poll() -> None:
    member = Member().stable(0)
    effects = member.feed(Unpolled(member.machine.member))
    assert kinds(effects)[-1] == "Lost"
    assert member.machine.plan is None
    member.feed(RevocationDone(only(Lost, effects).step))
    assert only(MemberHeartbeat, member.feed(Polled())).member.member_id == "m2", "the goodbye may still be under way"


def test_no_plan_before_the_member_has_an_epoch() -> None:
    member = Member()
    member.feed(Subscribed(TOPICS))
    assert member.machine.plan is None


def test_forget_coordinator_is_an_effect_of_a_moved_coordinator_only() -> None:
    member = Member().stable(0)
    member.wait(INTERVAL)
    assert not [one for one in member.feed(NotNow(member.beat, GONE)) if isinstance(one, ForgetCoordinator)]


def test_alive_answers_name_their_heartbeat() -> None:
    member = Member()
    member.feed(Subscribed(TOPICS))
    foreign = replace(member.beat, number=99)
    assert member.feed(MemberAlive(sent=foreign, epoch=3, interval=1.0, assignment=ids(0))) == []


def test_what_is_taken_away_before_it_had_a_name_is_acknowledged() -> None:
    """Else the coordinator waits for that until the rebalance timeout ends, and then fences the member."""
    member = Member().stable(0)
    member.wait(INTERVAL)
    member.answer(3, ids(0) | ids(0, topic_id=STRANGE))
    assert member.machine.unnamed_topics == {STRANGE}
    member.settled(3)
    member.wait(INTERVAL)
    assert only(MemberHeartbeat, member.answer(3, ids(0))).contents.owned == ids(0)


def test_a_member_that_comes_back_to_its_pattern_asks_what_it_was_given() -> None:
    """The coordinator sees no change in between, and says an assignment once."""
    member = Member()
    member.feed(Subscribed(frozenset(), "e.*"))
    member.answer(2, ids(0) | ids(0, topic_id=STRANGE))
    member.settled(2)
    member.wait(INTERVAL)
    member.answer(2)
    member.feed(Subscribed(frozenset()))
    member.feed(Subscribed(frozenset(), "e.*"))
    member.wait(INTERVAL)
    assert any(sent.contents.is_full for sent in member.sent[-2:])


def test_a_member_that_subscribes_to_others_settles_until_the_coordinator_has_no_more_to_give_for_that() -> None:
    member = Member().stable(0)
    settling = [member.machine.is_settling]
    member.feed(Subscribed(frozenset({"other"})))
    settling.append(member.machine.is_settling)  # what it holds is of the former subscription
    effects = member.answer(2, ())
    assert only(Assign, member.revoked(effects)).added == ()
    settling.append(member.machine.is_settling)  # the coordinator does not know yet that it has given up anything
    member.answer(2)
    assert [*settling, member.machine.is_settling] == [False, True, True, False]
