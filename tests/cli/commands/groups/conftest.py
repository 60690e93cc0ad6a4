"""A cluster with two topics, and a shell beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from aiokc.testing import Cluster

from .running_groups import TOPICS, Shell, stocked


@pytest_asyncio.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    """Commands beside two brokers: orders has 10, 20 and 0 records in its partitions, returns has 5."""
    async with Cluster(2, topics=TOPICS) as cluster:
        yield stocked(cluster, tmp_path)
