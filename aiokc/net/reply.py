"""A reply on its way: whoever waits for it may go on in the very step that brings it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context


class Reply(asyncio.Future[memoryview]):
    """The body of a reply. Whatever ends it but ``hand_over`` wakes who waits in the next turn of the loop, as ever."""

    _wake: tuple[Callable[[Reply], object], Context] | None = None

    def add_done_callback(self, fn: Callable[[Reply], object], /, *, context: Context | None = None) -> None:
        if context is not None:  # the task that awaits this
            self._wake = fn, context
        super().add_done_callback(fn, context=context)

    def hand_over(self, body: memoryview) -> None:
        """The reply is here: the task that awaits it runs until it waits for something else, and then this returns.

        Within another task's step, which can't be left for that, it is woken as by ``set_result``.
        """
        wake, self._wake = self._wake, None
        if wake is None or asyncio.current_task() is not None:
            self.set_result(body)
            return
        step, context = wake
        self.remove_done_callback(step)
        self.set_result(body)
        context.run(step, self)
