"""Membership in a group by the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

transitions.py says which events can happen in which state and where they can lead; everything else raises. What is
held while all this goes on, and what has to go when, is in owned_partitions.py; what is remembered and can be asked, in
member_state.py. Three rules explain most of what follows:

A rebalance waits for its members, so a member that still has something to hand over (REVOKING) goes on with its
heartbeats until it really asks to join; while the JoinGroup is parked the coordinator needs none; from its answer on
it does again.

Whatever a member says that it owns, it says with the newest generation that it was told of: a leader believes no
older one. So an assignment that is out of date when it arrives can be passed over: what it gave was never taken, and
what it took away is still claimed.

Only the coordinator's own word takes partitions away (IdentityLost). A broken connection or a coordinator that moved
says nothing about the membership: look for the coordinator, keep the generation.
"""

from __future__ import annotations

from ....errors import BrokerError, MemberFenced
from ..events import (
    Alive,
    Assign,
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
    """A member of one group, by the classic protocol: how it moves. Times in seconds."""

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
        return self._on_outcome(event, now) if isinstance(event, Outcome) else self._on_answer(event, now)

    def _on_tick(self, now: float) -> list[Effect]:
        self._intent.time_passes(now)
        if self._poll_limit <= now:
            return self._stop_polling(now)
        if self.state is State.JOINING and self._join_pace.due <= now:
            return self._join()
        return self._heartbeats.due(self.member, now) if self._beats else []

    def _on_wish(self, event: Wish, now: float) -> list[Effect]:
        match event:
            case Subscribed():
                return self._on_subscribed(event.topics, now)
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

    # What the user wants

    def _on_subscribed(self, topics: frozenset[str], now: float) -> list[Effect]:
        leaves_all = bool(self._intent.topics) and not topics
        self._intent.topics = topics
        self._intent.had_left = self._intent.had_left or leaves_all
        if self.state is State.UNJOINED:
            self._join_reason = "the consumer subscribed"
            return self._proceed(now)
        self._join_reason = "the subscription changed"
        is_news = self.state is State.STABLE and self._intent.is_news
        if is_news or (self.state in JOINING_OR_IN and not topics):
            return self._give_up(now)
        # A revocation under way may be of less, and wait for a user who holds nothing any more. That he may subscribe
        # anew before it is over changes nothing: what he had is not his since then.
        revokes = self.state is State.REVOKING and self._identity.in_generation and not self._intent.leaves
        if revokes and leaves_all and self._held.owned:
            return self._give_up(now)
        if self.state is State.FAILED and not topics:  # he wants nothing of this group: what he wants next is news
            return self._resume(now)
        return []  # the next JoinGroup says it

    def _on_polled(self, now: float) -> list[Effect]:
        if self.state is State.FAILED and self._may_try_again:
            return self._resume(now)
        return self._proceed(now) if self.state is State.UNJOINED else []

    def _on_leave(self, event: Leave, now: float) -> list[Effect]:
        again, self._intent.leaves = self._intent.leaves, True
        if event.leave_group is not None:
            self._identity.may_leave = event.leave_group
        if self.state is State.FAILED:
            return self._resume(now)
        # A loss, and a revocation of nothing, are not waited for by anybody: their Released comes by itself.
        comes = self.state is State.REVOKING and (again or not (self._identity.in_generation and self._held.owned))
        if comes or self.state in State.LEAVING | State.LEFT:
            return []
        return self._give_up(now, wait=False)

    def _resume(self, now: float) -> list[Effect]:
        """The user wants something of a member that has failed."""
        if self._held.owned:  # their loss is still being told: its Released leads on
            self.state = State.REVOKING
            return []
        self._enter(State.UNJOINED)
        return self._proceed(now)

    def _stop_polling(self, now: float) -> list[Effect]:
        """The user does not come back: let others have the partitions (a static member: after session_timeout)."""
        return [*self._goodbye(self._intent.stop_polling()), *self._lose(now)]

    # Giving up what is held

    def _rebalance(self, reason: str, now: float) -> list[Effect]:
        """The group is to assign anew: no news to a member that is on its way to that."""
        if self.state is not State.STABLE:
            return []
        self._join_reason = reason
        return self._give_up(now)

    def _give_up(self, now: float, *, wait: bool = True) -> list[Effect]:
        """Release what cannot be kept on the way to where the user wants to be, and then go there."""
        going = self._held.not_to_be_kept(self._intent.goal)
        # An eager rebalance begins with a revocation, also of nothing: Java's members tell their listeners so.
        begins = self.state is State.STABLE and bool(self._intent.goal) and not self._held.is_cooperative
        return self._release(going, wait=wait) if going or begins else self._proceed(now)

    def _release(self, partitions: Partitions, wait: bool = True, then: Partitions | None = None) -> list[Effect]:
        self._held.begin_revocation(partitions, then)
        self._enter(State.REVOKING)
        return [Revoke(self._step, partitions, wait)]

    def _lose(self, now: float) -> list[Effect]:
        if not self._held.owned:  # and if nothing is being revoked, its Released leads on
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
        # What a coordinator refuses may be granted a moment later. Whose place another one has, or whose assignor is
        # defective, would only disturb the group again.
        self._may_try_again = isinstance(event.error, BrokerError) and not isinstance(event.error, MemberFenced)
        if self._intent.leaves:  # nobody asks it for anything any more: it goes on leaving, with nothing to hand over
            self._forget_identity(f"it failed: {event.error}", keep_member_id=True)
            return [*self._lose(now), Fail(event.error)]
        farewell = self._goodbye(f"it failed: {event.error}")
        self._enter(State.FAILED)
        return [*self._drop_all(), *farewell, Fail(event.error)]

    def _proceed(self, now: float) -> list[Effect]:
        """What must go has gone: go where the user wants to be."""
        had_left, self._intent.had_left = self._intent.had_left, False
        if self._intent.leaves:
            self._enter(State.LEAVING if self._identity.says_goodbye else State.LEFT)
            return self._goodbye("the consumer is being closed")
        if not self._intent.is_membership:
            stopped = self._intent.has_stopped_polling  # then it has said so
            farewell = [] if stopped else self._goodbye("the consumer unsubscribed from all topics")
            self._enter(State.UNJOINED)
            self._join_pace.rebalance_is_over()
            return farewell
        if self.state is State.UNJOINED:
            self._intent.begins(now)
        if had_left and self._identity.is_static and not self._intent.is_news:
            # A static member that comes back to the same topics gets what it had, and nobody rebalances (KIP-345,
            # KIP-814). Under its member id it would ask for a rebalance: as a leader always, else by its new metadata.
            self._forget_identity("the consumer unsubscribed from all topics, and subscribed to the same again")
        return self._join_again(now)

    def _goodbye(self, reason: str) -> list[Effect]:
        leave = [SendLeave(self._step, self.member, reason)] if self._identity.says_goodbye else []
        self._forget_identity(reason)
        return [*leave]

    # Joining

    def _join_again(self, now: float) -> list[Effect]:
        return self._join() if self._join_pace.at_once() else self._join_later(now)

    def _join_later(self, now: float) -> list[Effect]:
        self._enter(State.JOINING)
        self._join_pace.put_off(now)
        return []

    def _join(self) -> list[Effect]:
        self._enter(State.JOINING)
        self._join_pace.sent()
        topics = self._intent.told = self._intent.topics
        return [SendJoin(self._step, self.member, topics, self._held.owned, self._join_reason, self._held.last)]

    def _on_member_id_required(self, event: MemberIdRequired, now: float) -> list[Effect]:
        had_none = not self.member.member_id
        if self._held.owned:
            self._forget_identity("the coordinator did not know it any more")
        self._identity.become(-1, event.member_id)
        if self._held.owned:
            return self._lose(now)
        return self._join() if had_none else self._join_later(now)

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
        self._leading.begin(task.topics)
        return [task]

    def _on_synced(self, event: Synced, now: float) -> list[Effect]:
        if self._intent.is_news or self._leading.out_of_date:
            return self._give_up(now)  # what was assigned is out of date already
        if (error := self._intent.unwanted(event.partitions)) is not None:
            self._join_reason = "the assignment holds topics that this member does not subscribe to"
            return [Complain(error), *self._join_later(now)]
        self._join_pace.rebalance_is_over()
        self._backoff.reset()
        self._user_data = event.user_data
        taken_away = self._held.assigned(event.partitions, self.member.generation_id)
        if taken_away:
            self._join_reason = f"gave up {len(taken_away)} partitions, which the next assignment can hand on"
            return self._release(taken_away, then=event.partitions)
        self._enter(State.STABLE)
        if self._held.is_cooperative:
            self._heartbeats.expect_another_round(now)
        return [self._assign(event.partitions)]

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
        if isinstance(sent, SentCommit):  # told of, and tried again, where it comes from
            return []
        if isinstance(sent, SendHeartbeat):
            self._heartbeats.failed(sent, now)
        else:
            self._join_later(now)
        return [] if error is None else [Complain(error, sent)]
