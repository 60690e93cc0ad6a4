from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from aiokc.assignor import MemberSubscription, RebalanceProtocol
from aiokc.core.backoff import Backoff
from aiokc.core.group.classic.membership import Membership
from aiokc.core.group.classic.transitions import State
from aiokc.core.group.events import (
    Alive,
    Assign,
    CheckCoordinator,
    Complain,
    ComputeAssignment,
    Computed,
    CoordinatorLost,
    Effect,
    Enforced,
    Event,
    Fail,
    Fatal,
    ForgetCoordinator,
    IdentityLost,
    IllegalTransition,
    Joined,
    JoinedMember,
    Leave,
    Left,
    Lost,
    MemberIdRequired,
    MemberToken,
    NotNow,
    PartitionsCounted,
    PollClock,
    Polled,
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
from aiokc.core.group.loop_watch import Beat, NextStep, SayGoodbye, Seen, next_step
from aiokc.error_codes import ErrorCode
from aiokc.errors import AssignmentFailed, BrokerError, CommitFailed, ConnectionFailed, MemberFenced, broker_error
from aiokc.types import TopicPartition

SESSION, INTERVAL, MAX_POLL, BACKOFF = 45.0, 3.0, 300.0, 0.1
TOPICS = frozenset({"t"})
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Member:
    """A membership machine, its clock, and shortcuts that bring it into a state."""

    def __init__(self, instance_id: str | None = None, protocol: RebalanceProtocol = RebalanceProtocol.EAGER) -> None:
        self.now = 1_000.0
        self.polls = PollClock()
        self.machine = Membership(
            session_timeout=SESSION,
            heartbeat_interval=INTERVAL,
            max_poll_interval=MAX_POLL,
            polls=self.polls,
            backoff=Backoff(BACKOFF, 1.0, Random(1), jitter=0.0),
            protocol=protocol,
            group_instance_id=instance_id,
        )

    def feed(self, event: Event) -> list[Effect]:
        return self.machine.on(event, self.now)

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass, with a Tick at each deadline. The application polls all the time."""
        until = self.now + seconds
        effects: list[Effect] = []
        while self.machine.deadline <= until:
            self.now = max(self.now, self.machine.deadline)
            self.polls.last = self.now
            effects += self.feed(Tick())
        self.now = until
        self.polls.last = until
        return effects

    def join(self, *, goes_out: bool = True) -> SendJoin:
        [effect] = self.feed(Subscribed(TOPICS))
        assert isinstance(effect, SendJoin)
        if goes_out:
            self.machine.wrote(effect)
        return effect

    def sync(self, generation: int = 1, member_id: str = "m-1") -> SendSync:
        join = self.join()
        [effect] = self.feed(Joined(join.step, generation, member_id, "leader", "range"))
        assert isinstance(effect, SendSync)
        return effect

    def stable(self, *partitions: TopicPartition, generation: int = 1) -> Member:
        sync = self.sync(generation)
        wanted = partitions or (T0, T1)
        assert self.feed(Synced(sync.step, wanted)) == [Assign(self.token, wanted, wanted, "range")]
        return self

    def leading(self, counts: dict[str, int] | None = None) -> Member:
        join = self.join()
        mine = JoinedMember("m-1", MemberSubscription(TOPICS))
        other = JoinedMember("m-2", MemberSubscription(frozenset({"t", "u"})))
        [compute] = self.feed(Joined(join.step, 1, "m-1", "m-1", "range", (mine, other)))
        assert isinstance(compute, ComputeAssignment)
        [sync] = self.feed(Computed(compute.step, {"m-1": b"1", "m-2": b"2"}, counts or {"t": 2, "u": 1}))
        assert isinstance(sync, SendSync)
        self.feed(Synced(sync.step, (T0,)))
        assert self.machine.state is State.STABLE
        return self

    @property
    def token(self) -> MemberToken:
        return self.machine.member

    def heartbeat(self) -> SendHeartbeat:
        [effect] = self.wait(INTERVAL)
        assert isinstance(effect, SendHeartbeat)
        return effect

    def revoking(self) -> Revoke:
        """A stable member whose heartbeat was answered REBALANCE_IN_PROGRESS."""
        [effect] = self.feed(Rebalancing(self.heartbeat()))
        assert isinstance(effect, Revoke)
        return effect


# Joining


def test_a_first_join_goes_through_member_id_required_at_once_and_ends_with_an_assignment() -> None:
    member = Member()
    join = member.join()
    assert (join.member, join.topics, join.owned) == (MemberToken(), TOPICS, ())
    [again] = member.feed(MemberIdRequired(join.step, "m-1"))
    assert isinstance(again, SendJoin)
    assert again.member.member_id == "m-1"
    [sync] = member.feed(Joined(again.step, 1, "m-1", "leader", "range"))
    assert sync == SendSync(again.step + 1, MemberToken(1, "m-1"), "range", {})
    assert member.feed(Synced(again.step + 1, (T0,))) == [Assign(MemberToken(1, "m-1"), (T0,), (T0,), "range")]
    assert member.machine.state is State.STABLE


def test_nothing_happens_without_topics() -> None:
    member = Member()
    assert member.feed(Subscribed(frozenset())) == []
    assert member.machine.deadline == math.inf


def test_the_leader_assigns_and_watches_the_topics_of_the_whole_group() -> None:
    member = Member()
    join = member.join()
    mine = JoinedMember("m-1", MemberSubscription(TOPICS))
    other = JoinedMember("m-2", MemberSubscription(frozenset({"u"})))
    [compute] = member.feed(Joined(join.step, 1, "m-1", "m-1", "range", (mine, other)))
    assert isinstance(compute, ComputeAssignment)
    assert compute.topics == member.machine.watched_topics == {"t", "u"}
    [sync] = member.feed(Computed(compute.step, {"m-1": b"1", "m-2": b"2"}, {"t": 1, "u": 1}))
    assert isinstance(sync, SendSync)
    assert sync.assignments == {"m-1": b"1", "m-2": b"2"}


def test_an_unavailable_coordinator_is_looked_up_anew_and_asked_again_after_growing_pauses() -> None:
    member = Member()
    join = member.join()
    for pause in (0.1, 0.2, 0.4):
        assert member.feed(CoordinatorLost(join, 7)) == [ForgetCoordinator(7)]
        assert member.machine.deadline == pytest.approx(member.now + pause)
        [effect] = member.wait(pause + 1e-9)
        assert isinstance(effect, SendJoin)
        join = effect


def test_a_loading_coordinator_is_asked_again_and_stays_the_coordinator() -> None:
    member = Member()
    assert member.feed(NotNow(member.join())) == []
    [join] = member.wait(BACKOFF + 1e-9)
    assert isinstance(join, SendJoin)


def test_retries_are_reported_except_those_of_commits() -> None:
    error = ConnectionFailed("gone")
    member = Member()
    join = member.join()
    assert member.feed(CoordinatorLost(join, 7, error)) == [ForgetCoordinator(7), Complain(error, join)]
    member = Member().stable()
    assert member.feed(NotNow(SentCommit(member.token), error)) == []
    beat = member.heartbeat()
    assert member.feed(NotNow(beat, error)) == [Complain(error, beat)]


def test_a_rebalance_during_sync_joins_again_at_once_but_never_in_a_tight_loop() -> None:
    member = Member()
    sync = member.sync()
    paces = []
    for _ in range(5):
        effects = member.feed(Rebalancing(sync))
        paces.append("at once" if effects else "later")
        [join] = effects or member.wait(1.0)
        assert isinstance(join, SendJoin)
        assert join.member.member_id == "m-1"
        [effect] = member.feed(Joined(join.step, 2, "m-1", "leader", "range"))
        assert isinstance(effect, SendSync)
        sync = effect
    assert paces == ["at once", "at once", "later", "later", "later"]


def test_a_coordinator_that_always_wants_another_member_id_is_not_hammered() -> None:
    member = Member()
    join = member.join()
    [again] = member.feed(MemberIdRequired(join.step, "m-1"))
    assert isinstance(again, SendJoin)
    assert member.feed(MemberIdRequired(again.step, "m-2")) == []
    [later] = member.wait(1.0)
    assert isinstance(later, SendJoin)
    assert later.member.member_id == "m-2"


def test_an_unknown_member_joins_under_no_name() -> None:
    member = Member()
    sync = member.sync()
    [join] = member.feed(IdentityLost(sync, "UNKNOWN_MEMBER_ID"))
    assert isinstance(join, SendJoin)
    assert join.member == MemberToken()


def test_an_illegal_generation_keeps_the_member_id() -> None:
    member = Member()
    [join] = member.feed(IdentityLost(member.sync(), "ILLEGAL_GENERATION", keep_member_id=True))
    assert isinstance(join, SendJoin)
    assert join.member == MemberToken(-1, "m-1")


def test_a_subscription_that_changed_during_the_join_discards_the_assignment() -> None:
    member = Member()
    sync = member.sync()
    assert member.feed(Subscribed(frozenset({"u"}))) == []
    [join] = member.feed(Synced(sync.step, (T0,)))
    assert isinstance(join, SendJoin)
    assert join.topics == {"u"}


def test_an_assignment_with_foreign_topics_is_discarded_without_a_tight_loop() -> None:
    """And the member reports it, instead of joining for ever without a word."""
    member = Member()
    [complain] = member.feed(Synced(member.sync().step, (TopicPartition("foreign", 0),)))
    assert isinstance(complain, Complain)
    [join] = member.wait(1.0)
    assert isinstance(join, SendJoin)


# Rebalancing


def test_a_rebalance_waits_until_the_partitions_are_revoked() -> None:
    member = Member().stable(T0, T1)
    revoke = member.revoking()
    assert (revoke.partitions, revoke.wait) == ((T0, T1), True)
    [join] = member.feed(RevocationDone(revoke.step))
    assert isinstance(join, SendJoin)
    assert join.member.member_id == "m-1"
    assert join.owned == ()


def test_heartbeats_go_on_while_records_are_held_and_stop_while_the_join_is_parked() -> None:
    member = Member().stable()
    revoke = member.revoking()
    for _ in range(3):
        heartbeat = member.heartbeat()
        assert member.feed(Rebalancing(heartbeat)) == []
    member.feed(RevocationDone(revoke.step))
    assert not any(isinstance(effect, SendHeartbeat) for effect in member.wait(100.0))


def test_the_coordinator_is_asked_after_a_parked_join_in_time_to_join_at_another_one() -> None:
    """Each third of a session; the answer has another third, and the last third is for joining there."""
    member = Member()
    join = member.join()
    assert member.wait(44.0) == [CheckCoordinator(SESSION / 3)] * 2
    assert member.feed(NotNow(join, ConnectionFailed("closed"))) != []
    [again] = member.wait(1.0)
    assert isinstance(again, SendJoin)
    assert member.wait(14.0) == []
    member.feed(Joined(again.step, 1, "m-1", "leader", "range"))
    assert not any(isinstance(effect, CheckCoordinator) for effect in member.wait(20.0))


def test_heartbeats_start_again_with_the_join_response() -> None:
    member = Member()
    member.sync(generation=4)
    assert member.heartbeat().member == MemberToken(4, "m-1")


def test_an_eager_rebalance_begins_with_a_revocation_even_of_nothing() -> None:
    """Java's ConsumerCoordinator: an eager member calls onPartitionsRevoked at the start of each rebalance."""
    member = Member()
    member.feed(Synced(member.sync().step, ()))
    [revoke] = member.feed(Rebalancing(member.heartbeat()))
    assert isinstance(revoke, Revoke)
    assert revoke.partitions == ()
    [join] = member.feed(RevocationDone(revoke.step))
    assert isinstance(join, SendJoin)


def test_whatever_happens_while_nothing_is_revoked_waits_for_the_end_of_that() -> None:
    """The listener may take long. Meanwhile the consumer may close or unsubscribe, or the coordinator remove it."""
    for event, after in (
        (lambda beat: Leave(), SendLeave),
        (lambda beat: IdentityLost(beat, "removed"), SendJoin),
        (lambda beat: Subscribed(frozenset()), SendLeave),
    ):
        member = Member()
        member.feed(Synced(member.sync().step, ()))
        beat = member.heartbeat()
        [revoke] = member.feed(Rebalancing(beat))
        assert isinstance(revoke, Revoke)
        assert member.feed(event(member.heartbeat())) == []
        assert isinstance(member.feed(RevocationDone(revoke.step))[0], after)


def test_a_member_without_polls_while_nothing_is_revoked_leaves_at_once_and_joins_again_with_the_next_poll() -> None:
    member = Member()
    member.feed(Synced(member.sync().step, ()))
    [revoke] = member.feed(Rebalancing(member.heartbeat()))
    assert isinstance(revoke, Revoke)
    member.now += MAX_POLL + 1
    [leave] = member.feed(Tick())
    assert isinstance(leave, SendLeave)
    assert member.feed(Left(leave.step)) == []  # a listener that cannot be cancelled may take longer than that
    assert member.feed(RevocationDone(revoke.step)) == []
    [join] = member.feed(Polled())
    assert isinstance(join, SendJoin)


def test_a_member_that_leaves_for_good_without_partitions_revokes_nothing() -> None:
    for goodbye in (Leave(), Subscribed(frozenset())):
        member = Member()
        member.feed(Synced(member.sync().step, ()))
        [leave] = member.feed(goodbye)
        assert isinstance(leave, SendLeave)


def test_only_changed_counts_make_the_leader_rebalance() -> None:
    member = Member().leading({"t": 2, "u": 1})
    assert member.feed(PartitionsCounted({"t": 2, "u": 1})) == []
    [revoke] = member.feed(PartitionsCounted({"t": 2, "u": 3}))
    assert isinstance(revoke, Revoke)


def test_a_topic_that_is_gone_makes_the_leader_rebalance_too() -> None:
    [revoke] = Member().leading({"t": 2, "u": 1}).feed(PartitionsCounted({"t": 2}))
    assert isinstance(revoke, Revoke)


def test_counts_that_changed_while_the_leader_synced_discard_the_assignment() -> None:
    member = Member()
    join = member.join()
    [compute] = member.feed(Joined(join.step, 1, "m", "m", "range", (JoinedMember("m", MemberSubscription(TOPICS)),)))
    assert isinstance(compute, ComputeAssignment)
    [sync] = member.feed(Computed(compute.step, {}, {"t": 1}))
    assert isinstance(sync, SendSync)
    assert member.feed(PartitionsCounted({"t": 2})) == []
    [again] = member.feed(Synced(sync.step, (T0,)))
    assert isinstance(again, SendJoin)


def test_counts_that_changed_while_the_leader_assigned_discard_the_assignment() -> None:
    """The assignor of a large group runs in a thread, on the counts at its start. Newer counts may come meanwhile."""
    member = Member()
    join = member.join()
    [compute] = member.feed(Joined(join.step, 1, "m", "m", "range", (JoinedMember("m", MemberSubscription(TOPICS)),)))
    assert isinstance(compute, ComputeAssignment)
    assert member.feed(PartitionsCounted({"t": 2})) == []
    [sync] = member.feed(Computed(compute.step, {}, {"t": 1}))
    assert isinstance(sync, SendSync)
    [again] = member.feed(Synced(sync.step, (T0,)))
    assert isinstance(again, SendJoin)


def test_what_was_counted_while_another_generation_was_led_is_no_news_to_the_next_one() -> None:
    member = Member().leading({"t": 2, "u": 1})
    [revoke] = member.feed(PartitionsCounted({"t": 3, "u": 1}))
    assert isinstance(revoke, Revoke)
    [join] = member.feed(RevocationDone(revoke.step))
    assert isinstance(join, SendJoin)
    mine = JoinedMember("m-1", MemberSubscription(TOPICS))
    [compute] = member.feed(Joined(join.step, 2, "m-1", "m-1", "range", (mine,)))
    assert isinstance(compute, ComputeAssignment)
    [sync] = member.feed(Computed(compute.step, {}, {"t": 3}))
    assert isinstance(sync, SendSync)
    [assign] = member.feed(Synced(sync.step, (T0,)))
    assert isinstance(assign, Assign)


def test_a_follower_does_not_care_for_counts() -> None:
    assert Member().stable().feed(PartitionsCounted({"t": 99})) == []


def test_another_subscription_rebalances_and_the_same_one_does_not() -> None:
    member = Member().stable()
    assert member.feed(Subscribed(TOPICS)) == []
    [revoke] = member.feed(Subscribed(frozenset({"u"})))
    assert isinstance(revoke, Revoke)


def test_a_commit_that_meets_a_rebalance_makes_the_member_join() -> None:
    member = Member().stable()
    [revoke] = member.feed(Rebalancing(SentCommit(member.token)))
    assert isinstance(revoke, Revoke)


def test_enforcing_a_rebalance_is_a_rejoin_with_its_reason_and_no_news_during_one() -> None:
    member = Member().stable(T0)
    [revoke] = member.feed(Enforced("the weights changed"))
    assert isinstance(revoke, Revoke)
    assert member.feed(Enforced("again")) == []
    [join] = member.feed(RevocationDone(revoke.step))
    assert isinstance(join, SendJoin)
    assert join.reason == "the weights changed"
    assert member.feed(Enforced("again")) == []


# Losing the identity


@pytest.mark.parametrize("keep", [True, False])
def test_a_member_that_is_not_known_any_more_loses_its_partitions_without_a_commit(keep: bool) -> None:
    member = Member().stable(T0)
    heartbeat = member.heartbeat()
    [lost] = member.feed(IdentityLost(heartbeat, "evicted", keep_member_id=keep))
    assert isinstance(lost, Lost)
    assert lost.partitions == (T0,)
    assert member.wait(30.0) == []  # no heartbeat without a generation
    [join] = member.feed(RevocationDone(lost.step))
    assert isinstance(join, SendJoin)
    assert join.member == MemberToken(-1, "m-1" if keep else "")


def test_a_loss_ends_a_revocation_under_way() -> None:
    member = Member().stable(T0)
    revoke = member.revoking()
    [lost] = member.feed(IdentityLost(member.heartbeat(), "evicted"))
    assert isinstance(lost, Lost)
    assert member.feed(RevocationDone(revoke.step)) == []  # the revocation's end is stale
    [join] = member.feed(RevocationDone(lost.step))
    assert isinstance(join, SendJoin)


def test_a_late_heartbeat_error_of_an_older_generation_is_ignored() -> None:
    member = Member().stable(T0, generation=4)
    old = member.heartbeat()
    [revoke] = member.feed(Rebalancing(SentCommit(member.token)))
    assert isinstance(revoke, Revoke)
    [join] = member.feed(RevocationDone(revoke.step))
    assert isinstance(join, SendJoin)
    assert member.feed(IdentityLost(old, "ILLEGAL_GENERATION")) == []  # while the JoinGroup is parked
    [sync] = member.feed(Joined(join.step, 5, "m-1", "leader", "range"))
    assert isinstance(sync, SendSync)
    assert member.feed(IdentityLost(old, "ILLEGAL_GENERATION")) == []
    assert member.feed(Fatal(old, broker_error(ErrorCode.FENCED_INSTANCE_ID))) == []
    assert member.token == MemberToken(5, "m-1")


def test_a_late_commit_error_of_an_older_generation_is_ignored() -> None:
    member = Member().stable(generation=4)
    assert member.feed(IdentityLost(SentCommit(MemberToken(3, "m-1")), "ILLEGAL_GENERATION")) == []
    assert member.feed(Rebalancing(SentCommit(MemberToken(3, "m-1")))) == []


def test_a_fatal_answer_is_raised_to_the_application_and_ends_everything() -> None:
    member = Member().stable(T0)
    fenced = broker_error(ErrorCode.FENCED_INSTANCE_ID)
    lost, farewell, fail = member.feed(Fatal(member.heartbeat(), fenced))
    assert isinstance(lost, Lost)
    assert isinstance(farewell, SendLeave)
    assert fail == Fail(fenced)
    assert isinstance(fenced, MemberFenced)
    assert member.machine.deadline == math.inf
    assert member.feed(RevocationDone(lost.step)) == []
    assert member.feed(Subscribed(frozenset({"u"}))) == []
    assert member.feed(Polled()) == [], "another one has its place"
    assert member.feed(Leave()) == []
    assert member.machine.has_left


def test_what_a_coordinator_refuses_is_asked_for_again_by_the_next_poll() -> None:
    """A permission may be granted later, or the group have room. Java's poll() raises, and the next one tries again."""
    member = Member().stable(T0)
    refused = broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    lost, _, fail = member.feed(Fatal(member.heartbeat(), refused))
    assert isinstance(lost, Lost)
    assert fail == Fail(refused)
    assert member.feed(RevocationDone(lost.step)) == []
    [join] = member.feed(Polled())
    assert isinstance(join, SendJoin)
    assert join.member.member_id == ""
    member.feed(Fatal(join, refused))
    assert member.machine.has_failed


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.FENCED_INSTANCE_ID])
@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("fails_first", [True, False], ids=["failed, unsubscribed", "unsubscribed, failed"])
def test_a_consumer_that_has_failed_and_unsubscribed_may_subscribe_again(
    code: ErrorCode, is_told: bool, fails_first: bool
) -> None:
    member = Member().stable(T0)
    heartbeat = member.heartbeat()
    if not fails_first:
        assert [type(effect) for effect in member.feed(Subscribed(frozenset()))] == [Revoke]
    lost, *_ = member.feed(Fatal(heartbeat, broker_error(code)))
    assert isinstance(lost, Lost)
    if is_told:
        assert member.feed(RevocationDone(lost.step)) == []
    if fails_first:
        assert member.feed(Subscribed(frozenset())) == []
        assert not member.machine.has_failed
    effects = member.feed(Subscribed(TOPICS))
    if not is_told:
        assert effects == []
        effects = member.feed(RevocationDone(lost.step))
    [join] = effects
    assert isinstance(join, SendJoin)


