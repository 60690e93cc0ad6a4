"""What the pool knows about one broker: its address, its connections by purpose, and when to try it again."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from enum import Enum
from typing import Final

import anyio

from ...core.backoff import Backoff
from ...core.connection.least_loaded import NodeView
from ...core.connection.traffic import NodeTraffic
from ...errors import CertificateRefused, KafkaError
from ...types import Broker, address_text
from ..addresses import Address, TriedAddresses
from ..connection import Connection
from ..options import Route


class Purpose(Enum):
    """What a connection is for. A broker answers each connection strictly in order, so slow requests get their own.

    The broker holds a Fetch (FETCH) back until there are records: this would delay every request behind it. It parks
    a JoinGroup (JOIN) until the whole group has joined, which takes longer still. Requests that may wait for a slow
    disk, for instance offsets by timestamp (DATA), must not delay heartbeats and commits (COORDINATOR). Records
    (PRODUCE) are many bytes, and wait for replicas.
    """

    FETCH = "fetch"
    DATA = "data"
    COORDINATOR = "coordinator"
    JOIN = "join"
    PRODUCE = "produce"

    __hash__ = object.__hash__  # Enum's is a call of Python, for each request


# The connections for requests that any broker can answer.
_FOR_ANY: Final = (Purpose.DATA, Purpose.COORDINATOR)
#: A failure counts for so long after the pause that follows it, and for retry_backoff_max_ms. What needs the broker
#: tries again before: its own pauses are of some seconds, or retry_backoff_max_ms. Without a limit a broker that was
#: restarted, and that nothing has needed since, would count as failed for months.
FAILURE_COUNTS_SECONDS: Final = 30.0


class Attempt:
    """One attempt to connect, shared by all requests that wait for the same connection.

    ``outcome`` always gets a result, and must not be cancelled: wait for it with asyncio.wait(), which does not.
    """

    def __init__(self, node: Node, purpose: Purpose) -> None:
        self.node = node
        self.purpose = purpose
        self.outcome: asyncio.Future[Connection | KafkaError] = asyncio.get_running_loop().create_future()
        self.scope = anyio.CancelScope()

    def settle(self, outcome: Connection | KafkaError) -> None:
        """Set the outcome, for all requests that wait for it; only the first call counts."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        if self.node.attempts.get(self.purpose) is self:
            del self.node.attempts[self.purpose]


