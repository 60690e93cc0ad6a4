"""The state machine of a member of a KIP-848 group: how each event changes its state, and which effects follow.

transitions.py says which events can happen in which state. member_state.py holds what the machine remembers. Four rules
explain most of what follows:

1. One request says everything. Each answer to it may bring a new epoch, and a new target: all partitions that this
member may hold. The member goes there alone, and no other member waits for it, but for the partitions that it gives up.

2. The coordinator hands a partition on as soon as a heartbeat does not list it any more. So a heartbeat lists what the
member is giving up until the last commit and the listener are done.

3. A heartbeat says only what has changed since the last one that was *answered*. After a failure the next one says
everything (see Told).

4. Only the coordinator takes partitions away (IdentityLost). The session's length is on no wire, so a member that is
cut off reads on, and asks again at its usual pace.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Final
from uuid import UUID

from ....errors import AssignmentFailed, AuthorizationFailed, BrokerError, MalformedResponse, MemberFenced
from ....types import named
from ..events import (
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
    IllegalTransition,
    Leave,
    Left,
    Lost,
    NotNow,
    Outcome,
    Polled,
    RevocationDone,
    Revoke,
    SendHeartbeat,
    Subscribed,
    Tick,
    Unpolled,
)
from ..loop_watch import BY_THE_THREAD
from .events import (
    LEAVE_STATIC,
    InstanceUnreleased,
    JoinDeclined,
    LeaveByHeartbeat,
    MemberAlive,
    MemberHeartbeat,
    TopicsNamed,
    Unheard,
)
from .holdings import Partitions
from .member_state import MemberState
from .transitions import HEARTBEATS, NEXT, State

# Seconds between heartbeats while the coordinator has not heard yet that a topic of this member was recreated. Until it
# has assigned that anew, the member reads nothing of it. Coordinators assign that often.
_RECREATED: Final = 1.0
_MOST_SHOWN: Final = 5


class ConsumerMembership(MemberState):
    """The GroupMachine of the consumer protocol: it handles events. Times in seconds."""

    def on(self, event: Event, now: float) -> list[Effect]:
        if not self._concerns(event):
            return []
        state = self.state
        targets = NEXT[state].get(type(event))
        if targets is None:
            raise IllegalTransition(state, event)
        effects = self._react(event, now)
        if self.state not in targets:
            raise IllegalTransition(f"{state}, and became {self.state}", event)
        # The thread's answers come in a row. One heartbeat follows from all of them, by the Tick that is due now.
        if isinstance(event, MemberAlive | Unheard) and event.sent.number == BY_THE_THREAD:
            return effects
        return effects + self._beat(now)

    def _beat(self, now: float) -> list[Effect]:
        """Send the next heartbeat, if it is due: at its time, or at once if there is something to tell."""
        if self.state not in HEARTBEATS or self._heartbeats.deadline(has_news=self._has_news) > now:
            return []
        contents = self._told.contents(self._interests, self._holdings.owned)
        if self.state is State.JOINING:
            self._asked_to_join = True
        return [self._heartbeats.send(self.member, contents, now)]

    def _react(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Tick():
                self._intent.time_passes(now)
                return self._stop_polling(now) if self._poll_limit <= now else []
            case Unpolled():
                return self._on_unpolled(now)
            case Subscribed():
                return self._on_subscribed(event, now)
            case Polled():
                self._intent.has_stopped_polling = False
                return self._on_polled(now)
            case Enforced():
                # A member cannot make this group rebalance. It can only ask at once whether something has changed.
                self._heartbeats.at_once()
                return []
            case Leave():
                return self._on_leave(event, now)
            case TopicsNamed():
                return self._on_named(event)
            case Unheard():
                return self._on_unheard()
        return self._on_outcome(event, now) if isinstance(event, Outcome) else self._on_answer(event, now)

    def _on_named(self, event: TopicsNamed) -> list[Effect]:
        self._holdings.named(event.names)
        self._forbidden = event.forbidden
        was_outdated = self._holdings.is_outdated
        self._holdings.recreated(event.former)
        if self._holdings.is_outdated and not was_outdated:
            self._heartbeats.at_once()
        return self._reconcile() if self.state is State.STABLE and self._holdings.is_behind else []

    def _on_outcome(self, event: Outcome, now: float) -> list[Effect]:
        if isinstance(event, RevocationDone):
            return self._on_released(now)
        if isinstance(event, Left) and self.state is State.LEAVING:
            self._enter(State.LEFT)
        elif isinstance(event, Left) and self.state is State.JOINING:
            self._join_after_goodbye(event, now)
        return []

    def _join_after_goodbye(self, goodbye: Left, now: float) -> None:
        """Join, and if the coordinator may not have heard that the former member has left, after a pause.

        It may refuse the join once more then, and the goodbye has to be said again.
        """
        self._heartbeats.begin()
        if goodbye.is_taken:
            self._in_doubt = [one for one in self._in_doubt if one != self._former]
        else:
            self._heartbeats.failed(now)

    def _on_answer(self, event: Event, now: float) -> list[Effect]:
        match event:
            case MemberAlive():
                return self._on_alive(event, now)
            case InstanceUnreleased():
                return self._on_unreleased(event, now)
            case JoinDeclined():
                return self._fail(Fatal(event.sent, event.error), now)
            case IdentityLost():
                return self._on_identity_lost(event, now)
            case CoordinatorLost():
                return [ForgetCoordinator(event.node_id), *self._try_later(event, now)]
            case NotNow():
                return self._try_later(event, now)
            case Fatal():
                return self._fail(event, now)
        return []

    # What the application wants

    def _on_subscribed(self, event: Subscribed, now: float) -> list[Effect]:
        was_subscribed = self._intent.is_subscribed
        # What the target still has to give is of the former pattern. If the application comes back to that pattern, the
        # coordinator sees no change, and would not say again what it has given.
        if event.pattern != self._intent.pattern and self._holdings.take_nothing_more():
            self._told.doubt_owned()
        not_read = self._intent.not_subscribed(self._holdings.partitions)
        self._intent.subscribe(event, now)
        wants_nothing = not self._intent.is_subscribed
        self._resubscribed = self._resubscribed or not self._told.knows(self._interests)
        if self.state is State.UNSUBSCRIBED:
            return self._go_on(now)
        if self.state is State.JOINING and was_subscribed and wants_nothing:
            return self._depart(now)
        if self.state in State.STABLE | State.RECONCILING and wants_nothing:
            return self._give_up_all(now)
        # The next subscription is a new attempt, also where the failure came after unsubscribe(): nobody heard of it.
        if self.state is State.FATAL and (wants_nothing or not was_subscribed):
            return self._resume(now)
        # The application may come back to a topic before the coordinator has heard that it left it, or has acted on it.
        # Then no answer says anything new of what is held of that topic, and only an Assign makes it be read again.
        if self.state is State.STABLE and not event.topics.isdisjoint(not_read):
            return self._reconcile()
        return []  # the next heartbeat names the new topics, and the coordinator answers with a new target

    def _on_polled(self, now: float) -> list[Effect]:
        if self.state is State.FATAL and self._may_try_again:
            return self._resume(now)
        return self._go_on(now) if self.state is State.UNSUBSCRIBED else []

    def _on_leave(self, event: Leave, now: float) -> list[Effect]:
        again = self._intent.leaves
        self._intent.leave(now)
        self._leave_group = event.leave_group
        match self.state:
            case State.FATAL:
                return self._resume(now)
            case State.UNSUBSCRIBED:
                return self._go_on(now)
            case State.JOINING:
                return self._depart(now)
            case State.STABLE | State.RECONCILING:
                return self._give_up_all(now, wait=False)
            case State.PREPARE_LEAVING if not again:
                # Where a pattern matches nothing any more, the revocation under way waits until the application comes
                # back from its records. An application that stops its consumer does not come back.
                return self._give_up_all(now, wait=False)
        return []  # it gives up everything already, or has left

    def _resume(self, now: float) -> list[Effect]:
        """Go on after a failure, because the application polled, unsubscribed or closes the consumer."""
        if self._holdings.held:  # the listener is still being told of their loss: its RevocationDone leads on
            self.state = State.FENCED
            return []
        return self._go_on(now)

    def _stop_polling(self, now: float) -> list[Effect]:
        """The application stopped polling: leave at once, so that others get the partitions, then drop them."""
        return [*self._goodbye(self._intent.stop_polling()), *self._drop(now)]

    def _on_unpolled(self, now: float) -> list[Effect]:
        """The thread says goodbye. Drop everything, and take another member id.

        The thread's last heartbeat names no epoch, and it goes over another connection. If this member joined again
        under the same id before that is handled, the coordinator would remove it, and the application would lose what
        it reads.
        """
        effects = self._stop_polling(now)
        self.member = replace(self.member, member_id=self._new_member_id())
        return effects

    def _go_on(self, now: float) -> list[Effect]:
        """The member is outside the group and holds nothing: join it, if the application wants that."""
        if self._intent.leaves:
            return self._depart(now)
        if self._intent.is_membership:
            self._name_itself()
            self._intent.begins(now)
            self._heartbeats.begin()
            self._asked_to_join = False
            self._enter(State.JOINING)
        else:
            self._heartbeats.forget_refusals()  # another subscription is another attempt
            self._enter(State.UNSUBSCRIBED)
        return []

    # Answers

    def _on_alive(self, event: MemberAlive, now: float) -> list[Effect]:
        if event.epoch <= 0 or event.epoch < self.member.generation_id:
            # As the member's own, a negative epoch would make the next heartbeat a farewell.
            error = MalformedResponse(f"the coordinator gives {self.member} the epoch {event.epoch}")
            return self._try_later(NotNow(event.sent, error), now)
        self._take_answer(event, now)
        self._become(event.epoch)
        self._in_doubt.clear()
        is_first = self.state is State.JOINING
        # A quick answer in the first seconds is too early to say of an id that no broker knows its name.
        unnamed = frozenset() if self._heartbeats.is_settling(now) else self._holdings.unnamed
        self._holdings.named(event.names)
        if self._is_of_another_pattern:
            self._told.forget()  # the next heartbeat is a full one, and its answer has the whole assignment again
        elif event.assignment is not None:
            # The coordinator waits until the member says that it does not own these. It never said that it did.
            if self._holdings.withdraws(event.assignment):
                self._told.doubt_owned()
            self._holdings.aim_at(event.assignment)
        if self._holdings.target is None:
            self._holdings.aim_at(())
            self._told.forget()  # brokers never say so: which partitions they count as its own, a full heartbeat asks
        if self._holdings.is_outdated:
            self._heartbeats.within(_RECREATED, now)
        if is_first:
            self._heartbeats.joined(now)
            self._enter(State.STABLE)
            self._resubscribed = False
        behind = self.state is State.STABLE and (is_first or self._holdings.is_behind)
        steps = self._reconcile() if behind else []
        if self.state is State.STABLE and not self._has_news:  # it knows all of the member, and had no more to give
            self._resubscribed = False
        return [*steps, *self._complaints(event, unnamed & self._holdings.unnamed)]

    def _take_answer(self, event: MemberAlive, now: float) -> None:
        """Note what the coordinator knows now, and when it wants the next heartbeat.

        The loop's own heartbeat may be under way when an answer of the thread's comes:
        1. The loop sends its heartbeat and is blocked; the thread sends one, too.
        2. The coordinator handles the thread's, then has news for this member, and tells them in its answer to the
           loop's: once, since a heartbeat that says nothing is told only what has changed.
        Or it handles them in the other order. So no answer to the loop's can be taken for the newer one, or dropped
        without asking again: the next heartbeat says everything, and its answer has the whole assignment.
        """
        if event.sent.number == BY_THE_THREAD and self._heartbeats.unanswered is not None:
            if event.assignment is None and event.epoch == self.member.generation_id:
                return  # nothing that could be out of date; and where a topic is forbidden, asking in full is refused
            self._told.doubt_owned()
        self._heartbeats.answered(event.interval, now)
        # Of several answers of the thread, a later one does not settle what an earlier one has put in doubt.
        if event.sent.number != BY_THE_THREAD or not self._told.says_everything:
            self._told.confirmed(event.sent.contents)

    def _on_unheard(self) -> list[Effect]:
        """Ask anew. Whatever answer comes to the heartbeat under way may be older than what the thread was told."""
        self._told.doubt_owned()
        self._heartbeats.end()
        return []

    @property
    def _is_of_another_pattern(self) -> bool:
        """Whether the coordinator's answers are about another pattern than the one subscribed to.

        Only the coordinator knows which topics a pattern matches. So the member can't tell by their names which ones
        the application still wants.
        """
        return bool(self._intent.pattern) and not self._told.knows(self._interests)

    def _complaints(self, event: MemberAlive, unnamed: Set[UUID]) -> list[Effect]:
        """Report what makes no sense in an answer, and what no broker has known since the answer before."""
        effects: list[Effect] = []
        if event.nonsense:
            said = f"{self.member}: the coordinator assigned {event.nonsense}; the member goes on without that"
            effects.append(Complain(MalformedResponse(said), event.sent, is_answered=True))
        if unnamed:
            shown = ", ".join(str(topic_id) for topic_id in sorted(unnamed)[:_MOST_SHOWN])
            error = AssignmentFailed(
                f"the coordinator gave {self.member} partitions of topics whose names it does not know (ids: {shown}): "
                "it does not subscribe to them, lacks the permission DESCRIBE, or no broker knows them; it goes on "
                "asking the brokers, and reads all others"
            )
            effects.append(Complain(error, event.sent, is_answered=True))
        if event.absent:
            error = AssignmentFailed(
                f"the coordinator gave {self.member} partitions that their topics do not have, as the brokers say "
                f"({named(event.absent)}): it holds them, reads all others, and goes on asking the brokers"
            )
            effects.append(Complain(error, event.sent, is_answered=True))
        return effects

    def _on_unreleased(self, event: InstanceUnreleased, now: float) -> list[Effect]:
        """Another member of this instance is in the group: perhaps this one itself.

        A join whose answer was lost has let it in, or the heartbeat with which it left has not arrived, or not yet. The
        coordinator then refuses it until its session ends. So it leaves as a static member does, and joins again.
        """
        if not self._in_doubt:
            return self._fail(Fatal(event.sent, event.error), now)
        self._former = self._in_doubt[-1]
        self._told.forget()
        self._heartbeats.end()
        self._heartbeats.wait()
        self._enter(State.JOINING)
        farewell = replace(self.member, generation_id=LEAVE_STATIC, member_id=self._former)
        return [LeaveByHeartbeat(self._step, farewell, "it joins again")]

    def _on_identity_lost(self, event: IdentityLost, now: float) -> list[Effect]:
        """Join anew under epoch 0. messages.py says which error codes mean this (FENCED_MEMBER_EPOCH, ...)."""
        if self.state is State.JOINING:
            # Brokers before 4.3 fence a known member that joins again, until its session ends (KAFKA-19233).
            self._told.forget()
            self._heartbeats.failed(now)
            if event.error is not None and isinstance(event.sent, SendHeartbeat):
                return [Complain(event.error, event.sent)]
            return []
        self._doubt()
        return self._lose(event.reason, now)

    def _try_later(self, event: NotNow | CoordinatorLost, now: float) -> list[Effect]:
        sent, error = event.sent, event.error
        if isinstance(sent, SendHeartbeat):
            if sent.number == BY_THE_THREAD and isinstance(error, AuthorizationFailed):
                return [Complain(error, sent)]  # the loop's own names no topics: it may be under way, and accepted
            if self.state is State.JOINING:
                self._doubt()
            # The coordinator refuses a heartbeat for a topic that it names before it reads the rest: what it knew, it
            # still knows. A join has to name its topics.
            if not isinstance(error, AuthorizationFailed):
                self._told.forget()
            elif self.in_group and isinstance(sent, MemberHeartbeat):
                self._told.refused(sent.contents)
            self._heartbeats.failed(now)
            return [] if error is None else [Complain(error, sent)]
        return []  # the sender of a commit reports and retries it

    def _fail(self, event: Fatal, now: float) -> list[Effect]:
        self._may_try_again = isinstance(event.error, BrokerError) and not isinstance(event.error, MemberFenced)
        if self._intent.leaves:  # no call comes any more that could resume it: it goes on leaving, without a commit
            return [*self._lose(f"it failed: {event.error}", now), Fail(event.error)]
        held = self._holdings.partitions
        farewell = self._goodbye(f"it failed: {event.error}") if self.in_group else []
        self._forget_membership(f"it failed: {event.error}")
        self._heartbeats.refused(now)
        self._enter(State.FATAL)
        lost = [Lost(self._step, held, self._why_outside)] if held else []
        return [*lost, *farewell, Fail(event.error)]

    # Giving up partitions

    def _reconcile(self) -> list[Effect]:
        """Go to the target: give up first what it takes away, then take what it gives."""
        if going := self._holdings.going():
            return self._release(State.RECONCILING, going, wait=True)
        added = self._holdings.take()
        topic_ids = self._holdings.topic_ids
        assign = Assign(self.member, tuple(topic_ids), added, topic_ids=topic_ids)
        return [assign, *self._complain_of_not_subscribed(added)]

    def _complain_of_not_subscribed(self, added: Partitions) -> list[Effect]:
        """Report topics to which the member does not subscribe, if the coordinator knows to which it does."""
        topics = self._intent.not_subscribed(added)
        if self._intent.pattern or not topics or not self._told.knows(self._interests):
            return []
        error = AssignmentFailed(
            f"the coordinator gave this member partitions of {named(topics)}, to which it does not subscribe: it "
            "holds them, so that the group can go on, and does not read them"
        )
        return [Complain(error)]

    def _release(self, state: State, partitions: Partitions, *, wait: bool) -> list[Effect]:
        self._going = partitions
        self._enter(state)
        return [Revoke(self._step, partitions, wait)]

    def _give_up_all(self, now: float, *, wait: bool = True) -> list[Effect]:
        held = self._holdings.partitions
        return self._release(State.PREPARE_LEAVING, held, wait=wait) if held else self._depart(now)

    def _lose(self, reason: str, now: float) -> list[Effect]:
        self._forget_membership(reason)
        return self._drop(now)

    def _drop(self, now: float) -> list[Effect]:
        """Drop everything without a commit: the coordinator may have handed it on."""
        held = self._holdings.partitions
        if not held:
            return self._go_on(now)
        self._enter(State.FENCED)
        return [Lost(self._step, held, self._why_outside)]

    def _on_released(self, now: float) -> list[Effect]:
        match self.state:
            case State.RECONCILING:
                self._holdings.give_up(self._going)
                self._enter(State.STABLE)
                return self._reconcile()
            case State.PREPARE_LEAVING:
                self._holdings.give_up(self._holdings.partitions)
                return self._depart(now)
            case State.FENCED:
                self._holdings.give_up(self._holdings.partitions)
                return self._go_on(now)
        self._holdings.give_up(self._holdings.partitions)  # FATAL
        return []

    def _depart(self, now: float) -> list[Effect]:
        """The member holds nothing any more: leave, unless the application has subscribed again meanwhile."""
        if self._intent.leaves:
            self._enter(State.LEFT if self._farewell is None else State.LEAVING)
            return self._goodbye("the consumer is being closed")
        if not self._intent.is_membership:
            farewell = self._goodbye("the consumer unsubscribed from all topics")
            self._enter(State.UNSUBSCRIBED)
            return farewell
        if self._is_of_another_pattern:
            self._told.forget()
            self._holdings.aim_at(())
        self._enter(State.STABLE)
        return self._reconcile()

    def _goodbye(self, reason: str) -> list[Effect]:
        farewell = self._farewell
        self._forget_membership(reason)
        if farewell is None:
            return []
        self._doubt()  # nobody repeats a goodbye that is lost
        return [LeaveByHeartbeat(self._step, farewell, reason)]
