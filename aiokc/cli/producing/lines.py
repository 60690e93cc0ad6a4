"""Reads stdin as it comes, without holding the event loop, and splits it at delimiters."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final, TextIO

CHUNK: Final = 1 << 16


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
            return await asyncio.to_thread(os.read, descriptor, CHUNK)
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
