"""The series that a consumer is exported as: their names, kinds, units, and where in Health and Metrics they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from .. import Consumer, Producer
from ..observation import Health, Latency, Metrics
from ..types import TopicPartition

#: What all names of Prometheus and most names of OpenTelemetry begin with.
PROMETHEUS_PREFIX: Final = "aiokc_consumer_"
OTEL_PREFIX: Final = "aiokc.consumer."

#: A partition that has stood still for so long counts as stalled. One that did at a single look may only have waited
#: for an answer: where an application is quick and catches up, each scrape would find some of those.
STALL_AFTER_MS: Final = 60_000.0

#: The partition number that Metrics gives a whole topic.
_WHOLE_TOPIC: Final = -1

Value: TypeAlias = "float | Latency"


def has_ended(client: Consumer[Any, Any] | Producer[Any, Any]) -> bool:
    """Whether this client never runs again: another one may take its place among what is exported.

    Before start() it does not run either; but a broker has told the cluster's id to one whose background was cancelled.
    """
    health = client.health()
    return not health.running and (health.stopped or health.error is not None or health.cluster_id is not None)


class Kind(Enum):
    """How a series behaves: a counter only grows, a gauge may fall, an up-down counter may, too, and can be summed up.

    A latency is how often something was done, and how long that took.
    """

    COUNTER = "counter"
    GAUGE = "gauge"
    UP_DOWN = "updowncounter"
    LATENCY = "latency"


class Scope(Enum):
    """What a series has one value for. The names are those of the labels; a topic's series has no partition."""

    CONSUMER = ()
    PARTITION = ("topic", "partition")
    NODE = ("node",)
    PROTOCOL = ("protocol",)


class Sample(NamedTuple):
    """A consumer at one moment."""

    health: Health
    metrics: Metrics


#: The values of the scope's labels, without those that do not apply, and the value.
Point: TypeAlias = tuple[tuple[str, ...], Value]


@dataclass(frozen=True, slots=True)
class Series:
    """One series. ``source``: the field of Metrics, or ``health().FIELD``, or what is made of such fields.

    ``prometheus`` has no prefix and no suffix; ``otel`` is whole, and empty where a histogram says the same. A latency
    in seconds is a summary in Prometheus, and in OpenTelemetry two counters: ``otel``, of what is ``counted``, and
    ``otel_time``.
    """

    source: str
    prometheus: str
    otel: str
    unit: str
    kind: Kind
    help: str
    points: Callable[[Sample], Iterator[Point]]
    scope: Scope = Scope.CONSUMER
    otel_time: str = ""
    counted: str = "{request}"

    @property
    def prometheus_names(self) -> tuple[str, ...]:
        """All names under which Prometheus finds it."""
        name = PROMETHEUS_PREFIX + self.prometheus
        match self.kind:
            case Kind.COUNTER:
                return (f"{name}_total",)
            case Kind.LATENCY:
                return f"{name}_count", f"{name}_sum", f"{name}_max"
            case _:
                return (name,)

    @property
    def otel_names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.otel, self.otel_time) if name)


def _of_metrics(read: Callable[[Metrics], Value]) -> Callable[[Sample], Iterator[Point]]:
    def points(sample: Sample) -> Iterator[Point]:
        yield (), read(sample.metrics)

    return points


def _of_health(read: Callable[[Health], float | None]) -> Callable[[Sample], Iterator[Point]]:
    def points(sample: Sample) -> Iterator[Point]:
        value = read(sample.health)
        if value is not None:
            yield (), value

    return points


def _protocol(sample: Sample) -> Iterator[Point]:
    """A 1 for the protocol that the member speaks: nothing without a group, and while "auto" has not decided yet."""
    if sample.health.group_protocol is not None:
        yield (sample.health.group_protocol,), 1.0


