"""Message sets of magic 0 and 1: which records they hold, alone and beside record batches."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.errors import CorruptRecord, RecordTooLarge
from aiokc.records import (
    AbortedTransactions,
    Codec,
    NewRecord,
    _pure,
    encode_batch,
    open_batch,
    open_measured,
    split_batches,
)
from aiokc.records import message_set as message_set_module
from aiokc.records.batch import HEADER
from aiokc.records.lz4_header import with_right_checksum
from aiokc.types import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP, RawRecord
from tests.suite.examples import examples

from ..batches import ALL, only_batch, open_only, read_all
from .message_sets import (
    CODECS,
    MAGICS,
    Message,
    compacted_messages,
    message,
    message_set,
    with_wrong_checksum,
    wrapper,
)

MESSAGES = [Message(b"value %d" % i, b"key" if i % 2 else None, 1_000 + 90 * i, 50 + i) for i in range(8)]


def fields(record: RawRecord) -> tuple[object, ...]:
    return record.offset, record.timestamp, record.timestamp_type, record.key, record.value


def expected(messages: list[Message], magic: int, append_time: int | None = None) -> list[tuple[object, ...]]:
    if magic == 0:
        return [(new.offset, NO_TIMESTAMP, NO_TIMESTAMP, new.key, new.value) for new in messages]
    if append_time is not None:
        return [(new.offset, append_time, LOG_APPEND_TIME, new.key, new.value) for new in messages]
    return [(new.offset, new.timestamp, CREATE_TIME, new.key, new.value) for new in messages]


@examples(15, thorough=100)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
@given(messages=compacted_messages(), append_time=st.none() | st.integers(0, 1 << 42))
def test_what_was_written_is_read(magic: int, codec: Codec, messages: list[Message], append_time: int | None) -> None:
    records = read_all(message_set(messages, magic, codec, append_time=append_time if magic else None))
    assert [fields(record) for record in records] == expected(messages, magic, append_time if magic else None)
    assert {(r.topic, r.partition, r.headers, r.leader_epoch) for r in records} == {("events", 3, (), None)}


@given(
    st.lists(st.tuples(st.sampled_from((0, 1, 2)), st.sampled_from(CODECS), st.integers(1, 4), st.integers(0, 3))),
    st.integers(0, 60),
)
def test_formats_of_all_ages_in_one_response(parts: list[tuple[int, Codec, int, int]], cut: int) -> None:
    data, offset = b"", 7
    wanted: list[int] = []
    ends: list[tuple[int, int]] = []
    for magic, codec, number, gap in parts:
        offsets = range(offset + gap, offset + gap + number)
        if magic == 2:
            data += encode_batch([NewRecord(b"%d" % at) for at in offsets], base_offset=offset + gap, codec=codec)
        else:
            data += message_set([Message(b"%d" % at, offset=at) for at in offsets], magic, codec)
        offset = offsets[-1] + 1
        wanted += offsets
        ends.append((len(data), offset))
    assert [(r.offset, r.value) for r in read_all(data)] == [(at, b"%d" % at) for at in wanted]
    # Brokers truncate at a byte limit, which is no error.
    rest = read_all(data[: max(0, len(data) - cut)])
    assert [r.offset for r in rest] == wanted[: len(rest)]
    complete = max((end for size, end in ends if size <= len(data) - cut), default=0)
    assert not rest or rest[-1].offset >= complete - 1


def test_messages_side_by_side_are_one_batch() -> None:
    data = message_set(MESSAGES, 1)
    ((header, view),) = split_batches(memoryview(data))
    assert (header.base_offset, header.last_offset, header.next_offset, header.record_count) == (50, 57, 58, 8)
    assert (header.size, len(view), header.magic, header.leader_epoch) == (len(data), len(data), 1, None)
    assert (header.is_control, header.is_transactional) == (False, False)


@pytest.mark.parametrize("magic", MAGICS)
def test_the_last_offset_of_a_compressed_message_set_is_known(magic: int) -> None:
    ((header, _),) = split_batches(memoryview(message_set(MESSAGES, magic, Codec.GZIP)))
    assert (header.last_offset, header.next_offset, header.codec) == (57, 58, Codec.GZIP)


def test_runs_end_where_something_changes() -> None:
    parts = [
        message_set(MESSAGES[:2], 0),
        message_set(MESSAGES[2:4], 1),
        message_set(MESSAGES[4:5], 1, append_time=5_000),
        message_set(MESSAGES[5:7], 1, Codec.GZIP),
        message_set(MESSAGES[7:], 1),
    ]
    headers = [header for header, _ in split_batches(memoryview(b"".join(parts)))]
    assert [header.size for header in headers] == [len(part) for part in parts]
    assert [header.next_offset for header in headers] == [52, 54, 55, 57, 58]
    records = read_all(b"".join(parts))
    types = [NO_TIMESTAMP] * 2 + [CREATE_TIME] * 2 + [LOG_APPEND_TIME] + [CREATE_TIME] * 3
    assert [record.timestamp_type for record in records] == types
    assert [record.timestamp for record in records] == [-1, -1, 1180, 1270, 5_000, 1450, 1540, 1630]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
def test_from_an_offset_on_and_in_parts(magic: int, codec: Codec) -> None:
    reader = open_only(message_set(MESSAGES, magic, codec))
    assert reader.remaining == 8
    assert [record.offset for record in reader.take(2, 53)] == [53, 54]
    assert reader.remaining == 3
    assert [record.offset for record in reader.take(1)] == [55]
    assert [record.offset for record in reader.take(ALL, 57)] == [57]
    assert (reader.remaining, reader.take(ALL)) == (0, [])
    assert open_only(message_set(MESSAGES, magic, codec)).take(ALL, 58) == []


def test_a_long_wrapper_comes_in_steps_that_do_not_hold_the_loop() -> None:
    reader = open_only(message_set([Message(b"", offset=at) for at in range(1_000)], 1, Codec.GZIP))
    sizes = []
    while reader.remaining:
        sizes.append(len(reader.take(ALL)))
    assert sum(sizes) == 1_000
    assert max(sizes) == 256


def test_offsets_inside_are_relative_with_magic_1_only() -> None:
    inside = b"".join(message(new, 1, offset=at) for at, new in zip((0, 4, 9), MESSAGES, strict=False))
    records = read_all(wrapper(inside, 1, Codec.GZIP, offset=1_000))
    assert [record.offset for record in records] == [991, 995, 1_000]
    # Some producers left absolute offsets there, and the wrapper's offset agrees with them.
    inside = b"".join(message(new, 1) for new in MESSAGES)
    assert [r.offset for r in read_all(wrapper(inside, 1, Codec.GZIP, offset=57))] == list(range(50, 58))
    inside = b"".join(message(new, 0) for new in MESSAGES)
    assert [r.offset for r in read_all(wrapper(inside, 0, Codec.GZIP, offset=57))] == list(range(50, 58))


def test_messages_of_magic_0_in_a_wrapper_of_magic_1() -> None:
    inside = message(MESSAGES[0], 0, offset=0) + message(MESSAGES[1], 1, offset=1)
    first, second = read_all(wrapper(inside, 1, Codec.GZIP, offset=11, append_time=9_000))
    assert fields(first) == (10, NO_TIMESTAMP, NO_TIMESTAMP, None, b"value 0")
    assert fields(second) == (11, 9_000, LOG_APPEND_TIME, b"key", b"value 1")


def test_a_wrapper_s_key_means_nothing() -> None:
    (record,) = read_all(wrapper(message(MESSAGES[1], 1, offset=0), 1, Codec.GZIP, offset=9, key=b"ignored"))
    assert (record.offset, record.key) == (9, b"key")


def test_bits_that_no_broker_sets_mean_nothing() -> None:
    data = b"".join(message(new, 1, attributes=bits) for new, bits in zip(MESSAGES, (0, 0x30, -128), strict=False))
    ((header, _),) = split_batches(memoryview(data))
    assert (header.is_control, header.is_transactional) == (False, False)
    assert [record.offset for record in read_all(data)] == [50, 51, 52]


def test_read_committed_lets_them_pass() -> None:
    ((header, view),) = split_batches(memoryview(message_set(MESSAGES, 1)))
    assert not AbortedTransactions([(-1, 0), (7, 50)]).skips(header, view)


def test_lz4_of_magic_0_has_another_checksum() -> None:
    """KIP-57: the header's checksum is not checked with magic 0, and must be right with magic 1."""
    inside = b"".join(message(new, 0) for new in MESSAGES)
    assert len(read_all(wrapper(inside, 0, Codec.LZ4, offset=57))) == 8
    data = wrapper(b"".join(message(new, 1) for new in MESSAGES), 1, Codec.LZ4, offset=57)
    assert len(read_all(data)) == 8
    at = data.index(bytes.fromhex("04224d18"))
    with pytest.raises(CorruptRecord, match="lz4"):
        read_all(data[:at] + with_wrong_checksum(data[at:]), check_crcs=False)


