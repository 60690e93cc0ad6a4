"""The coordinator's answers to SyncGroup, Heartbeat and LeaveGroup of a classic group."""

from __future__ import annotations

from typing import Final

from ....error_codes import ErrorCode
from ....wire.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ...refusal import Refusal
from ..loaded_groups import GroupCall, LoadedGroups
from .group import ClassicGroup, GroupState
from .members import Member

_PROTOCOL_REQUIRED_FROM: Final = 5
_MANY_MEMBERS_FROM: Final = 3


class Attendance:
    """Answers SyncGroup, Heartbeat and LeaveGroup."""

    def __init__(self, groups: LoadedGroups) -> None:
        self._groups = groups
        self._rebalances = groups.rebalances

    def _group(self, group_id: str) -> ClassicGroup:
        """Return a group that exists. Raises Refusal where there is none."""
        if not group_id:
            raise Refusal(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        group = self._groups.find_classic(group_id)
        if group is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    # SyncGroup

    def sync(self, call: GroupCall[SyncGroupRequest]) -> None:
        """Park the request until the group leader's SyncGroup comes, which has all members' assignments."""
        try:
            group, member = self._checked_sync(call)
        except Refusal as refusal:
            call.reply(SyncGroupResponse(error_code=refusal.code, assignment=b""))
            return
        self._rebalances.synced(group, member)
        if group.state is GroupState.STABLE:
            call.reply(group.sync_answer(member))
            return
        member.parked_sync = call.reply
        if group.leader == member.member_id:
            self._rebalances.assign(group, {one.member_id: bytes(one.assignment) for one in call.request.assignments})

    def _checked_sync(self, call: GroupCall[SyncGroupRequest]) -> tuple[ClassicGroup, Member]:
        request = call.request
        asked = (request.protocol_type, request.protocol_name)
        if call.version >= _PROTOCOL_REQUIRED_FROM and None in asked:
            raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the protocol is not named")
        group = self._group(request.group_id)
        member = self._checked_member(group, request)
        for one, ours in zip(asked, (group.protocol_type, group.protocol_name), strict=True):
            if one is not None and one != ours:
                raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{one!r}, the group has {ours!r}")
        if group.state is GroupState.PREPARING_REBALANCE:
            raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS)
        return group, member

    def _checked_member(self, group: ClassicGroup, request: SyncGroupRequest | HeartbeatRequest) -> Member:
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise Refusal(ErrorCode.ILLEGAL_GENERATION, f"{request.generation_id}, the group's is {group.generation}")
        return member

    # Heartbeat

    def heartbeat(self, call: GroupCall[HeartbeatRequest]) -> None:
        code = ErrorCode.NONE
        try:
            group = self._group(call.request.group_id)
            self._rebalances.renew_session(group, self._checked_member(group, call.request))
            if group.state is GroupState.PREPARING_REBALANCE:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        except Refusal as refusal:
            # A group that is being loaded still has its members: they go on with their heartbeats.
            is_loading = refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            code = ErrorCode.NONE if is_loading else refusal.code
        call.reply(HeartbeatResponse(error_code=code))

    # LeaveGroup

    def leave(self, call: GroupCall[LeaveGroupRequest]) -> None:
        request = call.request
        leaving = (
            request.members if call.version >= _MANY_MEMBERS_FROM else [MemberIdentity(member_id=request.member_id)]
        )
        code, members = ErrorCode.NONE, []
        try:
            members = self._leave(request.group_id, leaving)
        except Refusal as refusal:
            code = refusal.code
        if call.version < _MANY_MEMBERS_FROM and members:
            code, members = ErrorCode(members[0].error_code), []
        call.reply(LeaveGroupResponse(error_code=code, members=members))

    def _leave(self, group_id: str, leaving: list[MemberIdentity]) -> list[MemberResponse]:
        try:
            group = self._group(group_id)
        except Refusal as refusal:
            if refusal.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            return [_left(one, refusal.code) for one in leaving]
        left = [_left(one, self._remove(group, one)) for one in leaving]
        if any(one.error_code == 0 for one in left):
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._rebalances.prepare(group)
            else:
                self._rebalances.complete_if_joined(group)
        return left

    def _remove(self, group: ClassicGroup, leaving: MemberIdentity) -> ErrorCode:
        """Remove one member; an administrator may name a static member by its instance id alone (KIP-345)."""
        member_id = leaving.member_id
        if not member_id:
            instance = group.member_of_instance(leaving.group_instance_id or "")
            if instance is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = instance.member_id
        elif member_id not in group.pending:
            try:
                group.check_member(member_id, leaving.group_instance_id)
            except Refusal as refusal:
                return refusal.code
        self._rebalances.remove(group, member_id)
        return ErrorCode.NONE


def _left(member: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)
