"""ProbeServer: answers /livez, /readyz and /metrics over HTTP, with bounds on what a client can make it keep or do."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

logger = logging.getLogger("aiokc.health")

_MOST_BYTES: Final = 8 << 10  # of a request; probes send some hundred
_MOST_AT_ONCE: Final = 16
_SECONDS: Final = 5.0  # for one request and its answer
_MOST_ATTEMPTS: Final = 10  # to find a port that is free at all addresses

# These are answered before the client has sent all: a body, or a head that is too long.
_BEFORE_THE_END: Final = (400, 405, 431)
_END_SECONDS: Final = 1.0
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Judged(Protocol):
    """A verdict, as aiokc.contrib.health gives it."""

    @property
    def live(self) -> bool: ...

    @property
    def ready(self) -> bool: ...

    @property
    def reasons(self) -> tuple[str, ...]: ...


class Answer(NamedTuple):
    """An HTTP response: its status, the type of its content, and that."""

    status: int
    kind: str
    content: bytes

    def head(self) -> bytes:
        allow = "Allow: GET, HEAD\r\n" if self.status == 405 else ""
        return (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\nContent-Type: {self.kind}\r\n"
            f"Content-Length: {len(self.content)}\r\n{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        ).encode("ascii")


def _said(status: int, text: str) -> Answer:
    return Answer(status, _TEXT, f"{text}\n".encode())


async def _read_to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what the client still sends, for a second, and drop it. Bytes that nobody has read make a close a reset.

    A client that gets the reset before it has read the answer loses the answer.
    """
    writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            while await reader.read(_MOST_BYTES):
                pass


class ProbeServer:
    """One request to a connection, 16 connections at a time. ``port`` is known after ``start``.

    The next one takes the place of the connection that has waited longest without a whole request. A probe sends its
    request at once, so neither a port scanner nor a load balancer that only connects keeps it from its answer: without
    one, kubelet restarts the container.

    ``look`` gives the verdict; ``metrics`` gives the text for /metrics (None: 404). It runs in a thread of the server's
    own: the loop's default executor belongs to the application, which may fill it or shut it down.
    """

    def __init__(self, look: Callable[[], Judged], metrics: Callable[[], bytes] | None) -> None:
        self.port = 0
        self._look = look
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, "aiokc metrics")  # it begins with the first request for them
        self._server: asyncio.Server | None = None
        self._inside: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._unasked: dict[asyncio.Task[None], None] = {}  # those of them without a whole request

    async def start(self, host: str | None, port: int) -> None:
        """Listen. ``port`` 0: one that is free at each address of ``host``. Raises OSError where the port is taken."""
        server = await self._listen(host, port)
        attempts = 0
        # For port 0 the system chooses a port for each address, 0.0.0.0 and :: for instance.
        while len(ports := list(dict.fromkeys(sock.getsockname()[1] for sock in server.sockets))) > 1:
            server.close()
            await server.wait_closed()
            attempts += 1
            try:
                server = await self._listen(host, ports[0])
            except OSError as error:
                if error.errno != errno.EADDRINUSE or attempts == _MOST_ATTEMPTS:
                    raise
                server = await self._listen(host, 0)
        self._server, self.port = server, ports[0]

    async def _listen(self, host: str | None, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._serve, host, port, limit=_MOST_BYTES)

    async def stop(self) -> None:
        """Accept nothing more, and end the requests under way."""
        if self._server is not None:
            self._server.close()
        inside = [task for task in self._inside if task is not asyncio.current_task()]
        for task in inside:
            task.cancel()
        self._thread.shutdown(wait=False)
        if inside:
            await asyncio.wait(inside)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._inside) >= _MOST_AT_ONCE:
            self._drop(next(iter(self._unasked or self._inside)))
        self._inside[task] = self._unasked[task] = None
        try:
            async with asyncio.timeout(_SECONDS):
                method, answer = await self._answered(reader)
                writer.write(answer.head() + (b"" if method == "HEAD" else answer.content))
                if answer.status in _BEFORE_THE_END:
                    await _read_to_the_end(reader, writer)
                writer.close()
                await writer.wait_closed()  # which is when all of it was sent
        except (OSError, TimeoutError) as error:  # the client has gone, or does not read
            logger.debug("a probe's request was not answered: %r", error)
        except asyncio.CancelledError:
            # By `stop` or `_drop`. asyncio logs a cancelled task of its server as a failure in Python 3.11.
            logger.debug("a probe's request was not answered: the server stops, or there are too many at once")
        finally:
            self._leave(task)
            writer.transport.abort()  # what is not sent by now is dropped

    def _drop(self, task: asyncio.Task[None]) -> None:
        self._leave(task)
        task.cancel()

    def _leave(self, task: asyncio.Task[None]) -> None:
        self._inside.pop(task, None)
        self._unasked.pop(task, None)

    async def _answered(self, reader: asyncio.StreamReader) -> tuple[str, Answer]:
        try:
            async with asyncio.timeout(_SECONDS / 2):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return "GET", _said(431, f"a request may have {_MOST_BYTES} bytes")
        except asyncio.IncompleteReadError:
            return "GET", _said(400, "the request is not complete")
        except TimeoutError:
            return "GET", _said(408, "the request did not come in time")
        finally:
            self._unasked.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
        parts = head.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            return "GET", _said(400, "this is no HTTP/1 request")
        method = parts[0].decode("ascii", "replace")
        if method not in ("GET", "HEAD"):
            return method, _said(405, "GET or HEAD")
        path = parts[1].split(b"?", 1)[0].decode("ascii", "replace")
        try:
            return method, await self._answer(path)
        except Exception:
            logger.exception("a request for %s failed", path)
            return method, _said(500, "it failed: the log says why")

    async def _answer(self, path: str) -> Answer:
        if path in ("/livez", "/readyz"):
            found = self._look()
            is_good = found.live if path == "/livez" else found.ready
            told = {"live": found.live, "ready": found.ready, "reasons": list(found.reasons)}
            return Answer(200 if is_good else 503, _JSON, json.dumps(told).encode() + b"\n")
        if path == "/metrics":
            if self._metrics is None:
                return _said(404, "metrics need prometheus-client: pip install aiokc[prometheus]")
            return Answer(200, _METRICS, await asyncio.get_running_loop().run_in_executor(self._thread, self._metrics))
        return _said(404, "there are /livez, /readyz and /metrics")
