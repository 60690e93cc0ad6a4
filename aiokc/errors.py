"""The exceptions of aiokc: everything that it raises on purpose.

    KafkaError
    ├── ConfigError (ValueError)            an option is unknown, of a wrong type or out of range
    ├── UsageError (RuntimeError)           the call is not allowed in the consumer's present state
    │   ├── ClientClosed                    the Client, Consumer or Producer was stopped, or never started
    │   │   ├── ConsumerClosed              ... the Consumer
    │   │   └── ProducerClosed              ... the Producer
    │   └── ConcurrentCall                  another task is inside getmany, getone, the iterator or wait_assigned
    ├── ConnectionFailed (ConnectionError)  no connection could be made, or it broke; retriable
    │   └── NoBrokersAvailable              none of the addresses answered before the deadline
    ├── RequestTimedOut (TimeoutError)      no answer before the deadline; retriable
    ├── ListenerTimedOut (TimeoutError)     a callback of the rebalance listener took too long, and was cancelled
    ├── AuthenticationFailed                the broker refused the credentials; .mechanism, .code
    │   └── CertificateRefused              one side of TLS refused the certificate of the other
    ├── UnsupportedVersion                  client and broker share no version of an API
    ├── MalformedResponse                   bytes from the network that are not Kafka's protocol
    ├── RecordError                         something is wrong with the bytes stored in one partition
    │   ├── CorruptRecord                   a record batch has a wrong CRC or a broken structure
    │   ├── RecordTooLarge                  a batch decompresses to more than its limit; a record over 2 GiB in columns
    │   ├── UnsupportedCodec                the codec's package is missing, or the codec is unknown
    │   └── DeserializationFailed           a deserializer raised; .record is the record as it is stored
    ├── ProduceError                        a record was not sent, or may not be; .topic, .partition, .persisted
    │   ├── BufferFull                      buffer_memory is used up; retriable
    │   ├── MetadataMissing                 no broker has told of the topic or partition; retriable
    │   ├── SerializationFailed             a serializer raised; .origin
    │   ├── PartitioningFailed              the application's partitioner raised, or chose what is no partition
    │   ├── MessageTooLarge                 the record is larger than the client's or the broker's limit
    │   ├── DeliveryTimedOut (TimeoutError) not acknowledged within delivery_timeout_ms
    │   ├── RecordRefused                   the broker refused the record; .code
    │   └── TransactionAborted              the record's transaction was aborted before it was acknowledged
    ├── TransactionAbortable                the transaction cannot be committed; abort it
    ├── NoOffsetForPartition                no committed offset, and auto_offset_reset is "none"
    ├── AssignmentFailed                    an assignor raised, or returned something that is no valid assignment
    └── BrokerError                         an error code of the protocol; .code, .retriable
        ├── OffsetOutOfRange                the log does not hold the position (any more)
        │   └── LogTruncated                the log lost, or replaced, records that were read already
        ├── CommitFailed                    the group has gone on without this member, or the topic was recreated
        ├── RebalanceInProgress             the group is rebalancing; go on polling, then commit again
        ├── MemberFenced                    another member took over this group_instance_id
        ├── ProducerFenced                  another producer took over this transactional_id
        ├── AuthorizationFailed             the principal has no permission for the topic, group or cluster
        └── UnknownTopic                    the cluster has no such topic or partition

``retriable`` is true where the same call may succeed later without any change by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy, deepcopy
from typing import Any, Literal, Self, TypeAlias, TypeVar

from .error_codes import ErrorCode, error_code, error_name
from .types import RawRecord, TopicPartition, named

E = TypeVar("E", bound=BaseException)


class KafkaError(Exception):
    """Base class of everything that aiokc raises on purpose.

    ``may_be_committed`` where nobody knows whether the producer's transaction was committed: a request to commit it had
    no clear answer. ``appended``: of an error that send_many() raises, how many of its records were appended before the
    one that it is about.

    A pickled, copied or deep-copied error has the same text, args and fields. A copy has the same cause, too; a pickled
    error has none, as with all exceptions in Python.
    """

    retriable: bool = False
    may_be_committed: bool = False
    appended: int = 0

    # Exceptions are pickled and copied by calling their class with ``args``. Here ``args`` is the finished text, not
    # the arguments of the class: such a call would fail, or would build the text twice.

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, vars(self))

    def __copy__(self) -> Self:
        return _with_history_of(self, _restored(type(self), self.args, vars(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        again = _restored(type(self), deepcopy(self.args, memo), deepcopy(vars(self), memo))
        return _with_history_of(self, again)


class ConfigError(KafkaError, ValueError):
    """An option or argument is unknown, has a wrong type, is out of range, or contradicts another one."""


class UsageError(KafkaError, RuntimeError):
    """The call is not allowed in the client's present state; the message says what to call first."""


