"""The transaction coordinator by itself: effects of time, and of producers of old releases."""

from __future__ import annotations

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.records import ControlType
from aiokc.testing.log.transaction_states import Place, Transactions, TransactionState
from aiokc.testing.refusal import Refusal


class Ends:
    """The transactions that the coordinator ended."""

    def __init__(self) -> None:
        self.markers: list[tuple[Place, int, int, ControlType]] = []
        self.offsets: list[tuple[str, int, bool]] = []

    def transactions(self, version: int = 2) -> Transactions:
        ids = iter(range(100, 200))
        return Transactions(
            lambda: next(ids),
            lambda *marker: self.markers.append(marker),
            lambda *offsets: self.offsets.append(offsets),
            lambda: version,
        )


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    ends = Ends()
    transactions = ends.transactions()
    producer = transactions.begin_producer("app", timeout=10.0, now=0.0)
    transactions.add(producer, 5.0, partitions=[("events", 1)], group="readers")
    transactions.tick(14.9)
    assert transactions.deadline == 15.0
    assert ends.markers == []
    transactions.tick(15.0)
    assert producer.state is TransactionState.COMPLETE_ABORT
    assert ends.markers == [(("events", 1), 100, 1, ControlType.ABORT)]
    assert ends.offsets == [("readers", 100, False)]
    assert producer.deadline is None
    with pytest.raises(Refusal) as refused:
        transactions.of("app", 100, 0)
    assert refused.value.code == ErrorCode.PRODUCER_FENCED


def timed_out(version: int) -> Transactions:
    """Return the coordinator after it has aborted the transaction of the producer 100 of epoch 0."""
    transactions = Ends().transactions(version)
    producer = transactions.begin_producer("app", timeout=10.0, now=0.0)
    transactions.add(producer, 0.0, partitions=[("events", 1)])
    transactions.tick(10.0)
    return transactions


def test_a_producer_whose_transaction_timed_out_aborts_it_and_goes_on() -> None:
    """KIP-890. Its commit is refused, and does no harm."""
    transactions = timed_out(version=2)
    with pytest.raises(Refusal) as refused:
        transactions.end("app", 100, 0, committed=True, raises_epoch=True, now=20.0)
    assert refused.value.code == ErrorCode.INVALID_TXN_STATE
    assert transactions.end("app", 100, 0, committed=False, raises_epoch=True, now=20.0).epoch == 1
    assert transactions.begin_producer("app", 10.0, producer_id=100, epoch=0, now=20.0).epoch == 1


def test_a_producer_whose_transaction_timed_out_is_fenced_before_kip_890() -> None:
    transactions = timed_out(version=0)
    with pytest.raises(Refusal) as refused:
        transactions.end("app", 100, 0, committed=False, now=20.0)
    assert refused.value.code == ErrorCode.PRODUCER_FENCED
    with pytest.raises(Refusal) as refused:
        transactions.begin_producer("app", 10.0, producer_id=100, epoch=0, now=20.0)
    assert refused.value.code == ErrorCode.PRODUCER_FENCED


def test_a_new_producer_aborts_what_the_old_one_left() -> None:
    ends = Ends()
    transactions = ends.transactions()
    old = transactions.begin_producer("app", timeout=10.0, now=0.0)
    transactions.add(old, 0.0, partitions=[("events", 0)])
    with pytest.raises(Refusal) as refused:
        transactions.begin_producer("app", timeout=10.0, now=0.0)
    assert refused.value.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert ends.markers == [(("events", 0), 100, 1, ControlType.ABORT)]
    new = transactions.begin_producer("app", timeout=10.0, now=0.0)
    assert (new.producer_id, new.epoch) == (100, 2)


def test_a_producer_whose_epochs_are_used_up_gets_another_id() -> None:
    transactions = Ends().transactions()
    producer = transactions.begin_producer("app", timeout=10.0, now=0.0)
    producer.epoch = 0x7FFE
    again = transactions.begin_producer("app", timeout=10.0, now=0.0)
    assert (again.producer_id, again.epoch) == (101, 0)


def prepared(*, raises_epoch: bool) -> tuple[Ends, Transactions]:
    """Return a coordinator that has committed the transaction of producer 100, and has not written its marker."""
    ends = Ends()
    transactions = ends.transactions()
    transactions.delay_markers(5.0, 0.0)
    producer = transactions.begin_producer("app", timeout=10.0, now=0.0)
    transactions.add(producer, 0.0, partitions=[("events", 1)], group="readers")
    transactions.end("app", 100, 0, committed=True, raises_epoch=raises_epoch, now=2.0)
    return ends, transactions


@pytest.mark.parametrize("raises_epoch", [False, True])
def test_markers_come_when_they_are_due(raises_epoch: bool) -> None:
    ends, transactions = prepared(raises_epoch=raises_epoch)
    assert (transactions.deadline, ends.markers) == (7.0, [])
    with pytest.raises(Refusal) as refused:
        transactions.begin_producer("app", 10.0, producer_id=100, epoch=int(raises_epoch), now=3.0)
    assert refused.value.code == ErrorCode.CONCURRENT_TRANSACTIONS
    transactions.tick(6.9)
    assert ends.markers == []
    transactions.tick(7.0)
    assert ends.markers == [(("events", 1), 100, int(raises_epoch), ControlType.COMMIT)]
    assert ends.offsets == [("readers", 100, True)]
    assert transactions.deadline is None
    assert transactions.begin_producer("app", 10.0, now=8.0).epoch == 1 + raises_epoch


def test_less_delay_counts_for_markers_that_wait() -> None:
    ends, transactions = prepared(raises_epoch=True)
    transactions.delay_markers(1.0, 3.0)
    assert transactions.deadline == 4.0
    transactions.delay_markers(9.0, 3.5)
    assert transactions.deadline == 4.0
    transactions.tick(4.0)
    assert len(ends.markers) == 1


def test_the_last_epoch_ends_with_its_own_markers_and_the_next_one_has_another_id() -> None:
    ends = Ends()
    transactions = ends.transactions()
    producer = transactions.begin_producer("app", timeout=10.0, now=0.0)
    producer.epoch = 0x7FFE
    transactions.add(producer, 0.0, partitions=[("events", 1)])
    for _ in range(2):  # the second time it is a retry
        ended = transactions.end("app", 100, 0x7FFE, committed=True, raises_epoch=True, now=1.0)
        assert (ended.producer_id, ended.epoch) == (101, 0)
    assert ends.markers == [(("events", 1), 100, 0x7FFF, ControlType.COMMIT)]
