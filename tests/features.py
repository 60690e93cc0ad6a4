"""Features of a running Kafka cluster, changed as an administrator changes them: by Kafka's own tool."""

from __future__ import annotations

import asyncio

from aiokc.testing.kafka import LocalKafka
from aiokc.testing.kafka.jars import run_tool

_SECONDS = 60.0


async def change_feature(kafka: LocalKafka, change: str, feature: str, level: int) -> None:
    """Have the cluster "upgrade" or "downgrade" a feature to this level (KIP-584)."""
    tool = "org.apache.kafka.tools.FeatureCommand"
    to = ("--feature", f"{feature}={level}")
    await asyncio.to_thread(run_tool, tool, "--bootstrap-server", kafka.bootstrap, change, *to, timeout=_SECONDS)
