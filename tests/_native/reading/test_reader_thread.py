"""The thread that reads from sockets: what ends a read, what it leaves alone, and what no longer belongs to it."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from .seen_by_linux import descriptors, is_asleep, name_of, reader_threads, resident

if TYPE_CHECKING:
    from aiokc._native.extension import ReaderThread

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)
pytestmark = pytest.mark.skipif(not hasattr(_native, "ReaderThread"), reason="no reader thread on Windows")

SECONDS: Final = 120_000  # milliseconds until a test gives up, on a busy machine and under sanitizers
MIB: Final = 1 << 20
MOST_READS: Final = 256


@pytest.fixture
def thread() -> Iterator[ReaderThread]:
    thread = _native.ReaderThread()
    yield thread
    thread.close()


def with_its_pipes() -> tuple[ReaderThread, set[str]]:
    """A thread, and the names of the pipes that it has opened.

    How many descriptors the process has says nothing: what other tests have left is collected at any time.
    """
    before = set(descriptors())
    thread = _native.ReaderThread()
    pipes = {name for name in set(descriptors()) - before if name.startswith("pipe:")}
    assert len(pipes) == 2
    return thread, pipes


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        with theirs:
            ours.setblocking(False)
            theirs.settimeout(SECONDS / 1000)
            yield ours, theirs


def next_ended(thread: ReaderThread) -> tuple[int, int, int]:
    """Wait for the signal, then return what has ended."""
    poller = select.poll()
    poller.register(thread.fileno(), select.POLLIN)
    assert poller.poll(SECONDS), "nothing ended"
    ended = thread.ended()
    assert ended is not None
    return ended


def nothing_signalled(thread: ReaderThread) -> bool:
    poller = select.poll()
    poller.register(thread.fileno(), select.POLLIN)
    return not poller.poll(0)


def test_a_read_ends_when_all_has_come_and_takes_no_byte_more(thread: ReaderThread) -> None:
    data = os.urandom(3 * MIB)
    with connected() as (ours, theirs):
        room = bytearray(len(data))
        number = thread.read(ours.fileno(), room)
        assert thread.ended() is None
        for start in range(0, len(data), 70_001):
            theirs.sendall(data[start : start + 70_001])
        theirs.sendall(b"behind")
        assert next_ended(thread) == (number, len(data), 0)
        assert room == data
        assert (thread.ended(), nothing_signalled(thread)) == (None, True)
        select.select([ours], [], [], SECONDS / 1000)
        assert ours.recv(100) == b"behind"


def test_a_part_of_a_buffer_is_filled_and_the_rest_left_alone(thread: ReaderThread) -> None:
    with connected() as (ours, theirs):
        room = bytearray(b"." * 10)
        thread.read(ours.fileno(), memoryview(room)[3:7])
        theirs.sendall(b"abcdefg")
        assert next_ended(thread)[1:] == (4, 0)
        assert room == b"...abcd..."


@pytest.mark.parametrize("sent", [0, 1000])
def test_the_peer_closes_in_good_order(thread: ReaderThread, sent: int) -> None:
    with connected() as (ours, theirs):
        room = bytearray(5000)
        number = thread.read(ours.fileno(), room)
        theirs.sendall(b"x" * sent)
        theirs.close()
        assert next_ended(thread) == (number, sent, 0)
        assert ours.recv(1) == b"", "the end is still to be read"


def test_the_peer_resets_the_connection(thread: ReaderThread) -> None:
    with connected() as (ours, theirs):
        number = thread.read(ours.fileno(), bytearray(5000))
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        assert next_ended(thread) == (number, 0, errno.ECONNRESET)


def test_what_can_not_be_read_from_or_written_to_begins_nothing(thread: ReaderThread) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        thread.read(-1, bytearray(5))
    with connected() as (ours, _):
        with pytest.raises(BufferError):
            thread.read(ours.fileno(), memoryview(b"read only"))
        buffer = bytearray(5)
        with pytest.raises(OSError, match="Bad file descriptor"):
            thread.read(1 << 20, buffer)
        buffer.append(0)  # nothing keeps it in place


def test_the_buffer_keeps_its_place_until_the_read_is_over(thread: ReaderThread) -> None:
    with connected() as (ours, theirs):
        ended, cancelled = bytearray(5), bytearray(5)
        thread.read(ours.fileno(), ended)
        with pytest.raises(BufferError):
            ended.append(0)
        theirs.sendall(b"12345")
        next_ended(thread)
        ended.append(0)
        number = thread.read(ours.fileno(), cancelled)
        with pytest.raises(BufferError):
            cancelled.append(0)
        thread.cancel(number)
        cancelled.append(0)


def test_after_a_cancel_nothing_is_read_and_nothing_is_told(thread: ReaderThread) -> None:
    with connected() as (ours, theirs), connected() as (others, of_others):
        room = bytearray(5)
        number = thread.read(ours.fileno(), room)
        thread.cancel(number)
        thread.cancel(number)  # it is over
        theirs.sendall(b"12345")
        thread.read(others.fileno(), bytearray(1))
        of_others.sendall(b"x")
        next_ended(thread)  # the thread has been at work since
        assert (room, ours.recv(10)) == (bytearray(5), b"12345")
        assert nothing_signalled(thread)


def test_a_read_that_has_ended_is_not_told_once_it_is_cancelled(thread: ReaderThread) -> None:
    with connected() as (ours, theirs), connected() as (others, of_others):
        numbers = [thread.read(ours.fileno(), bytearray(1)), thread.read(others.fileno(), bytearray(1))]
        theirs.sendall(b"x")
        of_others.sendall(b"x")
        ended = next_ended(thread)[0]
        poller = select.poll()
        poller.register(thread.fileno(), select.POLLIN)
        assert poller.poll(SECONDS)
        numbers.remove(ended)
        thread.cancel(*numbers)
        assert (thread.ended(), nothing_signalled(thread)) == (None, True)


def test_the_peer_learns_of_a_close_at_once_though_the_thread_waits_for_bytes(thread: ReaderThread) -> None:
    """The thread's poll() keeps the socket open as long as it looks at it."""
    until(lambda: not reader_threads())  # those of other tests have ended
    with connected() as (ours, theirs):
        number = thread.read(ours.fileno(), bytearray(5))
        until(lambda: [is_asleep(number) for number in reader_threads()] == [True])
        thread.cancel(number)
        ours.close()
        assert theirs.recv(1) == b""


