"""Batches that are corrupt on purpose: every one ends in a RecordError, and none in another error."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest

from aiokc.errors import CorruptRecord, RecordError
from aiokc.records import Codec, NewRecord, encode_batch
from aiokc.types import RawRecord

from .batches import ALL, CODECS, open_only, read_all

RECORDS = [
    NewRecord(b"value %d" % i * (i % 4), b"key", [("h", b"1"), ("h", None)] if i % 3 else (), 1_000 + 90 * i)
    for i in range(12)
]
COUNT_AT, RECORDS_AT = 57, 61
NOT_COVERED = range(16)  # base offset, length and leader epoch: the broker writes them, the CRC leaves them out


def varint(number: int) -> bytes:
    number = number << 1 ^ number >> 63
    output = bytearray()
    while number > 0x7F:
        output.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*output, number])


def batch_of(payload: bytes, count: int = 1, last_offset_delta: int | None = None) -> bytes:
    """Return a batch around a payload made by hand. Its CRC is wrong."""
    data = bytearray(encode_batch([], base_offset=50, last_offset_delta=count - 1))
    if last_offset_delta is not None:
        struct.pack_into(">i", data, 23, last_offset_delta)
    struct.pack_into(">i", data, COUNT_AT, count)
    struct.pack_into(">i", data, 8, RECORDS_AT - 12 + len(payload))
    return bytes(data) + payload


def record(*parts: bytes, length: int | None = None) -> bytes:
    body = b"".join(parts)
    return varint(len(body) if length is None else length) + body


ATTRIBUTES = b"\x00"
START = ATTRIBUTES + varint(0) + varint(0)  # no delta of timestamp or offset
NULL = varint(-1)
TAIL = NULL + NULL + varint(0)  # null key, null value, no headers
VALUE = varint(40) + b"v" * 40
LONG = NULL + VALUE + varint(0)  # a tail that is long enough for the decoder in C to read the record in its short way

GOOD = record(START, TAIL)


def test_the_hand_made_record_is_good() -> None:
    (only,) = read_all(batch_of(GOOD), check_crcs=False)
    assert (only.offset, only.key, only.value, only.headers) == (50, None, None, ())
    (only,) = read_all(batch_of(record(START, LONG)), check_crcs=False)
    assert (only.offset, only.key, only.value, only.headers) == (50, None, b"v" * 40, ())


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        pytest.param(b"", 1, id="no bytes for a record"),
        pytest.param(GOOD, 2, id="no bytes for the second record"),
        pytest.param(GOOD * 2, 1, id="a record too many"),
        pytest.param(GOOD + b"\x00", 1, id="bytes behind the last record"),
        pytest.param(record(START, TAIL, length=-1), 1, id="record length below 0"),
        pytest.param(record(START, TAIL, length=5), 1, id="record length too short"),
        pytest.param(record(START, TAIL, length=7), 1, id="record length too long"),
        pytest.param(record(START, TAIL, length=(1 << 31) - 1), 1, id="record length of 2 GiB"),
        pytest.param(b"\xff" * 12, 1, id="a varint without an end"),
        pytest.param(b"\xff" * 4, 1, id="a varint cut short, too few bytes"),
        pytest.param(b"\xff" * 7, 1, id="a length of more than 5 bytes"),
        pytest.param(record(ATTRIBUTES, b"\xff" * 11, varint(0), TAIL), 1, id="a timestamp of more than 10 bytes"),
        pytest.param(record(ATTRIBUTES, varint(0), varint(-1), TAIL), 1, id="offset delta below 0"),
        pytest.param(record(ATTRIBUTES, varint(0), varint(1), TAIL), 1, id="offset delta beyond the batch"),
        pytest.param(record(ATTRIBUTES, varint(0), varint(1 << 31), TAIL), 1, id="offset delta of 2^31"),
        pytest.param(GOOD * 2, 2, id="one offset twice"),
        pytest.param(record(START, varint(3), b"ke", NULL, varint(0)), 1, id="key longer than the record"),
        pytest.param(record(START, NULL, varint(1), varint(0)), 1, id="value takes the header count"),
        pytest.param(record(START, NULL, varint(1 << 30), varint(0)), 1, id="value of 1 GiB"),
        pytest.param(record(START, varint(1 << 30), NULL, varint(0)), 1, id="key of 1 GiB"),
        pytest.param(record(START, NULL, NULL, varint(-1)), 1, id="header count below 0"),
        pytest.param(record(START, NULL, NULL, varint(1)), 1, id="a header that is not there"),
        pytest.param(record(START, NULL, NULL, varint((1 << 31) - 1)), 1, id="two billion headers"),
        pytest.param(record(START, NULL, NULL, varint(1), NULL, NULL), 1, id="a header with a null key"),
        pytest.param(record(START, NULL, NULL, varint(1), varint(9), b"k", NULL), 1, id="header key too long"),
        pytest.param(record(START, NULL, NULL, varint(1), varint(1), b"k", varint(1)), 1, id="header value too long"),
        pytest.param(record(START, TAIL) + record(START, NULL, varint(9)), 2, id="the second record breaks off"),
        pytest.param(record(START, LONG, length=-1), 1, id="long: record length below 0"),
        pytest.param(record(START, LONG, length=45), 1, id="long: record length too short"),
        pytest.param(record(START, LONG, length=47), 1, id="long: record length too long"),
        pytest.param(record(START, LONG, length=(1 << 31) - 1), 1, id="long: record length of 2 GiB"),
        pytest.param(record(ATTRIBUTES, varint(0), varint(-1), LONG), 1, id="long: offset delta below 0"),
        pytest.param(record(ATTRIBUTES, varint(0), varint(1), LONG), 1, id="long: offset delta beyond the batch"),
        pytest.param(record(ATTRIBUTES, varint(0), varint(1 << 20), LONG), 1, id="long: offset delta of 2^20"),
        pytest.param(record(START, LONG) * 2, 2, id="long: one offset twice"),
        pytest.param(record(START, LONG) * 2, 1, id="long: a record too many"),
        pytest.param(record(START, LONG) + b"\x00", 1, id="long: bytes behind the last record"),
        pytest.param(record(START, varint(60), LONG), 1, id="long: key longer than the record"),
        pytest.param(record(START, varint(1 << 20), LONG), 1, id="long: key of 1 MiB"),
        pytest.param(record(START, NULL, varint(41), b"v" * 40, varint(0)), 1, id="long: value takes the header count"),
        pytest.param(record(START, NULL, varint(1 << 20), b"v" * 40, varint(0)), 1, id="long: value of 1 MiB"),
        pytest.param(record(START, NULL, VALUE, varint(-1)), 1, id="long: header count below 0"),
        pytest.param(record(START, NULL, VALUE, varint(1)), 1, id="long: a header that is not there"),
    ],
)
def test_a_payload_that_does_not_hold_together(payload: bytes, count: int) -> None:
    data = batch_of(payload, count)
    with pytest.raises(CorruptRecord, match=r"events-3 at offset 5\d: ") as caught:
        read_all(data, check_crcs=False)
    assert caught.value.topic == "events"
    # Skipping a record checks as much as reading it does.
    with pytest.raises(CorruptRecord):
        open_skipping(data)


def test_records_in_a_batch_without_any() -> None:
    with pytest.raises(CorruptRecord, match=r"events-3 at offset 50: 7 bytes"):
        read_all(batch_of(GOOD, 0, last_offset_delta=0), check_crcs=False)


def open_skipping(data: bytes) -> list[RawRecord]:
    """Open the batch with an offset that makes its reader skip as many records as it can, then read the rest."""
    reader = open_only(data, check_crcs=False)
    taken = reader.take(ALL, 51)
    while reader.remaining:
        taken += reader.take(ALL)
    return taken + read_all(data, check_crcs=False)


def test_what_lies_before_the_corrupt_record_comes_first() -> None:
    deltas = [record(ATTRIBUTES, varint(0), varint(delta), TAIL) for delta in range(4)]
    deltas[2] = record(ATTRIBUTES, varint(0), varint(2), NULL, varint(5), varint(0))
    reader = open_only(batch_of(b"".join(deltas), 4), check_crcs=False)
    assert [only.offset for only in reader.take(ALL)] == [50, 51]
    assert reader.remaining == 2
    for _ in range(2):  # and every later call fails in the same way: none gets past it
        with pytest.raises(CorruptRecord, match=r"offset 52: .*seek\(\) to 54"):
            reader.take(ALL)
    assert reader.remaining == 2


def test_a_corrupt_record_behind_skipped_ones() -> None:
    deltas = [record(ATTRIBUTES, varint(0), varint(delta), TAIL) for delta in range(3)]
    deltas[2] = record(ATTRIBUTES, varint(0), varint(2), NULL, varint(5), varint(0))
    reader = open_only(batch_of(b"".join(deltas), 3), check_crcs=False)
    with pytest.raises(CorruptRecord, match="offset 52"):
        reader.take(ALL, 52)


def test_negative_lengths_are_null() -> None:
    """As in Java's client, where any negative length of a key or value stands for null."""
    data = batch_of(record(START, varint(-2), varint(-77), varint(1), varint(1), b"h", varint(-9)))
    (only,) = read_all(data, check_crcs=False)
    assert (only.key, only.value, only.headers) == (None, None, (("h", None),))


