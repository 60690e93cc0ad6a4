"""The state of one member of a classic group: ids, timeouts, protocols, assignment, parked requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ....wire.messages.group import JoinGroupResponse, SyncGroupResponse


@dataclass(eq=False)
class Member:
    """A member. ``protocols`` has its assignors in its order of preference, each with its subscription.

    ``parked_join`` and ``parked_sync`` are the reply callbacks of a request that waits for the other members.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: Mapping[str, bytes]
    assignment: bytes = b""
    #: Whether it has not been in any generation yet.
    is_new: bool = False
    parked_join: Callable[[JoinGroupResponse], None] | None = None
    parked_sync: Callable[[SyncGroupResponse], None] | None = None

    def answer_join(self, response: JoinGroupResponse) -> None:
        """Answer its parked JoinGroup, if there is one."""
        reply, self.parked_join = self.parked_join, None
        if reply is not None:
            reply(response)

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Answer its parked SyncGroup; return whether there was one."""
        reply, self.parked_sync = self.parked_sync, None
        if reply is not None:
            reply(response)
        return reply is not None

    @property
    def must_heartbeat(self) -> bool:
        """Whether the end of its timer ends its session.

        A member that waits for the others sends no heartbeats and stays. A new member waits five minutes at most.
        """
        return self.is_new or (self.parked_join is None and self.parked_sync is None)

    def matches(self, protocols: Mapping[str, bytes]) -> bool:
        """Return whether its protocols are these, in the same order."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: Iterable[str]) -> str:
        """Return its most preferred one of the candidates."""
        among = set(candidates)
        return next(name for name in self.protocols if name in among)
