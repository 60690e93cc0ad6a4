"""``Held``: how long a busy machine has held this process or a broker up, by a thread that asks that all the time."""

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
    None: the brokers are in this process. A test that tries again with more time asks for it after the block: where
    nothing was late, a failure is the client's or the broker's, and the test raises it.
    """

    def __init__(self, bootstrap: str | None = None) -> None:
        self.longest = 0.0
        self._broker = None if bootstrap is None else _connected(bootstrap)
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
        if self._broker is not None:
            self._broker.close()

    def _run(self) -> None:
        due = time.monotonic() + _TICK
        while not self._ends.wait(_TICK):
            if self._broker is not None:
                _ask(self._broker)
            now = time.monotonic()
            self.longest = max(self.longest, now - due)
            due = now + _TICK


def _connected(bootstrap: str) -> socket.socket:
    host, port = bootstrap.rsplit(":", 1)
    broker = socket.create_connection((host, int(port)), timeout=30)
    broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return broker


def _ask(broker: socket.socket) -> None:
    broker.sendall(_API_VERSIONS)
    (missing,) = struct.unpack(">i", _received(broker, 4))
    _received(broker, missing)


def _received(broker: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = broker.recv(count - len(found))
        if not piece:
            raise ConnectionError("the broker has closed the connection")
        found += piece
    return found
