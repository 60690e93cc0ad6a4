"""``TlsServer``: accepts TLS connections, each with the context that its listener has at that moment."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from ..security.security_state import SecurityState
from ..virtual.loop import VirtualLoop

_log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS: Final = 60.0
_CLIENT_HELLO_BYTES: Final = 65_536


class TlsServer:
    """A listening socket, and the handshakes under way. ``factory`` makes the protocol of each connection.

    ``loop.create_server`` has one context for all connections; here a certificate can change.
    """

    def __init__(self, security: SecurityState, listener: str, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._security = security
        self._listener = listener
        self._factory = factory
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises OSError; ValueError in a loop that has no real sockets."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            raise ValueError(f"listener {self._listener}: the virtual network has no TLS; SASL_PLAINTEXT works there")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self._socket.setblocking(False)
        self._spawn(self._accept())
        return int(self._socket.getsockname()[1])

    def close(self) -> list[asyncio.Task[None]]:
        """Stop listening; end the handshakes under way. Return the tasks, which end soon."""
        for task in self._tasks:
            task.cancel()
        self._socket.close()
        return list(self._tasks)

    def _spawn(self, work: asyncio._CoroutineLike[None]) -> None:
        task = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            accepted, _ = await loop.sock_accept(self._socket)
            self._spawn(self._open(accepted))

    async def _open(self, accepted: socket.socket) -> None:
        """Begin one connection, or close it where the handshake fails."""
        context = self._security.context(self._listener)
        loop = asyncio.get_running_loop()
        accepted.setblocking(False)
        try:
            if self._security.faults.take("half_handshake") is not None:
                await self._open_half(accepted, context)
            else:
                await loop.connect_accepted_socket(
                    self._factory, accepted, ssl=context, ssl_handshake_timeout=_HANDSHAKE_SECONDS
                )
        except (OSError, EOFError) as error:  # ssl.SSLError is an OSError
            _log.info("a TLS handshake at listener %s failed: %r", self._listener, error)
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise

    async def _open_half(self, accepted: socket.socket, context: ssl.SSLContext) -> None:
        """Send half of the first answer of a handshake, and nothing more until the client gives up."""
        loop = asyncio.get_running_loop()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = context.wrap_bio(incoming, outgoing, server_side=True)
        while not outgoing.pending:
            hello = await loop.sock_recv(accepted, _CLIENT_HELLO_BYTES)
            if not hello:
                raise ConnectionResetError("the client has closed the connection")
            incoming.write(hello)
            try:
                ours.do_handshake()
            except ssl.SSLWantReadError:
                pass
        answer = outgoing.read()
        await loop.sock_sendall(accepted, answer[: len(answer) // 2])
        while await loop.sock_recv(accepted, _CLIENT_HELLO_BYTES):
            pass
        accepted.close()
