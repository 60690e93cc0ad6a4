"""One partition's buffer, read as records and columns alternately: no record or error is lost, repeated or moved."""

from __future__ import annotations

import gc
import itertools
import weakref
from contextlib import suppress
from typing import Any, Final
from unittest.mock import Mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokc.core.fetch.partition.fetched_partition import FetchedPartition, Limits
from aiokc.core.fetch.partition.frame_memory import FrameMemory
from aiokc.core.fetch.partition.partition_buffer import PartitionBuffer
from aiokc.errors import CorruptRecord, RecordError, RecordTooLarge
from aiokc.records import Codec, ControlType, NewRecord, encode_batch, encode_control_batch, new_builder
from aiokc.records.message_set import MessageReader
from aiokc.types import TopicPartition
from tests.records.old_formats.message_sets import Message, message_set
from tests.suite.untracking import UNTRACKS

TP: Final = TopicPartition("t", 0)
END: Final = (1 << 63) - 1
PACKED: Final = ("gzip", "snappy", "lz4", "zstd")
COLUMNS: Final = ("offset", "key", "headers", "timestamp_type")


def log(kinds: list[str]) -> tuple[bytes, list[int], list[tuple[int, int]], int]:
    """A log of such batches: its bytes, the offsets of records that are handed out, aborted transactions, its end."""
    data, seen, aborted, offset = b"", list[int](), list[tuple[int, int]](), 0
    for kind in kinds:
        if kind == "marker":
            data += encode_control_batch(ControlType.COMMIT, base_offset=offset, producer_id=9, producer_epoch=0)
            offset += 1
            continue
        if kind == "messages":
            data += message_set([Message(b"v", b"%d" % at, offset=at) for at in range(offset, offset + 5)], 1)
            seen += range(offset, offset + 5)
            offset += 5
            continue
        if kind == "aborted":
            aborted.append((offset + 5, offset))
            data += encode_batch([NewRecord(b"x")] * 2, base_offset=offset, producer_id=offset + 5, transactional=True)
            offset += 2
            data += encode_control_batch(
                ControlType.ABORT, base_offset=offset, producer_id=offset + 3, producer_epoch=0
            )
            offset += 1
            continue
        deltas = {"compacted": [0, 3, 4], "hollow": []}.get(kind, range(7))
        headers = [] if kind == "corrupt" else [("h", b"1")]
        records = [NewRecord(b"v", b"%d" % (offset + delta), headers, offset_delta=delta) for delta in deltas]
        batch = bytearray(
            encode_batch(
                records,
                base_offset=offset,
                last_offset_delta=6,
                leader_epoch=len(seen) % 3,
                codec=Codec[kind.upper()] if kind in PACKED else Codec.NONE,
                producer_id=8 if kind == "committed" else -1,
                transactional=kind == "committed",
            )
        )
        if kind == "corrupt":
            batch[-1] = 0x7F  # the last record has -64 headers
            seen += [offset + delta for delta in range(6)]
            return data + bytes(batch), seen, aborted, offset + 6
        data += batch
        seen += [offset + delta for delta in deltas]
        offset += 7
    return data, seen, aborted, offset


kinds: Final = st.lists(
    st.sampled_from(["plain", "plain", *PACKED, "compacted", "hollow", "committed", "marker", "aborted", "messages"]),
    min_size=1,
    max_size=8,
)
steps: Final = st.lists(
    st.tuples(
        st.sampled_from(["records", "part", "columns", "cancelled", "rewound", "in a thread"]), st.integers(1, 9)
    ),
    max_size=30,
)


