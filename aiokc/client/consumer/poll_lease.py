"""PollLease: after a poll has looked at everything, getmany() takes the next records without a look, while it may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from ...types import ConsumerRecords
from ..aio.single_user import SingleUser
from .runtime import ConsumerRuntime


class PollLease:
    """The right to take records without a poll, which a poll leaves to the calls of its task that follow.

    A poll looks at all that comes before records: the errors of the background, of the listener, of other partitions;
    a stop, the assignment, callbacks of commits, the group's clock. Whatever happens to any of these is counted by one
    number, ``ConsumerRuntime.changes``. So nobody has to remember the lease: it is over when that number is another one
    than when the poll began to look. Every other call for records counts, too. What no event tells is the time: the
    lease ends with the time slice that the poll began, a millisecond after it at most. So the group's clock, which
    stands still meanwhile, is wrong by no more than that.

    There is no lease where records are more than taken: with deserializers or interceptors. Observers hear of its
    batches as of a poll's. And it serves only a call that finds records of the partition in turn; any other call is a
    poll.
    """

    def __init__(self, runtime: ConsumerRuntime, user: SingleUser) -> None:
        self._runtime = runtime
        self._changes = runtime.changes
        self._mark_processed = runtime.subscription.mark_processed
        self._take_in_turn = runtime.collector.take_in_turn
        self._polls, self._observers = runtime.polls, runtime.observers
        self._time_slice = user.time_slice
        self._task: asyncio.Task[Any] | None = None
        self._time: Callable[[], float] = time.monotonic  # the clock of that task's loop
        self._as_of = -1  # what the count was when the poll began to look

    def begin(self, as_of: int) -> None:
        """A poll of this task has looked at everything since the count of changes was ``as_of``, and has records."""
        if self._runtime.hands_out_raw_records:
            self._task, self._as_of = asyncio.current_task(), as_of
            self._time = asyncio.get_running_loop().time

    def take(self, most: int) -> ConsumerRecords[Any, Any] | None:
        """Hand out up to ``most`` records as a poll would. None: nothing was handed out, and the call has to poll.

        These may be fewer than a poll would find, where the next ones take longer (``FetchCollector.take_in_turn``).
        Counts what earlier calls returned as processed. Awaits nothing.
        """
        if self._changes.count != self._as_of or asyncio.current_task() is not self._task:
            return None
        began, ends = self._time(), self._time_slice.ends
        if began > ends:
            return None
        self._mark_processed()
        batch = self._take_in_turn(most, ends)
        if batch is not None:
            now = self._time()
            self._polls.took(began, now)
            if self._observers.all:
                self._observers.batch(batch, now - began)
        return batch
