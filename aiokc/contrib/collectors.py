"""Exports producers to Prometheus: ``producer_collector(producer)`` of aiokc.contrib.prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import ref

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from .. import Producer
from ..errors import ConfigError
from ..observation import Latency
from .producer_series import PRODUCER_SERIES, ProducerSample, ProducerSeries
from .series import Kind


class ProducerCollector(Collector):
    """A custom collector of prometheus_client for the producers that were added. It keeps no producer alive."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._producers: dict[str, ref[Producer[Any, Any]]] = {}

    def add(self, producer: Producer[Any, Any]) -> None:
        """Export ``producer`` too. Raises ConfigError if a living one has the same client_id."""
        name = producer.config.client_id or ""
        known = self._producers.get(name)
        if known is not None and known() not in (None, producer):
            raise ConfigError(
                f"two producers have client_id={name!r}: Prometheus could not tell their series apart; give each a "
                "client_id of its own"
            )
        self._producers[name] = ref(producer)

    def remove(self, producer: Producer[Any, Any]) -> None:
        """Export ``producer`` no longer."""
        self._producers = {name: known for name, known in self._producers.items() if known() is not producer}

    def close(self) -> None:
        """Take the collector out of its registry."""
        self._registry.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """The families without values, so that the registry knows their names before any producer has them."""
        return self._families({})

    def collect(self) -> Iterator[Metric]:
        """Read all producers, and yield their families. Any thread may call it."""
        alive = {name: producer for name, known in list(self._producers.items()) if (producer := known())}
        return self._families(
            {name: ProducerSample(producer.health(), producer.metrics()) for name, producer in alive.items()}
        )

    def _families(self, samples: dict[str, ProducerSample]) -> Iterator[Metric]:
        for series in PRODUCER_SERIES:
            yield from _family(series, samples)


def _family(series: ProducerSeries, samples: dict[str, ProducerSample]) -> Iterator[Metric]:
    name, labels = series.prometheus, ["client_id", *([series.label] if series.label else [])]
    points = [([client, *where], value) for client, sample in samples.items() for where, value in series.points(sample)]
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
