"""Everything that a classic group member's state machine remembers, and the properties that its driver reads."""

from __future__ import annotations

import math

from ....assignor import RebalanceProtocol
from ...backoff import Backoff
from ..events import MemberToken, PollClock, SendJoin
from ..intent import SubscriptionIntent
from ..loop_watch import HeartbeatPlan
from .heartbeats import Heartbeats
from .identity import Identity
from .join_pace import JoinPace
from .owned_partitions import OwnedPartitions
from .transitions import COMMITS, HEARTBEATS, JOINING_OR_IN, REBALANCING, State
from .watched_topics import WatchedTopics


class MemberState:
    """All of the classic GroupMachine but ``on``, which changes its state (see Membership). Times in seconds."""

    def __init__(
        self,
        *,
        session_timeout: float,
        heartbeat_interval: float,
        max_poll_interval: float,
        polls: PollClock,
        backoff: Backoff,
        protocol: RebalanceProtocol = RebalanceProtocol.EAGER,
        group_instance_id: str | None = None,
        step: int = 0,
    ) -> None:
        """``step``: the number behind which this machine's steps begin."""
        self.state = State.UNJOINED
        self._identity = Identity(group_instance_id)
        self._held = OwnedPartitions(protocol)
        self._heartbeats = Heartbeats(heartbeat_interval, session_timeout, backoff)
        self._intent = SubscriptionIntent(polls, max_poll_interval)
        self._backoff = backoff
        self._step = step
        self._join_pace = JoinPace(backoff, session_timeout)
        self._join_reason = ""
        self._protocol_name = ""
        self._user_data: bytes | None = None
        self._leading = WatchedTopics()
        self._may_try_again = False
        self._written = -1  # the step of the newest JoinGroup that went out

    def wrote(self, join: SendJoin) -> None:
        """To be called when ``join`` goes out. It may have waited for its coordinator, or for a connection, before."""
        self._written = join.step
        self._identity.joins(join.member)

    # Read by the driver

    @property
    def member(self) -> MemberToken:
        return self._identity.member

    @property
    def last_member(self) -> MemberToken:
        return self._identity.last

    @property
    def deadline(self) -> float:
        join = self._join_pace.deadline if self.state is State.JOINING else math.inf
        heartbeat = self._heartbeats.deadline if self._beats else math.inf
        return min(self._poll_limit, join, heartbeat)

    @property
    def plan(self) -> HeartbeatPlan | None:
        return self._heartbeats.plan(self.member, self._intent.max_poll_interval) if self._beats else None

    @property
    def watched_topics(self) -> frozenset[str]:
        """The topics whose partition counts the member wants: all of its group while it leads that, else none."""
        return self._leading.topics

    @property
    def has_left(self) -> bool:
        return self.state is State.LEFT

    @property
    def has_failed(self) -> bool:
        return self.state is State.FAILED

    @property
    def is_rebalancing(self) -> bool:
        return self.state in REBALANCING

    @property
    def needs_poll(self) -> bool:
        return self._intent.has_stopped_polling

    @property
    def is_settling(self) -> bool:
        return self._intent.is_membership and self.state in State.REVOKING | REBALANCING

    def commit_token(self) -> MemberToken:
        # While the coordinator waits for members to join, it still takes commits of the previous generation. A
        # revocation does not wait for the partitions that a cooperative member keeps, so their commits go on meanwhile.
        keeps = self.state is State.JOINING and bool(self._held.owned)
        return self._identity.commit_token(is_valid=self.state in COMMITS or keeps)

    # Read by Membership

    @property
    def _beats(self) -> bool:
        return self._identity.in_generation and self.state in HEARTBEATS

    @property
    def _poll_limit(self) -> float:
        """When the application must have polled; infinity where the member neither joins nor owns partitions for it.

        Nor need it poll once it has unsubscribed: what is under way then is the revocation of everything, or a wait for
        the member id. But where its pattern matches nothing any more, that revocation waits for it.
        """
        if self.state is State.REVOKING:
            polls = self._identity.in_generation and self._intent.is_awaited
        else:
            polls = bool(self._intent.goal) and self.state in JOINING_OR_IN
        return self._intent.poll_limit if polls else math.inf

    @property
    def _goes_without_id(self) -> bool:
        """Whether the member is to go, and will have a member id to say goodbye with if its JoinGroup is answered.

        The coordinator has counted it in by then: it is pending (KIP-394). No rebalance of the group ends before such a
        member has joined, has left, or session_timeout_ms is over. A JoinGroup that has not gone out has no answer.
        """
        intent, identity = self._intent, self._identity
        goes = not intent.is_membership and not intent.has_stopped_polling
        is_out = self.state is State.JOINING and self._written == self._step
        return goes and is_out and identity.may_leave and not self.member.member_id

    def _enter(self, state: State) -> None:
        """Change the state. From here on, answers to earlier steps are stale."""
        self.state = state
        self._step += 1

    def _forget_identity(self, reason: str, *, keep_member_id: bool = False) -> None:
        self._identity.forget(reason, keep_member_id=keep_member_id)
        self._join_reason = reason
        self._leading.end()
