"""One POST to an identity provider by the standard library: no redirects, bounded in time and in memory. It blocks."""

from __future__ import annotations

import io
import socket
import ssl
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from ....core.sasl.mechanism import HiddenBytes
from ....errors import ConfigError
from ....secret import Secret

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

#: The longest body of an answer, in bytes.
MOST_ANSWER_BYTES: Final = 1 << 20
_CHUNK: Final = 64 * 1024


class Answer(NamedTuple):
    """Status and body of an answer."""

    status: int
    body: bytes

    def __repr__(self) -> str:
        return f"Answer(status={self.status}, body=<{len(self.body)} bytes>)"


class HttpFailure(Exception):
    """There was no answer, or none that is HTTP. The text holds nothing of what either side has sent."""


def check_url(url: str, option: str) -> SplitResult:
    """Return the parts of an https: URL, or of an http: one of this very computer. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")  # as the resolver will: an empty label, or one of 64 bytes
    except ValueError as error:
        raise ConfigError(f"{option} is no URL: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{option} must hold no user and no password: there are options for both")
    if not parts.hostname or parts.fragment or port == 0 or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"{option}={url!r} must be 'https://host/path', with no '#', and ASCII only")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ConfigError(f"{option}={url!r} would send the client's secret as plain text: it must be an https: URL")
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"{option}={url!r} must be an https: URL")
    return parts


def post(
    url: SplitResult,
    body: HiddenBytes,
    headers: Mapping[str, str | Secret],
    *,
    connect_timeout: float,
    read_timeout: float,
    context: ssl.SSLContext | None,
) -> Answer:
    """Send ``body`` and return the answer, whatever its status is; a redirect is an answer, too.

    ``connect_timeout`` bounds the connection and TLS, ``read_timeout`` the whole rest. Raises HttpFailure, OSError.
    ``context`` is for https. The exceptions do not have the frames in which the secrets of the request are variables.
    """
    import http.client  # takes long, and few clients need it; this runs in a thread

    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    connection = _connected(url, connect_timeout, context)
    sock = connection.sock
    failure: Exception
    try:
        connection.sock = _Hurried(sock, time.monotonic() + read_timeout)
        connection.request("POST", target, body, {name: _text(value) for name, value in headers.items()})
        with connection.getresponse() as response:
            return Answer(response.status, _read(response))
    except (http.client.HTTPException, ValueError) as error:  # it may show a header, or a piece of the answer
        failure = HttpFailure(f"no proper HTTP: {type(error).__name__}")
    except (HttpFailure, OSError) as error:
        failure = error.with_traceback(None)
    finally:
        connection.close()
        sock.close()
    raise failure  # here, not in the handlers: else the first exception would be the context of this one


def _text(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def _connected(url: SplitResult, timeout: float, context: ssl.SSLContext | None) -> HTTPConnection:
    import http.client

    assert url.hostname is not None
    if url.scheme == "https":
        assert context is not None
        connection: HTTPConnection = http.client.HTTPSConnection(
            url.hostname, url.port, timeout=timeout, context=context
        )
    else:
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
    connection.set_debuglevel(0)  # of all connections it may be higher: then the secret is printed with its header
    try:
        connection.connect()
    except BaseException:
        connection.close()
        raise
    return connection


def _read(response: HTTPResponse) -> bytes:
    body = bytearray()
    while chunk := response.read1(_CHUNK):
        body += chunk
        if len(body) > MOST_ANSWER_BYTES:
            raise HttpFailure(f"the answer is longer than {MOST_ANSWER_BYTES} bytes")
    if response.length:
        raise HttpFailure("the connection ended in the middle of the answer")
    return bytes(body)


class _Hurried(io.RawIOBase):
    """A socket for http.client whose reads and writes all end by one deadline.

    A socket's own timeout begins anew with each byte: a server that sends one byte a second would never time out.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._hurry()
        return self._sock.recv_into(buffer)

    def sendall(self, data: bytes) -> None:
        self._hurry()
        self._sock.sendall(data)

    def close(self) -> None:
        """Leave the socket open: http.client closes it before it reads the body. ``post`` closes it."""

    def _hurry(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return packed[0] == 127 if family == socket.AF_INET else packed == bytes(15) + b"\x01"
    return False
