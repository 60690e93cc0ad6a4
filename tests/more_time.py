"""``raised_by``: what a call raises that ends at its timeout, with as much time as it needs on this machine."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

E = TypeVar("E", bound=Exception)


async def raised_by(
    call: Callable[[int], Awaitable[Any]], error: type[E], text: str, *, timeouts_ms: tuple[int, int]
) -> E:
    """Return what ``call(timeout_ms)`` raises: an ``error`` whose message matches the regular expression ``text``.

    A long timeout makes a slow test. Within the short one, a busy machine may have no answer yet, and the error says
    something else: then the call is made again, with the long one.
    """
    for timeout_ms in timeouts_ms:
        try:
            returned = await call(timeout_ms)
        except Exception as raised:
            if isinstance(raised, error) and re.search(text, str(raised)):
                return raised
            last = raised
        else:
            raise AssertionError(f"the call returned {returned!r}")
    raise AssertionError(f"no {error.__name__} that matches {text!r} within {timeouts_ms[-1]} ms") from last
