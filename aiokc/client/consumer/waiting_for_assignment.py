"""Waiting until it is known which partitions a consumer reads."""

from __future__ import annotations

import asyncio

from ...errors import RequestTimedOut
from ...types import TopicPartition
from ..aio.single_user import SingleUser
from .runtime import ConsumerRuntime


async def wait_assigned(reading: ConsumerRuntime, user: SingleUser, timeout: float) -> frozenset[TopicPartition]:
    """Return the assignment once there is one, and the listener is done with it; raise what comes before that.

    Who waits here is polling: the group rebalances with it, and not without it. Positions are nobody's concern yet, and
    neither is a missing offset: the user may be about to seek.
    """
    reading.listener.refuse_inside("waiting for the assignment")
    time = asyncio.get_running_loop().time
    deadline = time() + timeout
    user.refuse_others()
    reading.polling_begins(None)
    user.enters()
    try:
        while True:
            if time() > user.time_slice.ends:
                await user.time_slice.give_way()
            reading.before_records(None)
            reading.raise_assignment_errors()
            if reading.has_assigned:
                return frozenset(reading.subscription.assigned)
            left = deadline - time()
            if left <= 0:
                await asyncio.sleep(0)  # who asks with timeout 0 must not starve those who could answer
                cause = reading.assignment_trouble
                why = f": {cause}" if cause is not None else ""
                raise RequestTimedOut(f"no partitions were assigned within {timeout:.3g} s{why}") from cause
            await reading.changed.wait(left)
            user.time_slice.begins()
    finally:
        reading.polling_ends()
        user.leaves()
