"""From what was fetched to columns: appended by slices, and handed out in one step; or not at all, if that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ...core.fetch.partition_buffer import PartitionBuffer
from ...records import NATIVE, ColumnBuilder
from ...types import BatchEnd, RecordColumns, TopicPartition
from ..aio.time_slice import TimeSlice
from .collector import FetchCollector, HandOut

# A step takes some 0.3 ms.
_SLICE_ROWS = 8192 if NATIVE else 256
_SLICE_BYTES = 1 << 20

_NO_END = (1 << 63) - 1


class ColumnCollector:
    """The user's side of the fetch buffer, for columns.

    What was appended to a builder counts as decoded, and not as handed out, until ``take``: ``put_back`` has it read
    again. So it is with records that were decoded for getmany() and wait there.
    """

    def __init__(self, collector: FetchCollector) -> None:
        self._collector = collector
        self._appended: dict[PartitionBuffer, int] = {}  # and how many rows of each

    async def append(
        self,
        builder: ColumnBuilder,
        rows: int,
        size: int,
        time_slice: TimeSlice,
        only: Iterable[TopicPartition] | None = None,
    ) -> None:
        """Append what is there, until the builder holds ``rows``, or these count ``size``; at least one, if there is.

        Gives way to other tasks whenever the turn ends. Cancelled, it has to be followed by ``put_back``.
        """
        while (buffer := self.append_at_once(builder, rows, size, time_slice.ends, only)) is not None:
            await self._collector.give_way(buffer, time_slice)

    def append_at_once(
        self,
        builder: ColumnBuilder,
        rows: int,
        size: int,
        ends: float,
        only: Iterable[TopicPartition] | None = None,
    ) -> PartitionBuffer | None:
        """Do as ``append``, until the time ``ends`` only; return where it has to wait, None where it is done."""
        time = asyncio.get_running_loop().time
        for buffer, position in self._collector.buffer.servable(self._collector.subscription, only):
            if buffer.ready:
                buffer.rewind()
            until = _NO_END if position.until is None else position.until
            while buffer.undecoded and buffer.next < until:
                if builder.rows >= rows or builder.size >= size or builder.is_full:
                    return None
                if self._collector.opens_slowly(buffer):
                    return buffer
                count = buffer.append(
                    builder, min(_SLICE_ROWS, rows - builder.rows), min(size, builder.size + _SLICE_BYTES), until
                )
                if count:
                    self._appended[buffer] = self._appended.get(buffer, 0) + count
                if time() > ends:
                    return buffer
        return None

    def put_back(self) -> None:
        """What was appended since the last ``take`` will be read again; the builder is of no use any more."""
        for buffer in self._appended:
            buffer.rewind()
        self._appended.clear()

    @property
    def is_valid(self) -> bool:
        """Whether all that was appended may still be handed out: nothing was revoked, paused or sought meanwhile."""
        buffer, subscription = self._collector.buffer, self._collector.subscription
        for appended in self._appended:
            position = subscription.get(appended.tp, appended.token)
            if position is None or not position.fetchable or not buffer.is_current(appended):
                return False
        return True

    def take(self, only: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, BatchEnd]:
        """Hand out what was appended, and is valid: positions advance here. Return where it ends, by partition.

        Raises the error of a partition only where nothing else could be handed out.
        """
        step = HandOut()
        for buffer, position in self._collector.buffer.servable(self._collector.subscription, only):
            if buffer.ready:  # records, of an earlier getmany(), which there was no room for
                continue
            self._collector.hand_out(buffer, position, self._appended.get(buffer, 0), buffer.take_appended(), step)
        self._appended.clear()
        return self._collector.handed_out(step)


class ColumnPoll:
    """One getmany_columns(): what it wants, and how it gets that, or leaves all as it was."""

    def __init__(
        self, collector: FetchCollector, new_builder: Callable[[], ColumnBuilder], *, rows: int, size: int
    ) -> None:
        self._columns = ColumnCollector(collector)
        self._new_builder = new_builder
        self._builder = new_builder()
        self._rows, self._size = rows, size

    async def read(
        self, only: Iterable[TopicPartition] | None, check: Callable[[], None], time_slice: TimeSlice
    ) -> RecordColumns:
        """Return what is there. From the last await to the return positions move, and nothing can be cancelled.

        ``check`` raises what comes before any record.
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
