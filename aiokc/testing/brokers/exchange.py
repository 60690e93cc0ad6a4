"""``Exchange``: one request and its answer, as an interceptor sees them: handle, answer, refuse, close or abort."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, Protocol

from ...error_codes import ErrorCode
from ...wire import Request, Response, encode_response
from ...wire.messages.discovery import MetadataRequest
from ...wire.messages.fetch import FetchRequest
from ...wire.messages.produce import ProduceRequest
from .apis.fetch import topic_key
from .apis.metadata import OF_TOPICS, refused_topics
from .apis.table import HANDLERS
from .authorization import authorized
from .call import Call
from .refusals import refused


class Line(Protocol):
    """The connection that the request came from."""

    async def write(self, frame: bytes) -> None:
        """Send bytes, with the latency and the throughput of the broker's link."""

    def close(self) -> None:
        """Close the connection after all written bytes have been sent."""

    def abort(self) -> None:
        """Close the connection at once and drop the bytes that have not been sent."""

    def outlive(self, work: Coroutine[Any, Any, None]) -> None:
        """Do ``work`` in a task that ends with the broker, not with the connection."""


class Exchange:
    """One request of one client to one broker.

    It is settled once it has been answered, or will never be: its connection is closed, or ``never`` waits.
    """

    def __init__(self, call: Call[Any], correlation_id: int, line: Line) -> None:
        self.call = call
        self.settled = False
        self.was_handled = False
        self._handled: Response | None = None
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
    def user(self) -> str:
        """The user of the connection; "ANONYMOUS" until it is authenticated."""
        return self.call.user

    @property
    def broker(self) -> int:
        """The id of the broker that received the request."""
        return self.call.node.node_id

    @property
    def random(self) -> Random:
        """The cluster's random number generator."""
        return self.call.cluster.random

    async def handle(self) -> Response | None:
        """Handle the request as a healthy broker does, and return the answer without sending it."""
        self._handled = await authorized(self.call, HANDLERS[type(self.request)])
        self.was_handled = True
        return self._handled

    async def go_on(self) -> None:
        """Send the answer of a healthy broker. A request that was handled already is not handled a second time."""
        await self.answer(self._handled if self.was_handled else await self.handle())

    def refusal(self, code: ErrorCode) -> Response:
        """Return the answer that has ``code`` wherever this API's answers have an error code.

        That of a Fetch has it for every partition of its session (KIP-227): most requests leave out all that have not
        changed, so an error for those that the request names would often be none. That of a Metadata names the brokers
        too, where ``code`` is one of a topic.
        """
        request: Request[Any] = self.request
        if isinstance(request, MetadataRequest) and code in OF_TOPICS:
            return refused_topics(self.call, code)
        if isinstance(request, FetchRequest):
            request = self.call.node.sessions.in_full(request, lambda topic: topic_key(topic, self.version))
        return refused(request, self.version, code)

    def frame(self, response: Response) -> bytes:
        """Return the bytes of an answer, with the length and the response header."""
        return encode_response(response, version=self.version, correlation_id=self._correlation_id)

    async def answer(self, response: Response | None) -> None:
        """Send the answer; None sends nothing. A Produce with acks=0 is never answered: errors close the connection."""
        self.settled = True
        if response is not None and isinstance(self.request, ProduceRequest) and self.request.acks == 0:
            self._line.close()
        elif response is not None:
            await self._line.write(self.frame(response))

    async def answer_bytes(self, frame: bytes) -> None:
        """Send these bytes as the answer, whatever they are."""
        self.settled = True
        await self._line.write(frame)

    def close(self) -> None:
        """Close the connection after all written bytes have been sent."""
        self.settled = True
        self._line.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self.settled = True
        self._line.abort()

    def outlive(self, work: Coroutine[Any, Any, None]) -> None:
        """Close the connection at once, and do ``work`` all the same, until the broker is taken down."""
        self.settled = True
        self._line.outlive(work)
        self._line.abort()

    async def never(self) -> None:
        """Wait until the connection ends. The connection's later requests wait too, as on a real broker."""
        self.settled = True
        await asyncio.get_running_loop().create_future()
