"""``Exchange``: one blocking connection to a broker: requests that are encoded by hand, and their answers.

With aiokc's own encoders the local Kafka's runner would not start while those are broken, and could hide their bugs.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Final

_CLIENT_ID: Final = "aiokc.testing"


class Exchange:
    """A connection to the broker at "host:port", without TLS; each request waits for its answer.

    Raises OSError (TimeoutError among them) where the broker does not answer within `timeout` seconds.
    """

    def __init__(self, address: str, *, timeout: float) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout)

    def __enter__(self) -> Exchange:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, api_key: int, version: int, body: bytes, *, flexible: bool = False) -> Answer:
        """Send a request and return its answer. A `flexible` version has tagged fields in both headers: none here."""
        tags = b"\0" if flexible else b""
        request = struct.pack(">hhi", api_key, version, 1) + string(_CLIENT_ID) + tags + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", self._receive(4))
        # Without the correlation id: one request, one answer.
        return Answer(self._receive(length)[4 + len(tags) :])

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            chunk = self._socket.recv(count - len(received))
            if not chunk:
                raise ConnectionError("the broker closed the connection in the middle of an answer")
            received += chunk
        return bytes(received)


class Answer:
    """The fields of an answer, read one after the other."""

    def __init__(self, frame: bytes) -> None:
        self._frame, self._at = frame, 0

    def _take(self, layout: str, size: int) -> int:
        (value,) = struct.unpack_from(layout, self._frame, self._at)
        self._at += size
        return int(value)

    def int8(self) -> int:
        return self._take(">b", 1)

    def int16(self) -> int:
        return self._take(">h", 2)

    def int32(self) -> int:
        return self._take(">i", 4)

    def int64(self) -> int:
        return self._take(">q", 8)

    def string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._bytes(length).decode()

    def data(self) -> bytes:
        return self._bytes(self.int32())

    def compact_length(self) -> int:
        """Return the length of a compact array, string or bytes; -1 where it is null."""
        value = shift = 0
        while True:
            byte = self._bytes(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value - 1
            shift += 7

    def compact_string(self) -> str | None:
        length = self.compact_length()
        return None if length < 0 else self._bytes(length).decode()

    def _bytes(self, length: int) -> bytes:
        if length < 0 or self._at + length > len(self._frame):
            raise ValueError(f"the answer ends in the middle of {length} bytes")
        self._at += length
        return self._frame[self._at - length : self._at]


def string(text: str | None) -> bytes:
    """Encode a string; None is null."""
    if text is None:
        return struct.pack(">h", -1)
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def compact(data: bytes) -> bytes:
    """Encode bytes, or a string's UTF-8, of a flexible version."""
    return compact_length(len(data)) + data


def compact_length(length: int) -> bytes:
    """Encode the length of a compact array, string or bytes."""
    value, encoded = length + 1, bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
