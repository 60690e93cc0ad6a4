"""Everything that aiokc raises on purpose.

    KafkaError
    ├── ConfigError (ValueError)            an option is unknown, of a wrong type or out of range
    ├── UsageError (RuntimeError)           the call does not fit the state that the consumer is in
    │   ├── ConsumerClosed                  the consumer was stopped, or never started
    │   └── ConcurrentCall                  another task is inside getmany, getone or the iterator
    ├── ConnectionFailed (ConnectionError)  no connection could be made, or it broke; retriable
    │   └── NoBrokersAvailable              none of the addresses answered before the deadline
    ├── RequestTimedOut (TimeoutError)      no answer before the deadline; retriable
    ├── ListenerTimedOut (TimeoutError)     a callback of the rebalance listener took too long, and was cancelled
    ├── AuthenticationFailed                the broker refused the credentials
    ├── UnsupportedVersion                  client and broker share no version of an API
    ├── MalformedResponse                   bytes from the network that are not Kafka's protocol
    ├── RecordError                         something is wrong with the bytes stored in one partition
    │   ├── CorruptRecord                   CRC or structure of a record batch does not hold
    │   ├── RecordTooLarge                  decompresses to more than the configured limit
    │   ├── UnsupportedCodec                the codec's package is missing, or the codec is unknown
    │   └── DeserializationFailed           the user's deserializer raised; .record is the record as it was stored
    ├── NoOffsetForPartition                no committed offset, and auto_offset_reset is "none"
    ├── AssignmentFailed                    an assignor returned something that is no assignment
    └── BrokerError                         an error code of the protocol; .code, .retriable
        ├── OffsetOutOfRange                the position does not exist in the log (any more)
        │   └── LogTruncated                the log lost, or exchanged, records that were read already
        ├── CommitFailed                    the group has moved on; this member's offsets were not stored
        ├── RebalanceInProgress             the group is assigning anew; go on polling, then commit again
        ├── MemberFenced                    another member took over this group_instance_id
        ├── AuthorizationFailed             topic or group is not allowed to this principal
        └── UnknownTopic                    the cluster has no such topic or partition

``retriable`` is true where the same call may succeed later without any change by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy, deepcopy
from typing import Any, Literal, Self, TypeVar

from .error_codes import ErrorCode, error_code, error_name
from .types import RawRecord, TopicPartition

E = TypeVar("E", bound=BaseException)


class KafkaError(Exception):
    """Base of everything that aiokc raises on purpose.

    Pickled, copied or deep-copied, each has the same text, args and fields. Copies have the same cause, too; a pickled
    one has none, as with all of Python's exceptions.
    """

    retriable: bool = False

    # An exception's own way is to call its class with ``args``. Here those are the finished text, and not what a class
    # is called with: the call fails, or finishes the text twice.

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, vars(self))

    def __copy__(self) -> Self:
        return _with_history_of(self, _restored(type(self), self.args, vars(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        again = _restored(type(self), deepcopy(self.args, memo), deepcopy(vars(self), memo))
        return _with_history_of(self, again)


class ConfigError(KafkaError, ValueError):
    """An option is unknown, has a wrong type, or contradicts another one."""


class UsageError(KafkaError, RuntimeError):
    """The call does not fit the consumer's state; the message says what to call first."""


class ConsumerClosed(UsageError):
    """The consumer was stopped, or has not been started."""


class ConcurrentCall(UsageError):
    """Another task is inside a record-returning call of the same consumer."""


class ConnectionFailed(KafkaError, ConnectionError):
    """A connection could not be made, or broke before the answer came."""

    retriable = True


class NoBrokersAvailable(ConnectionFailed):
    """None of the known addresses answered before the deadline."""


class RequestTimedOut(KafkaError, TimeoutError):
    """No answer came before the deadline."""

    retriable = True


class ListenerTimedOut(KafkaError, TimeoutError):
    """A callback of the user's RebalanceListener was not done in time, and was cancelled."""


class AuthenticationFailed(KafkaError):
    """The broker refused the credentials, or the mechanism."""


class UnsupportedVersion(KafkaError):
    """Client and broker share no version of an API that this call needs."""


class MalformedResponse(KafkaError):
    """Bytes from the network that do not follow Kafka's protocol."""


