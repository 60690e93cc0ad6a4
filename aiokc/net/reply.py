"""The reply to one request: the future of its bytes, who waits for it, and how it is decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from ..core.versions import api_name
from ..errors import MalformedResponse
from ..wire import Request, Response, decode, decode_in_slices

R = TypeVar("R", bound=Response)

# A longer body is decoded in slices, so that it holds the loop for a few milliseconds at most. Slices count the items
# of arrays. In a Fetch response these are partitions; their records are not decoded here, so they cost nothing.
_DECODE_AT_ONCE_BYTES: Final = 32 * 1024


class Reply(asyncio.Future[memoryview]):
    """The body of a reply. Only ``hand_over`` resumes the task that awaits it within the callback that read it from the
    socket; all else, in the loop's next iteration.
    """

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


@dataclass(slots=True)
class Waiter:
    """One request that waits for its reply: since when, until when, and how to wake the caller (``at_once``)."""

    reply: Reply
    sent_at: float
    deadline: float
    at_once: bool


@dataclass(slots=True)
class Written(Generic[R]):
    """A request that was written to a connection, whose reply may be awaited later, and once (Connection.answer)."""

    request_type: type[Request[R]]
    version: int
    waiter: Waiter


async def decoded(request_type: type[Request[R]], version: int, body: memoryview, broker: str) -> R:
    """Return the response that ``body`` is. Raises MalformedResponse, which names the broker."""
    response_type = cast(type[R], request_type.response)
    try:
        if len(body) <= _DECODE_AT_ONCE_BYTES:
            return decode(response_type, body, version)
        slices = decode_in_slices(response_type, body, version)
        while True:
            try:
                next(slices)
            except StopIteration as end:
                return cast(R, end.value)
            await asyncio.sleep(0)
    except MalformedResponse as error:
        raise MalformedResponse(f"{broker}: {api_name(request_type)} v{version}: {error}") from error
