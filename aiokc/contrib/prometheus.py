"""Exports clients to Prometheus: ``collector(consumer)``, ``producer_collector(producer)``. Needs prometheus-client.

    from aiokc.contrib.prometheus import collector
    from prometheus_client import start_http_server

    collector(consumer)
    start_http_server(9000)

Values are read when Prometheus scrapes them, so between two scrapes the export costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from weakref import ref

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from .. import Consumer, Producer
from ..errors import ConfigError
from ..observation import Latency
from .producer_prometheus import ProducerCollector
from .series import PROMETHEUS_PREFIX, SERIES, Kind, Sample, Scope, Series

__all__ = ["ConsumerCollector", "ProducerCollector", "collector", "exposition", "producer_collector"]

_LABELS: Final = ("client_id", "group")


class ConsumerCollector(Collector):
    """A custom collector of prometheus_client for the consumers that were added. It keeps no consumer alive."""

    def __init__(self, registry: CollectorRegistry, *, per_partition: bool, nodes: bool) -> None:
        self._registry = registry
        self._per_partition = per_partition
        self._series = [series for series in SERIES if nodes or series.scope is not Scope.NODE]
        self._consumers: dict[tuple[str, str], ref[Consumer[Any, Any]]] = {}

    def add(self, consumer: Consumer[Any, Any]) -> None:
        """Export ``consumer`` too. Raises ConfigError if a living one has the same client_id and group_id."""
        labels = consumer.config.client_id or "", consumer.config.group_id or ""
        known = self._consumers.get(labels)
        if known is not None and known() not in (None, consumer):
            raise ConfigError(
                f"two consumers have client_id={labels[0]!r} and group_id={labels[1]!r}: Prometheus could not tell "
                "their series apart; give each a client_id of its own"
            )
        self._consumers[labels] = ref(consumer)

    def remove(self, consumer: Consumer[Any, Any]) -> None:
        """Export ``consumer`` no longer."""
        self._consumers = {labels: known for labels, known in self._consumers.items() if known() is not consumer}

    def close(self) -> None:
        """Take the collector out of its registry."""
        self._registry.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """The families without values, so that the registry knows their names before any consumer has them."""
        return self._families({})

    def collect(self) -> Iterator[Metric]:
        """Read all consumers, and yield their families. Any thread may call it."""
        alive = {labels: consumer for labels, known in list(self._consumers.items()) if (consumer := known())}
        return self._families(
            {
                labels: Sample(consumer.health(), consumer.metrics(per_partition=self._per_partition))
                for labels, consumer in alive.items()
            }
        )

    def _families(self, samples: dict[tuple[str, str], Sample]) -> Iterator[Metric]:
        for series in self._series:
            yield from self._family(series, samples)

    def _family(self, series: Series, samples: dict[tuple[str, str], Sample]) -> Iterator[Metric]:
        name, labels = PROMETHEUS_PREFIX + series.prometheus, [*_LABELS, *self._names(series)]
        points = [
            ([*identity, *where], value)
            for identity, sample in samples.items()
            for where, value in series.points(sample)
        ]
        if series.kind is Kind.LATENCY:
            summary = SummaryMetricFamily(name, series.help, labels=labels)
            longest = GaugeMetricFamily(f"{name}_max", f"{series.help} The longest so far.", labels=labels)
            for where, value in points:
                assert isinstance(value, Latency)
                summary.add_metric(where, value.count, value.total_ms / 1e3)
                longest.add_metric(where, value.max_ms / 1e3)
            yield summary
            yield longest
            return
        make = CounterMetricFamily if series.kind is Kind.COUNTER else GaugeMetricFamily
        family = make(name, series.help, labels=labels)
        for where, value in points:
            assert not isinstance(value, Latency)
            family.add_metric(where, float(value))
        yield family

    def _names(self, series: Series) -> tuple[str, ...]:
        return ("topic",) if series.scope is Scope.PARTITION and not self._per_partition else series.scope.value


def collector(
    *consumers: Consumer[Any, Any],
    registry: CollectorRegistry = REGISTRY,
    per_partition: bool = True,
    nodes: bool = False,
) -> ConsumerCollector:
    """Export ``consumers`` to Prometheus by ``registry``, and return the collector, to which more can be added.

    A registry takes one collector. With ``per_partition=False`` lag and lead have one series for each topic (the sum of
    the lags, the smallest lead), and positions and committed offsets have none. ``nodes=True`` adds the series of each
    broker. Raises ConfigError where two consumers have the same client_id and group_id, ValueError where the registry
    has a collector of consumers already.
    """
    made = ConsumerCollector(registry, per_partition=per_partition, nodes=nodes)
    for consumer in consumers:
        made.add(consumer)
    registry.register(made)
    return made


def producer_collector(*producers: Producer[Any, Any], registry: CollectorRegistry = REGISTRY) -> ProducerCollector:
    """Export ``producers`` to Prometheus by ``registry``, and return the collector, to which more can be added.

    A registry takes one collector of producers, beside one of consumers. Raises ConfigError where two producers have
    the same client_id, ValueError where the registry has a collector of producers already.
    """
    made = ProducerCollector(registry)
    for producer in producers:
        made.add(producer)
    registry.register(made)
    return made


def exposition(registry: CollectorRegistry) -> bytes:
    """The registry in the text format of Prometheus."""
    return generate_latest(registry)
