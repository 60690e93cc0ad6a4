"""One measurement in a process of its own: ``python -m benchmarks.measuring.worker JOB`` prints a Measurement last."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from .. import clients
from ..clients import CLIENTS, Client
from .job import Job, Measurement
from .stopwatch import LoopStopwatch, Stopwatch
from .tally import Tally


def measure(job: Job) -> Measurement:
    """Read the job's topic with the job's client; raises what the client raises."""
    client = CLIENTS[job.client]
    consume = importlib.import_module(f"{clients.__name__}.{client.module}").consume
    if job.cpu is not None:
        os.sched_setaffinity(0, {job.cpu})
    if client.loop is None:
        stopwatch = Stopwatch()
        tally = consume(job, stopwatch)
    else:
        with asyncio.Runner(loop_factory=partial(_new_loop, client)) as runner:
            tally, stopwatch = runner.run(_on_loop(consume, job))
    return Measurement(
        seconds=stopwatch.seconds,
        cpu_seconds=stopwatch.cpu_seconds,
        peak_rss=stopwatch.peak_rss,
        records=tally.records,
        data_bytes=tally.data_bytes,
        data_bytes_error=tally.data_bytes_error,
        offset_sum=tally.offset_sum,
        stalls=stopwatch.stalls(),
    )


async def _on_loop(consume: Callable[[Job, Stopwatch], Awaitable[Tally]], job: Job) -> tuple[Tally, Stopwatch]:
    stopwatch = LoopStopwatch()
    return await consume(job, stopwatch), stopwatch


def _new_loop(client: Client) -> asyncio.AbstractEventLoop:
    module = importlib.import_module(client.loop or "asyncio")
    loop: asyncio.AbstractEventLoop = module.new_event_loop()
    return loop


if __name__ == "__main__":
    print(measure(Job.from_json(sys.argv[1])).to_json())
