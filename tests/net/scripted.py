"""A TCP server on loopback that runs one script for each connection: the test writes every byte that it sends."""

from __future__ import annotations

import asyncio
import atexit
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from random import Random
from typing import Any

from aiokc.config import ClientConfig
from aiokc.net.connection import Connection
from aiokc.net.options import ConnectionOptions
from aiokc.net.pool import Pool, Purpose
from aiokc.types import Broker
from aiokc.wire import Request, RequestHeader, Response, decode, decode_request_header, encode_response
from aiokc.wire.messages.discovery import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokc.wire.messages.group import HeartbeatRequest, HeartbeatResponse
from aiokc.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

_APIS: dict[int, type[Request[Any]]] = {
    request.api_key: request
    for request in (
        ApiVersionsRequest,
        MetadataRequest,
        HeartbeatRequest,
        SaslHandshakeRequest,
        SaslAuthenticateRequest,
    )
}
_FLEXIBLE = {key: request.flexible_from for key, request in _APIS.items()}

#: What a broker offers unless a test says otherwise: (API key, lowest, highest).
OFFERED = ((1, 4, 17), (3, 0, 12), (12, 0, 4), (18, 0, 4))
WITH_SASL = (*OFFERED, (17, 0, 1), (36, 0, 2))


class Peer:
    """The broker's end of one connection. ``number`` counts the connections of its server from 0."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self._reader = reader
        self._writer = writer
        self.number = number

    async def request(self) -> RequestHeader:
        """Return the next request. Raises EOFError when the client has closed the connection."""
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        return decode_request_header(memoryview(await self._reader.readexactly(length)), _FLEXIBLE)

    async def read(self, count: int) -> bytes:
        """Read that many bytes, whatever they are."""
        return await self._reader.readexactly(count)

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def reply(self, asked: RequestHeader, response: Response) -> None:
        self.send(frame_of(asked, response))

    async def greet(self, *offered: tuple[int, int, int]) -> None:
        """Answer the handshake."""
        asked = await self.request()
        assert asked.api_key == ApiVersionsRequest.api_key
        self.reply(asked, api_versions(*offered))

    async def log_in(self, code: int = 0, text: str | None = None, session_ms: int = 0) -> bytes:
        """Answer SaslHandshake and one SaslAuthenticate, with ``code``. Return what the client sent."""
        self.reply(await self.request(), SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]))
        asked = await self.request()
        answer = SaslAuthenticateResponse(
            error_code=code, error_message=text, auth_bytes=b"", session_lifetime_ms=session_ms
        )
        self.reply(asked, answer)
        return decode(SaslAuthenticateRequest, asked.body, asked.api_version).auth_bytes

    async def serve(self, answer: Callable[[RequestHeader], Response] | None = None) -> None:
        """Answer the handshake, then every request until the client closes."""
        await self.greet()
        await self.serve_on(answer)

    async def serve_on(self, answer: Callable[[RequestHeader], Response] | None = None) -> None:
        """Answer every request until the client closes."""
        while True:
            asked = await self.request()
            self.reply(asked, answer(asked) if answer is not None else plain_answer(asked))

    async def until_closed(self) -> None:
        """Return when the client has closed the connection; what it sends is read and dropped."""
        while await self._reader.read(65536):
            pass

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """Close with a TCP reset."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def aclose(self) -> None:
        self._writer.transport.abort()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return  # closed, and not by this server

    async def drain(self) -> None:
        await self._writer.drain()


Script = Callable[[Peer], Coroutine[Any, Any, None]]


class Server:
    """A listening socket. ``accepted`` counts connections; ``ended`` holds the numbers of those that have ended."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.accepted = 0
        self.open = 0
        self.port = 0
        self.failures: list[BaseException] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._peers: list[Peer] = []
        self._changed = asyncio.Condition()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def broker(self, node_id: int) -> Broker:
        return Broker(node_id, "127.0.0.1", self.port)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, self.accepted)
        self._peers.append(peer)
        self.accepted += 1
        self.open += 1
        task = asyncio.get_running_loop().create_task(self._run(peer))
        self._tasks.add(task)

    async def _run(self, peer: Peer) -> None:
        try:
            await self.script(peer)
        except (EOFError, ConnectionError):
            pass  # the client closed: how most scripts end
        except Exception as error:
            self.failures.append(error)
        finally:
            peer.close()
            self.open -= 1
            async with self._changed:
                self._changed.notify_all()

    async def all_closed(self) -> None:
        """Return when every connection has ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.open == 0)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self._peers:
            await peer.aclose()


