"""``CountingProxy``: a TCP proxy in a thread of its own, which counts the connections that clients make through it.

A client is led there by its ``resolve``: it goes on checking the certificate of the broker's own name. Bytes pass on
while the client's event loop is blocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from types import TracebackType

_SECONDS = 10.0


class CountingProxy:
    """Passes every connection on to `target` ("host:port"). `opened` counts the connections that clients have made."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._thread = threading.Thread(target=self._run, name="counting proxy", daemon=True)
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._port = 0
        self.opened = 0

    def __enter__(self) -> CountingProxy:
        self._thread.start()
        assert self._ready.wait(_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_SECONDS)
        assert not self._thread.is_alive()

    async def resolve(self, host: str, port: int) -> Sequence[tuple[str, int]]:
        """Return the proxy's own address for any host."""
        return [("127.0.0.1", self._port)]

    def drop(self) -> None:
        """Close all connections; soon none is open."""
        self._loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()
        self._drop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        task = self._loop.create_task(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())  # a task cancelled before its first step closes nothing

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        others = None
        try:
            their_reader, others = await asyncio.open_connection(*self._target)
            ways = [self._loop.create_task(_copy(*way)) for way in ((reader, others), (their_reader, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            ends = [end for end in (writer, others) if end is not None]
            for end in ends:
                end.close()  # both before any wait, which a second drop() may cancel
            for end in ends:
                with contextlib.suppress(OSError):  # the other side has reset the connection
                    await end.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
