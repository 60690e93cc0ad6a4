"""The transport alone: the test feeds it by hand, so every border between reads is exactly where the test puts it."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.errors import ConnectionFailed, MalformedResponse
from aiokc.net import transport as transports
from aiokc.net.transport import FrameTransport


class Recorder(asyncio.Transport):
    """Stands for the loop's own transport."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = 0
        self.closing = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: Any) -> None:
        if not self.closing:
            self.written += data

    def writelines(self, list_of_data: Any) -> None:
        if self.closing:
            raise TypeError("'NoneType' object is not callable")  # as in Python 3.12
        super().writelines(list_of_data)

    def abort(self) -> None:
        self.aborted += 1


class Fed:
    """A transport, and the frames and errors that it handed over."""

    def __init__(self, max_frame_bytes: int = 1 << 20) -> None:
        self.frames: list[bytes] = []
        self.ends: list[Exception | None] = []
        self.protocol = FrameTransport(max_frame_bytes, self.take, self.ends.append)
        self.loops = Recorder()
        self.protocol.connection_made(self.loops)

    def take(self, frame: memoryview) -> None:
        if bytes(frame) == b"refused":
            raise MalformedResponse("refused")
        if bytes(frame) == b"too much":
            raise MemoryError
        self.frames.append(bytes(frame))

    def feed(self, data: bytes) -> None:
        """Feed as an event loop does: ask for the buffer, write to it, say how many bytes came."""
        while data and not self.ends:
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.protocol.buffer_updated(count)
            data = data[count:]


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def test_half_frames_at_every_border() -> None:
    bodies = [b"", b"a", b"hello", b"x" * 9]
    data = framed(*bodies)
    for border in range(len(data) + 1):
        fed = Fed()
        fed.feed(data[:border])
        fed.feed(data[border:])
        assert fed.frames == bodies


def test_one_byte_at_a_time() -> None:
    fed = Fed()
    for byte in framed(b"first", b"second"):
        fed.feed(bytes([byte]))
    assert fed.frames == [b"first", b"second"]


@given(
    st.lists(st.sampled_from([b"", b"ab", b"c" * 1000, b"d" * 70_000, b"e" * 200_000]), max_size=4),
    st.lists(st.floats(0, 1), max_size=10),
)
def test_frames_of_any_length_in_pieces_of_any_length(bodies: list[bytes], cuts: list[float]) -> None:
    fed = Fed()
    data = framed(*bodies)
    borders = [0, *sorted(int(cut * len(data)) for cut in cuts), len(data)]
    for start, stop in pairwise(borders):
        fed.feed(data[start:stop])
    assert fed.frames == bodies


