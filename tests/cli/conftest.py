"""What a command changes in its process is undone after each test: the tests run commands in their own process."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command sets up aiokc's logger: tests of other folders look at what is logged by default."""
    logger = logging.getLogger("aiokc")
    level, handlers, propagates = logger.level, list(logger.handlers), logger.propagate
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers
    logger.propagate = propagates


@pytest.fixture
def hanging_up_is_not_ignored() -> Iterator[None]:
    """Whoever runs the tests under nohup ignores it, and a child inherits that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
