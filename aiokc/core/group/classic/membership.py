"""The state machine of a classic group member: what follows from each answer (MEMBER_ID_REQUIRED, …), poll or tick.

transitions.py says which events can happen in which state, and which states they can lead to; any other raises.
owned_partitions.py holds the member's partitions, and decides which of them it must give up when. member_state.py holds
everything that the machine remembers, and answers the driver's questions. Three rules explain most of what follows:

1. The coordinator waits for all members in a rebalance. So a member that still gives up partitions (REVOKING) goes on
with its heartbeats until it sends its JoinGroup. While the coordinator holds the JoinGroup back, it needs no
heartbeats: the member only asks it now and then whether it is the coordinator still (join_pace.py). From the answer on
it needs heartbeats again.

2. A member names the partitions that it owns together with the newest generation that it knows, because a group leader
does not believe an older one. So the member can ignore an assignment that is out of date when it arrives: it never took
what that gave, and it still claims what that took away.

3. Only the coordinator takes partitions away (IdentityLost). A broken connection, or a coordinator that moved, says
nothing about the membership: the member looks up the coordinator and keeps its generation.
"""

from __future__ import annotations

from ....errors import AssignmentFailed, BrokerError, MemberFenced
from ....types import named
from ..events import (
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
    Leave,
    Left,
    Lost,
    MemberIdRequired,
    NotNow,
    Outcome,
    PartitionsCounted,
    Polled,
    ProtocolEvent,
    Rebalancing,
    Refusal,
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
    Wish,
)
from .member_state import MemberState
from .owned_partitions import Partitions
from .transitions import JOINING_OR_IN, NEXT, State