def _by_partition(
    read: Callable[[Metrics], Mapping[TopicPartition, int | None]],
) -> Callable[[Sample], Iterator[Point]]:
    def points(sample: Sample) -> Iterator[Point]:
        for tp, value in read(sample.metrics).items():
            if value is not None:
                yield (tp.topic,) if tp.partition == _WHOLE_TOPIC else (tp.topic, str(tp.partition)), value

    return points


def _by_node(field: str) -> Callable[[Sample], Iterator[Point]]:
    def points(sample: Sample) -> Iterator[Point]:
        for node_id, node in sample.metrics.nodes.items():
            yield (str(node_id),), getattr(node, field)

    return points


def _counter(source: str, prometheus: str, otel: str, unit: str, text: str) -> Series:
    return Series(source, prometheus, otel, unit, Kind.COUNTER, text, _of_metrics(lambda m: getattr(m, source)))


def _seconds(source: str, prometheus: str, text: str) -> Series:
    points = _of_metrics(lambda metrics: getattr(metrics, source) / 1e3)
    return Series(source, prometheus, _otel(prometheus.replace("_seconds", ".time")), "s", Kind.COUNTER, text, points)


def _latency(source: str, prometheus: str, text: str, otel: str | None = None, counted: str = "{request}") -> Series:
    times = _otel(f"{prometheus.removesuffix('_seconds')}.time") if otel is None else ""
    otel = _otel(source) if otel is None else otel
    points = _of_metrics(lambda metrics: getattr(metrics, source))
    return Series(source, prometheus, otel, "s", Kind.LATENCY, text, points, otel_time=times, counted=counted)


def _partitions(source: str, unit: str, text: str) -> Series:
    points = _by_partition(lambda metrics: getattr(metrics, source))
    return Series(source, source, _otel(source), unit, Kind.GAUGE, text, points, Scope.PARTITION)


def _gauge(source: str, prometheus: str, unit: str, text: str, read: Callable[[Health], float | None]) -> Series:
    name = _otel(prometheus.removesuffix("_seconds"))
    return Series(f"health().{source}", prometheus, name, unit, Kind.GAUGE, text, _of_health(read))


def _node(field: str, prometheus: str, unit: str, kind: Kind, text: str, otel_time: str = "") -> Series:
    otel = _otel(f"node.{field}")
    return Series(f"nodes[id].{field}", prometheus, otel, unit, kind, text, _by_node(field), Scope.NODE, otel_time)


def _otel(name: str) -> str:
    return OTEL_PREFIX + name


def _age(ms: float | None) -> float | None:
    return None if ms is None else ms / 1e3


