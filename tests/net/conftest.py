from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest


@pytest.fixture(autouse=True)
async def no_task_left() -> AsyncIterator[None]:
    """Whatever a test does to a connection or a pool, no task may outlive it."""
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left
