"""Topics and their partitions: the leader, the replicas, and the fetches that wait for the next record."""

from __future__ import annotations

import re
from asyncio import Future
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ...error_codes import ErrorCode
from ...wire.primitives import NO_UUID
from ..refusal import Refusal
from .topic_log import TopicLog

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_legal_name(name: str) -> bool:
    """Return whether a topic may have this name."""
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


def check_name(name: str) -> None:
    """Raise ValueError where no topic may have this name."""
    if not is_legal_name(name):
        raise ValueError(
            f"{name!r} is no name of a topic: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', other than "
            "'.' and '..'"
        )


def check_names(names: Iterable[str]) -> None:
    """Raise ValueError where no topic may have one of these names, or no two topics may have two of them."""
    by_metric: dict[str, str] = {}
    for name in names:
        check_name(name)
        other = by_metric.setdefault(metric_name(name), name)
        if other != name:
            raise ValueError(f"{name!r} collides with {other!r}: they differ by periods and underscores only")


def metric_name(topic: str) -> str:
    """Return what Kafka calls a topic in the names of its metrics."""
    return topic.replace(".", "_")


class Partition:
    """One partition. A replica that is alive leads it; where there is none it is offline, and ``leader`` is None."""

    def __init__(self, index: int, replicas: Sequence[int]) -> None:
        self.index = index
        self.log = TopicLog()
        self.replicas = list(replicas)
        self.in_sync = list(replicas)
        self.leader: int | None = None
        self.leader_epoch = -1
        self._waiting: set[Future[None]] = set()

    def lead(self, leader: int | None) -> None:
        """Make this replica the leader; the leader epoch rises. With None the partition is offline."""
        if leader is not None:
            self.leader_epoch += 1
            self.log.epochs.begin(self.leader_epoch, self.log.end_offset)
        self.leader = leader
        self.wake()

    def broker_left(self, node_id: int, alive: Collection[int]) -> None:
        """Take a dead broker out of the in-sync replicas, unless it is the last one, and elect another leader.

        The next in-sync replica that is alive leads; without one the partition is offline.
        """
        if node_id not in self.replicas:
            return
        if self.in_sync != [node_id]:
            self.in_sync = [replica for replica in self.in_sync if replica != node_id]
        if self.leader == node_id:
            self.lead(next((replica for replica in self.in_sync if replica in alive), None))

    def broker_came(self, node_id: int, alive: Collection[int]) -> None:
        """Let a broker that is alive again lead if it is in sync and no leader is alive. Replicas then catch up.

        1. All replicas die, the last one being the only one in sync.
        2. The others come back first: there is no leader from whom to catch up.
        3. The last one comes back, and leads: now they do.
        """
        if node_id not in self.replicas:
            return
        if self.leader is None and node_id in self.in_sync:
            self.lead(node_id)
        if self.leader is not None:
            self._catch_up(alive)

    def take_over(self, leader: int, alive: Collection[int]) -> None:
        """Make a broker that is alive the leader, also one out of sync, or without a replica: it gets the first one's.

        Such a leader is first alone in sync, as after an unclean election; the replicas that are alive catch up.
        """
        if leader not in self.replicas:
            self.replicas = [leader, *self.replicas[1:]]
        if leader not in self.in_sync:
            self.in_sync = [leader]
            self._catch_up(alive)
        self.lead(leader)

    def _catch_up(self, alive: Collection[int]) -> None:
        """Put all replicas that are alive in sync at once: they share the log of the leader."""
        self.in_sync += [replica for replica in self.replicas if replica in alive and replica not in self.in_sync]

    def check_epoch(self, epoch: int) -> None:
        """Raise Refusal where a client's leader epoch is not the current one; -1 is a client that knows none."""
        if epoch == -1 or epoch == self.leader_epoch:
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise Refusal(code, f"epoch {epoch}, the current one is {self.leader_epoch}")

    def check_leader(self, node_id: int, epoch: int = -1) -> None:
        """Raise Refusal where this broker does not lead, or the client's leader epoch is not the current one."""
        if node_id in self.replicas:
            self.check_epoch(epoch)
        if self.leader != node_id:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node_id}; the leader is {self.leader}")

    def wake(self) -> None:
        """Wake the fetches that wait for this partition."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def add_waiter(self, future: Future[None]) -> None:
        self._waiting.add(future)

    def remove_waiter(self, future: Future[None]) -> None:
        self._waiting.discard(future)


@dataclass
class Topic:
    """A topic. A recreated topic has another ``topic_id`` (KIP-516)."""

    name: str
    topic_id: UUID
    partitions: list[Partition]
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_append_time(self) -> bool:
        return self.config.get("message.timestamp.type", "").strip() == "LogAppendTime"

    @property
    def is_compacted(self) -> bool:
        return "compact" in self._cleanup

    @property
    def is_deletable(self) -> bool:
        """Whether old records may be deleted (cleanup.policy has "delete")."""
        return "delete" in self._cleanup

    @property
    def _cleanup(self) -> list[str]:
        return [policy.strip() for policy in self.config.get("cleanup.policy", "delete").split(",")]

    def integer(self, setting: str, default: int) -> int:
        return int(self.config.get(setting, default))


class Topics:
    """All topics, by name and by id."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[UUID, Topic] = {}

    def add(self, topic: Topic) -> None:
        """Add a topic. Raises Refusal where the name exists: its records must not be lost silently."""
        if topic.name in self.by_name:
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        self.by_name[topic.name] = self.by_id[topic.topic_id] = topic

    def check_collision(self, name: str) -> None:
        """Raise Refusal where another name differs by periods and underscores only: both have one metric name."""
        metric = metric_name(name)
        other = next((known for known in self.by_name if known != name and metric_name(known) == metric), None)
        if other is not None:
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topics: {other}")

    def remove(self, name: str) -> None:
        """Remove a topic, and wake the fetches that wait for its records. Raises Refusal where there is none."""
        topic = self.named(name)
        del self.by_name[name]
        del self.by_id[topic.topic_id]
        for partition in topic.partitions:
            partition.wake()

    def named(self, name: str) -> Topic:
        """Return the topic with this name. Raises Refusal where there is none."""
        topic = self.by_name.get(name)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def of_id(self, topic_id: UUID) -> Topic:
        """Return the topic with this id. Raises Refusal where there is none."""
        topic = self.by_id.get(topic_id)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of the id {topic_id}")
        return topic

    def partition(self, name: str, index: int) -> Partition:
        """Return a partition. Raises Refusal where it does not exist."""
        topic = self.named(name)
        if not 0 <= index < len(topic.partitions):
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has no partition {index}")
        return topic.partitions[index]

    # What the group coordinator asks

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, None if there is none."""
        topic = self.by_id.get(topic_id)
        return topic.name if topic is not None else None

    def id_of(self, name: str) -> UUID:
        """Return the id of a topic; the zero id if there is no such topic."""
        topic = self.by_name.get(name)
        return topic.topic_id if topic is not None else NO_UUID

    def has_partition(self, name: str, index: int) -> bool:
        """Return whether this partition exists."""
        topic = self.by_name.get(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    def size_of(self, name: str) -> int:
        """Return how many partitions a topic has; 0 if there is no such topic."""
        topic = self.by_name.get(name)
        return len(topic.partitions) if topic is not None else 0

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        return self.by_name.keys()
