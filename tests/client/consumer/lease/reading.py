"""A consumer of some partitions in virtual time, and which of its calls are served under a lease."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from aiokc import Consumer, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.testing import Cluster

from ...virtually import virtually

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)

Story = Callable[[Cluster], Coroutine[Any, Any, None]]


def alone(story: Story, partitions: int = 2) -> None:
    virtually(story, topics={"t": partitions}, brokers=1)


def reading(cluster: Cluster, count: int = 1000, partitions: Sequence[int] = (0, 1), **options: Any) -> ConsumerType:
    """Return a consumer of ``partitions``, which have so many records each."""
    for partition in partitions:
        cluster.append("t", *(b"%d" % number for number in range(count)), partition=partition)
    defaults: dict[str, Any] = {"auto_offset_reset": "earliest", "max_poll_records": 5}
    consumer = Consumer(bootstrap_servers=cluster.bootstrap, **defaults, **options)
    consumer.assign([TopicPartition("t", partition) for partition in partitions])
    return consumer


async def under_a_lease(consumer: ConsumerType) -> Mapping[TopicPartition, Sequence[Any]]:
    """Call getmany() until a call has had its records without a poll; return these."""
    for _ in range(20):
        before = consumer._runtime.changes.count
        batch = await consumer.getmany()
        if consumer._runtime.changes.count == before:
            return batch
    raise AssertionError("no call is served under a lease")


async def polls(consumer: ConsumerType) -> bool:
    """Whether the next call polls."""
    before = consumer._runtime.changes.count
    await consumer.getmany()
    return consumer._runtime.changes.count != before
