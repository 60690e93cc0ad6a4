"""Decoding a batch's records: in slices, from an offset on, past compacted ones; and which decoder is chosen."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.errors import CorruptRecord, RecordTooLarge, UnsupportedCodec
from aiokc.records import (
    NATIVE,
    Codec,
    ControlType,
    NewRecord,
    RecordReader,
    _pure,
    decode,
    encode_batch,
    encode_control_batch,
    open_batch,
    split_batches,
)
from aiokc.records.batch import HEADER
from aiokc.types import CREATE_TIME, LOG_APPEND_TIME
from tests.suite.child_process import run_to_end

from .batches import ALL, CODECS, compacted_records, only_batch, open_only, read_all
from .old_formats.message_sets import Message, message_set

TEN = [NewRecord(b"value %d" % i, b"key %d" % i, timestamp=1_000 + i) for i in range(10)]


def test_a_record_has_everything_that_was_written() -> None:
    headers = (("a", b"1"), ("a", None), ("", b""), ("ü", b"\xff"))
    (record,) = read_all(
        encode_batch([NewRecord(b"value", b"key", headers, 1_700_000_000_000)], base_offset=12, leader_epoch=4)
    )
    assert (record.topic, record.partition, record.offset, record.leader_epoch) == ("events", 3, 12, 4)
    assert (record.key, record.value, record.headers) == (b"key", b"value", headers)
    assert (record.timestamp, record.timestamp_type) == (1_700_000_000_000, CREATE_TIME)


@pytest.mark.parametrize("skipped", [0, 2])
@pytest.mark.parametrize("format", ["batch", "Python", 0, 1])
def test_a_reader_goes_back_to_a_place(format: str | int, skipped: int) -> None:
    reader: RecordReader
    if isinstance(format, int):
        reader = open_only(message_set([Message(b"x", offset=at) for at in range(10)], format, Codec.GZIP))
    elif format == "batch":
        reader = open_only(encode_batch(TEN))
    else:
        header, view = only_batch(encode_batch(TEN))
        reader = _pure.RecordReader(header, bytes(view[HEADER.size :]), topic="t", partition=0)
    reader.take(3 - skipped, skipped)
    place = reader.mark()
    rest = reader.take(5)
    assert [record.offset for record in rest] == [3, 4, 5, 6, 7]
    for _ in range(2):
        reader.go_back(place)
        assert (reader.remaining, reader.next_offset) == (7, 3)
        assert reader.take(5) == rest
    assert [record.offset for record in reader.take(5)] == [8, 9]


@pytest.mark.skipif(not NATIVE, reason="a function of the extension")
def test_the_extension_goes_to_no_place_outside_of_the_batch() -> None:
    reader = open_only(encode_batch(TEN))
    size = only_batch(encode_batch(TEN))[0].batch_length
    wrong: list[Any] = [(-1, -1, 10), (size, -1, 10), (0, -2, 10), (0, 10, 10), (0, -1, -1), (0, -1, 11)]
    for place in wrong:
        with pytest.raises(ValueError, match="none that mark returned"):
            reader.go_back(place)
    for place in (None, 5, (), (0, 0), ("", 0, 0), (1 << 64, 0, 0)):
        with pytest.raises((TypeError, OverflowError)):
            reader.go_back(place)  # type: ignore[arg-type]
    assert len(reader.take(ALL)) == 10


def test_null_is_not_empty() -> None:
    null, empty = read_all(encode_batch([NewRecord(None, None), NewRecord(b"", b"")]))
    assert (null.key, null.value, null.headers) == (None, None, ())
    assert (empty.key, empty.value) == (b"", b"")


def test_without_timestamp_and_epoch() -> None:
    (record,) = read_all(encode_batch([NewRecord(b"x")]))
    assert (record.timestamp, record.leader_epoch) == (-1, None)


def test_timestamps_may_go_back() -> None:
    times = [5_000, 4_000, -1, (1 << 63) - 1, 0]
    records = read_all(encode_batch([NewRecord(b"x", timestamp=time) for time in times]))
    assert [record.timestamp for record in records] == times


def test_log_append_time_is_the_batch_s() -> None:
    records = read_all(encode_batch(TEN, append_time=9_999))
    assert {record.timestamp for record in records} == {9_999}
    assert {record.timestamp_type for record in records} == {LOG_APPEND_TIME}


def test_a_header_key_that_is_not_utf_8_is_no_error() -> None:
    data = bytearray(encode_batch([NewRecord(b"x", headers=[("key!", b"v")])]))
    data[data.index(b"key!") + 3] = 0xFF
    (record,) = read_all(data, check_crcs=False)
    assert record.headers == (("key\ufffd", b"v"),)


def test_keys_and_values_own_their_bytes() -> None:
    data = bytearray(encode_batch(TEN))
    records = read_all(data)
    data.clear()  # it would raise BufferError if anything still held a view of it
    assert records[3].value == b"value 3"
    assert type(records[3].key) is type(records[3].value) is bytes


@given(compacted_records(), st.integers(0, 1 << 40), st.integers(1, 5), st.sampled_from(CODECS))
def test_slices_add_up_to_the_whole(records: list[NewRecord], base_offset: int, count: int, codec: Codec) -> None:
    data = encode_batch(records, base_offset=base_offset, codec=codec, last_offset_delta=20_000)
    reader = open_only(data)
    slices = []
    while reader.remaining:
        before = reader.remaining
        slices.append(reader.take(count))
        assert len(slices[-1]) == min(count, before)
        assert reader.remaining == before - len(slices[-1])
    assert [record for part in slices for record in part] == read_all(data)
    assert reader.take(count) == []


@given(compacted_records(), st.integers(0, 20_100), st.integers(1, 5))
def test_only_from_an_offset_on(records: list[NewRecord], wanted: int, count: int) -> None:
    data = encode_batch(records, base_offset=50, last_offset_delta=20_000)
    reader, taken = open_only(data), []
    while part := reader.take(count, wanted):
        assert len(part) <= count
        taken += part
    assert taken == [record for record in read_all(data) if record.offset >= wanted]
    assert reader.remaining == 0


def test_an_offset_may_be_asked_for_at_any_time() -> None:
    reader = open_only(encode_batch(TEN))
    assert [record.offset for record in reader.take(2)] == [0, 1]
    assert [record.offset for record in reader.take(2, from_offset=5)] == [5, 6]
    assert [record.offset for record in reader.take(2, from_offset=0)] == [7, 8]
    assert [record.offset for record in reader.take(2, from_offset=100)] == []
    assert reader.remaining == 0


def test_taking_none() -> None:
    reader = open_only(encode_batch(TEN))
    assert reader.take(0) == []
    assert reader.remaining == 10


def test_gaps_keep_their_offsets() -> None:
    records = [NewRecord(b"x", offset_delta=delta) for delta in (3, 4, 900)]
    data = encode_batch(records, base_offset=100, last_offset_delta=1_000)
    assert [record.offset for record in read_all(data)] == [103, 104, 1_000]


def test_a_batch_whose_records_were_all_compacted_away() -> None:
    data = encode_batch([], base_offset=100, last_offset_delta=9)
    header, _ = only_batch(data)
    reader = open_only(data)
    assert (header.next_offset, reader.remaining, reader.take(ALL)) == (110, 0, [])


@pytest.mark.parametrize("codec", CODECS)
def test_a_codec_on_nothing_at_all(codec: Codec) -> None:
    """What emptied the batch may have left the codec's bits set in it."""
    data = bytearray(encode_batch([], last_offset_delta=0))
    data[22] |= codec
    assert read_all(data, check_crcs=False) == []


