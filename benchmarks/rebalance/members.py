"""Group members of three clients, with the same settings. Each reads, and reports its partitions to the Board."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import Consumer as ConfluentConsumer

from aiokc import Consumer, RebalanceListener, TopicPartition

from .board import Board

SESSION_TIMEOUT_MS: Final = 45_000
HEARTBEAT_INTERVAL_MS: Final = 3_000
MAX_POLL_INTERVAL_MS: Final = 300_000
ASSIGNORS: Final = {"eager": "range", "cooperative": "cooperative-sticky"}


@dataclass(frozen=True, slots=True)
class Seat:
    """The parameters of one member."""

    number: int
    bootstrap: str
    topic: str
    group: str
    protocol: str
    board: Board


#: Joins, and reads until the process ends.
Member: TypeAlias = Callable[[Seat], Awaitable[None]]


async def aiokc(seat: Seat) -> None:
    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            seat.board.took(seat.number, numbers(partitions))

        def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            seat.board.gave(seat.number, numbers(partitions))

        on_partitions_lost = on_partitions_revoked

    consumer = Consumer(
        bootstrap_servers=seat.bootstrap,
        group_id=seat.group,
        partition_assignment_strategy=[ASSIGNORS[seat.protocol]],
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
    )
    consumer.subscribe([seat.topic], listener=Listener())
    await consumer.start()
    while True:
        seat.board.heard(numbers(await consumer.getmany()))


async def aiokafka(seat: Seat) -> None:
    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            seat.board.took(seat.number, numbers(assigned))

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            seat.board.gave(seat.number, numbers(revoked))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=seat.bootstrap,
        group_id=seat.group,
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        rebalance_timeout_ms=MAX_POLL_INTERVAL_MS,
    )
    consumer.subscribe([seat.topic], listener=Listener())
    await consumer.start()
    while True:
        seat.board.heard(numbers(await consumer.getmany(timeout_ms=1_000)))


async def confluent(seat: Seat) -> None:
    """Run a member of confluent-kafka: besides librdkafka's own threads, another thread calls poll()."""
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": seat.bootstrap,
            "group.id": seat.group,
            "partition.assignment.strategy": ASSIGNORS[seat.protocol],
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
        }
    )

    def took(_: object, partitions: list[Any]) -> None:
        seat.board.took(seat.number, numbers(partitions))

    def gave(_: object, partitions: list[Any]) -> None:
        seat.board.gave(seat.number, numbers(partitions))

    def live() -> None:
        consumer.subscribe([seat.topic], on_assign=took, on_revoke=gave, on_lost=gave)
        while True:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                seat.board.heard([message.partition()])

    threading.Thread(target=live, daemon=True).start()
    await asyncio.get_running_loop().create_future()


def numbers(partitions: Iterable[Any]) -> list[int]:
    return [tp.partition for tp in partitions]


MEMBERS: Final[dict[str, Member]] = {"aiokc": aiokc, "aiokafka": aiokafka, "confluent": confluent}
#: What can be compared: aiokafka has no cooperative rebalancing.
PROTOCOLS: Final = {
    "aiokc": ("eager", "cooperative"),
    "aiokafka": ("eager",),
    "confluent": ("eager", "cooperative"),
}
