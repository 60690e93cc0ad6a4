"""What start() raises where each of its attempts fails: with as much time as one attempt needs on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.errors import KafkaError
from tests.more_time import TOO_EARLY

TIMEOUTS_MS = (500, 2_000, 8_000, 30_000)


async def raised_by_start(
    make: Callable[[], Consumer[Any, Any]],
    error: type[KafkaError],
    text: str,
    *,
    until: Callable[[], bool] = lambda: True,
) -> KafkaError:
    """Return what start() raises: an `error` whose message matches the regular expression `text`, and `until()` holds.

    start() tries again until its timeout, so that a long timeout makes a slow test. Within a short one, a busy machine
    has made no connection yet, and start() says so: then a new consumer gets more time. Any error that says anything
    else is raised at once.
    """
    for timeout_ms in TIMEOUTS_MS:
        consumer = make()
        try:
            with pytest.raises((error, *TOO_EARLY)) as raised:
                await consumer.start(timeout_ms=timeout_ms)
        finally:
            await consumer.stop()
        is_right = isinstance(raised.value, error) and re.search(text, str(raised.value)) is not None
        if is_right and until():
            return raised.value
        if not is_right and not isinstance(raised.value, TOO_EARLY):
            raise raised.value
    raise AssertionError(f"no {error.__name__} that matches {text!r} within {timeout_ms} ms") from raised.value
