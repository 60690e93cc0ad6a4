"""What the tests of the administrative calls begin with: a cluster in virtual time, and groups with offsets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokc import Client, Consumer, TopicPartition
from aiokc.testing import Cluster

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@asynccontextmanager
async def client_of(cluster: Cluster, **options: Any) -> AsyncIterator[Client]:
    async with Client(bootstrap_servers=cluster.bootstrap, retry_backoff_ms=20, **options) as client:
        yield client


@asynccontextmanager
async def member_of(cluster: Cluster, group_id: str = "g", **options: Any) -> AsyncIterator[Consumer]:
    """A member that owns everything of topic t."""
    consumer = Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap,
        group_id=group_id,
        **{"client_id": "app", "auto_offset_reset": "earliest", "enable_auto_commit": False, **options},
    )
    async with consumer:
        await consumer.wait_assigned()
        yield consumer
