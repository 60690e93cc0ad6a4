"""The collectors of aiokc.contrib.prometheus: what a registry asks for the values of consumers, or of producers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, Generic, Self, TypeVar
from weakref import ref

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from .. import Consumer, Producer
from ..errors import ConfigError
from ..observation import Latency
from .producer_series import PRODUCER_SERIES, ProducerSample
from .series import PROMETHEUS_PREFIX, SERIES, Kind, Sample, Scope, Series, Value, has_ended

C = TypeVar("C", Consumer[Any, Any], Producer[Any, Any])

_CONSUMER_LABELS: Final = ("client_id", "group")
_PRODUCER_LABELS: Final = ("client_id",)


class _Exported(Generic[C]):
    """The clients of one collector, by the values of their labels. None of them is kept alive."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._clients: dict[tuple[str, ...], ref[C]] = {}

    def add(self, client: C, **options: str | None) -> None:
        """``options``: those of its configuration that the labels have. Raises ConfigError if they are not its own."""
        labels = tuple(option or "" for option in options.values())
        known = self._clients.get(labels)
        other = None if known is None else known()
        if other is not None and other is not client and not has_ended(other):
            both = " and ".join(f"{name}={label!r}" for name, label in zip(options, labels, strict=True))
            raise ConfigError(
                f"two {self._kind} have {both}: Prometheus could not tell their series apart; give each a client_id of "
                "its own"
            )
        alive = {one: kept for one, kept in self._clients.items() if kept() is not None}
        self._clients = alive | {labels: ref(client)}

    def remove(self, client: C) -> None:
        self._clients = {labels: known for labels, known in self._clients.items() if known() is not client}

    def alive(self) -> list[tuple[tuple[str, ...], C]]:
        return [(labels, client) for labels, known in list(self._clients.items()) if (client := known())]


def _families(
    name: str, kind: Kind, text: str, labels: Sequence[str], points: Iterable[tuple[Sequence[str], Value]]
) -> Iterator[Metric]:
    """The families of one series, with its points: the values of its labels, and the value. A latency has two."""
    if kind is Kind.LATENCY:
        summary = SummaryMetricFamily(name, text, labels=labels)
        longest = GaugeMetricFamily(f"{name}_max", f"{text} The longest so far.", labels=labels)
        for where, value in points:
            assert isinstance(value, Latency)
            summary.add_metric(where, value.count, value.total_ms / 1e3)
            longest.add_metric(where, value.max_ms / 1e3)
        yield summary
        yield longest
        return
    make = CounterMetricFamily if kind is Kind.COUNTER else GaugeMetricFamily
    family = make(name, text, labels=labels)
    for where, value in points:
        assert not isinstance(value, Latency)
        family.add_metric(where, float(value))
    yield family


class ClientCollector(Collector):
    """A collector in a registry, from ``register`` to ``close``, which is also the end of a ``with`` block."""

    #: What it collects, for messages.
    kind: ClassVar[str]
    #: The call that makes one, for messages.
    made_by: ClassVar[str]

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._is_registered = False

    def register(self) -> None:
        """Put the collector into its registry. Raises ConfigError where that has series of the same names."""
        try:
            self._registry.register(self)
        except ValueError:  # of thousands of characters: all names
            raise ConfigError(
                f"the registry has series of {self.kind} already, of a collector that nobody has closed: add() to that "
                f"one, close() it, or let a block end it, as in `with {self.made_by}:`"
            ) from None
        self._is_registered = True

    def close(self) -> None:
        """Take the collector out of its registry. Calls after the first one do nothing."""
        if self._is_registered:
            self._is_registered = False
            self._registry.unregister(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ConsumerCollector(ClientCollector):
    """A custom collector of prometheus_client for the consumers that were added. It keeps no consumer alive."""

    kind = "consumers"
    made_by = "collector(consumer)"

    def __init__(self, registry: CollectorRegistry, *, per_partition: bool, nodes: bool) -> None:
        super().__init__(registry)
        self._per_partition = per_partition
        self._series = [series for series in SERIES if nodes or series.scope is not Scope.NODE]
        self._consumers: _Exported[Consumer[Any, Any]] = _Exported(self.kind)

    def add(self, consumer: Consumer[Any, Any]) -> None:
        """Export ``consumer`` too. Raises ConfigError if a living one has the same client_id and group_id."""
        self._consumers.add(consumer, client_id=consumer.config.client_id, group_id=consumer.config.group_id)

    def remove(self, consumer: Consumer[Any, Any]) -> None:
        """Export ``consumer`` no longer."""
        self._consumers.remove(consumer)

    def describe(self) -> Iterator[Metric]:
        """The families without values, so that the registry knows their names before any consumer has them."""
        return self._all([])

    def collect(self) -> Iterator[Metric]:
        """Read all consumers, and yield their families. Any thread may call it."""
        return self._all(
            [
                (labels, Sample(consumer.health(), consumer.metrics(per_partition=self._per_partition)))
                for labels, consumer in self._consumers.alive()
            ]
        )

    def _all(self, samples: Sequence[tuple[tuple[str, ...], Sample]]) -> Iterator[Metric]:
        for series in self._series:
            points = (
                ([*labels, *where], value) for labels, sample in samples for where, value in series.points(sample)
            )
            names = [*_CONSUMER_LABELS, *self._names(series)]
            yield from _families(PROMETHEUS_PREFIX + series.prometheus, series.kind, series.help, names, points)

    def _names(self, series: Series) -> tuple[str, ...]:
        return ("topic",) if series.scope is Scope.PARTITION and not self._per_partition else series.scope.value


class ProducerCollector(ClientCollector):
    """A custom collector of prometheus_client for the producers that were added. It keeps no producer alive."""

    kind = "producers"
    made_by = "producer_collector(producer)"

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._producers: _Exported[Producer[Any, Any]] = _Exported(self.kind)

    def add(self, producer: Producer[Any, Any]) -> None:
        """Export ``producer`` too. Raises ConfigError if a living one has the same client_id."""
        self._producers.add(producer, client_id=producer.config.client_id)

    def remove(self, producer: Producer[Any, Any]) -> None:
        """Export ``producer`` no longer."""
        self._producers.remove(producer)

    def describe(self) -> Iterator[Metric]:
        """The families without values, so that the registry knows their names before any producer has them."""
        return self._all([])

    def collect(self) -> Iterator[Metric]:
        """Read all producers, and yield their families. Any thread may call it."""
        return self._all(
            [
                (labels, ProducerSample(producer.health(), producer.metrics()))
                for labels, producer in self._producers.alive()
            ]
        )

    def _all(self, samples: Sequence[tuple[tuple[str, ...], ProducerSample]]) -> Iterator[Metric]:
        for series in PRODUCER_SERIES:
            points = (
                ([*labels, *where], value) for labels, sample in samples for where, value in series.points(sample)
            )
            names = [*_PRODUCER_LABELS, *([series.label] if series.label else [])]
            yield from _families(series.prometheus, series.kind, series.help, names, points)
