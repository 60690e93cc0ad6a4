"""``VirtualTransport``: one end of a connection in memory, an asyncio transport: flow control, EOF, resets."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .network import Link, VirtualNetwork

_WINDOW_BYTES: Final = 65_536  # what both kernels buffer before the sender's write buffer fills
_HIGH_WATER_BYTES: Final = 65_536

_END: Final = b""  # the segment that means EOF


class VirtualTransport(asyncio.Transport):
    """A transport to ``peer``, the other end, over ``link``."""

    peer: VirtualTransport
    _protocol: Any

    def __init__(self, network: VirtualNetwork, link: Link, context: Context, **addresses: Any) -> None:
        super().__init__(addresses)
        self.context = context
        self._network = network
        self._loop = network.loop
        self._link = link
        self._protocol = None
        # sending
        self._flight: deque[tuple[float, bytes]] = deque()  # segments on their way to the peer, with arrival times
        self._unread = 0  # bytes that the peer has not read yet
        self._high, self._low = _HIGH_WATER_BYTES, _HIGH_WATER_BYTES // 4
        self._is_pumping = False
        self._writing_paused = False
        self._end_sent = False
        # receiving
        self._inbox: deque[bytes] = deque()
        self._reading = True
        # closing
        self._closing = False
        self._gone = False  # connection_lost is scheduled, or will never be called
        self._was_reset = False  # a reset came before there was a protocol
        self._silent = False

    # What protocols call

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._end_sent and not self._closing:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not data:
            return
        whole, size = bytes(data), self._network.segment_bytes
        for start in range(0, len(whole), size):
            self._transmit(whole[start : start + size])
        if self.get_write_buffer_size() > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._end_sent:
            self._end_sent = True
            self._transmit(_END)

    def get_write_buffer_size(self) -> int:
        return max(0, self._unread - _WINDOW_BYTES)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else _HIGH_WATER_BYTES if low is None else 4 * low
        self._low = low if low is not None else self._high // 4

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.call_soon(self._read, context=self.context)

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def is_closing(self) -> bool:
        return self._closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def close(self) -> None:
        """Send EOF after all written bytes; bytes that the peer still sends are not read."""
        if self._closing:
            return
        self.write_eof()
        self._closing = True
        if self.get_write_buffer_size() == 0:
            self._lose(None)

    def abort(self) -> None:
        """Close at once. The peer sees a reset if received bytes are still unread here, else EOF."""
        if self._gone:
            return
        if self._inbox:
            self._flight.clear()
            self._send_reset()
        else:
            self.write_eof()
        self._closing = True
        self._lose(None)

    # What the network calls

    def start(self, protocol: Any) -> None:
        """Give the connection to its protocol, and start reading."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._was_reset:
            self._reset()
        self._read()

    def link_mended(self) -> None:
        """Continue with the segments that the cut link had stopped."""
        self._flight = deque((max(when, self._loop.time()), segment) for when, segment in self._flight)
        self._pump()

    def broken(self) -> None:
        """Reset this end: the link has broken."""
        self._flight.clear()
        self._loop.call_soon(self._reset, context=self.context)

    def forsaken(self, *, silently: bool) -> None:
        """End this side because its host has died: its protocol is never called again."""
        self._gone = self._closing = True
        self._silent = silently
        self._flight.clear()
        self._leave_link()
        if not silently:
            self._send_reset()

    # Sending

    def _transmit(self, segment: bytes) -> None:
        arrival = self._loop.time() + self._link.delay()
        if self._flight:
            arrival = max(arrival, self._flight[-1][0])
        self._flight.append((arrival, segment))
        self._unread += len(segment)
        self._pump()

    def _pump(self) -> None:
        if self._flight and not self._is_pumping and not self._link.is_cut:
            self._is_pumping = True
            self._loop.call_at(self._flight[0][0], self._arrive, context=self.peer.context)

    def _arrive(self) -> None:
        self._is_pumping = False
        if self._flight and not self._link.is_cut:
            _, segment = self._flight.popleft()
            self.peer._receive(segment)
            self._pump()
        if self._gone:
            self._leave_link()

    def _send_reset(self) -> None:
        """Send a reset, which overtakes all data. On a link that is cut it is lost, and never sent again."""
        if not self._link.is_cut:
            arrival = self._loop.time() + self._link.delay()
            self._loop.call_at(arrival, self.peer._reset, context=self.peer.context)

    # Receiving

    def _receive(self, segment: bytes) -> None:
        if self._closing:
            if segment is not _END and not self._silent:
                self._send_reset()
            return
        self._inbox.append(segment)
        self._read()

    def _read(self) -> None:
        while self._inbox and self._reading and not self._closing and self._protocol is not None:
            segment = self._inbox.popleft()
            self.peer._was_read(len(segment))
            try:
                self._hand_over(segment)
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "a protocol failed", "exception": error, "transport": self, "protocol": self._protocol}
                )
                self._closing = True
                self._lose(error)

    def _hand_over(self, segment: bytes) -> None:
        protocol = self._protocol
        if segment is _END:
            if not protocol.eof_received():
                self.close()
        elif isinstance(protocol, asyncio.BufferedProtocol):
            rest = memoryview(segment)
            while rest and not self._closing:
                buffer = memoryview(protocol.get_buffer(len(rest)))
                filled = min(len(buffer), len(rest))
                buffer[:filled] = rest[:filled]
                protocol.buffer_updated(filled)
                buffer.release()  # as in asyncio: the protocol may resize its buffer now
                rest = rest[filled:]
        else:
            protocol.data_received(segment)

    def _was_read(self, size: int) -> None:
        self._unread -= size
        if self._gone:
            return
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._loop.call_soon(self._protocol.resume_writing, context=self.context)
        if self._closing and self.get_write_buffer_size() == 0:
            self._lose(None)

    # Closing

    def _reset(self) -> None:
        if self._protocol is None:
            self._was_reset = True
            return
        self._closing = True
        self._flight.clear()
        self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _lose(self, error: Exception | None) -> None:
        if self._gone:
            return
        self._gone = True
        self._inbox.clear()
        self._loop.call_soon(self._protocol.connection_lost, error, context=self.context)
        self._leave_link()

    def _leave_link(self) -> None:
        if not self._flight:
            self._link.transports.pop(self, None)
