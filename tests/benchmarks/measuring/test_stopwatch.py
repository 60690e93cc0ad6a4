from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path

import pytest

from benchmarks.measuring import stopwatch
from benchmarks.measuring.stopwatch import TICK_SECONDS, LoopStopwatch, Stopwatch, distribution, lateness, peak_rss
from tests.suite.child_process import run_to_end

ROOT = Path(__file__).resolve().parents[3]


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_time_and_processor_time_are_those_between_start_and_stop() -> None:
    spin(0.02)
    watch = Stopwatch()
    begun = time.perf_counter()
    watch.start()
    spin(0.03)
    watch.stop()
    assert 0.03 <= watch.seconds <= time.perf_counter() - begun
    assert 0 < watch.cpu_seconds <= resource.getrusage(resource.RUSAGE_SELF).ru_utime + 1
    assert watch.stalls() is None


def test_a_blocked_loop_is_seen_even_if_no_timer_ran_before_the_end() -> None:
    async def blocked() -> LoopStopwatch:
        watch = LoopStopwatch()
        watch.start()
        spin(0.05)
        watch.stop()
        return watch

    stalls = asyncio.run(blocked()).stalls()
    assert stalls is not None
    assert stalls.max >= 44
    assert stalls.p50 >= 19


async def test_an_idle_loop_counts_every_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow() -> int:
        spin(4 * TICK_SECONDS)
        return 1

    monkeypatch.setattr(stopwatch, "peak_rss", slow)  # no tick of the time that stop() takes counts
    watch = LoopStopwatch()
    watch.start()
    await asyncio.sleep(0.05)
    watch.stop()
    # However late the machine is: a timer that was due has been counted once.
    assert len(watch.lateness) == pytest.approx(watch.seconds / TICK_SECONDS, abs=1.5)


def test_all_timers_that_were_due_in_a_stall_are_late() -> None:
    assert lateness(due=1.0, now=1.0 + 3.5 * TICK_SECONDS) == pytest.approx(
        [3.5 * TICK_SECONDS, 2.5 * TICK_SECONDS, 1.5 * TICK_SECONDS, 0.5 * TICK_SECONDS]
    )
    assert lateness(due=1.0, now=0.999) == []


def test_distribution_in_milliseconds() -> None:
    stalls = distribution([second / 1000 for second in range(1, 101)])
    assert stalls is not None
    assert (stalls.p50, stalls.p99, stalls.max) == pytest.approx((50, 99, 100))
    assert distribution([]) is None


def test_peak_memory_is_that_of_this_process_and_not_of_the_one_that_started_it() -> None:
    ballast = bytearray(128 << 20)
    ballast[:: resource.getpagesize()] = b"x" * len(range(0, len(ballast), resource.getpagesize()))
    assert peak_rss() > len(ballast)

    command = [sys.executable, "-c", "from benchmarks.measuring.stopwatch import peak_rss; print(peak_rss())"]
    started = run_to_end(command, seconds=200, cwd=ROOT)
    assert 4 << 20 < int(started.stdout) < len(ballast)
