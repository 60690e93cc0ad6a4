"""What the brokers of a cluster know together: nodes, topics, leaders, coordinators."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final
from uuid import UUID

from ..error_codes import ErrorCode
from ..records import ControlType, encode_control_batch
from .fetch_sessions import FetchSessions
from .refusal import Refusal
from .topics import Partition, Topic, Topics
from .transaction_states import Place, Transactions

#: By API key, the versions that are advertised.
Versions = Mapping[int, tuple[int, int]]

_COORDINATOR_PARTITIONS: Final = 50  # offsets.topic.num.partitions


@dataclass(frozen=True)
class Settings:
    """What an administrator decides. The names and defaults are those of Kafka's broker configuration."""

    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    message_max_bytes: int = 1_048_588
    fetch_max_bytes: int = 57_671_680
    max_incremental_fetch_session_cache_slots: int = 1000
    transaction_max_timeout_ms: int = 900_000


@dataclass
class BrokerNode:
    """One broker as the others see it. A slow link delays each answer, and lets so many bytes per second through."""

    node_id: int
    host: str
    port: int
    rack: str | None
    sessions: FetchSessions
    alive: bool = False
    latency: float = 0.0
    bytes_per_second: float = field(default=float("inf"))


class ClusterState:
    """One cluster. Time comes from the running loop, wall-clock time (for timestamps) from ``clock``."""

    def __init__(self, *, versions: Versions, settings: Settings, random: Random, clock: Callable[[], float]) -> None:
        self.versions = versions
        self.settings = settings
        self.random = random
        self.cluster_id = base64.urlsafe_b64encode(random.randbytes(16)).rstrip(b"=").decode()
        self.nodes: dict[int, BrokerNode] = {}
        self.topics = Topics()
        self.producer_ids = count(1000)
        self.transactions = Transactions(lambda: next(self.producer_ids), self._write_marker, self._end_offsets)
        self._clock = clock
        self._placed: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def now_ms(self) -> int:
        """Wall-clock time, for the timestamps that a broker writes."""
        return int(self._clock() * 1000)

    def now(self) -> float:
        """The running loop's time, in seconds."""
        return asyncio.get_running_loop().time()

    # Timers

    def timers_changed(self) -> None:
        """Set the alarm to the next deadline of the coordinators."""
        self.stop_timers()
        deadline = self.transactions.deadline
        if deadline is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def stop_timers(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.transactions.tick(self.now())
        self.timers_changed()

    # Brokers

    @property
    def alive(self) -> list[int]:
        return [node.node_id for node in self.nodes.values() if node.alive]

    @property
    def controller_id(self) -> int:
        return min(self.alive, default=-1)

    def broker_came(self, node_id: int) -> None:
        self.nodes[node_id].alive = True
        for partition in self._partitions():
            partition.broker_came(node_id)

    def broker_left(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.alive = False
        node.sessions.clear()
        for partition in self._partitions():
            partition.broker_left(node_id, self.alive)

    def _partitions(self) -> list[Partition]:
        return [partition for topic in self.topics.by_name.values() for partition in topic.partitions]

    # Topics

    def create_topic(
        self, name: str, partitions: int, replication_factor: int | None = None, config: Mapping[str, str] | None = None
    ) -> Topic:
        """Add a topic, its replicas spread over the brokers, three of each partition if there are so many."""
        topic = Topic(name, UUID(int=self.random.getrandbits(128), version=4), [], dict(config or {}))
        self.add_partitions(topic, partitions, replication_factor or min(3, len(self.nodes)))
        self.topics.add(topic)
        return topic

    def add_partitions(self, topic: Topic, total: int, replication_factor: int | None = None) -> None:
        """Let the topic have ``total`` partitions, replicated like those that it has."""
        ids = list(self.nodes)
        for index in range(len(topic.partitions), total):
            replicas = replication_factor or len(topic.partitions[0].replicas)
            self.place_partition(topic, [ids[(index + replica) % len(ids)] for replica in range(replicas)])

    def place_partition(self, topic: Topic, replicas: list[int]) -> None:
        """Add the next partition of a topic on these brokers; the first living one leads."""
        partition = Partition(len(topic.partitions), replicas)
        partition.in_sync = [replica for replica in replicas if self.nodes[replica].alive] or replicas[:1]
        partition.lead(next((replica for replica in partition.in_sync if self.nodes[replica].alive), None))
        topic.partitions.append(partition)

    # Transactions

    def _write_marker(self, place: Place, producer_id: int, epoch: int, marker: ControlType) -> None:
        """End the part of a transaction that lies in one partition, unless the topic is gone."""
        name, index = place
        topic = self.topics.by_name.get(name)
        if topic is None:
            return
        partition = topic.partitions[index]
        batch = encode_control_batch(marker, producer_id=producer_id, producer_epoch=epoch, timestamp=self.now_ms())
        partition.log.append(batch, partition.leader_epoch)
        partition.wake()

    def _end_offsets(self, group_id: str, producer_id: int, committed: bool) -> None:
        """End the part of a transaction that is a group's offsets: none has any while no coordinator keeps them."""

    # Coordinators

    def coordinator_of(self, key: str) -> int:
        """Return the broker that coordinates a group or a transactional id. Raises Refusal."""
        alive = self.alive
        if not alive:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        placed = self._placed.get(key)
        if placed in alive:
            return placed
        return alive[abs(_java_hash(key)) % _COORDINATOR_PARTITIONS % len(alive)]

    def check_coordinator(self, key: str, node_id: int) -> None:
        """Raise Refusal where this broker does not coordinate ``key``."""
        if self.coordinator_of(key) != node_id:
            raise Refusal(ErrorCode.NOT_COORDINATOR, f"{key!r} is coordinated by broker {self.coordinator_of(key)}")

    def place_coordinator(self, key: str, node_id: int) -> None:
        self._placed[key] = node_id


def _java_hash(text: str) -> int:
    """Return String.hashCode, by which Kafka finds the coordinator's partition."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value if value < 1 << 31 else value - (1 << 32)
