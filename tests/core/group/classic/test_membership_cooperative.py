"""Cooperative rebalancing (KIP-429): the member gives up only what was taken away, and reads the rest meanwhile."""

from __future__ import annotations

import math

import pytest

from aiokc.assignor import Claim, RebalanceProtocol
from aiokc.core.group.classic.transitions import State
from aiokc.core.group.events import (
    Alive,
    Assign,
    CheckCoordinator,
    Effect,
    Enforced,
    IdentityLost,
    Joined,
    Leave,
    Left,
    Lost,
    MemberIdRequired,
    MemberToken,
    NotNow,
    Rebalancing,
    RevocationDone,
    Revoke,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    SentCommit,
    Subscribed,
    Synced,
    Tick,
)
from aiokc.error_codes import ErrorCode
from aiokc.errors import BrokerError, CommitFailed
from aiokc.types import TopicPartition

from .test_membership import INTERVAL, MAX_POLL, SESSION, TOPICS, Member

A0, A1, A2 = (TopicPartition("t", number) for number in range(3))
B0 = TopicPartition("u", 0)


class CooperativeMember(Member):
    """A member that keeps its partitions while the group rebalances."""

    def __init__(self, instance_id: str | None = None) -> None:
        super().__init__(instance_id, RebalanceProtocol.COOPERATIVE)

    def rejoining(self, reason: str = "it was asked to") -> SendJoin:
        [join] = self.feed(Enforced(reason))
        assert isinstance(join, SendJoin)
        return join

    def synced(self, join: SendJoin, generation: int, *partitions: TopicPartition) -> list[Effect]:
        [sync] = self.feed(Joined(join.step, generation, "m-1", "leader", "cooperative-sticky"))
        assert isinstance(sync, SendSync)
        return self.feed(Synced(sync.step, partitions))


def stable(*partitions: TopicPartition) -> CooperativeMember:
    member = CooperativeMember()
    member.stable(*partitions)
    return member


def test_a_rebalance_begins_with_a_join_that_names_what_is_owned_and_since_when() -> None:
    member = stable(A0, A1)
    [join] = member.feed(Rebalancing(member.heartbeat()))
    assert isinstance(join, SendJoin)
    assert join.owned == (A0, A1)
    assert join.member == MemberToken(1, "m-1")  # KIP-792
    assert join.last_assignment == Claim((A0, A1), 1)


def test_an_assignment_that_takes_nothing_away_needs_no_second_round() -> None:
    member = stable(A0)
    effects = member.synced(member.rejoining(), 2, A1, A0)
    assert effects == [Assign(MemberToken(2, "m-1"), (A1, A0), (A1,), "cooperative-sticky")]
    assert member.machine.state is State.STABLE


def test_an_assignment_that_changes_nothing_still_reaches_the_listener() -> None:
    member = stable(A0)
    assert member.synced(member.rejoining(), 2, A0) == [Assign(MemberToken(2, "m-1"), (A0,), (), "cooperative-sticky")]


def test_a_member_sends_heartbeats_faster_for_the_second_round_and_then_as_usual() -> None:
    member = stable(A0)
    member.synced(member.rejoining(), 2, A0)
    pauses: list[float] = []
    for _ in range(5):
        began = member.now
        member.now = member.machine.deadline
        [heartbeat] = member.feed(Tick())
        assert isinstance(heartbeat, SendHeartbeat)
        member.feed(Alive(heartbeat))
        pauses.append(member.now - began)
    assert pauses == pytest.approx([0.1, 0.3, 0.9, 2.7, INTERVAL])


def test_an_eager_member_has_no_second_round_to_listen_for() -> None:
    member = Member()
    member.stable(A0)
    assert member.machine.deadline == member.now + INTERVAL


def test_what_was_taken_away_is_revoked_and_then_the_member_joins_again_at_once() -> None:
    member = stable(A0, A1)
    [revoke] = member.synced(member.rejoining(), 2, A0, A2)
    assert isinstance(revoke, Revoke)
    assert (revoke.partitions, revoke.wait) == ((A1,), True)
    assign, join = member.feed(RevocationDone(revoke.step))
    assert assign == Assign(MemberToken(2, "m-1"), (A0, A2), (A2,), "cooperative-sticky")
    assert isinstance(join, SendJoin)
    assert (join.owned, join.member.generation_id) == ((A0, A2), 2)
    assert "gave up 1 partitions" in join.reason


