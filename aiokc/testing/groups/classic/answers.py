"""The JoinGroup answer that carries an error code and nothing else."""

from __future__ import annotations

from ....error_codes import ErrorCode
from ....wire.messages.group import JoinGroupResponse


def refused_join(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    """Return the answer that refuses the JoinGroup of ``member_id`` with ``code``."""
    return JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id=member_id, members=[])
