"""Exports clients to Prometheus: ``collector(consumer)``, ``producer_collector(producer)``. Needs prometheus-client.

    from aiokc.contrib.prometheus import collector
    from prometheus_client import start_http_server

    start_http_server(9000)
    with collector(consumer):
        ...

Values are read when Prometheus scrapes them, so between two scrapes the export costs nothing.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from .. import Consumer, Producer
from .collectors import ConsumerCollector, ProducerCollector

__all__ = ["ConsumerCollector", "ProducerCollector", "collector", "exposition", "producer_collector"]


def collector(
    *consumers: Consumer[Any, Any],
    registry: CollectorRegistry = REGISTRY,
    per_partition: bool = True,
    nodes: bool = False,
) -> ConsumerCollector:
    """Export ``consumers`` to Prometheus by ``registry``, and return the collector, to which more can be added.

    A registry takes one collector at a time: ``close()``, or the end of a ``with`` block, takes it out again. With
    ``per_partition=False`` lag and lead have one series for each topic (the sum of the lags, the smallest lead), and
    positions and committed offsets have none. ``nodes=True`` adds the series of each broker. Raises ConfigError where
    two consumers have the same client_id and group_id, and where the registry has a collector of consumers already.
    """
    made = ConsumerCollector(registry, per_partition=per_partition, nodes=nodes)
    for consumer in consumers:
        made.add(consumer)
    made.register()
    return made


def producer_collector(*producers: Producer[Any, Any], registry: CollectorRegistry = REGISTRY) -> ProducerCollector:
    """Export ``producers`` to Prometheus by ``registry``, and return the collector, to which more can be added.

    A registry takes one collector of producers at a time, beside one of consumers; it is closed as that one is. Raises
    ConfigError where two producers have the same client_id, and where the registry has a collector of producers
    already.
    """
    made = ProducerCollector(registry)
    for producer in producers:
        made.add(producer)
    made.register()
    return made


def exposition(registry: CollectorRegistry) -> bytes:
    """The registry in the text format of Prometheus."""
    return generate_latest(registry)
