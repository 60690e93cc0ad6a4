"""What a test of the cluster runs against: the cluster, and a real Kafka, which must give the same answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from aiokc.testing import Cluster
from aiokc.testing.kafka import LocalKafka, libs

from .group_scene import Scene, open_scene


class Kafka(Protocol):
    """What both have."""

    @property
    def bootstrap(self) -> str: ...
    def create_topic(self, name: str, partitions: int = 1) -> None: ...


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[Cluster]:
    """One broker, configured as the real one of the fixture ``kafka``."""
    with Cluster(auto_create_topics_enable=False, group_min_session_timeout_ms=1000).in_thread() as cluster:
        yield cluster


@pytest.fixture(params=["cluster", pytest.param("kafka", marks=pytest.mark.kafka)])
def either(request: pytest.FixtureRequest) -> Kafka:
    """The cluster, then a real Kafka."""
    name = "running_cluster" if request.param == "cluster" else "kafka"
    found: Cluster | LocalKafka = request.getfixturevalue(name)
    return found


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
