"""Reads stdin as it comes, and files whole, without holding the event loop; splits what comes at delimiters."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Final, TextIO

from ..threads import in_daemon_thread

CHUNK: Final = 1 << 16


async def content(stdin: TextIO, name: str, size: int) -> bytes:
    """Return the first ``size`` bytes of a file, or all that it holds; "-" is ``stdin``.

    A cancelled call ends at once, also where the name leads to what has no end, or to a FIFO that nobody writes to.
    """
    if name != "-":
        return await in_daemon_thread(partial(_beginning, name, size))
    data = bytearray()
    async for chunk in chunks(stdin):
        data += chunk
        if len(data) >= size:
            break
    return bytes(data[:size])


def _beginning(name: str, size: int) -> bytes:
    with open(name, "rb") as file:
        return file.read(size)


async def chunks(stream: TextIO) -> AsyncIterator[bytes]:
    """Yield what ``stream`` holds, as it comes, to its end.

    It waits in the event loop, not in a thread: a thread that reads a terminal can't be ended by Ctrl-C.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # a stream without a file, in tests
        while data := stream.buffer.read(CHUNK):
            await asyncio.sleep(0)
            yield data
        return
    while data := await _read(descriptor):
        yield data


async def _read(descriptor: int) -> bytes:
    """Return what has come; b"" at the end."""
    while True:
        try:
            await _readable(descriptor)
        except NotImplementedError:  # the event loop of Windows
            return await in_daemon_thread(partial(os.read, descriptor, CHUNK))
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:  # another process shares the descriptor, and was quicker
            continue


async def _readable(descriptor: int) -> None:
    """Return once reading does not wait. A file is always so: the selector takes none."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        # Only for this wait: while the producer has no memory to append more, nothing may call back.
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        await asyncio.sleep(0)
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


class Splitter:
    """Cuts chunks at a delimiter. ``rest`` is what has come since the last one."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return what the delimiters in ``data`` complete."""
        *whole, self.rest = (self.rest + data).split(self._delimiter)
        return whole
