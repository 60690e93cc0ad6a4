"""The loop's default executor, without a free thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def full_pool() -> Iterator[threading.Event]:
    """The loop has one thread, and the application keeps it busy until it sets the event, or this context ends."""
    loop = asyncio.get_running_loop()
    pool, over = ThreadPoolExecutor(1), threading.Event()
    loop.set_default_executor(pool)
    loop.run_in_executor(None, over.wait)
    try:
        yield over
    finally:
        over.set()
