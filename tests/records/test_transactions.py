"""read_committed: which batches of aborted transactions it leaves out."""

from __future__ import annotations

import pytest

from aiokc.errors import CorruptRecord
from aiokc.records import (
    AbortedTransactions,
    Codec,
    ControlType,
    NewRecord,
    control_type,
    encode_batch,
    encode_control_batch,
    split_batches,
)

from .batches import only_batch

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
A, B, PLAIN = 1, 2, -1


class Log:
    """A log of two records a batch; ``committed`` returns the base offsets that the filter lets through."""

    def __init__(self) -> None:
        self.data = b""
        self.end = 0

    def write(self, producer_id: int) -> None:
        self.data += encode_batch(
            [NewRecord(b"x"), NewRecord(b"y")],
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=producer_id != PLAIN,
        )
        self.end += 2

    def mark(self, producer_id: int, marker: ControlType) -> None:
        self.data += encode_control_batch(marker, producer_id=producer_id, producer_epoch=0, base_offset=self.end)
        self.end += 1

    def committed(self, *aborted: tuple[int, int], fetch_offset: int = 0) -> list[int]:
        transactions = AbortedTransactions(aborted)
        batches = list(split_batches(memoryview(self.data)))
        fetched = [(header, view) for header, view in batches if header.next_offset > fetch_offset]
        return [header.base_offset for header, view in fetched if not transactions.skips(header, view)]


def test_nothing_aborted() -> None:
    log = Log()
    log.write(PLAIN)  # 0
    log.write(A)  # 2
    log.mark(A, COMMIT)
    assert log.committed() == [0, 2]


def test_an_aborted_transaction_beside_committed_ones() -> None:
    log = Log()
    log.write(A)  # 0
    log.write(B)  # 2
    log.write(PLAIN)  # 4
    log.write(A)  # 6
    log.mark(A, ABORT)  # 8
    log.write(B)  # 9
    log.mark(B, COMMIT)
    assert log.committed((A, 0)) == [2, 4, 9]


def test_the_same_producer_commits_before_and_after() -> None:
    log = Log()
    log.write(A)  # 0
    log.mark(A, COMMIT)  # 2
    log.write(A)  # 3
    log.mark(A, ABORT)  # 5
    log.write(A)  # 6
    log.mark(A, COMMIT)
    assert log.committed((A, 3)) == [0, 6]


def test_two_aborts_of_one_producer_and_an_unsorted_list() -> None:
    log = Log()
    log.write(B)  # 0
    log.write(A)  # 2
    log.mark(A, ABORT)  # 4
    log.write(A)  # 5
    log.mark(A, COMMIT)  # 7
    log.write(A)  # 8
    log.mark(A, ABORT)  # 10
    log.mark(B, ABORT)  # 11
    log.write(B)  # 12
    assert log.committed((A, 8), (B, 0), (A, 2)) == [5, 12]


def test_a_fetch_from_the_middle_of_an_aborted_transaction() -> None:
    """The broker's list names where the transaction began, which may be before the first record that was fetched."""
    log = Log()
    log.write(A)  # 0
    log.write(A)  # 2
    log.mark(A, ABORT)  # 4
    log.write(A)  # 5
    assert log.committed((A, 0), fetch_offset=2) == [5]


def test_a_transaction_that_begins_inside_a_batch() -> None:
    """Compaction may have removed the first records of the batch, and its base offset stays."""
    log = Log()
    log.write(A)  # 0
    log.mark(A, ABORT)
    assert log.committed((A, 1)) == []


def test_an_abort_marker_twice_or_from_nowhere() -> None:
    log = Log()
    log.mark(B, ABORT)  # 0
    log.write(A)  # 1
    log.mark(A, ABORT)  # 3
    log.mark(A, ABORT)  # 4
    log.write(A)  # 5
    assert log.committed((A, 1)) == [5]


def test_a_commit_marker_does_not_end_an_aborted_transaction() -> None:
    log = Log()
    log.write(A)  # 0
    log.mark(A, COMMIT)
    log.write(A)  # 3
    assert log.committed((A, 0)) == []


def test_records_outside_of_transactions_are_never_skipped() -> None:
    """An idempotent producer without transactions has an id too."""
    data = encode_batch([NewRecord(b"x")], producer_id=A, producer_epoch=0)
    assert not AbortedTransactions([(A, 0)]).skips(*only_batch(data))


def test_a_marker_that_compaction_emptied_marks_nothing() -> None:
    empty = encode_batch([], producer_id=A, transactional=True, control=True, last_offset_delta=0)
    transactions = AbortedTransactions([(A, 0)])
    assert control_type(*only_batch(empty)) is None
    assert transactions.skips(*only_batch(empty))
    assert transactions.skips(*only_batch(encode_batch([NewRecord(b"x")], producer_id=A, transactional=True)))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("number", [0, 1, 2, 99])
def test_the_type_of_a_control_batch(number: int, codec: Codec) -> None:
    key = bytes([0, 0, 0, number])
    data = encode_batch([NewRecord(b"", key)], control=True, codec=codec)
    assert control_type(*only_batch(data)) == number


def test_later_versions_of_a_marker_may_be_longer() -> None:
    data = encode_batch([NewRecord(b"longer", bytes([0, 1, 0, 0, 7, 7]))], control=True)
    assert control_type(*only_batch(data)) == ABORT


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_a_key_that_is_no_marker(key: bytes | None) -> None:
    data = encode_batch([NewRecord(b"", key)], base_offset=8, control=True)
    with pytest.raises(CorruptRecord) as caught:
        control_type(*only_batch(data))
    assert caught.value.offset == 8


def test_the_crc_of_what_is_skipped() -> None:
    """One flipped bit makes a commit marker an abort marker: without the check, committed records would vanish."""
    marker = bytearray(encode_control_batch(COMMIT, producer_id=A, producer_epoch=0))
    marker[69] ^= 1
    assert control_type(*only_batch(marker)) == ABORT
    with pytest.raises(CorruptRecord, match="CRC"):
        AbortedTransactions([]).skips(*only_batch(marker))
    assert AbortedTransactions([], check_crcs=False).skips(*only_batch(marker))


def test_an_aborted_batch_with_a_wrong_crc() -> None:
    data = bytearray(encode_batch([NewRecord(b"x")], producer_id=A, transactional=True))
    data[-1] ^= 1
    with pytest.raises(CorruptRecord, match="CRC"):
        AbortedTransactions([(A, 0)]).skips(*only_batch(data))