def test_the_checksum_of_lz4_headers() -> None:
    lz4 = pytest.importorskip("lz4.frame")
    for options in ({}, {"store_size": False}, {"content_checksum": True, "block_size": 7}, {"block_linked": False}):
        right = lz4.compress(b"the same again and again" * 50, **options)
        end = 14 if options.get("store_size", True) else 6
        for wrong in (0, 0x1A, 0xFF):
            assert with_right_checksum(right[:end] + bytes((wrong,)) + right[end + 1 :]) == right
    for cut in range(7):
        assert with_right_checksum(right[:cut]) == right[:cut]


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("magic", MAGICS)
def test_decompressed_within_bounds(magic: int, codec: Codec) -> None:
    data = message_set([Message(b"x" * 4_000, offset=at) for at in range(60, 100)], magic, codec)
    with pytest.raises(RecordTooLarge, match=r"events-3 at offset 99: .*max_decompressed_batch_bytes.*seek\(\) to 100"):
        read_all(data, limit=100_000)
    assert len(read_all(data, limit=200_000)) == 40


def test_measured() -> None:
    """A reader says how many bytes it keeps: those of the messages, decompressed."""
    for codec in (Codec.NONE, Codec.GZIP):
        ((header, view),) = split_batches(memoryview(message_set(MESSAGES, 1, codec)))
        _, kept = open_measured(header, view, topic="t", partition=0, max_decompressed_bytes=1 << 20)
        assert kept == sum(len(message(new, 1)) for new in MESSAGES)


