"""The states of a member of a classic group, and which event can lead from which to which."""

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
    """Where a member stands on its way to an assignment. States combine by ``|`` to "one of these"."""

    UNJOINED = auto()  # in no group: nothing is subscribed, or the user has stopped polling
    REVOKING = auto()  # gives up partitions, before it joins again or leaves
    JOINING = auto()  # has sent a JoinGroup, or is about to; a cooperative member reads on meanwhile
    ASSIGNING = auto()  # leads this generation and works out who reads what
    SYNCING = auto()  # has sent a SyncGroup
    STABLE = auto()  # reads what it was assigned
    LEAVING = auto()  # has sent its last LeaveGroup
    LEFT = auto()
    FAILED = auto()  # until the user polls again, or, where that cannot help, unsubscribes

    def __str__(self) -> str:
        return str(self.name)


UNJOINED, REVOKING, JOINING, ASSIGNING = State.UNJOINED, State.REVOKING, State.JOINING, State.ASSIGNING
SYNCING, STABLE, LEAVING, LEFT, FAILED = State.SYNCING, State.STABLE, State.LEAVING, State.LEFT, State.FAILED
#: From a JoinGroup to what it leads to.
REBALANCING: Final = JOINING | ASSIGNING | SYNCING
#: Where the user must come back in time: others wait for the member, or it holds what they could read.
JOINING_OR_IN: Final = REBALANCING | STABLE
#: Where the coordinator counts on hearing of a member of a generation: from the answer to a JoinGroup on, until the
#: next one.
HEARTBEATS: Final = REVOKING | ASSIGNING | SYNCING | STABLE
#: Where it takes commits of a generation.
COMMITS: Final = STABLE | REVOKING

#: state -> event -> the states that it may lead to. What is not here cannot happen.
NEXT: Final[Mapping[State, Mapping[type[Event], State]]] = {
    UNJOINED: {
        Subscribed: UNJOINED | JOINING,
        Polled: UNJOINED | JOINING,
        Enforced: UNJOINED,
        PartitionsCounted: UNJOINED,
        Tick: UNJOINED,
        Leave: LEFT,
    },
    JOINING: {
        Joined: ASSIGNING | SYNCING,
        MemberIdRequired: JOINING | REVOKING,
        Rebalancing: JOINING,
        IdentityLost: JOINING | REVOKING,
        CoordinatorLost: JOINING,
        NotNow: JOINING,
        Fatal: FAILED,
        Subscribed: JOINING | REVOKING | UNJOINED,
        Polled: JOINING,
        Enforced: JOINING,
        PartitionsCounted: JOINING,
        Tick: JOINING | REVOKING | UNJOINED,
        Leave: REVOKING | LEAVING | LEFT,
    },
    ASSIGNING: {
        Computed: SYNCING,
        Alive: ASSIGNING,
        Rebalancing: ASSIGNING,  # the SyncGroup will be told so too
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
        Fatal: FAILED | REVOKING,  # who leaves goes on leaving
        Subscribed: REVOKING,
        Polled: REVOKING,
        Enforced: REVOKING,
        PartitionsCounted: REVOKING,
        Tick: REVOKING,
        Unpolled: REVOKING,
        Leave: REVOKING,
        Left: REVOKING,  # without having owned anything, while the revocation of nothing is still being told
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
        Subscribed: FAILED | REVOKING | UNJOINED,
        Polled: FAILED | REVOKING | UNJOINED | JOINING,
        Enforced: FAILED,
        PartitionsCounted: FAILED,
        Tick: FAILED,
        Leave: REVOKING | LEFT,
    },
}
