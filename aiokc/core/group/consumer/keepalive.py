"""The consumer protocol's Keepalive: the heartbeats that the watchdog thread sends for a blocked loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ....errors import AuthorizationFailed
from ....wire import Response
from ....wire.messages.group import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ..events import Event, NotNow, SendHeartbeat
from ..machine import Question
from .events import KEEPALIVE, LEAVE, LeaveByHeartbeat, MemberAlive, MemberHeartbeat, Unheard
from .messages import ConsumerGroup

_NO_NODE: Final = -1  # no broker: so no answer here makes the loop look up its coordinator anew


@dataclass(frozen=True, slots=True)
class ConsumerKeepalive:
    """The Keepalive of one member of a KIP-848 group."""

    group: ConsumerGroup

    @property
    def group_id(self) -> str:
        return self.group.group_id

    def heartbeat(self, sent: SendHeartbeat) -> Question:
        assert isinstance(sent, MemberHeartbeat)
        return Question(
            ConsumerGroupHeartbeatRequest,
            lambda version: self.group.heartbeat_request(sent, version),
            partial(self._answered, sent),
        )

    def _answered(self, sent: MemberHeartbeat, response: Response) -> Event:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return self.group.answered(sent, response, _NO_NODE)

    def after(self, answer: Event, sent: SendHeartbeat) -> SendHeartbeat:
        """Return the next heartbeat.

        The answer may have raised the epoch: the next heartbeat of the old one would be fenced. Where the coordinator
        refuses the topics that ``sent`` names, the next one names none: that is accepted, and the member stays.
        """
        if isinstance(answer, NotNow) and isinstance(answer.error, AuthorizationFailed):
            assert isinstance(sent, MemberHeartbeat)
            return replace(sent, contents=KEEPALIVE)
        if isinstance(answer, MemberAlive) and answer.epoch > sent.member.generation_id:
            return replace(sent, member=replace(sent.member, generation_id=answer.epoch))
        return sent

    def unheard(self, answer: Event | None, sent: SendHeartbeat) -> Event | None:
        """What it means that ``answer`` did not come, or that the loop had gone on when it came.

        While a member is told to give up partitions, and while it gets some that become free, its epoch stays the same.
        So an answer may be out of date, and name the epoch that is in force. These say nothing that could be out of
        date: a heartbeat that was refused for a topic, and one without contents whose answer has no assignment.
        """
        assert isinstance(sent, MemberHeartbeat)
        if isinstance(answer, NotNow) and isinstance(answer.error, AuthorizationFailed):
            return answer
        if isinstance(answer, MemberAlive) and answer.assignment is None and sent.contents == KEEPALIVE:
            return answer
        return Unheard(sent)

    def goodbye(self, last: SendHeartbeat, reason: str) -> Question:
        leave = LeaveByHeartbeat(0, replace(last.member, generation_id=LEAVE), reason)
        return Question(
            ConsumerGroupHeartbeatRequest, lambda version: self.group.leave_request(leave), lambda response: None
        )
