"""Consumers of one group of the consumer protocol on a Cluster, and what their listeners and the brokers heard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Fault, Verdict
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

from ...virtually import Asked

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = frozenset({T0, T1})


class Told(RebalanceListener):
    """What the listener heard, with times. A revocation takes ``seconds``."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.log: list[tuple[float, str, frozenset[TopicPartition]]] = []
        self._seconds = seconds
        self.revocation = asyncio.Event()

    def _note(self, what: str, partitions: frozenset[TopicPartition]) -> None:
        self.log.append((asyncio.get_running_loop().time(), what, partitions))

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("revoked", partitions)
        self.revocation.set()
        await asyncio.sleep(self._seconds)
        self._note("gave up", partitions)

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("lost", partitions)

    @property
    def events(self) -> list[tuple[str, frozenset[TopicPartition]]]:
        return [(what, partitions) for _, what, partitions in self.log]

    def when(self, what: str) -> float:
        """Return when this was told first."""
        return next(when for when, said, _ in self.log if said == what)


def asked_of(cluster: Cluster) -> Asked:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return Asked(cluster, loop)


def heartbeats(asked: Asked, member_id: str | None = None) -> list[tuple[float, Any]]:
    found = asked.of(ConsumerGroupHeartbeatRequest)
    return [(when, sent) for when, sent in found if member_id in (None, sent.member_id)]


def owned(sent: Any) -> list[int] | None:
    """Return the partitions of the (only) topic that a heartbeat lists; None if it lists none."""
    if sent.topic_partitions is None:
        return None
    return sorted(number for topic in sent.topic_partitions for number in topic.partitions)


def of_client(client_id: str) -> Callable[[Exchange], bool]:
    return lambda exchange: exchange.client_id == client_id


def altered(change: Callable[[Any], None]) -> Callable[[Exchange], Awaitable[Any]]:
    """A fault: the broker's answer, changed."""

    async def fault(exchange: Exchange) -> Any:
        answer = await exchange.handle()
        change(answer)
        return answer

    return fault


def answering(change: Callable[[ConsumerGroupHeartbeatResponse], None]) -> Fault:
    """The coordinator handles the heartbeat, and its answer is changed on the way."""

    async def fault(exchange: Exchange) -> Verdict:
        answer = await exchange.handle()
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        if not answer.error_code and answer.member_epoch > 0:  # no refusal, and no answer to a leave
            change(answer)
        return answer

    return fault


def consumer_of(
    cluster: Cluster, listener: RebalanceListener | None = None, topics: Any = ("t",), **options: Any
) -> Consumer:
    settings = {
        "group_id": "g",
        "group_protocol": "consumer",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        **options,
    }
    consumer = Consumer(bootstrap_servers=cluster.bootstrap, **settings)
    consumer.subscribe(topics, listener=listener)
    return consumer


async def shared(*consumers: Consumer, total: int = 2) -> None:
    """Let all of them poll until they have the partitions, evenly."""
    while not all(len(one.assignment()) == total // len(consumers) for one in consumers):
        for one in consumers:
            await one.getmany(timeout_ms=50)


async def read(consumer: Consumer, count: int) -> list[bytes]:
    """Return the values of the next records."""
    values: list[bytes] = []
    while len(values) < count:
        batches = await consumer.getmany(timeout_ms=100)
        values += [bytes(record.value or b"") for batch in batches.values() for record in batch]
    return values


async def polls(consumer: Consumer, seconds: float) -> None:
    """Let a consumer poll for so long."""
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        await consumer.getmany(timeout_ms=100)
