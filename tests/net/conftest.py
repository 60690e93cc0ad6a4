from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest


@pytest.fixture(autouse=True)
async def no_task_left() -> AsyncIterator[None]:
    """Fail if a task remains after the test, whatever the test did to a connection or a pool."""
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left
