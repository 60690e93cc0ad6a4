"""Reads stdin as it comes, and files whole, without holding the event loop; splits what comes at delimiters."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Final, TextIO

from ..threads import in_daemon_thread

CHUNK: Final = 1 << 16
_NONBLOCKING_SECONDS: Final = 0.05  # between two looks at what neither waits nor can be waited for
_FIFO_ENDS_ARE_TOLD: Final = sys.platform != "darwin"


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

    What may wait for long does so in the event loop, not in a thread: a thread that reads a terminal can't be ended by
    Ctrl-C.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # a stream without a file, in tests
        while data := stream.buffer.read(CHUNK):
            await asyncio.sleep(0)
            yield data
        return
    read = _read if _selector_tells_of(descriptor) else _read_in_thread
    while data := await read(descriptor):
        yield data


def _selector_tells_of(descriptor: int) -> bool:
    """Return whether the event loop's selector tells when there is something to read, and of the end.

    epoll refuses files. kqueue takes them, and never tells of their end.
    """
    status = os.fstat(descriptor)
    if stat.S_ISFIFO(status.st_mode):
        # kqueue of macOS does not tell that the last writer has closed a FIFO with a name; a pipe has no device there.
        return _FIFO_ENDS_ARE_TOLD or status.st_dev == 0
    return stat.S_ISSOCK(status.st_mode) or os.isatty(descriptor)


async def _read(descriptor: int) -> bytes:
    """Return what has come; b"" at the end."""
    while True:
        try:
            await _readable(descriptor)
        except (NotImplementedError, OSError):  # the event loop of Windows; a selector that refuses the descriptor
            return await _read_in_thread(descriptor)
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:  # another process shares the descriptor, and was quicker
            continue


async def _read_in_thread(descriptor: int) -> bytes:
    return await in_daemon_thread(partial(_read_and_wait, descriptor))


def _read_and_wait(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:  # another process shares the descriptor, and does not want to wait
            time.sleep(_NONBLOCKING_SECONDS)


async def _readable(descriptor: int) -> None:
    """Return once reading does not wait."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    # Only for this wait: while the producer has no memory to append more, nothing may call back.
    loop.add_reader(descriptor, ready.set)
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
