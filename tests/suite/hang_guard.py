"""HangGuard: it ends the test run when a test hangs and its time limit cannot end it.

The limit is a signal, and its handler raises. In a callback of the event loop the loop logs that error and goes on; in
a ``with`` whose end waits for a process that never ends, that end has to be interrupted, too. So the signal is repeated
(``insist``), and a thread watches: after a while it says which test hangs, where, and beside which processes, and ends
the run. Where C code keeps the interpreter's lock, so that not even this thread can run, a thread without Python ends
it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_SHOWN_FRAMES = 15
_LAST_SECONDS = 30.0


def insist(seconds: float) -> None:
    """Repeat the alarm that is set, if one is, every so many seconds until it is cancelled."""
    if not hasattr(signal, "setitimer"):  # on Windows, where a thread of pytest-timeout keeps the limit
        return
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    if left:
        signal.setitimer(signal.ITIMER_REAL, left, seconds)


class HangGuard:
    """The thread, and the test that it watches. It writes to what stderr is now, even if that is captured later."""

    def __init__(self) -> None:
        self._to: TextIO = os.fdopen(os.dup(sys.stderr.fileno()), "w")
        self._main = threading.main_thread().ident
        self._changed = threading.Condition()
        self._watched: tuple[str, float] | None = None
        threading.Thread(target=self._look_on, name="hang guard", daemon=True).start()

    @contextmanager
    def watching(self, test: str, seconds: float) -> Iterator[None]:
        """End the process if the block takes longer than so many seconds."""
        self.begins(test, seconds)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._watch(None)

    def begins(self, test: str, seconds: float) -> None:
        """Count the seconds from here on: within ``watching``, for a test that is run again has as long each time."""
        self._watch((test, time.monotonic() + seconds))
        faulthandler.dump_traceback_later(seconds + _LAST_SECONDS, exit=True, file=self._to)

    def _watch(self, watched: tuple[str, float] | None) -> None:
        with self._changed:
            self._watched = watched
            self._changed.notify()

    def _look_on(self) -> None:
        with self._changed:
            while True:
                if self._watched is None:
                    self._changed.wait()
                    continue
                test, until = self._watched
                left = until - time.monotonic()
                if left <= 0:
                    self._end(test)
                self._changed.wait(left)

    def _end(self, test: str) -> None:
        """Write all that is known, the most important last: often only the end of a log is kept."""
        faulthandler.dump_traceback(file=self._to, all_threads=True)
        frames = traceback.format_stack(sys._current_frames()[self._main or 0])
        children = subprocess.run(["ps", "-eo", "pid,ppid,stat,etime,args"], capture_output=True, text=True, timeout=10)
        for line in children.stdout.splitlines():
            self._to.write(f"{line[:180]}\n")
        self._to.write("".join(frames[-_SHOWN_FRAMES:]))
        self._to.write(f"HUNG, and not ended by its time limit: {test}\n")
        self._to.flush()
        os._exit(3)