def test_a_number_that_is_used_again_is_another_connection(thread: ReaderThread) -> None:
    """The caller closes the socket and tells nobody. A connection with the same number keeps its bytes."""
    with connected() as (ours, theirs), connected() as (others, of_others):
        room = bytearray(4)
        number = thread.read(ours.fileno(), room)
        os.dup2(others.fileno(), ours.fileno())
        of_others.sendall(b"mine")
        theirs.sendall(b"ours")
        assert next_ended(thread) == (number, 4, 0)
        assert room == b"ours"
        assert ours.recv(10) == b"mine"


def test_many_connections_at_once(thread: ReaderThread) -> None:
    with ExitStack() as stack:
        pairs = [stack.enter_context(connected()) for _ in range(40)]
        rooms = {}
        for index, (ours, _) in enumerate(pairs):
            room = bytearray(20_000)
            rooms[thread.read(ours.fileno(), room)] = (index, room)
        for part in range(4):
            for index, (_, theirs) in enumerate(pairs):
                theirs.sendall(bytes([index, part]) * 2500)
        for _ in pairs:
            number, count, error = next_ended(thread)
            index, room = rooms.pop(number)
            assert (count, error) == (20_000, 0)
            assert room == b"".join(bytes([index, part]) * 2500 for part in range(4))
        assert nothing_signalled(thread)


def test_there_is_a_limit_to_what_is_read_at_once_and_a_descriptor_for_each() -> None:
    thread, pipes = with_its_pipes()
    with connected() as (ours, _):
        name = name_of(ours.fileno())
        numbers = [thread.read(ours.fileno(), bytearray(1)) for _ in range(MOST_READS)]
        assert descriptors().count(name) == 1 + MOST_READS
        with pytest.raises(BlockingIOError):
            thread.read(ours.fileno(), bytearray(1))
        thread.cancel(numbers[7])
        thread.read(ours.fileno(), bytearray(1))
        thread.close()
        assert descriptors().count(name) == 1
        until(lambda: pipes.isdisjoint(descriptors()))


def test_closing_ends_everything_in_the_middle_of_it() -> None:
    for _ in range(20):
        thread = _native.ReaderThread()
        with connected() as (ours, theirs):
            buffer = bytearray(MIB)
            number = thread.read(ours.fileno(), buffer)
            theirs.sendall(bytes(100_000))
            thread.close()
            buffer.append(0)
            thread.cancel(number)
            assert thread.ended() is None
            with pytest.raises(OSError, match="Bad file descriptor"):
                thread.read(ours.fileno(), buffer)
            with pytest.raises(ValueError, match="closed"):
                thread.fileno()
            thread.close()


def test_one_that_is_forgotten_ends_with_its_reads() -> None:
    with connected() as (ours, theirs):
        until(lambda: not reader_threads())  # those of other tests have ended
        name = name_of(ours.fileno())
        thread, pipes = with_its_pipes()
        buffer = bytearray(MIB)
        thread.read(ours.fileno(), buffer)
        theirs.sendall(bytes(100_000))
        until(lambda: len(reader_threads()) == 1)
        assert descriptors().count(name) == 2
        del thread
        buffer.append(0)
        assert descriptors().count(name) == 1
        until(lambda: not reader_threads())
        assert pipes.isdisjoint(descriptors()), "the thread closes them before it ends"


