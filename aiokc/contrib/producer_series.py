"""The series that a producer is exported as: names, kinds, units, and where in its health and metrics they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ..observation import Latency, ProducerHealth, ProducerMetrics
from .series import Kind

#: What the names of Prometheus and most names of OpenTelemetry begin with.
PROMETHEUS_PREFIX: Final = "aiokc_producer_"
OTEL_PREFIX: Final = "aiokc.producer."


class ProducerSample(NamedTuple):
    """A producer at one moment."""

    health: ProducerHealth
    metrics: ProducerMetrics


#: The value of the label, if the series has one, and the value.
ProducerPoint: TypeAlias = "tuple[tuple[str, ...], float | Latency]"


@dataclass(frozen=True, slots=True)
class ProducerSeries:
    """One series. ``name`` has no prefix and no suffix; a latency is in seconds. ``label``: the one that it has."""

    name: str
    kind: Kind
    unit: str
    help: str
    points: Callable[[ProducerSample], Iterator[ProducerPoint]]
    label: str = ""

    @property
    def prometheus(self) -> str:
        return PROMETHEUS_PREFIX + self.name

    @property
    def otel(self) -> str:
        return OTEL_PREFIX + self.name


def _metric(source: str, name: str, kind: Kind, unit: str, text: str) -> ProducerSeries:
    def points(sample: ProducerSample) -> Iterator[ProducerPoint]:
        value = getattr(sample.metrics, source)
        if value is not None:
            yield (), value

    return ProducerSeries(name, kind, unit, text, points)


def _counter(source: str, unit: str, text: str, name: str = "") -> ProducerSeries:
    return _metric(source, name or source, Kind.COUNTER, unit, text)


def _gauge(source: str, unit: str, text: str) -> ProducerSeries:
    return _metric(source, source, Kind.GAUGE, unit, text)


def _failed(sample: ProducerSample) -> Iterator[ProducerPoint]:
    for cause, count in sample.metrics.failed.items():
        yield (cause,), count


def _up(sample: ProducerSample) -> Iterator[ProducerPoint]:
    yield (), float(sample.health.running and sample.health.error is None)


def _oldest(sample: ProducerSample) -> Iterator[ProducerPoint]:
    yield (), (sample.health.oldest_unanswered_age_ms or 0.0) / 1e3


def _troubled(sample: ProducerSample) -> Iterator[ProducerPoint]:
    yield (), len(sample.health.troubled)


PRODUCER_SERIES: Final = (
    _counter("records", "{message}", "Records appended."),
    _counter("acknowledged", "{message}", "Records that brokers have stored."),
    ProducerSeries(
        "failed", Kind.COUNTER, "{message}", "Records that were not stored, or may not be, by cause.", _failed, "cause"
    ),
    _counter("unobserved_failures", "{message}", "Records among those whose failure nobody saw as it came."),
    _counter("batches", "{batch}", "Batches sent, each counted once."),
    _counter("bytes", "By", "Their bytes, compressed.", "sent_bytes"),
    _gauge("batch_fill", "1", "The mean size of a batch as a share of batch_size."),
    _gauge("records_per_batch", "{message}", "Records of a batch, on average."),
    _gauge("compression_ratio", "1", "Bytes sent as a share of what they would be without compression."),
    _metric("linger", "linger_seconds", Kind.LATENCY, "s", "From a batch's first record until it was sent first."),
    _metric("requests", "request_seconds", Kind.LATENCY, "s", "Answered Produce requests."),
    _counter("failed_requests", "{request}", "Produce requests without an answer."),
    _counter("retries", "{batch}", "Attempts at batches beyond the first."),
    _counter("splits", "{batch}", "Batches that were too large, and sent in parts."),
    _counter("expired", "{batch}", "Batches that delivery_timeout_ms has ended."),
    _counter("renumbered", "{batch}", "Batches sent again in another epoch although they may have been stored."),
    _counter("epoch_bumps", "{epoch}", "How often a partition has lost its sequences, and gone on in another epoch."),
    _gauge("buffered_bytes", "By", "Memory of records without an outcome, or whose callbacks were not called yet."),
    _gauge("buffered_records", "{message}", "Records without an outcome."),
    _gauge("memory_waiters", "{call}", "Calls of send() that wait for memory."),
    ProducerSeries("up", Kind.GAUGE, "1", "1 while the producer runs and no error has ended it, else 0.", _up),
    ProducerSeries(
        "oldest_unanswered_seconds", Kind.GAUGE, "s", "Age of the oldest record without an outcome.", _oldest
    ),
    ProducerSeries(
        "troubled_partitions", Kind.GAUGE, "{partition}", "Partitions whose records can't be stored now.", _troubled
    ),
)
