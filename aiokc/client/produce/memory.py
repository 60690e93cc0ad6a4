"""Who waits for room in buffer_memory: in the order of the calls, each until it gets room or its time is over."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from ...core.produce.accumulator import RecordAccumulator


class MemoryWaiters:
    """The calls that wait until their record fits. ``wake`` is called when there is one more.

    What a call is granted is set aside until it resumes, and it appends in that same step. A call that is cancelled in
    between gives its room to the next one.
    """

    def __init__(self, accumulator: RecordAccumulator, wake: Callable[[], None]) -> None:
        self._accumulator = accumulator
        self._wake = wake
        self._waiting: OrderedDict[asyncio.Future[None], int] = OrderedDict()  # and the size that each waits for
        self._granted = 0  # calls that were granted room and have not resumed yet

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits: who does came first."""
        return not self._waiting and not self._granted

    def has_room(self, size: int) -> bool:
        """Whether a record of this size may be appended now."""
        return not (self._waiting or self._granted) and self._accumulator.has_room(size)

    async def wait(self, size: int, timeout: float) -> bool:
        """Wait until a record of this size may be appended, which is to be done at once; False: not within this time.

        Raises what ``close`` was given.
        """
        if timeout <= 0:
            return False
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[None] = loop.create_future()
        self._waiting[granted] = size
        self._wake()
        timer = loop.call_later(timeout, _expire, granted)
        try:
            self.grant()
            await granted
        except TimeoutError:
            return False
        except BaseException:  # it was cancelled, or its coroutine was closed
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self._take_back(size)
            raise
        else:
            self._take_back(size)
            return True
        finally:
            timer.cancel()
            self._waiting.pop(granted, None)
            if not loop.is_closed():
                loop.call_soon(self.grant)  # what is behind this one may fit

    def _take_back(self, size: int) -> None:
        self._granted -= 1
        self._accumulator.used -= self._accumulator.cost(size)

    def grant(self) -> None:
        """Give room to as many as there is room for, in order. To be called when memory has become free."""
        while self._waiting and self._accumulator.has_room(next(iter(self._waiting.values()))):
            granted, size = self._waiting.popitem(last=False)
            if not granted.done():
                self._granted += 1
                self._accumulator.used += self._accumulator.cost(size)
                granted.set_result(None)

    def close(self, error: Callable[[], Exception]) -> None:
        """Have every call that waits raise an error."""
        while self._waiting:
            granted, _ = self._waiting.popitem(last=False)
            if not granted.done():
                granted.set_exception(error())


def _expire(granted: asyncio.Future[None]) -> None:
    if not granted.done():
        granted.set_exception(TimeoutError())
