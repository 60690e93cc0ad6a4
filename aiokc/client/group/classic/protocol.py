"""Implements GroupProtocol for the classic protocol: ties together its machine, its requests and the group leader."""

from __future__ import annotations

from collections.abc import Callable

from ....assignor import RebalanceProtocol
from ....core.assignors.registry import assignors
from ....core.backoff import retry_backoff
from ....core.group.classic.keepalive import ClassicKeepalive
from ....core.group.classic.membership import Membership
from ....core.group.classic.messages import ClassicGroup
from ....core.group.events import (
    Assign,
    ComputeAssignment,
    Event,
    MemberToken,
    NotNow,
    PartitionsCounted,
    Request,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    SentCommit,
)
from ....core.group.loop_watch import least_rest
from ....errors import AssignmentFailed
from ....net.user_errors import leaves_the_loop
from ..protocol import GroupParts, ProtocolInUse
from .leader import METADATA_SECONDS, GroupLeader
from .requests import ClassicRequests

_NO_NODE = -1  # the broker that refused a commit does not matter here: GroupOffsets has told the coordinator's lookup


class ClassicProtocol:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the GroupProtocol that all brokers speak."""

    follows_epochs = False
    revocation_margin = 0.0

    def __init__(self, parts: GroupParts, step: int = 0) -> None:
        config = parts.config
        self.group_id = parts.group_id
        self._group = group = ClassicGroup(
            group_id=parts.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            assignors=assignors(config.partition_assignment_strategy),
            rack_id=config.client_rack or None,
        )
        interval, session = config.heartbeat_interval_ms / 1e3, config.session_timeout_ms / 1e3
        self.machine = Membership(
            session_timeout=session,
            heartbeat_interval=interval,
            max_poll_interval=config.max_poll_interval_ms / 1e3,
            polls=parts.polls,
            backoff=retry_backoff(config, parts.random),
            protocol=group.protocol,
            group_instance_id=config.group_instance_id,
            step=step,
        )
        self.keepalive = ClassicKeepalive(group)
        self.rest = least_rest(interval, session)
        self.is_cooperative = group.protocol is not RebalanceProtocol.EAGER
        self._requests = ClassicRequests(group, parts.lookup, config.request_timeout_ms / 1e3, self.machine.wrote)
        self._leader = GroupLeader(group, parts.metadata, config.retry_backoff_max_ms / 1e3)
        self._subscription = parts.subscription
        self._reason = f"group_protocol={config.group_protocol!r}"
        self._remedy = "set group_protocol='consumer' (brokers of Kafka 4.0 or newer)"
        if config.group_protocol == "auto" and config.classic_only is not None:
            self._reason += f", and only the classic protocol has the option {config.classic_only}"
            self._remedy = f"leave {config.classic_only} out (brokers of Kafka 4.0 or newer)"
        self._pattern = parts.pattern
        self._pattern_max_age = config.retry_backoff_ms / 1e3

    def start(self, joining: Callable[[], None]) -> None:
        self._requests.joining = joining

    @property
    def in_use(self) -> ProtocolInUse:
        return ProtocolInUse("classic", self._reason, self._remedy)

    def close(self) -> None:
        self._leader.close()

    async def perform(self, request: Request) -> Event:
        match request:
            case SendJoin():
                return await self._join(request)
            case SendSync():
                return await self._requests.sync(request)
            case ComputeAssignment():
                return await self._leader.compute(request)
            case SendHeartbeat():
                return await self._requests.heartbeat(request)
            case SendLeave():
                return await self._requests.leave(request)
        raise AssertionError(f"no request of the classic protocol: {request}")

    async def _join(self, effect: SendJoin) -> Event:
        """Join. With a pattern, first look for new topics: each member that found one later would rebalance again."""
        if self._pattern is not None and self._subscription.pattern is not None:
            await self._pattern.refresh(self._pattern_max_age, METADATA_SECONDS)
            if self._subscription.topics != effect.wanted:
                return NotNow(effect)  # join in a moment, with the topics found
        return await self._requests.join(effect)

    def refused_commit(self, member: MemberToken, error_code: int) -> Event:
        return self._group.refusal(SentCommit(member), error_code, _NO_NODE)

    def assigned(self, change: Assign) -> None:
        try:
            self._group.assigned(change)
        except AssignmentFailed as error:
            leaves_the_loop(error.__cause__)
            raise

    def moved(self) -> None:
        """While this member leads its group, the metadata follow the topics of all members."""
        if self.machine.watched_topics != self._leader.watched:
            self._leader.watch(self.machine.watched_topics)

    def news(self) -> Event | None:
        counted = self._leader.news()
        return None if counted is None else PartitionsCounted(counted)
