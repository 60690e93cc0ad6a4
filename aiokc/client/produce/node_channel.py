"""NodeChannel: the way to one broker, that is one connection for records, and the requests in flight on it in order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ...core.backoff import Backoff
from ...core.produce.requests import Asked
from ...core.stopwatch import RequestCounter
from ...errors import KafkaError
from ...net.connection import Connection
from ...net.reply import Written
from ...wire.messages.produce import ProduceResponse


@dataclass(slots=True)
class InFlight:
    """A Produce request that was written, and that the broker has to answer."""

    asked: Asked
    connection: Connection
    written: Written[ProduceResponse]

    @property
    def has_ended(self) -> bool:
        """Whether the answer has come, or will not come any more."""
        return self.written.waiter.reply.done()


class NodeChannel:
    """What the sender knows about one broker.

    ``preparing``: a task connects, or waits until the connection may be written to. ``reading``: a task takes in the
    first answer in flight, which takes time. ``error`` is why the broker can't be reached now; None: it can, or that
    was not tried.
    """

    def __init__(self, node_id: int, backoff: Backoff, counter: RequestCounter) -> None:
        self.node_id = node_id
        self.backoff = backoff
        self.counter = counter
        self.connection: Connection | None = None
        self.in_flight: deque[InFlight] = deque()
        self.preparing = False
        self.reading = False
        self.error: KafkaError | None = None
        self.heard_at: float | None = None  # when the broker last answered
        self.refused_since: float | None = None  # since when it takes nothing, though something waits

    @property
    def usable(self) -> Connection | None:
        """The connection, if a request may be written to it this moment."""
        connection = self.connection
        return connection if connection is not None and connection.can_write else None
