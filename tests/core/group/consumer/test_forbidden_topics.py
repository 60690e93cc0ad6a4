"""A topic that a member of a KIP-848 group may not know of: what it says next, and what its watchdog thread says."""

from __future__ import annotations

import pytest

from aiokc.core.group.consumer.events import (
    KEEPALIVE,
    Contents,
    Interests,
    MemberAlive,
    MemberHeartbeat,
    TopicIdPartition,
    TopicsNamed,
)
from aiokc.core.group.consumer.keepalive import ConsumerKeepalive
from aiokc.core.group.consumer.messages import ConsumerGroup
from aiokc.core.group.consumer.transitions import State
from aiokc.core.group.events import Complain, Lost, NotNow, RevocationDone, Subscribed
from aiokc.error_codes import ErrorCode
from aiokc.errors import ConnectionFailed
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

from .consumer_member import BACKOFF, ID, INTERVAL, OTHER_ID, TOPICS, Member, ids, only

GROUP = ConsumerGroup(group_id="g", max_poll_interval_ms=300_000)
MORE = TOPICS | {"forbidden"}


def forbidden(sent: MemberHeartbeat) -> NotNow:
    event = GROUP.refusal(sent, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1)
    assert isinstance(event, NotNow)
    return event


@pytest.fixture
def member() -> Member:
    member = Member().stable(0)
    member.wait(INTERVAL)
    return member


def said(member: Member) -> Contents:
    return only(MemberHeartbeat, member.wait(2 * BACKOFF)).contents


def test_what_the_coordinator_knows_is_not_in_doubt(member: Member) -> None:
    """It refuses a heartbeat for a name in it, before all else. A full one would be refused again and again."""
    assert member.beat.contents == KEEPALIVE
    only(Complain, member.feed(forbidden(member.beat)))
    assert said(member) == KEEPALIVE


def test_a_subscription_that_is_refused_is_said_again_at_the_coordinators_pace(member: Member) -> None:
    """What is said in between has no name that could be refused. It keeps the session, or is told of its end."""
    member.answer(2)
    member.feed(Subscribed(MORE))
    for _ in range(2):
        assert member.beat.contents == Contents(Interests(MORE))
        only(Complain, member.feed(forbidden(member.beat)))
        assert said(member) == KEEPALIVE
        member.answer(2)
        assert member.wait(INTERVAL - 3 * BACKOFF) == []
        member.wait(3 * BACKOFF)
    assert member.beat.contents == Contents(Interests(MORE))
    member.answer(3)
    member.wait(INTERVAL)
    assert member.beat.contents == KEEPALIVE


def test_a_refused_subscription_is_not_said_again_when_it_is_given_up(member: Member) -> None:
    member.answer(2)
    member.feed(Subscribed(MORE))
    member.feed(forbidden(member.beat))
    member.feed(Subscribed(TOPICS))
    assert said(member) == KEEPALIVE
    member.answer(2)
    member.wait(INTERVAL)
    assert member.beat.contents == KEEPALIVE
    member.answer(2)
    member.feed(Subscribed(TOPICS | {"u"}))
    assert member.beat.contents == Contents(Interests(TOPICS | {"u"}))


def test_what_is_in_doubt_is_said_without_the_refused_names(member: Member) -> None:
    """The coordinator answers that with the assignment, or says that the member is out."""
    member.feed(NotNow(member.beat, ConnectionFailed("broker 1: gone")))
    assert said(member) == Contents(Interests(TOPICS), ids(0), is_full=True)
    member.feed(forbidden(member.beat))
    without_names = Contents(Interests(None), ids(0), is_full=True)
    assert said(member) == without_names
    member.answer(2, ids(0))
    assert member.wait(INTERVAL - 3 * BACKOFF) == []
    member.wait(3 * BACKOFF)
    assert member.beat.contents == Contents(Interests(TOPICS), ids(0), is_full=True), "they are still in doubt"
    member.feed(forbidden(member.beat))
    assert said(member) == without_names
    member.feed(GROUP.refusal(member.beat, ErrorCode.UNKNOWN_MEMBER_ID, 1))
    assert member.machine.state is State.FENCED


def test_a_member_that_has_to_join_again_names_all_topics(member: Member) -> None:
    member.answer(2)
    member.feed(Subscribed(MORE))
    member.feed(forbidden(member.beat))
    said(member)
    lost = only(Lost, member.feed(GROUP.refusal(member.beat, ErrorCode.UNKNOWN_MEMBER_ID, 1)))
    member.feed(RevocationDone(lost.step))
    assert member.beat.joins
    assert member.beat.contents.interests == Interests(MORE)


def test_that_a_pattern_is_given_up_is_said_without_the_refused_names() -> None:
    """So the coordinator has to be told of the pattern again, if the application comes back to it."""
    member = Member()
    member.feed(Subscribed(frozenset(), "t.*"))
    member.answer(2, ids(0))
    member.settled(2)
    member.feed(Subscribed(MORE))
    member.feed(forbidden(member.beat))
    assert said(member) == Contents(Interests(None))
    member.answer(2)
    member.feed(Subscribed(frozenset(), "t.*"))
    assert member.beat.contents.interests == Interests(frozenset(), "t.*")