class Membership(MemberState):
    """The GroupMachine of the classic protocol: it handles events. Times in seconds."""

    # Events

    def on(self, event: Event, now: float) -> list[Effect]:
        if not self._identity.concerns(event, self._step, is_joining=self.state is State.JOINING):
            return []
        state = self.state
        targets = NEXT[state].get(type(event))
        if targets is None:
            raise IllegalTransition(state, event)
        effects = self._react(event, now)
        if self.state not in targets:
            raise IllegalTransition(f"{state}, and became {self.state}", event)
        return effects

    def _react(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Tick):
            return self._on_tick(now)
        if isinstance(event, Unpolled):
            return self._stop_polling(now)
        if isinstance(event, Wish):
            return self._on_wish(event, now)
        assert not isinstance(event, ProtocolEvent)  # of another protocol
        if self.state is State.JOINING and not self._intent.is_membership:
            return self._on_last_answer(event, now)
        return self._on_outcome(event, now) if isinstance(event, Outcome) else self._on_answer(event, now)

    def _on_tick(self, now: float) -> list[Effect]:
        self._intent.time_passes(now)
        if self._poll_limit <= now:
            return self._stop_polling(now)
        if self.state is State.JOINING:
            return self._on_tick_of_join(now)
        return self._heartbeats.due(self.member, now) if self._beats else []

    def _on_tick_of_join(self, now: float) -> list[Effect]:
        if self._join_pace.goes_at <= now:
            return self._go_on(now)
        if self._join_pace.due <= now:
            return self._join(now)
        if self._join_pace.check_at <= now:
            self._join_pace.checked(now)
            return [CheckCoordinator(self._join_pace.patience)]
        return []

    def _on_wish(self, event: Wish, now: float) -> list[Effect]:
        match event:
            case Subscribed():
                return self._on_subscribed(event, now)
            case Polled():
                self._intent.has_stopped_polling = False
                return self._on_polled(now)
            case Enforced():
                return self._rebalance(event.reason, now)
            case PartitionsCounted():
                self._leading.counted(event.counts)
                reason = "the partitions of the group's topics changed"
                return self._rebalance(reason, now) if self._leading.out_of_date else []
            case Leave():
                return self._on_leave(event, now)

    def _on_outcome(self, event: Outcome, now: float) -> list[Effect]:
        match event:
            case RevocationDone():
                return self._on_released(now)
            case Left():
                if self.state is State.LEAVING:
                    self._enter(State.LEFT)
                return []
            case Joined():
                return self._on_joined(event, now)
            case MemberIdRequired():
                return self._on_member_id_required(event, now)
            case Computed():
                self._leading.assigned(event.counts)
                self._enter(State.SYNCING)
                return [SendSync(self._step, self.member, self._protocol_name, event.assignments)]
            case Synced():
                return self._on_synced(event, now)

    def _on_answer(self, event: Alive | Refusal, now: float) -> list[Effect]:
        match event:
            case Alive():
                self._heartbeats.answered(event.sent, now)
                self._backoff.reset()
                return []
            case Rebalancing():
                return self._on_rebalancing(event.sent, now)
            case IdentityLost():
                self._forget_identity(event.reason, keep_member_id=event.keep_member_id)
                return self._lose(now)
            case CoordinatorLost():
                return [ForgetCoordinator(event.node_id), *self._try_later(event, now)]
            case NotNow():
                return self._try_later(event, now)
            case Fatal():
                return self._fail(event, now)

    # What the application wants

    def _on_subscribed(self, event: Subscribed, now: float) -> list[Effect]:
        topics = event.topics
        was_subscribed = bool(self._intent.topics)
        leaves_all = was_subscribed and not topics
        self._intent.subscribe(event, now)
        self._intent.had_left = self._intent.had_left or leaves_all
        if self.state is State.UNJOINED:
            self._join_reason = "the consumer subscribed"
            return self._proceed(now)
        self._join_reason = "the subscription changed"
        if self._intent.is_membership:
            self._join_pace.stays()
        is_news = self.state is State.STABLE and self._intent.is_news
        if is_news or (self.state in JOINING_OR_IN and not topics):
            return self._give_up(now)
        # unsubscribe() takes all partitions from the application. A revocation under way may be of fewer, and wait for
        # the application to process records that it does not hold any more, so a revocation of all replaces it. If the
        # application subscribes anew before that is over, the member must still not claim what was taken away.
        revokes = self.state is State.REVOKING and self._identity.in_generation and not self._intent.leaves
        if revokes and leaves_all and self._held.owned:
            return self._give_up(now)
        # The next subscription is a new attempt, also where the failure came after unsubscribe(): nobody heard of it.
        if self.state is State.FAILED and not (topics and was_subscribed):
            return self._resume(now)
        return []  # the next JoinGroup names the new topics

    def _on_polled(self, now: float) -> list[Effect]:
        if self.state is State.FAILED and self._may_try_again:
            return self._resume(now)
        return self._proceed(now) if self.state is State.UNJOINED else []

    def _on_leave(self, event: Leave, now: float) -> list[Effect]:
        again = self._intent.leaves
        self._intent.leave(now)
        if event.leave_group is not None:
            self._identity.may_leave = event.leave_group
        if self.state is State.FAILED:
            return self._resume(now)
        # A loss, and a revocation of nothing, wait for nothing: their RevocationDone comes by itself.
        comes = self.state is State.REVOKING and (again or not (self._identity.in_generation and self._held.owned))
        if comes or self.state in State.LEAVING | State.LEFT:
            return []
        return self._give_up(now, wait=False)

    def _resume(self, now: float) -> list[Effect]:
        """Go on after a failure, because the application polled, unsubscribed or closes the consumer."""
        if self._held.owned:  # the listener is still being told of their loss: its RevocationDone leads on
            self.state = State.REVOKING
            return []
        self._enter(State.UNJOINED)
        return self._proceed(now)

    def _stop_polling(self, now: float) -> list[Effect]:
        """The application stopped polling: leave, so that others get the partitions (static: after session_timeout)."""
        return [*self._goodbye(self._intent.stop_polling()), *self._lose(now)]

    # Giving up partitions

    def _rebalance(self, reason: str, now: float) -> list[Effect]:
        """Begin a rebalance, unless the member is on its way to an assignment already, or in no group."""
        if self.state is not State.STABLE:
            return []
        self._join_reason = reason
        return self._give_up(now)

    def _give_up(self, now: float, *, wait: bool = True) -> list[Effect]:
        """Give up what the member cannot keep on its way to what the application wants, and then go there."""
        going = self._held.not_to_be_kept(self._intent.goal)
        # An eager rebalance begins with a revocation, even of nothing: Java's members tell their listeners so, too.
        begins = self.state is State.STABLE and bool(self._intent.goal) and not self._held.is_cooperative
        return self._release(going, wait=wait) if going or begins else self._proceed(now)

    def _release(self, partitions: Partitions, wait: bool = True, then: Partitions | None = None) -> list[Effect]:
        self._held.begin_revocation(partitions, then)
        self._enter(State.REVOKING)
        return [Revoke(self._step, partitions, wait)]

    def _lose(self, now: float) -> list[Effect]:
        if not self._held.owned:  # if it is revoking nothing, the RevocationDone leads on
            return [] if self.state is State.REVOKING else self._proceed(now)
        self._enter(State.REVOKING)
        return self._drop_all()

    def _drop_all(self) -> list[Effect]:
        owned = self._held.owned
        self._held.begin_revocation(owned)
        return [Lost(self._step, owned, self._identity.why_outside)] if owned else []

    def _on_released(self, now: float) -> list[Effect]:
        promised = self._held.end_revocation()
        if self.state is not State.REVOKING:
            return []
        if promised is None or self._intent.is_news:
            return self._give_up(now)
        return [self._assign(promised), *self._give_up(now)]

    def _fail(self, event: Fatal, now: float) -> list[Effect]:
        # The coordinator may grant later what it refuses now. But a member that another one has fenced, or whose
        # assignor is defective, would only disturb the group again.
        self._may_try_again = isinstance(event.error, BrokerError) and not isinstance(event.error, MemberFenced)
        if self._intent.leaves:  # no call comes any more that could resume it: it goes on leaving, without a commit
            self._forget_identity(f"it failed: {event.error}", keep_member_id=True)
            return [*self._lose(now), Fail(event.error)]
        farewell = self._goodbye(f"it failed: {event.error}")
        self._enter(State.FAILED)
        return [*self._drop_all(), *farewell, Fail(event.error)]

    def _proceed(self, now: float) -> list[Effect]:
        """The member has given up what it had to: go where the application wants to be."""
        if self._goes_without_id:
            self._join_pace.waits_for_id(now)
            return []
        return self._go_on(now)

    def _go_on(self, now: float) -> list[Effect]:
        """Go there, with a member id or without one."""
        had_left, self._intent.had_left = self._intent.had_left, False
        if self._intent.leaves:
            if self._identity.is_static and self._identity.may_leave and not self._intent.wants_nothing:
                # Where it was not polled, or failed, it has gone without a word. The group still waits for it. If
                # another process has taken its place, the coordinator refuses to remove that for this former member id.
                self._identity.recall()
            self._enter(State.LEAVING if self._identity.says_goodbye else State.LEFT)
            return self._goodbye("the consumer is being closed")
        if not self._intent.is_membership:
            stopped = self._intent.has_stopped_polling  # then it has sent its LeaveGroup
            farewell = [] if stopped else self._goodbye("the consumer unsubscribed from all topics")
            self._enter(State.UNJOINED)
            self._join_pace.rebalance_is_over()
            return farewell
        if self.state is State.UNJOINED:
            self._intent.begins(now)
        if had_left and self._identity.is_static and not self._intent.is_news:
            # A static member that comes back to the same topics gets what it had, without a rebalance (KIP-345,
            # KIP-814). With its member id it would cause a rebalance: a group leader always, others by new metadata.
            self._forget_identity("the consumer unsubscribed from all topics, and subscribed to the same again")
        return self._join_again(now)

    def _on_last_answer(self, event: Outcome | Alive | Refusal, now: float) -> list[Effect]:
        """The member only waited for this answer to its JoinGroup: it leaves by the id that the answer names."""
        if isinstance(event, Joined | MemberIdRequired):
            self._identity.become(-1, event.member_id)
        elif isinstance(event, NotNow) and event.resigns_as is not None and not self._identity.is_static:
            self._identity.become(-1, event.resigns_as)
        lost = [ForgetCoordinator(event.node_id)] if isinstance(event, CoordinatorLost) else []
        return [*lost, *self._go_on(now)]

    def _goodbye(self, reason: str) -> list[Effect]:
        leave = [SendLeave(self._step, self.member, reason)] if self._identity.says_goodbye else []
        self._forget_identity(reason)
        return [*leave]

    # Joining

    def _join_again(self, now: float) -> list[Effect]:
        return self._join(now) if self._join_pace.at_once() else self._join_later(now)

    def _join_later(self, now: float) -> list[Effect]:
        self._enter(State.JOINING)
        self._join_pace.put_off(now)
        return []

    def _join(self, now: float) -> list[Effect]:
        self._enter(State.JOINING)
        self._join_pace.sent(now)
        # Without its member id, the group would take a static member for a new process with the same subscription, and
        # keep the old assignment (KIP-345): no member would get the partitions of topics that are new in the
        # subscription. But if the answer to a JoinGroup without that id was lost, or came too late, the coordinator may
        # have replaced the id. Then the member first comes back with the subscription that the group knows, and joins
        # once more, with its new id, for the new topics. If it named them at once, and then the former ones again, it
        # would take an assignment that was made in between, without some of them, for that of the former ones.
        if not (self._identity.is_static and self._intent.is_news) or self._identity.recall():
            self._intent.told = self._intent.topics
        told, wanted = self._intent.told, self._intent.topics
        return [SendJoin(self._step, self.member, told, self._held.owned, self._join_reason, self._held.last, wanted)]

    def _on_member_id_required(self, event: MemberIdRequired, now: float) -> list[Effect]:
        """MEMBER_ID_REQUIRED (KIP-394): join again under the id that the coordinator gave."""
        had_none = not self.member.member_id
        if self._held.owned:
            self._forget_identity("the coordinator did not know it any more")
        self._identity.become(-1, event.member_id)
        if self._held.owned:
            return self._lose(now)
        return self._join(now) if had_none else self._join_later(now)

    def _on_joined(self, event: Joined, now: float) -> list[Effect]:
        self._identity.become(event.generation_id, event.member_id)
        self._protocol_name = event.protocol_name
        self._heartbeats.start(now)
        if event.leader_id != event.member_id:
            self._leading.end()
            self._enter(State.SYNCING)
            return [SendSync(self._step, self.member, event.protocol_name, {})]
        self._enter(State.ASSIGNING)
        task = ComputeAssignment(self._step, event.protocol_name, event.members, event.skip_assignment)
        self._leading.begin(task.topics, event.generation_id, keeps=event.skip_assignment)
        return [task]

    def _on_synced(self, event: Synced, now: float) -> list[Effect]:
        if self._intent.is_news or self._leading.out_of_date:
            return self._give_up(now)  # this assignment is out of date already
        if topics := self._intent.not_subscribed(event.partitions):
            self._join_reason = "the assignment holds topics that this member does not subscribe to"
            error = AssignmentFailed(
                f"the group assigned this member partitions of {named(topics)}, to which it does not subscribe "
                "(the assignor of its leader, or of its coordinator, ignored that): it takes nothing, and joins again"
            )
            return [Complain(error), *self._join_later(now)]
        self._join_pace.rebalance_is_over()
        self._backoff.reset()
        self._user_data = event.user_data
        complaints: list[Effect] = [] if event.complaint is None else [Complain(event.complaint)]
        taken_away = self._held.assigned(event.partitions, self.member.generation_id)
        if taken_away:
            self._join_reason = f"gave up {len(taken_away)} partitions, which the next assignment can hand on"
            return [*self._release(taken_away, then=event.partitions), *complaints]
        self._enter(State.STABLE)
        if self._held.is_cooperative:
            self._heartbeats.expect_another_round(now)
        return [self._assign(event.partitions), *complaints]

    def _assign(self, partitions: Partitions) -> Assign:
        added = self._held.take(partitions)
        return Assign(self.member, partitions, added, self._protocol_name, self._user_data)

    def _on_rebalancing(self, sent: Sent, now: float) -> list[Effect]:
        if isinstance(sent, SendHeartbeat):
            self._heartbeats.answered(sent, now)
        elif not isinstance(sent, SentCommit):
            return self._join_again(now)
        return self._rebalance("the group is rebalancing", now)

    def _try_later(self, event: NotNow | CoordinatorLost, now: float) -> list[Effect]:
        sent, error = event.sent, event.error
        if isinstance(sent, SentCommit):  # the sender of the commit reports and retries it
            return []
        complaint: list[Effect] = [] if error is None else [Complain(error, sent)]
        if isinstance(event, NotNow) and event.resigns_as is not None:
            return [*complaint, *self._resign(event.resigns_as, now)]
        if isinstance(sent, SendHeartbeat):
            self._heartbeats.failed(sent, now)
        else:
            self._join_later(now)
        return complaint

    def _resign(self, member_id: str, now: float) -> list[Effect]:
        """Leave, so that the group gets another leader, and join again later. A static member stays its leader.

        Else the group would wait in the SyncGroup for this leader, until the coordinator removes it. Before JoinGroup
        v4 a new member has ``member_id`` from this very answer.
        """
        if not self._identity.is_static:
            self._identity.become(-1, member_id)
        if not self._identity.says_goodbye:
            return self._join_later(now)
        farewell = self._goodbye("it cannot lead the group")
        return [*farewell, *(self._lose(now) if self._held.owned else self._join_later(now))]
