"""Compressing: compresses batches in threads, where that would hold the event loop for longer than a millisecond."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from anyio.abc import TaskGroup

from ...core.produce.accumulator import RecordAccumulator
from ...core.produce.batch import ProducerBatch
from ...errors import ConnectionFailed
from ...net.own_thread import OwnThreads
from ...records.encoding.batch_builder import ClosedBatch, OpenBatch
from ..aio.complaints import Complaints
from ..aio.time_slice import let_others_run

logger = logging.getLogger("aiokc.produce")

#: So many bytes of records are given to a thread at once: several threads share many batches.
_AT_ONCE: Final = 256 << 10
#: More have seldom anything to do: ToCompress gives out max_request_size at once, which is 1 MiB by default.
_MOST_THREADS: Final = 4
_COMPLAINT_SECONDS: Final = 300.0

Compressed: TypeAlias = tuple[ProducerBatch, OpenBatch]


class Compressing:
    """Has the accumulator's ``to_compress`` compressed in threads of its own.

    The loop's default executor is the application's: jobs in all of its threads may wait until just these batches are
    stored. A thread touches nothing but the bytes. A batch that has failed meanwhile gets nothing of what comes of it.
    """

    def __init__(self, accumulator: RecordAccumulator, compressed: Callable[[], None]) -> None:
        """``compressed`` is called when batches have been compressed, or have failed by that."""
        self._accumulator = accumulator
        self._compressed = compressed
        self._threads = OwnThreads("aiokc compressing", _MOST_THREADS)
        self._complaints = Complaints(logger, _COMPLAINT_SECONDS)

    def start(self, tasks: TaskGroup) -> None:
        """Begin with what the accumulator has collected."""
        if self._accumulator.to_compress.is_empty:
            return
        for some in _groups(self._accumulator.to_compress.take()):
            tasks.start_soon(self._compress, some)

    async def _compress(self, some: list[Compressed]) -> None:
        results = await self._in_thread([opened for _, opened in some])
        for (batch, opened), result in zip(some, results, strict=True):
            self._accumulator.compressed(batch, opened, result)
        self._compressed()

    def close(self) -> None:
        """End the threads once they are done."""
        self._threads.close()

    async def _in_thread(self, opened: list[OpenBatch]) -> list[ClosedBatch | Exception]:
        try:
            return await self._threads.run(partial(_closed, opened))
        except ConnectionFailed as error:
            return await self._in_the_loop(opened, error)

    async def _in_the_loop(self, opened: list[OpenBatch], why: ConnectionFailed) -> list[ClosedBatch | Exception]:
        text = (
            "batches are compressed within the event loop, which holds it up: %s; if the process can have no more "
            "threads, raise that limit"
        )
        self._complaints.warn("", text, why)
        closed: list[ClosedBatch | Exception] = []
        for one in opened:
            closed += _closed([one])
            await let_others_run()
        return closed


def _groups(batches: Sequence[Compressed]) -> Iterator[list[Compressed]]:
    some: list[Compressed] = []
    size = 0
    for batch, opened in batches:
        if some and size + opened.size > _AT_ONCE:
            yield some
            some, size = [], 0
        some.append((batch, opened))
        size += opened.size
    if some:
        yield some


def _closed(opened: list[OpenBatch]) -> list[ClosedBatch | Exception]:
    """Close each of them; what that raises is returned, since it is about that one alone."""
    closed: list[ClosedBatch | Exception] = []
    for one in opened:
        try:
            closed.append(one.close())
        except Exception as error:
            closed.append(error)
    return closed
