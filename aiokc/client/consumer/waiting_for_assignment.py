"""The loop inside wait_assigned(): polls for no records until the partitions are assigned."""

from __future__ import annotations

import asyncio

from ...errors import RequestTimedOut
from ...types import TopicPartition
from ..aio.single_user import SingleUser
from .runtime import ConsumerRuntime


async def wait_assigned(reading: ConsumerRuntime, user: SingleUser, timeout: float) -> frozenset[TopicPartition]:
    """Return the assignment once there is one and the listener is done with it. Raise errors that come before that.

    Waiting here counts as polling, or the group would rebalance without this member. Errors about positions, such as a
    missing offset, are not raised: the application may be about to seek. Raises RequestTimedOut after ``timeout``
    seconds.
    """
    reading.listener.refuse_inside("waiting for the assignment")
    time = asyncio.get_running_loop().time
    deadline = time() + timeout
    user.refuse_others()
    reading.polling_begins(None)
    user.enters()
    try:
        await reading.collector.settle_all(user.time_slice)
        while True:
            if time() > user.time_slice.ends:
                await user.time_slice.give_way()
            reading.before_records(None)
            reading.raise_assignment_errors()
            if reading.has_assigned:
                return frozenset(reading.subscription.assigned)
            left = deadline - time()
            if left <= 0:
                await asyncio.sleep(0)  # a loop that asks with timeout 0 must not starve the tasks that could answer
                cause = reading.assignment_trouble
                why = f": {cause}" if cause is not None else ""
                raise RequestTimedOut(f"no partitions were assigned within {timeout:.3g} s{why}") from cause
            await reading.changed.wait(left)
            user.time_slice.begins()
    finally:
        reading.polling_ends()
        user.leaves()
