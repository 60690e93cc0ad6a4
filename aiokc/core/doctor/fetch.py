"""One Fetch from each leader of a topic: what to ask for, and what the answer means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ...config import ClientConfig, IsolationLevel, isolation_code
from ...error_codes import ErrorCode, error_name
from ...errors import KafkaError, RequestTimedOut
from ...wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ...wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from .cluster import ClusterSeen
from .report import Finding, Step, Verdict, counted, duration
from .topic import TopicSeen

#: How much one Fetch asks for.
FETCH_BYTES: Final = 1 << 20
#: From this version on a Fetch names topics by their ids.
IDS_FROM: Final = 13

_CLIENT: Final = -1  # the replica id of clients
_MAX_WAIT_MS: Final = 100
_TELLS_A_PACE: Final = 64 << 10  # bytes; below it the time is that of the round trip


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The partition that a leader is asked for: the one with the most records. ``records`` may count control records.

    ``seconds``: how long the leader took to name the offsets.
    """

    partition: int
    start: int
    records: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What came of one Fetch."""

    target: Target
    code: int
    size: int
    seconds: float
    preferred: int


def offsets_request(
    topic: str, partitions: Sequence[int], timestamp: int, isolation_level: IsolationLevel
) -> ListOffsetsRequest:
    """Return the request for the first or the last offsets of partitions."""
    asked = [ListOffsetsPartition(partition_index=one, timestamp=timestamp) for one in partitions]
    return ListOffsetsRequest(
        replica_id=_CLIENT,
        isolation_level=isolation_code(isolation_level),
        topics=[ListOffsetsTopic(name=topic, partitions=asked)],
    )


def offsets_in(answer: ListOffsetsResponse) -> tuple[dict[int, int], dict[int, int]]:
    """Return the offsets by partition, and the error codes."""
    offsets: dict[int, int] = {}
    errors: dict[int, int] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            if one.error_code:
                errors[one.partition_index] = one.error_code
            else:
                offsets[one.partition_index] = one.offset
    return offsets, errors


def target(first: Mapping[int, int], last: Mapping[int, int], seconds: float) -> Target | None:
    """Return the partition with the most records; None if no offsets are known."""
    counts = {partition: last[partition] - start for partition, start in first.items() if partition in last}
    if not counts:
        return None
    best = max(counts, key=lambda partition: counts[partition])
    return Target(partition=best, start=first[best], records=max(counts[best], 0), seconds=seconds)


def fetch_request(topic: TopicSeen, wanted: Target, config: ClientConfig) -> FetchRequest:
    """Return the Fetch of up to 1 MiB from the beginning of the partition, without a session."""
    most = min(FETCH_BYTES, config.room_for_records)
    partition = FetchPartition(partition=wanted.partition, fetch_offset=wanted.start, partition_max_bytes=most)
    return FetchRequest(
        max_wait_ms=_MAX_WAIT_MS if wanted.records else 0,
        min_bytes=1,
        max_bytes=most,
        isolation_level=isolation_code(config.isolation_level),
        topics=[FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[partition])],
        rack_id=config.client_rack,
    )


def fetched(answer: FetchResponse, wanted: Target, seconds: float) -> Fetched:
    """Return what an answer to the Fetch holds."""
    found: list[PartitionData] = [one for topic in answer.responses for one in topic.partitions]
    mine = next((one for one in found if one.partition_index == wanted.partition), None)
    code = answer.error_code or (mine.error_code if mine is not None else ErrorCode.UNKNOWN_SERVER_ERROR)
    return Fetched(
        target=wanted,
        code=code,
        size=len(mine.records) if mine is not None and mine.records is not None else 0,
        seconds=seconds,
        preferred=mine.preferred_read_replica if mine is not None else -1,
    )


def can_name(topic_id: UUID) -> bool:
    """Whether a Fetch can name the topic by its id."""
    return topic_id.int != 0


# Findings


def rack_findings(rack: str, cluster: ClusterSeen) -> list[Finding]:
    """Return the finding about a ``client_rack`` that no broker is in."""
    racks = cluster.racks
    if not rack or rack in racks or not cluster.is_complete:
        return []
    text = f"client_rack={rack!r} is no broker's rack; the brokers' racks: {', '.join(racks) or 'none'}"
    advice = "name a rack as the brokers' broker.rack does, or leave client_rack out: records come from leaders"
    return [Finding(Step.FETCH, Verdict.WARNING, "fetch.unknown_rack", "options", text, advice)]


def fetch_findings(subject: str, got: Fetched, topic: TopicSeen, *, of_follower: bool = False) -> list[Finding]:
    """Return the finding about the answer of one broker."""
    where = f"{topic.name}-{got.target.partition}"
    if got.code:
        return [_refused(subject, got.code, f"A Fetch of {where} is", topic.name, of_follower=of_follower)]
    role = "follower" if of_follower else "leader"
    pace = int(got.size / max(got.seconds, 1e-6)) if got.size >= _TELLS_A_PACE else None
    if got.size == 0:
        why = "it has no records" if got.target.records == 0 else "no bytes came"
        text = f"a Fetch of {where} from the {role} was answered in {duration(got.seconds)}: {why}"
    else:
        at_pace = f" ({_bytes(pace)}/s)" if pace is not None else ""
        text = (
            f"{_bytes(got.size)} of {where} from the {role} in {duration(got.seconds)}{at_pace}; its offsets in "
            f"{duration(got.target.seconds)}"
        )
    details = {
        "partition": got.target.partition,
        "bytes": got.size,
        "latency_ms": round(got.target.seconds * 1e3, 3),
        "bytes_per_second": pace,
        "from_follower": of_follower,
    }
    return [Finding(Step.FETCH, Verdict.OK, "fetch.answered", subject, text, seconds=got.seconds, details=details)]


def redirected(subject: str, got: Fetched, rack: str) -> Finding:
    """Return the finding about a leader that sends this client to a replica in its rack."""
    text = f"sends this client to broker {got.preferred}, as client_rack={rack!r} asks (KIP-392)"
    return Finding(
        Step.FETCH,
        Verdict.OK,
        "fetch.follower",
        subject,
        text,
        seconds=got.seconds,
        details={"follower": got.preferred},
    )


def not_redirected(
    subject: str, node_id: int, got: Fetched, topic: TopicSeen, rack: str, cluster: ClusterSeen
) -> list[Finding]:
    """Return the finding about a leader in another rack that keeps this client, though a replica is in its rack."""
    leader = cluster.brokers.get(node_id)
    near = [
        one
        for one in topic.replicas.get(got.target.partition, ())
        if one in cluster.brokers and cluster.brokers[one].rack == rack
    ]
    if got.code or not rack or not near or leader is None or leader.rack == rack:
        return []
    text = f"serves this client itself, though broker {near[0]} has a replica in its rack {rack!r}"
    advice = (
        "set replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector on the brokers; they do "
        "not redirect either while that replica is behind"
    )
    return [Finding(Step.FETCH, Verdict.NOTE, "fetch.not_redirected", subject, text, advice)]


def unreachable_follower(subject: str, node_id: int) -> Finding:
    """Return the finding about a leader that sends this client to a broker that is not to be reached."""
    text = f"sends this client to broker {node_id}, which is not among the brokers that were reached"
    return Finding(
        Step.FETCH, Verdict.PROBLEM, "fetch.unreachable_follower", subject, text, "leave client_rack out for now"
    )


def follower_not_looked_at(subject: str, node_id: int) -> Finding:
    """Return the finding about a leader that sends this client to a broker that nobody has looked at."""
    text = f"sends this client to broker {node_id}, which is not among the brokers that were looked at"
    return Finding(Step.FETCH, Verdict.NOTE, "fetch.not_looked_at", subject, text)


def no_fetch(subject: str, error: KafkaError, what: str) -> Finding:
    """Return the finding about a broker that did not answer. ``what``: what it was asked for."""
    if isinstance(error, RequestTimedOut) and what == "Fetch":
        text = f"Small answers come, and one of up to {_bytes(FETCH_BYTES)} does not: {error}"
        advice = "look at the MTU on the way (VPN, tunnel), at quotas, and at the broker's disks"
        return Finding(Step.FETCH, Verdict.PROBLEM, "fetch.timeout", subject, text, advice)
    text = f"{what}: {error}"
    return Finding(
        Step.FETCH, Verdict.PROBLEM, "fetch.failed", subject, text, "look at the broker's log, and try again"
    )


def offsets_refused(subject: str, topic: str, errors: Mapping[int, int]) -> list[Finding]:
    """Return the findings about a leader that does not name the offsets of these partitions, one for each code."""
    by_code: dict[int, list[int]] = {}
    for partition, code in errors.items():
        by_code.setdefault(code, []).append(partition)
    found = []
    for code, partitions in by_code.items():
        more = f" and {counted(len(partitions) - 1, 'more partition')}" if len(partitions) > 1 else ""
        what = f"The offsets of {topic}-{partitions[0]}{more} are"
        found.append(_refused(subject, code, what, topic, of_follower=False))
    return found


def no_connection(subject: str) -> Finding:
    """Return the finding about a leader that is not among the brokers that were looked at."""
    text = "leads partitions of the topic, and is not among the brokers that were looked at"
    return Finding(Step.FETCH, Verdict.NOTE, "fetch.not_looked_at", subject, text)


def _refused(subject: str, code: int, what: str, topic: str, *, of_follower: bool) -> Finding:
    text = f"{what} refused: {error_name(code)}"
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return Finding(Step.FETCH, Verdict.PROBLEM, "fetch.denied", subject, text, f"grant READ for topic {topic!r}")
    if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
        text = f"{text}: it does not lead the partition, and the metadata say that it does"
        advice = "leaders may be moving: try again; else this address leads to another broker than the one announced"
        return Finding(Step.FETCH, Verdict.PROBLEM, "fetch.not_leader", subject, text, advice)
    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        return Finding(
            Step.FETCH, Verdict.PROBLEM, "fetch.disk", subject, text, "look at the broker's disks and its log"
        )
    if of_follower:
        text = f"{text}, by the follower that the leader has named"
    return Finding(
        Step.FETCH, Verdict.PROBLEM, "fetch.refused", subject, text, "look at the broker's log, and try again"
    )


def _bytes(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