def test_signals_are_not_for_this_thread() -> None:
    """One that it took would not wake Python's main thread, which waits for it."""
    until(lambda: not reader_threads())  # those of other tests have ended
    thread = _native.ReaderThread()
    with connected() as (ours, _):
        thread.read(ours.fileno(), bytearray(1))
        until(lambda: reader_threads() != [])
        for number in reader_threads():
            status = Path(f"/proc/self/task/{number}/status").read_text()
            (blocked,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")]
            assert int(blocked, 16) & (1 << signal.SIGINT - 1)
            assert int(blocked, 16) & (1 << signal.SIGTERM - 1)
        thread.close()


def test_a_forked_child_reads_nothing_and_takes_nothing_from_its_parent() -> None:
    thread, pipes = with_its_pipes()
    with connected() as (ours, theirs), connected() as (others, of_others):
        room = bytearray(10)
        numbers = [thread.read(ours.fileno(), room), thread.read(others.fileno(), bytearray(1))]
        theirs.sendall(b"12345")
        of_others.sendall(b"x")
        poller = select.poll()
        poller.register(thread.fileno(), select.POLLIN)
        assert poller.poll(SECONDS)
        child = fork()
        if child == 0:
            as_child(lambda: in_child(thread, pipes, ours, others, numbers[0]))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert next_ended(thread) == (numbers[1], 1, 0)
        theirs.sendall(b"67890")
        assert next_ended(thread) == (numbers[0], 10, 0)
        assert room == b"1234567890"
        thread.close()


def test_a_fork_while_a_read_is_being_cancelled_leaves_nothing_open_in_the_child(thread: ReaderThread) -> None:
    """Another thread that waits for the GIL gets it in the middle of ``cancel``, and forks just there."""
    with connected() as (ours, theirs):
        ends = threading.Event()

        def cancel_again_and_again() -> None:
            while not ends.is_set():
                thread.cancel(thread.read(ours.fileno(), bytearray(1000)))

        other = threading.Thread(target=cancel_again_and_again)
        other.start()
        try:
            for _ in range(30):
                child = fork()
                if child == 0:
                    as_child(lambda: has_no_socket_in_child(thread, ours, theirs))
                _, status = os.waitpid(child, 0)
                assert os.waitstatus_to_exitcode(status) == 0
        finally:
            ends.set()
            other.join()


def has_no_socket_in_child(thread: ReaderThread, *sockets: socket.socket) -> None:
    name = name_of(sockets[0].fileno())
    thread.close()
    for one in sockets:
        one.close()
    assert name not in descriptors()


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 and newer: there are threads
        return os.fork()


def as_child(run: Callable[[], None]) -> None:
    """Run the child's part, and end the process without the parent's part."""
    code = 1
    try:
        run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def in_child(thread: ReaderThread, pipes: set[str], ours: socket.socket, others: socket.socket, number: int) -> None:
    """``number`` is the read of ``ours``; that of ``others`` has ended."""

    def held() -> list[int]:
        return [descriptors().count(name_of(one.fileno())) for one in (ours, others)]

    assert held() == [2, 2]
    assert thread.ended() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        thread.read(ours.fileno(), bytearray(1))
    thread.cancel(number)
    assert held() == [1, 2]
    thread.close()
    assert held() == [1, 1], "that of the read that has ended is closed, too"
    assert pipes.isdisjoint(descriptors())
    assert reader_threads() == []


def test_what_is_reserved_costs_no_memory_until_bytes_come() -> None:
    buffer, before = bytearray(), resident()
    _native.reserve(buffer, 512 * MIB)
    assert len(buffer) == 512 * MIB
    assert resident() - before < 64 * MIB
    view = memoryview(buffer)
    with pytest.raises(BufferError):
        _native.reserve(buffer, 513 * MIB)
    del view
    with pytest.raises(MemoryError):
        _native.reserve(buffer, sys.maxsize)
    with pytest.raises(ValueError, match="shorter"):
        _native.reserve(buffer, -1)
    with pytest.raises(TypeError):
        _native.reserve(b"", 1)


def test_bytes_stay_where_more_is_reserved() -> None:
    buffer = bytearray(b"first")
    _native.reserve(buffer, 100_000)
    assert bytes(buffer[:5]) == b"first"
    assert len(buffer) == 100_000


def until(is_so: Callable[[], bool]) -> None:
    """Wait for what a thread does that nobody else is told of."""
    deadline = time.monotonic() + SECONDS / 1000
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)