class Node:
    """One broker at one address. A broker that moves to another address becomes another Node.

    ``failed``: the last attempt or request ended with a failure (``error``), maybe long ago, see ``trouble``; no new
    attempt begins before ``retry_at``, on the loop's clock. ``route``: how the newest connection, open or not, reached
    the broker. ``traffic`` counts what is exchanged with the broker, at whatever address. ``setup_timeout``: how many
    seconds the next attempt to connect may take.
    """

    def __init__(
        self,
        broker: Broker,
        backoff: Backoff,
        slow_backoff: Backoff,
        setup_timeouts: Backoff,
        traffic: NodeTraffic,
        failure_counts: float,
    ) -> None:
        """``slow_backoff``: the pauses after a certificate was refused, which someone has to replace.

        ``failure_counts``: for how many seconds after the pause that follows it a failure is the broker's state.
        """
        self.broker = broker
        self.traffic = traffic
        self.attempts: dict[Purpose, Attempt] = {}
        self.connections: dict[Purpose, Connection] = {}
        self.retry_at = 0.0
        self.error: KafkaError | None = None
        self._failure_counts = failure_counts
        self._counts_until = 0.0  # by the loop's time: until then ``error`` is the broker's state
        self.route: Route | None = None
        self.tried = TriedAddresses()  # of its name
        self._backoff = backoff
        self._slow_backoff = slow_backoff
        self._setup_timeouts = setup_timeouts
        self.setup_timeout = setup_timeouts.next()

    @property
    def address(self) -> Address:
        return self.broker.host, self.broker.port

    @property
    def name(self) -> str:
        """The name in messages. A bootstrap server has a negative id, which is internal and not shown."""
        if self.broker.node_id < 0:
            return f"bootstrap server {address_text(*self.address)}"
        return f"broker {self.broker.node_id} ({address_text(*self.address)})"

    @property
    def failed(self) -> bool:
        return self.error is not None

    def trouble(self, now: float) -> KafkaError | None:
        """Return why the broker can't be used at the moment; None also where nothing has tried to for a while.

        Any thread may ask.
        """
        return self.error if self.attempts or now < self._counts_until else None

    @property
    def is_connected(self) -> bool:
        """Whether any of its connections accepts requests."""
        return any(connection.usable for connection in list(self.connections.values()))

    def connection(self, purpose: Purpose) -> Connection | None:
        """Return the connection for this purpose, if there is one that accepts requests."""
        found = self.connections.get(purpose)
        return found if found is not None and found.usable else None

    def attempt(self, purpose: Purpose) -> Attempt | None:
        """Return the attempt under way that decides whether there will be a connection for this purpose.

        After a failure this may be an attempt for any purpose: one attempt is enough to see whether the broker is back.
        """
        found = self.attempts.get(purpose)
        return next(iter(self.attempts.values()), None) if found is None and self.failed else found

    def connected(self, purpose: Purpose, connection: Connection) -> None:
        """A new connection is ready."""
        self.connections[purpose] = connection
        connection.traffic = self.traffic
        self.traffic.connects += 1
        self.route = connection.route
        self.error = None
        self._slow_backoff.reset()
        self._setup_timeouts.reset()
        self.setup_timeout = self._setup_timeouts.next()

    def closed(self, connection: Connection) -> None:
        """A connection has ended: its buffers go, whether or not another one is made."""
        for purpose, one in list(self.connections.items()):
            if one is connection:
                del self.connections[purpose]

    def adopt(self, bootstrap: Node) -> None:
        """Take over the connections of a bootstrap server at this broker's address: they lead to this broker."""
        for purpose, connection in bootstrap.connections.items():
            if connection.usable:
                connection.rename(self.name)
                self.connected(purpose, connection)
        bootstrap.connections = {}

    def answered(self) -> None:
        """A request was answered: the pauses between attempts start again from the shortest."""
        self.error = None
        self._backoff.reset()

    def not_connected(self, error: KafkaError, now: float) -> None:
        """An attempt to connect failed. The next one may take longer (KIP-601).

        Where a crowd of clients comes back at once, each connection takes longer than usual. With a fixed limit all of
        them would give up just before they are ready, and begin again.
        """
        if now >= self.retry_at:
            self.setup_timeout = self._setup_timeouts.next()
        self.failure(error, now)

    def failure(self, error: KafkaError, now: float) -> None:
        """An attempt or a request failed. Two failures within one pause, for two purposes, lengthen it only once."""
        self.error = error
        if now >= self.retry_at:
            backoff = self._slow_backoff if isinstance(error, CertificateRefused) else self._backoff
            self.retry_at = now + backoff.next()
        self._counts_until = self.retry_at + self._failure_counts

    def refused(self, error: KafkaError, retry_at: float) -> None:
        """The broker has refused the credentials; until ``retry_at`` no broker is offered them again."""
        self.error = error
        self._counts_until = retry_at + self._failure_counts

    def retire(self) -> None:
        """Cancel attempts to connect, and close each connection as soon as nothing is in flight on it.

        A JoinGroup may be parked for minutes, and a broker that has moved, or is gone, may never answer it. So that
        connection is closed now.
        """
        for attempt in list(self.attempts.values()):
            attempt.scope.cancel()
        for purpose, connection in list(self.connections.items()):
            if purpose is Purpose.JOIN:
                connection.close()
            else:
                connection.retire()

    def disown(self) -> None:
        """The address leads to another cluster: end the connections, and look its name up anew for the next one."""
        self.route = None
        for connection in list(self.connections.values()):
            connection.close()  # what is in flight would be answered by that cluster

    def spare(self) -> tuple[Purpose, Connection | None]:
        """Return the connection with the fewest requests in flight for what any broker can answer, and its purpose.

        DATA and None if there is no usable connection.
        """
        found = [(purpose, self.connection(purpose)) for purpose in _FOR_ANY]
        usable = [(purpose, connection) for purpose, connection in found if connection is not None]
        return min(usable, key=lambda one: one[1].in_flight, default=(Purpose.DATA, None))

    def view(self, tried: Set[int], now: float) -> NodeView:
        """Return what the choice of a broker depends on, for a request for which these nodes were ``tried`` in vain."""
        is_tried = self.broker.node_id in tried
        _, connection = self.spare()
        return NodeView(
            self.broker.node_id,
            connected=connection is not None,
            connecting=any(purpose in self.attempts for purpose in _FOR_ANY),
            in_flight=connection.in_flight if connection is not None else 0,
            muted_until=connection.muted_until if connection is not None else 0.0,
            retry_at=self.retry_at,
            failed=self.failed if is_tried else self.trouble(now) is not None,
            doubtful=self.failed,
        )
