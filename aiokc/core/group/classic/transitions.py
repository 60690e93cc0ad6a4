"""The states of a classic group member, and the table of which event can lead from which state to which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, auto
from typing import Final

from ..events import (
    Alive,
    Computed,
    CoordinatorLost,
    Enforced,
    Event,
    Fatal,
    IdentityLost,
    Joined,
    Leave,
    Left,
    MemberIdRequired,
    NotNow,
    PartitionsCounted,
    Polled,
    Rebalancing,
    RevocationDone,
    Subscribed,
    Synced,
    Tick,
    Unpolled,
)


class State(Flag):
    """How far a member is on its way to an assignment. ``|`` combines states to "one of these"."""

    UNJOINED = auto()  # in no group: no topic is subscribed, or the application has stopped polling
    REVOKING = auto()  # gives up partitions, before it joins again or leaves
    JOINING = auto()  # has sent a JoinGroup, or is about to; a cooperative member reads on meanwhile
    ASSIGNING = auto()  # leads this generation and runs the assignor
    SYNCING = auto()  # has sent a SyncGroup
    STABLE = auto()  # reads what it was assigned
    LEAVING = auto()  # has sent its last LeaveGroup
    LEFT = auto()
    FAILED = auto()  # until the application polls again, or, where that cannot help, unsubscribes

    def __str__(self) -> str:
        return str(self.name)


UNJOINED, REVOKING, JOINING, ASSIGNING = State.UNJOINED, State.REVOKING, State.JOINING, State.ASSIGNING
SYNCING, STABLE, LEAVING, LEFT, FAILED = State.SYNCING, State.STABLE, State.LEAVING, State.LEFT, State.FAILED
#: From a JoinGroup to the assignment that follows from it.
REBALANCING: Final = JOINING | ASSIGNING | SYNCING
#: Where the application must poll in time: others wait for this member, or it owns partitions that they could read.
JOINING_OR_IN: Final = REBALANCING | STABLE
#: Where the coordinator expects heartbeats from a member of a generation: from the answer to a JoinGroup on, until the
#: member sends the next JoinGroup.
HEARTBEATS: Final = REVOKING | ASSIGNING | SYNCING | STABLE
#: Where the coordinator takes commits of a generation.
COMMITS: Final = STABLE | REVOKING

#: Where the answer to its JoinGroup leads a member that only waited for that: with a member id in it, and without.
_GOES: Final = UNJOINED | LEAVING
_GONE: Final = UNJOINED | LEFT

#: state -> event -> the states that the event may lead to. An event that is not here cannot happen in that state.
NEXT: Final[Mapping[State, Mapping[type[Event], State]]] = {
    UNJOINED: {
        Subscribed: UNJOINED | JOINING,
        Polled: UNJOINED | JOINING,
        Enforced: UNJOINED,
        PartitionsCounted: UNJOINED,
        Tick: UNJOINED,
        Leave: LEAVING | LEFT,  # LEAVING: a static member that was not polled
    },
    JOINING: {
        Joined: ASSIGNING | SYNCING | _GOES,
        MemberIdRequired: JOINING | REVOKING | _GOES,
        Rebalancing: JOINING | _GONE,
        IdentityLost: JOINING | REVOKING | _GONE,
        CoordinatorLost: JOINING | _GONE,
        NotNow: JOINING | REVOKING | _GOES | _GONE,  # REVOKING, LEAVING: it cannot lead the group
        Fatal: FAILED | _GONE,
        Subscribed: JOINING | REVOKING | UNJOINED,
        Polled: JOINING,
        Enforced: JOINING,
        PartitionsCounted: JOINING,
        Tick: JOINING | REVOKING | UNJOINED | LEFT,
        Leave: JOINING | REVOKING | LEAVING | LEFT,  # JOINING: it waits for its member id
    },
    ASSIGNING: {
        Computed: SYNCING,
        Alive: ASSIGNING,
        Rebalancing: ASSIGNING,  # the answer to the SyncGroup will say so, too
        IdentityLost: JOINING | REVOKING,
        CoordinatorLost: ASSIGNING,
        NotNow: ASSIGNING,
        Fatal: FAILED,
        Subscribed: ASSIGNING | REVOKING | UNJOINED,
        Polled: ASSIGNING,
        Enforced: ASSIGNING,
        PartitionsCounted: ASSIGNING,
        Tick: ASSIGNING | REVOKING | UNJOINED,
        Unpolled: REVOKING | UNJOINED,
        Leave: REVOKING | LEAVING | LEFT,
    },
    SYNCING: {
        Synced: STABLE | JOINING | REVOKING,
        Alive: SYNCING,
        Rebalancing: SYNCING | JOINING,
        IdentityLost: JOINING | REVOKING,
        CoordinatorLost: SYNCING | JOINING,
        NotNow: SYNCING | JOINING,
        Fatal: FAILED,
        Subscribed: SYNCING | REVOKING | UNJOINED,
        Polled: SYNCING,
        Enforced: SYNCING,
        PartitionsCounted: SYNCING,
        Tick: SYNCING | REVOKING | UNJOINED,
        Unpolled: REVOKING | UNJOINED,
        Leave: REVOKING | LEAVING | LEFT,
    },
    STABLE: {
        Alive: STABLE,
        Rebalancing: REVOKING | JOINING,
        IdentityLost: REVOKING | JOINING,
        CoordinatorLost: STABLE,
        NotNow: STABLE,
        Fatal: FAILED,
        Subscribed: STABLE | REVOKING | JOINING | UNJOINED,
        Polled: STABLE,
        Enforced: REVOKING | JOINING,
        PartitionsCounted: STABLE | REVOKING | JOINING,
        Tick: STABLE | REVOKING | UNJOINED,
        Unpolled: REVOKING | UNJOINED,
        Leave: REVOKING | LEAVING | LEFT,
    },
    REVOKING: {
        RevocationDone: JOINING | UNJOINED | LEAVING | LEFT | REVOKING,
        Alive: REVOKING,
        Rebalancing: REVOKING,
        IdentityLost: REVOKING,
        CoordinatorLost: REVOKING,
        NotNow: REVOKING,
        Fatal: FAILED | REVOKING,  # REVOKING: a member that leaves goes on leaving
        Subscribed: REVOKING,
        Polled: REVOKING,
        Enforced: REVOKING,
        PartitionsCounted: REVOKING,
        Tick: REVOKING,
        Unpolled: REVOKING,
        Leave: REVOKING,
        Left: REVOKING,  # it owned nothing, and the listener is still being told of that revocation of nothing
    },
    LEAVING: {
        Left: LEFT,
        Subscribed: LEAVING,
        Polled: LEAVING,
        Enforced: LEAVING,
        PartitionsCounted: LEAVING,
        Tick: LEAVING,
        Leave: LEAVING,
    },
    LEFT: dict.fromkeys((Subscribed, Polled, Enforced, PartitionsCounted, Tick, Leave), LEFT),
    FAILED: {
        RevocationDone: FAILED,
        Subscribed: FAILED | REVOKING | UNJOINED | JOINING,
        Polled: FAILED | REVOKING | UNJOINED | JOINING,
        Enforced: FAILED,
        PartitionsCounted: FAILED,
        Tick: FAILED,
        Leave: REVOKING | LEAVING | LEFT,
    },
}
