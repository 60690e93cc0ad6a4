"""Decides which batches read_committed skips: those of aborted transactions, and control batches (KIP-98).

A broker sends aborted records like any others, together with a list of the transactions that were aborted in the range
that it sends: the producer id and the first offset of each. A control batch with a marker ends each transaction in the
log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from operator import itemgetter
from struct import Struct
from typing import Final

from ..errors import CorruptRecord
from .batch import BatchHeader
from .decode import check_crc, new_reader, read_payload


class ControlType(IntEnum):
    """The types of the control records that end a transaction."""

    ABORT = 0
    COMMIT = 1


#: The key of a control record: version, type. A later version may have more fields behind these.
CONTROL_KEY: Final = Struct(">hh")

_CONTROL_LIMIT: Final = 64 << 10  # decompressed bytes: a marker's batch has 78 bytes, and no broker compresses it


class AbortedTransactions:
    """The aborted transactions of one partition of a Fetch response: (producer_id, first_offset), in any order.

    The caller calls ``skips`` once for every batch, in the order of the log.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]], *, check_crcs: bool = True) -> None:
        self._pending = deque(sorted(transactions, key=itemgetter(1)))
        self._aborting: set[int] = set()
        self._check_crcs = check_crcs

    def skips(self, header: BatchHeader, view: memoryview) -> bool:
        """Return whether to skip the batch: it belongs to an aborted transaction, or is a control batch.

        A skipped batch is not given to ``open_batch``, so its CRC is checked here: a marker that is misread would hide
        committed records. Raises RecordError without topic and partition.
        """
        while self._pending and self._pending[0][1] <= header.last_offset:
            self._aborting.add(self._pending.popleft()[0])
        if not header.is_control and not (header.is_transactional and header.producer_id in self._aborting):
            return False
        if self._check_crcs:
            check_crc(header, view)
        if header.is_control and control_type(header, view) == ControlType.ABORT:
            self._aborting.discard(header.producer_id)
        return True


def control_type(header: BatchHeader, view: memoryview) -> int | None:
    """Return the ControlType of a control batch (a plain int if it is another type); None if compaction emptied it.

    Raises RecordError.
    """
    payload = read_payload(header, view, _CONTROL_LIMIT)
    records = new_reader(header, payload, topic="", partition=-1).take(1)
    if not records:
        return None
    key = records[0].key
    if key is None or len(key) < CONTROL_KEY.size:
        raise CorruptRecord(f"{key!r} is no key of a control record", offset=header.base_offset)
    version, number = CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecord(f"{version} is no version of a control record", offset=header.base_offset)
    return int(number)
