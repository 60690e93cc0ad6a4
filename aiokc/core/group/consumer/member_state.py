"""Everything that the state machine of a KIP-848 member remembers, and the properties that its driver reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from ....error_codes import ErrorCode
from ....errors import CommitFailed
from ...backoff import Backoff
from ..events import (
    Alive,
    Event,
    MemberToken,
    Outcome,
    PollClock,
    Refusal,
    SendHeartbeat,
    SentCommit,
    Subscribed,
    Unpolled,
)
from ..intent import SubscriptionIntent
from ..loop_watch import BY_THE_THREAD, HeartbeatPlan
from .events import LEAVE, LEAVE_STATIC, Contents, InstanceUnreleased, Interests, JoinDeclined, MemberHeartbeat, Unheard
from .heartbeats import Heartbeats
from .holdings import Holdings, Partitions
from .told import Told
from .transitions import HEARTBEATS, IN_GROUP, State


class MemberState:
    """All of the consumer protocol's GroupMachine but ``on``, which changes its state. Times in seconds.

    The member makes its id itself, when it first joins, and keeps it (KIP-1082), until the watchdog thread has said
    goodbye for it. Before that it has none: a consumer that was not started may be copied by a fork, and two processes
    with one id would be one member to the coordinator, and read the same partitions.
    """

    def __init__(
        self,
        *,
        new_member_id: Callable[[], str],
        group_instance_id: str | None,
        max_poll_interval: float,
        polls: PollClock,
        backoff: Backoff,
    ) -> None:
        self.state = State.UNSUBSCRIBED
        self.member = self.last_member = MemberToken(group_instance_id=group_instance_id)
        self._new_member_id = new_member_id
        self._intent = SubscriptionIntent(polls, max_poll_interval)
        self._heartbeats = Heartbeats(backoff)
        self._holdings = Holdings()
        self._told = Told()
        self._forbidden: frozenset[str] = frozenset()  # topics, as the metadata say
        self._step = 0
        self._why_outside = "it has not joined its group yet"
        self._may_try_again = False
        self._asked_to_join = False
        self._resubscribed = False  # and the coordinator may still have something to take, or to give, for that
        self._in_doubt: list[str] = []  # ids that the coordinator may know this member by, though it has no epoch
        self._former = ""  # the one of them in whose name it leaves, before it joins again
        self._leave_group: bool | None = None
        self._going: Partitions = ()

    # Read by the driver

    @property
    def deadline(self) -> float:
        beat = self._heartbeats.deadline(has_news=self._has_news) if self.state in HEARTBEATS else math.inf
        return min(self._poll_limit, beat)

    @property
    def plan(self) -> HeartbeatPlan | None:
        if not self.in_group:
            return None
        # A full one: if the answer that raised the epoch was lost, only the partitions that it owns prove the member.
        contents = Contents(self._interests, self._holdings.owned, is_full=True)
        heartbeat = MemberHeartbeat(BY_THE_THREAD, self.member, contents=contents)
        return self._heartbeats.plan(heartbeat, self._intent.max_poll_interval)

    @property
    def unnamed_topics(self) -> frozenset[UUID]:
        """The ids of assigned topics whose names the member does not know: the metadata have to tell them."""
        return self._holdings.unnamed

    @property
    def wanted(self) -> Subscribed:
        """What the application subscribes to."""
        return Subscribed(self._intent.topics, self._intent.pattern, self._intent.matched)

    @property
    def assigned_topics(self) -> frozenset[str]:
        """The topics of all that the member holds, or is to hold, as far as their names are known."""
        return self._holdings.topics

    def awaits(self, answer: JoinDeclined) -> bool:
        """Whether ``answer`` is to the heartbeat that is under way."""
        return self._concerns(answer)

    @property
    def in_group(self) -> bool:
        return self.state in IN_GROUP

    @property
    def has_left(self) -> bool:
        return self.state is State.LEFT

    @property
    def has_failed(self) -> bool:
        return self.state is State.FATAL

    @property
    def is_rebalancing(self) -> bool:
        return self.state is State.JOINING

    @property
    def needs_poll(self) -> bool:
        return self._intent.has_stopped_polling

    @property
    def is_settling(self) -> bool:
        outside = self.state in State.JOINING | State.RECONCILING | State.FENCED
        return self._intent.is_membership and (outside or (self._resubscribed and self.in_group))

    def commit_token(self) -> MemberToken:
        if self.in_group:
            return self.member
        raise CommitFailed(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"this consumer is outside its group ({self._why_outside}), so its partitions may have other readers by "
            "now, and nothing was committed; the group will deliver these records again",
        )

    # Read by ConsumerMembership

    @property
    def _interests(self) -> Interests:
        """What the coordinator is to know. A member that wants nothing any more leaves, and says nothing else of it."""
        if not self._intent.is_subscribed and self._told.interests is not None:
            return self._told.interests
        return Interests(self._topics, self._intent.pattern)

    @property
    def _topics(self) -> frozenset[str]:
        """The topics to name. One forbidden topic in a heartbeat, and it is refused, so that no other would be read.

        What is held of a forbidden one stays, and is named as long as nothing else changes: the permission may come
        back before anything is lost. But a further topic would never be read beside it, and one that the application
        has left would never go to another member.

        The metadata may also be older than the permission. A member that has just joined may hold, without knowing it,
        partitions of such a topic, as it has no names of their ids yet. If it named the topic no more, it would lose
        them, only to get them again.
        """
        topics, told = self._intent.topics, self._told.names
        if not self._forbidden:
            return topics
        allowed = topics - self._forbidden
        if told is None or not self.in_group:
            return allowed or topics  # a join for nothing would hide from the application why it reads nothing
        if allowed != told - self._forbidden:
            return allowed
        known = topics & told
        return allowed | (known if self._holdings.unnamed or not allowed else known & self._holdings.topics)

    @property
    def _has_news(self) -> bool:
        return self._told.is_news(self._interests, self._holdings.owned)

    @property
    def _poll_limit(self) -> float:
        """When the application must have polled; infinity where the member neither joins nor owns partitions for it."""
        return self._intent.poll_limit if self.state in HEARTBEATS and self._intent.is_awaited else math.inf

    @property
    def _farewell(self) -> MemberToken | None:
        """The member as its last heartbeat names it: with the epoch that says how it leaves; None: it says nothing.

        A static member parks its partitions for the rest of its session (-2), unless the application wants it out of
        the group (KIP-1092). A dynamic one leaves (-1), unless the application wants it to stay.
        """
        is_known = self.in_group or self._asked_to_join
        if self.member.group_instance_id is None:
            return replace(self.member, generation_id=LEAVE) if is_known and self._leave_group is not False else None
        if is_known:
            return replace(self.member, generation_id=LEAVE if self._leave_group else LEAVE_STATIC)
        if self._leave_group and self._in_doubt and not self._intent.wants_nothing:
            # It was not polled, or failed, and has parked its partitions: the group still waits for it. If another
            # process has taken its place, the coordinator refuses to remove that for this former member id.
            return replace(self.member, generation_id=LEAVE, member_id=self._in_doubt[-1])
        return None

    def _concerns(self, event: Event) -> bool:
        """Whether ``event`` concerns this member now. A late answer does not."""
        if isinstance(event, Outcome):
            return event.step == self._step
        if isinstance(event, Unpolled):
            return self.in_group and event.member == self.member
        if isinstance(event, Unheard):  # of whatever epoch: the newest one may have come before it
            return self.in_group and event.sent.member.member_id == self.member.member_id
        if not isinstance(event, Alive | Refusal | InstanceUnreleased | JoinDeclined):
            return True
        sent = event.sent
        if isinstance(sent, SendHeartbeat):
            if sent.number == BY_THE_THREAD:
                return self.in_group and sent.member == self.member
            return sent == self._heartbeats.unanswered
        return isinstance(sent, SentCommit) and self.in_group and sent.member == self.member

    def _enter(self, state: State) -> None:
        """Change the state. From here on, answers to earlier steps are stale."""
        self.state = state
        self._step += 1

    def _become(self, epoch: int) -> None:
        self.member = replace(self.member, generation_id=epoch)
        if epoch >= 0:
            self.last_member = self.member

    def _name_itself(self) -> None:
        """The member has an id."""
        if not self.member.member_id:
            self.member = self.last_member = replace(self.member, member_id=self._new_member_id())

    def _doubt(self) -> None:
        """The coordinator may know this member by its id for longer than the member has an epoch."""
        if self.member.member_id not in self._in_doubt:
            self._in_doubt.append(self.member.member_id)

    def _forget_membership(self, reason: str) -> None:
        """The member is outside its group from here on: what the coordinator said of it before is over."""
        self._become(-1)
        self._asked_to_join = False
        self._why_outside = reason
        self._told.start_over()
        self._heartbeats.end()
        self._holdings.lose()
