"""An identity provider on loopback: the test writes its responses byte by byte, and the tokens that it grants."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias
from urllib.parse import parse_qs

#: The bytes of a response, or a function that writes them itself.
Answer: TypeAlias = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


class LoopbackIdp:
    """Answers POSTs by ``answers``, the last one again and again. ``asked`` has each request: its headers and body."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, str], str]] = []
        self.port = 0
        self.scheme = "http"
        self.serving: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/token"

    def form(self, number: int = -1) -> dict[str, str]:
        """Return the form fields of a request."""
        return {name: values[0] for name, values in parse_qs(self.asked[number][2], strict_parsing=True).items()}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self.serving.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.asked.append((first, headers, body.decode()))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
        else:
            await answer(writer)


@asynccontextmanager
async def idp(*answers: Answer, context: ssl.SSLContext | None = None) -> AsyncIterator[LoopbackIdp]:
    """A provider on a port that the system chose."""
    found = LoopbackIdp(*answers)
    server = await asyncio.start_server(found.serve, "localhost", 0, ssl=context)
    found.port = server.sockets[0].getsockname()[1]
    found.scheme = "http" if context is None else "https"
    try:
        yield found
    finally:
        server.close()
        for task in found.serving:
            task.cancel()
        if found.serving:
            await asyncio.wait(found.serving)


def http(status: int, body: bytes | str, *headers: str) -> bytes:
    """Return a whole response."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(data)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + data


def granted(token: str = "opaque-token", **fields: Any) -> bytes:
    """Return the response that grants a token."""
    return http(200, json.dumps({"access_token": token, "token_type": "Bearer", **fields}))


def jwt(**claims: Any) -> str:
    """Return an unsigned token with these claims."""
    parts = (json.dumps({"alg": "none"}), json.dumps(claims))
    return ".".join(urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts) + "."