class RecordError(KafkaError):
    """The stored bytes of one partition cannot be read at ``offset``. ``broker`` sent them; -1 where nobody knows."""

    broker: int = -1

    def __init__(self, message: str, *, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.topic, self.partition, self.offset = topic, partition, offset

    def __str__(self) -> str:
        text = super().__str__()
        if not self.topic:
            return text
        sent = f", from broker {self.broker}" if self.broker >= 0 else ""
        return f"{self.topic}-{self.partition} at offset {self.offset}{sent}: {text}"


class CorruptRecord(RecordError):
    """CRC or structure of a record batch does not hold."""


class RecordTooLarge(RecordError):
    """A batch decompresses to more than ``max_decompressed_batch_bytes``."""


class UnsupportedCodec(RecordError):
    """The codec's package is not installed, or Kafka has no such codec."""


class DeserializationFailed(RecordError):
    """A deserializer raised (``__cause__`` is what), or was not done in time. Java's RecordDeserializationException.

    ``record`` is the record as it is stored: key and value in bytes, headers, timestamp (KIP-1036). ``origin`` says
    which of the two it is about. Neither message nor repr shows anything of what the record holds; the deserializer's
    own exception may.
    """

    def __init__(self, record: RawRecord, origin: Literal["key", "value"], problem: str) -> None:
        super().__init__(
            f"{origin}_deserializer {problem}; seek() to {record.offset + 1} to skip the record, which is in .record",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        )
        self.record, self.origin = record, origin


class NoOffsetForPartition(KafkaError):
    """No committed offset, and ``auto_offset_reset`` is "none"; seek() gives a position."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(self.partitions))
        super().__init__(
            f"no committed offset for {names} and auto_offset_reset='none': seek() to a position, "
            "commit one, or choose auto_offset_reset='earliest' or 'latest'"
        )


class AssignmentFailed(KafkaError):
    """The assignor of this group's leader raised, or left the protocol's rules."""


class BrokerError(KafkaError):
    """An error code that a broker answered with.

    ``code`` is the ErrorCode (a plain int where this version of aiokc does not know it).
    """

    def __init__(self, code: int, message: str = "") -> None:
        self.code = code = error_code(code)
        name = error_name(code)
        super().__init__(f"{name}: {message}" if message else name)
        self.retriable = is_retriable(code)


class OffsetOutOfRange(BrokerError):
    """Positions that their logs do not hold (any more): ``offsets``. ``found`` says who says so, and what there is."""

    found: str = ""

    def __init__(self, offsets: Mapping[TopicPartition, int], found: str = "") -> None:
        self.offsets, self.found = dict(offsets), found
        names = ", ".join(f"{tp.topic}-{tp.partition} at {offset}" for tp, offset in sorted(self.offsets.items()))
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{names}: deleted by retention, or never written{found and f' ({found})'}; go on from an existing offset: "
            "a Consumer by seek(), or by itself where offset_out_of_range_reset is 'earliest' or 'latest'; a Client by "
            "another range",
        )


class LogTruncated(OffsetOutOfRange):
    """Records that were read are not in the log any more, or others in their place: a leader was elected without them.

    ``offsets`` are the positions; ``safe_offsets`` say, where that is known, from which offset on the log of now has
    other records than those that were read (KIP-320): ``seek()`` there to read what it has instead.
    """

    def __init__(
        self, offsets: Mapping[TopicPartition, int], safe_offsets: Mapping[TopicPartition, int], why: str = ""
    ) -> None:
        self.offsets, self.safe_offsets = dict(offsets), dict(safe_offsets)
        names = ", ".join(f"{tp.topic}-{tp.partition} at {offset}" for tp, offset in sorted(self.offsets.items()))
        safe = ", ".join(f"{tp.topic}-{tp.partition} to {offset}" for tp, offset in sorted(self.safe_offsets.items()))
        BrokerError.__init__(
            self,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{names}: {why or 'the log was truncated, what was read is not in it any more'}; "
            f"seek() {safe or 'to an existing offset'} to go on, or set offset_out_of_range_reset",
        )


class CommitFailed(BrokerError):
    """The group has moved on without this member; nothing was committed.

    With UNKNOWN_TOPIC_ID: the topic was deleted and created again since the offsets that the message names were read.
    """

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(code, message)
        self.retriable = False  # whatever the code: the same offsets will not be taken later


class RebalanceInProgress(BrokerError):
    """The group is assigning anew; nothing was committed. Go on polling, then commit what is assigned."""


class MemberFenced(BrokerError):
    """Another member with the same group_instance_id has taken this one's place."""


class AuthorizationFailed(BrokerError):
    """This principal may not use the topic or group that the message names."""


class UnknownTopic(BrokerError):
    """The cluster has no such topic or partition."""


def fresh(error: E) -> E:
    """Return an exception to raise in the place of ``error``, which is kept: of its type, text, fields and cause.

    Raising writes the frames of the caller into the exception. One object that every call of a stopped consumer raised
    would hold the frames of all those callers, with all that their variables name, for as long as it is kept.
    """
    again = copy(error) if isinstance(error, KafkaError) else _equal(error)
    return _with_history_of(error, again).with_traceback(error.__traceback__)


def _equal(error: E) -> E:
    """Copy somebody else's exception: by calling its class, as builtin ones need it, or without where that differs."""
    try:
        again = copy(error)
    except Exception:  # whatever its class raises where it is called with ``args``
        return _restored(type(error), error.args, vars(error))
    is_equal = type(again) is type(error) and (str(again), again.args) == (str(error), error.args)
    return again if is_equal else _restored(type(error), error.args, vars(error))


def _restored(kind: type[E], args: tuple[Any, ...], fields: Mapping[str, Any]) -> E:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(fields)
    return error


def _with_history_of(error: BaseException, again: E) -> E:
    again.__cause__, again.__context__ = error.__cause__, error.__context__
    again.__suppress_context__ = error.__suppress_context__
    if hasattr(error, "__notes__"):
        again.__notes__ = list(error.__notes__)
    return again


def is_retriable(code: int) -> bool:
    """Whether asking again may help: where Kafka says so, and after UNKNOWN_SERVER_ERROR, whatever the request was.

    With that code a broker says that something failed which it has no code for, and nothing of the cause. Whatever this
    client sends may be sent twice, a commit, too. So to ask again can do no harm, and what has failed once may succeed.
    """
    known = error_code(code)
    return isinstance(known, ErrorCode) and (known.retriable or known is ErrorCode.UNKNOWN_SERVER_ERROR)


def broker_error(code: int, message: str = "") -> BrokerError:
    """Return the exception for an error code: a subclass where users catch one, else BrokerError."""
    return _SUBCLASS.get(code, BrokerError)(code, message)


_SUBCLASS: dict[int, type[BrokerError]] = {
    ErrorCode.FENCED_INSTANCE_ID: MemberFenced,
    ErrorCode.REBALANCE_IN_PROGRESS: RebalanceInProgress,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopic,
}
