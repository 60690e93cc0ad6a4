"""The connection pool of a client: which broker gets a request, over which connection, and when to connect anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, Final, TypeVar

import anyio
from anyio.abc import TaskGroup

from ..config import ClusterConfig
from ..core.cluster.home_cluster import HomeCluster
from ..core.cluster.topic_ids import ASKED_BY_FROM
from ..core.connection.login_policy import LoginPolicy, is_refusal
from ..errors import (
    AuthenticationFailed,
    CertificateRefused,
    ConnectionFailed,
    KafkaError,
    MalformedResponse,
    UnsupportedVersion,
    fresh,
)
from ..observation import NodeMetrics
from ..types import Broker
from ..wire import FrameBuffers, Request, Response
from ..wire.messages.discovery import MetadataRequest, MetadataResponse
from .brokers.any_broker import AnyBroker, Unusable
from .brokers.home_check import check_home
from .brokers.node import Attempt, Node, Purpose
from .brokers.nodes import Nodes
from .brokers.warnings import Warnings
from .connect import connect
from .connection import Connection
from .login.endings import SessionEnded
from .options import ConnectionOptions, Route, credentials_of, tls_of
from .own_thread import OwnThread

__all__ = ["Pool", "Purpose"]

R = TypeVar("R", bound=Response)

logger = logging.getLogger("aiokc.net")

_SPARE_SHARE: Final = 0.25  # of what may be received, for spare buffers that wait for the next frame
_CLIENT_ID: Final = "aiokc"
_CLOSE_SECONDS: Final = 1.0  # how long aclose() waits; everything is cancelled and aborted before


class Pool:
    """Connects to a broker when a request needs it, with at most one attempt at a time for each purpose.

    The owner of the pool must run ``run`` in a task: it makes new connections, and without it requests wait until their
    deadline. Once ``run`` has ended, requests over existing connections still work, until ``aclose``. A request may be
    cancelled at any moment: the attempt to connect goes on for the other requests that wait for it.
    """

    def __init__(self, config: ClusterConfig, *, random: Random) -> None:
        self._config = config
        #: Long frames are received into these buffers. The code that is done with a frame may give its buffer back.
        self.buffers = FrameBuffers(int(config.received_bytes * _SPARE_SHARE))
        #: When the client may log in again, after a broker has refused its credentials.
        self.logins = LoginPolicy(random)
        #: Called when the credentials were refused: ``logins.take()`` is to be raised by the application's next call.
        self.on_refused: Callable[[], None] = lambda: None
        #: Which cluster this client is one of, and so whose answers count.
        self.home = HomeCluster()
        self._options = ConnectionOptions(
            client_id=_CLIENT_ID if config.client_id is None else config.client_id,
            max_response_bytes=config.longest_response_bytes,
            resolve=config.resolve,
            tls=tls_of(config),
            credentials=credentials_of(config, random),
            thread=OwnThread("aiokc login") if config.uses_sasl else None,
            random=random,
            logins=self.logins,
            renewal_timeout=config.socket_connection_setup_timeout_ms / 1e3,
            buffers=self.buffers,
            reader_thread=config.has_reader_thread,
            home=self.home,
        )
        for weakness in config.security_warnings:
            logger.warning("%s", weakness)
        self._nodes = Nodes(config, random)
        self._warnings = Warnings()
        self._any = AnyBroker(config, self._nodes, self._reach, self._check_open, self._warnings.warn, random)
        # Dicts, not sets: what is done to all of them is done in the order in which they were made, in every run.
        self._connections: dict[Connection, Node] = {}
        self._attempts: dict[Attempt, None] = {}
        self._tasks: TaskGroup | None = None
        self._running = False
        self._closing = asyncio.Event()
        self._stopped = asyncio.Event()

    # Lifecycle

    async def run(self) -> None:
        """Make the connections that requests need and close idle ones, until cancelled, ``close`` or ``aclose``."""
        if self._running:
            raise RuntimeError("the pool is running already")
        self._running = True
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                if self._options.credentials is not None:
                    tasks.start_soon(self._options.credentials.run)
                for attempt in self._attempts:
                    tasks.start_soon(self._connect, attempt)
                while not self._closing.is_set():
                    await self._pause(self._close_idle())
                tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            self._stopped.set()
            for connection in self._connections:
                connection.lose_owner()
            self._end_threads()

    def in_child(self) -> None:
        """Make no connection any more: this process was forked from the one whose pool this is."""
        self._tasks = None

    def _end_threads(self) -> None:
        """End the threads once they are done with what they were given. They would start again for another login."""
        for owner in (self._options.tls, self._options.thread):
            if owner is not None:
                owner.close()

    def close(self) -> None:
        """Close every connection; requests in flight fail. The loop closes the sockets in its next iteration."""
        self._closing.set()
        self._give_up_attempts()
        for connection in list(self._connections):
            connection.close()

    async def aclose(self) -> None:
        """``close``, and wait until the sockets are closed and ``run`` has ended: for a second at most."""
        connections = list(self._connections)
        self.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                for connection in connections:
                    await connection.wait_closed()
                if self._running:
                    await self._stopped.wait()
        except TimeoutError:
            logger.warning("closing took longer than %.3g s: an attempt to connect does not end", _CLOSE_SECONDS)

    def set_brokers(self, brokers: Mapping[int, Broker]) -> None:
        """Take over the addresses of the newest metadata.

        A broker that moved gets new connections. Connections to its old address, to brokers that are gone, and to
        bootstrap servers close as soon as nothing is in flight on them; at once where that may be a parked JoinGroup.
        But if a new broker has the address of a bootstrap server, it takes over the connections of that server.
        """
        for node in self._nodes.set_brokers(brokers):
            self._adopted(node)

    def introduce(self, broker: Broker) -> None:
        """Make a broker known that the metadata do not name yet. Does nothing if the broker's id is known."""
        node = self._nodes.introduce(broker)
        if node is not None:
            self._adopted(node)

    def has_at(self, broker: Broker) -> bool:
        """Whether this is the address at which the broker with this id is connected to."""
        node = self._nodes.find(broker.node_id)
        return node is not None and node.address == (broker.host, broker.port)

    def _adopted(self, node: Node) -> None:
        self._connections |= dict.fromkeys(node.connections.values(), node)

    # Requests

    async def request(
        self,
        node_id: int,
        request: Request[R],
        *,
        purpose: Purpose = Purpose.DATA,
        timeout: float,
        max_version: int | None = None,
    ) -> R:
        """Return a broker's response. One attempt to connect is made only.

        The broker may have moved, and the caller knows better when to look for it elsewhere. Raises, within ``timeout``
        seconds: ConnectionFailed, RequestTimedOut, MalformedResponse, UnsupportedVersion, AuthenticationFailed.
        """
        return await self.request_made(
            node_id, type(request), lambda version: request, purpose=purpose, timeout=timeout, max_version=max_version
        )

    async def metadata(
        self, request: MetadataRequest, *, timeout: float, again: bool | None = None
    ) -> MetadataResponse:
        """Do as ``any_broker``, until a broker's answer tells of the cluster."""

        def make(version: int) -> MetadataRequest:
            if version < ASKED_BY_FROM and any(topic.name is None for topic in request.topics or ()):
                raise UnsupportedVersion(
                    f"topics can't be asked for by id in Metadata v{version}: that needs v{ASKED_BY_FROM} (Kafka 3.1)"
                )
            return request

        return await self.any_broker(
            MetadataRequest, make, timeout=timeout, unusable=self.home.why_unusable, asks_others=True, again=again
        )

    async def any_broker(
        self,
        request_type: type[Request[R]],
        make: Callable[[int], Request[R]],
        *,
        timeout: float,
        max_version: int | None = None,
        unusable: Unusable[R] | None = None,
        asks_others: bool = False,
        again: bool | None = None,
    ) -> R:
        """Ask one broker after the other the request that ``make`` returns for the version chosen, until one answers.

        Raises, within ``timeout`` seconds: NoBrokersAvailable, UnsupportedVersion, AuthenticationFailed;
        ConnectionFailed where the client is closed.

        ``unusable`` returns why the answer of the broker of that name is of no use; None if it is of use.
        ``asks_others``: a broker that does not offer the API decides for no other one. ``again``: as in
        ``AnyBroker.ask``.
        """
        return await self._any.ask(
            request_type,
            make,
            timeout=timeout,
            max_version=max_version,
            unusable=unusable,
            asks_others=asks_others,
            again=again,
        )

    async def request_made(
        self,
        node_id: int,
        request_type: type[Request[R]],
        make: Callable[[int], Request[R]],
        *,
        purpose: Purpose = Purpose.DATA,
        timeout: float,
        max_version: int | None = None,
        at_once: bool = False,
        repeatable: bool = True,
    ) -> R:
        """Do as ``request``, with the request that ``make`` returns for the version that is chosen.

        ``at_once``: as in ``Connection.ask``. ``repeatable``: where the session of a connection ends while the request
        is in flight, it is sent once more, though the broker may have handled it. Otherwise this raises SessionEnded.
        """
        deadline = self._now() + timeout
        node = self._nodes.find(node_id)
        connection = None if node is None else node.connection(purpose)
        if connection is None:
            connection = await self.connection(node_id, purpose, timeout=timeout)
        version = connection.usable_version(request_type, max_version)
        try:
            response = await connection.ask(make(version), version, deadline, at_once=at_once)
        except SessionEnded as ended:  # no failure of the broker
            if ended.in_flight and not repeatable:
                raise
            connection = await self.connection(node_id, purpose, timeout=deadline - self._now())
            version = connection.usable_version(request_type, max_version)
            response = await connection.ask(make(version), version, deadline, at_once=at_once)
        if (node := self._nodes.find(node_id)) is not None:
            node.answered()
        return response

    async def connection(self, node_id: int, purpose: Purpose = Purpose.DATA, *, timeout: float) -> Connection:
        """Return a connection to a known broker: wait for the pause between attempts, then for one attempt.

        Raises ConnectionFailed, MalformedResponse, UnsupportedVersion, AuthenticationFailed.
        """
        deadline = self._now() + timeout
        while True:
            node = self._nodes[node_id]
            outcome = await self._reach(node, purpose, deadline)
            if isinstance(outcome, Connection):
                return outcome
            if self._nodes.is_current(node):
                raise fresh(outcome)  # several requests may have waited for this attempt
            # The metadata have changed meanwhile: try the broker's new address.

    def drop(self, node_id: int, purpose: Purpose) -> None:
        """Close the connection for this purpose, if there is one: a later request gets another one."""
        node = self._nodes.find(node_id)
        if node is not None and (connection := node.connections.get(purpose)) is not None:
            connection.close()  # also one that only waits for what is in flight

    def reach_anew(self, node_id: int) -> None:
        """Have new connections made to a broker, for which its name is resolved again.

        Those that are open end as soon as nothing is in flight on them.
        """
        node = self._nodes.find(node_id)
        for connection in list(node.connections.values()) if node is not None else ():
            logger.info("%s does not answer as what other brokers say it is: it is connected to anew", connection.name)
            connection.retire()

    def prompt_connection(self, node_id: int) -> Connection | None:
        """Return a connection on which the broker holds no Fetch back; None if there is none (none is made)."""
        node = self._nodes.find(node_id)
        if node is None:
            return None
        fetching = node.connection(Purpose.FETCH)
        return fetching if fetching is not None and not fetching.in_flight else node.connection(Purpose.DATA)

    def route(self, node_id: int) -> Route | None:
        """Return how this broker was last reached; None if it never was, or has moved since."""
        node = self._nodes.find(node_id)
        return None if node is None else node.route

    @property
    def options(self) -> ConnectionOptions:
        """What all connections have in common, also the ``BlockingConnection`` that a caller opens itself."""
        return self._options

    @property
    def metrics(self) -> dict[int, NodeMetrics]:
        return self._nodes.metrics

    @property
    def is_closed(self) -> bool:
        """Whether no new connection is made any more."""
        return self._closing.is_set() or self._stopped.is_set()

    def trouble(self, now: float) -> KafkaError | None:
        """Return why a broker can't be used at the moment (``now`` on the loop's clock); None if there is none.

        A broker that nothing has tried to use since a failure is in no trouble. Any thread may ask.
        """
        return self._nodes.trouble(now)

    # Connecting

    async def _reach(self, node: Node, purpose: Purpose, deadline: float) -> Connection | KafkaError:
        """Return a usable connection, or the error of one failed attempt, or of the deadline."""
        while (connection := node.connection(purpose)) is None:
            self._check_open()
            if not self._nodes.is_current(node):
                return ConnectionFailed(f"{node.name} has moved, or is gone, according to the metadata")
            if (refusal := self.logins.in_pause(self._now())) is not None:
                return refusal
            if self._now() >= deadline:
                if isinstance(node.error, AuthenticationFailed) and node.error.retriable:
                    return node.error
                credentials = self._options.credentials
                if credentials is not None and (unanswered := credentials.unanswered(node.name)) is not None:
                    return unanswered
                last = f"; before that: {node.error}" if node.error is not None else ""
                return ConnectionFailed(f"{node.name}: still no connection at the deadline of the request{last}")
            attempt = node.attempt(purpose)
            if attempt is None and self.logins.refusal is not None:
                attempt = next(iter(self._attempts), None)  # one attempt shows whether the credentials are good again
            if attempt is None and node.retry_at > self._now():
                await self._pause(min(node.retry_at, deadline))
                continue
            attempt = attempt or self._start_attempt(node, purpose)
            await asyncio.wait((attempt.outcome,), timeout=deadline - self._now())
            if not attempt.outcome.done() or not isinstance(failure := attempt.outcome.result(), KafkaError):
                continue
            if attempt.node is node or is_refusal(failure):
                return failure
        return connection

    def _start_attempt(self, node: Node, purpose: Purpose) -> Attempt:
        attempt = node.attempts[purpose] = Attempt(node, purpose)
        self._attempts[attempt] = None
        if self._tasks is not None:
            self._tasks.start_soon(self._connect, attempt)
        return attempt

    async def _connect(self, attempt: Attempt) -> None:
        node = attempt.node
        outcome: Connection | KafkaError = ConnectionFailed(
            f"{node.name}: gave up connecting, it is not needed any more"
        )
        try:
            with attempt.scope:
                connection = await connect(
                    node.name,
                    node.address,
                    self._options,
                    timeout=node.setup_timeout,
                    first=None if node.route is None else node.route.address,
                    tried=node.tried,
                    on_closed=self._closed,
                    start=self._start,
                )
                self._nodes.has_connected = True
                self.logins.succeeded()
                await check_home(connection, node, self.home)
                outcome = connection
                self._connections[connection] = node
                node.connected(attempt.purpose, connection)
                if self._closing.is_set() or attempt.scope.cancel_called:
                    connection.close()  # given up in the same iteration in which the broker answered
                self._warnings.connected(node.address)
                logger.debug("connected to %s for %s", node.name, attempt.purpose.value)
        except KafkaError as error:
            outcome = error
            if is_refusal(error):
                self._refused(attempt, error)
            else:
                node.not_connected(error, self._now())
                self._warnings.warn(node.address, error)
            if isinstance(error, CertificateRefused) and self._nodes.has_connected:
                outcome = ConnectionFailed(str(error))  # while the client runs, the broker is one that can't be reached
                outcome.__cause__ = error
        finally:
            self._settle(attempt, outcome)

    def _refused(self, attempt: Attempt, error: AuthenticationFailed) -> None:
        """A broker has refused the credentials: the other attempts would only be refused, too."""
        now = self._now()
        self.logins.refused(error, now)
        attempt.node.refused(error, self.logins.retry_at)
        for other in [other for other in self._attempts if other is not attempt]:
            self._settle(other, error)
            other.scope.cancel()
        if self._nodes.has_connected:
            logger.error("%s; the next attempt is in %.3g s", error, self.logins.pause(now))
        self.on_refused()

    def _start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run the renewal of a SASL session. False: ``run`` has ended, and no task of ours may outlive it."""
        if self._tasks is None or self._closing.is_set():
            return False
        self._tasks.start_soon(run)
        return True

    def _settle(self, attempt: Attempt, outcome: Connection | KafkaError) -> None:
        self._attempts.pop(attempt, None)
        attempt.settle(outcome)

    def _give_up_attempts(self) -> None:
        for attempt in list(self._attempts):
            self._settle(attempt, ConnectionFailed(f"{attempt.node.name}: gave up connecting, the client is closed"))

    def _closed(self, connection: Connection) -> None:
        if (node := self._connections.pop(connection, None)) is None:
            return  # it was still being checked: its attempt tells why
        node.closed(connection)
        if connection.error is None:
            logger.debug("closed the connection to %s", connection.name)
            return
        if isinstance(connection.error, SessionEnded):
            return logger.info("%s", connection.error)  # no failure: a new connection may be made at once
        node.failure(connection.error, self._now())
        if isinstance(connection.error, MalformedResponse) or not connection.has_served:
            # The next connection may well be made, and end so.
            self._warnings.warn((node.address, "closed"), connection.error)
        else:
            logger.info("%s", connection.error)

    def _close_idle(self) -> float:
        """Close connections that were not used for connections_max_idle_ms; return when to look again.

        Brokers close idle connections too, at a moment when a request may be on its way.
        """
        limit = self._config.connections_max_idle_ms / 1e3
        now = self._now()
        oldest = now
        for connection in list(self._connections):
            if connection.in_flight > 0:
                continue
            if now - connection.last_used >= limit:
                connection.close()
            else:
                oldest = min(oldest, connection.last_used)
        return oldest + limit

    # What the methods above use

    def _check_open(self) -> None:
        if self.is_closed:
            raise ConnectionFailed("no new connection is made: the client is closed")

    async def _pause(self, until: float) -> None:
        """Sleep until ``until`` on the loop's clock, or until the pool closes."""
        if until <= self._now():
            return
        try:
            async with asyncio.timeout_at(until):
                await self._closing.wait()
        except TimeoutError:
            return  # the time is over

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
