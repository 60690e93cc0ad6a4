"""The states of a transactional producer, and the table of which event can lead from which state to which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, auto
from typing import Final

from .events import (
    Abort,
    Answered,
    Appended,
    Begin,
    Commit,
    Event,
    Initialize,
    NotAnswered,
    OffsetsAbandoned,
    Produced,
    RecordFailed,
    SendOffsets,
    Settled,
    Tick,
    VersionSeen,
)


class State(Flag):
    """How far a transactional producer has got. The names are those of Java's TransactionManager.State.

    ``|`` combines states to "one of these".
    """

    UNINITIALIZED = auto()  # it has no identity, or was refused the next one
    INITIALIZING = auto()  # asks for its identity, or for the next epoch of it
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING_TRANSACTION = auto()
    ABORTING_TRANSACTION = auto()
    ABORTABLE_ERROR = auto()  # something of the transaction has failed: only abort leads on
    FATAL_ERROR = auto()  # another producer has the transactional id, or this one may not go on

    def __str__(self) -> str:
        return str(self.name)


UNINITIALIZED, INITIALIZING, READY, IN_TRANSACTION = (
    State.UNINITIALIZED,
    State.INITIALIZING,
    State.READY,
    State.IN_TRANSACTION,
)
COMMITTING, ABORTING, ABORTABLE, FATAL = (
    State.COMMITTING_TRANSACTION,
    State.ABORTING_TRANSACTION,
    State.ABORTABLE_ERROR,
    State.FATAL_ERROR,
)
#: Where records may be appended to the transaction, and its batches sent.
SENDS: Final = IN_TRANSACTION | COMMITTING
#: Where a transaction is open, as far as this producer knows.
OPEN: Final = SENDS | ABORTING | ABORTABLE

#: Where the end of a transaction leads: INITIALIZING where the next one needs another epoch.
_AFTER_THE_END: Final = READY | INITIALIZING
_LATE: Final[tuple[type[Event], ...]] = (Answered, NotAnswered, RecordFailed, Settled, OffsetsAbandoned, Tick)


def _late(state: State, table: Mapping[type[Event], State]) -> Mapping[type[Event], State]:
    """What can always happen, because it was begun in an earlier state."""
    return {**dict.fromkeys(_LATE, state), **table}


#: state -> event -> the states that the event may lead to. An event that is not here cannot happen in that state.
NEXT: Final[Mapping[State, Mapping[type[Event], State]]] = {
    UNINITIALIZED: _late(UNINITIALIZED, {Initialize: INITIALIZING}),
    INITIALIZING: _late(
        INITIALIZING,
        {
            Answered: INITIALIZING | READY | UNINITIALIZED | FATAL,
            NotAnswered: INITIALIZING | UNINITIALIZED | FATAL,
        },
    ),
    READY: _late(READY, {Begin: IN_TRANSACTION, VersionSeen: READY | INITIALIZING}),
    IN_TRANSACTION: _late(
        IN_TRANSACTION,
        {
            Appended: IN_TRANSACTION,
            Produced: IN_TRANSACTION,
            SendOffsets: IN_TRANSACTION,
            Answered: IN_TRANSACTION | ABORTABLE | FATAL,
            NotAnswered: IN_TRANSACTION | ABORTABLE | FATAL,
            RecordFailed: ABORTABLE | FATAL,
            OffsetsAbandoned: IN_TRANSACTION | ABORTABLE,
            Commit: COMMITTING,
            Abort: ABORTING,
        },
    ),
    COMMITTING: _late(
        COMMITTING,
        {
            Produced: COMMITTING,
            Settled: COMMITTING | READY,  # READY: nothing was sent in this transaction
            Answered: COMMITTING | _AFTER_THE_END | ABORTABLE | FATAL,
            NotAnswered: COMMITTING | ABORTABLE | FATAL,
            RecordFailed: ABORTABLE | FATAL,
            OffsetsAbandoned: COMMITTING | ABORTABLE,
        },
    ),
    ABORTABLE: _late(
        ABORTABLE,
        {
            Answered: ABORTABLE | FATAL,
            NotAnswered: ABORTABLE | FATAL,
            RecordFailed: ABORTABLE | FATAL,
            Abort: ABORTING | READY,
        },
    ),
    ABORTING: _late(
        ABORTING,
        {
            Settled: ABORTING | READY,
            Answered: ABORTING | _AFTER_THE_END | FATAL,
            NotAnswered: ABORTING | FATAL,
            RecordFailed: ABORTING | FATAL,
        },
    ),
    FATAL: _late(FATAL, {}),
}