@settings(deadline=None)
@given(kinds, st.booleans(), steps)
def test_records_and_columns_alternate(batches: list[str], ends_corrupt: bool, some: list[tuple[str, int]]) -> None:
    data, seen, aborted, end = log([*batches, "corrupt"] if ends_corrupt else batches)
    memory = FrameMemory()
    buffer = PartitionBuffer(TP, 1, 0, Limits(check_crcs=False), memory)
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(data), aborted))
    builder = new_builder(COLUMNS, "ms")
    got: list[int] = []
    position = 0
    for kind, many in [*some, *[("records", 9), ("columns", 9)] * 30]:
        if kind in ("records", "part"):
            buffer.decode(many)
            records, after = buffer.take(many if kind == "records" else 1)
            got += [record.offset for record in records]
            assert all(record.key == b"%d" % record.offset for record in records)
        elif kind == "rewound":
            buffer.decode(many)
            buffer.rewind()
            continue
        elif kind == "in a thread":  # while it opens the next batch, the call that waits for it is cancelled
            if (unread := buffer.unopened()) is not None:
                opened = buffer.open(unread)
                buffer.rewind()
                buffer.opened(unread, opened)
            continue
        else:
            if buffer.ready:
                buffer.rewind()
            rows = buffer.append(builder, many, 1 << 20, END)
            batch = pa.record_batch(builder.finish())
            assert batch.num_rows == rows
            if kind == "cancelled":
                buffer.rewind()
                continue
            after = buffer.take_appended()
            offsets = batch.column("offset").to_pylist()
            assert batch.column("key").to_pylist() == [b"%d" % offset for offset in offsets]
            got += offsets
        assert after >= position
        assert after == buffer.taken
        position = after
        assert got == seen[: len(got)]
        assert not got or position > got[-1]
        assert buffer.error is None or ends_corrupt
    assert got == seen
    assert not buffer.undecoded
    if ends_corrupt:
        assert isinstance(buffer.error, CorruptRecord)
        assert buffer.error.offset == end
    else:
        assert position == end
        memory.settle()
        assert memory.bytes == 0


@pytest.mark.parametrize(
    "batches", [["messages", "plain", "messages"], ["plain", "messages"], ["messages", "aborted"]], ids="-".join
)
def test_a_batch_that_is_opened_while_others_are_put_back_before_it(batches: list[str]) -> None:
    """A thread opens the last one when the call that waits for it is cancelled, and puts back the rows before it."""
    data, seen, aborted, end = log(batches)
    last = log(batches[:-1])[3]
    memory = FrameMemory()
    buffer = PartitionBuffer(TP, 1, 0, Limits(), memory)
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(data), aborted))
    while (unread := buffer.unopened()) is None or unread.header.base_offset < last:
        buffer.append(new_builder(COLUMNS, "ms"), 9, 1 << 20, END)
    opened = buffer.open(unread)
    buffer.rewind()
    buffer.opened(unread, opened)

    assert len(unread.view) == 0
    while buffer.undecoded:
        buffer.decode(100)
    records, after = buffer.take(100)
    assert ([record.offset for record in records], after) == (seen, end)
    memory.settle()
    assert memory.bytes == 0


@pytest.mark.parametrize("is_put_back", [False, True])
@pytest.mark.parametrize(
    ("kind", "method", "as_columns"),
    [
        (MessageReader, "mark", False),
        (MessageReader, "mark", True),
        (FrameMemory, "lend", False),
        (FrameMemory, "trim", False),
        (FrameMemory, "trim", True),
    ],
    ids=["records of a batch", "rows of a batch", "records of a run", "the rest of a run", "the rest of a run of rows"],
)
@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_what_is_taken_is_not_lost_when_memory_is_short(
    kind: type[Any], method: str, fails_at: int, as_columns: bool, is_put_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is behind it by then. To take rows must not fail at all: all of a call's are in one batch."""
    data, seen, _, _ = log(["plain", "plain", "messages", "plain"])
    right, attempts = getattr(kind, method), itertools.count(1)

    def short_of_memory(*arguments: Any) -> Any:
        if next(attempts) == fails_at:
            raise MemoryError
        return right(*arguments)

    monkeypatch.setattr(kind, method, short_of_memory)
    buffer = PartitionBuffer(TP, 1, 0, Limits())
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(data)))
    got: list[int] = []
    while buffer.undecoded or buffer.ready:
        if as_columns:
            builder = new_builder(("offset",), "ms")
            try:
                buffer.append(builder, 2, 1 << 20, END)
            except MemoryError:
                buffer.rewind()
                continue
            buffer.take_appended()
            got += pa.record_batch(builder.finish()).column("offset").to_pylist()
            continue
        with suppress(MemoryError):
            buffer.decode(2)
            got += [record.offset for record in buffer.take(2)[0]]
        if is_put_back:
            buffer.rewind()
    assert got == seen


