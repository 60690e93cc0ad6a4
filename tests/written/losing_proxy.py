"""``LosingProxy``: stands between a client and one broker, and loses answers to requests that the broker has served."""

from __future__ import annotations

import asyncio
import math
import struct
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from aiokc.testing import ApiKey

_HEADER: Final = struct.Struct(">hhi")  # of a request: api key, version, correlation id


class LosingProxy:
    """A client is led here by its ``resolve``. Losing an answer ends the connection, as when a broker's host dies.

    ``lost`` counts what was lost, by the api; ``lost_at`` is when the last answer was, on the loop's clock.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._wanted: dict[ApiKey, deque[int]] = defaultdict(deque)
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost = Counter[ApiKey]()
        self.lost_at = -math.inf

    def lose(self, api: ApiKey, *, after: int = 0) -> None:
        """Lose the answer to a request of this api: the next one, or the one that comes ``after`` so many others.

        They count from the loss before.
        """
        self._wanted[api].append(after)

    async def resolve(self, host: str, port: int) -> Sequence[tuple[str, int]]:
        return [("127.0.0.1", self._port)]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if error is None:
            left = [api.name for api, wanted in self._wanted.items() for _ in wanted]
            assert not left, f"no request has come whose answer was to be lost: {left}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, others = await asyncio.open_connection(*self._target)
        asked: dict[int, ApiKey] = {}
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass_requests(reader, others, asked))
                ways.create_task(self._pass_answers(theirs, writer, asked))
        except* (OSError, EOFError, _Lost):
            pass  # one side has closed; below both do
        finally:
            writer.close()
            others.close()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, ApiKey]
    ) -> None:
        while True:
            frame = await _frame(reader)
            api, _, correlation = _HEADER.unpack_from(frame, 4)
            asked[correlation] = ApiKey(api)
            writer.write(frame)
            await writer.drain()

    async def _pass_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, ApiKey]
    ) -> None:
        while True:
            frame = await _frame(reader)
            api = asked.pop(int.from_bytes(frame[4:8]))
            if self._is_to_be_lost(api):
                self.lost[api] += 1
                self.lost_at = asyncio.get_running_loop().time()
                raise _Lost
            writer.write(frame)
            await writer.drain()

    def _is_to_be_lost(self, api: ApiKey) -> bool:
        wanted = self._wanted[api]
        if not wanted:
            return False
        wanted[0] -= 1
        if wanted[0] >= 0:
            return False
        wanted.popleft()
        return True


class _Lost(Exception):
    """The connection is to be closed."""


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size))
