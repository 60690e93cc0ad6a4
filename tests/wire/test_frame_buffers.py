"""FrameBuffers: the buffers of long frames are used again, but never while a view of one exists."""

from __future__ import annotations

import pytest

from aiokc.wire import FrameAssembler, FrameBuffers

MIB = 1 << 20


def test_a_buffer_comes_back_for_a_frame_of_about_its_length() -> None:
    buffers, buffer = FrameBuffers(8 * MIB), bytearray(2 * MIB)
    buffers.give_back(buffer)
    assert buffers.spare_bytes == 2 * MIB
    assert buffers.take(MIB - 1) is not buffer, "all of it would count for as long as the frame is kept"
    assert buffers.take(3 * MIB) is buffer
    assert buffers.spare_bytes == 0
    assert len(buffer) == 2 * MIB
    assert buffers.take(2 * MIB) == b"", "it is taken"


def test_the_nearest_length_is_taken() -> None:
    buffers, lengths = FrameBuffers(8 * MIB), [100_000, 300_000, 200_000]
    for length in lengths:
        buffers.give_back(bytearray(length))
    assert [len(buffers.take(210_000)) for _ in lengths] == [200_000, 300_000, 100_000]


def test_a_buffer_with_a_view_is_not_handed_out() -> None:
    buffers, buffer = FrameBuffers(8 * MIB), bytearray(b"x" * MIB)
    part = memoryview(buffer)[100:200][5:6]
    buffers.give_back(buffer)
    assert buffers.take(MIB) == b""
    assert bytes(part) == b"x"
    assert buffers.spare_bytes == 0, "whoever looks at it keeps it"
    del part
    buffers.give_back(buffer)
    assert buffers.take(MIB) is buffer
    assert buffer == b"x" * MIB


def test_one_that_is_given_back_twice_is_handed_out_once() -> None:
    buffers, buffer = FrameBuffers(8 * MIB), bytearray(MIB)
    buffers.give_back(buffer)
    buffers.give_back(buffer)
    assert buffers.spare_bytes == MIB
    assert buffers.take(MIB) is buffer
    assert buffers.take(MIB) is not buffer


def test_there_is_a_limit_to_what_is_spare() -> None:
    buffers = FrameBuffers(2 * MIB)
    buffers.give_back(bytearray(2 * MIB + 1))
    assert buffers.spare_bytes == 0
    for number in range(3):
        buffers.give_back(bytearray([number]) * MIB)
    assert buffers.spare_bytes == 2 * MIB
    assert sorted(buffers.take(MIB)[0] for _ in range(2)) == [1, 2], "the oldest one went"


@pytest.mark.parametrize("other", [b"bytes", memoryview(b""), None])
def test_what_is_no_buffer_of_a_frame_is_left_alone(other: object) -> None:
    buffers = FrameBuffers(MIB)
    buffers.give_back(other)
    assert buffers.spare_bytes == 0


def received(assembler: FrameAssembler, body: bytes) -> memoryview:
    data = len(body).to_bytes(4, "big") + body
    frames: list[memoryview] = []
    while data:
        place = assembler.writable()
        count = min(len(place), len(data))
        place[:count] = data[:count]
        del place
        frames += assembler.filled(count)
        data = data[count:]
    (frame,) = frames
    return frame


@pytest.mark.parametrize("lengths", [(3 * MIB, 2 * MIB), (2 * MIB, 3 * MIB + 1), (MIB, MIB), (100_000, 150_000)])
def test_an_assembler_receives_into_a_buffer_that_was_given_back(lengths: tuple[int, int]) -> None:
    buffers = FrameBuffers(16 * MIB)
    assembler = FrameAssembler(16 * MIB, buffers)
    bodies = [bytes([65 + number]) * length for number, length in enumerate(lengths)]
    first = received(assembler, bodies[0])
    buffer = first.obj
    assert first == bodies[0]
    first.release()
    buffers.give_back(buffer)
    second = received(assembler, bodies[1])
    assert second.obj is buffer
    assert second == bodies[1], "its own length, whatever the buffer's"
    third = received(assembler, bodies[0])
    assert third.obj is not buffer
    assert second == bodies[1]