@pytest.mark.parametrize("marker", ControlType)
def test_control_batches_have_no_records_to_hand_out(marker: ControlType) -> None:
    data = encode_control_batch(marker, producer_id=1, producer_epoch=0, base_offset=5)
    reader = open_only(data)
    assert (reader.remaining, reader.take(ALL)) == (0, [])
    assert only_batch(data)[0].next_offset == 6


def test_the_crc_of_control_batches_counts_too() -> None:
    data = bytearray(encode_control_batch(ControlType.COMMIT, producer_id=1, producer_epoch=0))
    data[-1] ^= 1
    with pytest.raises(CorruptRecord, match="CRC"):
        open_only(data)


def test_a_wrong_crc_says_where() -> None:
    data = bytearray(encode_batch(TEN, base_offset=70))
    data[-2] ^= 0x10
    with pytest.raises(CorruptRecord, match=r"events-3 at offset 70: .*CRC.*seek\(\) to 80") as caught:
        open_only(data)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("events", 3, 70)


def test_crcs_are_not_checked_where_the_option_is_off() -> None:
    data = bytearray(encode_batch(TEN))
    data[17] ^= 1
    assert read_all(data, check_crcs=False) == read_all(encode_batch(TEN))


def test_the_crc_is_checked_before_anything_is_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "decompress", lambda *_: pytest.fail("decompressed"))
    data = bytearray(encode_batch(TEN, codec=Codec.GZIP))
    data[-1] ^= 1
    with pytest.raises(CorruptRecord):
        open_only(data)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != Codec.NONE])
