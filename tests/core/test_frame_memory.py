"""Frames are counted as long as one batch of them is unread, and given up for copies when little is."""

from __future__ import annotations

from aiokc.core.fetch_buffer import FetchBuffer, Fetched
from aiokc.core.frame_memory import FrameMemory, Unread
from aiokc.core.subscription import Subscription
from aiokc.records import NewRecord, encode_batch, split_batches
from aiokc.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def batch(first: int, size: int, codec: int = 0) -> bytes:
    return encode_batch([NewRecord(value=bytes(size))], base_offset=first, codec=codec)


def unread_of(data: bytes) -> list[Unread]:
    return [Unread(header, view, None) for header, view in split_batches(memoryview(data))]


def reading(*partitions: TopicPartition) -> Subscription:
    subscription = Subscription()
    subscription.assign(partitions)
    for tp in partitions:
        subscription.seek(tp, 0)
    return subscription


def test_a_frame_counts_as_a_whole_until_its_last_batch_is_released() -> None:
    memory, frame = FrameMemory(), b"".join(batch(n, 1000) for n in range(2))
    first, second = unread_of(frame)
    memory.hold(first)
    memory.hold(second)
    assert memory.bytes == len(frame)
    memory.release(first)
    assert memory.bytes == len(frame), "half of it is unread"
    memory.release(second)
    memory.release(second)
    assert memory.bytes == 0


def test_what_is_left_of_a_frame_is_copied_when_it_is_little() -> None:
    """A partition that nobody reads must not keep what came for all the others."""
    memory, frame = FrameMemory(), b"".join(batch(n, 1000) for n in range(10))
    batches = unread_of(frame)
    for one in batches:
        memory.hold(one)
    owner = batches[-1].view.obj
    for one in batches[:8]:
        memory.release(one)
    rest = batches[8:]
    assert memory.bytes == sum(len(one.view) for one in rest) == sum(one.header.size for one in rest)
    assert all(one.view.obj is not owner for one in rest)
    assert [bytes(one.view) for one in rest] == [batch(8, 1000), batch(9, 1000)]
    for one in rest:
        memory.release(one)
    assert memory.bytes == 0


def test_decompressed_bytes_count_until_the_last_record_is_taken() -> None:
    subscription, buffer = reading(A0), FetchBuffer()
    compressed = encode_batch([NewRecord(value=bytes(1000)) for _ in range(100)], base_offset=0, codec=3)
    assert len(compressed) < 5000
    buffer.add(Fetched(A0, subscription[A0].token, 0, memoryview(compressed)), subscription[A0])
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
    assert buffer.bytes == 0


def test_what_is_dropped_counts_no_more_also_when_a_thread_is_still_at_it() -> None:
    subscription, buffer = reading(A0, A1), FetchBuffer()
    frame = memoryview(batch(0, 1000) + batch(0, 1000))
    half = len(frame) // 2
    for tp, part in ((A0, frame[:half]), (A1, frame[half:])):
        buffer.add(Fetched(tp, subscription[tp].token, 0, part), subscription[tp])
    assert buffer.bytes == len(frame)
    (one, _), _ = buffer.servable(subscription)
    unread = one.unopened()
    assert unread is not None
    opened = one.open(unread)
    subscription.seek(A0, 0)
    buffer.forget_stale(A0, subscription)
    one.opened(unread, opened)
    one.decode(10)
    assert buffer.bytes == len(frame), "the other half is unread"
    subscription.seek(A1, 0)
    buffer.forget_stale(A1, subscription)
    assert buffer.bytes == 0