class ClientClosed(UsageError):
    """The Client, Consumer or Producer was stopped, or has not been started. A Client raises this class itself."""


class ConsumerClosed(ClientClosed):
    """The Consumer was stopped, or has not been started."""


class ProducerClosed(ClientClosed):
    """The Producer was stopped, or has not been started. What it had accepted before has its own outcome."""


class ConcurrentCall(UsageError):
    """Another task is inside getmany, getone, the iterator or wait_assigned of the same consumer."""


class ConnectionFailed(KafkaError, ConnectionError):
    """A connection could not be made, or broke before the answer came."""

    retriable = True


class NoBrokersAvailable(ConnectionFailed):
    """None of the known addresses answered before the deadline.

    Not ``retriable`` where each of them has answered with what is not Kafka's protocol, TLS to a client without it for
    instance, and no broker has answered this client before. Then it is raised at once.
    """


class RequestTimedOut(KafkaError, TimeoutError):
    """No answer came before the deadline."""

    retriable = True


class ListenerTimedOut(KafkaError, TimeoutError):
    """A callback of the application's RebalanceListener took too long, and the consumer cancelled it."""


class AuthenticationFailed(KafkaError):
    """The broker refused the credentials or the SASL mechanism, or there are no credentials to offer it.

    ``mechanism`` is the SASL mechanism ("": none was tried), ``code`` the broker's error code (0: the broker named
    none). ``retriable`` where the source of the credentials failed, a token provider say, which may pass.
    """

    def __init__(self, message: str, *, mechanism: str = "", code: int = 0, retriable: bool = False) -> None:
        super().__init__(message)
        self.mechanism, self.code, self.retriable = mechanism, error_code(code) if code else 0, retriable


class CertificateRefused(AuthenticationFailed):
    """TLS ended before any request: this client refused the broker's certificate, or the broker refused this client's.

    Java calls it SslAuthenticationException.
    """


class UnsupportedVersion(KafkaError):
    """Client and broker share no version of an API that this call needs."""


class MalformedResponse(KafkaError):
    """Bytes from the network that do not follow Kafka's protocol."""


class RecordError(KafkaError):
    """The stored bytes of one partition cannot be read at ``offset``.

    ``broker`` is the id of the broker that sent them (-1: unknown). ``topic`` is "", and ``partition`` and ``offset``
    are -1, where they are unknown.
    """

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
    """A record batch has a wrong CRC or a broken structure."""


class RecordTooLarge(RecordError):
    """A batch decompresses to more than ``max_decompressed_batch_bytes``; in columns also: a record is over 2 GiB."""


class UnsupportedCodec(RecordError):
    """The codec's package is not installed, or Kafka has no such codec."""


class DeserializationFailed(RecordError):
    """A deserializer raised (``__cause__`` is its exception), or took too long. Java's RecordDeserializationException.

    ``record`` is the record as it is stored: key and value in bytes, headers, timestamp (KIP-1036). ``origin`` is "key"
    or "value": which deserializer has failed. Neither message nor repr shows any content of the record; the
    deserializer's own exception may.
    """

    def __init__(self, record: RawRecord, origin: Literal["key", "value"], problem: str) -> None:
        super().__init__(
            f"{origin}_deserializer {problem}; seek() to {record.offset + 1} to skip the record, which is in .record",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        )
        self.record, self.origin = record, origin


Persisted: TypeAlias = Literal["no", "maybe"]


class ProduceError(KafkaError):
    """A record was not sent, or was sent and nobody acknowledged it.

    ``topic`` is "" and ``partition`` -1 where they are unknown. ``persisted`` is "no" where the record is certainly not
    in the log, and "maybe" where it was sent and the answer is missing: then it may be read, or may still appear.
    """

    def __init__(self, message: str, *, topic: str = "", partition: int = -1, persisted: Persisted = "no") -> None:
        super().__init__(message)
        self.topic, self.partition = topic, partition
        self.persisted: Persisted = persisted

    def __str__(self) -> str:
        text = super().__str__()
        where = f"{self.topic}-{self.partition}: " if self.partition >= 0 else f"{self.topic}: " if self.topic else ""
        return f"{where}{text}{' (it may be stored all the same)' if self.persisted == 'maybe' else ''}"


