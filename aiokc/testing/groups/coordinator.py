"""The coordinator of classic consumer groups, without network and clock.

    groups = Groups(Random(1), topics=topics)
    groups.handle(request, client_id="app", client_host="/127.0.0.1", version=9, now=loop.time(), reply=send)
    loop.call_at(groups.deadline, lambda: groups.tick(loop.time()))

As in Kafka 4.3's GroupMetadataManager; where a real broker and its documentation differ, as the broker does.
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
    """All groups of a cluster. Times are seconds of any clock that does not go back."""

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
        """Do what is asked; ``reply`` is called at once, or later: in the ``handle`` of another request, or ``tick``.

        It is not called if the same member asks once more meanwhile, which gets the answer instead. ``coordinates``
        says which groups the broker answers for that is asked; of the others it says NOT_COORDINATOR.
        """
        self.tick(now)
        self._groups.coordinates = coordinates
        self._handlers[type(request)](GroupCall(request, version, client_id, client_host, reply))

    @property
    def deadline(self) -> float | None:
        """When ``tick`` has something to do; None if nothing waits for a time."""
        return self._groups.timers.deadline

    def tick(self, now: float) -> None:
        """Let sessions end, and rebalances that took too long."""
        self._groups.timers.tick(now)

    def end_transaction(self, group_id: str, producer_id: int, committed: bool) -> None:
        """Let the offsets of a transaction become committed, or forget them."""
        self._offsets.end_transaction(group_id, producer_id, committed)

    def forget_topic(self, name: str) -> None:
        """Delete the offsets of a topic that was deleted."""
        self._offsets.forget_topic(name)

    # Faults

    def members(self, group_id: str) -> list[str]:
        """Return the ids of a group's members, the first one to have joined first."""
        group = self._groups.by_id.get(group_id)
        return list(group.members) if group is not None else []

    def committed(self, group_id: str) -> dict[Place, int]:
        """Return the offsets that are committed."""
        return {place: one.offset for place, one in self._offsets.of(group_id).items()}

    def expire_member(self, group_id: str, member: str | None, now: float) -> str:
        """Let the session of a member end now: the one with this member id, instance id or client id, or the first.

        Return its member id. Raises LookupError: there is no such member.
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
        """Let the coordinator lose a group: until ``load`` everybody hears NOT_COORDINATOR, who is parked too."""
        self._groups.unload(group_id)

    def begin_loading(self, group_id: str) -> None:
        """Let the group's next coordinator say COORDINATOR_LOAD_IN_PROGRESS until it is loaded."""
        self._groups.begin_loading(group_id)

    def load(self, group_id: str, now: float) -> None:
        """Let the next coordinator go on from what the one before wrote down: the last generation that got stable."""
        self.tick(now)
        self._groups.load(group_id)
