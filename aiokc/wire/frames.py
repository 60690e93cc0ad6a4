"""Frames (length, header, body): assembled from received bytes, encoded, decoded, for clients and brokers in tests."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import cache
from struct import Struct as Format
from typing import Any, Final, NamedTuple, NoReturn

from ..errors import MalformedResponse
from ..native import extension
from .compile_write import write_message
from .frame_buffers import FrameBuffers
from .frame_parts import FrameParts, Parts
from .primitives import MOST_TAGS, read_uvarint, too_many_tags
from .schema import Message, Request, Response

_LENGTH: Final = Format(">i")
_REQUEST_HEADER: Final = Format(">hhi")
_CLIENT_ID_LENGTH: Final = Format(">h")
_CORRELATION_ID: Final = Format(">i")

_API_VERSIONS: Final = 18
_CONTROLLED_SHUTDOWN: Final = 7

# Frames up to this size are received into one shared buffer and copied out of it.
_SHARED_BYTES: Final = 64 << 10
# At most so much memory is allocated ahead of a long frame's bytes, and so much received at once. A peer must send the
# bytes that it announces before they cost memory, and no step takes longer than some 0.1 ms.
_UNSEEN_BYTES: Final = 1 << 20
_ROOM: Final = memoryview(bytes(_UNSEEN_BYTES))


class FrameAssembler:
    """Assembles frames from the pieces that arrive.

    Receive into ``writable()``, then call ``filled(n)`` with the number of bytes: it yields the complete frames,
    without their length. A long frame is received straight into a buffer of its own, a spare one of ``buffers`` if
    possible. After MalformedResponse the start of the next frame is unknown: the assembler must not be used any more.

    ``reserves``: a long frame gets memory for all of its length at once, which costs none before there are bytes in it,
    so that somebody else may receive into ``rest()``. It takes the extension.
    """

    def __init__(self, max_frame_bytes: int, buffers: FrameBuffers | None = None) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffers = buffers or FrameBuffers()
        self._shared = bytearray(_SHARED_BYTES)
        self._held = 0  # bytes of an incomplete frame at the start of the shared buffer
        self._own: bytearray | None = None  # the long frame that is being received
        self._own_length = 0
        self._own_held = 0
        self._has_answered = False
        self.reserves = False

    def writable(self) -> memoryview:
        """Return the room for the next bytes; it is never empty."""
        if self._own is None:
            return memoryview(self._shared)[self._held :]
        if self._own_held == len(self._own):
            self._grow(self._own)
        stop = min(len(self._own), self._own_length, self._own_held + _UNSEEN_BYTES)
        return memoryview(self._own)[self._own_held : stop]

    def filled(self, count: int) -> Iterable[memoryview]:
        """Return the frames that are complete with the ``count`` bytes just received, one by one.

        To go on to the next one raises MalformedResponse.
        """
        if self._own is None:
            held = self._held + count
            if _LENGTH.size < held <= self._max_frame_bytes:
                (length,) = _LENGTH.unpack_from(self._shared)
                if length == held - _LENGTH.size:  # one whole frame, as most answers are
                    self._held, self._has_answered = 0, True
                    return (memoryview(bytes(memoryview(self._shared)[_LENGTH.size : held])),)
            return self._from_shared(held)
        self._own_held += count
        if self._own_held < self._own_length:
            return iter(())
        frame, self._own, self._held = self._own, None, 0
        return iter((memoryview(frame)[: self._own_length],))

    def rest(self, least: int) -> memoryview | None:
        """Return the room for all that is missing of a long frame, if it is reserved and ``least`` bytes or more.

        As with ``writable``, call ``filled(n)`` with the number of bytes that were received into it.
        """
        if self._own is None or self._own_length - self._own_held < least or len(self._own) < self._own_length:
            return None
        return memoryview(self._own)[self._own_held : self._own_length]

    @property
    def partial(self) -> int:
        """How many bytes of a frame were received whose rest is missing; 0: there is no such frame."""
        return self._held if self._own is None else _LENGTH.size + self._own_held

    def _begun(self, length: int) -> bytearray:
        """Return the buffer of a long frame that begins, with room for the bytes of it that are there."""
        buffer = self._buffers.take(length)
        if self.reserves and len(buffer) < length:
            try:
                extension.reserve(buffer, length)  # a spare one grows in place: realloc moves pages, not bytes
            except MemoryError:
                pass  # it may be a claim only: the frame gets memory as its bytes arrive
        if not buffer:
            self._grow(buffer)
        return buffer

    def _grow(self, buffer: bytearray) -> None:
        """Make room for more of the long frame, in place: realloc moves pages, not bytes.

        The view that ``writable`` returned before must be gone: asyncio and uvloop drop it before they ask for another.
        """
        buffer += _ROOM[: self._own_length - len(buffer)]

    def _from_shared(self, held: int) -> Iterator[memoryview]:
        """Copy complete frames out; begin a buffer of its own for a frame that does not fit into the shared one."""
        start = 0
        view = memoryview(self._shared)
        while held - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(view, start)
            if not 0 <= length <= self._max_frame_bytes:
                self._refuse(length, view[start:held])
            stop = start + _LENGTH.size + length
            if stop <= held:
                start += _LENGTH.size
                yield memoryview(bytes(view[start:stop]))
                start = stop
                self._has_answered = True
            elif length + _LENGTH.size > _SHARED_BYTES:
                self._own_length = length
                self._own = self._begun(length)
                self._own_held = held - start - _LENGTH.size
                self._own[: self._own_held] = view[start + _LENGTH.size : held]
                start = held
            else:
                break
        if start < held:
            self._shared[: held - start] = bytes(view[start:held])
        self._held = held - start

    def _refuse(self, length: int, seen: memoryview) -> NoReturn:
        if stranger := what_else_speaks(bytes(seen[:5])):
            raise MalformedResponse(f"not Kafka's protocol: this looks like {stranger}")
        if self._has_answered and length > 0:
            raise MalformedResponse(
                f"an answer of {length} bytes, and max_response_bytes is {self._max_frame_bytes}: raise it above the "
                "longest record batch (message.max.bytes, max.message.bytes of a topic), which brokers send whole, "
                "whatever a Fetch asks for"
            )
        raise MalformedResponse(
            f"a frame of {length} bytes (max_response_bytes is {self._max_frame_bytes}): "
            "this is no Kafka listener, or it expects TLS"
        )


def what_else_speaks(head: bytes) -> str:
    """Return what a peer is whose first bytes can be no Kafka frame, and what to do; "" if they do not tell."""
    if head.startswith(b"HTTP"):
        return "an HTTP server"
    if head[:2] == b"\x15\x03":  # a TLS alert, the answer to a request in plaintext
        return "a TLS listener: set security_protocol='SSL' or 'SASL_SSL'"
    return ""


def encode_request(request: Request[Any], *, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return the whole frame of a request: length, header (v1, or v2 where the version is flexible), body."""
    out = bytearray()
    _write_request(out, request, version, correlation_id, client_id)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
    return bytes(out)


