"""Records that getone() and the iterator hand out one after the other, without a whole poll for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from ...core.fetch.partition_buffer import PartitionBuffer
from ...core.subscription.position import PartitionPosition
from ...types import ConsumerRecord, TopicPartition
from ..aio.single_user import SingleUser
from ..aio.steps import Steps, new_steps
from .runtime import ConsumerRuntime

# How many records getone() and the iterator decode at a time: twice as many as the last run has handed out. Where the
# user is slow, each poll serves another partition, and what is ahead stays there: 500 of each of a thousand would be
# 100 MB that nobody has counted.
LEAST_AHEAD = 16
_MOST_AHEAD = 500


class RecordStream:
    """What is decoded of one partition, behind the record that the last poll has handed out.

    ``steps.items`` hands out the next one at each step, all before it being processed, and awaits nothing. It ends with
    the turn that the poll has begun: after 2 ms the next poll lets others run, hears what they did, and tells the group
    that the user is there. And it ends as soon as anything happens that a poll would look at: each such thing wakes the
    poll that waits (``ConsumerRuntime.changed``) or touches a partition. It is for the poll's task only. Every poll
    closes it first, so that nobody else finds the buffer with records in it that were handed out. Where it has ended, a
    step is a ``poll()``.
    """

    def __init__(
        self,
        runtime: ConsumerRuntime,
        user: SingleUser,
        poll: Callable[[], Coroutine[Any, Any, ConsumerRecord[Any, Any]]],
    ) -> None:
        self.steps: Steps[ConsumerRecord[Any, Any]] = new_steps(poll)
        self._runtime = runtime
        self._user = user
        self._open: tuple[PartitionBuffer, PartitionPosition] | None = None
        self._count = self._counted = 0
        self.ahead = LEAST_AHEAD  # how many records the next poll should have decoded

    def begin(self, tp: TopicPartition) -> None:
        """A poll has just handed out a record of ``tp``: those behind it may follow without one."""
        buffer, position = self._runtime.collector.buffer.of(tp), self._runtime.subscription[tp]
        if buffer is None or not buffer.ready or buffer.ready[-1].leader_epoch not in (None, position.leader_epoch):
            return  # around a new leader there is a poll for each: positions know the epoch of their last record
        self._open, self._count, self._counted = (buffer, position), 0, 0
        # What may end it is looked at here, and not when the first record of it is asked for.
        happened = self._runtime.changed.notified, self._runtime.subscription.touches
        self.steps.items = self._follow(buffer, position, asyncio.current_task(), *happened)

    def _follow(
        self,
        buffer: PartitionBuffer,
        position: PartitionPosition,
        task: asyncio.Task[Any] | None,
        notified: int,
        touches: int,
    ) -> Iterator[ConsumerRecord[Any, Any]]:
        """Each step costs some 0.4 µs, and half of that is asking for the task and the time.

        Before Python 3.12 to ask for the task without naming the loop would be as much as all of it.
        """
        changed, subscription, until = self._runtime.changed, self._runtime.subscription, self._user.time_slice.ends
        loop = asyncio.get_running_loop()
        current_task, time = asyncio.current_task, loop.time
        for record in buffer.ready:
            if (
                changed.notified != notified
                or subscription.touches != touches
                or current_task(loop) is not task
                or time() > until
            ):
                return
            self._count += 1
            position.processed_position, position.processed_epoch = position.position, position.leader_epoch
            position.position, position.held = record.offset + 1, True
            yield record

    def count(self) -> None:
        """Have the counters tell of all that was handed out: that is not done for each record."""
        news, self._counted = self._count - self._counted, self._count
        self._runtime.fetcher.counters.records += news
        self._runtime.polls.count += news

    def close(self) -> None:
        """Take what was handed out from the buffer."""
        if self._open is None:
            return
        self.count()
        (buffer, position), self._open, self.steps.items = self._open, None, iter(())
        self.ahead = min(max(2 * self._count, LEAST_AHEAD), _MOST_AHEAD)
        if self._count == 0 or not self._runtime.collector.buffer.is_current(buffer):
            return
        _, after = buffer.take(self._count)
        if self._runtime.subscription.get(buffer.tp, buffer.token) is position:
            if after > position.position:
                position.hand_out(after, buffer.taken_epoch)  # offsets behind the last record that hold none
            self._runtime.collector.buffer.served(buffer, position)
