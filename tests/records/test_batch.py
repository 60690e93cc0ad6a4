"""The framing of record batches: where they begin and end, and what their headers say."""

from __future__ import annotations

import struct

import pytest

from aiokc.errors import CorruptRecord
from aiokc.records import Codec, NewRecord, encode_batch, split_batches
from aiokc.types import CREATE_TIME, LOG_APPEND_TIME

from .batches import only_batch

TWO = [NewRecord(b"one"), NewRecord(b"two")]


def test_header_of_a_plain_batch() -> None:
    data = encode_batch(TWO, base_offset=40, leader_epoch=6)
    header, view = only_batch(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 41, 42)
    assert (header.record_count, header.magic, header.leader_epoch) == (2, 2, 6)
    assert header.size == len(view) == len(data)
    assert (header.codec, header.timestamp_type) == (Codec.NONE, CREATE_TIME)
    assert not header.is_transactional
    assert not header.is_control


def test_header_with_every_attribute() -> None:
    data = encode_batch(
        TWO,
        codec=Codec.LZ4,
        append_time=1_700_000_000_000,
        producer_id=9,
        producer_epoch=2,
        base_sequence=5,
        transactional=True,
        control=True,
    )
    header, _ = only_batch(data)
    assert (header.codec, header.timestamp_type, header.max_timestamp) == (
        Codec.LZ4,
        LOG_APPEND_TIME,
        1_700_000_000_000,
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 5)
    assert header.is_transactional
    assert header.is_control


def test_unknown_leader_epoch_is_none() -> None:
    header, _ = only_batch(encode_batch(TWO))
    assert header.leader_epoch is None


def test_next_offset_is_behind_what_compaction_took_away() -> None:
    header, _ = only_batch(encode_batch([NewRecord(b"left", offset_delta=2)], base_offset=10, last_offset_delta=9))
    assert header.next_offset == 20


def test_batches_follow_each_other() -> None:
    parts = [encode_batch(TWO, base_offset=base) for base in (0, 2, 7)]
    batches = list(split_batches(memoryview(b"".join(parts))))
    assert [header.base_offset for header, _ in batches] == [0, 2, 7]
    assert [bytes(view) for _, view in batches] == parts


def test_views_are_no_copies() -> None:
    data = bytearray(encode_batch(TWO))
    _, view = only_batch(data)
    assert view.obj is data


def test_nothing_holds_no_batch() -> None:
    assert list(split_batches(memoryview(b""))) == []


def test_a_partial_batch_at_the_end_is_left_out() -> None:
    whole = encode_batch(TWO)
    for cut in range(len(whole)):
        batches = list(split_batches(memoryview(whole + whole[:cut])))
        assert [bytes(view) for _, view in batches] == [whole], cut


@pytest.mark.parametrize("length", [-(1 << 31), -12, -1, 0, 13, 14, 48])
def test_a_length_that_holds_no_batch(length: int) -> None:
    data = bytearray(encode_batch(TWO, base_offset=5))
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptRecord, match=str(length)) as caught:
        list(split_batches(memoryview(data)))
    assert caught.value.offset == 5


def test_batches_before_a_corrupt_one_come_out() -> None:
    good, bad = encode_batch(TWO), bytearray(encode_batch(TWO, base_offset=2))
    struct.pack_into(">i", bad, 8, -1)
    batches = split_batches(memoryview(good + bad))
    assert next(batches)[0].base_offset == 0
    with pytest.raises(CorruptRecord):
        next(batches)


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_a_magic_that_kafka_has_not(magic: int) -> None:
    data = bytearray(encode_batch(TWO))
    data[16] = magic
    with pytest.raises(CorruptRecord, match="magic"):
        list(split_batches(memoryview(data)))


@pytest.mark.parametrize(
    ("at", "kind", "number"),
    [
        pytest.param(0, ">q", -1, id="base offset below 0"),
        pytest.param(0, ">q", (1 << 63) - 2, id="offsets beyond 64 bits"),
        pytest.param(23, ">i", -1, id="last offset before the first"),
        pytest.param(23, ">i", 0, id="fewer offsets than records"),
        pytest.param(57, ">i", -1, id="count below 0"),
        pytest.param(57, ">i", 3, id="more records than offsets"),
        pytest.param(57, ">i", (1 << 31) - 1, id="a huge count"),
    ],
)
def test_a_header_that_contradicts_itself(at: int, kind: str, number: int) -> None:
    data = bytearray(encode_batch(TWO))
    struct.pack_into(kind, data, at, number)
    with pytest.raises(CorruptRecord):
        list(split_batches(memoryview(data)))
