"""OpenTransaction.next_request: how much a request takes, and that any thread may ask for it."""

from __future__ import annotations

from aiokc.core.produce.identity import ProducerIdentity
from aiokc.core.transactions.events import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    OffsetsAbandoned,
    OffsetsEnded,
    SendOffsets,
    TxnOffsetCommit,
)
from aiokc.core.transactions.open_transaction import OpenTransaction
from aiokc.error_codes import ErrorCode
from aiokc.types import OffsetAndMetadata, TopicPartition

from .one_producer import GROUP, OFFSETS, T0, Producer, kinds

IDENTITY = ProducerIdentity(1, 0)
MANY = {TopicPartition("t", number): OffsetAndMetadata(number) for number in range(2_001)}


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


def test_many_partitions_are_added_a_thousand_at_a_time() -> None:
    transaction = OpenTransaction(uses_v2=False)
    for partition in MANY:
        transaction.append(partition)
    asked: list[tuple[TopicPartition, ...]] = []
    while (request := transaction.next_request(IDENTITY)) is not None:
        assert isinstance(request, AddPartitionsToTxn)
        assert not any(map(transaction.is_added, request.partitions))
        transaction.added(request)
        assert all(map(transaction.is_added, request.partitions))
        asked.append(request.partitions)
    assert list(map(len, asked)) == [1_000, 1_000, 1]
    assert [partition for some in asked for partition in some] == list(MANY)


def test_many_offsets_are_stored_a_thousand_at_a_time_and_the_commit_waits_for_the_last() -> None:
    producer = Producer(2).begun()
    producer.feed(SendOffsets(1, MANY, GROUP))
    producer.stores(2)
    producer.commits()
    assert kinds(producer.answer()) == ["TxnOffsetCommit"]
    producer.answer(ErrorCode.NOT_COORDINATOR)
    assert kinds(producer.waits()) == ["TxnOffsetCommit"]  # the second one again
    assert kinds(producer.answer()) == ["TxnOffsetCommit"]
    assert kinds(producer.answer()) == ["OffsetsEnded", "TxnOffsetCommit"]
    assert kinds(producer.answer()) == ["OffsetsEnded", "EndTxn"]
    first, again, second, third, other = (sent.offsets for sent in producer.of(TxnOffsetCommit))
    assert (len(first), again, other) == (1_000, second, OFFSETS)
    assert {**first, **second, **third} == MANY
    assert [ended.number for ended in producer.of(OffsetsEnded)] == [1, 2]


def test_a_refusal_of_some_offsets_of_a_call_fails_the_transaction_once() -> None:
    producer = Producer(2).begun()
    producer.feed(SendOffsets(1, MANY, GROUP))
    producer.answer()
    assert kinds(producer.answer(ErrorCode.ILLEGAL_GENERATION)) == ["OffsetsEnded", "Settle"]


def test_a_call_that_is_given_up_sends_none_of_its_other_offsets() -> None:
    producer = Producer(2).begun()
    producer.feed(SendOffsets(1, MANY, GROUP))
    assert kinds(producer.feed(OffsetsAbandoned(1, TimeoutError()))) == ["Settle"]
    assert producer.answer() == []
    assert len(producer.of(TxnOffsetCommit)) == 1