def test_runs_that_were_decoded_to_their_end_stay_where_memory_is_short_to_hand_them_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next call wants columns, and puts back what was decoded."""
    data, seen, _, _ = log(["plain"] * 6)
    first, _, _, end = log(["plain"] * 3)
    buffer = PartitionBuffer(TP, 1, 0, Limits())
    for part, at in ((data[: len(first)], 0), (data[len(first) :], end)):
        buffer.add(FetchedPartition(TP, 1, at, memoryview(part)))
    while len(buffer.ready) <= end:
        buffer.decode(end + 1 - len(buffer.ready))
    with monkeypatch.context() as short:
        short.setattr(FrameMemory, "lend", Mock(side_effect=MemoryError))
        with pytest.raises(MemoryError):
            buffer.take(100)
    buffer.rewind()
    while buffer.undecoded:
        buffer.decode(100)
    assert [record.offset for record in buffer.take(100)[0]] == seen


@pytest.mark.parametrize("is_put_back", [False, True])
@pytest.mark.parametrize("as_columns", [False, True])
def test_what_lies_before_the_position_is_skipped_by_the_thread(
    as_columns: bool, is_put_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of thousands of messages would take the event loop a quarter of a second, after each put_back again."""
    skipped = 0
    skip_to = MessageReader._skip_to

    def counts(self: MessageReader, wanted: int) -> None:
        nonlocal skipped
        before = self.remaining
        skip_to(self, wanted)
        skipped += before - self.remaining

    monkeypatch.setattr(MessageReader, "_skip_to", counts)
    data = message_set([Message(b"v", offset=at) for at in range(1000)], 1, Codec.GZIP)
    buffer = PartitionBuffer(TP, 1, 500, Limits())
    buffer.add(FetchedPartition(TP, 1, 500, memoryview(data)))
    unread = buffer.unopened()
    assert unread is not None
    opened = buffer.open(unread)
    assert skipped == 500
    buffer.opened(unread, opened)

    got: list[int] = []
    steps = 0
    while buffer.undecoded:
        builder = new_builder(("offset",), "ms")
        if as_columns:
            buffer.append(builder, 100, 1 << 20, END)
        else:
            buffer.decode(100)
        steps += 1
        if is_put_back and steps % 2:
            buffer.rewind()
            continue
        if as_columns:
            buffer.take_appended()
            got += pa.record_batch(builder.finish()).column("offset").to_pylist()
        else:
            got += [record.offset for record in buffer.take(100)[0]]
    assert got == list(range(500, 1000))
    assert skipped == 500


@settings(deadline=None)
@given(kinds, st.integers(0, 40), st.integers(1, 9))
def test_no_row_behind_the_end_of_a_range(batches: list[str], until: int, count: int) -> None:
    data, seen, aborted, end = log(batches)
    buffer = PartitionBuffer(TP, 1, 0, Limits(check_crcs=False))
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(data), aborted))
    builder = new_builder(("offset",), "ms")
    for _ in range(200):
        if not buffer.undecoded or buffer.next >= until:
            break
        buffer.append(builder, count, 1 << 20, until)
    assert buffer.next >= min(until, end)
    offsets = pa.record_batch(builder.finish()).column("offset").to_pylist()
    assert offsets == [offset for offset in seen if offset < until]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["plain", "compacted", "hollow"]), min_size=2, max_size=9), st.data())
