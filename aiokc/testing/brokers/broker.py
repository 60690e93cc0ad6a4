"""A broker's network side: its listeners, and its connections, each served one request at a time, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, cast

from ...error_codes import ErrorCode
from ...errors import MalformedResponse
from ...wire import FrameAssembler, decode_prefix, decode_request_header
from ...wire.messages.discovery import ApiVersionsRequest, ApiVersionsResponse
from ...wire.messages.fetch import FetchResponse
from ..refusal import ClosesConnection
from ..reserved_port import ReservedPort
from ..security.certificate_authority import common_name
from ..security.sasl.authenticator import Admission, Authenticator
from ..virtual.loop import VirtualLoop
from .apis.metadata import advertised
from .apis.table import FLEXIBLE_FROM, REQUESTS
from .call import Call
from .cluster_state import BrokerNode, ClusterState, Endpoint
from .exchange import Exchange
from .tls_connection import TlsConnection

_log = logging.getLogger(__name__)

_MAX_REQUEST_BYTES: Final = 100 << 20  # socket.request.max.bytes
_FETCH_CODE_FROM: Final = 7  # the version in which Fetch has an error code beside those of the partitions
_QUEUED_REQUESTS: Final = 8  # the connection reads no more; further requests stay in the socket

#: Carries out an exchange.
Serve = Callable[[Exchange], Awaitable[None]]


class Broker:
    """The listeners of one node and its connections."""

    def __init__(self, node: BrokerNode, cluster: ClusterState, serve: Serve) -> None:
        self.node = node
        self.cluster = cluster
        self.serve = serve
        self.connections: set[Connection] = set()
        self.serving: set[asyncio.Task[None]] = set()  # of connections, and of those that have ended with a request
        self._servers: list[asyncio.Server] = []
        self._ports: dict[str, ReservedPort] = {}  # by listener: kept while the broker is down
        self._tls: set[TlsConnection] = set()
        self._coming_up = asyncio.Lock()

    async def listen(self) -> None:
        """Listen at the node's addresses, and from then on at the same ports. Raises OSError where a port is taken."""
        async with self._coming_up:
            if self._servers:  # another call has started listening while this one waited for the lock
                return
            opened: list[asyncio.Server] = []
            try:
                for listener, endpoint in self.node.endpoints.items():
                    server = await self._open(listener, endpoint)
                    opened.append(server)
                    endpoint.port = server.sockets[0].getsockname()[1]
            except BaseException:
                for server in opened:
                    server.close()
                raise
            self._servers = opened

    async def _open(self, listener: str, endpoint: Endpoint) -> asyncio.Server:
        """Listen at one address. Raises OSError; ValueError for TLS in a loop that has no real sockets."""
        loop = asyncio.get_running_loop()
        is_virtual = isinstance(loop, VirtualLoop)
        factory: Callable[[], asyncio.BaseProtocol] = partial(Connection, self, listener)
        if self.cluster.security.listeners[listener].uses_tls:
            if is_virtual:
                text = f"listener {listener}: the virtual network has no TLS; SASL_PLAINTEXT works there"
                raise ValueError(text)
            factory = partial(self._tls_connection, listener)
        if not is_virtual and listener not in self._ports:
            self._ports[listener] = ReservedPort(endpoint.bound, endpoint.port)
            endpoint.port = self._ports[listener].number
        return await loop.create_server(factory, endpoint.bound, endpoint.port)

    def _tls_connection(self, listener: str) -> TlsConnection:
        security = self.cluster.security
        is_half = security.faults.take("half_handshake") is not None
        context = security.context(listener)
        return TlsConnection(context, partial(Connection, self, listener), self._tls, is_half=is_half)

    @property
    def is_listening(self) -> bool:
        """Whether the broker accepts connections."""
        return bool(self._servers)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do ``work`` in a task that ``close`` cancels."""
        task = asyncio.get_running_loop().create_task(work)
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)
        return task

    def close(self) -> list[asyncio.Task[None]]:
        """Stop listening, abort every connection, and carry out no request; return the tasks, which end soon."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        tasks = list(self.serving)
        for task in tasks:
            task.cancel()
        for greeting in list(self._tls):
            greeting.abort()
        for connection in list(self.connections):
            connection.abort()
        return tasks

    def release_ports(self) -> None:
        """Give up the ports: the broker never listens again."""
        for port in self._ports.values():
            port.release()


