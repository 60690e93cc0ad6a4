"""What a command changes in its process is undone after each test: the tests run commands in their own process."""

from __future__ import annotations

import logging
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
