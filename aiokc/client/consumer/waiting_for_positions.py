"""The loop inside position(), seek_to_beginning() and seek_to_end(): waits until the partitions have a position."""

from __future__ import annotations

import asyncio

from ...core.named import named
from ...errors import RequestTimedOut
from ...types import TopicPartition
from .runtime import ConsumerRuntime


async def wait_positions(
    runtime: ConsumerRuntime, partitions: list[TopicPartition], timeout: float
) -> dict[TopicPartition, int]:
    """Wait until all of these partitions have a position, and return the positions.

    Raises RequestTimedOut after ``timeout`` seconds, and what ``CallErrors.raise_any`` raises about these
    partitions, or about the consumer as a whole.
    """
    loop, subscription = asyncio.get_running_loop(), runtime.subscription
    deadline = loop.time() + timeout

    def without_position(partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [tp for tp in partitions if not subscription[tp].has_position]

    lacking = partitions
    while True:
        runtime.errors.check()
        # Each answer brings some of thousands of positions. Only the others are looked at again, and all at the end: a
        # position may have been lost meanwhile.
        lacking = without_position(lacking) or without_position(partitions)
        if not lacking:
            return {tp: subscription[tp].position for tp in partitions}
        runtime.errors.raise_any(lacking)
        if not await runtime.changed.wait(deadline - loop.time()):
            cause = runtime.cluster_client.metadata.error
            why = f": {cause}" if cause is not None else ""
            raise RequestTimedOut(f"no position for {named(lacking)} after {timeout:.3g} s{why}") from cause