def test_the_view_is_not_kept() -> None:
    data = bytearray(message_set(MESSAGES, 1))
    ((header, view),) = split_batches(memoryview(data))
    reader = open_batch(header, view, topic="t", partition=0, max_decompressed_bytes=1 << 20)
    view.release()
    data[:] = bytes(len(data))
    assert [record.value for record in reader.take(ALL)] == [new.value for new in MESSAGES]


def test_a_long_run_of_messages_is_cut() -> None:
    """Its walk is one step, however many messages a response brings."""
    data = message_set([Message(b"%d" % at, offset=at) for at in range(1_000)], 1, Codec.NONE)
    batches = list(split_batches(memoryview(data)))
    assert max(header.record_count for header, _ in batches) == 128
    assert [record.value for record in read_all(data)] == [b"%d" % at for at in range(1_000)]


@pytest.mark.parametrize("magic", [1, 2])
def test_no_memory_for_a_record_loses_none_of_those_before_it(magic: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the decoders in Python. What a call does not return, the next one has to."""
    values = [b"%d" % at for at in range(20)]
    if magic == 2:
        header, view = only_batch(encode_batch([NewRecord(value) for value in values]))
        module: ModuleType = _pure
        reader: Any = _pure.RecordReader(header, bytes(view[HEADER.size :]), topic="events", partition=3)
        name = "_Fields"
    else:
        reader = open_only(message_set([Message(value, offset=at) for at, value in enumerate(values)], 1, Codec.NONE))
        module, name = message_set_module, "raw_record"
    made, make = 0, getattr(module, name)

    def mostly(*arguments: Any) -> Any:
        nonlocal made
        made += 1
        if made == 6:
            raise MemoryError
        return make(*arguments)

    monkeypatch.setattr(module, name, mostly)
    with pytest.raises(MemoryError):
        reader.take(ALL)
    assert [record.value for record in reader.take(ALL)] == values
