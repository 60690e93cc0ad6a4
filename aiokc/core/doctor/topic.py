"""What the metadata of a topic mean: whether it exists, its leaders and replicas, and what the client may do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ...error_codes import ErrorCode, error_name
from ...errors import KafkaError
from ...wire.messages.discovery import MetadataResponsePartition, MetadataResponseTopic
from .cluster import ClusterSeen
from .report import Finding, Step, Verdict, counted

# Bits of authorized operations, by the numbers of org.apache.kafka.common.acl.AclOperation.
_OPERATIONS: Final = {
    **{3: "Read", 4: "Write", 5: "Create", 6: "Delete", 7: "Alter", 8: "Describe"},
    **{9: "ClusterAction", 10: "DescribeConfigs", 11: "AlterConfigs", 12: "IdempotentWrite"},
}
_READ: Final = 1 << 3
_NOT_TOLD: Final = -2147483648
_SHOWN: Final = 10
_NAMES_COMPARED: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    """A topic that can be read. ``leaders`` has its partitions by the id of their leader."""

    name: str
    topic_id: UUID
    leaders: Mapping[int, Sequence[int]]
    replicas: Mapping[int, Sequence[int]]


def missing_topic(name: str, code: int, alike: Sequence[str]) -> Finding:
    """Return the finding about a topic that is not there, or not to be seen. ``alike``: names that may be meant."""
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        text = f"The broker does not let this client see topic {name!r}; a topic that does not exist looks the same"
        advice = f"grant DESCRIBE and READ for topic {name!r}; look at its spelling"
        return _topic(name, Verdict.PROBLEM, "topic.denied", text, advice)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        meant = f"; is {' or '.join(map(repr, alike))} meant?" if alike else ""
        text = f"The cluster has no topic {name!r}{meant}"
        advice = "look at the spelling, and whether this is the cluster that is meant; else create the topic"
        return _topic(name, Verdict.PROBLEM, "topic.unknown", text, advice)
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        text = f"No topic can be called {name!r}"
        return _topic(name, Verdict.PROBLEM, "topic.invalid", text, "letters, digits, '.', '_' and '-', up to 249")
    text = f"The broker answers {error_name(code)} about topic {name!r}"
    return _topic(name, Verdict.PROBLEM, "topic.failed", text, "look at the brokers' logs, and try again")


def no_topic_metadata(name: str, error: KafkaError) -> Finding:
    """Return the finding about a topic that no broker says anything of."""
    text = f"No metadata of topic {name!r}: {error}"
    return _topic(name, Verdict.PROBLEM, "topic.no_metadata", text, "look at the broker's log, and try again")


def alike(name: str, others: Iterable[str | None]) -> list[str]:
    """Return up to three of the names that differ from ``name`` in case, dots, dashes and underscores only."""
    wanted = _plain(name)
    found = []
    for number, other in enumerate(others):
        if other is not None and _plain(other) == wanted and other != name:
            found.append(other)
        if len(found) == 3 or number >= _NAMES_COMPARED:
            break
    return found


def _plain(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "").replace(".", "").removesuffix("s")


def topic_findings(topic: MetadataResponseTopic, cluster: ClusterSeen) -> list[Finding]:
    """Return the findings about a topic that exists."""
    name, partitions = topic.name or "", topic.partitions
    if not partitions:
        return [_topic(name, Verdict.PROBLEM, "topic.no_partitions", "The topic has no partitions", "try again")]
    found = [*_without_leader(name, partitions, cluster), *_permission(name, topic.topic_authorized_operations)]
    lacking = [one for one in partitions if len(one.isr_nodes) < len(one.replica_nodes)]
    if lacking:
        missing = {node for one in lacking for node in one.replica_nodes if node not in one.isr_nodes}
        text = (
            f"{len(lacking)} of {len(partitions)} partitions are under-replicated ({_numbers(lacking)}); not in sync: "
            f"{_brokers(missing)}"
        )
        advice = "look at these brokers: a further failure may take partitions away, or records"
        found.append(_topic(name, Verdict.WARNING, "topic.under_replicated", text, advice))
    return found or [_described(name, topic, cluster)]


def seen_topic(topic: MetadataResponseTopic) -> TopicSeen:
    """Return what a Fetch needs to know of a topic."""
    leaders: dict[int, list[int]] = {}
    for one in topic.partitions:
        if one.leader_id >= 0:
            leaders.setdefault(one.leader_id, []).append(one.partition_index)
    return TopicSeen(
        name=topic.name or "",
        topic_id=topic.topic_id,
        leaders=leaders,
        replicas={one.partition_index: one.replica_nodes for one in topic.partitions},
    )


def _without_leader(name: str, partitions: Sequence[MetadataResponsePartition], cluster: ClusterSeen) -> list[Finding]:
    """Return the findings about partitions that nobody can read now."""
    hidden = [one for one in partitions if one.error_code == ErrorCode.LISTENER_NOT_FOUND]
    leaderless = [one for one in partitions if one.leader_id < 0 and one not in hidden]
    strangers = [one for one in partitions if one.leader_id >= 0 and one.leader_id not in cluster.brokers]
    strange = strangers if cluster.is_complete else []
    found = []
    if leaderless:
        text = (
            f"{len(leaderless)} of {len(partitions)} partitions have no leader ({_numbers(leaderless)}): nobody can "
            "read or write them"
        )
        nodes = {node for one in leaderless for node in one.replica_nodes}
        advice = f"bring a broker of their replicas back: {_brokers(nodes)}"
        found.append(_topic(name, Verdict.PROBLEM, "topic.no_leader", text, advice))
    if hidden:
        text = (
            f"the leaders of {len(hidden)} of {len(partitions)} partitions ({_numbers(hidden)}) have no listener of "
            "the name that this client has connected to"
        )
        advice = "give all brokers the same names of listeners, in listeners and advertised.listeners"
        found.append(_topic(name, Verdict.PROBLEM, "topic.no_listener", text, advice))
    if strange:
        nodes = {one.leader_id for one in strange}
        text = f"the leaders {_brokers(nodes)} of {_numbers(strange)} are not among the cluster's brokers"
        advice = "the metadata are old, or a broker has just gone: try again, and look at the controllers' logs"
        found.append(_topic(name, Verdict.PROBLEM, "topic.unknown_leader", text, advice))
    return found


def _permission(name: str, operations: int) -> list[Finding]:
    if operations == _NOT_TOLD or operations & _READ:
        return []
    text = f"The client may see the topic, and not read it; it may: {_named(operations)}"
    return [_topic(name, Verdict.PROBLEM, "topic.no_read", text, f"grant READ for topic {name!r}")]


def _described(name: str, topic: MetadataResponseTopic, cluster: ClusterSeen) -> Finding:
    leaders = {one.leader_id for one in topic.partitions}
    replicas = len(topic.partitions[0].replica_nodes)
    may = topic.topic_authorized_operations
    said = "" if may == _NOT_TOLD else f"; the client may: {_named(may)}"
    count = len(topic.partitions)
    text = (
        f"{counted(count, 'partition')} with {counted(replicas, 'replica')}, all in "
        f"sync, led by {_brokers(leaders)}{said}"
    )
    details = {
        "partitions": count,
        "replicas": replicas,
        "leaders": sorted(leaders)[:100],
        "operations": None if may == _NOT_TOLD else _named(may).split(", "),
    }
    return _topic(name, Verdict.OK, "topic.described", text, "", details)


def _named(operations: int) -> str:
    return ", ".join(name for bit, name in _OPERATIONS.items() if operations & (1 << bit)) or "nothing"


def _numbers(partitions: Sequence[MetadataResponsePartition]) -> str:
    numbers = sorted(one.partition_index for one in partitions)
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"{'partition' if len(numbers) == 1 else 'partitions'} {', '.join(map(str, numbers[:_SHOWN]))}{more}"


def _brokers(nodes: Iterable[int]) -> str:
    known = sorted(nodes)
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    shown = ", ".join(map(str, known[:_SHOWN]))
    return f"{'broker' if len(known) == 1 else 'brokers'} {shown}{more}" if known else "none that the metadata name"


def _topic(
    name: str,
    verdict: Verdict,
    code: str,
    text: str,
    advice: str,
    details: Mapping[str, object] | None = None,
) -> Finding:
    return Finding(
        step=Step.TOPIC,
        verdict=verdict,
        code=code,
        subject=f"topic {name!r}",
        text=text,
        advice=advice,
        details=details or {},
    )
