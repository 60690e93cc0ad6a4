"""What start() raises where each of its attempts fails: with as much time as one attempt needs on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.errors import KafkaError

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
    has made no connection yet, and start() says so: then a new consumer gets more time.
    """
    for timeout_ms in TIMEOUTS_MS:
        consumer = make()
        with pytest.raises(KafkaError) as raised:
            await consumer.start(timeout_ms=timeout_ms)
        await consumer.stop()
        if isinstance(raised.value, error) and re.search(text, str(raised.value)) and until():
            return raised.value
    raise AssertionError(f"no {error.__name__} that matches {text!r} within {timeout_ms} ms") from raised.value
