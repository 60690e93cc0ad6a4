"""A frame counts as a whole while one of its batches is unread; if little is left unread, that is copied, and the frame
freed.
"""

from __future__ import annotations

import pytest

from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.partition import frame_memory
from aiokc.core.fetch.partition.fetched_partition import FetchedPartition
from aiokc.core.fetch.partition.frame_memory import FrameMemory, Unread
from aiokc.core.subscription.state import Subscription
from aiokc.records import NewRecord, encode_batch, split_batches
from aiokc.types import TopicPartition
from aiokc.wire import FrameBuffers

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def batch(first: int, size: int, codec: int = 0) -> bytes:
    return encode_batch([NewRecord(value=bytes(size))], base_offset=first, codec=codec)


def unread_of(data: bytes | bytearray) -> list[Unread]:
    return [Unread(header, view, None) for header, view in split_batches(memoryview(data))]


def reading(*partitions: TopicPartition) -> Subscription:
    subscription = Subscription()
    subscription.assign(partitions)
    for tp in partitions:
        subscription.seek(tp, 0)
    return subscription


def test_a_frame_counts_as_a_whole_until_its_last_batch_is_freed() -> None:
    memory, frame = FrameMemory(), b"".join(batch(n, 1000) for n in range(2))
    first, second = unread_of(frame)
    memory.hold(first)
    memory.hold(second)
    assert memory.bytes == len(frame)
    memory.free(first)
    assert memory.bytes == len(frame), "half of it is unread"
    memory.free(second)
    memory.free(second)
    assert memory.bytes == 0


def held(memory: FrameMemory, data: bytes | bytearray) -> list[Unread]:
    """Hold all batches of one frame."""
    batches = unread_of(data)
    for one in batches:
        memory.hold(one)
    return batches


def test_what_is_left_of_a_frame_is_copied_when_it_is_little_and_stands_still() -> None:
    """A partition that is never read must not keep the memory of what came for all the others."""
    memory, frame, newer = FrameMemory(), b"".join(batch(n, 1000) for n in range(10)), batch(0, 10)
    batches = held(memory, frame)
    owner, rest = batches[-1].view.obj, batches[8:]
    for one in batches[:8]:
        memory.free(one)
    assert memory.bytes == len(frame)
    held(memory, bytes(newer))
    assert memory.bytes == len(frame) + len(newer), "it was read from before this one came"
    held(memory, bytes(bytearray(newer)))
    assert memory.bytes == sum(one.header.size for one in rest) + 2 * len(newer)
    assert all(one.view.obj is not owner for one in rest)
    assert [bytes(one.view) for one in rest] == [batch(8, 1000), batch(9, 1000)]
    for one in rest:
        memory.free(one)
    assert memory.bytes == 2 * len(newer)