def test_heartbeats_and_commits_go_on_while_the_application_finishes_what_was_taken_away() -> None:
    member = stable(A0, A1)
    member.synced(member.rejoining(), 2, A0)
    for _ in range(3):
        heartbeat = member.heartbeat()
        assert heartbeat.member.generation_id == 2
        assert member.feed(Rebalancing(heartbeat)) == []
    assert member.machine.commit_token() == MemberToken(2, "m-1")


def test_commits_go_on_while_the_group_waits_for_its_members_and_pause_while_it_assigns() -> None:
    member = stable(A0)
    join = member.rejoining()
    assert member.machine.commit_token() == MemberToken(1, "m-1")
    assert member.feed(Rebalancing(SentCommit(member.token))) == []
    assert member.feed(IdentityLost(SentCommit(member.token), "ILLEGAL_GENERATION")) == []
    member.feed(Joined(join.step, 2, "m-1", "leader", "cooperative-sticky"))
    with pytest.raises(BrokerError) as caught:
        member.machine.commit_token()
    assert caught.value.code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_was_evicted_while_it_joined_loses_all_that_it_kept() -> None:
    member = stable(A0, A1)
    [lost] = member.feed(IdentityLost(member.rejoining(), "evicted"))
    assert isinstance(lost, Lost)
    assert lost.partitions == (A0, A1)
    with pytest.raises(CommitFailed):
        member.machine.commit_token()
    [join] = member.feed(RevocationDone(lost.step))
    assert isinstance(join, SendJoin)
    assert (join.member, join.owned) == (MemberToken(), ())


def test_a_coordinator_that_wants_a_member_id_of_an_old_member_has_forgotten_it() -> None:
    member = stable(A0)
    [lost] = member.feed(MemberIdRequired(member.rejoining().step, "m-2"))
    assert isinstance(lost, Lost)
    [join] = member.feed(RevocationDone(lost.step))
    assert isinstance(join, SendJoin)
    assert join.member == MemberToken(-1, "m-2")


def test_a_loss_takes_all_even_while_some_are_being_revoked() -> None:
    member = stable(A0, A1)
    [revoke] = member.synced(member.rejoining(), 2, A0, A2)
    assert isinstance(revoke, Revoke)
    [lost] = member.feed(IdentityLost(member.heartbeat(), "evicted"))
    assert isinstance(lost, Lost)
    assert lost.partitions == (A0, A1)  # A2 was assigned, but not yet taken
    assert member.feed(RevocationDone(revoke.step)) == []
    [join] = member.feed(RevocationDone(lost.step))
    assert isinstance(join, SendJoin)
    assert join.owned == ()


def test_a_coordinator_that_cannot_answer_yet_takes_nothing_away() -> None:
    member = stable(A0)
    assert member.feed(NotNow(member.rejoining())) == []
    [join] = member.wait(1.0)
    assert isinstance(join, SendJoin)
    assert (join.owned, join.member.generation_id) == ((A0,), 1)


def test_a_topic_that_is_not_subscribed_any_more_is_given_up_before_the_join() -> None:
    member = CooperativeMember()
    [join] = member.feed(Subscribed(frozenset("tu")))
    assert isinstance(join, SendJoin)
    member.synced(join, 1, A0, B0)
    [revoke] = member.feed(Subscribed(TOPICS))
    assert isinstance(revoke, Revoke)
    assert revoke.partitions == (B0,)
    [join] = member.feed(RevocationDone(revoke.step))
    assert isinstance(join, SendJoin)
    assert (join.topics, join.owned) == (TOPICS, (A0,))


def test_a_subscription_that_changed_during_the_join_discards_the_assignment_but_not_what_is_held() -> None:
    member = stable(A0, A1)
    join = member.rejoining()
    assert member.feed(Subscribed(frozenset("tu"))) == []
    [again] = member.synced(join, 2, A0)
    assert isinstance(again, SendJoin)
    assert (again.topics, again.owned) == (frozenset("tu"), (A0, A1))


