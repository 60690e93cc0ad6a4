"""The reply to one request: who waits for its bytes, and how it is decoded."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from ..core.connection.denials import look_for_denial
from ..core.versions import api_name
from ..errors import KafkaError, MalformedResponse
from ..wire import Request, Response, decode, decode_in_slices
from .user_errors import leaves_the_loop

T = TypeVar("T")
R = TypeVar("R", bound=Response)

# A longer body is decoded in slices, so that it holds the loop for a few milliseconds at most. Slices count the items
# of arrays. In a Fetch response these are partitions; their records are not decoded here, so they cost nothing.
_DECODE_AT_ONCE_BYTES: Final = 32 * 1024


class HandedOver(asyncio.Future[T]):
    """A result of which only ``hand_over`` resumes who awaits it in the same step: in the callback, that is, which read
    an answer from the socket. All else does, in the loop's next iteration.
    """

    _wake: tuple[Callable[[Any], object], Context] | None = None

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        if context is not None:  # the task that awaits this, or a function that stands in for one
            self._wake = fn, context
        super().add_done_callback(fn, context=context)

    def hand_over(self, result: T) -> None:
        """Set the result, and run the task that awaits it until it waits for something else; then return.

        Behind it, run those tasks for which that one calls ``hand_over_next``. What they tell others of is heard in the
        loop's next iteration. If another task is running, its step can't be interrupted: the waiting task is woken as
        by ``set_result``.
        """
        outer, following = _step.next, deque[HandedOver[None]]()
        _step.next = following
        try:
            self.resume(result)
            _step.next = outer
            # In asyncio's debug mode they run later: it tells of callbacks that take long, and should name the task
            # that does, not the one that reads from the socket.
            while following and not following[0].get_loop().get_debug():
                future = following.popleft()
                if not future.done():
                    future.resume(None)
        finally:
            _step.next = outer
            for future in following:
                if not future.done():
                    future.set_result(None)

    def resume(self, result: T) -> None:
        """Do as ``hand_over`` with the task that awaits it alone."""
        wake, self._wake = self._wake, None
        if wake is None or asyncio.current_task() is not None:
            self.set_result(result)
            return
        step, context = wake
        self.remove_done_callback(step)
        self.set_result(result)
        try:
            context.run(step, self)
        except BaseException as error:  # of a task only SystemExit and KeyboardInterrupt come this far
            if not leaves_the_loop(error):
                raise


def hand_over_next(future: HandedOver[None]) -> None:
    """Set the result of ``future``. In a task that was handed a result: run who awaits it once that task waits again.

    That is before the callback returns which has read an answer from the socket.
    """
    if _step.next is None:
        future.set_result(None)
    else:
        _step.next.append(future)


async def others_first() -> None:
    """Go on behind all that was to be run next: within the same callback, or else in the loop's next iteration."""
    if _step.next is None:
        await asyncio.sleep(0)
    else:
        turn: HandedOver[None] = HandedOver(loop=asyncio.get_running_loop())
        _step.next.append(turn)
        await turn


class _Step(threading.local):
    """The step of a task that ``hand_over`` runs in this thread: what runs behind it. None: there is no such step."""

    next: deque[HandedOver[None]] | None = None


_step: Final = _Step()


class Reply(HandedOver[memoryview]):
    """The body of a reply."""


class Waiter(Protocol):
    """Who waits for the reply to one request, since ``sent_at`` and until ``deadline`` on the loop's clock."""

    sent_at: float
    deadline: float

    def reply_came(self, body: memoryview, now: float) -> None:
        """The reply has come. To be called once at most, and not after ``failed``."""

    def failed(self, error: KafkaError) -> None:
        """No reply will come. Does nothing where the request was cancelled."""


@dataclass(slots=True)
class Awaited:
    """The Waiter of a request whose reply a task awaits. ``at_once``: the task goes on in the step that reads it."""

    reply: Reply
    sent_at: float
    deadline: float
    at_once: bool

    def reply_came(self, body: memoryview, now: float) -> None:
        if self.reply.done():
            return  # the request was cancelled
        if self.at_once:
            self.reply.hand_over(body)
        else:
            self.reply.set_result(body)

    def failed(self, error: KafkaError) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)


class Written(Generic[R]):
    """The Waiter of a request whose reply nobody awaits: ``on_end`` is called once it has come, or will not come.

    That is within the callback which reads the reply from the socket, unless a task is running; else in the loop's
    next iteration.
    """

    __slots__ = ("_context", "body", "deadline", "ended_at", "error", "request_type", "sent_at", "version")

    def __init__(
        self,
        request_type: type[Request[R]],
        version: int,
        sent_at: float,
        deadline: float,
        context: Context,
    ) -> None:
        """``context``: what ``on_end`` is called in."""
        self.request_type, self.version, self.sent_at, self.deadline = request_type, version, sent_at, deadline
        #: The body of the reply, which was read at ``ended_at``; or why there is none. Before that, both are None.
        self.body: memoryview | None = None
        self.error: KafkaError | None = None
        self.ended_at = sent_at
        self._context = context

    def reply_came(self, body: memoryview, now: float) -> None:
        self.body, self.ended_at = body, now
        if asyncio.current_task() is None:
            self._context.run(self.on_end)
        else:
            asyncio.get_running_loop().call_soon(self.on_end, context=self._context)

    def failed(self, error: KafkaError) -> None:
        if self.body is None and self.error is None:
            self.error = error
            asyncio.get_running_loop().call_soon(self.on_end, context=self._context)

    def on_end(self) -> None:
        """The reply has come, or will not come any more."""

    def result(self) -> memoryview:
        """Return the body of the reply, which has ended. Raises why there is none."""
        if self.error is not None:
            raise self.error
        assert self.body is not None, "it has ended"
        return self.body


def decoded_at_once(request_type: type[Request[R]], version: int, body: memoryview, broker: str) -> R | None:
    """Return the response that ``body`` is; None where that takes longer. Raises MalformedResponse, as ``decoded``."""
    if len(body) > _DECODE_AT_ONCE_BYTES:
        return None
    response: type[R] = request_type.response  # type: ignore[assignment]  # Request.__init_subclass__ sets it
    try:
        return decode(response, body, version)
    except MalformedResponse as error:
        raise _named(error, request_type, version, broker) from error


async def decoded(request_type: type[Request[R]], version: int, body: memoryview, broker: str) -> R:
    """Return the response that ``body`` is. Raises MalformedResponse, which names the broker."""
    response = decoded_at_once(request_type, version, body, broker)
    if response is not None:
        return response
    slices = decode_in_slices(cast(type[R], request_type.response), body, version)
    try:
        return await in_steps(slices)
    except MalformedResponse as error:
        raise _named(error, request_type, version, broker) from error


def _named(error: MalformedResponse, request_type: type[Request[R]], version: int, broker: str) -> MalformedResponse:
    return MalformedResponse(f"{broker}: {api_name(request_type)} v{version}: {error}")


async def denies(response: Response) -> bool:
    """Whether the response, or any part of it, has an authorization error. Of a long one other tasks run in between."""
    return await in_steps(look_for_denial(response))


async def in_steps(steps: Generator[None, None, T]) -> T:
    """Return what ``steps`` returns at its end. After each step it lets other tasks run."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        await asyncio.sleep(0)
