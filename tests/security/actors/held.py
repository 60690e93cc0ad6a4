"""``Held``: how long a busy machine has held this process up, by a thread that should run a hundred times a second."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

_TICK: Final = 0.01


class Held:
    """``longest`` is the longest time, in seconds, by which a tick came late within the ``with`` block so far."""

    def __init__(self) -> None:
        self.longest = 0.0
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

    def _run(self) -> None:
        due = time.monotonic() + _TICK
        while not self._ends.wait(_TICK):
            now = time.monotonic()
            self.longest = max(self.longest, now - due)
            due = now + _TICK