def test_a_batch_of_a_run_that_is_not_what_was_sent(batches: list[str], data: st.DataObject) -> None:
    """What is before it comes first; the error names its own offset, however it is read."""
    log_bytes, seen, _, _ = log(batches)
    whole = bytearray(log_bytes)
    starts = [0]
    for _ in batches[1:]:
        starts.append(starts[-1] + 12 + int.from_bytes(whole[starts[-1] + 8 : starts[-1] + 12], "big"))
    number = data.draw(st.integers(0, len(batches) - 1))
    whole[starts[number] + 40] ^= 1  # of its greatest timestamp: only the CRC detects it
    errors = []
    for as_columns in (False, True):
        memory = FrameMemory()
        buffer = PartitionBuffer(TP, 1, 0, Limits(), memory)
        buffer.add(FetchedPartition(TP, 1, 0, memoryview(bytes(whole))))
        builder = new_builder(("offset",), "ms")
        got: list[int] = []
        rows = data.draw(st.integers(1, 30))
        while buffer.undecoded:
            if as_columns:
                buffer.append(builder, rows, 1 << 20, END)
                if data.draw(st.booleans()):
                    buffer.rewind()
                    builder = new_builder(("offset",), "ms")
                    while buffer.undecoded:
                        buffer.append(builder, 30, 1 << 20, END)
                got += pa.record_batch(builder.finish()).column("offset").to_pylist()
                assert buffer.take_appended() == buffer.next
            else:
                buffer.decode(rows)
                got += [record.offset for record in buffer.take(1 << 30)[0]]
        assert got == [offset for offset in seen if offset < 7 * number]
        memory.settle()
        assert memory.bytes == 0
        error = buffer.error
        assert isinstance(error, CorruptRecord)
        errors.append((str(error), error.topic, error.partition, error.offset))
    assert errors[0] == errors[1]
    assert errors[0][3] == 7 * number


def test_an_error_names_the_broker_that_has_sent_its_batch() -> None:
    """Not the one that sent last: the leader may have moved while the batch lay here."""
    good, bad, more = (bytearray(log(["plain"] * 3)[0][at : at + size]) for at, size in three_batches())
    bad[40] ^= 1  # of its greatest timestamp: only the CRC detects it
    buffer = PartitionBuffer(TP, 1, 0, Limits())
    for offset, broker, batch in ((0, 1, good), (7, 2, bad), (14, 3, more)):
        buffer.add(FetchedPartition(TP, 1, offset, memoryview(bytes(batch)), broker=broker))
    while buffer.undecoded:
        buffer.decode(10)

    assert isinstance(buffer.error, CorruptRecord)
    assert buffer.error.broker == 2
    assert str(buffer.error).startswith("t-0 at offset 7, from broker 2: ")


def test_an_error_in_a_header_names_the_offset_behind_the_batches_before_it() -> None:
    """It is found as the bytes arrive, before any record of those batches is decoded: seek() past it is to lead on."""
    good, bad, _ = (bytearray(log(["plain"] * 3)[0][at : at + size]) for at, size in three_batches())
    bad[16] = 6  # the magic
    buffer = PartitionBuffer(TP, 1, 0, Limits())
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(bytes(good + bad)), broker=2))
    buffer.decode(10)
    assert len(buffer.ready) == 7
    assert str(buffer.error) == "t-0 at offset 7, from broker 2: 6 is no magic of a record batch"


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("until", [94, 95, 99])
@pytest.mark.parametrize("columns", [True, False])
def test_a_range_that_ends_inside_a_message_set_needs_that(columns: bool, until: int, magic: int) -> None:
    """Only the last offset of a compressed one is known. If that is behind the range, its first ones are not."""
    messages = [Message(b"v", offset=offset) for offset in range(90, 96)]
    data = bytearray(message_set(messages, magic, Codec.GZIP))
    data[-12] ^= 1
    buffer = PartitionBuffer(TP, 1, 90, Limits(), until=until)
    buffer.add(FetchedPartition(TP, 1, 90, memoryview(bytes(data))))
    if columns:
        assert buffer.append(new_builder(("offset",), "ms"), 10, 1 << 20, until) == 0
    else:
        buffer.decode(10)
    assert isinstance(buffer.error, CorruptRecord)
    assert (buffer.next, len(buffer.ready)) == (90, 0)


@pytest.mark.parametrize("sent", ["the beginning of a batch", "a batch before the position"])
def test_bytes_that_bring_the_reader_no_further_are_an_error(sent: str) -> None:
    """Otherwise the same bytes would be fetched again and again: the partition would stand still without an error."""
    batch, _, _, end = log(["plain"])
    buffer = PartitionBuffer(TP, 1, end, Limits())
    data = batch[: len(batch) // 2] if sent == "the beginning of a batch" else batch
    buffer.add(FetchedPartition(TP, 1, end, memoryview(data), broker=3))

    assert isinstance(buffer.error, RecordError)
    assert str(buffer.error).startswith("t-0 at offset 7, from broker 3: the broker sent bytes without one complete")
    assert buffer.end == end


def test_a_batch_that_is_larger_than_it_looks_is_opened_at_the_second_attempt() -> None:
    """A thread can open it in between: some hundred bytes become 600 kB, which would hold the event loop."""
    buffer = PartitionBuffer(TP, 1, 0, Limits(max_decompressed_bytes=1 << 20))
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(encode_batch([NewRecord(bytes(600_000))], codec=Codec.GZIP))))
    assert (unread := buffer.unopened()) is None or not unread.is_large
    buffer.decode(1)
    assert (unread := buffer.unopened()) is not None
    assert (unread.is_large, len(buffer.ready), buffer.error) == (True, 0, None)
    buffer.decode(1)
    assert [len(record.value or b"") for record in buffer.ready] == [600_000]


