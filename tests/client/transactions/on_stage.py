"""A cluster in virtual time, transactional producers, and readers at both isolation levels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

import pytest

from aiokc import Consumer, OffsetAndMetadata, TopicPartition
from aiokc.client.producer.producer import Producer
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import VirtualLoop

from ..virtually import Asked, virtually

#: The topics of every stage, with their partitions.
TOPICS: Final = {"in": 2, "out": 2}
IN0, IN1, OUT0 = TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("out", 0)
#: The control requests of transactions.
CONTROL: Final = (
    "InitProducerIdRequest",
    "AddPartitionsToTxnRequest",
    "AddOffsetsToTxnRequest",
    "TxnOffsetCommitRequest",
    "EndTxnRequest",
)

Scenario: TypeAlias = "Callable[[Stage], Coroutine[Any, Any, None]]"


class Stage:
    """``level``: that of the feature transaction.version."""

    def __init__(self, cluster: Cluster, level: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.cluster = cluster
        self.loop = loop
        self.level = level
        self.asked = Asked(cluster, loop)

    @property
    def is_v2(self) -> bool:
        return self.level >= 2

    def producer(self, transactional_id: str = "id", **options: Any) -> Producer[bytes, bytes]:
        return Producer(bootstrap_servers=self.cluster.bootstrap, transactional_id=transactional_id, **options)

    def consumer(self, *topics: str, **options: Any) -> Consumer[bytes, bytes]:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
        return Consumer(*topics, **{"bootstrap_servers": self.cluster.bootstrap, **settings, **options})

    async def read(
        self, topic: str = "out", isolation_level: str = "read_committed", **options: Any
    ) -> list[bytes | None]:
        """All values of a topic that this isolation level shows at the moment, partition by partition."""
        async with self.consumer(isolation_level=isolation_level, **options) as reader:
            partitions = [TopicPartition(topic, number) for number in range(TOPICS[topic])]
            reader.assign(partitions)
            ends = await reader.end_offsets(partitions)
            values: dict[TopicPartition, list[bytes | None]] = {tp: [] for tp in partitions}
            for tp in partitions:
                while await reader.position(tp) < ends[tp]:
                    for at, records in (await reader.getmany(timeout_ms=200)).items():
                        values[at] += [record.value for record in records]
            return [value for tp in partitions for value in values[tp]]

    async def committed(self, group: str = "g") -> dict[TopicPartition, int]:
        """The offsets of a group that no open transaction is about to replace."""
        async with self.consumer(group_id=group) as reader:
            reader.assign([IN0, IN1])
            found: dict[TopicPartition, OffsetAndMetadata | None] = await reader.committed(IN0, IN1)
            return {tp: offset.offset for tp, offset in found.items() if offset is not None}

    def control(self, since: int = 0) -> list[str]:
        """The names of the control requests so far, without "Request"."""
        return [name.removesuffix("Request") for _, name, _ in self.asked.log[since:] if name in CONTROL]


def scenario(*levels: int, **cluster: Any) -> Callable[[Scenario], Any]:
    """Make a test of a scenario, at each of these levels of transaction.version (none given: 0 and 2)."""

    def decorate(story: Scenario) -> Any:
        @pytest.mark.parametrize("level", levels or (0, 2), ids=lambda level: f"v{level}")
        def test(level: int) -> None:
            async def happen(running: Cluster) -> None:
                async with asyncio.timeout(3_600):
                    await story(Stage(running, level))

            virtually(happen, **{"topics": TOPICS, "features": {"transaction.version": level}, **cluster})

        test.__name__ = test.__qualname__ = story.__name__
        test.__doc__, test.__module__ = story.__doc__, story.__module__
        return test

    return decorate
