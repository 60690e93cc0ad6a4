"""Classic members of a consumer group: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup, none of which waits."""

from __future__ import annotations

from random import Random
from typing import Final
from uuid import UUID

from ....error_codes import ErrorCode
from ....wire.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ...refusal import Refusal
from ..classic.answers import refused_join
from ..loaded_groups import GroupCall, LoadedGroups
from ..topic_lookup import TopicLookup
from .conversions import Conversions
from .embedded import assignment_of, subscription_of
from .group import ConsumerGroup
from .members import ClassicSide, ConsumerMember, MemberState

_MEMBER_ID_REQUIRED_FROM: Final = 4  # KIP-394
_NULL_PROTOCOL_FROM: Final = 7
_MANY_MEMBERS_FROM: Final = 3


class ClassicMembers:
    """Answers the requests of the classic protocol about groups of the consumer protocol.

    A member joins again whenever it has to give up partitions, and whenever it may get some: JoinGroup tells the
    coordinator what the member holds, and SyncGroup tells the member what it gets. Its epoch is its generation.
    """

    def __init__(self, groups: LoadedGroups, conversions: Conversions, topics: TopicLookup, random: Random) -> None:
        self._groups = groups
        self._settings = groups.settings
        self._memberships = groups.memberships
        self._conversions = conversions
        self._topics = topics
        self._random = random

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._groups.find(group_id)
        assert isinstance(group, ConsumerGroup)
        return group

    # JoinGroup

    def join(self, call: GroupCall[JoinGroupRequest]) -> None:
        try:
            answer = self._join(call)
        except Refusal as refusal:
            answer = refused_join(call.request.member_id, refusal.code)
        if answer.protocol_name is None and call.version < _NULL_PROTOCOL_FROM:
            answer.protocol_name = ""
        call.reply(answer)

    def _join(self, call: GroupCall[JoinGroupRequest]) -> JoinGroupResponse:
        request = call.request
        group = self._group(request.group_id)
        self._check_join(group, request)
        instance_id = request.group_instance_id
        instance = None if instance_id is None else group.member_of_instance(instance_id)
        member_id = request.member_id
        if not member_id:
            member_id = str(UUID(int=self._random.getrandbits(128), version=4))
            if instance_id is None and call.version >= _MEMBER_ID_REQUIRED_FROM:
                return refused_join(member_id, ErrorCode.MEMBER_ID_REQUIRED)
        elif instance_id is not None:
            instance = group.check_instance(member_id, instance_id)
        is_new = instance is None and member_id not in group.members
        protocols = {one.name: bytes(one.metadata) for one in request.protocols}
        subscription = subscription_of(protocols, self._topics)
        replaces = instance is not None and not request.member_id
        if instance is not None and replaces:
            member = self._memberships.replace(group, instance, member_id)
        else:
            member = group.members.setdefault(member_id, ConsumerMember(member_id, instance_id))
        changed = member.names != subscription.topics or bool(member.regex)
        was_consumer = replaces and member.classic is None
        member.classic = ClassicSide(protocols, request.session_timeout_ms / 1000)
        member.rebalance_timeout = request.rebalance_timeout_ms / 1000
        member.client_id, member.client_host = call.client_id, call.client_host
        member.rack_id = subscription.rack_id or member.rack_id
        member.names, member.regex, member.assignor = subscription.topics, None, None
        self._reassign(group, member, subscription.owned, is_new=is_new, changed=changed)
        self._memberships.renew_session(group, member)
        self._memberships.wait(group, member, "sync")
        answer = JoinGroupResponse(
            error_code=0,
            generation_id=member.epoch,
            protocol_type="consumer",
            protocol_name=next(iter(protocols)),
            leader="",
            member_id=member_id,
            members=[],
        )
        if was_consumer:
            self._conversions.downgrade(group, rebalances=changed)
        return answer

    def _reassign(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        owned: frozenset[tuple[UUID, int]],
        *,
        changed: bool,
        is_new: bool = False,
    ) -> None:
        epoch = group.epoch
        if changed:
            self._memberships.subscriptions_changed(group)
        else:
            self._memberships.notice_topics(group)
        self._memberships.assign_if_due(group, member if is_new and group.epoch == epoch else None)
        self._memberships.reconcile(group, member, owned, subscription_changed=changed)
        self._memberships.stop_waiting(group, member, "join")

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest) -> None:
        least, most = self._settings.group_min_session_timeout_ms, self._settings.group_max_session_timeout_ms
        if not least <= request.session_timeout_ms <= most:
            raise Refusal(ErrorCode.INVALID_SESSION_TIMEOUT, f"{request.session_timeout_ms} is not {least} to {most}")
        is_new = request.member_id not in group.members
        if is_new and len(group.members) >= self._settings.group_consumer_max_size:
            raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED)
        names = {one.name for one in request.protocols}
        others = [
            one.classic.protocols.keys()
            for one in group.members.values()
            if one.classic is not None and one.member_id != request.member_id
        ]
        common = names.intersection(*others)
        if request.protocol_type != "consumer" or not common:
            raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{request.protocol_type!r}: {', '.join(names)}")
        if self._settings.group_consumer_migration_policy == "disabled":
            raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group's protocol may not change")

    # SyncGroup and Heartbeat

    def sync(self, call: GroupCall[SyncGroupRequest]) -> None:
        """Answer with what the member has got. The assignments that it sends mean nothing: the coordinator assigns."""
        request = call.request
        try:
            group = self._group(request.group_id)
            member = self._member(group, request.member_id, request.group_instance_id, request.generation_id)
            side = member.classic
            assert side is not None
            name = next(iter(side.protocols))
            for asked, ours in ((request.protocol_type, "consumer"), (request.protocol_name, name)):
                if asked is not None and asked != ours:
                    raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{asked!r}, the member has {ours!r}")
            if member.epoch < group.assignment_epoch and member.holding.state is not MemberState.UNREVOKED:
                self._memberships.wait(group, member, "join")
                raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS)
        except Refusal as refusal:
            call.reply(SyncGroupResponse(error_code=refusal.code, assignment=b""))
            return
        self._memberships.stop_waiting(group, member, "sync")
        self._memberships.renew_session(group, member)
        call.reply(
            SyncGroupResponse(
                error_code=0,
                protocol_type="consumer",
                protocol_name=name,
                assignment=assignment_of(member.holding.assigned, side.protocols, self._topics),
            )
        )

    def heartbeat(self, call: GroupCall[HeartbeatRequest]) -> None:
        request, code = call.request, ErrorCode.NONE
        try:
            group = self._group(request.group_id)
            member = self._member(group, request.member_id, request.group_instance_id, request.generation_id)
            self._memberships.renew_session(group, member)
            if self._must_join_again(group, member):
                self._memberships.wait(group, member, "join")
                code = ErrorCode.REBALANCE_IN_PROGRESS
        except Refusal as refusal:
            # A group that is being loaded still has its members: they go on with their heartbeats.
            is_loading = refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            code = ErrorCode.NONE if is_loading else refusal.code
        call.reply(HeartbeatResponse(error_code=code))

    def _must_join_again(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        holding = member.holding
        if holding.epoch < group.assignment_epoch or holding.state is MemberState.UNREVOKED:
            return True
        if group.epoch > group.assignment_epoch and not group.consumer_members:
            return True  # no heartbeat of a consumer member comes that would compute the assignment
        waits = holding.state is MemberState.UNRELEASED
        return waits and group.owned_partitions(but=member).isdisjoint(member.target - holding.assigned.keys())

    def _member(self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
        member = group.member(member_id) if instance_id is None else group.check_instance(member_id, instance_id)
        if member.classic is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} speaks the consumer protocol")
        if member.epoch != generation:
            raise Refusal(ErrorCode.ILLEGAL_GENERATION, f"{generation}, the member's is {member.epoch}")
        return member

    # LeaveGroup

    def leave(self, call: GroupCall[LeaveGroupRequest]) -> None:
        """Remove members, those of the consumer protocol too: an administrator may name any."""
        request = call.request
        is_old = call.version < _MANY_MEMBERS_FROM
        leaving = [MemberIdentity(member_id=request.member_id)] if is_old else list(request.members)
        try:
            self._group(request.group_id)
        except Refusal as refusal:
            call.reply(LeaveGroupResponse(error_code=refusal.code, members=[]))
            return
        left = [
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                error_code=self._leave(request.group_id, one),
            )
            for one in leaving
        ]
        code = left[0].error_code if is_old else 0
        call.reply(LeaveGroupResponse(error_code=code, members=[] if is_old else left))

    def _leave(self, group_id: str, leaving: MemberIdentity) -> ErrorCode:
        group = self._groups.find(group_id)
        if not isinstance(group, ConsumerGroup):  # the member before it was the last one of the consumer protocol
            return ErrorCode.UNKNOWN_MEMBER_ID
        try:
            if leaving.group_instance_id is None:
                member = group.member(leaving.member_id)
            elif leaving.member_id:
                member = group.check_instance(leaving.member_id, leaving.group_instance_id)
            else:
                found = group.member_of_instance(leaving.group_instance_id)
                if found is None:
                    return ErrorCode.UNKNOWN_MEMBER_ID
                member = found
        except Refusal as refusal:
            return refusal.code
        self._memberships.remove(group, member)
        return ErrorCode.NONE
