"""The two systems under test: the Cluster, and a real Kafka, which must give the same answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from aiokc.testing import Cluster
from aiokc.testing.brokers.apis.table import versions_of
from aiokc.testing.brokers.released_versions import RELEASES
from aiokc.testing.kafka import LocalKafka, libs
from aiokc.testing.kafka.jars import KAFKA_VERSION
from aiokc.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from .groups.group_scene import Scene, open_scene
from .wire_client import WireClient, connected


class Kafka(Protocol):
    """What both have."""

    @property
    def bootstrap(self) -> str: ...
    def create_topic(self, name: str, partitions: int = 1) -> None: ...


@pytest.fixture(scope="session")
def running_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One broker, configured as the real one of the fixture ``kafka``, and of its release where that is an old one."""
    cluster = Cluster(
        auto_create_topics_enable=False,
        group_min_session_timeout_ms=1000,
        group_consumer_session_timeout_ms=6000,
        group_consumer_heartbeat_interval_ms=500,
        as_version=_old_release(request.config) or RELEASES[-1],
    )
    with cluster.in_thread() as running:
        yield running


def _old_release(config: pytest.Config) -> str | None:
    version: str = config.getoption("--kafka")
    return None if version == KAFKA_VERSION else version.rpartition(".")[0]


@pytest.fixture(params=["cluster", pytest.param("kafka", marks=pytest.mark.kafka)])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kafka:
    """The Cluster, then a real Kafka."""
    release = _old_release(request.config)
    if release is not None:
        monkeypatch.setattr(WireClient, "spoken", versions_of(release))
    name = "running_cluster" if request.param == "cluster" else "kafka"
    found: Cluster | LocalKafka = request.getfixturevalue(name)
    return found


@pytest.fixture
async def topic(either: Kafka, topic_name: str) -> str:
    """A topic of two partitions whose leaders know already that they lead."""
    either.create_topic(topic_name, 2)
    async with connected(either.bootstrap) as client:
        partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic_name, partitions=partitions)])
        while any(one.error_code for one in (await client.ask(request, 7)).topics[0].partitions):
            pass
    return topic_name


@pytest.fixture
async def scene(either: Kafka, topic_name: str) -> AsyncIterator[Scene]:
    """A group that does not exist yet, with a coordinator that is ready."""
    async with open_scene(either.bootstrap, topic_name) as opened:
        yield opened


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own, with the jars of the real one, so that what is left in it can be seen."""
    (tmp_path / libs().parent.name).symlink_to(libs().parent)
    monkeypatch.setenv("AIOKC_KAFKA_HOME", str(tmp_path))
    monkeypatch.delenv("AIOKC_BOOTSTRAP", raising=False)
    return tmp_path
