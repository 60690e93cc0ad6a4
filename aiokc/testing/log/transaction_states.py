"""The transaction coordinator (KIP-98, KIP-360, KIP-890): the state of each transactional id, fencing, markers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeAlias

from ...error_codes import ErrorCode
from ...records import BatchHeader, ControlType
from ..refusal import Refusal

_LAST_EPOCH: Final = 0x7FFF - 1

#: A topic name and a partition number.
Place: TypeAlias = tuple[str, int]


class TransactionState(Enum):
    """The state of a transactional id. There is no "prepare" state as in Kafka: markers are written at once."""

    EMPTY = auto()
    ONGOING = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass
class Transaction:
    """The producer of a transactional id, and its current or last transaction."""

    producer_id: int
    epoch: int
    timeout: float
    state: TransactionState = TransactionState.EMPTY
    partitions: set[Place] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    deadline: float | None = None
    #: Producer id and epoch before the last rise of the epoch. A request that still has them is a retry. None where
    #: they are another producer's: that one is fenced.
    before: tuple[int, int] | None = None

    def check(self, producer_id: int, epoch: int) -> None:
        """Raise Refusal where another producer has taken over the transactional id."""
        if producer_id != self.producer_id:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"the producer's id is {self.producer_id}")
        if epoch != self.epoch:
            raise Refusal(ErrorCode.PRODUCER_FENCED, f"epoch {epoch}, the current one is {self.epoch}")


class Transactions:
    """The states of all transactional ids.

    A transaction ends with ``write_marker(place, producer_id, epoch, marker)`` for each of its partitions, and with
    ``end_offsets(group_id, producer_id, committed)`` for each of its groups. ``version`` returns the finalized level of
    the feature transaction.version: from 2 on (KIP-890) the producer of a transaction that the coordinator has aborted
    by itself may go on, below it is fenced.
    """

    def __init__(
        self,
        new_producer_id: Callable[[], int],
        write_marker: Callable[[Place, int, int, ControlType], None],
        end_offsets: Callable[[str, int, bool], None],
        version: Callable[[], int] = lambda: 2,
    ) -> None:
        self._new_producer_id = new_producer_id
        self._write_marker = write_marker
        self._end_offsets = end_offsets
        self._version = version
        self._known: dict[str, Transaction] = {}

    def of(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        """Return the state of a transactional id. Raises Refusal where it belongs to another producer or epoch."""
        known = self._known.get(transactional_id)
        if known is None:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id!r} is unknown")
        known.check(producer_id, epoch)
        return known

    def begin_producer(
        self, transactional_id: str, timeout: float, producer_id: int = -1, epoch: int = -1
    ) -> Transaction:
        """Handle InitProducerId: raise the epoch for a new producer, or for the current one, which names its id.

        Raises Refusal where the named id or epoch is not the current one. If a transaction is still open it is aborted,
        and the Refusal CONCURRENT_TRANSACTIONS makes the producer try again.
        """
        known = self._known.get(transactional_id)
        if known is None:
            known = self._known[transactional_id] = Transaction(self._new_producer_id(), -1, timeout)
        current, named = (known.producer_id, known.epoch), (producer_id, epoch) if producer_id >= 0 else None
        is_of_this_id = producer_id in (-1, known.producer_id) or named == known.before
        if known.state is TransactionState.ONGOING and is_of_this_id:  # as Kafka: of any epoch
            self._abort(known)
            raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before this is being aborted")
        if named is None or named == current or current[1] < 0:
            known.before = named
            self._raise_epoch(known)
        elif named != known.before:  # else it is a retry
            raise Refusal(ErrorCode.PRODUCER_FENCED, f"the producer is {known.producer_id} of epoch {known.epoch}")
        known.timeout, known.state = timeout, TransactionState.EMPTY
        return known

    def _abort(self, known: Transaction) -> None:
        """Abort a transaction that its producer has not ended, and raise the epoch against its late requests."""
        known.before = (known.producer_id, known.epoch) if self._version() >= 2 else None
        known.epoch += 1
        self._end(known, committed=False)

    def _raise_epoch(self, known: Transaction) -> None:
        if known.epoch >= _LAST_EPOCH:
            known.producer_id, known.epoch = self._new_producer_id(), -1
        known.epoch += 1

    def add(
        self, transaction: Transaction, now: float, *, partitions: Iterable[Place] = (), group: str | None = None
    ) -> None:
        """Add partitions, or a group's offsets, to the transaction; the first ones begin it."""
        if transaction.state is not TransactionState.ONGOING:
            transaction.state = TransactionState.ONGOING
            transaction.deadline = now + transaction.timeout
        transaction.partitions.update(partitions)
        if group is not None:
            transaction.groups.add(group)

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, *, committed: bool, raises_epoch: bool = False
    ) -> Transaction:
        """End the transaction. Ending it again in the same way changes nothing.

        With ``raises_epoch`` (KIP-890) each transaction has an epoch of its own, and a transaction that never began can
        be aborted. Raises Refusal where the producer is not the current one, or the state does not allow this end.
        """
        wanted = TransactionState.COMMITTED if committed else TransactionState.ABORTED
        known = self._known.get(transactional_id)
        if known is not None and raises_epoch and known.before == (producer_id, epoch):
            if known.state in (TransactionState.EMPTY, TransactionState.ONGOING):
                raise Refusal(ErrorCode.PRODUCER_FENCED, "the end of the transaction before this one")
            if known.state is not wanted:
                raise Refusal(ErrorCode.INVALID_TXN_STATE, f"the transaction is {known.state.name.lower()}")
            return known
        known = self.of(transactional_id, producer_id, epoch)
        if known.state is not TransactionState.ONGOING and (committed if raises_epoch else known.state is not wanted):
            raise Refusal(ErrorCode.INVALID_TXN_STATE, f"the transaction is {known.state.name.lower()}")
        if known.state is TransactionState.ONGOING or raises_epoch:
            self._end(known, committed=committed, raises_epoch=raises_epoch)
        return known

    def _end(self, known: Transaction, *, committed: bool, raises_epoch: bool = False) -> None:
        """Write the markers. Where the epoch rises they have the new one, which fences batches still under way."""
        marker = ControlType.COMMIT if committed else ControlType.ABORT
        ending = known.producer_id, known.epoch + raises_epoch
        for place in sorted(known.partitions):
            self._write_marker(place, *ending, marker)
        for group in sorted(known.groups):
            self._end_offsets(group, known.producer_id, committed)
        known.partitions.clear()
        known.groups.clear()
        known.deadline = None
        known.state = TransactionState.COMMITTED if committed else TransactionState.ABORTED
        if raises_epoch:
            known.before = (known.producer_id, known.epoch)
            self._raise_epoch(known)

    # Whether a partition or a group is part of a transaction

    def check_partition(
        self, transactional_id: str, header: BatchHeader, place: Place, begins_at: float | None = None
    ) -> None:
        """Raise Refusal where a transactional batch is for a partition that is not in the transaction (KIP-890).

        With ``begins_at`` (time in seconds) the partition is added, and begins the transaction if it is the first.
        """
        known = self._ongoing(header.producer_id)
        if known is None or place not in known.partitions:
            known = self._check_producer(transactional_id, header.producer_id)
        if header.producer_epoch != known.epoch:
            raise Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, f"the current epoch is {known.epoch}")
        if begins_at is not None:
            self.add(known, begins_at, partitions=[place])
        elif known.state is not TransactionState.ONGOING or place not in known.partitions:
            raise Refusal(ErrorCode.INVALID_TXN_STATE, "the partition is not part of a transaction")

    def check_group(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str, begins_at: float | None = None
    ) -> None:
        """Raise Refusal where a group's offsets are not in the transaction; with ``begins_at`` they are added."""
        known = self._ongoing(producer_id)
        if known is None or group_id not in known.groups:
            known = self._check_producer(transactional_id, producer_id)
        if epoch != known.epoch:
            raise Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, f"the current epoch is {known.epoch}")
        if begins_at is not None:
            self.add(known, begins_at, group=group_id)
        elif known.state is not TransactionState.ONGOING or group_id not in known.groups:
            raise Refusal(ErrorCode.INVALID_TXN_STATE, "the group is not part of a transaction")

    def _ongoing(self, producer_id: int) -> Transaction | None:
        """Return the open transaction of a producer id, whatever its transactional id."""
        ongoing = (known for known in self._known.values() if known.state is TransactionState.ONGOING)
        return next((known for known in ongoing if known.producer_id == producer_id), None)

    def _check_producer(self, transactional_id: str, producer_id: int) -> Transaction:
        known = self._known.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id!r} is not this producer's")
        return known

    # Timeouts

    @property
    def deadline(self) -> float | None:
        """When the first open transaction times out; None if none is open."""
        return min((known.deadline for known in self._known.values() if known.deadline is not None), default=None)

    def tick(self, now: float) -> None:
        """Abort the transactions that have timed out."""
        for known in self._known.values():
            if known.deadline is not None and known.deadline <= now:
                self._abort(known)
