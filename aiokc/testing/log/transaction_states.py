"""The transaction coordinator (KIP-98, KIP-360, KIP-890): the state of each transactional id, fencing, markers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeAlias

from ...error_codes import ErrorCode
from ...records import ControlType
from ..refusal import Refusal

_LAST_EPOCH: Final = 0x7FFF - 1

#: A topic name and a partition number.
Place: TypeAlias = tuple[str, int]


class TransactionState(Enum):
    """The state of a transactional id. While it is prepared, its end is decided, and the markers are not written."""

    EMPTY = auto()
    ONGOING = auto()
    PREPARE_COMMIT = auto()
    PREPARE_ABORT = auto()
    COMPLETE_COMMIT = auto()
    COMPLETE_ABORT = auto()

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def _complete(*, committed: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT


@dataclass
class Transaction:
    """The producer of a transactional id, and its current or last transaction."""

    producer_id: int
    epoch: int
    timeout: float
    state: TransactionState = TransactionState.EMPTY
    partitions: set[Place] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    #: When an open transaction times out, or the markers of a prepared one are written.
    deadline: float | None = None
    #: Producer id and epoch that the batches of the transaction have, and those of its markers.
    began: tuple[int, int] = (-1, -1)
    ending: tuple[int, int] = (-1, -1)
    #: Producer id and epoch before the last rise of the epoch. A request that still has them is a retry. None where
    #: they are another producer's: that one is fenced.
    before: tuple[int, int] | None = None

    def check(self, producer_id: int, epoch: int) -> None:
        """Raise Refusal where another producer has taken over the transactional id."""
        if producer_id != self.producer_id:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"the producer's id is {self.producer_id}")
        if epoch != self.epoch:
            raise Refusal(ErrorCode.PRODUCER_FENCED, f"epoch {epoch}, the current one is {self.epoch}")

    def check_complete(self) -> None:
        """Raise Refusal, after which producers ask again, while the markers of the last transaction are missing."""
        if self.state.is_prepared:
            raise Refusal(
                ErrorCode.CONCURRENT_TRANSACTIONS, "the markers of the transaction before are not written yet"
            )


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
        self._marker_delay = 0.0
        self._new_producer_id = new_producer_id
        self._write_marker = write_marker
        self._end_offsets = end_offsets
        self._version = version
        self._known: dict[str, Transaction] = {}

    def delay_markers(self, seconds: float, now: float) -> None:
        """Write markers ``seconds`` after the end of their transaction was decided; of those that wait, from now on."""
        self._marker_delay = seconds
        for known in self._known.values():
            if known.state.is_prepared and known.deadline is not None:
                known.deadline = min(known.deadline, now + seconds)

    def of(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        """Return the state of a transactional id. Raises Refusal where it belongs to another producer or epoch.

        While the markers of its last transaction are missing, whoever asks is to ask again.
        """
        known = self._get(transactional_id)
        known.check_complete()
        known.check(producer_id, epoch)
        return known

    def _get(self, transactional_id: str) -> Transaction:
        known = self._known.get(transactional_id)
        if known is None:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id!r} is unknown")
        return known

    def begin_producer(
        self, transactional_id: str, timeout: float, producer_id: int = -1, epoch: int = -1, *, now: float
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
        known.check_complete()
        if known.state is TransactionState.ONGOING and is_of_this_id:  # as Kafka: of any epoch
            self._abort(known, now)
            raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before this is being aborted")
        if named is None or named == current or current[1] < 0:
            known.before = named
            self._raise_epoch(known)
        elif named != known.before:  # else it is a retry
            raise Refusal(ErrorCode.PRODUCER_FENCED, f"the producer is {known.producer_id} of epoch {known.epoch}")
        known.timeout, known.state = timeout, TransactionState.EMPTY
        return known

    def _abort(self, known: Transaction, now: float) -> None:
        """Abort a transaction that its producer has not ended, and raise the epoch against its late requests."""
        known.before = (known.producer_id, known.epoch) if self._version() >= 2 else None
        known.epoch += 1
        self._prepare(known, now, committed=False)

    def _raise_epoch(self, known: Transaction) -> None:
        if known.epoch >= _LAST_EPOCH:
            known.producer_id, known.epoch = self._new_producer_id(), -1
        known.epoch += 1

    def add(
        self, transaction: Transaction, now: float, *, partitions: Iterable[Place] = (), group: str | None = None
    ) -> None:
        """Add partitions, or a group's offsets, to the transaction; the first ones begin it.

        Raises Refusal (CONCURRENT_TRANSACTIONS) while the one before is not complete.
        """
        transaction.check_complete()
        if transaction.state is not TransactionState.ONGOING:
            transaction.state = TransactionState.ONGOING
            transaction.began = transaction.producer_id, transaction.epoch
            transaction.deadline = now + transaction.timeout
        transaction.partitions.update(partitions)
        if group is not None:
            transaction.groups.add(group)

    # The end of a transaction

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *,
        committed: bool,
        raises_epoch: bool = False,
        now: float,
    ) -> Transaction:
        """End the transaction. Ending it again in the same way changes nothing.

        With ``raises_epoch`` (KIP-890) each transaction has an epoch of its own, and a transaction that never began can
        be aborted. Raises Refusal where the producer is not the current one, or the state does not allow this end.
        """
        known = self._get(transactional_id)
        if raises_epoch:
            known.check_complete()
        is_retry = raises_epoch and known.before == (producer_id, epoch)
        if not is_retry:
            known.check(producer_id, epoch)
        known.check_complete()
        is_due = known.state is TransactionState.ONGOING
        if is_retry and (is_due or known.state is TransactionState.EMPTY):
            raise Refusal(ErrorCode.PRODUCER_FENCED, "the end of the transaction before this one")
        if is_due or (raises_epoch and not is_retry and not committed):  # an abort of nothing raises the epoch, too
            self._prepare(known, now, committed=committed, raises_epoch=raises_epoch)
        elif known.state is not _complete(committed=committed) or is_retry != raises_epoch:
            raise Refusal(ErrorCode.INVALID_TXN_STATE, f"the transaction is {known.state.name.lower()}")
        return known

    def _prepare(self, known: Transaction, now: float, *, committed: bool, raises_epoch: bool = False) -> None:
        """Decide the end. Where the epoch rises the markers have the new one, which fences batches still under way."""
        known.state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        known.ending = known.producer_id, known.epoch + raises_epoch
        known.deadline = now + self._marker_delay
        if raises_epoch:
            known.before = (known.producer_id, known.epoch)
            self._raise_epoch(known)
        if self._marker_delay == 0:
            self._write_markers(known)

    def _write_markers(self, known: Transaction) -> None:
        """Write the markers: the transaction is complete, and is so where an error ends this, too."""
        committed = known.state is TransactionState.PREPARE_COMMIT
        marker = ControlType.COMMIT if committed else ControlType.ABORT
        places, groups = sorted(known.partitions), sorted(known.groups)
        known.partitions.clear()
        known.groups.clear()
        known.deadline = None
        known.state = _complete(committed=committed)
        for place in places:
            self._write_marker(place, *known.ending, marker)
        for group in groups:
            self._end_offsets(group, known.ending[0], committed)

    # Whether a partition or a group is part of a transaction

    def check_partition(
        self, transactional_id: str, producer: tuple[int, int], place: Place, begins_at: float | None = None
    ) -> None:
        """Raise Refusal where a transactional batch is for a partition that is not in the transaction (KIP-890).

        With ``begins_at`` (time in seconds) the partition is added, and begins the transaction if it is the first.
        """
        known = self._of_batch(transactional_id, producer, begins=begins_at is not None)
        if begins_at is not None:
            self.add(known, begins_at, partitions=[place])
        elif known.state is not TransactionState.ONGOING or place not in known.partitions:
            raise Refusal(ErrorCode.INVALID_TXN_STATE, "the partition is not part of a transaction")

    def check_group(
        self, transactional_id: str, producer: tuple[int, int], group_id: str, begins_at: float | None = None
    ) -> None:
        """Raise Refusal where a group's offsets are not in the transaction; with ``begins_at`` they are added."""
        if any(known.began == producer and group_id in known.groups for known in self._known.values()):
            return  # until the marker is there, the group asks nobody
        known = self._of_batch(transactional_id, producer, begins=begins_at is not None)
        if begins_at is not None:
            self.add(known, begins_at, group=group_id)
        elif known.state is not TransactionState.ONGOING or group_id not in known.groups:
            raise Refusal(ErrorCode.INVALID_TXN_STATE, "the group is not part of a transaction")

    def _of_batch(self, transactional_id: str, producer: tuple[int, int], *, begins: bool) -> Transaction:
        """Return the state of a batch's transactional id, as a broker asks the coordinator for it."""
        if begins and self._version() == 0:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, "with transaction.version 0 no batch begins a transaction")
        known = self._known.get(transactional_id)
        if known is not None and begins:
            known.check_complete()
        if known is None or known.producer_id != producer[0]:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id!r} is not this producer's")
        if producer[1] != known.epoch:
            raise Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, f"the current epoch is {known.epoch}")
        known.check_complete()
        return known

    # Timeouts

    @property
    def deadline(self) -> float | None:
        """When the first open transaction times out, or markers are due; None where neither is."""
        return min((known.deadline for known in self._known.values() if known.deadline is not None), default=None)

    def tick(self, now: float) -> None:
        """Abort the transactions that have timed out, and write the markers that are due."""
        for known in self._known.values():
            if known.deadline is None or known.deadline > now:
                continue
            if known.state is TransactionState.ONGOING:
                self._abort(known, now)
            else:
                self._write_markers(known)
