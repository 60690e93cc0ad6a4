"""Where the CPU's time goes while a client reads: samples of the running code, taken by the process's CPU clock.

A signal comes for each millisecond of CPU time, and its handler looks at the stack. Code in C is no frame of its own:
the line in Python that called it stands for it. Waiting takes no CPU time, so it is not sampled.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from types import FrameType

_INTERVAL_S = 0.001
# Parts of file names, and what code there does; the innermost frame that is in one of them decides.
_PLACES = (
    (f"{os.sep}aiokc{os.sep}cli{os.sep}reading{os.sep}decoding", "deserializers"),
    (f"{os.sep}aiokc{os.sep}records{os.sep}", "decoding"),
    (f"{os.sep}aiokc{os.sep}_native{os.sep}", "decoding"),
    (f"{os.sep}aiokafka{os.sep}record{os.sep}", "decoding"),
    (f"{os.sep}cramjam{os.sep}", "decoding"),
    (f"{os.sep}aiokc{os.sep}client{os.sep}fetch{os.sep}collector", "decoding"),
    (f"{os.sep}aiokafka{os.sep}consumer{os.sep}fetcher", "decoding"),
    (f"{os.sep}aiokc{os.sep}net{os.sep}", "network"),
    (f"{os.sep}aiokc{os.sep}wire{os.sep}", "network"),
    (f"{os.sep}aiokc{os.sep}", "other"),
    (f"{os.sep}asyncio{os.sep}", "network"),
    (f"{os.sep}selectors.py", "network"),
    (f"{os.sep}aiokafka{os.sep}conn", "network"),
    (f"{os.sep}aiokafka{os.sep}protocol{os.sep}", "network"),
    (f"{os.sep}aiokafka{os.sep}", "other"),
)


class Profile:
    """Samples while its block runs. ``shares`` are those of CPU time; empty where a process can't sample itself.

    "network" is what sockets, frames and the event loop take.
    """

    def __init__(self) -> None:
        self._samples: Counter[str] = Counter()
        self._can = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        self._before: object = None

    def __enter__(self) -> Profile:
        if self._can:
            self._before = signal.signal(signal.SIGPROF, self._sample)
            signal.setitimer(signal.ITIMER_PROF, _INTERVAL_S, _INTERVAL_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._can:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, self._before or signal.SIG_DFL)  # type: ignore[arg-type]

    @property
    def shares(self) -> dict[str, float]:
        """The shares of CPU time by what the code does: "network", "decoding", "deserializers", "other"."""
        total = sum(self._samples.values())
        return {what: count / total for what, count in self._samples.items()} if total else {}

    def _sample(self, _: int, frame: FrameType | None) -> None:
        while frame is not None:
            for place, what in _PLACES:
                if place in frame.f_code.co_filename:
                    self._samples[what] += 1
                    return
            frame = frame.f_back
        self._samples["other"] += 1
