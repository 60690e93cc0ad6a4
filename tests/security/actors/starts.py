"""What start() raises where each of its attempts fails: with as much time as one attempt needs on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.errors import KafkaError

TIMEOUTS_MS = (500, 2_000, 8_000, 30_000)
# What an error says where the time was over before anybody answered.
TOO_LATE = r"\bno (TLS )?connection\b|\bno answer\b|\bnot (be )?sent\b|\bnot reached\b|\bhas not answered\b"


async def raised_by_start(
    make: Callable[[], Consumer[Any, Any]],
    error: type[KafkaError],
    text: str,
    *,
    until: Callable[[], bool] = lambda: True,
) -> KafkaError:
    """Return what start() raises: an `error` whose message matches the regular expression `text`, and `until()` holds.

    start() tries again until its timeout, so that a long timeout makes a slow test. Within a short one, a busy machine
    has made no connection yet, and start() says so: then a new consumer gets more time. So it does until `until()`
    holds, which is about the last consumer that `make()` returned. Any other error is raised at once.
    """
    for timeout_ms in TIMEOUTS_MS:
        consumer = make()
        try:
            with pytest.raises(KafkaError) as raised:
                await consumer.start(timeout_ms=timeout_ms)
        finally:
            await consumer.stop()
        if isinstance(raised.value, error) and re.search(text, str(raised.value)):
            if until():
                return raised.value
        elif not re.search(TOO_LATE, str(raised.value)):
            raise raised.value
    raise AssertionError(f"no {error.__name__} that matches {text!r} within {timeout_ms} ms") from raised.value