def test_too_large_says_where_and_where_to_go_on(codec: Codec) -> None:
    data = encode_batch([NewRecord(bytes(100_000))] * 3, base_offset=70, codec=codec)
    assert len(read_all(data, limit=1 << 20)) == 3
    with pytest.raises(RecordTooLarge, match=r"events-3 at offset 70: .*200000 bytes.*seek\(\) to 73") as caught:
        open_only(data, limit=200_000)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("events", 3, 70)


def test_an_unknown_codec_says_where() -> None:
    data = bytearray(encode_batch(TEN, base_offset=70))
    data[22] |= 7
    with pytest.raises(UnsupportedCodec, match=r"events-3 at offset 70: .*7"):
        open_only(data, check_crcs=False)


def test_a_broken_stream_says_where() -> None:
    data = bytearray(encode_batch(TEN, base_offset=70, codec=Codec.GZIP))
    data[61] ^= 0xFF
    with pytest.raises(CorruptRecord, match=r"events-3 at offset 70: .*gzip"):
        open_only(data, check_crcs=False)


def test_the_view_is_not_kept() -> None:
    data = bytearray(encode_batch(TEN))
    header, view = only_batch(data)
    reader = open_batch(header, view, topic="events", partition=3, max_decompressed_bytes=1 << 20)
    view.release()
    assert len(reader.take(ALL)) == 10


# The choice of the implementation


def test_zero_is_python(caplog: pytest.LogCaptureFixture) -> None:
    decoder, missing = decode.choose("0")
    assert (decoder.__name__, missing) == ("aiokc.records._pure", None)
    assert len(open_with(decode.readers(decoder, missing)).take(ALL)) == 1
    assert caplog.records == []  # it was asked for


def test_one_without_the_extension_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokc._native.extension", None)
    with pytest.raises(ImportError, match=r"AIOKC_NATIVE=1, .*aiokc\._native\.extension"):
        decode.choose("1")


def test_without_a_choice_and_without_the_extension_it_is_python(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "aiokc._native.extension", None)
    decoder, missing = decode.choose("")
    assert decoder.__name__ == "aiokc.records._pure"
    assert caplog.records == []  # the application may not have set up its logging yet
    new_reader = decode.readers(decoder, missing)
    for _ in range(3):
        assert [record.value for record in open_with(new_reader).take(ALL)] == [b"v"]
    (notice,) = caplog.records
    assert (notice.name, notice.levelname) == ("aiokc.records", "WARNING")
    assert "decoded in Python" in notice.getMessage()
    assert "AIOKC_NATIVE=0" in notice.getMessage()


def open_with(new_reader: Any) -> Any:
    ((header, view),) = split_batches(memoryview(encode_batch([NewRecord(b"v")])))
    return new_reader(header, bytes(view[HEADER.size :]), topic="t", partition=0)


@pytest.mark.parametrize("setting", ["", "1"])
def test_the_extension_where_there_is_one(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extension = types.ModuleType("aiokc._native.extension")
    monkeypatch.setitem(sys.modules, extension.__name__, extension)
    assert decode.choose(setting) == (extension, None)


def test_a_setting_that_means_nothing() -> None:
    with pytest.raises(ImportError, match="AIOKC_NATIVE='yes'"):
        decode.choose("yes")


def test_the_notice_comes_by_the_applications_own_logging() -> None:
    """Applications set up logging after the import. A notice during the import would go to Python's last-resort
    handler.
    """
    program = """
import logging, sys
sys.modules["aiokc._native.extension"] = None
import aiokc
from aiokc.records import NATIVE, NewRecord, encode_batch, open_batch, split_batches
logging.basicConfig(stream=sys.stdout, format="app: %(message).30s")
((header, view),) = split_batches(memoryview(encode_batch([NewRecord(b"v")])))
for _ in range(2):
    print(NATIVE, len(open_batch(header, view, topic="t", partition=0, max_decompressed_bytes=100).take(9)))
"""
    environment = {name: value for name, value in os.environ.items() if name != "AIOKC_NATIVE"}
    done = run_to_end([sys.executable, "-c", program], seconds=200, env=environment)
    assert done.stdout == "app: records are decoded in Python,\nFalse 1\nFalse 1\n"
    assert done.stderr == ""


def test_the_environment_decides() -> None:
    program = "from aiokc.records import NATIVE; print(NATIVE)"
    done = run_to_end([sys.executable, "-c", program], seconds=200, env={**os.environ, "AIOKC_NATIVE": "0"})
    assert done.stdout == "False\n"
    assert isinstance(NATIVE, bool)
