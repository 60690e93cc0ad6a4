"""The smallest client there is: a socket, one request, its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, ClassVar, TypeVar

from aiokc.testing.brokers.apis.table import versions_of
from aiokc.testing.kafka.jars import KAFKA_VERSION
from aiokc.wire import Request, Response, decode, encode_request, read_response_header

R = TypeVar("R", bound=Response)
_NEWEST = versions_of(KAFKA_VERSION.rpartition(".")[0])


class WireClient:
    """One connection to one broker. ``spoken`` are the versions of an old one: newer requests go out in its newest."""

    spoken: ClassVar[Mapping[int, tuple[int, int]]] = {}

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._correlation_ids = count(1)
        self._sent: list[tuple[type[Request[Any]], int, int]] = []

    def send(self, request: Request[Any], version: int | None = None) -> None:
        """Send a request, in the newest version that the tests' real Kafka has too if no other is given."""
        if version is None:
            version = min(request.max_version, _NEWEST.get(request.api_key, (0, request.max_version))[1])
        version = min(version, self.spoken.get(request.api_key, (0, version))[1])
        correlation_id = next(self._correlation_ids)
        self._sent.append((type(request), version, correlation_id))
        self._writer.write(encode_request(request, version=version, correlation_id=correlation_id, client_id="tests"))

    async def receive(self) -> Any:
        """Return the next answer, which must be that of the oldest request that has none yet."""
        request, version, correlation_id = self._sent.pop(0)
        frame = memoryview(await self.frame())
        answered, start = read_response_header(frame, request, version)
        assert answered == correlation_id
        return decode(request.response, frame[start:], version)

    async def frame(self) -> bytes:
        """Return the next frame. Raises IncompleteReadError, ConnectionError."""
        size = int.from_bytes(await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def ask(self, request: Request[R], version: int | None = None) -> R:
        """Send a request and return its answer."""
        self.send(request, version)
        answer: R = await self.receive()
        return answer

    def write(self, data: bytes) -> None:
        """Send bytes that may be no request at all."""
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connected(bootstrap: str, broker: int = 1) -> AsyncIterator[WireClient]:
    """Connect to the n-th address of ``bootstrap``."""
    host, _, port = bootstrap.split(",")[broker - 1].partition(":")
    client = WireClient(*await asyncio.open_connection(host, int(port)))
    try:
        yield client
    finally:
        client.close()