@pytest.mark.parametrize("freed", [None, 0, 2], ids=["nothing is freed", "the copied one is", "the last one is"])
def test_what_is_much_is_copied_in_steps(freed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a frame of 50 MB would hold the event loop for long."""
    monkeypatch.setattr(frame_memory, "_COPIED_AT_ONCE", 1)
    buffers = FrameBuffers(1 << 20)
    memory, frame = FrameMemory(buffers), bytearray(b"".join(batch(n, 1000) for n in range(20)))
    rest = held(memory, frame)
    for one in rest[3:]:
        memory.free(one)
    newer = held(memory, batch(0, 10)) + held(memory, bytes(bytearray(batch(0, 10))))
    assert [one.view.obj is frame for one in rest[:3]] == [False, True, True]
    memory.replace()
    assert [one.view.obj is frame for one in rest[:3]] == [False, False, True], "the last one is still to be copied"
    assert memory.bytes >= len(frame) + 2000, "it counts, and its copies do"
    if freed is not None:
        memory.free(rest[freed])
    memory.replace()
    assert not memory.is_replacing
    memory.replace()
    left = [one for index, one in enumerate(rest[:3]) if index != freed]
    assert memory.bytes == sum(one.header.size for one in left + newer)
    assert buffers.spare_bytes == len(frame)
    for one in left + newer:
        memory.free(one)
    assert memory.bytes == 0


@pytest.mark.parametrize("copied", [0, 1], ids=["nothing is copied", "one batch is"])
def test_what_is_left_of_a_frame_stays_where_it_is_without_memory_for_copies(
    copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They only save memory. What comes is stored all the same, and the next frame that comes tries it again."""
    copies = 0

    def mostly(data: memoryview) -> bytes:
        nonlocal copies
        copies += 1
        if copies == copied + 1:
            raise MemoryError
        return bytes(data)

    memory, frame = FrameMemory(), b"".join(batch(n, 1000) for n in range(10))
    batches = held(memory, frame)
    for one in batches[:8]:
        memory.free(one)
    rest = batches[8:]
    newer = held(memory, batch(0, 10))
    monkeypatch.setattr(frame_memory, "bytes", mostly, raising=False)
    newer += held(memory, bytes(bytearray(batch(0, 10))))
    assert [one.view.obj is frame for one in rest] == [index >= copied for index in range(2)]
    assert not memory.is_replacing, "or whoever makes the next steps would go on for ever"
    newer += held(memory, bytes(bytearray(batch(0, 10))))
    assert [one.view.obj is frame for one in rest] == [False, False]
    assert [bytes(one.view) for one in rest] == [batch(8, 1000), batch(9, 1000)]
    assert memory.bytes == sum(one.header.size for one in rest + newer)
    for one in rest + newer:
        memory.free(one)
    assert memory.bytes == 0


def test_a_frame_that_is_read_slowly_is_not_copied() -> None:
    memory, frame = FrameMemory(), b"".join(batch(n, 1000) for n in range(10))
    batches = held(memory, frame)
    owner = batches[0].view.obj
    for one in batches[:9]:
        memory.free(one)
        held(memory, bytes(bytearray(batch(0, 10))))
    assert batches[9].view.obj is owner


def test_one_that_stands_still_and_is_mostly_unread_hides_no_other() -> None:
    memory = FrameMemory()
    full = held(memory, b"".join(batch(n, 1000) for n in range(10)))
    nearly_read = held(memory, b"".join(batch(n, 2000) for n in range(10)))
    owners = full[0].view.obj, nearly_read[9].view.obj
    for one in nearly_read[:9]:
        memory.free(one)
    for _ in range(4):
        held(memory, bytes(bytearray(batch(0, 10))))
    assert full[0].view.obj is owners[0]
    assert nearly_read[9].view.obj is not owners[1]


def test_the_buffer_of_a_frame_is_given_back_with_its_last_batch() -> None:
    buffers = FrameBuffers(1 << 20)
    memory, frame = FrameMemory(buffers), bytearray(b"".join(batch(n, 1000) for n in range(2)))
    first, second = held(memory, frame)
    memory.free(first)
    assert buffers.spare_bytes == 0
    memory.free(second)
    assert buffers.spare_bytes == len(frame)
    assert buffers.take(len(frame)) is frame


def test_spare_buffers_count() -> None:
    subscription, buffers = reading(A0), FrameBuffers(1 << 20)
    buffer, frame = FetchBuffer(buffers=buffers), bytearray(batch(0, 1000))
    buffer.add(FetchedPartition(A0, subscription[A0].token, 0, memoryview(frame)), subscription[A0])
    subscription.seek(A0, 0)
    buffer.drop(A0)
    assert buffer.bytes == buffers.spare_bytes == len(frame)


def test_decompressed_bytes_count_until_the_last_record_is_taken() -> None:
    subscription, buffer = reading(A0), FetchBuffer()
    compressed = encode_batch([NewRecord(value=bytes(1000)) for _ in range(100)], base_offset=0, codec=3)
    assert len(compressed) < 5000
    buffer.add(FetchedPartition(A0, subscription[A0].token, 0, memoryview(compressed)), subscription[A0])
    assert buffer.bytes == len(compressed)
    ((part, position),) = buffer.servable(subscription)
    part.decode(10)
    assert buffer.bytes > 100_000
    part.take(5)
    assert buffer.bytes > 100_000
    while part.undecoded:
        part.decode(50)
    subscription.hand_out(A0, part.take(1000)[1], None)
    buffer.served(part, position)
    buffer.settle()
    assert buffer.bytes == buffer._memory.spare_bytes, "what is kept to unpack the next batches to"


def test_what_is_dropped_counts_no_more_also_when_a_thread_is_still_at_it() -> None:
    subscription, buffer = reading(A0, A1), FetchBuffer()
    frame = memoryview(batch(0, 300_000) * 2)  # too large for a run: it has to be opened
    half = len(frame) // 2
    for tp, part in ((A0, frame[:half]), (A1, frame[half:])):
        buffer.add(FetchedPartition(tp, subscription[tp].token, 0, part), subscription[tp])
    assert buffer.bytes == len(frame)
    (one, _), _ = buffer.servable(subscription)
    unread = one.unopened()
    assert unread is not None
    opened = one.open(unread)
    subscription.seek(A0, 0)
    buffer.drop(A0)
    one.opened(unread, opened)
    one.decode(10)
    assert buffer.bytes == len(frame), "the other half is unread"
    subscription.seek(A1, 0)
    buffer.drop(A1)
    assert buffer.bytes == 0
