"""Looks at what a peer answers before the client believes that it is a broker: its first bytes, or a TLS handshake."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final, cast

from ...core.doctor.first_reply import ENOUGH, FirstReply, Speaks, speaks
from ...net.addresses import Address, create_connection
from ...net.options import SOFTWARE
from ...wire import encode_request
from ...wire.messages.discovery import ApiVersionsRequest
from .kit import Kit

# A number that no other protocol's bytes happen to have in this place.
_CORRELATION_ID: Final = 0x61696F6B
_TELLS: Final = 8  # bytes with which a frame of Kafka is known,
_ALERT: Final = 5  # and those with which an alert of TLS is; it has seven


async def first_reply(
    kit: Kit, address: Address, *, context: ssl.SSLContext | None = None, server_hostname: str | None = None
) -> tuple[FirstReply, Speaks]:
    """Send an ApiVersions request; return the first bytes that come back, and what the peer speaks by them.

    With a ``context`` over TLS. At most 64 bytes are read, and no credentials are sent.
    """
    software, version = SOFTWARE
    frame = encode_request(
        ApiVersionsRequest(client_software_name=software, client_software_version=version),
        version=3,
        correlation_id=_CORRELATION_ID,
        client_id=None,
    )
    reading = _Reading(frame)
    patience, started = kit.patience(), kit.now()
    tls: dict[str, Any] = {}
    if context is not None:
        tls = {"ssl": context, "server_hostname": server_hostname, "ssl_handshake_timeout": patience + 60.0}
    try:
        async with asyncio.timeout(patience):
            await create_connection(lambda: reading, address, **tls)
            await reading.done.wait()
    except OSError as error:  # the time is over, or the connection broke: what came until then counts
        reading.closed = reading.closed or not isinstance(error, TimeoutError)
    finally:
        reading.abort()
    reply = FirstReply(bytes(reading.head), reading.closed, kit.now() - started)
    return reply, speaks(reply, _CORRELATION_ID)


async def tls_version(kit: Kit, address: Address) -> str | None:
    """Return the version of TLS that the peer speaks, whatever its certificate; None: it speaks none.

    It is "" for a peer that answers with an alert of TLS. Nothing is sent after the handshake.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    patience = kit.patience()
    protocol = _Reading(b"")
    try:
        async with asyncio.timeout(patience):
            transport = await create_connection(
                lambda: protocol, address, ssl=context, ssl_handshake_timeout=patience + 60.0, server_hostname=""
            )
    except ssl.SSLError as error:
        # An alert is TLS too: a broker that knows no version of ours, or wants a name.
        return "" if "ALERT" in (error.reason or "").upper() else None
    except (OSError, ValueError):
        return None
    else:
        version: str | None = transport.get_extra_info("ssl_object").version()
        return version or ""
    finally:
        protocol.abort()


class _Reading(asyncio.Protocol):
    """Sends ``frame``, and keeps the first bytes that come back."""

    def __init__(self, frame: bytes) -> None:
        self.head = bytearray()
        self.closed = False
        self.done = asyncio.Event()
        self._frame = frame
        self._transport: asyncio.Transport | None = None
        self._given_up = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._given_up:
            self._transport.abort()
        elif self._frame:
            self._transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        self.head += data[: ENOUGH - len(self.head)]
        if len(self.head) >= (_ALERT if self.head.startswith(b"\x15\x03") else _TELLS):
            self.done.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = self.closed or not self._given_up
        self.done.set()

    def abort(self) -> None:
        self._given_up = True
        if self._transport is not None:
            self._transport.abort()
