"""The classic group's Keepalive: the Heartbeat and LeaveGroup that the watchdog thread sends for a blocked loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from ....wire import Response
from ....wire.messages.group import HeartbeatRequest, HeartbeatResponse, LeaveGroupRequest
from ..events import Event, SendHeartbeat, SendLeave
from ..machine import Question
from .messages import ClassicGroup

_NO_NODE: Final = -1  # no broker: so no answer here makes the loop look up its coordinator anew


@dataclass(frozen=True, slots=True)
class ClassicKeepalive:
    """The Keepalive of one classic group."""

    group: ClassicGroup

    @property
    def group_id(self) -> str:
        return self.group.group_id

    def heartbeat(self, sent: SendHeartbeat) -> Question:
        return Question(
            HeartbeatRequest, lambda version: self.group.heartbeat_request(sent), partial(self._beaten, sent)
        )

    def _beaten(self, sent: SendHeartbeat, response: Response) -> Event:
        assert isinstance(response, HeartbeatResponse)
        return self.group.beaten(sent, response.error_code, _NO_NODE)

    def after(self, answer: Event, sent: SendHeartbeat) -> SendHeartbeat:
        return sent

    def unheard(self, answer: Event | None, sent: SendHeartbeat) -> Event | None:
        return answer  # what is true of a generation stays true: the machine drops the answer if that is over

    def goodbye(self, last: SendHeartbeat, reason: str) -> Question:
        leave = SendLeave(0, last.member, reason)
        return Question(LeaveGroupRequest, partial(self.group.leave_request, leave), lambda response: None)
