"""Appends buffered batches to Arrow columns, in time slices, and hands them out in one step, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from ...core.fetch.buffer import Serving
from ...core.fetch.partition.partition_buffer import PartitionBuffer
from ...core.subscription.position import PartitionPosition
from ...records import NATIVE, ColumnBuilder
from ...types import BatchEnd, RecordColumns, TopicPartition
from ..aio.time_slice import TimeSlice
from .collector import FetchCollector, HandOut

# How much is appended between two looks at the clock. Such a step takes some 0.3 ms.
_SLICE_ROWS = 8192 if NATIVE else 256
_SLICE_BYTES = 1 << 20

_NO_END = (1 << 63) - 1


class ColumnCollector:
    """The consuming side of the fetch buffer, for columns.

    Rows that were appended to a builder count as decoded, not as handed out, until ``take``; ``put_back`` makes them be
    read again. Records that were decoded for getmany() and not handed out are read again as rows, too.
    """

    def __init__(self, collector: FetchCollector) -> None:
        self._collector = collector
        self._appended: dict[PartitionBuffer, int] = {}  # how many rows of each
        # What ``take`` has to look at, also without a row: behind offsets that hold none, or at an error, it moves on.
        self._passed: dict[PartitionBuffer, PartitionPosition] = {}
        self._failed: set[PartitionBuffer] = set()  # those with an error since: it may be one of these columns alone

    async def append(
        self,
        builder: ColumnBuilder,
        rows: int,
        size: int,
        time_slice: TimeSlice,
        only: Iterable[TopicPartition] | None = None,
    ) -> None:
        """Append what is buffered, until the builder holds ``rows`` rows or ``size`` bytes; at least one row, if any.

        Lets other tasks run after each time slice, and goes on where it has stopped: what comes meanwhile, of other
        partitions, may wait for the next call. If it is cancelled, the caller must call ``put_back``.
        """
        fetched, subscription = self._collector.buffer, self._collector.subscription
        order = rest = fetched.servable(subscription, only)
        while (stopped_at := self._append_in_order(order, builder, rows, size, time_slice.ends)) is not None:
            await time_slice.give_way()
            order = fetched.going_on(stopped_at, rest, subscription)

    def append_at_once(
        self,
        builder: ColumnBuilder,
        rows: int,
        size: int,
        ends: float,
        only: Iterable[TopicPartition] | None = None,
    ) -> bool:
        """Append as ``append`` does, but without an await, and at most until the loop's time ``ends``.

        Return whether all is done: else the caller has to let other tasks run. Appended batches stay decompressed until
        ``take``, however little of them the columns hold. So it is done, too, once the fetch buffer has no memory to
        open another one.
        """
        order = self._collector.buffer.servable(self._collector.subscription, only)
        return self._append_in_order(order, builder, rows, size, ends) is None

    def _append_in_order(
        self, order: Iterable[Serving], builder: ColumnBuilder, rows: int, size: int, ends: float
    ) -> Serving | None:
        """Append as ``append_at_once`` does, in this order. Return where time was over; None: all is done."""
        time, opening = asyncio.get_running_loop().time, self._collector.opening
        fetched = self._collector.buffer
        for serving in order:
            buffer, position = serving
            if builder.rows >= rows or builder.size >= size or builder.is_full:
                return None
            self._passed[buffer] = position
            if buffer.ready:
                buffer.rewind()
            until = _NO_END if position.until is None else position.until
            while buffer.undecoded and buffer.next < until:
                if builder.rows >= rows or builder.size >= size or builder.is_full:
                    return None
                # Not ``builder.rows``: those may be of earlier calls, and this one has to get on.
                if self._appended and fetched.is_far_over_budget and buffer.needs_memory:
                    return None
                if opening.takes_long(buffer):
                    opening.begin(buffer)
                    break
                error = buffer.error
                count = buffer.append(
                    builder, min(_SLICE_ROWS, rows - builder.rows), min(size, builder.size + _SLICE_BYTES), until
                )
                if count:
                    self._appended[buffer] = self._appended.get(buffer, 0) + count
                if buffer.error is not error:
                    self._failed.add(buffer)
                if time() > ends:
                    return serving
        return None

    def put_back(self) -> None:
        """Make what was appended since the last ``take`` be read again. The builder must not be used any more."""
        for buffer in self._appended.keys() - self._failed:
            buffer.rewind()
        for buffer in self._failed:  # also without a row: the first record may have failed
            if self._collector.buffer.is_current(buffer):
                self._collector.fetch_again(buffer.tp)  # the next call may ask for other columns, or for records
        self._appended.clear()
        self._passed.clear()
        self._failed.clear()

    @property
    def is_valid(self) -> bool:
        """Whether all appended rows may still be handed out: no partition was revoked, paused or sought meanwhile."""
        buffer, subscription = self._collector.buffer, self._collector.subscription
        for appended in self._appended:
            position = subscription.get(appended.tp, appended.token)
            if position is None or not position.fetchable or not buffer.is_current(appended):
                return False
        return True

    def take(self, only: Collection[TopicPartition] | None = None) -> dict[TopicPartition, BatchEnd]:
        """Hand out the appended rows, which must be valid: positions advance here. Return where they end, by partition.

        Raises the error of a partition only if there is no row to hand out.
        """
        step = HandOut()
        self._collector.failed_as_columns(self._failed)
        self._failed.clear()
        fetched, subscription = self._collector.buffer, self._collector.subscription
        for buffer, position in self._passed.items():
            if fetched.still_servable((buffer, position), subscription):
                self._collector.hand_out(buffer, position, self._appended.get(buffer, 0), buffer.take_appended(), step)
        self._appended.clear()
        self._passed.clear()
        return self._collector.handed_out(step, only)


class ColumnPoll:
    """One getmany_columns(): how much it wants. It either returns a batch or leaves the buffers as they were."""

    def __init__(
        self, collector: FetchCollector, new_builder: Callable[[], ColumnBuilder], *, rows: int, size: int
    ) -> None:
        self._columns = ColumnCollector(collector)
        self._new_builder = new_builder
        self._builder = new_builder()
        self._rows, self._size = rows, size

    async def read(
        self, only: Collection[TopicPartition] | None, check: Callable[[], None], time_slice: TimeSlice
    ) -> RecordColumns:
        """Return a batch of what is buffered; it may be empty. ``check`` raises the errors that come before any record.

        Positions move between the last await and the return. As there is no await in between, a cancelled call loses
        no record.
        """
        columns = self._columns
        try:
            await columns.append(self._builder, self._rows, self._size, time_slice, only)
            while not columns.is_valid:
                columns.put_back()
                self._builder = self._new_builder()
                await columns.append(self._builder, self._rows, self._size, time_slice, only)
            check()
            arrow = self._builder.finish()
        except BaseException:
            columns.put_back()
            raise
        return RecordColumns(arrow, columns.take(only))
