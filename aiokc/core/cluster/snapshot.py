"""The immutable snapshot of the cluster (brokers, topics, leaders), and how a Metadata response makes a new one."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, repeat
from typing import Final, NamedTuple
from uuid import UUID

from ...error_codes import ErrorCode
from ...errors import BrokerError, KafkaError, MalformedResponse, NoBrokersAvailable, broker_error
from ...native import untrack
from ...types import Broker, PartitionInfo, TopicInfo, TopicPartition, partition_count
from ...wire.messages.discovery import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from .leader_epochs import LeaderEpochs, LowerEpochs
from .occasion import Occasion
from .topic_ids import FormerIds, TopicIds

_NO_ID = UUID(int=0)
# What stands for a cluster's id that there is not: Redpanda says the last one until it has made its id.
_NO_CLUSTER_IDS: Final = (None, "", "redpanda.initializing")


def known_cluster_id(told: str | None) -> str | None:
    """Return the cluster's id that a broker tells; None where it does not know it (yet)."""
    return None if told in _NO_CLUSTER_IDS else told


# Of one cluster: the largest have hundreds. Each one costs time at each answer, and at each choice of a broker to ask.
_MOST_BROKERS: Final = 10_000
_LONGEST_NAME: Final = 249  # characters, of a topic
_OF_PATTERNS: Final = frozenset("^$*+?()[]{}|\\")  # no topic's name has one of these


@dataclass(frozen=True, slots=True)
class Cluster:
    """The snapshot: brokers, topics and leaders as of one Metadata response. ``version`` grows with each response.

    ``errors`` holds, by topic, the error code that the newest response gave for it (UNKNOWN_TOPIC_OR_PARTITION, ...);
    only for topics that are followed, since nothing asks for the others any more.
    ``partial`` are topics of which it lacked a partition: brokers have answered so while controllers changed.
    ``complete``: the response was about all topics, so a topic that is not in ``topics`` does not exist, or the client
    may not see it. ``former`` holds ids that topics had before: a broker whose answer names one is behind (KIP-516).
    ``lower`` counts the answers that have named a lower leader epoch than the one of ``topics`` (KIP-320).
    """

    version: int = 0
    cluster_id: str | None = None
    controller_id: int | None = None
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    partial: Collection[str] = frozenset()
    complete: bool = False
    former: Mapping[str, FormerIds] = field(default_factory=dict)
    lower: LowerEpochs = field(default_factory=dict)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(tp.topic)
        return topic.partitions.get(tp.partition) if topic is not None else None

    def leader(self, tp: TopicPartition) -> Broker | None:
        """The broker that leads ``tp``, if it has a leader and that broker is known."""
        partition = self.partition(tp)
        if partition is None or partition.leader is None:
            return None
        return self.brokers.get(partition.leader)

    def has_replica(self, tp: TopicPartition, node_id: int) -> bool:
        """Whether that broker is in the snapshot, and has a replica of ``tp`` that is online."""
        partition = self.partition(tp)
        if partition is None or node_id not in self.brokers or node_id in partition.offline_replicas:
            return False
        return not partition.replicas or node_id in partition.replicas

    def leader_epoch(self, tp: TopicPartition) -> int:
        """The newest leader epoch seen for ``tp``; -1 where none is known (brokers before 2.1)."""
        topic = self.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        return -1 if partition is None or partition.leader_epoch is None else partition.leader_epoch

    def topic_id(self, topic: str) -> UUID | None:
        found = self.topics.get(topic)
        return found.topic_id if found is not None else None

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of partitions of each of ``topics`` that exists."""
        return {name: partition_count(self.topics[name].partitions) for name in topics if name in self.topics}

    def replicas(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[int]]:
        """The ids of the brokers that have replicas, by partition, of those of ``topics`` that exist."""
        found = (self.topics[name] for name in topics if name in self.topics)
        return {
            TopicPartition(topic.name, number): frozenset(partition.replicas)
            for topic in found
            for number, partition in topic.partitions.items()
        }

    def replica_racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """The racks of the replicas, by partition; empty where no broker has a rack.

        A broker that is not in the snapshot at the moment counts as one without a rack.
        """
        racks = {broker.node_id: broker.rack for broker in self.brokers.values() if broker.rack}
        if not racks:
            return {}
        return {
            tp: frozenset(racks[node_id] for node_id in nodes if node_id in racks)
            for tp, nodes in self.replicas(topics).items()
        }

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of those of ``topics`` that exist, in order."""
        found = (self.topics[name] for name in sorted(topics) if name in self.topics)
        return [tp for topic in found for tp in map(TopicPartition, repeat(topic.name), sorted(topic.partitions))]