def test_a_topic_that_was_dropped_while_the_rest_was_revoked_goes_next() -> None:
    member = CooperativeMember()
    [join] = member.feed(Subscribed(frozenset("tu")))
    assert isinstance(join, SendJoin)
    member.synced(join, 1, A0, A1, B0)
    [first] = member.synced(member.rejoining(), 2, A0, B0)
    assert isinstance(first, Revoke)
    assert member.feed(Subscribed(TOPICS)) == []
    [second] = member.feed(RevocationDone(first.step))
    assert isinstance(second, Revoke)
    assert second.partitions == (B0,)
    [join] = member.feed(RevocationDone(second.step))
    assert isinstance(join, SendJoin)
    assert join.owned == (A0,)


@pytest.mark.parametrize("wish", [Leave(), Subscribed(frozenset())])
def test_leaving_hands_over_all_whatever_the_group_is_doing(wish: Leave | Subscribed) -> None:
    member = stable(A0, A1)
    member.rejoining()
    [revoke] = member.feed(wish)
    assert isinstance(revoke, Revoke)
    assert revoke.partitions == (A0, A1)
    assert revoke.wait == isinstance(wish, Subscribed)
    assert member.machine.commit_token() == MemberToken(1, "m-1")
    [leave] = member.feed(RevocationDone(revoke.step))
    assert isinstance(leave, SendLeave)
    assert leave.member == MemberToken(1, "m-1")
    assert member.feed(Left(leave.step)) == []


def test_leaving_while_some_are_being_revoked_hands_over_all() -> None:
    member = stable(A0, A1)
    [revoke] = member.synced(member.rejoining(), 2, A0, A2)
    assert isinstance(revoke, Revoke)
    [all_of_them] = member.feed(Leave())
    assert isinstance(all_of_them, Revoke)
    assert (all_of_them.partitions, all_of_them.wait) == ((A0, A1), False)
    assert member.feed(RevocationDone(revoke.step)) == []
    [leave] = member.feed(RevocationDone(all_of_them.step))
    assert isinstance(leave, SendLeave)


def test_unsubscribing_while_some_are_being_revoked_hands_over_all_also_if_another_subscription_follows() -> None:
    """Otherwise the member would claim partitions that it does not read, for as long as it lives."""
    member = stable(A0, A1)
    [revoke] = member.synced(member.rejoining(), 2, A0)
    assert isinstance(revoke, Revoke)
    assert revoke.partitions == (A1,)
    [all_of_them] = member.feed(Subscribed(frozenset()))
    assert isinstance(all_of_them, Revoke)
    assert all_of_them.partitions == (A0, A1)
    assert member.feed(Subscribed(TOPICS)) == []
    assert member.feed(RevocationDone(revoke.step)) == []
    [join] = member.feed(RevocationDone(all_of_them.step))
    assert isinstance(join, SendJoin)
    assert join.owned == ()


def test_a_member_that_is_not_polled_while_a_join_is_parked_loses_what_it_kept() -> None:
    member = stable(A0)
    member.rejoining()
    while member.machine.deadline < member.polls.last + MAX_POLL:
        member.now = member.machine.deadline
        assert member.feed(Tick()) == [CheckCoordinator(SESSION / 3)]
    member.now = member.machine.deadline
    assert member.now == pytest.approx(member.polls.last + MAX_POLL)
    leave, lost = member.feed(Tick())
    assert isinstance(leave, SendLeave)
    assert isinstance(lost, Lost)
    assert member.feed(RevocationDone(lost.step)) == []
    assert member.machine.deadline == math.inf


def test_no_heartbeat_while_a_join_is_parked_though_partitions_are_held() -> None:
    member = stable(A0)
    join = member.rejoining()
    assert not any(isinstance(effect, SendHeartbeat) for effect in member.wait(100.0))
    member.feed(Joined(join.step, 2, "m-1", "leader", "cooperative-sticky"))
    assert isinstance(member.heartbeat(), SendHeartbeat)
