"""Fixtures of the Spark source's tests: one Spark for all of them, because a session takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from aiokc.testing.kafka import LocalKafka

from .session import start_spark

#: Spark gives the Python process that plans a stream 10 s to start, which no option changes.
SLOW_START = "Python worker failed to connect back"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a test again, with a topic and a folder of its own, where the machine was too busy for Spark's 10 s."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=3, only_rerun=[SLOW_START]))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_spark("aiokc tests", tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


@pytest.fixture
def options(kafka: LocalKafka, topic_name: str) -> Mapping[str, str]:
    """The two options that every query on the test's topic has."""
    return {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic_name}


@pytest.fixture
def topic(kafka: LocalKafka, topic_name: str) -> str:
    """A topic of three partitions."""
    kafka.create_topic(topic_name, partitions=3)
    return topic_name


@pytest.fixture
def read_stream(spark: SparkSession, options: Mapping[str, str]) -> DataStreamReader:
    return spark.readStream.format("aiokc").options(**options)