class _SlowLink:
    """Answers that are under way on a link with latency: each arrives in its time, and in the order they were sent."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._frames: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closes = False

    @property
    def is_empty(self) -> bool:
        return not self._frames

    def send(self, frame: bytes, latency: float) -> None:
        due = asyncio.get_running_loop().time() + latency
        self._frames.append((max(due, self._frames[-1][0]) if self._frames else due, frame))
        self._wait()

    def close(self) -> None:
        """Close the connection once all have arrived."""
        self._closes = True
        self._wait()

    def hurry(self) -> None:
        """Let all arrive now."""
        self._arrive(float("inf"))

    def drop(self) -> None:
        self._frames.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if self._frames and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._frames[0][0], self._arrive)
        elif not self._frames and self._closes:
            self._transport.close()

    def _arrive(self, until: float | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = asyncio.get_running_loop().time() if until is None else until
        while self._frames and self._frames[0][0] <= now:
            self._transport.write(self._frames.popleft()[1])
        self._wait()


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    authenticator: Authenticator

    def __init__(self, broker: Broker, listener: str) -> None:
        self._broker = broker
        self._listener = listener
        self._frames: deque[memoryview] = deque()
        self._assembler = FrameAssembler(_MAX_REQUEST_BYTES)
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closing = False
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._served: Exchange | None = None

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._link = _SlowLink(self._transport)
        self._host = str((transport.get_extra_info("peername") or ("unknown",))[0])
        security = self._broker.cluster.security
        certificate = transport.get_extra_info("peercert")
        self.authenticator = Authenticator(security.listeners[self._listener], security, common_name(certificate))
        self._broker.connections.add(self)
        self._task = self._broker.spawn(self._run())
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
        """End with the connection, but for a request that was read, and waits: a broker carries that out all the same.

        1. A test has a Produce wait, and the client's time for it is over: the client closes the connection.
        2. It sends the records again over another one, and the broker appends them.
        3. The first Produce has waited long enough. Only its answer is lost.
        """
        self._broker.connections.discard(self)
        self._closing = True
        self._lost.set_result(None)
        self._link.drop()
        if self._served is None or self._served.settled:
            self._task.cancel()

    # What an exchange calls (its `Line`)

    async def write(self, frame: bytes) -> None:
        """Send bytes, with the latency and the throughput of the broker's link; none once the connection has ended."""
        if self._lost.done():
            return
        node = self._broker.node
        seconds = len(frame) / node.bytes_per_second
        if seconds > 0:
            await asyncio.sleep(seconds)
        if node.latency > 0 or not self._link.is_empty:
            self._link.send(frame, node.latency)  # meanwhile the next request is served: latencies do not add up
        else:
            self._transport.write(frame)
        await self._writable.wait()

    def hurry(self) -> None:
        """Let the answers arrive that are under way."""
        self._link.hurry()

    def close(self) -> None:
        """Close the connection after all written bytes have been sent."""
        self._closing = True
        self._link.close()

    def abort(self) -> None:
        """Close the connection at once and drop the bytes that have not been sent."""
        self._closing = True
        self._transport.abort()

    def outlive(self, work: Coroutine[Any, Any, None]) -> None:
        """Do ``work`` in a task that ends with the broker, not with the connection.

        ``stop`` of the cluster raises its error.
        """
        self._broker.spawn(work).add_done_callback(self._has_outlived)

    def _has_outlived(self, work: asyncio.Task[None]) -> None:
        error = None if work.cancelled() else work.exception()
        if isinstance(error, Exception) and not isinstance(error, ClosesConnection):  # the connection is closed
            self._broker.cluster.failed(error)

    # Requests

    async def _run(self) -> None:
        try:
            while not self._closing:
                await self._answer(await self._next_frame())
        except (MalformedResponse, ClosesConnection) as error:
            _log.info("broker %s closes a connection: %s", self._broker.node.node_id, error)
            self.abort()
        except Exception as error:  # a bug in the cluster or in a test's interceptor: ``stop`` raises it
            self.abort()
            self._broker.cluster.failed(error)

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
        authenticator = self.authenticator
        if authenticator.expects_raw_token:
            await self._answer_token(frame)
            return
        header = decode_request_header(frame, FLEXIBLE_FROM)
        admission = authenticator.admit(header.api_key, self._broker.cluster.now())
        if admission in (Admission.CLOSED, Admission.CLOSED_LATE):
            await self._close_unanswered(late=admission is Admission.CLOSED_LATE)
            return
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
            listener=self._listener,
            authenticator=authenticator,
            lost=self._lost,
        )
        exchange = Exchange(call, header.correlation_id, self)
        if admission is Admission.REFUSED:
            await self._refuse_state(exchange)
            return
        self._served = exchange
        await self._broker.serve(exchange)
        self._served = None
        if authenticator.has_failed or authenticator.closes:
            self.close()

    async def _answer_token(self, frame: memoryview) -> None:
        """Serve a token of SASL that has no request header, as clients send it after SaslHandshake 0."""
        answer = self.authenticator.raw_token(bytes(frame), self._broker.cluster.now())
        if answer is None:
            await self._close_unanswered(late=True)
        else:
            await self.write(len(answer).to_bytes(4) + answer)

    async def _close_unanswered(self, *, late: bool) -> None:
        """Close the connection without a word; ``late``: after the delay of failed authentications."""
        if late:
            await asyncio.sleep(self._broker.cluster.settings.connection_failed_authentication_delay_ms / 1000)
        self.close()

    async def _refuse_state(self, exchange: Exchange) -> None:
        """Answer ILLEGAL_SASL_STATE in the layout of the request that came instead of SaslAuthenticate, and close."""
        try:
            response: Any = exchange.refusal(ErrorCode.ILLEGAL_SASL_STATE)
            if isinstance(response, FetchResponse) and exchange.version >= _FETCH_CODE_FROM:
                response.error_code = ErrorCode.ILLEGAL_SASL_STATE
        except TypeError:  # this API has no error code
            response = None
        await asyncio.sleep(self._broker.cluster.settings.connection_failed_authentication_delay_ms / 1000)
        await exchange.answer(response)
        self.close()

    async def _refuse_version(self, correlation_id: int) -> None:
        """Answer an ApiVersions request of an unknown version in version 0, which every client can read (KIP-511)."""
        known = [one for one in advertised(self._broker.cluster) if one.api_key == ApiVersionsRequest.api_key]
        response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known)
        node, cluster = self._broker.node, self._broker.cluster
        request = ApiVersionsRequest()
        call = Call(request, 0, "", self._host, node, cluster, self._listener, self.authenticator, self._lost)
        await Exchange(call, correlation_id, self).answer(response)
