"""A single long record is copied when its batch is opened, and then handed out as any other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

from aiokc.errors import CorruptRecord
from aiokc.native import NATIVE, extension
from aiokc.records import Codec, NewRecord, encode_batch
from aiokc.records.batch import BatchHeader, read_header
from aiokc.records.decode import RecordReader, open_measured, read_payload
from aiokc.records.lone_record import LONG_BYTES

from .batches import only_batch
from .old_formats.message_sets import MAGICS, Message, message_set

LONG = bytes(range(256)) * (LONG_BYTES // 256)


def opened(*records: NewRecord) -> RecordReader:
    data = memoryview(encode_batch(records, base_offset=7, leader_epoch=3))
    reader, size = open_measured(read_header(data), data, topic="t", partition=1, max_decompressed_bytes=1 << 24)
    assert size > sum(len(record.value or b"") for record in records)
    return reader


def test_a_long_record_is_built_when_its_batch_is_opened() -> None:
    reader = opened(NewRecord(LONG, b"key", [("h", b"1")]))
    start = reader.mark()
    assert (reader.remaining, reader.next_offset) == (1, 7)
    assert reader.take(0) == []
    [record] = reader.take(10)
    assert (record.key, record.value, record.headers) == (b"key", LONG, (("h", b"1"),))
    assert (record.topic, record.partition, record.offset, record.leader_epoch) == ("t", 1, 7, 3)
    assert (reader.remaining, reader.next_offset, reader.take(1)) == (0, 8, [])
    reader.go_back(start)
    assert (reader.remaining, reader.next_offset) == (1, 7)
    assert reader.take(1)[0] is record, "nothing is copied here, where the event loop may run"
    reader.go_back(start)
    assert reader.take(1, 8) == []
    assert reader.remaining == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", MAGICS)
def test_so_is_a_long_message_of_the_formats_before(magic: int, codec: Codec) -> None:
    header, view = only_batch(message_set([Message(LONG, b"key", 5, offset=7)], magic, codec))
    reader, size = open_measured(header, view, topic="t", partition=1, max_decompressed_bytes=1 << 24)
    start = reader.mark()
    assert size > len(LONG)
    [record] = reader.take(10)
    assert (record.key, record.value, record.offset, record.partition) == (b"key", LONG, 7, 1)
    reader.go_back(start)
    assert reader.take(1)[0] is record


def test_records_of_others_are_built_one_after_the_other() -> None:
    reader = opened(NewRecord(LONG), NewRecord(LONG))
    start = reader.mark()
    [record] = reader.take(1)
    reader.go_back(start)
    assert reader.take(1)[0] is not record


def test_a_long_record_that_is_none_raises_when_its_batch_is_opened() -> None:
    data = bytearray(encode_batch([NewRecord(LONG)]))
    data[-len(LONG) - 10 :] = b"\xff" * (len(LONG) + 10)
    view = memoryview(bytes(data))
    with pytest.raises(CorruptRecord):
        open_measured(read_header(view), view, topic="t", partition=1, check_crcs=False, max_decompressed_bytes=1 << 24)


def test_a_long_message_with_a_wrong_crc_raises_when_it_is_opened() -> None:
    data = bytearray(message_set([Message(LONG, offset=7)], 1))
    data[-1] ^= 1
    header, view = only_batch(data)
    with pytest.raises(CorruptRecord, match="t-0 at offset 7: the CRC-32 of a message is"):
        open_measured(header, view, topic="t", partition=0, max_decompressed_bytes=1 << 24)


@pytest.mark.skipif(not NATIVE, reason="a function of the extension")
@pytest.mark.parametrize("length", [0, 1, LONG_BYTES - 1, LONG_BYTES, 3 * LONG_BYTES + 1])
def test_a_copy_has_the_same_bytes_however_many_they_are(length: int) -> None:
    data = (LONG * 4)[:length]
    for given in (bytearray(data), memoryview(b"x" + data)[1:]):
        assert extension.copied(given) == data
    with pytest.raises(TypeError):
        extension.copied(5)


def copying_a_payload() -> Callable[[], object]:
    data = memoryview(encode_batch([NewRecord(LONG * 8)]))
    header = read_header(data)
    return lambda: read_payload(header, data, 1 << 24)


def copying_a_record() -> Callable[[], object]:
    reader = opened(NewRecord(LONG * 8), NewRecord(None))
    start = reader.mark()

    def copy() -> object:
        reader.go_back(start)
        return reader.take(1)

    return copy


def messages() -> tuple[BatchHeader, memoryview]:
    """Two of them, of which the first is long."""
    return only_batch(message_set([Message(LONG * 8), Message(None, offset=1)], 1))


def opening_messages() -> Callable[[], object]:
    header, view = messages()
    return lambda: open_unchecked(header, view)


def copying_a_message() -> Callable[[], object]:
    reader = open_unchecked(*messages())
    start = reader.mark()

    def copy() -> object:
        reader.go_back(start)
        return reader.take(1)

    return copy


def open_unchecked(header: BatchHeader, view: memoryview) -> RecordReader:
    """Without the CRC, which is computed without the GIL."""
    reader, _ = open_measured(header, view, topic="t", partition=0, check_crcs=False, max_decompressed_bytes=1 << 24)
    return reader


@pytest.mark.timeout(30)
@pytest.mark.skipif(not NATIVE, reason="the copies that the extension makes")
@pytest.mark.parametrize("copying", [copying_a_payload, copying_a_record, opening_messages, copying_a_message])
def test_other_threads_run_while_a_long_copy_is_made(copying: Callable[[], Callable[[], object]]) -> None:
    """Otherwise the thread that opens a batch would hold the event loop.

    With this switch interval a thread loses the GIL only where it gives it up: the other thread can run only in a copy.
    """
    copy, may_run, ran = copying(), threading.Lock(), list[bool]()

    def run() -> None:
        with may_run:
            ran.append(True)

    other, interval = threading.Thread(target=run), sys.getswitchinterval()
    sys.setswitchinterval(1_000.0)
    may_run.acquire()
    try:
        other.start()  # returns once the other thread waits for the lock, and has given the GIL up
        may_run.release()
        for _ in range(200):  # it may take the other thread some time to wake up
            copy()
            if ran:
                break
        assert ran
    finally:
        sys.setswitchinterval(interval)
        other.join()
