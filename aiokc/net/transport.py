"""The asyncio protocol of one connection: receives bytes straight into their frames, sends whole frames."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, cast
from weakref import WeakSet

from ..errors import KafkaError
from ..wire import FrameAssembler, FrameBuffers, Parts
from .reader_thread import ReaderThread

# Above this many unsent bytes, requests wait: a broker that does not read must not fill the memory.
_WRITE_BUFFER_BYTES = 256 * 1024

# A longer frame is handed to the loop's transport in slices, and this much of it in one iteration of the loop at most.
# All at once, the transport would copy it (some of Python's releases twice), and the socket would take in megabytes.
_AT_ONCE_BYTES: Final = 256 * 1024
_SLICE_BYTES: Final = 128 * 1024

# If so much is missing of a long frame, the reader thread receives it. To hand over less costs more than to receive it.
_FOR_THREAD_BYTES: Final = 128 * 1024


def keep_alive(sock: socket.socket | None) -> None:
    """Have the system ask now and then whether the peer is still there; ``sock`` is None where there is no socket.

    A JoinGroup is parked for minutes. A NAT gateway or load balancer forgets a connection without traffic meanwhile,
    and tells nobody. Java's client does the same, so that hosts have their intervals set for it.
    """
    if sock is not None:
        with suppress(OSError):  # the connection has ended already: the loop is about to say so
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class FrameTransport(asyncio.BufferedProtocol):
    """Calls ``on_frame`` with each complete frame, and ``on_lost`` once, when the connection has ended.

    ``on_lost`` gets MalformedResponse for bytes that are no frames, the KafkaError that ``on_frame`` raised (which ends
    the connection), the operating system's error, or None if the peer closed in good order or ``abort`` was called.
    """

    def __init__(
        self,
        max_frame_bytes: int,
        on_frame: Callable[[memoryview], None],
        on_lost: Callable[[Exception | None], None],
        buffers: FrameBuffers | None = None,
        *,
        reader_thread: bool = False,
    ) -> None:
        """``reader_thread``: the rest of long frames is received by the loop's reader thread, where it can have one."""
        self._assembler = FrameAssembler(max_frame_bytes, buffers)
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        #: Whether a frame may be written this moment.
        self.can_write = True
        self._writable = asyncio.Event()  # set while ``can_write``
        self._writable.set()
        self._is_paused = False  # the peer does not read what was handed to the loop's transport
        self._unsent: deque[memoryview] = deque()  # slices of frames that were not handed to it yet
        self._closed = asyncio.Event()
        self._ended = False
        self._wants_thread = reader_thread
        self._thread: ReaderThread | None = None
        self._reading: int | None = None  # the number of what the thread reads for this connection
        self._process = os.getpid()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _connected.add(self)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        keep_alive(transport.get_extra_info("socket"))
        if self._ended:  # given up while the loop was still connecting
            self._transport.abort()
        elif os.getpid() != self._process:  # forked meanwhile: the socket is the parent's, which goes on with it
            self.abort()
        elif self._wants_thread:
            self._thread = ReaderThread.join(transport)
            self._assembler.reserves = self._thread is not None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._assembler.writable()

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended:
            return
        try:  # as _received() does: one call less on the way of each answer
            for frame in self._assembler.filled(nbytes):
                self._on_frame(frame)
        except KafkaError as error:
            self._end(error)
        if self._thread is not None and not self._ended:
            self._read_rest(self._thread)

    def pause_writing(self) -> None:
        self._is_paused = True
        self._may_write(False)

    def resume_writing(self) -> None:
        self._is_paused = False
        self._hand_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._end(exc)
        if self._thread is not None:
            self._thread.leave()
            self._thread = None

    # Receiving

    def _received(self, count: int) -> None:
        try:
            for frame in self._assembler.filled(count):
                self._on_frame(frame)
        except KafkaError as error:
            self._end(error)

    def _read_rest(self, thread: ReaderThread) -> None:
        """Have the thread receive the rest of a long frame, if there is one. Meanwhile the loop leaves the socket."""
        rest = self._assembler.rest(_FOR_THREAD_BYTES)
        if rest is None or self._transport is None:
            return
        try:
            self._reading = thread.read(self._transport.get_extra_info("socket").fileno(), rest, self._rest_received)
        except OSError:
            return  # no descriptor or no thread to spare: the loop receives it
        self._transport.pause_reading()

    def _rest_received(self, count: int, error: OSError | None) -> None:
        self._reading = None
        if error is not None:
            return self._end(error)
        try:
            self._received(count)
        except Exception as error:  # no memory, for instance: as the loop does where it has read by itself
            self._end(error)
            raise
        if self._transport is not None and not self._ended:
            self._transport.resume_reading()  # and the loop finds out that the peer has closed, if it has

    # Called by the connection

    def write(self, frame: bytes | bytearray | memoryview) -> None:
        """Send a whole frame in one call: no cancellation can leave half a frame on the wire."""
        assert self._transport is not None
        if self._unsent or len(frame) > _AT_ONCE_BYTES:
            self._write_in_slices([frame])
        else:
            self._transport.write(frame)

    def write_parts(self, parts: Parts) -> None:
        """Do as ``write`` with a frame in pieces. No piece may change until it is sent, or the connection has ended."""
        assert self._transport is not None
        if len(parts) == 1:
            self.write(parts[0])
        elif self._unsent or sum(map(len, parts)) > _AT_ONCE_BYTES:
            self._write_in_slices(parts)
        elif not self._transport.is_closing():
            self._transport.writelines(parts)
        # Else the loop has read that the peer has closed the connection, and says so in its next iteration. write()
        # drops the frame then; in Python 3.12, and the first releases of 3.13, writelines() raises TypeError
        # (gh-136234).

    def _write_in_slices(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        goes_on = bool(self._unsent)
        for part in parts:
            view = memoryview(part)
            self._unsent += (view[start : start + _SLICE_BYTES] for start in range(0, len(part), _SLICE_BYTES))
        self._may_write(False)
        if not goes_on and not self._is_paused:
            self._hand_on()

    def _hand_on(self) -> None:
        """Hand slices to the loop's transport as long as the peer takes them, and let others run in between."""
        left = _AT_ONCE_BYTES
        while self._unsent and left > 0 and not self._is_paused and self._transport is not None:
            piece = self._unsent.popleft()
            left -= len(piece)
            self._transport.write(piece)
        if self._is_paused:
            return
        if self._unsent:
            asyncio.get_running_loop().call_later(0, self._hand_on)  # behind what sockets and timers bring
        else:
            self._may_write(True)

    def _may_write(self, may: bool) -> None:
        self.can_write = may
        if may:
            self._writable.set()
        else:
            self._writable.clear()

    @property
    def partial(self) -> int:
        """How many bytes of a frame were received whose rest is missing; 0: there is no such frame."""
        return self._assembler.partial

    async def writable(self) -> None:
        """Return when the peer has read enough of what was sent, or when the connection has ended."""
        await self._writable.wait()

    async def wait_closed(self) -> None:
        """Return when the socket is closed."""
        await self._closed.wait()

    def abort(self) -> None:
        """Close at once, without waiting for the peer; ``on_lost`` is called before this returns."""
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._is_paused = False
        self._unsent.clear()
        self._may_write(True)
        if self._thread is not None and self._reading is not None:
            self._thread.cancel(self._reading)
            self._reading = None
        if self._transport is not None:
            self._transport.abort()
        self._on_lost(error)

    def cut_off(self) -> None:
        """Put a socket that is at its end in the place of this one, in this process only.

        Nothing but its file descriptor is touched: the event loop may share its selector with the parent process.
        """
        try:
            if self._thread is not None:
                self._thread.cut_off()
        finally:
            self._cut_off_socket()

    def _cut_off_socket(self) -> None:
        own = None if self._transport is None or self._ended else self._transport.get_extra_info("socket")
        if own is None or own.fileno() < 0:
            return
        ended, other = socket.socketpair()
        other.close()
        os.dup2(ended.fileno(), own.fileno(), inheritable=False)
        ended.close()


# A process that was forked has copies of its parent's sockets. Two processes that write to one socket, or read from
# it, would destroy the stream of frames. So the child has its copies cut off, whatever its code does with the clients.
_connected: Final[WeakSet[FrameTransport]] = WeakSet()


def _cut_off_in_child() -> None:
    errors: list[Exception] = []
    for transport in list(_connected):
        try:
            transport.cut_off()
        except Exception as error:  # the child may have no descriptor to spare; all others are cut off all the same
            errors.append(error)
    if errors:  # Python tells sys.unraisablehook
        raise ExceptionGroup("a forked process has kept sockets of its parent", errors)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_cut_off_in_child)
