"""The future of a reply. It can resume the task that awaits it within the callback that read it from the socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context


class Reply(asyncio.Future[memoryview]):
    """The body of a reply. Only ``hand_over`` resumes the task at once; all else, in the loop's next iteration."""

    _wake: tuple[Callable[[Reply], object], Context] | None = None

    def add_done_callback(self, fn: Callable[[Reply], object], /, *, context: Context | None = None) -> None:
        if context is not None:  # the task that awaits this
            self._wake = fn, context
        super().add_done_callback(fn, context=context)

    def hand_over(self, body: memoryview) -> None:
        """Set the body, and run the task that awaits it until it waits for something else; then return.

        If another task is running, its step can't be interrupted: the waiting task is woken as by ``set_result``.
        """
        wake, self._wake = self._wake, None
        if wake is None or asyncio.current_task() is not None:
            self.set_result(body)
            return
        step, context = wake
        self.remove_done_callback(step)
        self.set_result(body)
        context.run(step, self)
