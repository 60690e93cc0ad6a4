"""``raised_by``: what a call raises that ends at its timeout, with as much time as it needs on this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from aiokc.errors import NoBrokersAvailable, RequestTimedOut

#: What a call raises whose timeout was over before a busy machine had an answer. Any other error is an answer.
TOO_EARLY: Final = (RequestTimedOut, NoBrokersAvailable)

E = TypeVar("E", bound=Exception)


async def raised_by(
    call: Callable[[int], Awaitable[Any]], error: type[E], text: str, *, timeouts_ms: tuple[int, int]
) -> E:
    """Return what ``call(timeout_ms)`` raises: an ``error`` whose message matches the regular expression ``text``.

    A long timeout makes a slow test. Within the short one, a busy machine may have no answer yet, and the error is one
    of TOO_EARLY: then the call is made again, with the long one. Each call must end within 10 s of its timeout.
    """
    for timeout_ms in timeouts_ms:
        begin = time.monotonic()
        try:
            returned = await call(timeout_ms)
        except (error, *TOO_EARLY) as raised:
            assert time.monotonic() - begin < timeout_ms / 1e3 + 10
            if isinstance(raised, error) and re.search(text, str(raised)):
                return raised
            if not isinstance(raised, TOO_EARLY):
                raise
            last = raised
        else:
            raise AssertionError(f"the call returned {returned!r}")
    raise AssertionError(f"no {error.__name__} that matches {text!r} within {timeouts_ms[-1]} ms") from last