@pytest.mark.parametrize("length", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_a_length_out_of_bounds_ends_the_connection(length: int) -> None:
    fed = Fed(max_frame_bytes=100)
    fed.feed(framed(b"good") + struct.pack(">i", length) + b"more")
    assert fed.frames == [b"good"]
    assert [type(error) for error in fed.ends] == [MalformedResponse]
    assert fed.loops.aborted == 1


def test_nothing_is_handed_out_behind_a_frame_that_was_refused() -> None:
    fed = Fed()
    fed.feed(framed(b"good", b"refused", b"behind"))
    assert fed.frames == [b"good"]
    assert [str(error) for error in fed.ends] == ["refused"]


def test_the_end_is_told_once() -> None:
    fed = Fed()
    cause = ConnectionFailed("reset")
    fed.protocol.connection_lost(cause)
    fed.protocol.abort()
    fed.protocol.connection_lost(None)
    assert fed.ends == [cause]


def test_a_frame_that_arrives_after_the_end_is_dropped() -> None:
    fed = Fed()
    fed.protocol.abort()
    buffer = fed.protocol.get_buffer(-1)
    buffer[:5] = framed(b"x")
    fed.protocol.buffer_updated(5)
    assert (fed.frames, fed.ends) == ([], [None])


def test_a_connection_made_after_it_was_given_up_is_closed() -> None:
    ends: list[Exception | None] = []
    protocol = FrameTransport(100, lambda frame: None, ends.append)
    protocol.abort()
    loops = Recorder()
    protocol.connection_made(loops)
    assert (ends, loops.aborted) == ([None], 1)


def test_what_is_written_between_the_peer_s_end_and_the_loop_s_word_of_it_is_dropped() -> None:
    """asyncio closes its transport where it reads the end, and calls connection_lost() in the next iteration."""
    fed = Fed()
    fed.loops.closing = True
    fed.protocol.write(b"frame")
    fed.protocol.write_parts([b"frame"])
    fed.protocol.write_parts([bytearray(b"in "), memoryview(b"parts")])
    assert fed.loops.written == b""
    fed.protocol.connection_lost(None)
    assert fed.ends == [None]


async def test_writers_wait_while_the_peer_does_not_read() -> None:
    fed = Fed()
    fed.protocol.write(b"frame")
    assert (fed.loops.written, fed.protocol.can_write) == (b"frame", True)
    fed.protocol.pause_writing()
    waiting = asyncio.ensure_future(fed.protocol.writable())
    await asyncio.sleep(0)
    assert not fed.protocol.can_write
    assert not waiting.done()
    fed.protocol.resume_writing()
    await waiting


async def test_waiting_writers_go_on_when_the_connection_ends() -> None:
    fed = Fed()
    fed.protocol.pause_writing()
    waiting = [asyncio.ensure_future(wait()) for wait in (fed.protocol.writable, fed.protocol.wait_closed)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    fed.protocol.connection_lost(None)
    done, _ = await asyncio.wait(waiting, timeout=5)
    assert done == set(waiting)
    assert fed.protocol.can_write


async def test_a_long_frame_goes_in_pieces_others_run_in_between_and_the_next_frame_is_behind_it() -> None:
    fed, size = Fed(), 1 << 20
    long: list[bytearray | memoryview] = [
        bytearray(b"head"),
        memoryview(bytes(range(256)) * (size // 256)),
        bytearray(b"tail"),
    ]
    fed.protocol.write_parts(long)
    all_sent = asyncio.ensure_future(fed.protocol.writable())
    fed.protocol.write(b"behind")
    fed.protocol.write_parts([bytearray(b"it")])
    steps = [len(fed.loops.written)]
    async with asyncio.timeout(10):
        while not all_sent.done():
            await asyncio.sleep(0)
            if len(fed.loops.written) > steps[-1]:
                steps.append(len(fed.loops.written))
    assert fed.loops.written == b"".join([*map(bytes, long), b"behind", b"it"])
    assert len(steps) >= 4
    assert max(after - before for before, after in pairwise([0, *steps])) <= 384 * 1024


async def test_a_long_frame_waits_where_the_peer_does_not_read_and_goes_no_further_once_the_connection_has_ended() -> (
    None
):
    fed, frame = Fed(), bytes(1 << 20)
    fed.protocol.pause_writing()
    fed.protocol.write(frame)
    await asyncio.sleep(0.01)
    assert fed.loops.written == b""
    fed.protocol.resume_writing()
    written = len(fed.loops.written)
    assert 0 < written < len(frame)
    fed.protocol.abort()
    await asyncio.sleep(0.01)
    assert len(fed.loops.written) == written


def test_an_error_of_our_own_ends_the_connection_also_where_the_thread_has_read() -> None:
    """The loop ends it where it has read by itself. Left as it is, nobody would read from it any more."""
    fed, data = Fed(), framed(b"too much")
    fed.protocol.get_buffer(-1)[: len(data)] = data
    with pytest.raises(MemoryError):
        fed.protocol._rest_received(len(data), None)
    assert [type(error) for error in fed.ends] == [MemoryError]
    assert fed.loops.aborted == 1


# In a child that was forked


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Fed, socket.socket]]]:
    """Two transports with their sockets, as if there were no other."""
    monkeypatch.setattr(transports, "_connected", WeakSet())
    pairs = [socket.socketpair() for _ in range(2)]
    both = [(Fed(), ours) for ours, _ in pairs]
    for fed, ours in both:
        ours.setblocking(False)
        fed.loops._extra = {"socket": ours}  # type: ignore[attr-defined]
    yield both
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


def is_cut_off(ours: socket.socket) -> bool:
    try:
        return ours.recv(1) == b""
    except BlockingIOError:
        return False


class BrokenThread:
    def cut_off(self) -> None:
        raise RuntimeError("another thread uses this object")


def test_a_thread_that_can_not_be_cut_off_leaves_no_socket_to_a_child(
    connected: list[tuple[Fed, socket.socket]],
) -> None:
    for fed, _ in connected:
        fed.protocol._thread = BrokenThread()  # type: ignore[assignment]
    with pytest.raises(ExceptionGroup) as raised:
        transports._cut_off_in_child()
    assert len(raised.value.exceptions) == 2
    assert [is_cut_off(ours) for _, ours in connected] == [True, True]


def test_a_socket_that_can_not_be_cut_off_leaves_no_other_to_a_child(
    connected: list[tuple[Fed, socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    socketpair = socket.socketpair
    calls: list[None] = []

    def short_of_descriptors() -> Any:
        calls.append(None)
        if len(calls) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return socketpair()

    monkeypatch.setattr(socket, "socketpair", short_of_descriptors)
    with pytest.raises(ExceptionGroup) as raised:
        transports._cut_off_in_child()
    assert len(raised.value.exceptions) == 1
    assert sorted(is_cut_off(ours) for _, ours in connected) == [False, True]


def test_a_connection_that_was_being_made_when_the_process_forked_is_the_parents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both go on with the loop, and find that the socket has connected. Closing its copy is all that the child does."""
    ends: list[Exception | None] = []
    protocol, loops = FrameTransport(1 << 20, lambda frame: None, ends.append), Recorder()
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    protocol.connection_made(loops)
    assert (loops.aborted, ends) == (1, [None])