@asynccontextmanager
async def serving(script: Script, *, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Listen on loopback; an assertion that fails in a script fails the test."""
    server = Server(script)
    listening = await asyncio.start_server(server.accept, "127.0.0.1", port, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        await ticks(5)  # what the kernel has accepted is on its way to accept(), and asyncio loses it at a close()
        listening.close()
        await server.stop()
        await listening.wait_closed()
        if server.failures:
            raise server.failures[0]


async def serve_plainly(peer: Peer) -> None:
    """The script of a broker in good order."""
    await peer.serve()


async def never_answer(peer: Peer) -> None:
    """The script of a broker that hangs: it accepts, and reads."""
    await peer.until_closed()


def named(name: str) -> Script:
    """The script of a broker that answers with its name."""

    async def script(peer: Peer) -> None:
        await peer.serve(lambda asked: metadata(name))

    return script


def frame_of(asked: RequestHeader, response: Response) -> bytes:
    return encode_response(response, version=asked.api_version, correlation_id=asked.correlation_id)


def api_versions(*offered: tuple[int, int, int]) -> ApiVersionsResponse:
    apis = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in offered or OFFERED]
    return ApiVersionsResponse(error_code=0, api_keys=apis)


def metadata(cluster_id: str = "cluster", throttle_time_ms: int = 0) -> MetadataResponse:
    return MetadataResponse(throttle_time_ms=throttle_time_ms, brokers=[], cluster_id=cluster_id, topics=[])


def many_topics(count: int) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
    )
    topics = [MetadataResponseTopic(error_code=0, name=f"t{number}", partitions=[partition]) for number in range(count)]
    return MetadataResponse(brokers=[], topics=topics)


def plain_answer(asked: RequestHeader) -> Response:
    """Return an answer that shows which request it belongs to: the cluster id is the topic that was asked for."""
    if asked.api_key == HeartbeatRequest.api_key:
        return HeartbeatResponse(throttle_time_ms=0, error_code=0)
    return metadata(topic_of(asked))


def topic_of(asked: RequestHeader) -> str:
    request = decode(MetadataRequest, asked.body, asked.api_version)
    return str(request.topics[0].name) if request.topics else "cluster"


def options(**given: Any) -> ConnectionOptions:
    return ConnectionOptions(**{"client_id": "test", "max_response_bytes": 1 << 20, **given})


@asynccontextmanager
async def connected(server: Server, **given: Any) -> AsyncIterator[Connection]:
    """A connection to a scripted server, called "broker 1"."""
    connection = await Connection.open(
        "broker 1", ("127.0.0.1", server.port), options(**given), timeout=10.0, server_hostname="localhost"
    )
    try:
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()


@asynccontextmanager
async def running_pool(*servers: Server | str, random: Random | None = None, **given: Any) -> AsyncIterator[Pool]:
    """A pool whose task runs; short pauses and a fixed seed unless told otherwise."""
    bootstrap = ",".join(server if isinstance(server, str) else server.bootstrap for server in servers)
    config = ClientConfig(
        **{"bootstrap_servers": bootstrap, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 5, **given}
    )
    pool = Pool(config, random=random or Random(7))
    task = asyncio.get_running_loop().create_task(pool.run())
    try:
        yield pool
    finally:
        await pool.aclose()
        await task


def about(topic: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)])


async def ask_over(connection: Connection, topic: str, timeout: float = 10.0) -> str | None:
    """Send a Metadata request; the answer of a plain script is the topic."""
    return (await connection.request(about(topic), timeout=timeout)).cluster_id


async def ask(
    pool: Pool, node_id: int | None, topic: str = "t", timeout: float = 10.0, purpose: Purpose = Purpose.DATA
) -> str | None:
    """Send a Metadata request, to any broker where ``node_id`` is None; the answer of a plain script is the topic."""
    request = about(topic)
    if node_id is None:
        return (await pool.any_broker(MetadataRequest, lambda _: request, timeout=timeout)).cluster_id
    return (await pool.request(node_id, request, timeout=timeout, purpose=purpose)).cluster_id


_kept = ExitStack()  # the sockets of dead_port()
atexit.register(_kept.close)


def dead_port() -> int:
    """Return a port of loopback that refuses connections: it is taken until this process ends, and nobody listens.

    A port that was only free may be given to a server of a test that runs beside this one.
    """
    probe = _kept.enter_context(socket.socket())
    probe.bind(("127.0.0.1", 0))
    port: int = probe.getsockname()[1]
    return port


async def ticks(count: int) -> None:
    """Let the loop run ``count`` rounds."""
    for _ in range(count):
        await asyncio.sleep(0)


async def cancelled(awaitable: Awaitable[Any], after: int) -> bool:
    """Run a call as a task, cancel it after that many rounds of the loop; return whether it was cancelled in time."""
    task = asyncio.ensure_future(awaitable)
    await ticks(after)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False
