"""A partition's log: what stays after it was trimmed or truncated, and what it then knows of epochs and producers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.error_codes import ErrorCode
from aiokc.records import BatchHeader, ControlType, NewRecord, encode_batch, encode_control_batch, split_batches
from aiokc.testing.log.leader_epochs import EpochEnd, LeaderEpochs
from aiokc.testing.log.producer_states import Gaps
from aiokc.testing.log.topic_log import AbortedRange, TopicLog
from aiokc.testing.refusal import Refusal


def _batch(*values: bytes, **options: Any) -> bytes:
    return encode_batch([NewRecord(value, timestamp=1) for value in values], **options)


def _header(batch: bytes) -> BatchHeader:
    ((header, _),) = split_batches(memoryview(batch))
    return header


def _offsets(log: TopicLog) -> list[int]:
    records = log.read(log.start_offset, log.end_offset, 1 << 20, at_least_one=True)
    return [header.base_offset for header, _ in split_batches(memoryview(records))]


def _with_transactions() -> TopicLog:
    """0 committed by 7, 2 aborted by 8, 4 open of 7."""
    log = TopicLog()
    for producer, marker in ((7, ControlType.COMMIT), (8, ControlType.ABORT), (7, None)):
        log.append(_batch(b"x", producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True), 0)
        if marker is not None:
            log.append(encode_control_batch(marker, producer_id=producer, producer_epoch=0), 0)
    return log


def test_a_log_with_transactions() -> None:
    log = _with_transactions()
    assert (log.end_offset, log.last_stable_offset) == (5, 4)
    assert log.aborted_between(0, 5) == [AbortedRange(8, 2, 3)]
    assert log.aborted_between(0, 2) == log.aborted_between(4, 5) == []
    assert log.aborted_between(3, 4) == [AbortedRange(8, 2, 3)]


def test_truncation_forgets_the_ends_of_transactions() -> None:
    log = _with_transactions()
    log.truncate(3)
    assert (log.end_offset, log.last_stable_offset, _offsets(log)) == (3, 2, [0, 1, 2])
    assert log.aborted_between(0, 9) == []
    assert log.has_open_transaction(8)
    assert not log.has_open_transaction(7)


def test_truncation_loses_whole_batches() -> None:
    log = TopicLog()
    log.append(_batch(b"a", b"b"), 0)
    log.append(_batch(b"c", b"d"), 0)
    log.truncate(3)
    assert (log.end_offset, _offsets(log)) == (2, [0])
    log.truncate(0)
    assert (log.end_offset, _offsets(log)) == (0, [])


def test_a_trimmed_log_keeps_the_batch_that_it_begins_in() -> None:
    log = TopicLog()
    log.append(_batch(b"a", b"b"), 0)
    log.append(_batch(b"c", b"d"), 0)
    log.trim(3)
    assert (log.start_offset, log.end_offset, _offsets(log)) == (3, 4, [2])
    assert log.first_at_or_after(0).offset == 3
    log.truncate(0)
    assert (log.start_offset, log.end_offset) == (0, 0)


def test_an_open_transaction_whose_records_are_deleted_holds_back_what_is_left() -> None:
    log = TopicLog()
    log.append(_batch(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True), 0)
    log.append(_batch(b"c", b"d"), 0)
    assert log.last_stable_offset == 0
    log.trim(3)
    assert log.last_stable_offset == 3


def test_a_producer_of_old_epoch_is_refused_and_a_truncated_retry_is_new() -> None:
    log = TopicLog()
    first = _batch(b"a", producer_id=1, producer_epoch=3, base_sequence=0)
    assert log.producers.find_retry(_header(first)) is None
    log.append(first, 0)
    assert log.producers.find_retry(_header(first)) == (0, 0, 0, 1)
    old = _batch(b"b", producer_id=1, producer_epoch=2, base_sequence=1)
    with pytest.raises(Refusal) as refused:
        log.producers.find_retry(_header(old))
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    log.truncate(0)
    assert log.producers.find_retry(_header(first)) is None


def test_old_brokers_refuse_a_sequence_of_a_producer_that_they_do_not_know() -> None:
    log = TopicLog()
    with pytest.raises(Refusal) as refused:
        log.producers.find_retry(
            _header(_batch(b"a", producer_id=1, producer_epoch=0, base_sequence=3)), gaps=Gaps.UNKNOWN
        )
    assert refused.value.code == ErrorCode.UNKNOWN_PRODUCER_ID
    first = _header(_batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0))
    assert log.producers.find_retry(first, gaps=Gaps.UNKNOWN) is None


def test_sequences_begin_again_at_zero() -> None:
    log = TopicLog()
    last = (1 << 31) - 1
    log.append(_batch(b"a", producer_id=1, producer_epoch=0, base_sequence=last), 0)
    assert log.producers.find_retry(_header(_batch(b"b", producer_id=1, producer_epoch=0, base_sequence=0))) is None


def test_ends_of_epochs() -> None:
    epochs = LeaderEpochs()
    assert epochs.end_of(0, 0) == EpochEnd(-1, -1)
    epochs.begin(2, 0)
    epochs.begin(3, 10)
    epochs.begin(4, 10)  # epoch 3 never wrote
    assert [epochs.end_of(epoch, 15) for epoch in (1, 2, 3, 4, 5)] == [
        EpochEnd(1, 0), EpochEnd(2, 10), EpochEnd(2, 10), EpochEnd(4, 15), EpochEnd(-1, -1)
    ]  # fmt: skip
    epochs.trim(12)
    assert (epochs.at(11), epochs.at(12)) == (-1, 4)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.integers(0, 60), st.integers(0, 60))
def test_epochs_after_truncation_are_those_of_the_records(counts: list[int], trim: int, truncate: int) -> None:
    """Each element: how many records the next leader wrote."""
    log, written = TopicLog(), []
    for epoch, count in enumerate(counts):
        log.epochs.begin(epoch, log.end_offset)
        for _ in range(count):
            log.append(_batch(b"x"), epoch)
            written.append(epoch)
    log.trim(min(trim, log.end_offset))
    log.truncate(max(truncate, log.start_offset))
    assert log.start_offset <= log.end_offset <= len(written)
    kept = range(log.start_offset, log.end_offset)
    assert [log.epochs.at(offset) for offset in kept] == [written[offset] for offset in kept]
    assert _offsets(log) == list(kept)
