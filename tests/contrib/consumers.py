"""Consumers of a cluster in virtual time, as the tests of exporters make them."""

from __future__ import annotations

from typing import Any

from aiokc import Consumer, TopicPartition
from aiokc.testing import Cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def consumer(cluster: Cluster, *topics: str, **options: Any) -> Consumer[Any, Any]:
    """Reads from the beginning, as client "c", without auto-commit."""
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "client_id": "c", **options}
    return Consumer(*topics, bootstrap_servers=cluster.bootstrap, **settings)
