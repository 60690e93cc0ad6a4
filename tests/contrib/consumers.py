"""Consumers of a cluster in virtual time, as the tests of exporters make them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from aiokc import Consumer, TopicPartition
from aiokc.errors import KafkaError
from aiokc.testing import Cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def consumer(cluster: Cluster, *topics: str, **options: Any) -> Consumer[Any, Any]:
    """Reads from the beginning, as client "c", without auto-commit."""
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "client_id": "c", **options}
    return Consumer(*topics, bootstrap_servers=cluster.bootstrap, **settings)


async def application(reader: Consumer[Any, Any], pause: float = 0.0, **options: Any) -> None:
    """Reads, and does not give up for what a call raises."""
    while True:
        with suppress(KafkaError):
            await reader.getmany(**options)
        await asyncio.sleep(max(pause, 0.01))
