"""The loop inside wait_assigned(): polls for no records until the partitions are assigned."""

from __future__ import annotations

import asyncio

from ...errors import RequestTimedOut
from ...types import TopicPartition
from ..aio.single_user import SingleUser
from .runtime import ConsumerRuntime


async def wait_assigned(runtime: ConsumerRuntime, user: SingleUser, timeout: float) -> frozenset[TopicPartition]:
    """Return the assignment once there is one and the listener is done with it. Raise errors that come before that.

    Waiting here counts as polling, or the group would rebalance without this member. Errors about positions, such as a
    missing offset, are not raised: the application may be about to seek. Raises RequestTimedOut after ``timeout``
    seconds.
    """
    runtime.listener.refuse_inside("waiting for the assignment")
    time = asyncio.get_running_loop().time
    deadline = time() + timeout
    user.refuse_others()
    runtime.polling_begins(None)
    user.enters()
    try:
        await runtime.collector.settle_all(user.time_slice)
        while True:
            if time() > user.time_slice.ends:
                await user.time_slice.give_way()
            runtime.errors.before_records(None)
            runtime.errors.raise_of_assignment()
            if runtime.has_assigned:
                runtime.subscription.was_assigned = True
                return frozenset(runtime.subscription.assigned)
            left = deadline - time()
            if left <= 0:
                await asyncio.sleep(0)  # a loop that asks with timeout 0 must not starve the tasks that could answer
                cause = runtime.errors.assignment_trouble
                why = f": {cause}" if cause is not None else ""
                raise RequestTimedOut(f"no partitions were assigned within {timeout:.3g} s{why}") from cause
            await runtime.changed.wait(left)
            user.time_slice.begins()
    finally:
        runtime.polling_ends()
        user.leaves()
