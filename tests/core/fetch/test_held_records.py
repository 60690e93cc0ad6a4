"""What records that were handed out keep in memory: their frame until they are settled, their own part after that."""

from __future__ import annotations

import sysconfig
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.partition import frame_memory
from aiokc.core.fetch.partition.fetched_partition import FetchedPartition, Limits
from aiokc.core.fetch.partition.frame_memory import FrameMemory
from aiokc.core.fetch.partition.partition_buffer import PartitionBuffer
from aiokc.core.fetch.partition.record_sequence import RecordSequence
from aiokc.records import NATIVE, NewRecord, encode_batch
from aiokc.types import RawRecord, TopicPartition
from aiokc.wire import FrameBuffers

from .test_fetch import A0, A1, reading
from .test_partition_buffer import kinds, log

pytestmark = pytest.mark.skipif(
    not NATIVE or bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="only the spans in C refer to a frame"
)

TP: Final = TopicPartition("t", 0)


def frame_of(batches: int, start: int = 0, size: int = 1000) -> bytearray:
    frame = bytearray()
    for offset in range(start, start + 2 * batches, 2):
        records = [NewRecord(b"%04d" % number * (size // 4)) for number in (offset, offset + 1)]
        frame += encode_batch(records, base_offset=offset)
    return frame


def has_views(frame: bytearray) -> bool:
    try:
        frame.append(0)
    except BufferError:
        return True
    frame.pop()
    return False


class One:
    """A buffer of one partition, with frames that come one after the other."""

    def __init__(self) -> None:
        self.buffers = FrameBuffers(1 << 20)
        self.memory = FrameMemory(self.buffers)
        self.part = PartitionBuffer(TP, 1, 0, Limits(), self.memory)

    def arrives(self, batches: int) -> bytearray:
        frame = frame_of(batches, self.part.end)
        self.part.add(FetchedPartition(TP, 1, self.part.end, memoryview(frame)))
        return frame

    def take(self, count: int = 1 << 30) -> RecordSequence[bytes | None, bytes | None]:
        self.part.decode(count)
        return self.part.take(count)[0]


def offsets(records: RecordSequence[bytes | None, bytes | None]) -> list[int]:
    assert all(record.value == b"%04d" % record.offset * 250 for record in records)
    return [record.offset for record in records]


def test_a_frame_counts_until_its_records_are_settled() -> None:
    one = One()
    frame = one.arrives(5)
    size = len(frame)
    records = one.take()
    assert (one.memory.bytes, one.buffers.spare_bytes) == (size, 0)
    assert not one.part.undecoded
    assert has_views(frame)
    one.memory.settle()
    assert (one.memory.bytes, one.buffers.spare_bytes) == (0, size)
    assert not has_views(frame)
    assert one.buffers.take(size) is frame
    frame[:] = bytes(size)
    assert offsets(records) == list(range(10))


def test_nothing_is_copied_of_what_nobody_holds() -> None:
    one = One()
    frame = one.arrives(5)
    records = one.take()
    kept = list(records)[3:5]
    del records
    one.memory.settle()
    assert not has_views(frame)
    assert [record.offset for record in kept] == [3, 4], "records have bytes of their own"


def test_half_of_a_frame_is_handed_out() -> None:
    """What is unread of it keeps the frame; the records that were handed out have copies after all."""
    one = One()
    frame = one.arrives(5)
    first = one.take(3)
    one.memory.settle()
    (span,) = first.parts
    assert span.is_detached
    assert one.memory.bytes == len(frame)
    second = one.take()
    one.memory.settle()
    assert one.memory.bytes == 0
    assert not has_views(frame)
    assert (offsets(first), offsets(second)) == ([0, 1, 2], list(range(3, 10)))


def test_a_copy_is_of_these_records_only() -> None:
    """Not of the batch that they are in: one record of each of many batches would keep them all."""
    one = One()
    data = encode_batch([NewRecord(bytes(1000))] * 200)
    one.part.add(FetchedPartition(TP, 1, 0, memoryview(data + encode_batch([NewRecord(b"v")], base_offset=200))))
    one.part.decode(2)
    records, _ = one.part.take(2)
    (span,) = records.parts
    one.memory.settle()
    assert span.size < 2100
    assert len(list(records)) == 2


def test_one_step_copies_a_small_part_of_much_that_is_held() -> None:
    """It would hold the event loop for tens of milliseconds otherwise: a result of 50 MB is nothing special."""
    one = One()
    frame = frame_of(160, size=50_000)
    one.part.add(FetchedPartition(TP, 1, 0, memoryview(frame)))
    while one.part.undecoded:
        one.part.decode(1 << 30)
    spans = one.part.take(1 << 30)[0].parts
    steps = []
    while not one.memory.is_settled:
        before = sum(span.size for span in spans if span.is_detached)
        assert one.memory.settle()
        steps.append(sum(span.size for span in spans if span.is_detached) - before)
        counts = len(frame) if sum(steps) < sum(span.size for span in spans) else 0
        assert one.memory.bytes == counts, "it counts until all of it is settled"
    assert sum(steps) > 15 << 20
    assert max(steps) < 2.5 * (1 << 20)
    assert not one.memory.settle()
    assert not has_views(frame)


def test_what_nobody_holds_is_settled_in_one_step_however_much_it_is() -> None:
    one = One()
    frame = one.arrives(2000)
    while one.part.undecoded:
        one.part.decode(100)
    one.part.take(1 << 30)
    assert one.memory.settle()
    assert one.memory.is_settled
    assert one.memory.bytes == 0
    assert not has_views(frame)


def test_records_that_were_decoded_again_keep_nothing() -> None:
    one = One()
    frame = one.arrives(5)
    one.part.decode(4)
    one.part.rewind()
    records = one.take()
    one.memory.settle()
    assert one.memory.bytes == 0
    assert offsets(records) == list(range(10))
    del records
    assert not has_views(frame)


@pytest.mark.parametrize("is_taken", [False, True])
def test_what_is_dropped_counts_until_it_is_settled(is_taken: bool) -> None:
    one = One()
    frame = one.arrives(5)
    one.part.decode(4)
    records = one.part.take(4)[0] if is_taken else one.part.ready
    one.part.drop()
    assert one.memory.bytes == len(frame)
    one.memory.settle()
    assert one.memory.bytes == 0
    assert not has_views(frame)
    assert offsets(records) == [0, 1, 2, 3]


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_frame_that_lies_there_for_long_is_replaced_by_copies(is_taken: bool) -> None:
    """Records that wait for a paused partition, or for a slow application, must not keep the megabytes of a frame."""
    one = One()
    others = PartitionBuffer(TopicPartition("u", 0), 1, 0, Limits(), one.memory)
    frame = frame_of(2) + frame_of(20)
    size = len(frame_of(2))
    one.part.add(FetchedPartition(TP, 1, 0, memoryview(frame)[:size]))
    others.add(FetchedPartition(others.tp, 1, 0, memoryview(frame)[size:]))
    others.decode(1 << 20)
    others.take(1 << 20)
    one.memory.settle()
    one.part.decode(3)
    records = one.part.take(3)[0] if is_taken else one.part.ready
    later = 0
    for _ in range(2):
        later += len(one.arrives(1))
    assert one.memory.bytes <= later + size, "what was not decoded is copied"
    assert not has_views(frame)
    frame[:] = bytes(len(frame))
    assert offsets(records) == [0, 1, 2]
    rest = one.take()
    while one.part.undecoded:
        one.part.decode(10)
    assert offsets(rest) + offsets(one.part.take(10)[0]) == (list(range(3, 8)) if is_taken else list(range(8)))
    one.memory.settle()
    assert one.memory.bytes == 0


def test_without_memory_to_copy_what_was_handed_out_its_frame_stays_and_what_comes_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever stores what comes must not end by that: the next poll settles it, or a frame that comes later does."""

    def no_memory(*_: object) -> int:
        raise MemoryError

    one = One()
    frame = one.arrives(5)
    records = one.take(8)
    one.arrives(1)
    with monkeypatch.context() as patch:
        patch.setattr(frame_memory, "detach_held", no_memory)
        one.arrives(1)
    assert has_views(frame)
    one.arrives(1)
    assert not has_views(frame)
    assert offsets(records) == list(range(8))
    assert offsets(one.take()) == [8, 9]
    while one.part.undecoded:
        one.take()
    one.memory.settle()
    assert one.memory.bytes == 0


def test_a_frame_of_which_all_was_taken_is_let_go_when_others_have_come() -> None:
    one = One()
    frame = one.arrives(5)
    records = one.take()
    for _ in range(2):
        one.arrives(1)
    assert not has_views(frame)
    assert offsets(records) == list(range(10))
    while one.part.undecoded:
        one.take()
    one.memory.settle()
    assert one.memory.bytes == 0


def test_a_revoked_partition_leaves_what_was_handed_out() -> None:
    subscription, buffer = reading(A0, A1), FetchBuffer()
    frame = frame_of(3)
    buffer.add(FetchedPartition(A0, subscription[A0].token, 0, memoryview(frame)), subscription[A0])
    ((part, _),) = buffer.servable(subscription)
    part.decode(4)
    records, after = part.take(4)
    subscription.hand_out(A0, after, None)
    subscription.replace([A1])
    buffer.drop(A0)
    buffer.settle()
    assert buffer.bytes == 0
    assert not has_views(frame)
    assert offsets(records) == [0, 1, 2, 3]


some_steps: Final = st.lists(st.tuples(st.sampled_from(["take", "part", "settle", "rewind"]), st.integers(1, 9)))


@settings(deadline=None)
@given(kinds, some_steps)
def test_whatever_is_held_stays_as_it_is(batches: list[str], steps: list[tuple[str, int]]) -> None:
    data, seen, aborted, _ = log(batches)
    frame = bytearray(data)
    memory = FrameMemory()
    buffer = PartitionBuffer(TP, 1, 0, Limits(check_crcs=False), memory)
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(frame), aborted))
    held: list[RecordSequence[bytes | None, bytes | None]] = []
    halves: list[tuple[list[RawRecord], object]] = []
    for step, count in [*steps, *[("take", 9)] * 30]:
        if step == "settle":
            memory.settle()
        elif step == "rewind":
            buffer.decode(count)
            buffer.rewind()
        else:
            buffer.decode(count)
            records, _ = buffer.take(count if step == "take" else 1)
            held.append(records)
            iterator = iter(records)
            halves.append(([record for _, record in zip(range(count // 2), iterator, strict=False)], iterator))
    buffer.drop()
    memory.settle()
    assert memory.bytes == 0
    assert not has_views(frame)
    frame[:] = bytes(len(frame))
    assert [record.offset for records in held for record in records] == seen
    for records, (first, rest) in zip(held, halves, strict=True):
        assert [*first, *rest] == records  # type: ignore[misc]
    assert all(record.key == b"%d" % record.offset for records in held for record in records)