def why_unusable(broker: str, response: MetadataResponse) -> KafkaError | None:
    """Return why a broker's answer tells nothing of the cluster; None if it does.

    Such an answer is not to be merged: all brokers and topics would be gone by it. A broker that starts may know of no
    broker yet. REBOOTSTRAP_REQUIRED comes from a proxy: the bootstrap servers lead to the cluster (KIP-1102).
    """
    code = response.error_code
    if code != ErrorCode.NONE:
        error = broker_error(code, f"{broker} answers Metadata with this error")
        error.retriable = error.retriable or code == ErrorCode.REBOOTSTRAP_REQUIRED
        return error
    if len(response.brokers) > _MOST_BROKERS:
        return MalformedResponse(
            f"{broker}: its answer to Metadata names {len(response.brokers):,} brokers, more than {_MOST_BROKERS:,}"
        )
    if all(broker.node_id < 0 for broker in response.brokers):
        return NoBrokersAvailable(f"{broker}: its answer to Metadata names no broker (does it still start?)")
    return None


def merge(
    old: Cluster, response: MetadataResponse, *, complete: bool, occasion: Occasion = Occasion.REGULAR, every: int = 100
) -> Generator[None, None, Cluster]:
    """Return the snapshot after ``response``. Yield after each ``every`` topics and partitions, for the loop's sake.

    ``complete``: the request was for all topics, so those not in the response are gone. Otherwise they stay. A topic of
    which nothing has changed is the same object as before, so no code needs to look at its partitions again.
    ``occasion``: why the question was asked. LeaderEpochs and TopicIds each say when its answer counts for them.
    """
    topics: dict[str, TopicInfo] = {} if complete else dict(old.topics)
    errors: dict[str, int] = {} if complete else dict(old.errors)
    partial: set[str] = set() if complete else set(old.partial)
    ids = TopicIds(old.former, occasion)
    epochs = LeaderEpochs(old.lower, old.brokers, occasion)
    turns = count(1)
    for answer in response.topics:
        name = answer.name
        if next(turns) % every == 0:
            yield  # there may be millions of topics without partitions, too
        if name is None or _is_made_up(answer):
            continue  # asked by id, and the id is unknown; or no topic at all
        if answer.error_code != ErrorCode.NONE:
            errors[name] = answer.error_code
            if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                topics.pop(name, None)
            continue
        before = old.topics.get(name)
        known_id = before.topic_id if before is not None else None
        if ids.is_old(name, known_id, _topic_id(answer), exists=before is not None):
            if before is not None:
                topics[name] = before
            continue
        errors.pop(name, None)
        known = _same_topic(before, answer)
        partitions = yield from _partitions(known, answer, epochs, turns, every)
        _add_missing(partitions, known, answer)
        topics.pop(name, None)  # so that they are in the order in which brokers have told of them
        topic = topics[name] = _newest_topic(known, TopicInfo(name, partitions, _topic_id(answer), answer.is_internal))
        partial.discard(name)
        if len(answer.partitions) < partition_count(topic.partitions):
            partial.add(name)
    for name, gone in old.topics.items():
        if name not in topics:
            ids.gone(name, gone.topic_id)
    return Cluster(
        version=old.version + 1,
        cluster_id=old.cluster_id or known_cluster_id(response.cluster_id),
        controller_id=response.controller_id if response.controller_id >= 0 else None,
        brokers={b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers if b.node_id >= 0},
        topics=topics,
        errors=errors,
        partial=partial & topics.keys(),
        complete=complete,
        former=ids.result(),
        lower=epochs.result({answer.name or "" for answer in response.topics} if old.lower else (), topics),
    )


def _partitions(
    known: TopicInfo | None, answer: MetadataResponseTopic, epochs: LeaderEpochs, turns: Iterator[int], every: int
) -> Generator[None, None, dict[int, PartitionInfo]]:
    """Return the partitions of the answer by number, each as its newest leader epoch has it."""
    topic = answer.name or ""
    partitions: dict[int, PartitionInfo] = {}
    merged: list[PartitionInfo] = []
    for item in answer.partitions:
        new = _partition(topic, item)
        was = known.partitions.get(new.partition) if known is not None else None
        partitions[item.partition_index] = info = new if was is None else epochs.newest(was, new)
        merged.append(info)
        if next(turns) % every == 0:
            untrack(merged)
            merged.clear()
            yield
    untrack(merged)
    return partitions


#: More elections of a partition than there are between two looks at the metadata.
_MOST_ELECTIONS: Final = 10_000


class NewLeader(NamedTuple):
    """The leader that a broker names for a partition that it does not lead any more itself (KIP-951).

    ``topic_id`` is the id of the topic that the request was about, None where the cluster has no topic ids. The broker
    says nothing about a topic that was recreated by the same name.
    """

    node_id: int
    epoch: int
    topic_id: UUID | None


