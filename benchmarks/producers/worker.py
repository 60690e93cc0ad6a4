"""One measurement in a process of its own: ``python -m benchmarks.producers.worker JOB`` prints its figures last."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from ..measuring.stopwatch import LoopStopwatch, Stopwatch
from . import PRODUCERS, ProducerClient
from .job import ProduceJob


def measure(job: ProduceJob) -> dict[str, float]:
    """Write the job's records with the job's client; raises what the client raises."""
    client = PRODUCERS[job.client]
    produce = getattr(importlib.import_module(f"{__package__}.{client.module}"), client.function)
    gc.collect()  # the first full one since all the imports: it takes 20 ms, and would come in the middle of the second
    if client.loop is None:
        stopwatch = Stopwatch()
        produce(job, stopwatch)
    else:
        with asyncio.Runner(loop_factory=partial(_new_loop, client)) as runner:
            stopwatch = runner.run(_on_loop(produce, job))
    found = {"seconds": stopwatch.seconds, "cpu": stopwatch.cpu_seconds, "peak": stopwatch.peak_rss}
    stalls = stopwatch.stalls()
    return found if stalls is None else found | {"stall p99": stalls.p99, "stall max": stalls.max}


async def _on_loop(produce: Callable[[ProduceJob, Stopwatch], Awaitable[None]], job: ProduceJob) -> Stopwatch:
    stopwatch = LoopStopwatch()
    await produce(job, stopwatch)
    return stopwatch


def _new_loop(client: ProducerClient) -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = importlib.import_module(client.loop or "asyncio").new_event_loop()
    return loop


if __name__ == "__main__":
    print(json.dumps(measure(ProduceJob.from_json(sys.argv[1]))))
