"""Failure: why records were not stored, and what else ends with them. Errors are made of it when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from traceback import clear_frames
from typing import Final

from ...error_codes import ErrorCode, error_name
from ...errors import (
    DeliveryTimedOut,
    MessageTooLarge,
    Persisted,
    ProduceError,
    RecordRefused,
    TransactionAborted,
    broker_error,
    fresh,
)
from ...types import TopicPartition

#: What a principal lacks whose records, or whose question for a producer id, a broker refuses without a text.
PERMISSIONS: Final[dict[int, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this principal needs the WRITE permission on the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this principal needs the WRITE permission on a topic, or "
    "IDEMPOTENT_WRITE on the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this principal needs the WRITE permission on the transactional "
    "id",
}
#: The option of the topic by which a broker finds a batch too large.
_LIMITS: Final[dict[int, str]] = {
    ErrorCode.MESSAGE_TOO_LARGE: "max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "segment.bytes",
}


class Harm(Enum):
    """What a failure ends. Kafka's classes of errors (KIP-1050): abortable, and application-recoverable or fatal."""

    BATCH = auto()  #: the records of the batch
    TRANSACTION = auto()  #: and the transaction that they belong to: it must be aborted
    PRODUCER = auto()  #: and the producer: another one has to be made


class Cause(Enum):
    """What made a batch fail."""

    REFUSED = auto()  #: the broker answered with an error code
    EXPIRED = auto()  #: delivery_timeout_ms was over
    ABORTED = auto()  #: the transaction was aborted before the batch was sent (KIP-654); ``error``: what failed it
    CLOSED = auto()  #: the producer was stopped before the batch was answered
    UNCLEAR = auto()  #: it may be stored, its sequence was lost, and enable_renumbering is off
    RECREATED = auto()  #: the topic was deleted, and another one of its name created (KIP-516)
    BROKEN = auto()  #: an error ended the producer's background; ``error`` is that error


@dataclass(frozen=True, slots=True)
class Failure:
    """The outcome of a batch that was not stored.

    ``code`` is the broker's error code, or of the last attempt where the batch expired (0: none has said anything).
    ``records`` has, by index, what the broker says about single records (KIP-467): the others were refused with them.
    """

    cause: Cause
    code: int = 0
    text: str = ""
    persisted: Persisted = "no"
    harm: Harm = Harm.BATCH
    records: dict[int, str] = field(default_factory=dict)
    error: Exception | None = None

    def maybe(self) -> Failure:
        """The same failure, of a batch that may have been stored by an attempt before."""
        return replace(self, persisted="maybe")

    def error_of(self, tp: TopicPartition, index: int) -> Exception:
        """Return the error for one record: a new one for everybody who asks, since raising one changes it."""
        topic, partition, persisted = tp.topic, tp.partition, self.persisted
        if self.code:
            last = f"{error_name(self.code)}{self.text and f' ({self.text})'}"
        else:
            last = "it was never sent" if persisted == "no" else "it was sent, and there is no answer"
            last += self.text and f" ({self.text})"
        match self.cause:
            case Cause.BROKEN if self.error is not None:
                return fresh(self.error)
            case Cause.EXPIRED:
                why = f"not acknowledged within delivery_timeout_ms; the last attempt: {last}"
                return DeliveryTimedOut(why, topic=topic, partition=partition, persisted=persisted)
            case Cause.UNCLEAR:
                why = (
                    "it may be stored, and its place in the partition was lost: with enable_renumbering=False it is "
                    f"not sent again; the last attempt: {last}"
                )
                return ProduceError(why, topic=topic, partition=partition, persisted=persisted)
            case Cause.ABORTED:
                what = "not sent" if persisted == "no" else "sent, and not acknowledged"
                why = f"{what}: {self.text or 'the transaction was aborted'}"
                aborted = TransactionAborted(why, topic=topic, partition=partition, persisted=persisted)
                aborted.__cause__ = self.error
                return aborted
            case Cause.REFUSED if self.code in _LIMITS:
                what = "record of this size"
                if persisted == "maybe":  # of a batch that a broker may have, no parts are sent
                    what = "batch of this size any more, and an attempt before may have stored it"
                why = f"the broker takes no {what}; raise {_LIMITS[self.code]} of the topic: {last}"
                return MessageTooLarge(why, topic=topic, partition=partition, persisted=persisted)
            case Cause.REFUSED | Cause.RECREATED:
                refused = RecordRefused(
                    self.code, self._said_of(index), topic=topic, partition=partition, persisted=persisted
                )
                refused.__cause__ = broker_error(self.code, self._said)
                return refused
        why = "the producer was stopped before the record was acknowledged"
        return ProduceError(why, topic=topic, partition=partition, persisted=persisted)

    @property
    def ends_producer(self) -> bool:
        return self.harm is Harm.PRODUCER

    def producer_error(self) -> Exception:
        """Return the error for every call of a producer that this failure has ended."""
        return fresh(self.error) if self.error is not None else broker_error(self.code, self._said)

    @property
    def _said(self) -> str:
        return self.text or PERMISSIONS.get(self.code, "")

    def _said_of(self, index: int) -> str:
        if not self.records:
            return self._said
        if index in self.records:
            return self.records[index] or self.text
        return f"refused because of other records of its batch ({self.text})"


def not_compressed(tp: TopicPartition, error: Exception) -> Failure:
    """Return why a batch fails that could not be compressed: it was never sent, and the producer goes on."""
    return _not_made(tp, "the batch could not be compressed", error)


def not_split(tp: TopicPartition, error: Exception) -> Failure:
    """Return why a batch fails that could not be split: nothing of it is stored, and the producer goes on."""
    return _not_made(tp, "a broker finds the batch too large, and it could not be split", error)


def _not_made(tp: TopicPartition, why: str, error: Exception) -> Failure:
    # What failed for want of memory would keep copies of the batch, as variables of its frames: nobody counts those,
    # and the Failure lives as long as the record's Delivery.
    clear_frames(error.__traceback__)
    failed = ProduceError(f"{why}: {error!r}", topic=tp.topic, partition=tp.partition)
    failed.__cause__ = error
    return Failure(Cause.BROKEN, harm=Harm.TRANSACTION, error=failed)


def recreated() -> Failure:
    """Return why the batches fail that were appended for a topic which was deleted since, and created again."""
    why = "the topic was deleted and created again after the record was appended"
    return Failure(Cause.RECREATED, ErrorCode.UNKNOWN_TOPIC_ID, why, harm=Harm.TRANSACTION)
