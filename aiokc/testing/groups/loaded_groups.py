"""All classic groups by id: which are loaded, which are moving to another coordinator, and how they move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from ...error_codes import ErrorCode
from ...wire import Request, Response
from ...wire.messages.group import SyncGroupResponse
from ..refusal import Refusal
from .classic.answers import refused_join
from .classic.group import ClassicGroup, GroupState
from .classic.rebalances import GroupSettings, Rebalances
from .timers import Timers

Q = TypeVar("Q", bound=Request[Any])


class TopicLookup(Protocol):
    """What a group coordinator needs to know about topics."""

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, None if there is none."""

    def id_of(self, name: str) -> UUID:
        """Return the id of a topic; the zero id if there is no such topic."""

    def has_partition(self, name: str, index: int) -> bool:
        """Return whether this partition exists."""


@dataclass(frozen=True, slots=True)
class GroupCall(Generic[Q]):
    """A request about a group, the client that sent it, and the callback for the answer, called now or later."""

    request: Q
    version: int
    client_id: str
    client_host: str
    reply: Callable[[Response], None]


class LoadedGroups:
    """All groups of the cluster.

    Requests about a group that is moving are refused with its code in ``away``. Requests about a group that the asked
    broker does not coordinate are refused with NOT_COORDINATOR.
    """

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.timers = Timers()
        self.rebalances = Rebalances(self.timers, settings)
        self.by_id: dict[str, ClassicGroup] = {}
        self.away: dict[str, ErrorCode] = {}
        self.coordinates: Callable[[str], bool] = lambda group_id: True

    def check(self, group_id: str) -> None:
        """Raise Refusal where another broker coordinates the group, or the group is moving."""
        if not self.coordinates(group_id):
            raise Refusal(ErrorCode.NOT_COORDINATOR, f"group {group_id!r}")
        if group_id in self.away:
            raise Refusal(self.away[group_id], f"group {group_id!r}")

    def find(self, group_id: str) -> ClassicGroup | None:
        """Return a group, or None. Raises Refusal where another broker coordinates it, or it is moving."""
        self.check(group_id)
        return self.by_id.get(group_id)

    def create(self, group_id: str) -> ClassicGroup:
        """Return a group; create an empty one if there is none. Raises Refusal as ``find`` does."""
        return self.find(group_id) or self.by_id.setdefault(group_id, ClassicGroup(group_id))

    def delete(self, group_id: str) -> None:
        self.by_id.pop(group_id).enter(GroupState.DEAD)
        self.timers.cancel_all(group_id)

    # Moving

    def unload(self, group_id: str) -> None:
        """Take the group from its coordinator: parked requests and new ones are answered NOT_COORDINATOR."""
        self.away[group_id] = code = ErrorCode.NOT_COORDINATOR
        self.timers.cancel_all(group_id)
        group = self.by_id.get(group_id)
        if group is None:
            return
        group.enter(GroupState.DEAD)
        for member in group.members.values():
            member.answer_join(refused_join(member.member_id, code))
            member.answer_sync(SyncGroupResponse(error_code=code, assignment=b""))

    def begin_loading(self, group_id: str) -> None:
        """Let the next coordinator load the group: it answers COORDINATOR_LOAD_IN_PROGRESS until ``load``."""
        self.away[group_id] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def load(self, group_id: str) -> None:
        """Let the next coordinator continue from the stored group. All members' sessions start again."""
        self.away.pop(group_id, None)
        before = self.by_id.get(group_id)
        if before is None:
            return
        group = self.by_id[group_id] = ClassicGroup(group_id, before.stored)
        for member in group.members.values():
            self.rebalances.renew_session(group, member)