def with_leaders(
    old: Cluster, leaders: Mapping[TopicPartition, NewLeader], brokers: Mapping[int, Broker]
) -> tuple[Cluster, set[TopicPartition]]:
    """Return the snapshot with these leaders, and which partitions moved.

    ``brokers`` has the addresses of those that the snapshot lacks. Of the others its own address counts: a proxy may
    rewrite the addresses in Metadata alone, and a broker that has moved is there after the next refresh.

    A leader counts only with a newer epoch and at a known broker. The version stays the same, because this is no
    Metadata response. A leader in a former topic of that name does not count: a recreated topic's epochs start anew,
    and would stay below that leader's epoch for ever. So would every other leader's where a broker made its epoch up:
    one that is too far ahead does not count, nor does an address or an id that is none.
    """
    brokers = {
        node_id: broker
        for node_id, broker in brokers.items()
        if node_id not in old.brokers and node_id >= 0 and broker.host and 0 < broker.port < 1 << 16
    }
    known = old.brokers.keys() | brokers.keys()
    topics = dict(old.topics)
    moved: set[TopicPartition] = set()
    for tp, leader in leaders.items():
        topic, info = topics.get(tp.topic), old.partition(tp)
        if topic is None or info is None or leader.node_id not in known or leader.topic_id != topic.topic_id:
            continue
        if info.leader_epoch is None or not 0 < leader.epoch - info.leader_epoch <= _MOST_ELECTIONS:
            continue
        if topic is old.topics[tp.topic]:
            topic = topics[tp.topic] = replace(topic, partitions=dict(topic.partitions))
        topic.partitions[tp.partition] = info._replace(leader=leader.node_id, leader_epoch=leader.epoch)
        moved.add(tp)
    if not moved:
        return old, moved
    used = {leaders[tp].node_id for tp in moved}
    addresses = {**old.brokers, **{node_id: broker for node_id, broker in brokers.items() if node_id in used}}
    return replace(old, topics=topics, brokers=addresses), moved


def _is_made_up(answer: MetadataResponseTopic) -> bool:
    """Whether no broker can have a topic of that name. It would be shown in log lines, and could forge some.

    An error may be about any name that the application has asked for.
    """
    name = answer.name or ""
    return answer.error_code == ErrorCode.NONE and not (name.isprintable() and len(name) <= _LONGEST_NAME)


def _topic_id(answer: MetadataResponseTopic) -> UUID | None:
    return answer.topic_id if answer.topic_id != _NO_ID else None


def _same_topic(known: TopicInfo | None, answer: MetadataResponseTopic) -> TopicInfo | None:
    """Return ``known``, or None where the topic was recreated (KIP-516), because then its epochs start anew."""
    topic_id = _topic_id(answer)
    if known is not None and topic_id is not None and known.topic_id not in (None, topic_id):
        return None
    return known


def _add_missing(partitions: dict[int, PartitionInfo], known: TopicInfo | None, answer: MetadataResponseTopic) -> None:
    """Keep known partitions that the answer lacks. As long as a topic has its id, it has no fewer partitions.

    A consumer without a group would take a partition that is gone, and is there again, for a new one, and read it from
    the beginning.
    """
    if known is not None and known.topic_id is not None and known.topic_id == _topic_id(answer):
        for number in known.partitions.keys() - partitions.keys():
            partitions[number] = known.partitions[number]


def _newest_topic(old: TopicInfo | None, new: TopicInfo) -> TopicInfo:
    """Return ``old`` if nothing has changed. Else reuse the object of an equal id: one object is quick to compare."""
    if old is None or old.topic_id != new.topic_id:
        return new
    was, now = old.partitions, new.partitions
    is_same = len(was) == len(now) and all(was.get(number) is info for number, info in now.items())
    return old if is_same and old.is_internal == new.is_internal else replace(new, topic_id=old.topic_id)


def _partition(topic: str, item: MetadataResponsePartition) -> PartitionInfo:
    replicas = tuple(item.replica_nodes)
    return PartitionInfo(
        topic,
        item.partition_index,
        item.leader_id if item.leader_id >= 0 else None,
        item.leader_epoch if item.leader_epoch >= 0 else None,
        replicas,
        replicas if item.isr_nodes == item.replica_nodes else tuple(item.isr_nodes),
        tuple(item.offline_replicas),
    )


def known_error(cluster: Cluster, topics: Iterable[str]) -> BrokerError | None:
    """Return the first error of these topics that only the application can repair (authorization, an invalid name)."""
    for topic in sorted(cluster.errors.keys() & topics):
        code = cluster.errors[topic]
        if code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION):
            return topic_error(code, topic)
    return None


def unknown_partition(cluster: Cluster, partitions: Iterable[TopicPartition]) -> BrokerError | None:
    """Return the error of the first of these that, by this snapshot, does not exist: its topic, or only itself."""
    for tp in sorted(partitions):
        if cluster.errors.get(tp.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the cluster has no topic {tp.topic!r}")
        topic = cluster.topics.get(tp.topic)
        count = partition_count(topic.partitions) if topic is not None else tp.partition + 1
        if tp.partition >= count:  # one that a broker has left out is there
            return broker_error(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} does not exist: the topic has {count} partitions"
            )
    return None


def topic_error(code: int, topic: str) -> BrokerError:
    """Return the error of a topic in a Metadata response."""
    hint = ""
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        hint = "; without the permission DESCRIBE a broker says the same of a topic that does not exist"
    elif code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        hint = ": a topic's name has letters, digits, '.', '_' and '-', and at most 249 characters"
        if not _OF_PATTERNS.isdisjoint(topic):
            hint += "; to subscribe to a pattern give re.compile(...), and not its text"
    elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        hint = ": the cluster has no such topic: create it, or correct the name"
    return broker_error(code, f"topic {topic!r}{hint}")
