"""Calls of the application's providers: async functions in the loop, plain ones in a thread, bounded, errors told."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from ...core.sasl.broker_text import broker_text
from ...errors import AuthenticationFailed
from ...secret import Secret
from ..own_thread import OwnThread
from ..user_errors import as_error, ends_us, leaves_the_loop

T = TypeVar("T")


class _Raised:
    """What the application's code has raised. asyncio shows the exceptions of futures in its debug mode, not this."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def call(function: Callable[[], object], thread: OwnThread, read: Callable[[Any], T | AuthenticationFailed]) -> T:
    """Return what ``read`` makes of the result of the application's ``function``, which may be async or plain.

    A plain function runs in ``thread``, and ``read`` with it: so asyncio, which shows results of tasks and arguments of
    callbacks in its debug mode, never gets the result itself. ``read`` returns an AuthenticationFailed, to be raised
    here: if it raised one, the traceback would keep the result in the variables of its frames.
    """
    if inspect.iscoroutinefunction(function):
        return _read(read(await function()))

    def call_and_read() -> T | AuthenticationFailed | _Raised | Awaitable[Any]:
        try:
            result = function()
        except BaseException as error:  # raised in the loop: so an exit leaves it, as that of an async function does
            return _Raised(error)
        return result if inspect.isawaitable(result) else read(result)

    outcome = await thread.run(call_and_read)
    if isinstance(outcome, _Raised):
        raise outcome.error
    return _read(read(await outcome) if inspect.isawaitable(outcome) else outcome)


def _read(outcome: T | AuthenticationFailed) -> T:
    if isinstance(outcome, AuthenticationFailed):
        raise outcome
    return outcome


async def called(name: str, mechanism: str, result: Awaitable[T], secrets: Iterable[Secret] = ()) -> T:
    """Await ``result`` of the application's code, which ``name`` names. Raises AuthenticationFailed for all errors.

    An AuthenticationFailed of the application's code stays as it is: so a provider can say that it is not retriable.
    The text of any other error becomes a part of the message, with ``secrets`` masked: those that are known of before.
    """
    try:
        return await result
    except AuthenticationFailed as error:
        error.mechanism = error.mechanism or mechanism
        raise
    except BaseException as error:
        if ends_us(error, asyncio.current_task()):
            raise
        leaves_the_loop(error)
        raise _failed(name, mechanism, error, secrets) from error


def _failed(name: str, mechanism: str, error: BaseException, secrets: Iterable[Secret]) -> AuthenticationFailed:
    told = as_error(error, name)
    try:
        text = broker_text(str(told), secrets)
    except Exception:  # its __str__ is the application's code, too
        text = ""
    said = f"raised {type(told).__name__}{text and f': {text}'}" if told is error else text.removeprefix(f"{name} ")
    return AuthenticationFailed(f"{name} {said}", mechanism=mechanism, retriable=True)
