"""What the pool knows of one broker: its address, its connections by purpose, and when to try it again."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final

import anyio

from ..core.backoff import Backoff
from ..core.connection.least_loaded import NodeView
from ..errors import KafkaError
from ..types import Broker
from .addresses import Address, address_text
from .connection import Connection, Route


class Purpose(Enum):
    """Why a connection exists: a broker answers each one strictly in order, so what must not wait gets its own.

    A Fetch (FETCH) that the broker holds back until there are records would delay everything that follows it; a
    JoinGroup that it parks until the whole group has joined (JOIN) would, for longer; and what may take a slow disk
    its time, offsets by timestamp for instance (DATA), must not delay heartbeats and commits (COORDINATOR).
    """

    FETCH = "fetch"
    DATA = "data"
    COORDINATOR = "coordinator"
    JOIN = "join"


# The connections over which a broker can be asked what any broker can answer.
_FOR_ANY: Final = (Purpose.DATA, Purpose.COORDINATOR)


class Attempt:
    """One attempt to connect, shared by everybody who waits for the same connection.

    ``outcome`` always gets a result, and is never cancelled: wait with asyncio.wait(), which leaves it alone.
    """

    def __init__(self, node: Node, purpose: Purpose) -> None:
        self.node = node
        self.purpose = purpose
        self.outcome: asyncio.Future[Connection | KafkaError] = asyncio.get_running_loop().create_future()
        self.scope = anyio.CancelScope()

    def settle(self, outcome: Connection | KafkaError) -> None:
        """Tell the outcome to all who wait; only the first one counts."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        if self.node.attempts.get(self.purpose) is self:
            del self.node.attempts[self.purpose]


class Node:
    """One broker at one address. A broker that moves to another address becomes another Node.

    ``failed``: the last thing that happened with it was a failure (``error``), and nothing is tried before
    ``retry_at``, on the loop's clock. ``route``: the way of the newest connection, open or not.
    """

    def __init__(self, broker: Broker, backoff: Backoff) -> None:
        self.broker = broker
        self.attempts: dict[Purpose, Attempt] = {}
        self.connections: dict[Purpose, Connection] = {}
        self.retry_at = 0.0
        self.error: KafkaError | None = None
        self.route: Route | None = None
        self._backoff = backoff

    @property
    def address(self) -> Address:
        return self.broker.host, self.broker.port

    @property
    def name(self) -> str:
        """What messages call it; bootstrap servers have negative ids, which are nobody's business."""
        if self.broker.node_id < 0:
            return f"bootstrap server {address_text(*self.address)}"
        return f"broker {self.broker.node_id} ({address_text(*self.address)})"

    @property
    def failed(self) -> bool:
        return self.error is not None

    def connection(self, purpose: Purpose) -> Connection | None:
        """The connection for this purpose, if there is one that accepts requests."""
        found = self.connections.get(purpose)
        return found if found is not None and found.usable else None

    def attempt(self, purpose: Purpose) -> Attempt | None:
        """The attempt under way that says whether there will be a connection for this purpose.

        After a failure that is any attempt: whether the broker is back needs to be tried once only, and not for each
        purpose.
        """
        found = self.attempts.get(purpose)
        return next(iter(self.attempts.values()), None) if found is None and self.failed else found

    def connected(self, purpose: Purpose, connection: Connection) -> None:
        """A new connection is ready."""
        self.connections[purpose] = connection
        self.route = connection.route
        self.error = None

    def adopt(self, bootstrap: Node) -> None:
        """Go on with the connections of a bootstrap server at this broker's own address: they lead to this broker."""
        for purpose, connection in bootstrap.connections.items():
            if connection.usable:
                connection.rename(self.name)
                self.connected(purpose, connection)
        bootstrap.connections = {}

    def answered(self) -> None:
        """A request was answered: the pauses between attempts start again from the shortest."""
        self.error = None
        self._backoff.reset()

    def failure(self, error: KafkaError, now: float) -> None:
        """Something with this broker failed. Two failures within one pause, of two purposes, lengthen it once."""
        self.error = error
        if now >= self.retry_at:
            self.retry_at = now + self._backoff.next()

    def retire(self) -> None:
        """Give up connecting, and close each connection as soon as nothing is in flight on it."""
        for attempt in list(self.attempts.values()):
            attempt.scope.cancel()
        for connection in list(self.connections.values()):
            connection.retire()

    def spare(self) -> tuple[Purpose, Connection | None]:
        """For what any broker can answer: the connection with the fewest requests in flight; None if there is none."""
        found = [(purpose, self.connection(purpose)) for purpose in _FOR_ANY]
        usable = [(purpose, connection) for purpose, connection in found if connection is not None]
        return min(usable, key=lambda one: one[1].in_flight, default=(Purpose.DATA, None))

    def view(self) -> NodeView:
        _, connection = self.spare()
        return NodeView(
            self.broker.node_id,
            connected=connection is not None,
            connecting=any(purpose in self.attempts for purpose in _FOR_ANY),
            in_flight=connection.in_flight if connection is not None else 0,
            muted_until=connection.muted_until if connection is not None else 0.0,
            retry_at=self.retry_at,
            failed=self.failed,
        )
