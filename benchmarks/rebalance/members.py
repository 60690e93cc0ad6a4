"""Members of the clients in Python, with the same settings. Each reads, and reports its partitions to the Board."""

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

SESSION_TIMEOUT_MS: Final = 10_000
HEARTBEAT_INTERVAL_MS: Final = 3_000
MAX_POLL_INTERVAL_MS: Final = 300_000
ASSIGNORS: Final = {"eager": "range", "cooperative": "cooperative-sticky"}
#: The protocol of KIP-848. There the broker says the timeouts, and assigns: see BROKER.
CONSUMER: Final = "consumer"
#: The broker's part of the settings: the same timeouts for that protocol, and its own delay of a first rebalance.
BROKER: Final = {
    "group.initial.rebalance.delay.ms": "3000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
}


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

    options: dict[str, Any] = {"group_protocol": "consumer"}
    if seat.protocol != CONSUMER:
        options = {
            "group_protocol": "classic",
            "partition_assignment_strategy": [ASSIGNORS[seat.protocol]],
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        }
    consumer = Consumer(
        bootstrap_servers=seat.bootstrap,
        group_id=seat.group,
        max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        **options,
    )
    consumer.subscribe([seat.topic], listener=Listener())
    await consumer.start()
    while True:
        seat.board.heard(seat.number, numbers(await consumer.getmany()))


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
        seat.board.heard(seat.number, numbers(await consumer.getmany(timeout_ms=1_000)))


async def confluent(seat: Seat) -> None:
    """Run a member of confluent-kafka: besides librdkafka's own threads, another thread calls poll()."""
    options: dict[str, Any] = {"group.protocol": "consumer"}
    if seat.protocol != CONSUMER:
        options = {
            "partition.assignment.strategy": ASSIGNORS[seat.protocol],
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        }
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": seat.bootstrap,
            "group.id": seat.group,
            "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
            **options,
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
                seat.board.heard(seat.number, [message.partition()])

    threading.Thread(target=live, daemon=True).start()
    await asyncio.get_running_loop().create_future()


def numbers(partitions: Iterable[Any]) -> list[int]:
    return [tp.partition for tp in partitions]


MEMBERS: Final[dict[str, Member]] = {"aiokc": aiokc, "aiokafka": aiokafka, "confluent": confluent}
#: What can be compared: aiokafka has no cooperative rebalancing, and Java's members are here for the consumer protocol.
PROTOCOLS: Final = {
    "aiokc": ("eager", "cooperative", CONSUMER),
    "aiokafka": ("eager",),
    "confluent": ("eager", "cooperative", CONSUMER),
    "java": (CONSUMER,),
}
