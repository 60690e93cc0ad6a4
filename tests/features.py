"""Features of a running Kafka cluster, changed as an administrator changes them: by Kafka's own tool."""

from __future__ import annotations

import asyncio

from aiokc.testing.kafka import LocalKafka
from aiokc.testing.kafka.jars import run_tool
from tests.suite.peers.java_programs import QUICK_JVM

_SECONDS = 60.0


async def change_feature(kafka: LocalKafka, change: str, feature: str, level: int) -> None:
    """Have the cluster "upgrade" or "downgrade" a feature to this level (KIP-584)."""
    tool = "org.apache.kafka.tools.FeatureCommand"
    words = ("--bootstrap-server", kafka.bootstrap, change, "--feature", f"{feature}={level}")
    await asyncio.to_thread(run_tool, tool, *words, jvm=QUICK_JVM, timeout=_SECONDS)
