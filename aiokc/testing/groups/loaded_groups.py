"""All groups by id: which are loaded, which are moving to another coordinator, and how they move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from ...error_codes import ErrorCode
from ...wire import Request, Response
from ...wire.messages.group import SyncGroupResponse
from ..refusal import Refusal
from .classic.answers import refused_join
from .classic.group import ClassicGroup, GroupState
from .classic.rebalances import Rebalances
from .consumer.group import ConsumerGroup
from .consumer.memberships import Memberships
from .settings import GroupConfigs, GroupSettings
from .timers import Timers
from .topic_lookup import TopicLookup

Q = TypeVar("Q", bound=Request[Any])
Group: TypeAlias = ClassicGroup | ConsumerGroup


@dataclass(frozen=True, slots=True)
class GroupCall(Generic[Q]):
    """A request about a group, the client that sent it, and the callback for the answer, called now or later.

    ``may_describe`` returns whether its user may know of a topic.
    """

    request: Q
    version: int
    client_id: str
    client_host: str
    reply: Callable[[Response], None]
    may_describe: Callable[[str], bool] = lambda topic: True


class LoadedGroups:
    """All groups of the cluster.

    Requests about a group that is moving are refused with its code in ``away``. Requests about a group that the asked
    broker does not coordinate are refused with NOT_COORDINATOR.
    """

    def __init__(self, settings: GroupSettings, topics: TopicLookup) -> None:
        self.settings = settings
        self.configs = GroupConfigs(settings)
        self.timers = Timers()
        self.rebalances = Rebalances(self.timers, settings)
        self.memberships = Memberships(self.timers, self.configs, topics)
        self.by_id: dict[str, Group] = {}
        self.away: dict[str, ErrorCode] = {}
        self.coordinates: Callable[[str], bool] = lambda group_id: True

    def check(self, group_id: str) -> None:
        """Raise Refusal where another broker coordinates the group, or the group is moving."""
        if not self.coordinates(group_id):
            raise Refusal(ErrorCode.NOT_COORDINATOR, f"group {group_id!r}")
        if group_id in self.away:
            raise Refusal(self.away[group_id], f"group {group_id!r}")

    def find(self, group_id: str) -> Group | None:
        """Return a group, or None. Raises Refusal where another broker coordinates it, or it is moving."""
        self.check(group_id)
        return self.by_id.get(group_id)

    def find_classic(self, group_id: str) -> ClassicGroup | None:
        """Return a classic group, or None. Raises Refusal as ``find`` does."""
        group = self.find(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def create(self, group_id: str) -> Group:
        """Return a group; create an empty classic one if there is none. Raises Refusal as ``find`` does."""
        return self.find(group_id) or self.by_id.setdefault(group_id, ClassicGroup(group_id))

    def create_classic(self, group_id: str) -> ClassicGroup:
        """Return a classic group; create an empty one if there is none, or an empty consumer group."""
        group = self.find_classic(group_id)
        if group is None:
            group = self.by_id[group_id] = ClassicGroup(group_id)
        return group

    def delete(self, group_id: str) -> None:
        group = self.by_id.pop(group_id)
        if isinstance(group, ClassicGroup):
            group.enter(GroupState.DEAD)
        self.timers.cancel_all(group_id)

    def change(self, group: Group) -> None:
        """Replace a group by one of the other protocol, without its timers."""
        self.timers.cancel_all(group.group_id)
        self.by_id[group.group_id] = group

    # Moving

    def unload(self, group_id: str) -> None:
        """Take the group from its coordinator: parked requests and new ones are answered NOT_COORDINATOR."""
        self.away[group_id] = code = ErrorCode.NOT_COORDINATOR
        self.timers.cancel_all(group_id)
        group = self.by_id.get(group_id)
        if isinstance(group, ClassicGroup):
            group.enter(GroupState.DEAD)
            answer_parked(group, code)

    def begin_loading(self, group_id: str) -> None:
        """Let the next coordinator load the group: it answers COORDINATOR_LOAD_IN_PROGRESS until ``load``."""
        self.away[group_id] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def load(self, group_id: str) -> None:
        """Let the next coordinator continue from the stored group. All members' sessions start again."""
        self.away.pop(group_id, None)
        before = self.by_id.get(group_id)
        if isinstance(before, ConsumerGroup):
            self.memberships.load(before)
        elif before is not None:
            group = self.by_id[group_id] = ClassicGroup(group_id, before.stored)
            for member in group.members.values():
                self.rebalances.renew_session(group, member)


def answer_parked(group: ClassicGroup, code: ErrorCode) -> None:
    """Answer all members that wait in a JoinGroup or a SyncGroup with an error code."""
    for member in group.members.values():
        member.answer_join(refused_join(member.member_id, code))
        member.answer_sync(SyncGroupResponse(error_code=code, assignment=b""))
