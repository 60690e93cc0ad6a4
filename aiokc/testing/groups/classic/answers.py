"""What the group coordinator answers when there is nothing to say but an error code."""

from __future__ import annotations

from ....error_codes import ErrorCode
from ....wire.messages.group import JoinGroupResponse


def refused_join(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    """Return the answer to a JoinGroup of ``member_id`` that joins nothing."""
    return JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id=member_id, members=[])
