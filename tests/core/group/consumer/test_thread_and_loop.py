"""A member for which the watchdog thread and the loop have both spoken: which answer is the newer one is not known."""

from __future__ import annotations

from aiokc.core.group.consumer.events import KEEPALIVE, MemberAlive, MemberHeartbeat, Unheard
from aiokc.core.group.consumer.keepalive import ConsumerKeepalive
from aiokc.core.group.consumer.messages import ConsumerGroup
from aiokc.core.group.events import Assign, Complain, IdentityLost, NotNow, Revoke
from aiokc.error_codes import ErrorCode
from aiokc.errors import broker_error

from .consumer_member import INTERVAL, T1, Member, ids, only

KEEPER = ConsumerKeepalive(ConsumerGroup(group_id="g", max_poll_interval_ms=300_000))


def of_the_thread(member: Member) -> MemberHeartbeat:
    plan = member.machine.plan
    assert plan is not None
    assert isinstance(plan.heartbeat, MemberHeartbeat)
    return plan.heartbeat


def under_way() -> tuple[Member, MemberHeartbeat]:
    """A member that has sent its heartbeat, and then its loop is blocked."""
    member = Member().stable(0)
    member.wait(INTERVAL)
    assert member.beat.contents == KEEPALIVE
    return member, member.beat


# Both have sent a heartbeat


def test_what_the_loops_own_answer_gave_is_asked_for_again() -> None:
    member, own = under_way()
    member.answer(2, ids(0), sent=of_the_thread(member))  # the coordinator handled this one first
    assert member.answer(2, ids(0, 1), sent=own) == [], "it may as well have been handled before"
    member.wait(0.0)
    assert member.beat.contents.is_full
    assert only(Assign, member.answer(2, ids(0, 1))).added == (T1,)


def test_one_full_heartbeat_follows_from_all_answers_of_the_thread() -> None:
    member, _ = under_way()
    before = len(member.sent)
    for _ in range(5):
        assert member.answer(2, ids(0), sent=of_the_thread(member)) == []
    member.wait(0.0)
    assert [beat.contents.is_full for beat in member.sent[before:]] == [True]
    member.answer(2, ids(0))
    member.wait(INTERVAL)
    assert [beat.contents for beat in member.sent[before + 1 :]] == [KEEPALIVE]


def test_nothing_is_asked_for_again_where_only_the_thread_has_spoken() -> None:
    member = Member().stable(0)
    member.answer(2, ids(0), sent=of_the_thread(member))
    member.wait(INTERVAL)
    assert member.beat.contents == KEEPALIVE


def test_a_heartbeat_of_the_thread_that_is_refused_for_a_topic_leaves_the_loops_own_as_it_is() -> None:
    """A full heartbeat, by which the member could ask again, would be refused as well."""
    member, own = under_way()
    full = of_the_thread(member)
    refused = NotNow(full, broker_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t"))
    only(Complain, member.feed(refused))
    empty = KEEPER.after(refused, full)
    assert isinstance(empty, MemberHeartbeat)
    assert member.answer(2, sent=empty) == []
    assert member.wait(0.0) == []
    assert only(Assign, member.answer(2, ids(0, 1), sent=own)).added == (T1,)
    member.wait(0.0)
    assert not member.beat.contents.is_full


# An answer that came when the loop had gone on, or not at all


def test_an_answer_that_was_not_heard_in_time_changes_nothing_and_is_asked_for_again() -> None:
    member, _ = under_way()
    member.answer(2, ids(0, 1))
    member.settled(2)
    before = len(member.sent)
    assert member.feed(Unheard(of_the_thread(member))) == []
    member.wait(0.0)
    assert [beat.contents.is_full for beat in member.sent[before:]] == [True]
    assert member.answer(2, ids(0, 1)) == []


def test_an_older_epochs_heartbeat_may_have_told_the_coordinator_what_is_out_of_date() -> None:
    member, own = under_way()
    late = of_the_thread(member)
    member.answer(3, ids(0), sent=own)
    member.wait(INTERVAL)
    own = member.beat
    member.feed(Unheard(late))
    member.wait(0.0)
    assert member.beat.contents.is_full
    assert member.answer(3, sent=own) == [], "this answer may be older than what the thread was told"
    assert only(Revoke, member.answer(3, ())).partitions


def test_a_heartbeat_that_was_not_heard_of_does_not_concern_another_membership() -> None:
    member, own = under_way()
    late = of_the_thread(member)
    member.feed(IdentityLost(own, "fenced", keep_member_id=True))
    assert member.feed(Unheard(late)) == []


def test_what_says_nothing_cannot_be_out_of_date() -> None:
    member = Member().stable(0)
    full = of_the_thread(member)
    refused = NotNow(full, broker_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t"))
    assert KEEPER.unheard(refused, full) is refused
    empty = KEEPER.after(refused, full)
    assert isinstance(empty, MemberHeartbeat)
    alive = MemberAlive(sent=empty, epoch=2, interval=None, assignment=None)
    assert KEEPER.unheard(alive, empty) is alive
    for sent in (full, empty):
        given = MemberAlive(sent=sent, epoch=2, interval=None, assignment=ids(0))
        fenced = IdentityLost(sent, "fenced", keep_member_id=True)
        assert [KEEPER.unheard(answer, sent) for answer in (given, fenced, None)] == [Unheard(sent)] * 3
