"""The three ways in which a client speaks TLS: asyncio, uvloop, and a blocking socket, as in the watchdog thread."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from aiokc.errors import ConnectionFailed
from aiokc.net.tls.contexts import TlsContexts
from aiokc.net.transport import FrameTransport

#: (contexts, host, port, name of the broker, seconds for the handshake) -> what the peer sent back
Reach = Callable[[TlsContexts, str, int, str, float], bytes]

BROKER = "broker 1"
FRAME = b"\0\0\0\5hello"


async def reach_on_loop(contexts: TlsContexts, host: str, port: int, broker_host: str, seconds: float) -> bytes:
    """Connect, send a frame, and return the frame that comes back. Raises what ``contexts.failure`` makes of errors."""
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def lost(error: Exception | None) -> None:
        if not answer.done():
            answer.set_exception(error or ConnectionFailed("closed"))

    context, name = await contexts.get(), contexts.server_name(broker_host)
    transport = FrameTransport(1 << 20, lambda frame: answer.set_result(bytes(frame)), lost)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            await loop.create_connection(lambda: transport, host, port, ssl=context, server_hostname=name)
    except OSError as error:
        raise contexts.failure(error, BROKER, name) or error from error
    try:
        transport.write(FRAME)
        return await answer
    except OSError as error:
        raise contexts.failure(error, BROKER, name, established=True) or error from error
    finally:
        transport.abort()
        await transport.wait_closed()


def on(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Reach:
    def reach(contexts: TlsContexts, host: str, port: int, broker_host: str, seconds: float) -> bytes:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(reach_on_loop(contexts, host, port, broker_host, seconds))

    return reach


def reach_blocking(contexts: TlsContexts, host: str, port: int, broker_host: str, seconds: float) -> bytes:
    """Do the same on a blocking socket."""
    context, name = contexts.current(), contexts.server_name(broker_host)
    with socket.create_connection((host, port), timeout=seconds) as plain:
        try:
            secure = context.wrap_socket(plain, server_hostname=name)
        except OSError as error:
            raise contexts.failure(error, BROKER, name) or error from error
        with secure:
            try:
                secure.sendall(FRAME)
                received = b""
                while len(received) < len(FRAME):
                    if not (piece := secure.recv(1024)):
                        raise ConnectionFailed("closed")
                    received += piece
                return received[4:]
            except OSError as error:
                raise contexts.failure(error, BROKER, name, established=True) or error from error
