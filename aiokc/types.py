"""The value types of the public API: records, batches of records, partitions, offsets, brokers and topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, NoReturn, Protocol, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    # With defaults (PEP 696), so that ``Consumer`` alone means a consumer of raw bytes. Only type checkers need that,
    # and all of them know typing_extensions, installed or not; the standard library's TypeVar has it from 3.13 on.
    from typing_extensions import TypeVar

    K_co = TypeVar("K_co", covariant=True, default=bytes | None)
    V_co = TypeVar("V_co", covariant=True, default=bytes | None)
    K = TypeVar("K", default=bytes | None)
    V = TypeVar("V", default=bytes | None)
else:
    from typing import TypeVar

    K_co = TypeVar("K_co", covariant=True)
    V_co = TypeVar("V_co", covariant=True)
    K = TypeVar("K")
    V = TypeVar("V")
_Named = TypeVar("_Named", str, "TopicPartition")

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
#: The headers of a record to send: pairs, in any iterable, which a send reads once.
HeadersToSend: TypeAlias = Iterable[tuple[str, bytes | None]]

#: Values of ConsumerRecord.timestamp_type (Kafka's TimestampType). With NO_TIMESTAMP the timestamp is -1, too.
NO_TIMESTAMP: Final = -1
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

#: Special timestamps of the ListOffsets API: where a log begins and ends, and (on newer brokers) the first record with
#: the highest timestamp (KIP-734, Kafka 3.0), the first offset on the leader's own disk (KIP-405, Kafka 3.5), and the
#: last offset in tiered storage (KIP-1005, Kafka 3.9).
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
_LONGEST_HOST: Final = 253  # characters; DNS has no longer name


class TopicPartition(NamedTuple):
    """One partition of one topic; orders by topic, then by partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def named(those: Collection[_Named], most: int = 20, write: Callable[[_Named], str] = str) -> str:
    """Return "a-0, a-1 and 4,998 more": the first ``most`` partitions or topics. A consumer may have thousands."""
    shown = ", ".join(map(write, nsmallest(most, those))) or "no partition"
    return f"{shown} and {len(those) - most:,} more" if len(those) > most else shown


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """What a group commits for a partition: the *next* offset to read, a note, and the epoch of the last record read.

    ``metadata`` is the note, text of the application. ``leader_epoch`` lets a later reader notice that the log was
    truncated below the committed offset (KIP-320). ``topic_id`` is the id of the topic that the offset belongs to
    (KIP-516), where the consumer knows it: in a recreated topic the offset means nothing, so a commit of it is refused.
    ``topic_id`` does not count when two offsets are compared.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
    topic_id: UUID | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A consumer's identity in its group (Kafka's ConsumerGroupMetadata), for a transactional producer to send along.

    By it the coordinator recognises, and refuses, the offsets of a member that the group has gone on without (KIP-447).
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The first offset whose record has a timestamp (ms since the epoch) at or after the given one."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker of the cluster, at the address that it advertises."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.node_id} ({address_text(self.host, self.port)})"


def address_text(host: str, port: int) -> str:
    """Return "host:port" for messages, an IPv6 host in brackets. What a broker names may be no host, but a log line."""
    host = host[:_LONGEST_HOST] if host.isprintable() else repr(host[:_LONGEST_HOST])[1:-1][:_LONGEST_HOST]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class PartitionInfo(NamedTuple):
    """The brokers of a partition, by id. ``leader`` is None while the partition has none."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None = None
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and its partitions by number. ``topic_id`` (KIP-516) is None on brokers older than 2.8."""

    name: str
    partitions: dict[int, PartitionInfo]
    topic_id: UUID | None = None
    is_internal: bool = False


def partition_count(numbers: Collection[int]) -> int:
    """Return how many partitions a topic has, of which ``numbers`` are known: brokers leave some out now and then.

    A number far beyond all others is no number of a partition: a broker made it up.
    """
    known = len(numbers)
    highest = max(numbers, default=-1)
    return highest + 1 if highest < 2 * known + 100 else known


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression by which the group's coordinator, not the client, chooses topics (KIP-848).

    Its syntax is RE2J's, without look-around and back-references, and it must match a topic's whole name. Only the
    consumer protocol has it. A pattern that the client matches, in any protocol, is a compiled one (``re.compile``).

    The coordinator matches a pattern that is new to the group in the background. Until it has, the pattern matches
    nothing: the first answer of the coordinator assigns nothing, or, where the consumer had another pattern before,
    takes away all that was assigned, topics that match both patterns among it. A later answer assigns what it found.
    """

    pattern: str

    def __str__(self) -> str:
        return self.pattern


