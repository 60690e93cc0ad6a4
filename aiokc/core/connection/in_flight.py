"""The requests in flight on one connection: which reply belongs to which request, and in which version to send one.

A broker answers the requests of one connection strictly in order. So a reply belongs to the oldest request in flight.
A reply with any other correlation id means that the two sides no longer agree on where a frame starts. Then the
connection is poisoned: the client does not use it or believe it any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from ...errors import KafkaError, MalformedResponse, UnsupportedVersion, fresh
from ...wire import Request, encode_request, read_response_header

W = TypeVar("W")

AnyRequest: TypeAlias = Request[Any]


class VersionRange(NamedTuple):
    """A range of versions of one API, both ends included."""

    min: int
    max: int

    def __str__(self) -> str:
        return f"{self.min}" if self.min == self.max else f"{self.min}-{self.max}"


@dataclass(slots=True, eq=False)
class Exchange(Generic[W]):
    """One request in flight. ``waiter`` is what the driver needs to hand over the reply.

    ``abandoned``: its caller was cancelled. The request keeps its place, because its reply still comes.
    """

    correlation_id: int
    request_type: type[AnyRequest]
    version: int
    waiter: W
    abandoned: bool = False

    def __str__(self) -> str:
        return f"{api_name(self.request_type)} v{self.version}"


def api_name(request_type: type[AnyRequest]) -> str:
    """Return Kafka's name of the API: "Fetch" for FetchRequest."""
    return request_type.__name__.removesuffix("Request")


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

    def usable_version(self, request_type: type[AnyRequest], max_version: int | None = None) -> int:
        """Return the highest version that both sides speak, up to ``max_version``. Raises UnsupportedVersion."""
        return usable_version(self.versions, request_type, max_version, broker=self.broker)

    def send(self, request: AnyRequest, version: int, waiter: W) -> tuple[Exchange[W], bytes]:
        """Put a request in flight. Return its frame, which the driver must write whole, before any other."""
        if self.error is not None:
            raise fresh(self.error)
        frame = encode_request(request, version=version, correlation_id=self._next_id, client_id=self._client_id)
        exchange = Exchange(self._next_id, type(request), version, waiter)
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        self._in_flight.append(exchange)
        return exchange, frame

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


def usable_version(
    offered: Mapping[int, VersionRange],
    request_type: type[AnyRequest],
    max_version: int | None = None,
    *,
    broker: str,
) -> int:
    """Return the highest version of an API that this client and ``broker`` both speak. Raises UnsupportedVersion."""
    highest = request_type.max_version if max_version is None else min(request_type.max_version, max_version)
    theirs = offered.get(request_type.api_key)
    if theirs is not None:
        version = min(highest, theirs.max)
        if version >= request_type.min_version and version >= theirs.min:
            return version
    ours, api = VersionRange(request_type.min_version, highest), api_name(request_type)
    if theirs is None:
        raise UnsupportedVersion(f"{broker} does not offer {api} (API key {request_type.api_key}), needed as v{ours}")
    raise UnsupportedVersion(f"{broker} offers {api} v{theirs}, and v{ours} is needed: no version in common")
