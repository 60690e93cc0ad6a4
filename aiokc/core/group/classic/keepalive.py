"""What a thread says for a member of a classic group: Heartbeat and LeaveGroup, and what their answers mean."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from ....wire import Response
from ....wire.messages.group import HeartbeatRequest, HeartbeatResponse, LeaveGroupRequest
from ..events import Event, SendHeartbeat, SendLeave
from ..machine import Question
from .messages import ClassicGroup

_NO_NODE: Final = -1  # whichever: the loop looks for the coordinator by itself


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

    def goodbye(self, sent: SendLeave) -> Question:
        return Question(LeaveGroupRequest, partial(self.group.leave_request, sent), lambda response: None)
