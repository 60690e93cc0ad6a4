"""What each error code means for a transaction, request by request: the tables of KIP-1050's classes of errors."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from ...error_codes import ErrorCode
from ...errors import (
    BrokerError,
    CommitFailed,
    KafkaError,
    ProducerFenced,
    TransactionAbortable,
    UnknownTopic,
    UnsupportedVersion,
    broker_error,
)
from ..produce.failure import PERMISSIONS
from .events import AddOffsetsToTxn, AddPartitionsToTxn, ControlRequest, EndTxn, InitProducerId, TxnOffsetCommit


class Verdict(Enum):
    """What follows from the answer to a control request."""

    DONE = auto()
    RETRY = auto()  # ask again after a pause
    RETRY_SOME_TIMES = auto()  # the same, but not for long: then it is ABORTABLE
    LOOK_UP = auto()  # find the coordinator anew, then ask again after a pause
    REFUSED = auto()  # no identity for this producer as things stand: UNINITIALIZED, and the caller is told why
    ABORTABLE = auto()  # the transaction must be aborted; the producer can go on after that
    NOTHING_OPEN = auto()  # the coordinator knows of no open transaction: an abort has nothing to end
    FATAL = auto()  # this producer can't go on


_EACH: Final[Mapping[int, Verdict]] = {
    ErrorCode.NONE: Verdict.DONE,
    ErrorCode.UNKNOWN_SERVER_ERROR: Verdict.RETRY,
    ErrorCode.REQUEST_TIMED_OUT: Verdict.RETRY,
    ErrorCode.NETWORK_EXCEPTION: Verdict.RETRY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.LOOK_UP,
    ErrorCode.NOT_COORDINATOR: Verdict.LOOK_UP,
    ErrorCode.CONCURRENT_TRANSACTIONS: Verdict.RETRY,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Verdict.RETRY,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Verdict.LOOK_UP,
    ErrorCode.PRODUCER_FENCED: Verdict.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: Verdict.FATAL,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict.FATAL,
    ErrorCode.INVALID_REQUEST: Verdict.FATAL,
    ErrorCode.TRANSACTION_ABORTABLE: Verdict.ABORTABLE,
}

# What the transaction coordinator answers once the producer has an identity. Before KIP-588 it said
# INVALID_PRODUCER_EPOCH where it says PRODUCER_FENCED now.
_BY_THE_COORDINATOR: Final[Mapping[int, Verdict]] = {
    **_EACH,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.FATAL,
    ErrorCode.INVALID_TXN_STATE: Verdict.FATAL,
    # The id was idle for transactional.id.expiration.ms, and is forgotten: the abort proves that (see NOTHING_OPEN).
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.ABORTABLE,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.ABORTABLE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
}

INIT_PRODUCER_ID: Final[Mapping[int, Verdict]] = {
    **_EACH,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.FATAL,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.FATAL,
    ErrorCode.INVALID_TXN_STATE: Verdict.FATAL,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Verdict.REFUSED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.REFUSED,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: Verdict.REFUSED,
    ErrorCode.TRANSACTION_ABORTABLE: Verdict.REFUSED,  # no transaction is open that could be aborted
}

ADD_PARTITIONS: Final[Mapping[int, Verdict]] = {
    **_BY_THE_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Verdict.RETRY,  # brokers hear of a new topic one by one
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
    ErrorCode.INVALID_TOPIC_EXCEPTION: Verdict.ABORTABLE,
    ErrorCode.OPERATION_NOT_ATTEMPTED: Verdict.RETRY,  # because of another partition, whose code says more
}

ADD_OFFSETS: Final[Mapping[int, Verdict]] = {
    **_BY_THE_COORDINATOR,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
    ErrorCode.INVALID_GROUP_ID: Verdict.ABORTABLE,
}

TXN_OFFSET_COMMIT: Final[Mapping[int, Verdict]] = {
    **_EACH,
    ErrorCode.REQUEST_TIMED_OUT: Verdict.LOOK_UP,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Verdict.RETRY,
    # The group's coordinator can't tell a transaction that has timed out from a producer that was fenced. The abort
    # can: the transaction coordinator answers it with NONE, or with PRODUCER_FENCED.
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.ABORTABLE,
    ErrorCode.INVALID_TXN_STATE: Verdict.ABORTABLE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.ABORTABLE,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.ABORTABLE,
    # KIP-447: the group has gone on without the member that read the records.
    ErrorCode.ILLEGAL_GENERATION: Verdict.ABORTABLE,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.ABORTABLE,
    ErrorCode.FENCED_INSTANCE_ID: Verdict.ABORTABLE,
    ErrorCode.STALE_MEMBER_EPOCH: Verdict.ABORTABLE,
    ErrorCode.FENCED_MEMBER_EPOCH: Verdict.ABORTABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: Verdict.ABORTABLE,
    ErrorCode.REBALANCE_IN_PROGRESS: Verdict.ABORTABLE,
    ErrorCode.INVALID_GROUP_ID: Verdict.ABORTABLE,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: Verdict.ABORTABLE,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Verdict.ABORTABLE,
    # The coordinator has not heard of a new topic yet. Or the topic was recreated, and no retry helps.
    ErrorCode.UNKNOWN_TOPIC_ID: Verdict.RETRY_SOME_TIMES,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
}

COMMIT: Final[Mapping[int, Verdict]] = {
    **_BY_THE_COORDINATOR,
    # The coordinator has aborted it: its time was over (KIP-890 lets the producer go on after an abort).
    ErrorCode.INVALID_TXN_STATE: Verdict.ABORTABLE,
}

ABORT: Final[Mapping[int, Verdict]] = {
    **_BY_THE_COORDINATOR,
    ErrorCode.TRANSACTION_ABORTABLE: Verdict.FATAL,
    ErrorCode.INVALID_TXN_STATE: Verdict.NOTHING_OPEN,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.NOTHING_OPEN,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.NOTHING_OPEN,
}

#: FindCoordinator, of the transactional id or of the group.
LOOKUP: Final[Mapping[int, Verdict]] = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
    ErrorCode.INVALID_GROUP_ID: Verdict.ABORTABLE,
}

# Two codes more than for a commit outside of a transaction: core/offsets/verdicts.py says why.
_OUTSIDE_THE_GROUP: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_ADVICE: Final[Mapping[int, str]] = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction_timeout_ms is above transaction.max.timeout.ms of the brokers "
    "(15 minutes, unless they are configured otherwise)",
}
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


def table_of(sent: ControlRequest) -> Mapping[int, Verdict]:
    """Return the table for the answers to ``sent``."""
    match sent:
        case InitProducerId():
            return INIT_PRODUCER_ID
        case AddPartitionsToTxn():
            return ADD_PARTITIONS
        case AddOffsetsToTxn():
            return ADD_OFFSETS
        case TxnOffsetCommit():
            return TXN_OFFSET_COMMIT
        case EndTxn():
            return COMMIT if sent.committed else ABORT


def verdict(sent: ControlRequest, code: int) -> Verdict:
    """Return what the answer ``code`` to ``sent`` means. A code that no table has is fatal, as in Java."""
    if code == ErrorCode.UNSUPPORTED_VERSION and isinstance(sent, TxnOffsetCommit) and sent.uses_v2:
        return Verdict.ABORTABLE  # transaction.version was lowered since: the next transaction is of the other kind
    return table_of(sent).get(code, Verdict.FATAL)


def verdict_without_answer(sent: ControlRequest, error: KafkaError) -> Verdict:
    """Return what follows where ``sent`` has no answer: it was not sent, or timed out, or the lookup has failed."""
    if isinstance(error, UnsupportedVersion):
        # These offsets can't be sent: their group's coordinator is older than the others, or than KIP-447.
        return Verdict.ABORTABLE if isinstance(sent, TxnOffsetCommit) else Verdict.FATAL
    if isinstance(error, BrokerError) and not error.retriable:
        return Verdict.REFUSED if isinstance(sent, InitProducerId) else LOOKUP.get(error.code, Verdict.FATAL)
    # Credentials that are refused now may be accepted later, so only the caller who waits for an identity is told.
    is_refusal = not error.retriable and isinstance(sent, InitProducerId)
    return Verdict.REFUSED if is_refusal else Verdict.RETRY


def error_of(sent: ControlRequest, code: int, meaning: Verdict, transactional_id: str, what: str = "") -> KafkaError:
    """Return the error to raise for an answer that is neither success nor to be repeated."""
    of = f"transactional id {transactional_id!r}, {type(sent).__name__}{what and f' of {what}'}"
    if code in _OUTSIDE_THE_GROUP and isinstance(sent, TxnOffsetCommit):
        return CommitFailed(
            code,
            f"{of}: group {sent.group.group_id!r} has gone on without member {sent.group.member_id!r} of generation "
            f"{sent.group.generation_id}, and others read these partitions by now; abort the transaction: the group "
            "delivers its records again",
        )
    if meaning is Verdict.FATAL and code in _FENCED:
        return ProducerFenced(
            code,
            f"{of}: another producer has taken over this transactional id, or the transaction took longer than "
            "transaction_timeout_ms on brokers that end the producer for that (before Kafka 4.0); make a new one",
        )
    then = {Verdict.ABORTABLE: "abort the transaction", Verdict.FATAL: "make a new producer"}.get(meaning)
    advice = "; ".join(filter(None, (_permission(sent, code) or _ADVICE.get(code), then)))
    told = broker_error(code, f"{of}: {advice}" if advice else of)
    if meaning is not Verdict.ABORTABLE or type(told) not in (BrokerError, UnknownTopic):
        return told
    error = TransactionAbortable(str(told))
    error.__cause__ = told
    return error


def _permission(sent: ControlRequest, code: int) -> str | None:
    """Return which permission was missing; None where ``code`` tells of something else."""
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return "this principal needs the READ permission on the group"
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and isinstance(sent, TxnOffsetCommit):
        return "this principal needs the READ permission on the topic"  # it is read: nothing is written to it
    return PERMISSIONS.get(code)
