"""The two brokers: the Cluster, and a real Kafka with the same settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokc.testing import Cluster
from aiokc.testing.kafka import LocalKafka

from .readers import Broker


@pytest.fixture(scope="session")
def cluster_like_kafka() -> Iterator[Cluster]:
    """One broker in a thread of its own, configured as the real one of the fixture ``kafka``."""
    cluster = Cluster(
        auto_create_topics_enable=False,
        group_min_session_timeout_ms=1000,
        group_consumer_session_timeout_ms=6000,
        group_consumer_heartbeat_interval_ms=500,
    )
    with cluster.in_thread() as running:
        yield running


@pytest.fixture(params=["cluster", pytest.param("kafka", marks=pytest.mark.kafka)])
def broker(request: pytest.FixtureRequest) -> Broker:
    name = "cluster_like_kafka" if request.param == "cluster" else "kafka"
    found: Cluster | LocalKafka = request.getfixturevalue(name)
    return found
