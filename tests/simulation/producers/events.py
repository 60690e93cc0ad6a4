"""What applications of producers did and were told, as events of a world's history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from aiokc.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Sending:
    """A task begins to send a record; its value is unique. ``transaction``: the number of the one it belongs to."""

    app: str
    task: int
    value: bytes
    transaction: int | None = None
    key: bytes | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """The producer has taken the record over, for this partition."""

    app: str
    task: int
    value: bytes
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class NotAppended:
    """The call that was to append the record has raised, or was cancelled: the record may be in no log."""

    app: str
    value: bytes
    why: str


@dataclass(frozen=True, slots=True)
class Acked:
    """The producer says that the record is in the log, at this offset (None: it does not know where)."""

    app: str
    value: bytes
    partition: TopicPartition
    offset: int | None


@dataclass(frozen=True, slots=True)
class Called:
    """The callback of a record was called: in order of the sends to a partition."""

    app: str
    value: bytes
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Failed:
    """The producer says that the record is not in the log, or that it may be (``maybe``).

    ``timed_out``: nothing else is wrong than that its delivery_timeout_ms is over.
    """

    app: str
    value: bytes
    maybe: bool
    why: str
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """A transaction began."""

    app: str
    number: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction has ended: "committed", "aborted", or nobody knows how ("unknown")."""

    app: str
    number: int
    how: str


@dataclass(frozen=True, slots=True)
class Renumbered:
    """A batch got another sequence though an earlier attempt may have stored it: its records may be there twice."""

    app: str
    values: tuple[bytes, ...]


ProducerEvent: TypeAlias = Sending | Appended | NotAppended | Acked | Called | Failed | Begun | Ended | Renumbered
