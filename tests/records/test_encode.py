"""Encoding batches: what is written is read back, byte for byte where Kafka's format leaves no choice."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.errors import UnsupportedCodec
from aiokc.records import Codec, ControlType, NewRecord, encode_batch, encode_control_batch
from aiokc.types import CREATE_TIME

from .batches import CODECS, as_new, compacted_records, only_batch, read_all


@given(compacted_records(), st.integers(0, 1 << 40), st.sampled_from(CODECS))
def test_round_trip(records: list[NewRecord], base_offset: int, codec: Codec) -> None:
    data = encode_batch(records, base_offset=base_offset, codec=codec, leader_epoch=7)
    if not records:
        data = encode_batch(records, base_offset=base_offset, codec=codec, leader_epoch=7, last_offset_delta=0)
    read = read_all(data)
    assert as_new(read, base_offset) == [new._replace(headers=tuple(new.headers)) for new in records]
    assert {(r.leader_epoch, r.timestamp_type) for r in read} <= {(7, CREATE_TIME)}


def test_the_bytes_of_a_small_batch() -> None:
    data = encode_batch([NewRecord(b"v", b"k", [("h", None)], 1_000), NewRecord(None, timestamp=1_001)], base_offset=1)
    first = bytes.fromhex("16 00 00 00 02 6b 02 76 02 02 68 01")
    second = bytes.fromhex("0c 00 02 02 01 01 00")
    assert data[61:] == first + second
    header = struct.unpack(">hiqqqhii", data[21:61])
    assert header == (0, 1, 1_000, 1_001, -1, -1, -1, 2)
    assert struct.unpack(">qiib", data[:17]) == (1, len(data) - 12, -1, 2)


def test_the_bytes_of_a_marker() -> None:
    data = encode_control_batch(
        ControlType.ABORT, producer_id=7, producer_epoch=2, base_offset=9, timestamp=5, coordinator_epoch=3
    )
    header, view = only_batch(data)
    assert len(data) == 78
    assert (header.is_control, header.is_transactional, header.producer_id, header.producer_epoch) == (True, True, 7, 2)
    assert (header.base_offset, header.record_count, header.max_timestamp) == (9, 1, 5)
    assert bytes(view[61:]) == bytes.fromhex("20 00 00 00 08 0000 0000 0c 0000 00000003 00")


def test_an_empty_batch_is_not_compressed() -> None:
    header, view = only_batch(encode_batch([], codec=Codec.ZSTD, last_offset_delta=3))
    assert (header.codec, header.base_timestamp, header.size) == (Codec.NONE, -1, 61)
    assert len(view) == 61


def test_unless_given_the_last_offset_is_the_last_record_s() -> None:
    records = [NewRecord(), NewRecord(offset_delta=5), NewRecord()]
    assert only_batch(encode_batch(records))[0].last_offset_delta == 6
    assert only_batch(encode_batch(records, last_offset_delta=9))[0].last_offset_delta == 9


def test_a_codec_that_kafka_has_not() -> None:
    with pytest.raises(UnsupportedCodec):
        encode_batch([NewRecord(b"x")], codec=5)