class BufferFull(ProduceError):
    """``buffer_memory`` is used up by records that lack an answer, or their callback. Nothing was appended."""

    retriable = True


class MetadataMissing(ProduceError):
    """The topic, or the partition, is in no metadata that a broker has sent; the record was not appended."""

    retriable = True


class SerializationFailed(ProduceError):
    """A serializer raised (``__cause__`` is its exception), or returned no bytes; the record was not appended.

    ``origin`` is "key" or "value": which serializer has failed. The message shows nothing of the record.
    """

    def __init__(self, origin: Literal["key", "value"], problem: str, *, topic: str = "") -> None:
        super().__init__(f"{origin}_serializer {problem}", topic=topic)
        self.origin = origin


class PartitioningFailed(ProduceError):
    """The application's partitioner raised (``__cause__``), or returned no int, or a negative one."""


class MessageTooLarge(ProduceError):
    """The record is larger than max_request_size, buffer_memory, or the topic's max.message.bytes or segment.bytes.

    Java's RecordTooLargeException. It harms no other batch. With ``persisted`` "maybe" its batch may be stored already.
    """


class DeliveryTimedOut(ProduceError, TimeoutError):
    """The record was not acknowledged within ``delivery_timeout_ms`` of its append."""


class RecordRefused(ProduceError):
    """The broker refused the record. ``code`` is its ErrorCode, and ``__cause__`` the BrokerError.

    With INVALID_RECORD one record of a batch can be the reason for all: the message says which.
    """

    def __init__(
        self, code: int, message: str = "", *, topic: str = "", partition: int = -1, persisted: Persisted = "no"
    ) -> None:
        self.code = code = error_code(code)
        name = error_name(code)
        text = f"{name}: {message}" if message else name
        super().__init__(text, topic=topic, partition=partition, persisted=persisted)


class TransactionAborted(ProduceError):
    """The transaction that the record belongs to was aborted before the record was acknowledged (KIP-654).

    Or it had ended, and another one had begun, before a send() that waited could append the record: then it is in none.
    """


class TransactionAbortable(KafkaError):
    """The transaction cannot be committed any more: abort it, and begin another one (KIP-1050).

    ``__cause__`` is the first error of a record, an offset or a request that belongs to it.
    """


class NoOffsetForPartition(KafkaError):
    """``partitions`` have no committed offset, and ``auto_offset_reset`` is "none"; seek() gives them a position."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        super().__init__(
            f"no committed offset for {named(self.partitions)}, and auto_offset_reset='none': seek() to a position, "
            "commit one, or choose auto_offset_reset='earliest' or 'latest'"
        )


class AssignmentFailed(KafkaError):
    """An assignor raised, or an assignment breaks the protocol's rules.

    It may have topics that the member does not subscribe to, or topic ids that no metadata name.
    """


class BrokerError(KafkaError):
    """A broker answered with an error code.

    ``code`` is the ErrorCode, or a plain int where this version of aiokc does not know it.
    """

    def __init__(self, code: int, message: str = "") -> None:
        self.code = code = error_code(code)
        name = error_name(code)
        super().__init__(f"{name}: {message}" if message else name)
        self.retriable = is_retriable(code)


class OffsetOutOfRange(BrokerError):
    """The logs do not hold these positions (any more): ``offsets``.

    ``found`` is text: which broker says so, and which offsets its log holds ("" where unknown).
    """

    found: str = ""

    def __init__(self, offsets: Mapping[TopicPartition, int], found: str = "") -> None:
        self.offsets, self.found = dict(offsets), found
        names = named(self.offsets, write=lambda tp: f"{tp} at {self.offsets[tp]}")
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{names}: deleted by retention, or never written{found and f' ({found})'}; go on from an existing offset: "
            "a Consumer by seek(), or by itself where offset_out_of_range_reset is 'earliest' or 'latest'; a Client by "
            "another range",
        )


class LogTruncated(OffsetOutOfRange):
    """The log lost records that the consumer had read, or has others in their place: the new leader did not have them.

    ``offsets`` are the positions. ``safe_offsets`` has, where it is known, the first offset at which the log now
    differs from what the consumer read (KIP-320): ``seek()`` there to read what the log has instead.
    """

    def __init__(
        self, offsets: Mapping[TopicPartition, int], safe_offsets: Mapping[TopicPartition, int], why: str = ""
    ) -> None:
        self.offsets, self.safe_offsets = dict(offsets), dict(safe_offsets)
        names = named(self.offsets, write=lambda tp: f"{tp} at {self.offsets[tp]}")
        safe = safe_offsets and named(safe_offsets, write=lambda tp: f"{tp} to {safe_offsets[tp]}")
        BrokerError.__init__(
            self,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{names}: {why or 'the log was truncated, what was read is not in it any more'}; "
            f"seek() {safe or 'to an existing offset'} to go on, or set offset_out_of_range_reset",
        )


class CommitFailed(BrokerError):
    """The group has gone on without this member; nothing was committed. Never retriable.

    With UNKNOWN_TOPIC_ID the topic of ``partitions`` (else empty) was recreated after the consumer had read their
    offsets: the member is still one, and all other offsets of the commit are stored.
    """

    def __init__(self, code: int, message: str = "", partitions: Iterable[TopicPartition] = ()) -> None:
        super().__init__(code, message)
        self.partitions, self.retriable = frozenset(partitions), False  # no coordinator accepts them later


class RebalanceInProgress(BrokerError):
    """The group is rebalancing; nothing was committed. Go on polling, then commit what is still assigned."""


class MemberFenced(BrokerError):
    """Another member with the same group_instance_id has taken this member's place (KIP-345)."""


