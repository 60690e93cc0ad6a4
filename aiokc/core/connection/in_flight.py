"""The requests in flight on one connection: which reply belongs to which request, and in which version to send one.

A broker answers the requests of one connection strictly in order. So a reply belongs to the oldest request in flight.
A reply with any other correlation id means that the two sides no longer agree on where a frame starts. Then the
connection is poisoned: the client does not use it or believe it any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...errors import KafkaError, MalformedResponse, fresh
from ...wire import Parts, encode_request, encode_request_in_parts, read_response_header
from ...wire.lone_batch import LoneBatch
from ...wire.messages.produce import ProduceRequest
from ...wire.messages.sasl import SaslAuthenticateRequest
from ..sasl.mechanism import HiddenBytes
from ..versions import AnyRequest, VersionRange, api_name, usable_version

W = TypeVar("W")


@dataclass(slots=True, eq=False)
class Exchange(Generic[W]):
    """One request in flight. ``waiter`` is what the driver needs to hand over the reply.

    If its caller is cancelled, the request keeps its place, because its reply still comes.
    """

    correlation_id: int
    request_type: type[AnyRequest]
    version: int
    waiter: W

    def __str__(self) -> str:
        return f"{api_name(self.request_type)} v{self.version}"


class InFlightRequests(Generic[W]):
    """The requests in flight on one connection to ``broker`` (a name for error messages)."""

    def __init__(self, broker: str, client_id: str) -> None:
        self.versions: Mapping[int, VersionRange] = {}
        self.error: KafkaError | None = None
        self.broker = broker
        self._client_id = client_id
        self._in_flight: deque[Exchange[W]] = deque()
        self._next_id = 0

    def __len__(self) -> int:
        return len(self._in_flight)

    def __iter__(self) -> Iterator[Exchange[W]]:
        return iter(self._in_flight)

    @property
    def next_id(self) -> int:
        """The correlation id of the next request."""
        return self._next_id

    def usable_version(self, request_type: type[AnyRequest], max_version: int | None = None) -> int:
        """Return the highest version that both sides speak, up to ``max_version``. Raises UnsupportedVersion."""
        return usable_version(self.versions, request_type, max_version, broker=self.broker)

    def send(self, request: AnyRequest, version: int, waiter: W) -> tuple[Exchange[W], bytes]:
        """Put a request in flight. Return its frame, which the driver must write whole, before any other.

        No repr shows a frame with credentials: drivers have it in their local variables.
        """
        if self.error is not None:
            raise fresh(self.error)
        frame = encode_request(request, version=version, correlation_id=self._next_id, client_id=self._client_id)
        if isinstance(request, SaslAuthenticateRequest):
            frame = HiddenBytes(frame)
        return self._enter(type(request), version, waiter), frame

    def send_in_parts(self, request: AnyRequest, version: int, waiter: W | None) -> Parts:
        """Do as ``send``, with a frame in pieces. ``waiter`` None: the broker does not answer the request (acks=0)."""
        if self.error is not None:
            raise fresh(self.error)
        parts = encode_request_in_parts(
            request, version=version, correlation_id=self._next_id, client_id=self._client_id
        )
        if waiter is None:
            self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        else:
            self._enter(type(request), version, waiter)
        return parts

    def send_lone(self, lone: LoneBatch, records: bytearray, waiter: W) -> Parts:
        """Do as ``send_in_parts`` with a Produce request of one batch."""
        if self.error is not None:
            raise fresh(self.error)
        parts = lone.parts(self._next_id, self._client_id, records)
        self._in_flight.append(Exchange(self._next_id, ProduceRequest, lone.version, waiter))  # as _enter() does
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        return parts

    def _enter(self, request_type: type[AnyRequest], version: int, waiter: W) -> Exchange[W]:
        exchange = Exchange(self._next_id, request_type, version, waiter)
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        self._in_flight.append(exchange)
        return exchange

    def receive(self, frame: memoryview) -> tuple[Exchange[W], memoryview]:
        """Return the request that ``frame`` answers, and the body of the reply.

        Raises MalformedResponse, and poisons the connection, where the frame answers no request.
        """
        if self.error is not None:
            raise fresh(self.error)
        if not self._in_flight:
            raise self._poisoned(f"sent {len(frame)} bytes that nobody asked for")
        exchange = self._in_flight[0]
        try:
            correlation_id, start = read_response_header(frame, exchange.request_type, exchange.version)
        except MalformedResponse as error:
            raise self._poisoned(f"sent a reply to {exchange} without a proper header: {error}", error) from error
        if correlation_id != exchange.correlation_id:
            raise self._poisoned(
                f"answered request {correlation_id} where {exchange.correlation_id} ({exchange}) was due"
            )
        self._in_flight.popleft()
        return exchange, frame[start:]

    def poison(self, error: KafkaError) -> list[Exchange[W]]:
        """Make every later call raise ``error``. Return the requests that were in flight, in order."""
        self.error = self.error or error
        lost = list(self._in_flight)
        self._in_flight.clear()
        return lost

    def _poisoned(self, what: str, cause: Exception | None = None) -> MalformedResponse:
        self.error = error = MalformedResponse(f"{self.broker} {what}")
        error.__cause__ = cause
        return fresh(error)