def encode_request_in_parts(
    request: Request[Any], *, version: int, correlation_id: int, client_id: str | None
) -> Parts:
    """Do as ``encode_request``; long record batches are not copied, but stay pieces of their own."""
    out = FrameParts()
    _write_request(out, request, version, correlation_id, client_id)
    parts = out.finish()
    _LENGTH.pack_into(parts[0], 0, sum(map(len, parts)) - _LENGTH.size)
    return parts


def _write_request(
    out: bytearray, request: Request[Any], version: int, correlation_id: int, client_id: str | None
) -> None:
    out += bytes(_LENGTH.size)
    out += _REQUEST_HEADER.pack(request.api_key, version, correlation_id)
    if client_id is None:
        out += _CLIENT_ID_LENGTH.pack(-1)
    else:
        name = client_id.encode()  # never a compact string: a broker must be able to read it in any version
        out += _CLIENT_ID_LENGTH.pack(len(name)) + name
    if request.is_flexible_in(version):
        out.append(0)
    write_message(request, version, out)


def read_response_header(frame: memoryview, request: type[Request[Any]], version: int) -> tuple[int, int]:
    """Return the correlation id of a response, and where its body starts. Raises MalformedResponse."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        start = _CORRELATION_ID.size
        if version >= request.flexible_from and request.api_key != _API_VERSIONS:  # has_flexible_response_header()
            start = skip_tags(frame, start) if frame[start] else start + 1
    except (struct.error, IndexError) as error:
        raise MalformedResponse(f"a response of {len(frame)} bytes has no complete header") from error
    return correlation_id, start


@cache
def has_flexible_response_header(message: type[Message], version: int) -> bool:
    """Whether the response's header has tagged fields. Never for ApiVersions: the client knows no version yet."""
    return version >= message.flexible_from and message.api_key != _API_VERSIONS


def skip_tags(buffer: memoryview, at: int) -> int:
    """Return where the tagged fields at ``at`` end. Raises MalformedResponse, IndexError."""
    count, at = read_uvarint(buffer, at)
    if count > MOST_TAGS:
        too_many_tags(count)
    for _ in range(count):
        _, at = read_uvarint(buffer, at)
        size, at = read_uvarint(buffer, at)
        at += size
        if at > len(buffer):
            raise MalformedResponse("a tagged field of a header is longer than its frame")
    return at


# The broker's side


class RequestHeader(NamedTuple):
    """The header of a request, and the ``body`` that follows it."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview


def decode_request_header(frame: memoryview, flexible_from: dict[int, int]) -> RequestHeader:
    """Return the header of a request. ``flexible_from``: by API key, the first flexible version of each known API.

    Raises MalformedResponse.
    """
    try:
        api_key, api_version, correlation_id = _REQUEST_HEADER.unpack_from(frame)
        at = _REQUEST_HEADER.size
        client_id = None
        if not (api_key == _CONTROLLED_SHUTDOWN and api_version == 0):
            (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, at)
            at += _CLIENT_ID_LENGTH.size
            if length >= 0:
                if at + length > len(frame):
                    raise MalformedResponse("the client id is longer than its frame")
                client_id = str(frame[at : at + length], "utf-8")
                at += length
        if api_version >= flexible_from.get(api_key, api_version + 1):
            at = skip_tags(frame, at)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedResponse(f"a request of {len(frame)} bytes has no complete header") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, frame[at:])


def encode_response(response: Response, *, version: int, correlation_id: int) -> bytes:
    """Return the whole frame of a response."""
    out = bytearray(_LENGTH.size)
    out += _CORRELATION_ID.pack(correlation_id)
    if has_flexible_response_header(type(response), version):
        out.append(0)
    write_message(response, version, out)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
    return bytes(out)
