"""``Groups``: the entry point of the group coordinator: takes requests and the time, calls back with the answers.

    groups = Groups(Random(1), topics=topics)
    groups.handle(request, client_id="app", client_host="/127.0.0.1", version=9, now=loop.time(), reply=send)
    loop.call_at(groups.deadline, lambda: groups.tick(loop.time()))

It has no network and no clock. It behaves like GroupMetadataManager of Kafka 4.3; where a real broker and its
documentation differ, it behaves like the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from ...wire import Request, Response
from ...wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from ...wire.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
)
from ...wire.messages.group_description import ConsumerGroupDescribeRequest
from ...wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from ...wire.messages.txn import TxnOffsetCommitRequest
from .admin import GroupAdmin
from .classic.attendance import Attendance
from .classic.group import ClassicGroup
from .classic.joining import Joining
from .classic.members import Member
from .committing import Committing
from .consumer.classic_members import ClassicMembers
from .consumer.conversions import Conversions
from .consumer.describing import Describing
from .consumer.group import ConsumerGroup
from .consumer.heartbeating import Heartbeating
from .consumer.members import ConsumerMember
from .fetching import Fetching
from .loaded_groups import Group, GroupCall, LoadedGroups
from .offsets_store import GroupOffsets, Place
from .settings import GroupConfig, GroupSettings, ReleaseRules
from .topic_lookup import TopicLookup

_Handler: TypeAlias = Callable[[GroupCall[Any]], None]


class Groups:
    """All groups of a cluster, classic and consumer groups. Times are seconds of any monotonic clock."""

    def __init__(
        self,
        random: Random,
        config: GroupSettings | None = None,
        *,
        topics: TopicLookup,
        rules: ReleaseRules | None = None,
    ) -> None:
        rules = rules or ReleaseRules()
        self._groups = LoadedGroups(config or GroupSettings(), topics)
        self._offsets = GroupOffsets()
        self._topics = topics
        joining = Joining(self._groups, random)
        attendance = Attendance(self._groups)
        conversions = Conversions(self._groups, topics)
        classic_members = ClassicMembers(self._groups, conversions, topics, random)
        committing = Committing(self._groups, self._offsets, topics, rules)
        fetching = Fetching(self._groups, self._offsets, topics)
        admin = GroupAdmin(self._groups, self._offsets)
        self._handlers: dict[type[Request[Any]], _Handler] = {
            JoinGroupRequest: self._by_kind(joining.join, classic_members.join),
            SyncGroupRequest: self._by_kind(attendance.sync, classic_members.sync),
            HeartbeatRequest: self._by_kind(attendance.heartbeat, classic_members.heartbeat),
            LeaveGroupRequest: self._by_kind(attendance.leave, classic_members.leave),
            ConsumerGroupHeartbeatRequest: Heartbeating(self._groups, conversions, rules).heartbeat,
            ConsumerGroupDescribeRequest: Describing(self._groups, topics).describe,
            OffsetCommitRequest: committing.commit,
            OffsetFetchRequest: fetching.fetch,
            TxnOffsetCommitRequest: committing.commit_transactional,
            OffsetDeleteRequest: committing.delete,
            DescribeGroupsRequest: admin.describe,
            ListGroupsRequest: admin.list_groups,
            DeleteGroupsRequest: admin.delete,
        }

    def _by_kind(self, in_classic_group: _Handler, in_consumer_group: _Handler) -> _Handler:
        """Return the handler of a request of the classic protocol. An empty consumer group counts as no group."""

        def handle(call: GroupCall[Any]) -> None:
            group = self._groups.by_id.get(call.request.group_id)
            is_consumer = isinstance(group, ConsumerGroup) and not group.is_empty
            is_away = call.request.group_id in self._groups.away
            (in_consumer_group if is_consumer and not is_away else in_classic_group)(call)

        return handle

    def handle(
        self,
        request: Request[Any],
        *,
        client_id: str,
        client_host: str,
        version: int,
        now: float,
        reply: Callable[[Response], None],
        coordinates: Callable[[str], bool] = lambda group_id: True,
        may_describe: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        """Handle a request. ``reply`` is called at once, or later: in ``handle`` of another request, or in ``tick``.

        ``reply`` is never called if the member repeats the request meanwhile: the repeated one gets the answer.
        ``coordinates`` returns whether the asked broker coordinates a group; requests about other groups are answered
        NOT_COORDINATOR. ``may_describe`` returns whether the user may know of a topic.
        """
        self.tick(now)
        self._groups.coordinates = coordinates
        self._handlers[type(request)](GroupCall(request, version, client_id, client_host, reply, may_describe))

    @property
    def deadline(self) -> float | None:
        """When ``tick`` must be called next; None if no timer is set."""
        return self._groups.timers.deadline

    def tick(self, now: float) -> None:
        """End the sessions, and the phases of rebalances, whose time is over."""
        self._groups.timers.tick(now)

    def end_transaction(self, group_id: str, producer_id: int, committed: bool) -> None:
        """Commit the pending offsets of a transaction, or forget them."""
        self._offsets.end_transaction(group_id, producer_id, committed)

    def forget_topic(self, name: str) -> None:
        """Delete all committed offsets of a deleted topic."""
        self._offsets.forget_topic(name)

    # For tests: state and faults

    def members(self, group_id: str) -> list[str]:
        """Return the member ids of a group, in the order of joining."""
        group = self._groups.by_id.get(group_id)
        return list(group.members) if group is not None else []

    def holding(self, group_id: str, member_id: str) -> frozenset[Place]:
        """Return what a member of a consumer group may hold, also what it has not acknowledged to have given up."""
        group = self._groups.by_id.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if not isinstance(member, ConsumerMember):
            return frozenset()
        named = ((self._topics.name_of(topic_id), index) for topic_id, index in member.holding.partitions)
        return frozenset((name, index) for name, index in named if name is not None)

    def committed(self, group_id: str) -> dict[Place, int]:
        """Return the committed offsets of a group."""
        return {place: one.offset for place, one in self._offsets.of(group_id).items()}

    def expire_member(self, group_id: str, member: str | None, now: float) -> str:
        """End the session of the member with this member id, instance id or client id, or of the first member.

        Return its member id. Raises LookupError where there is no such member.
        """
        group, found = self._member(group_id, member, now)
        if isinstance(group, ConsumerGroup) and isinstance(found, ConsumerMember):
            self._groups.memberships.remove(group, found)
        elif isinstance(group, ClassicGroup):
            self._groups.rebalances.expire(group, found.member_id)
        return found.member_id

    def fence_member(self, group_id: str, member: str | None, now: float) -> str:
        """Raise a consumer group's epoch twice with this member, without telling it; return its member id.

        Raises LookupError where there is no such member, or it is no member of a consumer group.
        """
        group, found = self._member(group_id, member, now)
        if not isinstance(group, ConsumerGroup) or not isinstance(found, ConsumerMember):
            raise LookupError(f"group {group_id!r} is no consumer group")
        self._groups.memberships.fence(group, found)
        return found.member_id

    def bump_epoch(self, group_id: str, now: float) -> int:
        """Raise a consumer group's epoch, so that it needs a new assignment; return the epoch. Raises LookupError."""
        self.tick(now)
        group = self._groups.by_id.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise LookupError(f"there is no consumer group {group_id!r}")
        self._groups.memberships.subscriptions_changed(group)
        return group.epoch

    def configure(self, group_id: str, config: GroupConfig) -> None:
        """Set what holds for one group from its members' next heartbeats on."""
        self._groups.configs.configure(group_id, config)

    def _member(self, group_id: str, member: str | None, now: float) -> tuple[Group, Member | ConsumerMember]:
        """Return a group and its member with this member id, instance id or client id, or the first one."""
        self.tick(now)
        group = self._groups.by_id.get(group_id)
        members: list[Member | ConsumerMember] = list(group.members.values()) if group is not None else []
        found = next((one for one in members if member in (None, *_names(one))), None)
        if group is None or found is None:
            if not members:
                raise LookupError(f"group {group_id!r} has no members")
            known = ", ".join(one.member_id for one in members)
            raise LookupError(f"group {group_id!r} has no member {member!r}; its members: {known}")
        return group, found

    def unload(self, group_id: str) -> None:
        """Take a group from its coordinator: until ``load`` all requests, parked ones too, get NOT_COORDINATOR."""
        self._groups.unload(group_id)

    def begin_loading(self, group_id: str) -> None:
        """Let the group's next coordinator answer COORDINATOR_LOAD_IN_PROGRESS until ``load``."""
        self._groups.begin_loading(group_id)

    def load(self, group_id: str, now: float) -> None:
        """Let the next coordinator continue from what the old one stored: the last generation that became stable."""
        self.tick(now)
        self._groups.load(group_id)


def _names(member: Member | ConsumerMember) -> tuple[str | None, ...]:
    instance = member.instance_id if isinstance(member, ConsumerMember) else member.group_instance_id
    return member.member_id, instance, member.client_id
