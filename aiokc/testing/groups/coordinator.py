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
from typing import Any

from ...wire import Request, Response
from ...wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from ...wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from ..messages.describing import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest, OffsetDeleteRequest
from ..messages.txn import TxnOffsetCommitRequest
from .admin import GroupAdmin
from .classic.attendance import Attendance
from .classic.joining import Joining
from .classic.rebalances import GroupSettings
from .committing import Committing
from .fetching import Fetching
from .loaded_groups import GroupCall, LoadedGroups, TopicLookup
from .offsets_store import GroupOffsets, Place


class Groups:
    """All classic groups of a cluster. Times are seconds of any monotonic clock."""

    def __init__(self, random: Random, config: GroupSettings | None = None, *, topics: TopicLookup) -> None:
        self._groups = LoadedGroups(config or GroupSettings())
        self._offsets = GroupOffsets()
        joining = Joining(self._groups, random)
        attendance = Attendance(self._groups)
        committing = Committing(self._groups, self._offsets, topics)
        fetching = Fetching(self._groups, self._offsets, topics)
        admin = GroupAdmin(self._groups, self._offsets)
        self._handlers: dict[type[Request[Any]], Callable[[GroupCall[Any]], None]] = {
            JoinGroupRequest: joining.join,
            SyncGroupRequest: attendance.sync,
            HeartbeatRequest: attendance.heartbeat,
            LeaveGroupRequest: attendance.leave,
            OffsetCommitRequest: committing.commit,
            OffsetFetchRequest: fetching.fetch,
            TxnOffsetCommitRequest: committing.commit_transactional,
            OffsetDeleteRequest: committing.delete,
            DescribeGroupsRequest: admin.describe,
            ListGroupsRequest: admin.list_groups,
            DeleteGroupsRequest: admin.delete,
        }

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
    ) -> None:
        """Handle a request. ``reply`` is called at once, or later: in ``handle`` of another request, or in ``tick``.

        ``reply`` is never called if the member repeats the request meanwhile: the repeated one gets the answer.
        ``coordinates`` returns whether the asked broker coordinates a group; requests about other groups are answered
        NOT_COORDINATOR.
        """
        self.tick(now)
        self._groups.coordinates = coordinates
        self._handlers[type(request)](GroupCall(request, version, client_id, client_host, reply))

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

    def committed(self, group_id: str) -> dict[Place, int]:
        """Return the committed offsets of a group."""
        return {place: one.offset for place, one in self._offsets.of(group_id).items()}

    def expire_member(self, group_id: str, member: str | None, now: float) -> str:
        """End the session of the member with this member id, instance id or client id, or of the first member.

        Return its member id. Raises LookupError where there is no such member.
        """
        self.tick(now)
        group = self._groups.by_id.get(group_id)
        members = list(group.members.values()) if group is not None else []
        found = next(
            (one for one in members if member in (None, one.member_id, one.group_instance_id, one.client_id)), None
        )
        if group is None or found is None:
            known = ", ".join(one.member_id for one in members) or "none"
            raise LookupError(f"group {group_id!r} has no member {member or 'at all'!r}; its members: {known}")
        self._groups.rebalances.expire(group, found.member_id)
        return found.member_id

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
