"""An asynchronous iterator whose steps rarely wait: in C, where most steps make no coroutine, and in Python."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Generic, Protocol, TypeVar

from ...native import NATIVE, extension

T = TypeVar("T")


class Steps(Protocol[T]):
    """An asynchronous iterator: a step returns the next of ``items``; after the last one, what ``wait()`` returns.

    It goes on after an error, a cancellation and the end of ``items``, which may be replaced at any time. A step takes
    its item when it is awaited, not before. A step may be given to ``asyncio.create_task``.
    """

    items: Iterator[T]

    def __aiter__(self) -> Steps[T]: ...
    def __anext__(self) -> Coroutine[Any, Any, T]: ...


class PureSteps(Generic[T]):
    """The Python twin: it runs without the extension, and is the oracle of the extension's tests."""

    def __init__(self, wait: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.items: Iterator[T] = iter(())
        self._wait = wait

    def __aiter__(self) -> PureSteps[T]:
        return self

    async def __anext__(self) -> T:
        for item in self.items:
            return item
        return await self._wait()


def new_steps(wait: Callable[[], Coroutine[Any, Any, T]]) -> Steps[T]:
    """Return an iterator without ``items``: until it has some, each step awaits ``wait()``."""
    return extension.Steps(wait) if NATIVE else PureSteps(wait)
