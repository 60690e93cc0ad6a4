"""Members of groups, of several clients: each reads in a thread of its own until it is told to leave."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, Final

import aiokafka
import confluent_kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

import aiokc
import aiokc.errors
from aiokc.types import TopicPartition

with warnings.catch_warnings():  # it reads its schemas in a way that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

_SECONDS: Final = 90.0  # a Java member on a busy machine needs half a minute to start and join
_POLL_MS: Final = 100
_SESSION_MS: Final = 6_000
_HEARTBEAT_MS: Final = 100
#: In place of an assignor: the member speaks the consumer protocol (KIP-848), in which the coordinator assigns.
CONSUMER_PROTOCOL: Final = "consumer"
_AIOKAFKA: Final = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}

Assignment = frozenset[TopicPartition]


class Witness:
    """The records that the members of a group have read, and their assignments."""

    def __init__(self) -> None:
        self.holdings: dict[str, Assignment] = {}
        self.errors: list[BaseException] = []
        self._values: set[bytes] = set()
        self._changed = threading.Condition()

    def saw(self, member: str, values: Collection[bytes], holding: Assignment | None) -> None:
        """A member reports what it got, and its assignment; None: it has left."""
        with self._changed:
            self._values.update(values)
            if holding is None:
                self.holdings.pop(member, None)
            else:
                self.holdings[member] = holding
            self._changed.notify_all()

    def failed(self, error: BaseException) -> None:
        with self._changed:
            self.errors.append(error)
            self._changed.notify_all()

    def until_shared(self, partitions: Collection[TopicPartition], members: Collection[str]) -> None:
        """Wait until these members, and no other, hold all partitions, each its own share."""
        share = len(partitions) // len(members)

        def shared() -> bool:
            held = [one for holding in self.holdings.values() for one in holding]
            even = all(len(holding) == share for holding in self.holdings.values())
            return set(self.holdings) == set(members) and even and sorted(held) == sorted(partitions)

        self._until(shared, lambda: f"{sorted(members)} should share it all; they hold {self.holdings}")

    def until_read(self, values: Collection[bytes]) -> None:
        """Wait until all of these have been read."""
        self._until(
            lambda: self._values.issuperset(values),
            lambda: f"nobody read {sorted(set(values) - self._values)[:5]}; they hold {self.holdings}",
        )

    def _until(self, happened: Callable[[], bool], else_say: Callable[[], str]) -> None:
        with self._changed:
            in_time = self._changed.wait_for(lambda: bool(self.errors) or happened(), _SECONDS)
        if self.errors:
            raise self.errors[0]
        assert in_time, else_say()


class ForeignMember(ABC):
    """A member of the group, from ``start()`` to ``leave()``. After each poll it commits what it got.

    ``strategy``: the assignor, by Kafka's name for it, of those members that can be told.
    """

    strategy = "range"

    def __init__(
        self, name: str, bootstrap: str, group: str, topic: str, witness: Witness, strategy: str | None = None
    ) -> None:
        self.name = name
        self.strategy = strategy or self.strategy
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        self._witness = witness
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """Close the consumer, and return once it is closed."""
        self._leaving.set()
        self._thread.join(_SECONDS)
        assert not self._thread.is_alive(), f"{self.name} does not close"
        self._witness.saw(self.name, (), None)

    def _live(self) -> None:
        try:
            self.consume()
        except BaseException as error:
            self._witness.failed(error)

    @abstractmethod
    def consume(self) -> None:
        """Read until ``leaving``."""

    @property
    def leaving(self) -> bool:
        return self._leaving.is_set()

    def saw(self, values: Collection[bytes], holding: Collection[Any]) -> None:
        """Report to the witness."""
        held = frozenset(TopicPartition(one.topic, one.partition) for one in holding)
        self._witness.saw(self.name, values, held)


class ConfluentMember(ForeignMember):
    """confluent-kafka, that is librdkafka."""

    def consume(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "client.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **self._protocol(),
            }
        )
        consumer.subscribe([self.topic])
        try:
            while not self.leaving:
                messages = [one for one in consumer.consume(50, _POLL_MS / 1000) if one.error() is None]
                self._commit(consumer)
                self.saw([one.value() or b"" for one in messages], consumer.assignment())
        finally:
            consumer.close()

    def _protocol(self) -> dict[str, Any]:
        if self.strategy == CONSUMER_PROTOCOL:
            return {"group.protocol": "consumer"}
        return {
            "session.timeout.ms": _SESSION_MS,
            "heartbeat.interval.ms": _HEARTBEAT_MS,
            "partition.assignment.strategy": self.strategy,
        }

    def _commit(self, consumer: Any) -> None:
        try:
            consumer.commit(asynchronous=False)  # all that was consumed, also what could not be committed before
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in REBALANCED:  # the partition's new owner reads it again
                raise


REBALANCED: Final = {
    confluent_kafka.KafkaError.ILLEGAL_GENERATION,
    confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS,
    confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID,
    confluent_kafka.KafkaError.STALE_MEMBER_EPOCH,
    confluent_kafka.KafkaError.FENCED_MEMBER_EPOCH,
    confluent_kafka.KafkaError._ASSIGNMENT_LOST,
    confluent_kafka.KafkaError._NO_OFFSET,
}


class CooperativeMember(ConfluentMember):
    """The same, with incremental rebalances (KIP-429)."""

    strategy = "cooperative-sticky"


class KafkaPythonMember(ForeignMember):
    """kafka-python. Version 3.0 now and then stops to send heartbeats for good: then it is started again."""

    def consume(self) -> None:
        while not self.leaving:
            self._consume_while_alive()

    def _consume_while_alive(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
        )
        # A leader that joins before it has seen the topic joins once more when it sees it: one more chance to stop.
        consumer.partitions_for_topic(self.topic)
        consumer.subscribe([self.topic])
        try:
            while not self.leaving and not self._is_silent(consumer):
                batches = consumer.poll(timeout_ms=_POLL_MS)
                try:
                    if batches:
                        consumer.commit()
                except (kafka.errors.CommitFailedError, kafka.errors.RebalanceInProgressError):
                    pass  # the partition's new owner reads it again
                self.saw([record.value for batch in batches.values() for record in batch], consumer.assignment())
        finally:
            consumer.close()

    @staticmethod
    def _is_silent(consumer: Any) -> bool:
        """Whether the member has sent no heartbeat for a session, so that the group has gone on without it."""
        heartbeat = consumer._coordinator.heartbeat
        return bool(time.monotonic() - max(heartbeat.last_send, heartbeat.last_reset) > _SESSION_MS / 1000)


class AsyncMember(ForeignMember):
    """A client for asyncio, in a loop of its own."""

    def consume(self) -> None:
        asyncio.run(self.consume_async())

    @abstractmethod
    async def consume_async(self) -> None:
        """Read until ``leaving``."""


class AiokafkaMember(AsyncMember):
    """aiokafka."""

    async def consume_async(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            partition_assignment_strategy=(_AIOKAFKA[self.strategy],),
        )
        await consumer.start()
        try:
            while not self.leaving:
                batches = await consumer.getmany(timeout_ms=_POLL_MS)
                try:
                    if batches:
                        await consumer.commit()
                except (aiokafka.errors.CommitFailedError, aiokafka.errors.RebalanceInProgressError):
                    pass  # the partition's new owner reads it again
                self.saw([record.value for batch in batches.values() for record in batch], consumer.assignment())
        finally:
            await consumer.stop()


class AiokcMember(AsyncMember):
    """aiokc."""

    async def consume_async(self) -> None:
        consumer = aiokc.Consumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
        )
        async with consumer:
            while not self.leaving:
                batches = await consumer.getmany(timeout_ms=_POLL_MS)
                try:
                    if batches:
                        await consumer.commit()
                except (aiokc.errors.CommitFailed, aiokc.errors.RebalanceInProgress):
                    pass  # the partition's new owner reads it again
                values = [bytes(record.value or b"") for batch in batches.values() for record in batch]
                self.saw(values, consumer.assignment())
