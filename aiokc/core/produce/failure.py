"""Failure: why records were not stored, and what else ends with them. Errors are made of it when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Literal, TypeAlias

#: Whether a failed record may all the same be in the log: a definite refusal, or nobody knows.
Persisted: TypeAlias = Literal["no", "maybe"]


class Harm(Enum):
    """What a failure ends. Kafka's classes of errors (KIP-1050): abortable, and application-recoverable or fatal."""

    BATCH = auto()  #: the records of the batch
    TRANSACTION = auto()  #: and the transaction that they belong to: it must be aborted
    PRODUCER = auto()  #: and the producer: another one has to be made


class Cause(Enum):
    """What made a batch fail."""

    REFUSED = auto()  #: the broker answered with an error code
    EXPIRED = auto()  #: delivery_timeout_ms was over
    ABORTED = auto()  #: the transaction was aborted before the batch was sent (KIP-654)
    CLOSED = auto()  #: the producer was stopped before the batch was answered
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
