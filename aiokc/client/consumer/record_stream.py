"""Lets getone() and the iterator hand out the decoded records of a partition one by one, without a poll for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, copy_context
from typing import Any, NamedTuple

from ...core.fetch.partition.partition_buffer import PartitionBuffer
from ...core.subscription.change_count import ChangeCount
from ...core.subscription.position import PartitionPosition
from ...observer import told_after
from ...types import ConsumerRecord, TopicPartition
from ..aio.single_user import SingleUser
from ..aio.steps import Steps, new_steps
from .runtime import ConsumerRuntime

# How many records getone() and the iterator decode at a time: twice as many as the last stream handed out, within these
# limits. Where the application is slow, each poll serves another partition, and the records decoded ahead stay in
# memory: 500 records of each of a thousand partitions would be 100 MB that no budget counts.
LEAST_AHEAD = 16
_MOST_AHEAD = 500


class _Unreported(NamedTuple):
    """A poll that the observers have not heard of: it took ``seconds``, until ``ended``, in this context."""

    tp: TopicPartition
    first: ConsumerRecord[Any, Any]
    seconds: float
    ended: float
    context: Context


class RecordStream:
    """The decoded records of one partition, behind the record that the last poll handed out.

    Each step of ``steps.items`` hands out the next record, marks all records before it as processed, and awaits
    nothing. The stream ends with the time slice that the poll began: after 1 ms the next poll lets other tasks run,
    sees what they did, and tells the group that the application polls. The stream also ends as soon as anything happens
    that a poll would look at: ``ConsumerRuntime.changes`` counts it. Only the poll's task may use it. Every poll closes
    it first, so that no other code finds records in the buffer that were handed out. Once the stream has ended, a step
    is a ``poll()``.
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
        self._count = 0
        self._unreported: _Unreported | None = None
        self._version = 0  # odd while the stream is being opened or closed
        self.ahead = LEAST_AHEAD  # how many records the next poll should decode

    def begin(self, tp: TopicPartition) -> None:
        """Open the stream: a poll has just handed out a record of ``tp``; those behind it may follow without one."""
        buffer, position = self._runtime.collector.buffer.of(tp), self._runtime.subscription[tp]
        if buffer is None or not buffer.ready or buffer.ready[-1].leader_epoch not in (None, position.leader_epoch):
            return  # Where the leader epoch changes, each record takes a poll: a position has its last record's epoch.
        self._version += 1
        self._open, self._count = (buffer, position), 0
        self._version += 1
        changes = self._runtime.changes
        changes.notify()  # This ends the poll's lease: the buffer still has the records that the stream hands out.
        # Events after this moment end the stream, also those before its first record is asked for.
        self.steps.items = self._follow(buffer, position, asyncio.current_task(), changes, changes.count)

    def _follow(
        self,
        buffer: PartitionBuffer,
        position: PartitionPosition,
        task: asyncio.Task[Any] | None,
        changes: ChangeCount,
        as_of: int,
    ) -> Iterator[ConsumerRecord[Any, Any]]:
        """Yield the records until the stream has to end.

        A step takes some 0.4 µs; half of that is asking for the current task and the time. Before Python 3.12, asking
        for the current task without naming the loop would take as long as the whole step.
        """
        loop, until = asyncio.get_running_loop(), self._user.time_slice.ends
        current_task, time = asyncio.current_task, loop.time
        for record in buffer.ready:
            if changes.count != as_of or current_task(loop) is not task or time() > until:
                return
            self._count += 1
            position.processed_position, position.processed_epoch = position.position, position.leader_epoch
            position.position, position.held = record.offset + 1, True
            yield record

    def uncounted(self, counted: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        """Return the counters (records, polls) that ``counted`` reads, with what the stream has handed out so far.

        The stream does not count each record. Another thread than the loop's may ask: where the stream is opened or
        closed meanwhile, it looks again, so that no record counts twice, or not at all.
        """
        while True:
            version = self._version
            records, polls = counted()
            more = self._count if self._open is not None else 0
            if self._version == version and version % 2 == 0:
                return records + more, polls + more

    def observed(self, tp: TopicPartition, first: ConsumerRecord[Any, Any], began: float) -> None:
        """Tell the observers of the record of the poll that ends now: together with those of the stream, if any."""
        ended = self._runtime.cluster_client.now()
        if self._open is None:
            self._runtime.observers.batch({tp: [first]}, ended - began)
        else:
            self._unreported = _Unreported(tp, first, ended - began, ended, copy_context())

    def report(self) -> None:
        """Tell the observers of what the stream has handed out, if they have not heard of it yet.

        They hear of it where the poll was. Otherwise a span of it would be one of the next poll's job:

        1. A job begins a span, gets a record, and ends the span.
        2. The next job begins its own, and asks for a record: only now it is known what the first job's poll brought.
        """
        if self._unreported is None:
            return
        of, self._unreported = self._unreported, None
        records = [of.first]
        if self._open is not None:
            records += self._open[0].ready[: self._count]
        of.context.run(self._tell, {of.tp: records}, of.seconds, self._runtime.cluster_client.now() - of.ended)

    def _tell(self, records: dict[TopicPartition, list[ConsumerRecord[Any, Any]]], seconds: float, late: float) -> None:
        told_after.set(late)
        self._runtime.observers.batch(records, seconds)

    def close(self) -> None:
        """End the stream, and take the records that it handed out from the buffer."""
        if self._open is None:
            return
        self.report()
        self._version += 1
        self._runtime.fetcher.counters.records += self._count
        self._runtime.polls.count += self._count
        (buffer, position), self._open, self.steps.items = self._open, None, iter(())
        self._version += 1
        self.ahead = min(max(2 * self._count, LEAST_AHEAD), _MOST_AHEAD)
        if self._count == 0 or not self._runtime.collector.buffer.is_current(buffer):
            return
        _, after = buffer.take(self._count)
        if self._runtime.subscription.get(buffer.tp, buffer.token) is position:
            if after > position.position:
                position.hand_out(after, buffer.taken_epoch)  # past the offsets without a record
            self._runtime.collector.buffer.served(buffer, position)
