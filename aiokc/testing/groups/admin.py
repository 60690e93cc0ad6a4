"""The coordinator's answers to an administrator: DescribeGroups, ConsumerGroupDescribe, ListGroups, DeleteGroups."""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...wire.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ..refusal import Refusal
from .classic.group import ClassicGroup, GroupState
from .classic.members import Member
from .loaded_groups import GroupCall, LoadedGroups
from .offsets_store import GroupOffsets

_ALL_OF_GROUP: Final = 3400  # authorized operations, as bits: every client may do everything
_NOT_FOUND_FROM: Final = 6  # KIP-1043; older versions describe a group that does not exist as Dead


class GroupAdmin:
    """Answers DescribeGroups, ConsumerGroupDescribe, ListGroups and DeleteGroups."""

    def __init__(self, groups: LoadedGroups, offsets: GroupOffsets) -> None:
        self._groups = groups
        self._offsets = offsets

    def describe(self, call: GroupCall[DescribeGroupsRequest]) -> None:
        found = [self._described(group_id, call.version) for group_id in call.request.groups]
        for group in found:
            if call.request.include_authorized_operations and not group.error_code:
                group.authorized_operations = _ALL_OF_GROUP
        call.reply(DescribeGroupsResponse(groups=found))

    def _described(self, group_id: str, version: int) -> DescribedGroup:
        code, why, group = ErrorCode.NONE, None, None
        try:
            group = self._groups.find_classic(group_id)
            if group is None and version >= _NOT_FOUND_FROM:
                known = self._groups.find(group_id) is not None
                why = f"Group {group_id} is not a classic group." if known else f"Group {group_id} not found."
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, why)
        except Refusal as refusal:
            code = refusal.code
            why = refusal.why if code is ErrorCode.GROUP_ID_NOT_FOUND else None
        if group is None:
            state = GroupState.DEAD.value if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) else ""
            return DescribedGroup(
                error_code=code,
                error_message=why,
                group_id=group_id,
                group_state=state,
                protocol_type="",
                protocol_data="",
                members=[],
            )
        is_stable = group.state is GroupState.STABLE
        return DescribedGroup(
            error_code=0,
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=[_described_member(group, member) for member in group.members.values()],
        )

    def list_groups(self, call: GroupCall[ListGroupsRequest]) -> None:
        away = [code for group_id, code in self._groups.away.items() if self._groups.coordinates(group_id)]
        if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in away:
            call.reply(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[]))
            return
        states = {state.lower() for state in call.request.states_filter}
        types = {kind.lower() for kind in call.request.types_filter}
        listed = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.kind,
            )
            for group in self._groups.by_id.values()
            if group.group_id not in self._groups.away
            and self._groups.coordinates(group.group_id)
            and (not states or group.state_name.lower() in states)
            and (not types or group.kind in types)
        ]
        call.reply(ListGroupsResponse(error_code=0, groups=listed))

    def delete(self, call: GroupCall[DeleteGroupsRequest]) -> None:
        call.reply(
            DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(group_id=group_id, error_code=self._delete(group_id))
                    for group_id in dict.fromkeys(call.request.groups_names)
                ]
            )
        )

    def _delete(self, group_id: str) -> ErrorCode:
        try:
            group = self._groups.find(group_id)
        except Refusal as refusal:
            return refusal.code
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        self._groups.delete(group_id)
        self._offsets.forget_group(group_id)
        return ErrorCode.NONE


def _described_member(group: ClassicGroup, member: Member) -> DescribedGroupMember:
    """Describe a member: its subscription if the group is stable, and its assignment (in a rebalance the old one)."""
    is_stable = group.state is GroupState.STABLE
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.protocols.get(group.protocol_name or "", b"") if is_stable else b"",
        member_assignment=member.assignment,
    )
