"""The reader thread of an event loop: it receives the rest of long frames, without the GIL, beside the loop's work."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary, ref

from ..native import extension

#: Called with the number of bytes received, and with why there are no more: None if all came, or the peer closed.
OnEnd: TypeAlias = Callable[[int, OSError | None], None]


class ReaderThread:
    """Receives bytes for the connections of one event loop, in a thread of the extension that starts with the first.

    A connection that has joined may ``read``, and must ``leave``, in the loop's thread. The loop must not read from a
    socket as long as the thread does. The thread has a descriptor of its own for each read.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises OSError if there are no descriptors to spare."""
        self._thread = extension.ReaderThread()
        self._signal: Final[int] = self._thread.fileno()
        self._under_way: dict[int, OnEnd] = {}
        self._joined = 0
        loop.add_reader(self._signal, self._look)

    @classmethod
    def join(cls, transport: asyncio.BaseTransport) -> ReaderThread | None:
        """Return the thread for a connection of the running loop; None if the loop has to receive by itself.

        So it is without the extension and on Windows, for TLS, for transports and loops other than asyncio's selector
        loop and uvloop, and where the process has no descriptors to spare.
        """
        loop = asyncio.get_running_loop()
        if not _has_thread or not _is_known(loop) or not _is_plain(transport):
            return None
        known = _threads.get(loop)
        self = None if known is None else known()
        if self is None:
            try:
                self = cls(loop)
            except OSError:
                return None
            _threads[loop] = ref(self)
        self._joined += 1
        return self

    def leave(self) -> None:
        """A connection that joined has ended, and reads no more. With the last one the thread ends."""
        self._joined -= 1
        if self._joined == 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._signal)
            self._thread.close()
            del _threads[loop]

    def read(self, descriptor: int, room: memoryview, on_end: OnEnd) -> int:
        """Begin to fill ``room`` from a socket, and return the number of the read. ``on_end`` is called by the loop.

        Raises OSError if there is no descriptor or no thread to spare.
        """
        number: int = self._thread.read(descriptor, room)
        self._under_way[number] = on_end
        return number

    def cancel(self, number: int) -> None:
        """End a read. From here on nothing of its room and of its socket is used, and ``on_end`` is not called."""
        del self._under_way[number]
        self._thread.cancel(number)

    def cut_off(self) -> None:
        """Close this process' copies of all descriptors, in a child that was forked. There is no thread in it."""
        self._thread.close()

    def _look(self) -> None:
        """Tell one reader of its end. The loop calls again as long as there are others."""
        if (ended := self._thread.ended()) is not None:
            number, count, error = ended
            self._under_way.pop(number)(count, OSError(error, os.strerror(error)) if error else None)


_has_thread: Final = hasattr(extension, "ReaderThread")
# Both are weak: a loop that is closed, and forgotten, with connections open has them collected with its thread.
_threads: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, ref[ReaderThread]]] = WeakKeyDictionary()


def _is_known(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether it is known of this kind of loop that it leaves a socket alone while reading is paused."""
    return isinstance(loop, asyncio.SelectorEventLoop) or type(loop).__module__.partition(".")[0] == "uvloop"


def _is_plain(transport: asyncio.BaseTransport) -> bool:
    """Whether bytes come from a socket as they are: not by TLS, and not from a simulation."""
    socket: Any = transport.get_extra_info("socket")
    return socket is not None and transport.get_extra_info("sslcontext") is None
