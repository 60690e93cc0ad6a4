"""``History``: the events of one world in the order of time, for the checker: claims, deliveries, commits, faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, TypeAlias, TypeVar, cast
from uuid import UUID

from aiokc.types import TopicPartition

from ..producers.events import ProducerEvent

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Claimed:
    """The member owns a partition from now on, and may hand out its records.

    ``topic_id``: of this topic only (KIP-848); None: of the topic that has the name at any time.
    """

    member: str
    partition: TopicPartition
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Unclaimed:
    member: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Sought:
    member: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """One call returned these records."""

    member: str
    partition: TopicPartition
    records: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Handled:
    """The application has done its work on all records below offset ``until``."""

    member: str
    partition: TopicPartition
    until: int


@dataclass(frozen=True, slots=True)
class Replaced:
    """An empty group was replaced by one of the other protocol: its generations begin at 1 again."""


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A classic group with members became one of the consumer protocol. ``known``: what its coordinator says they have.

    A rebalance that begins before the leader of the last one has assigned makes a coordinator forget what all members
    have. In a classic group the next leader hears of it from the members. Here the coordinator assigns, and at once.
    """

    known: Mapping[str, frozenset[TopicPartition]]


@dataclass(frozen=True, slots=True)
class CutShort:
    """A call for records (getmany, getone, getmany_columns, or a step of the iterator) was cancelled: no result."""

    member: str
    call: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """A member that polls begins to stop, and takes the time that it needs."""

    member: str


@dataclass(frozen=True, slots=True)
class Crashed:
    member: str


@dataclass(frozen=True, slots=True)
class Joining:
    """The coordinator received a JoinGroup."""

    member: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """The coordinator told a member its assignment in this generation.

    ``by_id``: by topic ids (KIP-848), so not for a topic that gets one of the names later.
    """

    member: str
    generation: int
    partitions: frozenset[TopicPartition]
    by_id: bool = False


@dataclass(frozen=True, slots=True)
class Disowned:
    """The coordinator refused a heartbeat: the group has gone on without this member."""

    member: str


@dataclass(frozen=True, slots=True)
class CommitStored:
    """The coordinator accepted an offset. ``late``: the member had already closed the connection of the request.

    A broker still reads the bytes of a connection that its client has closed. So this can happen: after a timeout the
    member repeats the commit over another connection, goes on to a newer commit, and only then does the broker handle
    the first request. No client can prevent that.
    """

    member: str
    generation: int
    partition: TopicPartition
    offset: int
    late: bool = False


@dataclass(frozen=True, slots=True)
class CommitDone:
    """The client says that an offset, or a newer one, is stored: its commit, called for at ``since``, succeeded."""

    member: str
    partition: TopicPartition
    offset: int
    since: float


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A call of commit() failed or was cancelled: the member does not know whether its offsets are stored."""

    member: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A transaction has written the offsets from ``first`` to before ``until``, and is open."""

    partition: TopicPartition
    first: int
    until: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A transaction has ended."""

    partition: TopicPartition
    first: int
    until: int


@dataclass(frozen=True, slots=True)
class Recreated:
    """A deleted topic exists again: empty, and with another id."""

    topic: str
    topic_id: UUID | None = None


HEALED: Final = "healed"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault was injected into the world; or, as HEALED says, all of them are undone."""

    what: str


@dataclass(frozen=True, slots=True)
class Note:
    """Any other event: for people who read the history, and to tell two runs apart."""

    member: str
    what: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An event that is an anomaly by itself; ``kind`` is the anomaly's name."""

    kind: str
    what: str


Event: TypeAlias = (
    Claimed
    | Unclaimed
    | Sought
    | Delivered
    | Handled
    | CutShort
    | Stopping
    | Crashed
    | Joining
    | Replaced
    | Upgraded
    | Assigned
    | Disowned
    | CommitStored
    | CommitDone
    | Uncertain
    | Opened
    | Settled
    | Recreated
    | Fault
    | Note
    | Failure
    | ProducerEvent
)


@dataclass
class History:
    """All events. ``clock`` returns the time of each."""

    clock: Callable[[], float]
    events: list[tuple[float, Event]] = field(default_factory=list)

    def add(self, event: Event) -> None:
        self.events.append((self.clock(), event))

    def about(self, member: str, what: object) -> None:
        self.add(Note(member, str(what)))

    def __iter__(self) -> Iterator[tuple[float, Event]]:
        return iter(self.events)

    @property
    def digest(self) -> str:
        """A hash of all events: two runs of one seed have the same."""
        return sha256("\n".join(self.lines()).encode()).hexdigest()[:16]

    def lines(self) -> list[str]:
        """Return the history as text for people."""
        start = self.events[0][0] if self.events else 0.0
        return [f"{at - start:11.6f}  {_shown(event)}" for at, event in self.events]


def _is_default(value: object) -> bool:
    return value is False or value is None


def _shown(event: Event) -> str:
    if isinstance(event, Delivered):
        offsets = [offset for offset, _ in event.records]
        return f"Delivered({event.member}, {event.partition}, {offsets[0]}..{offsets[-1]}, {len(offsets)} records)"
    if isinstance(event, Assigned):
        mine = ", ".join(map(str, sorted(event.partitions)))
        return f"Assigned({event.member}, generation {event.generation}: {mine})"
    if isinstance(event, CommitStored) and event.late:
        return f"late {_shown(replace(event, late=False))}"
    values: Iterable[Any] = (value for name in event.__slots__ if not _is_default(value := getattr(event, name)))
    return f"{type(event).__name__}({', '.join(map(str, values))})"


@contextmanager
def replaced(target: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of ``target`` within the block."""
    before = vars(target)[name] if isinstance(target, type) else getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, before)


@contextmanager
def replaced_item(target: MutableMapping[K, V], key: K, value: V) -> Iterator[None]:
    """Replace an item of ``target`` within the block."""
    missing = key not in target
    before = target.get(key)
    target[key] = value
    try:
        yield
    finally:
        if missing:
            del target[key]
        else:
            target[key] = cast(V, before)
