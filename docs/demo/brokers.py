"""What the demo runs on: aiokc's own brokers in Python, or a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from aiokc.testing import Cluster
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.kafka.jars import KAFKA_VERSION

CLUSTER: Final = "cluster"
KAFKA: Final = "kafka"
BROKERS: Final = 3


@dataclass(frozen=True)
class Running:
    """Brokers that answer; ``what`` says in words what they are. Those that ``are_to_stay`` live after the demo."""

    what: str
    kafka: Cluster | LocalKafka
    are_to_stay: bool = False

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap


@contextmanager
def running(kind: str) -> Iterator[Running]:
    """Start brokers, and stop them afterwards. Raises LocalKafkaError: there is no real Kafka to be had."""
    if kind == CLUSTER:
        with Cluster(brokers=BROKERS).in_thread() as cluster:
            yield Running(f"aiokc.testing.Cluster, {BROKERS} brokers in Python, in this process", cluster)
        return
    with LocalKafka() as kafka:
        if kafka.nodes:
            yield Running(f"Apache Kafka {KAFKA_VERSION}", kafka)
        else:
            yield Running("a Kafka that was there (AIOKC_BOOTSTRAP)", kafka, are_to_stay=True)
