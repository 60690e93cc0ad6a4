"""The events that go into the transaction machine, and the effects that it returns for its driver to perform.

A control request is about the transaction as a whole: it goes to the transaction coordinator, or, for the offsets of a
group, to the coordinator of that group. Only one is under way at a time, so an answer needs no number to be recognised
by: it is the answer to the request that was returned last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import KafkaError
from ...types import GroupMetadata, OffsetAndMetadata, TopicPartition
from ..produce.identity import ProducerIdentity

# Effects: what the driver must do.


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """Ask for a producer id and an epoch. ``identity`` is the producer's own, which it proves by this (KIP-360)."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxn:
    identity: ProducerIdentity
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxn:
    identity: ProducerIdentity
    group_id: str


@dataclass(frozen=True, slots=True)
class TxnOffsetCommit:
    """Goes to the coordinator of the group. ``uses_v2``: it adds the group to the transaction by itself (KIP-890)."""

    identity: ProducerIdentity
    group: GroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    uses_v2: bool


@dataclass(frozen=True, slots=True)
class EndTxn:
    """``uses_v2``: the answer has the identity of the next transaction (KIP-890)."""

    identity: ProducerIdentity
    committed: bool
    uses_v2: bool


ControlRequest: TypeAlias = InitProducerId | AddPartitionsToTxn | AddOffsetsToTxn | TxnOffsetCommit | EndTxn


@dataclass(frozen=True, slots=True)
class ForgetCoordinator:
    """The broker that was asked is not the coordinator of ``group_id`` (None: of the transactional id)."""

    group_id: str | None


@dataclass(frozen=True, slots=True)
class Settle:
    """Bring all batches of the transaction to an end, and answer Settled.

    Without ``error``: send all that is appended. With it: fail at once all that was never sent, and fail the others as
    soon as their requests are answered; send nothing more.
    """

    step: int
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Renewed:
    """The producer has another identity: sequences begin at 0. No transaction is open when this comes."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """Batches for these partitions may be sent from now on."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Initialized:
    """The producer has an identity, and may begin a transaction; with ``error``: it was refused one."""

    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A commit, or an abort, is over. With ``error`` the transaction is not known to have ended in that way."""

    committed: bool
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class OffsetsEnded:
    """The offsets of call ``number`` are part of the transaction; with ``error``: they are not known to be."""

    number: int
    error: Exception | None = None


Effect: TypeAlias = (
    ControlRequest | ForgetCoordinator | Settle | Renewed | PartitionsAdded | Initialized | Ended | OffsetsEnded
)


# Events: what the application, the sender and the cluster did.


@dataclass(frozen=True, slots=True)
class Initialize:
    """The producer wants an identity."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The application begins a transaction."""


@dataclass(frozen=True, slots=True)
class VersionSeen:
    """The coordinator was asked for the level of the feature transaction.version, between two transactions."""

    transaction_version: int


@dataclass(frozen=True, slots=True)
class SendOffsets:
    """The application commits these offsets of a group within the transaction, by the call of this ``number``."""

    number: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    group: GroupMetadata


@dataclass(frozen=True, slots=True)
class OffsetsAbandoned:
    """The call of this ``number`` has ended before the group's coordinator answered: nobody knows what became of it."""

    number: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Commit:
    """The application commits the transaction."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The application aborts the transaction."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The first record for ``partition`` in this transaction has been appended to a batch."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Produced:
    """A batch of the transaction is about to be sent, so its partition may join the transaction (KIP-890)."""


@dataclass(frozen=True, slots=True)
class RecordFailed:
    """A record of the transaction was refused, expired, or could not even be appended; or a call for offsets raised.

    ``ends_producer``: nothing that this producer sends will be stored any more.
    """

    error: Exception
    ends_producer: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """The Settle of ``step`` is carried out: no batch of the transaction is unanswered."""

    step: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A coordinator answered the control request with this error code (0: success).

    what                 the partition that the code is about; "" where it is about all of the request
    identity             the producer's identity from now on; None where the answer has none
    transaction_version  the level of the feature transaction.version that the broker names; 0 where it names none
    """

    sent: ControlRequest
    code: int
    what: str = ""
    identity: ProducerIdentity | None = None
    transaction_version: int = 0


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """The control request has no answer. It may have been carried out all the same, or may be so at any time later;
    unless it is not even ``written``: no coordinator was found, say, or none could be connected to.
    """

    sent: ControlRequest
    error: KafkaError
    written: bool = True


@dataclass(frozen=True, slots=True)
class Tick:
    """The machine's ``deadline`` has come."""


#: What an application asks for. The machine refuses it with an error for the caller where the state does not allow it.
Wish: TypeAlias = Initialize | Begin | SendOffsets | Commit | Abort
Event: TypeAlias = (
    Wish | VersionSeen | OffsetsAbandoned | Appended | Produced | RecordFailed | Settled | Answered | NotAnswered | Tick
)
