"""The waits inside position(), seek_to_beginning(), seek_to_end() and seek_to_committed()."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ...errors import RequestTimedOut, UsageError
from ...types import OffsetAndMetadata, TopicPartition, named
from ..aio.time_slice import MANY_PARTITIONS
from .runtime import ConsumerRuntime


async def wait_positions(
    runtime: ConsumerRuntime, partitions: list[TopicPartition], timeout: float, *, but_gone: bool = False
) -> dict[TopicPartition, int]:
    """Wait until all of these partitions have a position, and return the positions.

    ``but_gone``: the application has not named them, but means all that are assigned. Those that are given up in the
    meantime are left out, even if they come back: they have another position then. It could not prevent that, for a
    rebalance goes on in the background. Raises RequestTimedOut after ``timeout`` seconds, UsageError where a partition
    is not assigned, and what ``CallErrors.raise_any`` raises about these partitions, or about the consumer as a
    whole.
    """
    loop, subscription = asyncio.get_running_loop(), runtime.subscription
    deadline = loop.time() + timeout
    tokens = {tp: subscription[tp].assignment_token for tp in partitions}
    looked_at = subscription.assignment_id

    def without_position(partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [tp for tp in partitions if not subscription[tp].has_position]

    lacking = partitions
    if len(partitions) > MANY_PARTITIONS:
        await asyncio.sleep(0)  # the caller has just moved each of them, and so that is a step of its own
    while True:
        runtime.errors.check()
        if but_gone and looked_at != subscription.assignment_id:
            looked_at, gone = subscription.assignment_id, subscription.given_up(tokens)
            partitions, lacking = ([tp for tp in some if tp not in gone] for some in (partitions, lacking))
        # Each answer brings some of thousands of positions. Only the others are looked at again, and all at the end: a
        # position may have been lost meanwhile.
        lacking = without_position(lacking) or without_position(partitions)
        if not lacking:
            return {tp: subscription[tp].position for tp in partitions}
        runtime.errors.raise_any(lacking)
        if not await runtime.changed.wait(deadline - loop.time()):
            await asyncio.sleep(0)  # without time, the task that takes in the answer has not run yet
            cause = runtime.cluster_client.metadata.error or runtime.finder.errors.passing(lacking)
            why = f": {cause}" if cause is not None else ""
            raise RequestTimedOut(f"no position for {named(lacking)} after {timeout:.3g} s{why}") from cause


async def seek_to_committed(
    runtime: ConsumerRuntime, chosen: Collection[TopicPartition], timeout: float
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Go on at the committed offsets of the partitions that are ``chosen`` (none: of all assigned); return those.

    Where all are meant, those that are given up in the meantime are left out, also if they come back. Raises UsageError
    where one that is chosen is not assigned, or was given up in the meantime, before any of them has moved.
    """
    subscription = runtime.subscription
    with runtime.cluster_client.call():
        runtime.group("seek_to_committed()")
        tokens = {tp: subscription[tp].assignment_token for tp in chosen or runtime.all_assigned()}
        committed = await runtime.committed(tokens, timeout=timeout)
    gone = subscription.given_up(tokens)
    if chosen and gone:
        # Also where one has come back: its listener may have sought in it since, and this answer is older.
        raise UsageError(f"{named(gone)}: not assigned any more, or given up and assigned again; nothing has moved")
    found = {tp: offset for tp, offset in committed.items() if tp not in gone}
    runtime.subscribing.seek({tp: offset for tp, offset in found.items() if offset is not None})
    return found
