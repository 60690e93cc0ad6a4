"""A request and what becomes of it: what an interceptor sees, and may do."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Protocol

from ...error_codes import ErrorCode
from ...wire import Request, Response, encode_response
from .apis.table import HANDLERS
from .call import Call
from .refusals import refused


class Line(Protocol):
    """The connection that the request came from."""

    async def write(self, frame: bytes) -> None:
        """Send bytes, as fast as the broker's link is."""

    def close(self) -> None:
        """Close, after what was written has gone out."""

    def abort(self) -> None:
        """Close at once, whatever was written."""


class Exchange:
    """One request of one client to one broker. It is settled once it was answered, swallowed, or cut off."""

    def __init__(self, call: Call[Any], correlation_id: int, line: Line) -> None:
        self.call = call
        self.settled = False
        self._correlation_id = correlation_id
        self._line = line

    @property
    def request(self) -> Any:
        """The request, of a class in ``aiokc.wire.messages`` or ``aiokc.testing.messages``."""
        return self.call.request

    @property
    def version(self) -> int:
        """The API version that the client chose."""
        return self.call.version

    @property
    def client_id(self) -> str:
        return self.call.client_id

    @property
    def broker(self) -> int:
        """The id of the broker that was asked."""
        return self.call.node.node_id

    @property
    def random(self) -> Random:
        """The cluster's own source of chance."""
        return self.call.cluster.random

    async def handle(self) -> Response | None:
        """Do what was asked, as a healthy broker does, and return the answer without sending it."""
        return await HANDLERS[type(self.request)](self.call)

    def refusal(self, code: ErrorCode) -> Response:
        """Return the answer that says ``code`` wherever this API's answers have an error code."""
        request: Request[Any] = self.request
        return refused(request, self.version, code)

    def frame(self, response: Response) -> bytes:
        """Return the bytes that carry an answer."""
        return encode_response(response, version=self.version, correlation_id=self._correlation_id)

    async def answer(self, response: Response | None) -> None:
        """Send the answer, if there is any."""
        self.settled = True
        if response is not None:
            await self._line.write(self.frame(response))

    async def answer_bytes(self, frame: bytes) -> None:
        """Send these bytes as the answer, whatever they are."""
        self.settled = True
        await self._line.write(frame)

    def close(self) -> None:
        """Close the connection, after what was written has gone out."""
        self.settled = True
        self._line.close()

    def abort(self) -> None:
        """Cut the connection off."""
        self.settled = True
        self._line.abort()

    async def never(self) -> None:
        """Wait until the client gives the connection up: requests behind this one wait too, as on a real broker."""
        self.settled = True
        await asyncio.get_running_loop().create_future()