SERIES: Final = (
    _counter("polls", "polls", _otel("polls"), "{call}", "Calls for records."),
    _counter(
        "records", "records", "messaging.client.consumed.messages", "{message}", "Records handed to the application."
    ),
    _counter("bytes", "fetched_bytes", _otel("fetched"), "By", "Bytes of record batches fetched, compressed."),
    _latency("fetches", "fetch_seconds", "Answered Fetch requests, with the broker's wait for data."),
    _counter("failed_fetches", "failed_fetches", _otel("failed_fetches"), "{request}", "Fetches without an answer."),
    _latency("joins", "join_seconds", "Answered JoinGroup requests, with the wait for other members."),
    _latency("syncs", "sync_seconds", "Answered SyncGroup requests."),
    _counter(
        "failed_joins", "failed_joins", _otel("failed_joins"), "{request}", "JoinGroup and SyncGroup requests failed."
    ),
    _latency(
        "rebalances",
        "rebalance_seconds",
        "Finished rebalances, from the first step to the assignment.",
        counted="{rebalance}",
    ),
    _latency("heartbeats", "heartbeat_seconds", "Answered heartbeats."),
    _counter("failed_heartbeats", "failed_heartbeats", _otel("failed_heartbeats"), "{request}", "Heartbeats failed."),
    _latency("commits", "commit_seconds", "Answered OffsetCommit requests.", otel=""),
    _counter("failed_commits", "failed_commits", "", "{request}", "OffsetCommit requests failed."),
    _partitions("lag", "{record}", "Offsets between the position and the end of the log."),
    _gauge(
        "assigned", "assigned_partitions", "{partition}", "Partitions that it reads.", lambda now: len(now.assigned)
    ),
    _gauge(
        "last_poll_age_ms",
        "last_poll_age_seconds",
        "s",
        "Since the last call for records ended; 0 while one waits.",
        lambda now: _age(now.last_poll_age_ms),
    ),
    _gauge(
        "last_heartbeat_age_ms",
        "last_heartbeat_age_seconds",
        "s",
        "Since the coordinator last answered a heartbeat.",
        lambda now: _age(now.last_heartbeat_age_ms),
    ),
    _gauge(
        "running and not health().error",
        "up",
        "1",
        "1 while the consumer runs and no error has ended its membership or background, else 0.",
        lambda now: float(now.running and now.error is None),
    ),
    Series(
        "health().group_protocol",
        "group_protocol",
        _otel("group_protocol"),
        "1",
        Kind.GAUGE,
        "1 for the group protocol that the member speaks, by its name.",
        _protocol,
        Scope.PROTOCOL,
    ),
    _gauge(
        "stalled",
        "stalled_partitions",
        "{partition}",
        "Partitions that have brought no records for a minute although there are some.",
        lambda now: sum(ms >= STALL_AFTER_MS for ms in now.stalled.values()),
    ),
    _gauge(
        "missing_topics",
        "missing_topics",
        "{topic}",
        "Topics that it subscribes to by name and that no broker knows.",
        lambda now: len(now.missing_topics),
    ),
    _partitions("lead", "{record}", "Offsets between the start of the log and the position."),
    _partitions("position", "{record}", "The offset of the next record to hand out."),
    _partitions("committed", "{record}", "The offset that the group has committed, as far as the consumer knows."),
    _seconds("poll_wait_ms", "poll_wait_seconds", "Time inside calls for records."),
    _seconds("user_ms", "user_seconds", "Time between calls for records."),
    Series(
        "buffered_bytes",
        "buffered_bytes",
        _otel("buffered_bytes"),
        "By",
        Kind.UP_DOWN,
        "Memory in use for fetched batches.",
        _of_metrics(lambda metrics: metrics.buffered_bytes),
    ),
    Series(
        "buffered_records",
        "buffered_records",
        _otel("buffered_records"),
        "{record}",
        Kind.UP_DOWN,
        "Offsets fetched and not handed out.",
        _of_metrics(lambda metrics: metrics.buffered_records),
    ),
    _node("connected", "node_connected", "1", Kind.GAUGE, "1 while a connection to the broker is open, else 0."),
    _node("connects", "node_connects", "{connection}", Kind.COUNTER, "Connections made to the broker."),
    _node(
        "requests",
        "node_request_seconds",
        "s",
        Kind.LATENCY,
        "Answered requests to the broker, of all kinds.",
        _otel("node.request.time"),
    ),
    _node(
        "throttle",
        "node_throttle_seconds",
        "s",
        Kind.LATENCY,
        "Answers by which the broker throttled this client, and for how long.",
        _otel("node.throttle.time"),
    ),
    _counter(
        "undecodable",
        "deserialization_failures",
        _otel("deserialization_failures"),
        "{record}",
        "Records that a deserializer refused, each attempt counted.",
    ),
    _counter(
        "revoked", "revoked_partitions", _otel("revoked_partitions"), "{partition}", "Partitions given up in order."
    ),
    _counter("lost", "lost_partitions", _otel("lost_partitions"), "{partition}", "Partitions taken away."),
    _latency("listener", "listener_seconds", "Calls of the rebalance listener.", counted="{call}"),
    _latency(
        "loop_lag", "loop_lag_seconds", "How late the event loop ran a timer due every second.", counted="{timer}"
    ),
)