class ProducerFenced(BrokerError):
    """Another producer with the same transactional_id has taken this one's place: make no further call of this one."""


class AuthorizationFailed(BrokerError):
    """The principal has no permission for what the message names: topic, group, transactional id, token or cluster."""


class UnknownTopic(BrokerError):
    """The cluster has no such topic or partition."""


def fresh(error: E) -> E:
    """Return a copy to raise in the place of ``error``, which the client keeps: same type, text, fields and cause.

    Raising adds the caller's frames to the exception. If every call of a stopped consumer raised one kept object, that
    object would keep the frames of all callers alive, with all their variables.
    """
    again = copy(error) if isinstance(error, KafkaError) else _equal(error)
    return _with_history_of(error, again).with_traceback(error.__traceback__)


def _equal(error: E) -> E:
    """Copy an exception that is not ours: by calling its class, as builtin ones need it; without, if that differs."""
    try:
        again = copy(error)
        is_equal = type(again) is type(error) and (str(again), again.args) == (str(error), error.args)
    except Exception:  # its class may raise anything when it is called with ``args``, and its __str__ at any time
        return _restored(type(error), error.args, vars(error))
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


def shown(value: object) -> str:
    """Return ``repr(value)``, or its type's name where that raises: for a message about what the application gave.

    The ``__repr__`` of the application's objects may raise anything, and that of an int with thousands of digits raises
    ValueError. Such an exception would take the place of the error that the message belongs to.
    """
    try:
        return repr(value)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # also a CancelledError, which would silently end a task of ours
        return f"<{type(value).__name__}, whose repr() raised {type(error).__name__}>"


def is_retriable(code: int) -> bool:
    """Whether the same request may succeed later: if Kafka says so, and after UNKNOWN_SERVER_ERROR for every request.

    With UNKNOWN_SERVER_ERROR a broker reports a failure that it has no code for; the code says nothing of the cause.
    Every request of this client may be sent twice, also a commit. So a retry does no harm, and may succeed.
    """
    known = error_code(code)
    return isinstance(known, ErrorCode) and (known.retriable or known is ErrorCode.UNKNOWN_SERVER_ERROR)


def broker_error(code: int, message: str = "", *, needs: str = "") -> BrokerError:
    """Return the exception for an error code: a subclass of BrokerError if there is one for it, else BrokerError.

    ``needs`` is the permission (READ, DESCRIBE, ...) that was missing, if the code says that one was.
    """
    if needs and (resource := _RESOURCES.get(code)) is not None:
        message += f": this principal needs the {needs} permission on the {resource}"
    return _SUBCLASS.get(code, BrokerError)(code, message)


_RESOURCES: dict[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
}


_SUBCLASS: dict[int, type[BrokerError]] = {
    ErrorCode.FENCED_INSTANCE_ID: MemberFenced,
    ErrorCode.PRODUCER_FENCED: ProducerFenced,
    ErrorCode.REBALANCE_IN_PROGRESS: RebalanceInProgress,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: AuthorizationFailed,
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: AuthorizationFailed,
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: AuthorizationFailed,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: AuthorizationFailed,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.DELEGATION_TOKEN_EXPIRED: AuthorizationFailed,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopic,
}