def test_millions_of_headers_stay_out_of_memory() -> None:
    headers = varint(2_000_000) + bytes(4_000_000)  # each one: an empty key, an empty value
    data = batch_of(record(START, NULL, NULL, headers))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord, match="2000000 headers"):
            read_all(data, check_crcs=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 << 20


@pytest.mark.parametrize("check_crcs", [True, False])
@pytest.mark.parametrize("codec", CODECS)
def test_truncation_at_every_byte(codec: Codec, check_crcs: bool) -> None:
    """A batch whose length field is lower than its real length; with a higher one it is no complete batch."""
    whole = encode_batch(RECORDS, codec=codec)
    assert read_all(whole)
    for cut in range(len(whole)):
        assert read_all(whole[:cut], check_crcs=check_crcs) == []
        if cut >= 12:
            data = bytearray(whole[:cut])
            struct.pack_into(">i", data, 8, cut - 12)
            with pytest.raises(RecordError):
                read_all(data, check_crcs=check_crcs)


@pytest.mark.parametrize("codec", CODECS)
def test_a_flipped_byte_under_the_crc(codec: Codec) -> None:
    whole = encode_batch(RECORDS, base_offset=1_000, codec=codec)
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        try:
            records = read_all(data)
        except RecordError:
            continue
        # A longer length makes the batch incomplete. The CRC leaves out offset and epoch.
        assert at in NOT_COVERED, at
        assert [only.value for only in records] in ([], [new.value for new in RECORDS])


@pytest.mark.parametrize("codec", CODECS)
def test_random_bytes_without_the_crc(codec: Codec) -> None:
    chance = random.Random(codec)
    whole = encode_batch(RECORDS, base_offset=1_000, codec=codec)
    outcomes = set()
    for _ in range(1_500):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 5))):
            data[chance.randrange(21 if chance.random() < 0.1 else RECORDS_AT, len(data))] = chance.randrange(256)
        try:
            read_all(data, check_crcs=False)
            outcomes.add("read")
        except RecordError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}