class RecordMetadata(NamedTuple):
    """Where a sent record is.

    ``offset`` is None where the broker does not tell it: with acks=0, and for a record that it had stored by an earlier
    attempt and has since forgotten the offset of. ``timestamp_ms`` is the one that the log has: the broker's where the
    topic has message.timestamp.type=LogAppendTime.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at offset {'unknown' if self.offset is None else self.offset}"


class ProducerRecord(NamedTuple, Generic[K_co, V_co]):
    """A record to send.

    ``partition`` None: the producer chooses. ``timestamp_ms`` None, or NO_TIMESTAMP: the time of the append.
    """

    topic: str
    value: V_co | None = None
    key: K_co | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: HeadersToSend = ()


class _Fields:
    """The fields of a record while ``raw_record`` fills them in: plain slots, so that it takes 0.1 µs and not 0.7."""

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: Any,
        value: Any,
        headers: Headers,
        leader_epoch: int | None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch


class ConsumerRecord(Generic[K_co, V_co]):
    """One record of a partition: an immutable value.

    ``timestamp`` is in ms since the epoch (-1 where the producer gave none). ``timestamp_type`` is CREATE_TIME or
    LOG_APPEND_TIME, or NO_TIMESTAMP where the log is older than timestamps (message format 0). ``key`` and ``value``
    are None where the producer wrote null (a null value is a tombstone). ``headers`` keep their order and their
    duplicates. ``leader_epoch`` is that of the record's batch; None where the log has none.

    Records are equal when all their fields are equal, and hashable when key and value are. They can be pickled, and
    matched by position (topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch).
    Nothing else is promised, not even ``type(record)``: this class has no fields of its own, its two subclasses hold
    them. One is below, the other one is written in C (_native/records.c).
    """

    __slots__ = ()
    __match_args__ = (
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestamp_type",
        "key",
        "value",
        "headers",
        "leader_epoch",
    )

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K_co
    value: V_co
    headers: Headers
    leader_epoch: int | None

    def __new__(cls, *_: object, **__: object) -> ConsumerRecord[K_co, V_co]:
        return super().__new__(_Record if cls is ConsumerRecord else cls)

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: int = CREATE_TIME,
        key: K_co | None = None,
        value: V_co | None = None,
        headers: Headers = (),
        leader_epoch: int | None = None,
    ) -> None:
        given = (topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch)
        for name, content in zip(self.__match_args__, given, strict=True):
            object.__setattr__(self, name, content)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a ConsumerRecord is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a ConsumerRecord is immutable: cannot delete {name!r}")

    def _fields(self) -> tuple[object, ...]:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
        )

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, ConsumerRecord) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __reduce__(self) -> tuple[object, ...]:
        return ConsumerRecord, self._fields()

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"ConsumerRecord({named})"


class _Record(ConsumerRecord[K_co, V_co], _Fields):
    """A record that holds its fields in Python: made by the public constructor or by ``raw_record``."""

    __slots__ = ()


RawRecord: TypeAlias = ConsumerRecord[bytes | None, bytes | None]


def raw_record(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    leader_epoch: int | None,
) -> RawRecord:
    """Return the record with these fields: for decoders, five times cheaper than the public constructor."""
    fields = _Fields(topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch)
    fields.__class__ = _Record  # the same layout, and immutable from here on
    return fields  # type: ignore[return-value]


def typed_record(raw: RawRecord, key: K, value: V) -> ConsumerRecord[K, V]:
    """Return the record ``raw`` with this key and this value."""
    fields = _Fields(
        raw.topic,
        raw.partition,
        raw.offset,
        raw.timestamp,
        raw.timestamp_type,
        key,
        value,
        raw.headers,
        raw.leader_epoch,
    )
    fields.__class__ = _Record
    return fields  # type: ignore[return-value]


class BatchEnd(NamedTuple):
    """How far the records of one partition reach: the next offset, and the leader epoch of the last record before it.

    ``token`` names the assignment under which the records were read, ``topic_id`` the topic that they belong to.
    """

    offset: int
    leader_epoch: int | None
    token: int
    topic_id: UUID | None = None


def next_offsets(ends: Mapping[TopicPartition, BatchEnd]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that a commit stores for records that end there."""
    return {tp: OffsetAndMetadata(end.offset, "", end.leader_epoch, topic_id=end.topic_id) for tp, end in ends.items()}


