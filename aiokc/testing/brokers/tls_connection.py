"""``TlsConnection``: TLS between a connection's socket and its protocol, by OpenSSL in memory.

The loop's own TLS has one context for all connections of a server, where a certificate can change here; and it ends a
handshake that fails without the alert that tells the client why.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

_log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS: Final = 60.0
#: What a Java broker answers to bytes that are no TLS: the alert unexpected_message. OpenSSL says nothing.
_NO_TLS: Final = bytes.fromhex("15 0303 0002 020a")
_NO_TLS_REASONS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST")


class TlsConnection(asyncio.Protocol):
    """One client's connection. ``factory`` makes the protocol that gets the decrypted bytes, after the handshake.

    With ``is_half`` the client gets half of the first answer of the handshake, and nothing more. While the connection
    lasts it is in ``alive``.
    """

    _transport: asyncio.Transport

    def __init__(
        self,
        context: ssl.SSLContext,
        factory: Callable[[], asyncio.BufferedProtocol],
        alive: set[TlsConnection],
        *,
        is_half: bool,
    ) -> None:
        self._factory = factory
        self._alive = alive
        self._is_half = is_half
        self._is_silent = False
        self._is_paused = False
        self._protocol: asyncio.BufferedProtocol | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    # What the socket's transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._alive.add(self)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(_HANDSHAKE_SECONDS, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._is_silent:
            return
        self._incoming.write(data)
        if self._protocol is None and not self._shake_hands():
            return
        self._read()

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        self._alive.discard(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    # TLS

    def _shake_hands(self) -> bool:
        """Go on with the handshake; return whether it is over."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            _log.info("a TLS handshake failed: %s", error)
            self._flush()  # the alert
            if error.reason in _NO_TLS_REASONS:
                self._transport.write(_NO_TLS)
            self._transport.close()
            return False
        self._flush()
        self._deadline.cancel()
        self._protocol = self._factory()
        self._protocol.connection_made(_TlsTransport(self))
        return True

    def _read(self) -> None:
        """Decrypt what has arrived, for as long as the protocol wants to read."""
        assert self._protocol is not None
        while not self._is_paused and not self._transport.is_closing():
            buffer = memoryview(self._protocol.get_buffer(-1))
            try:
                size = cast(int, self._tls.read(len(buffer), buffer))
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:
                _log.info("a TLS connection breaks: %s", error)
                self._transport.abort()
                return
            if not size:  # the client has closed its side
                self.close()
                return
            self._protocol.buffer_updated(size)
        self._flush()

    def _flush(self) -> None:
        """Send what OpenSSL has to say."""
        data = self._outgoing.read()
        if not data or self._transport.is_closing():
            return
        if self._is_half:
            self._is_silent = True
            data = data[: len(data) // 2]
        self._transport.write(data)

    # What the protocol's transport calls

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        if not self._transport.is_closing() and data:
            self._tls.write(data)
            self._flush()

    def close(self) -> None:
        """Say that no more comes, and close the connection once that is sent."""
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # the client has not said so yet; a broker does not wait for it
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def pause(self, paused: bool) -> None:
        """Read no more, or go on."""
        self._is_paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._read)

    def info(self, name: str, default: Any) -> Any:
        """Return what a transport's get_extra_info returns."""
        return self._tls.getpeercert() if name == "peercert" else self._transport.get_extra_info(name, default)


class _TlsTransport(asyncio.Transport):
    """The transport that the protocol sees."""

    def __init__(self, tls: TlsConnection) -> None:
        super().__init__()
        self._tls = tls

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls.info(name, default)

    def write(self, data: Any) -> None:
        self._tls.write(data)

    def close(self) -> None:
        self._tls.close()

    def abort(self) -> None:
        self._tls.abort()

    def pause_reading(self) -> None:
        self._tls.pause(True)

    def resume_reading(self) -> None:
        self._tls.pause(False)
