"""OpenBatch: what is appended comes out again, within the capacity; its frames are what encode_batch writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.records import Codec, NewRecord, encode_batch, open_batch, split_batches
from aiokc.records.encoding.batch_builder import BATCH_OVERHEAD, OpenBatch, record_bound
from aiokc.types import RawRecord

_BYTES = st.none() | st.binary(max_size=200)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=3)
_RECORDS = st.lists(
    st.tuples(st.integers(0, 1 << 62), _BYTES, st.none() | st.binary(max_size=20_000), _HEADERS),
    min_size=1,
    max_size=30,
)


def read(frame: bytearray) -> list[RawRecord]:
    ((header, view),) = split_batches(memoryview(frame))
    reader = open_batch(header, view, topic="t", partition=0, max_decompressed_bytes=1 << 30)
    return reader.take(header.record_count)


def parts(records: list[RawRecord]) -> list[object]:
    return [(one.timestamp, one.key, one.value, list(one.headers)) for one in records]


@given(_RECORDS, st.sampled_from(list(Codec)), st.integers(0, 60_000), st.booleans())
def test_a_batch_holds_what_was_appended(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    capacity: int,
    transactional: bool,
) -> None:
    batch = OpenBatch(codec, None, capacity, transactional)
    taken = []
    for record in records:
        before = batch.size
        if not batch.append(*record):
            assert batch.size == before
            break
        taken.append(record)
        assert batch.size - before <= record_bound(record[1], record[2], record[3])
    assert batch.count == len(taken) > 0
    assert batch.size <= capacity or batch.count == 1
    assert batch.max_timestamp == max(timestamp for timestamp, *_ in taken)
    size = batch.size
    closed = batch.close()
    frame = closed.frame(7, 3, 1000)
    assert closed.payload_size == size - BATCH_OVERHEAD
    assert len(frame) == closed.size
    expected = encode_batch(
        [NewRecord(value, key, headers, timestamp) for timestamp, key, value, headers in taken],
        codec=codec,
        producer_id=7,
        producer_epoch=3,
        base_sequence=1000,
        transactional=transactional,
    )
    assert bytes(frame) == expected
    assert parts(read(frame)) == [(*record[:3], record[3]) for record in taken]


@given(_RECORDS, st.sampled_from(list(Codec)), st.integers(1, 3000))
def test_a_split_keeps_all_records_in_order(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], codec: Codec, capacity: int
) -> None:
    batch = OpenBatch(codec, None, 1 << 30, True)
    for record in records:
        assert batch.append(*record)
    largest = batch.largest
    *_, children = batch.close().split(capacity)
    assert all(child.count == 1 or child.size <= capacity for child in children)
    assert max(child.largest for child in children) <= largest + 9  # the varints of other deltas
    found = [one for child in children for one in parts(read(child.close().frame(1, 1, 0)))]
    assert found == [(*record[:3], record[3]) for record in records]


def test_the_first_record_always_fits() -> None:
    batch = OpenBatch(capacity=0)
    assert batch.append(5, b"key", bytes(1000))
    assert batch.is_full
    assert not batch.append(5, None, None)
    assert batch.count == 1


def test_the_same_frame_is_not_computed_again_and_another_one_has_the_same_records() -> None:
    """A retry sends the same bytes; another epoch changes the header and the CRC only."""
    batch = OpenBatch()
    batch.append(5, b"key", b"value")
    closed = batch.close()
    first = closed.frame(1, 0, 10)
    sent = bytes(first)
    assert closed.frame(1, 0, 10) is first
    assert bytes(first) == sent
    again = bytes(closed.frame(1, 1, 0))
    assert again != sent
    assert again[BATCH_OVERHEAD:] == sent[BATCH_OVERHEAD:]
    assert parts(read(bytearray(again))) == [(5, b"key", b"value", [])]


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 17)), (Codec.ZSTD, (1, 19))])
def test_a_level_of_a_codec_is_used(codec: Codec, levels: tuple[int, int]) -> None:
    sizes = []
    for level in levels:
        batch = OpenBatch(codec, level, 1 << 20)
        for number in range(2000):
            batch.append(number, None, b"%d is %d times %d" % (number * 7919, number, 7919))
        closed = batch.close()
        assert len(read(closed.frame(1, 0, 0))) == 2000
        sizes.append(closed.size)
    assert sizes[1] < sizes[0]