# What the metadata say


def test_a_join_that_was_refused_leaves_out_what_is_forbidden() -> None:
    member = Member()
    member.feed(Subscribed(MORE))
    assert member.beat.contents.interests == Interests(MORE)
    member.feed(forbidden(member.beat))
    member.feed(TopicsNamed({}, forbidden=frozenset({"forbidden"})))
    contents = said(member)
    assert member.beat.joins
    assert contents == Contents(Interests(TOPICS), frozenset(), is_full=True)
    member.answer(2, ids(0))
    member.settled(2)
    member.feed(TopicsNamed({}))
    assert member.beat.contents == Contents(Interests(MORE))


def test_a_forbidden_topic_is_named_as_long_as_some_of_it_is_held(member: Member) -> None:
    """To leave it out would give it up."""
    member.answer(2)
    member.feed(Subscribed(TOPICS | {"u"}))
    member.answer(2)
    member.feed(TopicsNamed({}, forbidden=TOPICS))
    member.wait(INTERVAL)
    assert member.beat.contents == KEEPALIVE
    member.answer(3, ids(0, topic_id=OTHER_ID))
    member.feed(RevocationDone(member.machine._step))
    assert member.beat.contents == Contents(Interests(frozenset({"u"})), ids(0, topic_id=OTHER_ID))


def test_a_forbidden_topic_is_given_up_where_the_subscription_changes(member: Member) -> None:
    """A heartbeat that names it is refused: the coordinator would not hear of the change."""
    member.feed(TopicsNamed({}, forbidden=TOPICS))
    member.feed(NotNow(member.beat, ConnectionFailed("broker 1: gone")))  # what the coordinator knows is in doubt
    member.feed(Subscribed(TOPICS | {"u"}))
    assert said(member) == Contents(Interests(frozenset({"u"})), ids(0), is_full=True)
    member.answer(2)
    member.wait(INTERVAL)
    assert member.beat.contents == KEEPALIVE, "it is held still, and named no more"
    member.revoked(member.answer(3, ()))
    member.answer(3)
    member.feed(TopicsNamed({}))
    assert member.beat.contents == Contents(Interests(TOPICS | {"u"}))


def test_a_member_of_forbidden_topics_alone_gives_up_what_it_has_left(member: Member) -> None:
    member.answer(2)
    member.feed(TopicsNamed({}, forbidden=frozenset({"forbidden"})))
    member.feed(Subscribed(frozenset({"forbidden"})))
    assert member.beat.contents == Contents(Interests(frozenset()))


def test_a_join_for_forbidden_topics_alone_names_them() -> None:
    """A subscription to nothing would be another one."""
    member = Member()
    member.feed(TopicsNamed({}, forbidden=frozenset({"forbidden"})))
    member.feed(Subscribed(frozenset({"forbidden"})))
    assert member.beat.joins
    assert member.beat.contents.interests == Interests(frozenset({"forbidden"}))


# The watchdog thread


def test_a_heartbeat_of_the_watchdog_that_is_refused_is_followed_by_one_without_names(member: Member) -> None:
    keepalive, plan = ConsumerKeepalive(GROUP), member.machine.plan
    assert plan is not None
    first = plan.heartbeat
    assert isinstance(first, MemberHeartbeat)
    assert first.contents == Contents(Interests(TOPICS), ids(0), is_full=True)

    second = keepalive.after(forbidden(first), first)
    assert isinstance(second, MemberHeartbeat)
    assert (second.member, second.contents) == (first.member, KEEPALIVE)

    request = keepalive.heartbeat(second)
    built = request.build(1)
    assert isinstance(built, ConsumerGroupHeartbeatRequest)
    assert built.subscribed_topic_names is None
    alive = request.event(ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=3, heartbeat_interval_ms=5000))
    assert isinstance(alive, MemberAlive)
    third = keepalive.after(alive, second)
    assert isinstance(third, MemberHeartbeat)
    assert (third.member.generation_id, third.contents) == (3, KEEPALIVE)


@pytest.mark.parametrize("assignment", [ids(0), frozenset()])
def test_a_topic_that_older_metadata_forbid_stays_named_after_the_join(assignment: frozenset[TopicIdPartition]) -> None:
    """The coordinator has taken the join. To name the topic no more would give up what it assigns."""
    member = Member()
    member.feed(TopicsNamed({}, forbidden=TOPICS))
    member.feed(Subscribed(TOPICS))
    assert member.beat.contents.interests == Interests(TOPICS)
    member.answer(2, assignment, names={})
    member.settled(2)
    member.wait(INTERVAL)
    member.feed(TopicsNamed({ID: "t"}))
    member.settled(2)
    assert all(sent.contents.interests is None for sent in member.sent[1:])
