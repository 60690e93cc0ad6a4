"""The pytest plugin: fixtures that start an embedded cluster for each test, or one for the whole session.

    async def test_my_handler(kafka_cluster):
        kafka_cluster.create_topic("events")
        kafka_cluster.append("events", b"a record")
        ... kafka_cluster.bootstrap ...

The clusters run in threads of their own. The fixtures therefore keep no object of a test's loop across a yield, and
they work with pytest-asyncio, with anyio's plugin and without either. A test that wants the brokers in its own loop
writes ``async with Cluster() as cluster:``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from .cluster.embedded_cluster import Cluster

_DEFAULTS: Final[dict[str, Any]] = {"brokers": 3}


@pytest.fixture(scope="session")
def kafka_cluster_options() -> dict[str, Any]:
    """The keyword arguments of ``Cluster``. Override it in a conftest.py; without ``brokers`` there are three."""
    return {}


@pytest.fixture
def kafka_cluster(kafka_cluster_options: dict[str, Any]) -> Iterator[Cluster]:
    """A cluster for this test alone, started in a few milliseconds; no other test sees its faults."""
    from . import Cluster

    with Cluster(**_DEFAULTS | kafka_cluster_options).in_thread() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def shared_kafka_cluster(kafka_cluster_options: dict[str, Any]) -> Iterator[Cluster]:
    """One cluster for all tests of the session: use topic and group names of your own, and inject no faults."""
    from . import Cluster

    with Cluster(**_DEFAULTS | kafka_cluster_options).in_thread() as cluster:
        yield cluster
