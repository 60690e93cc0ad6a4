"""OpenTransaction.next_request, which health() calls from any thread, while the loop's takes out what was answered."""

from __future__ import annotations

from aiokc.core.produce.identity import ProducerIdentity
from aiokc.core.transactions.events import AddOffsetsToTxn, AddPartitionsToTxn, SendOffsets
from aiokc.core.transactions.open_transaction import OpenTransaction
from aiokc.types import TopicPartition

from .one_producer import GROUP, OFFSETS, T0

IDENTITY = ProducerIdentity(1, 0)


class _Partitions(dict[TopicPartition, None]):
    """Emptied just after another thread has found that there is something in it."""

    def __bool__(self) -> bool:
        found = len(self) > 0
        self.clear()
        return found


class _Calls(list[SendOffsets]):
    """As _Partitions."""

    def __bool__(self) -> bool:
        found = len(self) > 0
        self.clear()
        return found


def test_partitions_that_are_added_meanwhile_were_still_to_be_added() -> None:
    transaction = OpenTransaction(uses_v2=False)
    transaction._new = _Partitions({T0: None})
    assert transaction.next_request(IDENTITY) == AddPartitionsToTxn(IDENTITY, (T0,))


def test_offsets_that_are_stored_meanwhile_were_still_to_be_stored() -> None:
    transaction = OpenTransaction(uses_v2=False)
    transaction._offsets = _Calls([SendOffsets(1, OFFSETS, GROUP)])
    assert transaction.next_request(IDENTITY) == AddOffsetsToTxn(IDENTITY, "g")