def test_a_poll_during_on_partitions_lost_after_a_failure_joins_when_that_is_done() -> None:
    member = Member().stable(T0)
    lost, *_ = member.feed(Fatal(member.heartbeat(), broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    assert isinstance(lost, Lost)
    assert member.feed(Polled()) == []
    [join] = member.feed(RevocationDone(lost.step))
    assert isinstance(join, SendJoin)


def test_a_member_that_is_refused_again_and_again_asks_in_growing_intervals() -> None:
    member = Member()
    [effect] = member.feed(Subscribed(frozenset({"t"})))
    due: list[float] = []
    for _ in range(8):
        assert isinstance(effect, SendJoin)
        member.feed(Fatal(effect, broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
        effects = member.feed(Polled())
        if not effects:
            due.append(member.machine.deadline - member.now)
            member.now = member.machine.deadline
            effects = member.feed(Tick())
        [effect] = effects
    assert len(due) == 6, "a few at once, for a refusal that was over by then"
    assert due == sorted(due)
    assert due[-1] > 0.5


def test_a_fenced_static_member_sends_no_leave_group() -> None:
    member = Member("instance").stable(T0)
    effects = member.feed(Fatal(member.heartbeat(), broker_error(ErrorCode.FENCED_INSTANCE_ID)))
    assert [type(effect) for effect in effects] == [Lost, Fail]


# The coordinator does not answer, or has moved


def test_a_silent_coordinator_is_forgotten_but_the_generation_is_kept() -> None:
    member = Member().stable(generation=3)
    member.heartbeat()  # never answered
    effects = member.wait(SESSION)
    assert effects[0] == ForgetCoordinator(None)
    assert isinstance(effects[1], SendHeartbeat)
    assert effects[1].member == MemberToken(3, "m-1")
    assert member.feed(Alive(effects[1])) == []
    assert member.machine.commit_token() == MemberToken(3, "m-1")


def test_a_moved_coordinator_gets_the_next_heartbeat_soon_and_in_the_same_generation() -> None:
    member = Member().stable(generation=3)
    assert member.feed(CoordinatorLost(member.heartbeat(), 7)) == [ForgetCoordinator(7)]
    assert member.machine.deadline == pytest.approx(member.now + BACKOFF)
    [heartbeat] = member.wait(BACKOFF + 1e-9)
    assert isinstance(heartbeat, SendHeartbeat)
    assert heartbeat.member.generation_id == 3


def test_only_one_heartbeat_is_under_way() -> None:
    member = Member().stable()
    heartbeat = member.heartbeat()
    assert member.wait(10.0) == []
    assert member.feed(Alive(heartbeat)) == []
    [following] = member.wait(1e-9)  # it is overdue
    assert isinstance(following, SendHeartbeat)
    assert following.number == heartbeat.number + 1


def test_answers_keep_the_session_alive() -> None:
    member = Member().stable()
    for _ in range(40):
        assert member.feed(Alive(member.heartbeat())) == []
    assert member.machine.state is State.STABLE


# The application does not poll


def stop_polling(member: Member) -> list[Effect]:
    effects: list[Effect] = []
    while not member.machine.needs_poll:
        member.now = member.machine.deadline
        effects = member.feed(Tick())
        for effect in effects:
            if isinstance(effect, SendHeartbeat):
                member.feed(Alive(effect))
    return effects


def test_a_member_that_is_not_polled_leaves_the_group_and_joins_with_the_next_poll() -> None:
    member = Member().stable(T0)
    start = member.polls.last
    leave, lost = stop_polling(member)
    assert member.now == pytest.approx(start + MAX_POLL)
    assert isinstance(leave, SendLeave)
    assert leave.member == MemberToken(1, "m-1")
    assert isinstance(lost, Lost)
    assert "max_poll_interval_ms=300000" in lost.reason
    assert member.feed(RevocationDone(lost.step)) == []
    assert member.feed(Left(leave.step)) == []
    assert member.machine.deadline == math.inf
    with pytest.raises(CommitFailed, match="max_poll_interval_ms=300000"):
        member.machine.commit_token()
    [join] = member.feed(Polled())
    assert isinstance(join, SendJoin)
    assert join.member == MemberToken()


def test_a_member_that_has_unsubscribed_need_not_be_polled_while_its_listener_is_told() -> None:
    member = Member().stable(T0)
    [revoke] = member.feed(Subscribed(frozenset()))
    assert isinstance(revoke, Revoke)
    while member.now < member.polls.last + MAX_POLL:
        member.now = member.machine.deadline
        for effect in member.feed(Tick()):
            assert isinstance(effect, SendHeartbeat), "the group is told that the member is alive, and nothing else"
            member.feed(Alive(effect))
    assert [type(effect) for effect in member.feed(RevocationDone(revoke.step))] == [SendLeave]


@pytest.mark.parametrize("goes", [Leave(), Subscribed(frozenset())], ids=["leave", "unsubscribe"])
def test_the_thread_does_not_leave_for_a_member_during_its_last_revocation(goes: Event) -> None:
    """Its listener, which blocks the loop, has max_poll_interval from the beginning of that revocation."""
    member = Member().stable(T0)
    member.now = member.polls.last + MAX_POLL - 1.0
    [revoke] = member.feed(goes)
    assert isinstance(revoke, Revoke)
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
    member = Member().stable(T0)
    [revoke] = member.feed(Subscribed(frozenset()))
    assert isinstance(revoke, Revoke)
    member.now += MAX_POLL + 1.0
    since = member.now
    assert member.feed(Subscribed(frozenset({"u"}))) == []
    assert all(isinstance(effect, SendHeartbeat | ForgetCoordinator) for effect in member.feed(Tick()))
    [join] = member.feed(RevocationDone(revoke.step))
    assert isinstance(join, SendJoin)
    while member.now < since + MAX_POLL:
        assert member.machine.state is State.JOINING
        member.now = member.machine.deadline
        member.feed(Tick())
    assert (member.now, member.machine.state) == (since + MAX_POLL, State.UNJOINED)


def test_a_member_whose_pattern_matches_nothing_has_to_be_polled_while_its_revocation_waits_for_that() -> None:
    member = Member().stable(T0)
    [revoke] = member.feed(Subscribed(frozenset(), matched=True))
    assert isinstance(revoke, Revoke)
    assert revoke.wait
    leave, lost = stop_polling(member)
    assert member.now == pytest.approx(member.polls.last + MAX_POLL)
    assert isinstance(leave, SendLeave)
    assert isinstance(lost, Lost)
    assert member.feed(RevocationDone(revoke.step)) == []
    assert member.feed(RevocationDone(lost.step)) == []
    assert member.feed(Subscribed(TOPICS, matched=True)) == [], "it does not poll yet"
    [join] = member.feed(Polled())
    assert isinstance(join, SendJoin)


def test_a_poll_during_the_loss_joins_when_that_is_done() -> None:
    member = Member().stable(T0)
    lost = stop_polling(member)[-1]
    assert isinstance(lost, Lost)
    assert member.feed(Polled()) == []
    [join] = member.feed(RevocationDone(lost.step))
    assert isinstance(join, SendJoin)


def test_a_static_member_that_does_not_poll_says_nothing() -> None:
    effects = stop_polling(Member("instance").stable(T0))
    assert [type(effect) for effect in effects] == [Lost]


def test_waiting_for_records_is_polling() -> None:
    member = Member().stable()
    member.polls.waiting = True
    for _ in range(1000):
        member.now = member.machine.deadline
        for effect in member.feed(Tick()):
            assert isinstance(effect, SendHeartbeat)
            member.feed(Alive(effect))
    assert member.now > 2 * MAX_POLL
    assert member.machine.state is State.STABLE


def test_a_revocation_lasts_no_longer_than_the_poll_interval() -> None:
    member = Member().stable(T0)
    member.revoking()
    leave, lost = stop_polling(member)
    assert isinstance(leave, SendLeave)
    assert isinstance(lost, Lost)


def test_the_poll_interval_is_counted_from_the_first_join() -> None:
    member = Member()
    member.now += 10.0
    member.join()
    leave_at = member.now + MAX_POLL
    while member.now < leave_at:
        assert member.machine.state is State.JOINING
        member.now = member.machine.deadline
        member.feed(Tick())
    assert (member.now, member.machine.state) == (leave_at, State.UNJOINED)


# Leaving


def test_leaving_revokes_without_waiting_and_sends_leave_group() -> None:
    member = Member().stable(T0)
    [revoke] = member.feed(Leave())
    assert isinstance(revoke, Revoke)
    assert (revoke.partitions, revoke.wait) == ((T0,), False)
    [leave] = member.feed(RevocationDone(revoke.step))
    assert isinstance(leave, SendLeave)
    assert leave.member == MemberToken(1, "m-1")
    assert not member.machine.has_left
    assert member.feed(Left(leave.step)) == []
    assert member.machine.has_left


def test_a_static_member_leaves_without_a_leave_group() -> None:
    member = Member("instance").stable(T0)
    [revoke] = member.feed(Leave())
    assert isinstance(revoke, Revoke)
    assert member.feed(RevocationDone(revoke.step)) == []
    assert member.machine.has_left


@pytest.mark.parametrize("goes", [Leave(), Subscribed(frozenset())], ids=["leave", "unsubscribe"])
def test_a_member_that_goes_before_it_has_its_id_waits_for_it_and_says_goodbye(goes: Event) -> None:
    """KIP-394: the coordinator has made a pending member, and no rebalance ends before that has joined or left."""
    member = Member()
    join = member.join()
    assert member.feed(goes) == []
    [leave] = member.feed(MemberIdRequired(join.step, "m-1"))
    assert isinstance(leave, SendLeave)
    assert leave.member == MemberToken(-1, "m-1")
    assert not member.machine.is_rebalancing


def test_a_leader_that_resigns_leaves_by_the_id_of_the_answer() -> None:
    """Before JoinGroup v4 a new member has no other: the group would wait for its session to end."""
    member = Member()
    join = member.join()
    error = AssignmentFailed("unreadable")
    [complaint, leave] = member.feed(NotNow(join, error, resigns_as="m-1"))
    assert complaint == Complain(error, join)
    assert isinstance(leave, SendLeave)
    assert leave.member == MemberToken(-1, "m-1")
    [again] = member.wait(member.machine.deadline - member.now + 1e-9)
    assert isinstance(again, SendJoin)
    assert again.member.member_id == ""


def test_a_leader_that_goes_and_could_not_have_led_leaves_by_the_id_of_the_answer() -> None:
    member = Member()
    join = member.join()
    assert member.feed(Leave()) == []
    [leave] = member.feed(NotNow(join, AssignmentFailed("unreadable"), resigns_as="m-1"))
    assert isinstance(leave, SendLeave)
    assert leave.member == MemberToken(-1, "m-1")


def test_the_id_of_a_member_that_goes_is_not_waited_for_without_end() -> None:
    member = Member()
    join = member.join()
    assert member.feed(Leave()) == []
    assert member.wait(1.0) == []
    assert member.feed(Leave()) == []
    assert member.machine.deadline == member.now + 0.5
    assert member.wait(0.5) == []
    assert member.machine.has_left
    assert member.feed(MemberIdRequired(join.step, "m-1")) == []


def test_a_check_of_the_coordinator_does_not_prolong_the_wait_for_the_id() -> None:
    member = Member()
    member.join()
    assert member.wait(SESSION / 3 - 1.0) == []
    assert member.feed(Leave()) == []
    assert member.wait(1.5) == [CheckCoordinator(SESSION / 3)]
    assert member.machine.has_left


@pytest.mark.parametrize("goes", [Leave(), Subscribed(frozenset())], ids=["leave", "unsubscribe"])
def test_a_member_whose_join_has_not_gone_out_waits_for_no_id(goes: Event) -> None:
    """Its coordinator is being looked up, say, or connected to: no member is pending there."""
    member = Member()
    member.join(goes_out=False)
    assert member.feed(goes) == []
    assert not member.machine.is_rebalancing
    assert member.machine.deadline == math.inf


def test_a_member_that_has_unsubscribed_and_waits_for_its_id_need_not_poll() -> None:
    member = Member()
    join = member.join()
    member.now += MAX_POLL - 1.0
    assert member.feed(Subscribed(frozenset())) == []
    assert member.feed(Tick()) == [CheckCoordinator(SESSION / 3)]
    member.now += 1.0
    assert member.feed(Tick()) == []
    assert not member.machine.needs_poll
    [leave] = member.feed(MemberIdRequired(join.step, "m-1"))
    assert isinstance(leave, SendLeave)


def test_a_member_that_goes_and_is_told_of_another_coordinator_looks_it_up_next_time() -> None:
    member = Member()
    join = member.join()
    assert member.feed(Subscribed(frozenset())) == []
    assert member.feed(CoordinatorLost(join, 7)) == [ForgetCoordinator(7)]
    assert not member.machine.is_rebalancing


def test_a_member_that_goes_while_its_join_fails_has_gone() -> None:
    member = Member()
    join = member.join()
    assert member.feed(Subscribed(frozenset())) == []
    assert member.feed(Leave()) == []
    assert member.feed(Fatal(join, broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED))) == []
    assert member.machine.has_left


def test_a_member_that_comes_back_before_it_has_its_id_goes_on_joining() -> None:
    member = Member()
    join = member.join()
    assert member.feed(Subscribed(frozenset())) == []
    assert member.wait(1.0) == []
    assert member.feed(Subscribed(frozenset({"u"}))) == []
    assert member.wait(10.0) == [], "a second JoinGroup without an id leaves a pending member behind"
    [again] = member.feed(MemberIdRequired(join.step, "m-1"))
    assert isinstance(again, SendJoin)
    assert again.member.member_id == "m-1"
    assert again.topics == {"u"}


@pytest.mark.parametrize("goes", [Leave(), Subscribed(frozenset())], ids=["leave", "unsubscribe"])
def test_a_member_that_goes_before_its_join_is_sent_again_waits_for_nothing(goes: Event) -> None:
    member = Member()
    join = member.join()
    member.feed(NotNow(join))
    assert member.feed(goes) == []
    assert member.machine.deadline == math.inf


def test_leaving_hurries_a_revocation_that_waits_for_the_application() -> None:
    member = Member().stable(T0)
    waiting = member.revoking()
    [hurried] = member.feed(Leave())
    assert isinstance(hurried, Revoke)
    assert not hurried.wait
    assert member.feed(RevocationDone(waiting.step)) == []
    [leave] = member.feed(RevocationDone(hurried.step))
    assert isinstance(leave, SendLeave)


def test_leaving_while_the_partitions_are_lost_does_not_commit_them() -> None:
    member = Member().stable(T0)
    [lost] = member.feed(IdentityLost(member.heartbeat(), "evicted"))
    assert isinstance(lost, Lost)
    assert member.feed(Leave()) == []
    assert member.feed(RevocationDone(lost.step)) == []
    assert member.machine.has_left


@pytest.mark.parametrize("instance_id", [None, "instance"], ids=["dynamic", "static"])
@pytest.mark.parametrize("code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_a_member_that_fails_while_leaving_has_left_after_on_partitions_lost(
    code: ErrorCode, instance_id: str | None
) -> None:
    """The application does not poll a consumer that it closes, so no next call could resume the member."""
    member = Member(instance_id).stable(T0)
    commit = SentCommit(member.token)
    [revoke] = member.feed(Leave())
    assert isinstance(revoke, Revoke)
    lost, fail = member.feed(Fatal(commit, broker_error(code)))
    assert isinstance(lost, Lost)
    assert isinstance(fail, Fail)
    assert not member.machine.has_left
    assert member.feed(RevocationDone(revoke.step)) == []
    farewell = member.feed(RevocationDone(lost.step))
    if instance_id is None:
        [leave] = farewell
        assert isinstance(leave, SendLeave)
        assert leave.member.member_id == "m-1"
        member.feed(Left(leave.step))
    assert member.machine.has_left


def test_leaving_after_a_failure_waits_for_on_partitions_lost() -> None:
    member = Member().stable(T0)
    lost, *_ = member.feed(Fatal(member.heartbeat(), broker_error(ErrorCode.FENCED_INSTANCE_ID)))
    assert isinstance(lost, Lost)
    assert member.feed(Leave()) == []
    assert not member.machine.has_left
    assert member.feed(RevocationDone(lost.step)) == []
    assert member.machine.has_left


def unpolled(member: Member) -> None:
    [lost] = stop_polling(member)
    assert isinstance(lost, Lost)
    assert member.feed(RevocationDone(lost.step)) == []


def refused(member: Member) -> None:
    lost, fail = member.feed(Fatal(member.heartbeat(), broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    assert isinstance(lost, Lost)
    assert isinstance(fail, Fail)
    assert member.feed(RevocationDone(lost.step)) == []


def unpolled_and_back(member: Member) -> None:
    """The JoinGroup has not gone out."""
    unpolled(member)
    assert [type(effect) for effect in member.feed(Polled())] == [SendJoin]


def unsubscribed(member: Member) -> None:
    [revoke] = member.feed(Subscribed(frozenset()))
    assert isinstance(revoke, Revoke)
    assert member.feed(RevocationDone(revoke.step)) == []


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
def test_a_static_member_that_has_gone_without_a_word_can_still_leave_its_group(
    goes: Callable[[Member], None], leave_group: bool | None, leaves_group: bool
) -> None:
    member = Member("instance").stable(T0)
    goes(member)
    effects = member.feed(Leave(leave_group))
    if leaves_group:
        [leave] = effects
        assert isinstance(leave, SendLeave)
        assert (leave.member.member_id, leave.member.group_instance_id) == ("m-1", "instance")
        assert not member.machine.has_left
        assert member.feed(Left(leave.step)) == []
    else:
        assert effects == []
    assert member.machine.has_left


def test_leaving_twice_revokes_once() -> None:
    member = Member().stable(T0)
    [revoke] = member.feed(Leave())
    assert isinstance(revoke, Revoke)
    assert member.feed(Leave(False)) == []
    assert member.feed(RevocationDone(revoke.step)) == [], "the second one wants no word"
    assert member.machine.has_left


def test_leaving_is_not_disturbed_by_the_poll_interval() -> None:
    member = Member().stable(T0)
    member.now = member.polls.last + MAX_POLL - 1.0
    [revoke] = member.feed(Leave())
    assert isinstance(revoke, Revoke)
    member.now += 2.0
    assert all(isinstance(effect, SendHeartbeat | ForgetCoordinator) for effect in member.feed(Tick()))
    [leave] = member.feed(RevocationDone(revoke.step))
    assert isinstance(leave, SendLeave)


def test_a_loss_that_takes_long_is_not_lost_again_by_the_poll_interval() -> None:
    member = Member().stable(T0)
    member.feed(IdentityLost(member.heartbeat(), "evicted"))
    assert member.machine.deadline == math.inf


def test_leaving_while_a_join_is_parked_sends_leave_group_if_it_has_a_member_id() -> None:
    member = Member()
    join = member.join()
    [again] = member.feed(MemberIdRequired(join.step, "m-1"))
    assert isinstance(again, SendJoin)
    [leave] = member.feed(Leave())
    assert isinstance(leave, SendLeave)
    assert leave.member.member_id == "m-1"
    assert member.feed(Joined(again.step, 1, "m-1", "leader", "range")) == []


def test_leaving_before_joining_is_done_at_once() -> None:
    member = Member()
    assert member.feed(Leave()) == []
    assert member.machine.has_left
    assert member.feed(Leave()) == []


def test_unsubscribing_leaves_the_group_and_subscribing_joins_again() -> None:
    member = Member().stable(T0)
    [revoke] = member.feed(Subscribed(frozenset()))
    assert isinstance(revoke, Revoke)
    [leave] = member.feed(RevocationDone(revoke.step))
    assert isinstance(leave, SendLeave)
    assert member.feed(Left(leave.step)) == []
    join = member.join()
    assert join.member == MemberToken()


def test_unsubscribing_while_a_join_is_parked_makes_its_answer_stale() -> None:
    member = Member()
    [join] = member.feed(MemberIdRequired(member.join().step, "m-1"))
    assert isinstance(join, SendJoin)
    [leave] = member.feed(Subscribed(frozenset()))
    assert isinstance(leave, SendLeave)
    assert member.feed(Joined(join.step, 1, "m-1", "leader", "range")) == []
    assert member.machine.state is State.UNJOINED


def back_at_once(member: Member, topics: frozenset[str]) -> SendJoin:
    """Unsubscribe and subscribe in one step; return the JoinGroup that this leads to."""
    [revoke] = member.feed(Subscribed(frozenset()))
    assert isinstance(revoke, Revoke)
    assert member.feed(Subscribed(topics)) == []
    [join] = member.feed(RevocationDone(revoke.step))
    assert isinstance(join, SendJoin)
    return join


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("protocol", RebalanceProtocol)
def test_a_static_member_that_is_back_at_once_joins_as_one_that_was_away(
    leads: bool, protocol: RebalanceProtocol
) -> None:
    """So the coordinator gives it the partitions that it had, without a rebalance. Its member id would cause one."""
    member = Member("instance", protocol)
    member = member.leading() if leads else member.stable(T0)
    join = back_at_once(member, TOPICS)
    assert (join.member, join.owned) == (MemberToken(group_instance_id="instance"), ())
    [sync] = member.feed(Joined(join.step, 1, "m-9", "leader", "range"))
    assert isinstance(sync, SendSync)
    [assign] = member.feed(Synced(sync.step, (T0,)))
    assert isinstance(assign, Assign)
    assert member.feed(Rebalancing(member.heartbeat())), "what came before is over"
    assert member.token.member_id == "m-9"


@pytest.mark.parametrize(("instance", "topics"), [("instance", frozenset({"u"})), (None, TOPICS), (None, {"u"})])
def test_a_member_that_is_back_with_other_topics_or_is_dynamic_asks_for_one_rebalance(
    instance: str | None, topics: frozenset[str]
) -> None:
    member = Member(instance).stable(T0)
    before = member.token
    assert back_at_once(member, frozenset(topics)).member == before


@pytest.mark.parametrize("how", ["lost", "too late"])
def test_a_static_member_whose_return_was_not_answered_does_not_name_its_former_id(how: str) -> None:
    """The coordinator may have replaced that id, and would fence the member for it.

    The new topics wait until the member has its new id: named without one, they would change no assignment.
    """
    member = Member("instance").stable(T0)
    unanswered = back_at_once(member, TOPICS)
    member.machine.wrote(unanswered)
    if how == "lost":
        assert member.feed(NotNow(unanswered, None)) == []
        member.feed(Subscribed(frozenset({"u"})))
        [join] = member.wait(BACKOFF)
    else:
        assert member.feed(Subscribed(frozenset())) == []
        [join] = member.feed(Subscribed(frozenset({"u"})))
    assert isinstance(join, SendJoin)
    assert (join.member, join.topics) == (MemberToken(group_instance_id="instance"), TOPICS)
    [sync] = member.feed(Joined(join.step, 1, "m-9", "leader", "range"))
    assert isinstance(sync, SendSync)
    [again] = member.feed(Synced(sync.step, (T0,)))
    assert isinstance(again, SendJoin)
    assert (again.member.member_id, again.topics) == ("m-9", frozenset({"u"}))


# Commits


def test_commits_carry_the_generation_while_it_is_valid() -> None:
    member = Member().stable(generation=9)
    assert member.machine.commit_token() == MemberToken(9, "m-1")
    revoke = member.revoking()
    assert member.machine.commit_token() == MemberToken(9, "m-1")
    member.feed(RevocationDone(revoke.step))
    with pytest.raises(BrokerError) as caught:
        member.machine.commit_token()
    assert caught.value.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert not isinstance(caught.value, CommitFailed)


def test_commits_outside_the_group_fail_here_and_say_why() -> None:
    member = Member()
    with pytest.raises(CommitFailed, match="has not joined its group yet"):
        member.machine.commit_token()
    member.stable(T0)
    member.feed(IdentityLost(member.heartbeat(), "the coordinator answered UNKNOWN_MEMBER_ID"))
    with pytest.raises(CommitFailed, match="UNKNOWN_MEMBER_ID"):
        member.machine.commit_token()


# Illegal events


def test_what_cannot_happen_is_a_named_error() -> None:
    member = Member()
    join = member.join()
    with pytest.raises(IllegalTransition, match=r"Synced cannot happen .* JOINING"):
        member.feed(Synced(join.step, ()))
    assert member.machine.state is State.JOINING
