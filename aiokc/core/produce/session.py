"""ProducerSession: what the sender asks of a producer's identity and of its transaction, and what it tells them.

There are two implementations: ``PlainSession`` here, for producers without transactions, and that of transactions. The
accumulator and the sender never ask which one they have. Every method is plain and quick, and is called within the
event loop's step in which the thing happens. An implementation that changes what it would answer (an identity has
come, a partition was added to the transaction, the transaction began to end) calls the sender's ``wake.notify``.

What a transaction needs of the sender is ``Batches`` in client/transactions/driver.py.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ...types import TopicPartition
from .failure import Failure, Harm
from .identity import LAST_EPOCH, NOBODY, ProducerIdentity


class Versions(NamedTuple):
    """The versions of Produce that may be used, both ends included. A newer broker is spoken to in the highest one."""

    lowest: int
    highest: int


class ProducerSession(Protocol):
    """One producer's identity, and its transactions where it has some.

    ``identity``         what new sequences are numbered under. None: there is none yet, and no batch of a numbered
                         session is drained. A partition changes over to a new identity when it has no unfinished batch
                         of the old one
    ``trouble``          why there is no identity yet, where that is known; "" where nothing is wrong
    ``numbered``         whether batches carry sequences: False without idempotence
    ``transactional_id`` goes into each Produce request; None without transactions
    ``versions``         the versions of Produce that may be used now (one set for a whole transaction)
    ``hurries``          whether batches are sent without linger: commit, abort
    ``renumbers``        whether a partition whose sequences were lost may begin anew with the same records. Where it
                         may not, its batch fails
    ``renumbers_unclear`` whether it may do so with batches that may be stored. Where it may not, these fail
    ``begun``            how many transactions have begun, the open one among them: 0 without transactions
    ``open_number``      which of them a call joins that begins now: 0 where none is open, or it is being ended
    ``doom``             the outcome of every batch that is not in flight: nothing is sent any more. None: all is well
    """

    @property
    def identity(self) -> ProducerIdentity | None: ...
    @property
    def trouble(self) -> str: ...
    @property
    def numbered(self) -> bool: ...
    @property
    def transactional_id(self) -> str | None: ...
    @property
    def versions(self) -> Versions: ...
    @property
    def hurries(self) -> bool: ...
    @property
    def renumbers(self) -> bool: ...
    @property
    def renumbers_unclear(self) -> bool: ...
    @property
    def begun(self) -> int: ...
    @property
    def open_number(self) -> int: ...
    @property
    def doom(self) -> Failure | None: ...

    def check_append(self) -> None:
        """Raise what an append raises now: no transaction has begun, it must be aborted, the producer is fenced."""

    def appended(self, tp: TopicPartition) -> None:
        """A record was appended to a partition that had no unfinished batch, or this is the first one of all."""

    def may_drain(self, tp: TopicPartition) -> bool:
        """Whether batches may be sent now: with transaction.version 1 not before AddPartitionsToTxn was answered."""

    def sent(self, tp: TopicPartition) -> None:
        """A batch is about to be written: with transaction.version 2 that adds the partition (KIP-890)."""

    def failed(self, tp: TopicPartition, failure: Failure) -> None:
        """A batch has failed for good: ``failure.harm`` says whether that ends more than the batch's records."""

    def refused(self, error: Exception, begun: int) -> None:
        """A record was not even appended, because of ``error``: it is missing in the transaction ``begun``.

        That one may be about to be committed: it is not, if that can still be helped. Or it may have ended, and another
        one be open: nothing is missing in that.
        """

    def bump(self, lost: ProducerIdentity) -> ProducerIdentity | None:
        """A partition can't go on with its sequences under ``lost``; return another identity for it to begin anew with.

        None: not now, ask again when the session has woken the sender. A transaction never bumps while it is
        open: it returns an identity only once its own one differs from ``lost``.
        """

    def may_forget(self, used: ProducerIdentity) -> bool:
        """Whether a partition that was numbered under ``used`` begins at 0 if it is ever sent to again.

        A session that can makes it so, by another epoch.
        """


class PlainSession:
    """The session of a producer without transactions, idempotent or not.

    ``wants_id`` says that a driver has to ask a broker for a producer id (InitProducerId) and to call ``initialized``.
    """

    transactional_id: str | None = None
    versions = Versions(3, 13)
    hurries = False
    renumbers = True
    begun = open_number = 0

    def __init__(self, *, idempotent: bool, renumbers_unclear: bool = True) -> None:
        self.numbered = idempotent
        self.renumbers_unclear = renumbers_unclear
        self.identity: ProducerIdentity | None = None if idempotent else NOBODY
        self.trouble = ""
        self.doom: Failure | None = None

    @property
    def wants_id(self) -> bool:
        return self.identity is None and self.doom is None

    def initialized(self, identity: ProducerIdentity) -> None:
        """A broker has given the producer this identity."""
        self.identity, self.trouble = identity, ""

    def check_append(self) -> None:
        if self.doom is not None:
            raise self.doom.producer_error()

    def appended(self, tp: TopicPartition) -> None:
        pass

    def may_drain(self, tp: TopicPartition) -> bool:
        return True

    def sent(self, tp: TopicPartition) -> None:
        pass

    def failed(self, tp: TopicPartition, failure: Failure) -> None:
        if failure.harm is Harm.PRODUCER and self.doom is None:
            self.doom = failure

    def refused(self, error: Exception, begun: int) -> None:
        pass

    def bump(self, lost: ProducerIdentity) -> ProducerIdentity | None:
        """Begin the next epoch, without a request (KIP-360), unless another partition has had it begin before."""
        if self.identity != lost:
            return self.identity
        self.identity = None if lost.epoch == LAST_EPOCH else lost._replace(epoch=lost.epoch + 1)
        return self.identity

    def may_forget(self, used: ProducerIdentity) -> bool:
        if self.numbered and self.identity == used:
            self.bump(used)
        return True
