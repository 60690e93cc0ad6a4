"""The reader thread where nobody says goodbye: a loop that is closed, or forgotten, and a process that is forked."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from aiokc.native import extension
from aiokc.net import reader_thread
from aiokc.net.transport import FrameTransport

from ..._native.reading.seen_by_linux import descriptors, name_of, reader_threads

pytestmark = pytest.mark.skipif(not hasattr(extension, "ReaderThread"), reason="no reader thread without the extension")

LENGTH: Final = 2_000_000
SECONDS: Final = 20.0
LOOPS: Final = ["asyncio", "uvloop"]


def new_loop(kind: str) -> asyncio.AbstractEventLoop:
    if kind == "asyncio":
        return asyncio.SelectorEventLoop()
    loop: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()  # no wheels for the newest Pythons
    return loop


class HalfAnAnswer:
    """A connection of ``loop`` in the middle of a long frame, of which the thread waits for the rest."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.frames: list[bytes] = []
        self.ends: list[Exception | None] = []
        self.loop = loop
        with socket.create_server(("127.0.0.1", 0)) as server:
            where = server.getsockname()
            _, self.transport = loop.run_until_complete(loop.create_connection(self._protocol, *where))
            self.peer, _ = server.accept()
        self.peer.settimeout(SECONDS)
        self.peer.sendall(struct.pack(">i", LENGTH) + bytes(70_000))
        self.run_until(lambda: self.transport._reading is not None)
        self.peer.sendall(bytes(LENGTH // 2))

    @property
    def descriptor(self) -> int:
        assert self.transport._transport is not None
        number: int = self.transport._transport.get_extra_info("socket").fileno()
        return number

    def _protocol(self) -> FrameTransport:
        def take(frame: memoryview) -> None:
            self.frames.append(bytes(frame))

        return FrameTransport(LENGTH, take, self.ends.append, reader_thread=True)

    def run_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not is_so():
            assert time.monotonic() < deadline
            self.loop.run_until_complete(asyncio.sleep(0.001))

    def finish(self) -> None:
        self.peer.sendall(b"x" * (LENGTH - LENGTH // 2 - 70_000))


@pytest.fixture(params=LOOPS)
def half(request: pytest.FixtureRequest) -> Iterator[HalfAnAnswer]:
    loop = new_loop(request.param)
    half = HalfAnAnswer(loop)
    yield half
    half.peer.close()
    if not loop.is_closed():
        half.transport.abort()
        half.run_until(half.transport._closed.is_set)
        loop.close()


def until(is_so: Callable[[], bool]) -> None:
    """Wait for what a thread does that nobody is told of."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # that is what this is about
@pytest.mark.parametrize("kind", LOOPS)
def test_a_loop_that_is_closed_in_the_middle_of_an_answer(kind: str) -> None:
    """The loop closes its sockets, or forgets them, and calls nobody. A later connection may get their numbers."""
    half = HalfAnAnswer(new_loop(kind))
    own = name_of(half.descriptor)
    half.loop.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        others = [socket.create_connection(server.getsockname()) for _ in range(10)]
        peers = [server.accept()[0] for _ in others]
        half.finish()
        for number, peer in enumerate(peers):
            peer.sendall(bytes([number]) * 1000)
        for number, other in enumerate(others):
            other.settimeout(SECONDS)
            assert other.recv(1000, socket.MSG_WAITALL) == bytes([number]) * 1000
        for one in (*others, *peers, half.peer):
            one.close()
    assert half.frames == []
    del half, other, one, others, peer, peers
    gc.collect()
    until(lambda: not reader_threads())
    until(lambda: own not in descriptors())
    assert not reader_thread._threads


def test_a_process_that_is_forked_in_the_middle_of_an_answer_leaves_it_to_its_parent(half: HalfAnAnswer) -> None:
    def run_in_child() -> None:
        assert reader_threads() == []
        half.loop.run_until_complete(asyncio.sleep(0.1))
        half.transport.abort()
        half.loop.run_until_complete(asyncio.sleep(0.1))
        assert half.frames == []

    child = forked(run_in_child)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    half.finish()
    half.run_until(lambda: bool(half.frames))
    assert half.frames == [bytes(70_000 + LENGTH // 2) + b"x" * (LENGTH - LENGTH // 2 - 70_000)]
    assert half.ends == []


def test_a_forked_child_keeps_no_connection_of_its_parent_open(half: HalfAnAnswer) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = forked(lambda: theirs.recv(1))
        half.transport.abort()
        half.run_until(half.transport._closed.is_set)
        assert ended(half.peer)
        ours.sendall(b"x")
        os.waitpid(child, 0)


def ended(peer: socket.socket) -> bool:
    """Wait for the other side to close, in whichever way."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:  # it had not read all bytes
        return True


def forked(run: Callable[[], object]) -> int:
    """Return the child's process, which runs only that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 and newer: there are threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child
