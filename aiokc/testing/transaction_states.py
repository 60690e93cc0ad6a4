"""The transaction coordinator (KIP-98, KIP-360): one state per transactional id, markers when a transaction ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeAlias

from ..error_codes import ErrorCode
from ..records import BatchHeader, ControlType
from .refusal import Refusal

_LAST_EPOCH: Final = 0x7FFF - 1

#: A topic and the number of a partition.
Place: TypeAlias = tuple[str, int]


class TransactionState(Enum):
    """Where a transactional id stands. Nothing is ever half done here: markers are written at once."""

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

    def check(self, producer_id: int, epoch: int) -> None:
        """Raise Refusal where another producer took over."""
        if producer_id != self.producer_id:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"the producer's id is {self.producer_id}")
        if epoch != self.epoch:
            raise Refusal(ErrorCode.PRODUCER_FENCED, f"epoch {epoch}, the current one is {self.epoch}")


class Transactions:
    """All transactional ids. ``write_marker(place, producer_id, epoch, marker)`` ends a partition's part of one,
    ``end_offsets(group_id, producer_id, committed)`` a group's.
    """

    def __init__(
        self,
        new_producer_id: Callable[[], int],
        write_marker: Callable[[Place, int, int, ControlType], None],
        end_offsets: Callable[[str, int, bool], None],
    ) -> None:
        self._new_producer_id = new_producer_id
        self._write_marker = write_marker
        self._end_offsets = end_offsets
        self._known: dict[str, Transaction] = {}

    def of(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        """Return the state of a producer's transactional id. Raises Refusal where it is not this producer's."""
        known = self._known.get(transactional_id)
        if known is None:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id!r} is unknown")
        known.check(producer_id, epoch)
        return known

    def begin_producer(
        self, transactional_id: str, timeout: float, producer_id: int = -1, epoch: int = -1
    ) -> Transaction:
        """Give the transactional id to a new producer, or a new epoch to the one that says who it is. Raises Refusal.

        A transaction that the one before left open is aborted, and CONCURRENT_TRANSACTIONS says to ask again.
        """
        known = self._known.get(transactional_id)
        if known is None:
            known = self._known[transactional_id] = Transaction(self._new_producer_id(), -1, timeout)
        elif producer_id >= 0 and (producer_id, epoch) != (known.producer_id, known.epoch):
            raise Refusal(ErrorCode.PRODUCER_FENCED, f"the producer is {known.producer_id} of epoch {known.epoch}")
        if known.state is TransactionState.ONGOING:
            known.epoch += 1
            self._end(known, committed=False)
            raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before this is being aborted")
        if known.epoch >= _LAST_EPOCH:
            known.producer_id, known.epoch = self._new_producer_id(), -1
        known.epoch += 1
        known.timeout, known.state = timeout, TransactionState.EMPTY
        return known

    def add(
        self, transaction: Transaction, now: float, *, partitions: Iterable[Place] = (), group: str | None = None
    ) -> None:
        """Let partitions, or a group's offsets, be part of the transaction; the first ones begin it."""
        if transaction.state is not TransactionState.ONGOING:
            transaction.state = TransactionState.ONGOING
            transaction.deadline = now + transaction.timeout
        transaction.partitions.update(partitions)
        if group is not None:
            transaction.groups.add(group)

    def end(self, transaction: Transaction, *, committed: bool) -> None:
        """End the transaction; to end it once more in the same way changes nothing. Raises Refusal."""
        if transaction.state is TransactionState.ONGOING:
            self._end(transaction, committed=committed)
            return
        wanted = TransactionState.COMMITTED if committed else TransactionState.ABORTED
        if transaction.state is not wanted:
            raise Refusal(ErrorCode.INVALID_TXN_STATE, f"the transaction is {transaction.state.name.lower()}")

    def _end(self, transaction: Transaction, *, committed: bool) -> None:
        marker = ControlType.COMMIT if committed else ControlType.ABORT
        for place in sorted(transaction.partitions):
            self._write_marker(place, transaction.producer_id, transaction.epoch, marker)
        for group in sorted(transaction.groups):
            self._end_offsets(group, transaction.producer_id, committed)
        transaction.partitions.clear()
        transaction.groups.clear()
        transaction.deadline = None
        transaction.state = TransactionState.COMMITTED if committed else TransactionState.ABORTED

    def check_partition(self, transactional_id: str | None, header: BatchHeader, place: Place) -> None:
        """Raise Refusal where a transactional batch is for a partition that the transaction does not have (KIP-890)."""
        known = self._known.get(transactional_id or "")
        if known is None or known.producer_id != header.producer_id:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id!r} is not this producer's")
        if header.producer_epoch < known.epoch:
            raise Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, f"the current epoch is {known.epoch}")
        if known.state is not TransactionState.ONGOING or place not in known.partitions:
            raise Refusal(ErrorCode.INVALID_TXN_STATE, "the partition is not part of a transaction")

    # Timeouts

    @property
    def deadline(self) -> float | None:
        """When ``tick`` has something to do."""
        return min((known.deadline for known in self._known.values() if known.deadline is not None), default=None)

    def tick(self, now: float) -> None:
        """Abort what took too long, and fence its producer."""
        for known in self._known.values():
            if known.deadline is not None and known.deadline <= now:
                known.epoch += 1
                self._end(known, committed=False)
