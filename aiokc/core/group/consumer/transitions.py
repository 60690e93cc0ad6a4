"""The states of a member of a KIP-848 group, and the table of which event can lead from which state to which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, auto
from typing import Final

from ..events import (
    CoordinatorLost,
    Enforced,
    Event,
    Fatal,
    IdentityLost,
    Leave,
    Left,
    NotNow,
    PartitionsCounted,
    Polled,
    RevocationDone,
    Subscribed,
    Tick,
    Unpolled,
)
from .events import InstanceUnreleased, JoinDeclined, MemberAlive, TopicsNamed, Unheard


class State(Flag):
    """How far a member has got with its assignment. The names are those of Java's MemberState, where it has the state.

    ``|`` combines states to "one of these".
    """

    UNSUBSCRIBED = auto()  # in no group: no topic is subscribed, or the application has stopped polling (Java: STALE)
    JOINING = auto()  # asks for its first epoch
    RECONCILING = auto()  # gives up what its target takes away; sends heartbeats meanwhile
    STABLE = auto()  # holds its target, as far as the names of its topics are known
    FENCED = auto()  # outside the group: drops everything before it joins anew; sends nothing meanwhile
    PREPARE_LEAVING = auto()  # gives up everything before it leaves; sends heartbeats meanwhile
    LEAVING = auto()  # the consumer closes, and has sent its last heartbeat
    LEFT = auto()
    FATAL = auto()  # until the application polls again, or, where that cannot help, unsubscribes

    def __str__(self) -> str:
        return str(self.name)


UNSUBSCRIBED, JOINING, RECONCILING, STABLE = State.UNSUBSCRIBED, State.JOINING, State.RECONCILING, State.STABLE
FENCED, PREPARE_LEAVING, LEAVING, LEFT, FATAL = (
    State.FENCED,
    State.PREPARE_LEAVING,
    State.LEAVING,
    State.LEFT,
    State.FATAL,
)
#: Where the member has an epoch.
IN_GROUP: Final = RECONCILING | STABLE | PREPARE_LEAVING
#: Where the member sends heartbeats, and the application must poll in time: the member holds partitions that others
#: could read, or is about to.
HEARTBEATS: Final = JOINING | IN_GROUP
#: Where an identity that is lost leads: what is held has to go first, or there is nothing, and the member goes on.
_OUT: Final = FENCED | JOINING | UNSUBSCRIBED | LEAVING | LEFT

_IN_ANY_STATE: Final[tuple[type[Event], ...]] = (Enforced, PartitionsCounted, TopicsNamed)


def _in_group(state: State) -> Mapping[type[Event], State]:
    """What can happen to every member with an epoch."""
    return {
        MemberAlive: state,
        Unheard: state,
        CoordinatorLost: state,
        NotNow: state,
        IdentityLost: _OUT,
        Fatal: FATAL | FENCED | LEAVING | LEFT,  # not FATAL: a member that leaves goes on leaving
        Tick: state | FENCED | UNSUBSCRIBED,
        Unpolled: FENCED | UNSUBSCRIBED | LEAVING | LEFT,
        Polled: state,
        Leave: PREPARE_LEAVING | LEAVING | LEFT,
    }


def _anywhere(state: State, table: Mapping[type[Event], State]) -> Mapping[type[Event], State]:
    return {**dict.fromkeys(_IN_ANY_STATE, state), **table}


#: state -> event -> the states that the event may lead to. An event that is not here cannot happen in that state.
NEXT: Final[Mapping[State, Mapping[type[Event], State]]] = {
    UNSUBSCRIBED: _anywhere(
        UNSUBSCRIBED,
        {
            Subscribed: UNSUBSCRIBED | JOINING,
            Polled: UNSUBSCRIBED | JOINING,
            Tick: UNSUBSCRIBED,
            Leave: LEAVING | LEFT,  # LEAVING: a static member that was not polled
        },
    ),
    JOINING: _anywhere(
        JOINING,
        {
            MemberAlive: JOINING | STABLE,  # JOINING: an answer that makes no sense
            InstanceUnreleased: JOINING | FATAL,
            JoinDeclined: FATAL,
            Left: JOINING,  # this instance's former member has left, so that this one can join
            CoordinatorLost: JOINING,
            NotNow: JOINING,
            IdentityLost: JOINING,
            Fatal: FATAL,
            Subscribed: JOINING | UNSUBSCRIBED,
            Polled: JOINING,
            Tick: JOINING | UNSUBSCRIBED,
            Leave: LEAVING | LEFT,
        },
    ),
    STABLE: _anywhere(
        STABLE,
        {
            **_in_group(STABLE),
            MemberAlive: STABLE | RECONCILING,
            TopicsNamed: STABLE | RECONCILING,
            Subscribed: STABLE | PREPARE_LEAVING | UNSUBSCRIBED,
        },
    ),
    RECONCILING: _anywhere(
        RECONCILING,
        {
            **_in_group(RECONCILING),
            RevocationDone: STABLE | RECONCILING,
            Subscribed: RECONCILING | PREPARE_LEAVING,
        },
    ),
    PREPARE_LEAVING: _anywhere(
        PREPARE_LEAVING,
        {
            **_in_group(PREPARE_LEAVING),
            RevocationDone: LEAVING | LEFT | UNSUBSCRIBED | STABLE,  # STABLE: it has subscribed again meanwhile
            Subscribed: PREPARE_LEAVING,
            Tick: PREPARE_LEAVING | FENCED,
            Leave: PREPARE_LEAVING,
        },
    ),
    FENCED: _anywhere(
        FENCED,
        {
            RevocationDone: JOINING | UNSUBSCRIBED | LEAVING | LEFT,
            Subscribed: FENCED,
            Polled: FENCED,
            Tick: FENCED,
            Leave: FENCED,
        },
    ),
    LEAVING: _anywhere(LEAVING, {Left: LEFT, **dict.fromkeys((Subscribed, Polled, Tick, Leave), LEAVING)}),
    LEFT: _anywhere(LEFT, dict.fromkeys((Subscribed, Polled, Tick, Leave), LEFT)),
    FATAL: _anywhere(
        FATAL,
        {
            RevocationDone: FATAL,
            Subscribed: FATAL | FENCED | UNSUBSCRIBED | JOINING,
            Polled: FATAL | FENCED | UNSUBSCRIBED | JOINING,
            Tick: FATAL,
            Leave: FENCED | LEAVING | LEFT,
        },
    ),
}
