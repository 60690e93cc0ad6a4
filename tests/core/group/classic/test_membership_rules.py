"""Invariants of a member: they hold with any answer, at any time, to any request that it ever sent, even answered
twice.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiokc.assignor import MemberSubscription, RebalanceProtocol
from aiokc.core.backoff import Backoff
from aiokc.core.group.classic.membership import Membership
from aiokc.core.group.classic.transitions import NEXT, State
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
    Sent,
    SentCommit,
    Subscribed,
    Synced,
    Tick,
    Unpolled,
)
from aiokc.error_codes import ErrorCode
from aiokc.errors import AssignmentFailed, BrokerError, broker_error
from aiokc.types import TopicPartition
from tests.suite.examples import examples

SESSION, INTERVAL, MAX_POLL = 10.0, 3.0, 30.0


EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


def new_membership(polls: PollClock, protocol: RebalanceProtocol = EAGER, instance_id: str | None = None) -> Membership:
    return Membership(
        session_timeout=SESSION,
        heartbeat_interval=INTERVAL,
        max_poll_interval=MAX_POLL,
        polls=polls,
        backoff=Backoff(0.1, 1.0, Random(0)),
        protocol=protocol,
        group_instance_id=instance_id,
    )


some_topics = st.frozensets(st.sampled_from("abc"), max_size=2)
some_counts = st.dictionaries(st.sampled_from("abc"), st.integers(1, 3))
some_ids = st.sampled_from(["m-1", "m-2"])


class MemberRules(RuleBasedStateMachine):
    """A membership machine between an application that acts at random and coordinators that answer at random."""

    instance_id: str | None = None
    protocol = EAGER

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.polls = PollClock()
        self.machine = new_membership(self.polls, self.protocol, self.instance_id)
        self.sent: list[Effect | SentCommit] = []
        self.held: set[TopicPartition] = set()
        self.read: set[TopicPartition] = set()  # what is not wanted is read no more, until an Assign comes
        self.topics: frozenset[str] = frozenset()
        self.left: set[TopicPartition] = set()  # by unsubscribing while the member owned them
        self.release: Revoke | Lost | None = None  # the newest one, until its RevocationDone
        self.generation = MemberToken(group_instance_id=self.instance_id)
        self.last_generation_id = 0
        self.failed = False
        self.is_raised = False  # to the application: not where it has unsubscribed
        self.leaves = False
        self.joins_go_out = True
        self.may_leave = self.instance_id is None

    def feed(self, event: Event) -> list[Effect]:
        before = self.machine.state
        if isinstance(event, RevocationDone) and self.release is not None and event.step == self.release.step:
            self.held -= set(self.release.partitions)
            self.read &= self.held
            self.left &= self.held
            self.release = None
        effects = self.machine.on(event, self.now)
        if effects or self.machine.state is not before:
            assert self.machine.state in NEXT[before][type(event)]
        for effect in effects:
            self.check(effect)
            self.sent.append(effect)
        return effects

    def check(self, effect: Effect) -> None:
        match effect:
            case Assign():
                assert self.held <= set(effect.partitions), "taken away without a release"
                assert set(effect.added) == set(effect.partitions) - self.held, "assigned again without a release"
                assert not self.held or self.protocol is COOPERATIVE
                assert self.release is None
                assert effect.member == self.machine.member == self.generation
                assert not self.left, "nobody reads what the user has left"
                self.held = set(effect.partitions)
                self.read = self.of_wanted(self.held)
            case Revoke() | Lost():
                going = set(effect.partitions)
                begins = isinstance(effect, Revoke) and self.protocol is not COOPERATIVE and not self.held
                assert going or begins, "only an eager rebalance begins with a revocation of nothing"
                assert going <= self.held, "revoked what is not held, or twice"
                assert going == self.held or (self.protocol is COOPERATIVE and isinstance(effect, Revoke))
                assert self.release is None or going >= set(self.release.partitions), "forgot an earlier release"
                assert not isinstance(self.release, Lost), "what is lost cannot be given up any more"
                assert isinstance(effect, Lost) or self.release is None or not (effect.wait and self.topics)
                assert isinstance(effect, Lost) == (self.machine.member.generation_id < 0), "who may still commit?"
                self.release = effect
            case SendJoin():
                assert not self.held or self.protocol is COOPERATIVE, "an eager member joins with empty hands"
                assert set(effect.owned) == self.held
                assert not self.left, "claimed, and nobody reads it"
                assert self.release is None
                assert not self.held or effect.member.generation_id >= 0, "a claim without a generation"
                assert effect.member.member_id == self.machine.member.member_id
                if self.joins_go_out:
                    self.machine.wrote(effect)
            case SendHeartbeat() | SendSync():
                assert effect.member == self.machine.member == self.generation, "an old generation"
                assert effect.member.generation_id >= 0
                assert self.machine.state in ~State.JOINING
            case SendLeave():
                assert self.may_leave
                assert effect.member.member_id
                assert self.machine.member.member_id == "", "nobody goes on under a name that has left"
            case Fail():
                self.failed, self.is_raised = True, bool(self.topics)
            case CheckCoordinator():
                assert self.machine.state is State.JOINING
            case ComputeAssignment() | ForgetCoordinator() | Complain():
                pass

    @initialize(has_joined=st.booleans(), joins_go_out=st.booleans())
    def begin(self, has_joined: bool, joins_go_out: bool) -> None:
        """Half of the runs begin with a STABLE member: few would ever get there by themselves."""
        self.joins_go_out = joins_go_out
        if not has_joined:
            return
        self.topics = frozenset({"a", "b"})
        [join] = self.feed(Subscribed(self.topics))
        assert isinstance(join, SendJoin)
        self.last_generation_id = 1
        self.generation = MemberToken(1, "m-1", self.instance_id)
        [sync] = self.feed(Joined(join.step, 1, "m-1", "m-2", "range"))
        assert isinstance(sync, SendSync)
        self.feed(Synced(sync.step, (TopicPartition("a", 0), TopicPartition("b", 0))))

    # The application and the clock

    @rule()
    def enforce_rebalance(self) -> None:
        self.feed(Enforced("the user says so"))

    @rule(topics=some_topics)
    def subscribe(self, topics: frozenset[str]) -> None:
        if self.topics and not topics:
            self.left |= self.held
        self.topics = topics
        self.read = self.of_wanted(self.read)
        self.feed(Subscribed(topics))

    def of_wanted(self, partitions: set[TopicPartition]) -> set[TopicPartition]:
        return {tp for tp in partitions if tp.topic in self.topics}

    @precondition(lambda self: self.held or self.machine.state not in State.UNJOINED | State.JOINING)
    @rule(leave_group=st.sampled_from([None, True, False]))
    def leave(self, leave_group: bool | None) -> None:
        self.leaves = True
        self.may_leave = leave_group if leave_group is not None else self.may_leave
        self.feed(Leave(leave_group))

    @precondition(lambda self: self.leaves and self.machine.member.generation_id >= 0)
    @rule(data=st.data())
    def the_last_commit_is_refused(self, data: st.DataObject) -> None:
        self.feed(data.draw(refusals(SentCommit(self.machine.member))))
        self.generation = self.machine.member

    @rule(waiting=st.booleans())
    def poll(self, waiting: bool) -> None:
        self.polls.last, self.polls.waiting = self.now, waiting
        if self.machine.needs_poll or (self.machine.has_failed and self.is_raised):
            self.feed(Polled())

    @rule(late=st.sampled_from([0.0, 0.5, 50.0]))
    def time_passes_until_the_deadline(self, late: float) -> None:
        if self.machine.deadline < float("inf"):
            self.now = max(self.now, self.machine.deadline + late)
            self.feed(Tick())
            assert self.machine.deadline > self.now, "a Tick that changes nothing would come again at once, for ever"

    @precondition(lambda self: self.machine.plan is not None)
    @rule(stale=st.booleans())
    def the_watchdog_has_left_the_group(self, stale: bool) -> None:
        assert self.machine.plan is not None
        member = MemberToken(0, "of old") if stale else self.machine.plan.member
        effects = self.feed(Unpolled(member))
        assert not stale or effects == []
        assert stale or self.machine.needs_poll

    @rule(counts=some_counts)
    def metadata_changes(self, counts: dict[str, int]) -> None:
        self.feed(PartitionsCounted(counts))

    @rule()
    def commit(self) -> None:
        try:
            token = self.machine.commit_token()
        except BrokerError:
            assert self.machine.state not in State.STABLE
            return
        assert token == self.generation
        assert token.generation_id >= 0
        assert self.held or self.machine.state is State.STABLE
        self.sent.append(SentCommit(token))

    @precondition(lambda self: self.release is not None)
    @rule()
    def the_driver_releases(self) -> None:
        assert self.release is not None
        self.feed(RevocationDone(self.release.step))

    # The coordinators: an answer to any request ever sent

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), age=st.integers(0, 5))
    def answer(self, data: st.DataObject, age: int) -> None:
        sent = self.sent[-1 - min(age, len(self.sent) - 1)]
        before = self.machine.member
        match sent:
            case SendJoin():
                self._answer_join(sent, data)
            case SendSync():
                topics = st.sampled_from(sorted(self.machine._intent.told) or ["a"])
                partitions = data.draw(st.lists(st.builds(TopicPartition, topics, st.integers(0, 2)), unique=True))
                self._answered_or_refused(sent, Synced(sent.step, tuple(partitions)), data)
            case SendHeartbeat() | SentCommit():
                answers = refusals(sent)
                if isinstance(sent, SendHeartbeat):
                    answers |= st.just(Alive(sent))
                effects = self.feed(data.draw(answers))
                assert effects == [] or sent.member == self.generation, "a word about an older generation"
            case SendLeave():
                self.feed(Left(sent.step))
            case ComputeAssignment():
                computed = Computed(sent.step, {}, data.draw(some_counts))
                failed = Fatal(sent, AssignmentFailed("the assignor raised"))
                self.feed(failed if data.draw(st.integers(0, 3)) == 0 else computed)
            case Revoke() | Lost() if sent is not self.release:
                assert self.feed(RevocationDone(sent.step)) == []
            case _:
                pass
        if self.machine.member != before:
            self.generation = self.machine.member

    def _answer_join(self, sent: SendJoin, data: st.DataObject) -> None:
        self.last_generation_id += 1
        member_id = sent.member.member_id or data.draw(some_ids)
        leader = data.draw(some_ids)
        joined = Joined(
            sent.step,
            self.last_generation_id,
            member_id,
            leader,
            "range",
            (JoinedMember(member_id, MemberSubscription(sent.topics)),) if leader == member_id else (),
        )
        if sent.step == self.machine._step and data.draw(st.booleans()):
            self.generation = MemberToken(self.last_generation_id, member_id, self.instance_id)
            self.feed(joined)
        elif sent.step != self.machine._step and data.draw(st.booleans()):
            assert self.feed(joined) == []  # late
        else:
            self._answered_or_refused(sent, MemberIdRequired(sent.step, data.draw(some_ids)), data)

    def _answered_or_refused(self, sent: Sent, answer: Event, data: st.DataObject) -> None:
        self.feed(data.draw(st.one_of(st.just(answer), refusals(sent))))

    # What always holds

    @invariant()
    def a_revocation_is_waited_for_only_while_something_is_held(self) -> None:
        if self.release is not None:
            assert self.held >= set(self.release.partitions)
            assert self.machine.state in State.REVOKING | State.FAILED

    @invariant()
    def a_member_that_has_failed_or_left_asks_for_nothing(self) -> None:
        if self.machine.state in State.FAILED | State.LEFT | State.UNJOINED:
            assert self.machine.deadline == float("inf")
            assert self.machine.member.generation_id == -1

    @invariant()
    def a_member_that_holds_partitions_is_bound_by_the_poll_interval(self) -> None:
        bound = self.machine.state in State.JOINING | State.ASSIGNING | State.SYNCING | State.STABLE
        if self.held and bound:
            assert self.machine.deadline <= self.polls.last + MAX_POLL

    @invariant()
    def a_stable_member_reads_all_that_it_holds(self) -> None:
        """Topics may have been dropped and wanted again meanwhile."""
        if self.machine.state is State.STABLE:
            assert self.read == self.held == self.of_wanted(self.held)

    @invariant()
    def a_heartbeat_plan_is_for_the_members_own_generation(self) -> None:
        plan = self.machine.plan
        assert plan is None or plan.member == self.machine.member == self.generation
        assert plan is None or self.machine.state not in State.JOINING | State.LEAVING | State.LEFT | State.FAILED

    @invariant()
    def the_application_is_told_of_a_failure(self) -> None:
        assert self.failed or self.machine.state is not State.FAILED
        assert self.is_raised or not (self.machine.has_failed and self.topics), "it would wait for ever"

    @invariant()
    def a_leaving_member_revokes_or_leaves_or_has_left(self) -> None:
        assert not self.leaves or self.machine.state in State.REVOKING | State.LEAVING | State.LEFT

    @invariant()
    def a_member_that_has_left_has_nothing(self) -> None:
        assert not self.machine.has_left or (self.release is None and not self.held)

    def teardown(self) -> None:
        """From any state, leaving ends with only those events that the driver can always supply by itself."""
        effects: list[Effect | SentCommit] = list(self.sent)
        if not self.leaves:
            effects += self.feed(Leave())
        if self.machine.state is State.JOINING:  # it waits for its member id, but not for ever
            self.now = self.machine.deadline
            effects += self.feed(Tick())
        for _ in range(2):
            if self.release is not None:
                effects += self.feed(RevocationDone(self.release.step))
            for effect in effects:
                if isinstance(effect, SendLeave):
                    self.feed(Left(effect.step))
        assert self.machine.has_left
        assert not self.held


def refusals(sent: Sent) -> st.SearchStrategy[Event]:
    return st.sampled_from(
        [
            Rebalancing(sent),
            IdentityLost(sent, "evicted"),
            IdentityLost(sent, "evicted", keep_member_id=True),
            CoordinatorLost(sent, 1),
            NotNow(sent),
            Fatal(sent, AssignmentFailed("fatal")),
            Fatal(sent, broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)),
            Fatal(sent, broker_error(ErrorCode.FENCED_INSTANCE_ID)),
        ]
    )


class StaticMemberRules(MemberRules):
    instance_id = "instance"


class CooperativeMemberRules(MemberRules):
    protocol = COOPERATIVE


class StaticCooperativeMemberRules(StaticMemberRules):
    protocol = COOPERATIVE


# Each run takes a few ms, but the machine may be busy.
_SETTINGS = settings(examples(100, thorough=500), stateful_step_count=40)
TestMember = MemberRules.TestCase
TestStaticMember = StaticMemberRules.TestCase
TestCooperativeMember = CooperativeMemberRules.TestCase
TestStaticCooperativeMember = StaticCooperativeMemberRules.TestCase
TestMember.settings = TestStaticMember.settings = _SETTINGS
TestCooperativeMember.settings = TestStaticCooperativeMember.settings = _SETTINGS


# Every pair of state and event: the event leads where the table says, or raises and changes nothing.


def _into(state: State, protocol: RebalanceProtocol) -> Membership:
    """Return a member in ``state``: a cooperative one with a partition where it can have one."""
    polls = PollClock()
    machine = new_membership(polls, protocol)
    if state is State.UNJOINED:
        return machine
    [join] = machine.on(Subscribed(frozenset("a")), 0.0)
    assert isinstance(join, SendJoin)
    if protocol is COOPERATIVE and state in State.JOINING | State.ASSIGNING | State.SYNCING:
        machine.on(Joined(join.step, 1, "m", "other", "range"), 0.0)
        machine.on(Synced(machine._step, (TopicPartition("a", 0),)), 0.0)
        [join] = machine.on(Enforced("the user says so"), 0.0)
        assert isinstance(join, SendJoin)
        assert join.owned
    if state is State.JOINING:
        return machine
    leader = "m" if state is State.ASSIGNING else "other"
    machine.on(
        Joined(join.step, 1, "m", leader, "range", (JoinedMember("m", MemberSubscription(frozenset("a"))),)), 0.0
    )
    if state in State.ASSIGNING | State.SYNCING:
        return machine
    if state in State.LEAVING | State.LEFT:
        [leave] = machine.on(Leave(), 0.0)
        assert isinstance(leave, SendLeave)
        if state is State.LEFT:
            machine.on(Left(leave.step), 0.0)
        return machine
    machine.on(Synced(machine._step, (TopicPartition("a", 0),)), 0.0)
    commit = SentCommit(machine.member)
    if state is State.REVOKING:
        machine.on(Subscribed(frozenset("b")), 0.0)
    if state is State.FAILED:
        machine.on(Fatal(commit, AssignmentFailed("fatal")), 0.0)
    return machine


def _current(machine: Membership) -> Sent:
    """Return a request that the member may have sent in its state, so that an answer to it is not stale."""
    if machine.member.generation_id >= 0:
        return SendHeartbeat(1, machine.member)
    return SendJoin(machine._step, machine.member, frozenset("a"), (), "")


def _answer(machine: Membership) -> Sent:
    """Do the same, but for a joining member return a JoinGroup, because it ignores answers to heartbeats."""
    return (
        SendJoin(machine._step, machine.member, frozenset("a"), (), "")
        if machine.state is State.JOINING
        else (_current(machine))
    )


EVENTS: dict[type[Event], Callable[[Membership], Event]] = {
    Subscribed: lambda _: Subscribed(frozenset("a")),
    Polled: lambda _: Polled(),
    Enforced: lambda _: Enforced("the user says so"),
    Leave: lambda _: Leave(),
    Tick: lambda _: Tick(),
    PartitionsCounted: lambda _: PartitionsCounted({"a": 2}),
    RevocationDone: lambda m: RevocationDone(m._step),
    Computed: lambda m: Computed(m._step, {}, {}),
    Joined: lambda m: Joined(m._step, 2, "m", "other", "range"),
    MemberIdRequired: lambda m: MemberIdRequired(m._step, "m"),
    Synced: lambda m: Synced(m._step, ()),
    Alive: lambda m: Alive(SendHeartbeat(1, m.member)),
    Left: lambda m: Left(m._step),
    Unpolled: lambda m: Unpolled(m.member),
    Rebalancing: lambda m: Rebalancing(_answer(m)),
    IdentityLost: lambda m: IdentityLost(_answer(m), "evicted"),
    CoordinatorLost: lambda m: CoordinatorLost(_answer(m), 1),
    NotNow: lambda m: NotNow(_answer(m)),
    Fatal: lambda m: Fatal(_answer(m), AssignmentFailed("fatal")),
}


@pytest.mark.parametrize("protocol", RebalanceProtocol, ids=lambda protocol: protocol.name)
@pytest.mark.parametrize("state", State, ids=str)
@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_event_in_every_state(state: State, kind: type[Event], protocol: RebalanceProtocol) -> None:
    machine = _into(state, protocol)
    assert machine.state is state
    event = EVENTS[kind](machine)
    if kind in NEXT[state]:
        machine.on(event, 0.0)
        assert machine.state in NEXT[state][kind]
    elif kind in (Alive, Unpolled):  # no generation, so no heartbeat to answer, and no plan for the watchdog thread
        assert machine.on(event, 0.0) == []
    else:
        with pytest.raises(IllegalTransition):
            machine.on(event, 0.0)
        assert machine.state is state


def test_the_table_knows_every_state() -> None:
    assert set(NEXT) == set(State)
    assert set(EVENTS) == {kind for row in NEXT.values() for kind in row}