@pytest.mark.parametrize(("limit", "attempts"), [(100_000, 1), (550_000, 2)])
def test_a_batch_that_is_larger_than_the_limit_is_an_error(limit: int, attempts: int) -> None:
    buffer = PartitionBuffer(TP, 1, 0, Limits(max_decompressed_bytes=limit))
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(encode_batch([NewRecord(bytes(600_000))], codec=Codec.GZIP))))
    for _ in range(attempts):
        assert buffer.error is None
        buffer.decode(1)
    assert isinstance(buffer.error, RecordTooLarge)


def test_brokers_of_what_was_taken_are_forgotten() -> None:
    batches = log(["plain"] * 3)[0]
    buffer = PartitionBuffer(TP, 1, 0, Limits())
    for number, (at, size) in enumerate(three_batches()):
        buffer.add(FetchedPartition(TP, 1, 7 * number, memoryview(batches[at : at + size]), broker=number))
        while buffer.undecoded:
            buffer.decode(10)
        buffer.take(10)

    assert buffer._senders == ((14, 2),)


def three_batches() -> list[tuple[int, int]]:
    """Where each batch of ``log(["plain"] * 3)`` begins, and its size."""
    batches, at, found = log(["plain"] * 3)[0], 0, list[tuple[int, int]]()
    while at < len(batches):
        size = 12 + int.from_bytes(batches[at + 8 : at + 12], "big")
        found.append((at, size))
        at += size
    return found


def test_a_step_makes_a_megabyte_of_records_or_one() -> None:
    """Otherwise two thousand records of 60 kB would be copied in one step, and hold the event loop for as long."""
    buffer = PartitionBuffer(TP, 1, 0, Limits())
    values = [b"%04d" % number * 25_000 for number in range(40)]
    data = encode_batch([NewRecord(value) for value in values])
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(data)))
    buffer.decode(2048)
    assert 5 <= len(buffer.ready) <= 10
    while buffer.undecoded:
        buffer.decode(2048)
    assert [record.value for record in buffer.ready] == values


def test_the_queue_of_batches_is_nothing_for_the_collector_of_garbage_and_keeps_no_cycle_alive() -> None:
    """The traceback of a buffer's error may refer to the buffer, and so to its queue."""
    memory = FrameMemory()
    buffer = PartitionBuffer(TP, 1, 0, Limits(), memory)
    assert buffer.add_run(memoryview(encode_batch([NewRecord(b"v")])), 0, broker=1)
    assert [gc.is_tracked(one) for one in (buffer._kept, buffer._kept.unread)] == [not UNTRACKS] * 2
    buffer.error = RecordError("of this buffer")
    buffer.error.cause = buffer  # type: ignore[attr-defined]
    freed = weakref.ref(memory)
    del buffer, memory
    gc.collect()
    assert freed() is None


def test_what_was_taken_stays_taken_when_the_rest_is_decoded_again() -> None:
    batches = log(["plain"] * 3)[0]
    buffer = PartitionBuffer(TP, 1, 0, Limits())
    for number, (at, size) in enumerate(three_batches()):
        assert buffer.add_run(memoryview(batches[at : at + size]), 7 * number, broker=1)
    buffer.decode(7)
    buffer.decode(7)
    assert [record.offset for record in buffer.take(14)[0]] == list(range(14))
    buffer.decode(7)
    buffer.rewind()
    assert not buffer.ready
    buffer.decode(7)
    assert [record.offset for record in buffer.take(7)[0]] == list(range(14, 21))
    assert buffer.empty
