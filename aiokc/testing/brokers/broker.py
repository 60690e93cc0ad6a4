"""A broker's network side: its listener, and its connections, each served one request at a time, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, cast

from ...error_codes import ErrorCode
from ...errors import MalformedResponse
from ...wire import FrameAssembler, decode_prefix, decode_request_header
from ...wire.messages.discovery import ApiVersionsRequest, ApiVersionsResponse
from ..refusal import ClosesConnection
from .apis.metadata import advertised
from .apis.table import FLEXIBLE_FROM, REQUESTS
from .call import Call
from .cluster_state import BrokerNode, ClusterState
from .exchange import Exchange

_log = logging.getLogger(__name__)

_MAX_REQUEST_BYTES: Final = 100 << 20  # socket.request.max.bytes
_QUEUED_REQUESTS: Final = 8  # the connection reads no more; further requests stay in the socket

#: Carries out an exchange.
Serve = Callable[[Exchange], Awaitable[None]]


class Broker:
    """The listener of one node and its connections."""

    def __init__(
        self, node: BrokerNode, cluster: ClusterState, serve: Serve, failed: Callable[[Exception], None]
    ) -> None:
        self.node = node
        self.cluster = cluster
        self.serve = serve
        self.failed = failed
        self.connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._coming_up = asyncio.Lock()

    async def listen(self) -> None:
        """Listen at the node's address; at a free port where its port is 0 or another process has taken it."""
        loop = asyncio.get_running_loop()
        async with self._coming_up:
            if self._server is not None:  # another call has started listening while this one waited for the lock
                return
            try:
                self._server = await loop.create_server(self._connection, self.node.host, self.node.port)
            except OSError:
                if self.node.port == 0:
                    raise
                self._server = await loop.create_server(self._connection, self.node.host, 0)
            self.node.port = self._server.sockets[0].getsockname()[1]

    @property
    def is_listening(self) -> bool:
        """Whether the broker accepts connections."""
        return self._server is not None

    def _connection(self) -> Connection:
        return Connection(self)

    def close(self) -> list[asyncio.Task[None]]:
        """Stop listening and abort every connection; return the connections' tasks, which end soon."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = [connection.task for connection in self.connections]
        for connection in list(self.connections):
            connection.abort()
        return tasks


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    task: asyncio.Task[None]

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._frames: deque[memoryview] = deque()
        self._assembler = FrameAssembler(_MAX_REQUEST_BYTES)
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closing = False

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._host = str((transport.get_extra_info("peername") or ("unknown",))[0])
        self._broker.connections.add(self)
        self.task = asyncio.get_running_loop().create_task(self._run())
        if not self._broker.is_listening:  # it was accepted just before the broker was closed
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._assembler.writable()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._frames.extend(self._assembler.filled(nbytes))
        except MalformedResponse as error:
            _log.info("broker %s closes a connection: %s", self._broker.node.node_id, error)
            self.abort()
        if len(self._frames) >= _QUEUED_REQUESTS:
            self._transport.pause_reading()
        self._arrived.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._broker.connections.discard(self)
        self.task.cancel()

    # What an exchange calls (its `Line`)

    async def write(self, frame: bytes) -> None:
        """Send bytes, with the latency and the throughput of the broker's link."""
        node = self._broker.node
        seconds = node.latency + len(frame) / node.bytes_per_second
        if seconds > 0:
            await asyncio.sleep(seconds)
        self._transport.write(frame)
        await self._writable.wait()

    def close(self) -> None:
        """Close the connection after all written bytes have been sent."""
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once and drop the bytes that have not been sent."""
        self._closing = True
        self._transport.abort()

    # Requests

    async def _run(self) -> None:
        try:
            while not self._closing:
                await self._answer(await self._next_frame())
        except (MalformedResponse, ClosesConnection) as error:
            _log.info("broker %s closes a connection: %s", self._broker.node.node_id, error)
            self.abort()
        except Exception as error:  # a bug in the cluster or in a test's interceptor: ``stop`` raises it
            _log.exception("broker %s failed", self._broker.node.node_id)
            self.abort()
            self._broker.failed(error)

    async def _next_frame(self) -> memoryview:
        while not self._frames:
            self._arrived.clear()
            await self._arrived.wait()
        frame = self._frames.popleft()
        if len(self._frames) < _QUEUED_REQUESTS and not self._closing:
            self._transport.resume_reading()
        return frame

    async def _answer(self, frame: memoryview) -> None:
        """Serve one request. An API or a version that is not advertised closes the connection."""
        header = decode_request_header(frame, FLEXIBLE_FROM)
        versions = self._broker.cluster.versions.get(header.api_key)
        if versions is None:
            raise MalformedResponse(f"API {header.api_key} is not advertised")
        request_class = REQUESTS[header.api_key]
        first, last = versions
        version, body = header.api_version, header.body
        if not first <= version <= last:
            if request_class is not ApiVersionsRequest:
                raise MalformedResponse(f"{request_class.__name__} of version {version} is not advertised")
            await self._refuse_version(header.correlation_id)
            return
        request, _ = decode_prefix(request_class, body, version)  # a broker ignores bytes after the request
        call = Call(
            request=request,
            version=version,
            client_id=header.client_id or "",
            client_host=f"/{self._host}",
            node=self._broker.node,
            cluster=self._broker.cluster,
        )
        await self._broker.serve(Exchange(call, header.correlation_id, self))

    async def _refuse_version(self, correlation_id: int) -> None:
        """Answer an ApiVersions request of an unknown version in version 0, which every client can read (KIP-511)."""
        known = [one for one in advertised(self._broker.cluster) if one.api_key == ApiVersionsRequest.api_key]
        response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known)
        node, cluster = self._broker.node, self._broker.cluster
        call = Call(ApiVersionsRequest(), 0, "", self._host, node, cluster)
        await Exchange(call, correlation_id, self).answer(response)
