"""Measures time, processor time and peak memory of this process, and the stalls of its event loop."""

from __future__ import annotations

import asyncio
import math
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .job import Stalls

TICK_SECONDS: Final = 0.005


class Stopwatch:
    """Runs from start(), just before the first request for records, to stop(), just after the last record."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.peak_rss = 0

    def start(self) -> None:
        self.cpu_seconds = -cpu_seconds(resource.RUSAGE_SELF)
        self.seconds = -time.perf_counter()

    def stop(self) -> None:
        self.seconds += time.perf_counter()
        self.cpu_seconds += cpu_seconds(resource.RUSAGE_SELF)
        self.peak_rss = peak_rss()

    def read(self, *, seconds: float, cpu_seconds: float, peak_rss: int) -> None:
        """Take over the figures of a run that the client itself has measured."""
        self.seconds, self.cpu_seconds, self.peak_rss = seconds, cpu_seconds, peak_rss

    def stalls(self) -> Stalls | None:
        """Return None: there is no event loop."""
        return None


def cpu_seconds(who: int) -> float:
    """Return user and system time of all threads: of RUSAGE_SELF, or of RUSAGE_CHILDREN that have ended."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def peak_rss() -> int:
    """Return the peak resident memory of this process in bytes.

    Linux's ru_maxrss survives exec: it is at least the parent's resident size when it forked. VmHWM starts afresh.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return max_rss(resource.RUSAGE_SELF)


def max_rss(who: int) -> int:
    """Return ru_maxrss in bytes; macOS counts in bytes, other systems in kibibytes."""
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class LoopStopwatch(Stopwatch):
    """Also has a timer on the running loop, due every TICK_SECONDS, and measures how late it fires each time.

    A loop that is held for 100 ms makes 20 timers late, by 100, 95, 90 ... ms, and all of them count: a sampler that
    skipped those would see one late timer, and call a loop that is always held nearly idle.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lateness: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._began = self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        super().start()
        self._began = -self.seconds
        self._due = self._began + TICK_SECONDS
        self._timer = self._loop.call_later(TICK_SECONDS, self._fire)

    def stop(self) -> None:
        super().stop()
        if self._timer is not None:
            self._timer.cancel()
        # Not what the clock shows now: a tick that is due since then is none of the measured time.
        self._count(self._began + self.seconds)

    def stalls(self) -> Stalls | None:
        """Return how late the timers fired; None if the run was shorter than one tick."""
        return distribution(self.lateness)

    def _fire(self) -> None:
        now = time.perf_counter()
        self._count(now)
        self._timer = self._loop.call_later(self._due - now, self._fire)

    def _count(self, now: float) -> None:
        fired = lateness(self._due, now)
        self._due += len(fired) * TICK_SECONDS
        self.lateness += fired


def lateness(due: float, now: float) -> list[float]:
    """Return how late, at ``now``, the timers are that were due at ``due`` and every TICK_SECONDS after it."""
    if due > now:
        return []
    return [now - due - tick * TICK_SECONDS for tick in range(int((now - due) / TICK_SECONDS) + 1)]


def distribution(seconds: Sequence[float]) -> Stalls | None:
    """Return median, 99th percentile and maximum in milliseconds; None if there are no values."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.50, 0.99))
    return Stalls(p50=1e3 * p50, p99=1e3 * p99, max=1e3 * ordered[-1])
