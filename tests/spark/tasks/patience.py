"""Reads that wait for what never comes: with as short a timeout as this machine allows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import pytest

from aiokc.errors import RequestTimedOut
from tests.more_time import TOO_EARLY

T = TypeVar("T")

TIMEOUTS_MS: Final = (1_000, 5_000, 20_000)


def read_with_more_time(read: Callable[[int], T], timeouts_ms: tuple[int, ...] = TIMEOUTS_MS) -> T:
    """Return what ``read`` returns, or raise what it raises, with one of these timeouts in milliseconds.

    Within a short one, a busy machine has not done what must succeed, and a read says so: then it gets more time.
    """
    for timeout_ms in timeouts_ms[:-1]:
        try:
            return read(timeout_ms)
        except TOO_EARLY:
            continue
    return read(timeouts_ms[-1])


def assert_times_out(read: Callable[[int], object], said: str) -> None:
    """Check that ``read`` raises RequestTimedOut with this text, a regular expression, in which N is the timeout in s.

    Within a short one, a busy machine has not come as far as the text says: then the read gets more time. Any error
    that is not one of TOO_EARLY is raised at once.
    """
    for timeout_ms in TIMEOUTS_MS:
        with pytest.raises(TOO_EARLY) as raised:
            read(timeout_ms)
        text = re.sub(r"\bN\b", f"{timeout_ms // 1000}", said)
        if isinstance(raised.value, RequestTimedOut) and re.search(text, str(raised.value)):
            return
    raise AssertionError(f"no RequestTimedOut that matches {said!r}") from raised.value