class ConsumerRecords(dict[TopicPartition, Sequence[ConsumerRecord[K, V]]]):
    """What one getmany() returned: for each partition the sequence of its records, in the order of their offsets.

    A sequence does not change, and equals a list of the same records; ``list(records)`` makes one. Most records become
    objects when they are read, anew by each iteration: so compare them by ``==``, not by ``is``.

    commit() takes it as it is: then exactly this batch is committed, without the partitions that the application has
    deleted from the dict.
    """

    __slots__ = ("_ends", "_unseen")

    def end_at(self, ends: dict[TopicPartition, BatchEnd], unseen: Iterable[TopicPartition] = ()) -> None:
        """Set where the batch ends. ``unseen`` are partitions of which the interceptors have left no record.

        For the consumer that makes a batch, not for the application.
        """
        self._ends, self._unseen = ends, unseen

    @property
    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The next offset to read behind this batch, by partition: what commit() stores for it (KIP-1094)."""
        return next_offsets(self.ends)

    @property
    def assignment_tokens(self) -> dict[TopicPartition, int]:
        """The token of the assignment that each partition was read under; each assignment of it has another token."""
        return {tp: end.token for tp, end in self.ends.items()}

    @property
    def ends(self) -> dict[TopicPartition, BatchEnd]:
        """Where each partition ends: offset and token, without partitions that the application has deleted."""
        ends: dict[TopicPartition, BatchEnd] = getattr(self, "_ends", {})
        return {tp: end for tp, end in ends.items() if tp in self or tp in self._unseen}


RawRecords: TypeAlias = ConsumerRecords[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Some records of one partition, in order, and the offset from which to read on.

    ``records`` are as in ConsumerRecords. ``next_offset`` lies behind all offsets that were looked at, those without a
    record included.
    """

    partition: TopicPartition
    records: Sequence[RawRecord]
    next_offset: int


class ArrowBatch(Protocol):
    """A batch of columns that Arrow's PyCapsule interface exports, as often as it is asked to."""

    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class RecordColumns:
    """Records as columns: a batch in the memory layout of Apache Arrow, of one row for each record.

    Every library with Arrow's PyCapsule interface reads it without a copy: ``pyarrow.record_batch(batch)``,
    ``polars.DataFrame(batch)``, DuckDB. It is immutable. Its memory is freed when neither the batch nor any object that
    took the memory over is left. ``len()`` is the number of rows, ``nbytes`` the bytes that they occupy.

    Rows are in the order of their offsets within each partition; a batch may hold rows of several. commit() takes a
    batch of a Consumer as it is.
    """

    __slots__ = ("_arrow", "_ends")

    def __init__(self, arrow: ArrowBatch, ends: Mapping[TopicPartition, BatchEnd]) -> None:
        self._arrow = arrow
        self._ends = ends

    def __len__(self) -> int:
        return len(self._arrow)

    @property
    def nbytes(self) -> int:
        """The bytes of the batch's buffers."""
        return self._arrow.nbytes

    @property
    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The next offset to read behind this batch, for each partition that moved: what commit() stores for it."""
        return next_offsets(self._ends)

    @property
    def assignment_tokens(self) -> dict[TopicPartition, int]:
        """The token of the assignment that each partition was read under; each assignment of it has another token."""
        return {tp: end.token for tp, end in self._ends.items()}

    def __arrow_c_schema__(self) -> object:
        return self._arrow.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        return self._arrow.__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._arrow.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        reach = named(self._ends, write=lambda tp: f"{tp} up to {self._ends[tp][0]}") if self._ends else "nothing"
        return f"<RecordColumns: {len(self)} rows, {self.nbytes} bytes; {reach}>"
