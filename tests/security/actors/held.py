"""``Held``: how long a busy machine has held this process or the broker up, by a thread that asks that all the time."""

from __future__ import annotations

import socket
import struct
import threading
import time
from types import TracebackType
from typing import Final

_TICK: Final = 0.01
#: ApiVersions v0, with the length of the frame before it; correlation id 0, no client id.
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 0, -1)


class Held:
    """``longest`` is the longest time, in seconds, by which a tick came late within the ``with`` block so far.

    With each tick the broker that ``bootstrap`` names, a listener without TLS and SASL, has answered a small request.
    """

    def __init__(self, bootstrap: str) -> None:
        self.longest = 0.0
        host, port = bootstrap.rsplit(":", 1)
        self._broker = socket.create_connection((host, int(port)), timeout=30)
        self._broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="held", daemon=True)

    def __enter__(self) -> Held:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._broker.close()

    def _run(self) -> None:
        due = time.monotonic() + _TICK
        while not self._ends.wait(_TICK):
            self._ask()
            now = time.monotonic()
            self.longest = max(self.longest, now - due)
            due = now + _TICK

    def _ask(self) -> None:
        self._broker.sendall(_API_VERSIONS)
        (missing,) = struct.unpack(">i", self._received(4))
        self._received(missing)

    def _received(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self._broker.recv(count - len(found))
            if not piece:
                raise ConnectionError("the broker has closed the connection")
            found += piece
        return found
