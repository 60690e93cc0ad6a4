"""The coordinator's answer to JoinGroup: new, returning and static members, and which join starts a rebalance."""

from __future__ import annotations

from random import Random
from uuid import UUID

from ....error_codes import ErrorCode
from ....wire.messages.group import JoinGroupRequest, JoinGroupResponse
from ...refusal import Refusal
from ..loaded_groups import GroupCall, LoadedGroups
from .answers import refused_join
from .group import ClassicGroup, GroupState
from .members import Member

_REBALANCE_TIMEOUT_FROM = 1
_MEMBER_ID_REQUIRED_FROM = 4  # KIP-394
_NULL_PROTOCOL_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9  # KIP-814


class Joining:
    """Answers JoinGroup, now or when all members have joined."""

    def __init__(self, groups: LoadedGroups, random: Random) -> None:
        self._groups = groups
        self._rebalances = groups.rebalances
        self._settings = groups.settings
        self._random = random

    def join(self, call: GroupCall[JoinGroupRequest]) -> None:
        request = call.request
        try:
            self._check(request)
            group = self._group(request)
            if not self._has_room(group, request.member_id):
                group.remove(request.member_id)
                self._answer(call, refused_join("", ErrorCode.GROUP_MAX_SIZE_REACHED))
                return
            group.check_protocols(request.protocol_type, [one.name for one in request.protocols])
            if request.member_id:
                self._rejoin(group, call)
            else:
                self._join_anew(group, call)
        except Refusal as refusal:
            self._answer(call, refused_join(request.member_id, refusal.code))

    def _answer(self, call: GroupCall[JoinGroupRequest], response: JoinGroupResponse) -> None:
        if response.protocol_name is None and call.version < _NULL_PROTOCOL_FROM:
            response.protocol_name = ""
        call.reply(response)

    def _check(self, request: JoinGroupRequest) -> None:
        if not request.group_id:
            raise Refusal(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        least, most = self._settings.group_min_session_timeout_ms, self._settings.group_max_session_timeout_ms
        if not least <= request.session_timeout_ms <= most:
            raise Refusal(ErrorCode.INVALID_SESSION_TIMEOUT, f"{request.session_timeout_ms} is not {least} to {most}")

    def _group(self, request: JoinGroupRequest) -> ClassicGroup:
        """Return the group. A JoinGroup without a member id creates it, even if that member is refused afterwards."""
        if not request.member_id:
            return self._groups.create_classic(request.group_id)
        group = self._groups.find_classic(request.group_id)
        if group is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id!r}")
        return group

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Return whether the group has room for this member. In a rebalance the first to join get in (KIP-389)."""
        most = self._settings.group_max_size
        member = group.members.get(member_id)
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.parked_join is not None) or group.joined < most
        return member is not None or len(group.members) < most

    # Without a member id

    def _join_anew(self, group: ClassicGroup, call: GroupCall[JoinGroupRequest]) -> None:
        instance_id = call.request.group_instance_id
        name = call.client_id if instance_id is None else instance_id
        member_id = f"{name}-{UUID(int=self._random.getrandbits(128), version=4)}"
        instance = None if instance_id is None else group.member_of_instance(instance_id)
        if instance is not None:
            self._replace(group, instance, member_id, call)
        elif instance_id is None and call.version >= _MEMBER_ID_REQUIRED_FROM:
            self._rebalances.await_pending(group, member_id, call.request.session_timeout_ms / 1000)
            self._answer(call, refused_join(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        else:
            self._add(group, member_id, call)

    def _add(self, group: ClassicGroup, member_id: str, call: GroupCall[JoinGroupRequest]) -> None:
        request = call.request
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=call.client_id,
            client_host=call.client_host,
            session_timeout=0.0,
            rebalance_timeout=0.0,
            protocol_type=request.protocol_type,
            protocols={},
        )
        self._update(member, call)
        self._rebalances.add(group, member)

    def _update(self, member: Member, call: GroupCall[JoinGroupRequest]) -> None:
        """Park the request, and update the member's protocols and timeouts from it."""
        request = call.request
        member.protocols = {one.name: bytes(one.metadata) for one in request.protocols}
        member.session_timeout = request.session_timeout_ms / 1000
        has_timeout = call.version >= _REBALANCE_TIMEOUT_FROM
        member.rebalance_timeout = request.rebalance_timeout_ms / 1000 if has_timeout else member.session_timeout
        member.parked_join = lambda response: self._answer(call, response)

    # A static member whose process has restarted (KIP-345)

    def _replace(self, group: ClassicGroup, old: Member, member_id: str, call: GroupCall[JoinGroupRequest]) -> None:
        """Give the new process the instance id, and the assignment if the group is stable; fence the old process."""
        leader_before = group.leader
        member = group.rename(old, member_id)
        self._rebalances.fence(group, old)
        self._update(member, call)
        self._rebalances.renew_session(group, member)
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._rebalances.prepare(group)  # the leader may be assigning to the old member id just now
        elif group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            group.store()
            member.answer_join(self._replaced(group, member, leader_before, call.version))
        else:
            self._rebalances.prepare_or_complete(group)

    def _replaced(
        self, group: ClassicGroup, member: Member, leader_before: str | None, version: int
    ) -> JoinGroupResponse:
        """Return the answer for the new process. Even a leader must not assign now: the group keeps its assignment.

        Before KIP-814 the answer named the old member id as the leader, so that the new process acted as a follower.
        """
        answer = group.join_answer(member)
        if version >= _SKIP_ASSIGNMENT_FROM:
            answer.skip_assignment = group.leader == member.member_id
        else:
            answer.leader, answer.members = leader_before or "", []
        return answer

    # With a member id

    def _rejoin(self, group: ClassicGroup, call: GroupCall[JoinGroupRequest]) -> None:
        request = call.request
        if request.member_id in group.pending:
            if request.group_instance_id is not None:
                raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "a pending member can't be a static one")
            self._add(group, request.member_id, call)
            return
        member = group.check_member(request.member_id, request.group_instance_id)
        if self._changes(group, member, request):
            self._update(member, call)
            self._rebalances.prepare_or_complete(group)
        else:
            self._answer(call, group.join_answer(member))  # the answer to its last JoinGroup was lost

    def _changes(self, group: ClassicGroup, member: Member, request: JoinGroupRequest) -> bool:
        """Return whether this JoinGroup starts or joins a rebalance, and is not just a retry.

        A leader of a stable group always starts one: it rejoins to assign again.
        """
        if group.state is GroupState.PREPARING_REBALANCE:
            return True
        if group.state is GroupState.STABLE and group.leader == member.member_id:
            return True
        return not member.matches({one.name: bytes(one.metadata) for one in request.protocols})
