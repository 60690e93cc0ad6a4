"""The table of released versions agrees with the installed jar; and a cluster is as old as it says."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

import aiokc
from aiokc.testing import Cluster
from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.brokers.apis.table import versions_of
from aiokc.testing.brokers.released_versions import RELEASES, SINCE
from aiokc.testing.kafka.jars import KAFKA_VERSION, libs
from aiokc.wire.messages.discovery import ApiVersionsRequest
from tests.producing import produce

from ..wire_client import connected
from .extract_versions import versions_in


@pytest.mark.kafka
def test_the_table_says_what_the_jar_says() -> None:
    release = KAFKA_VERSION.rpartition(".")[0]
    until = RELEASES[: RELEASES.index(release) + 1]
    said = {key: [spans[one] for one in until if one in spans][-1] for key, spans in SINCE.items()}
    assert versions_in(libs() / f"kafka-clients-{KAFKA_VERSION}.jar") == said


def test_no_release_takes_an_api_away() -> None:
    for older, newer in pairwise(RELEASES):
        assert versions_of(older).keys() <= versions_of(newer).keys()


def test_a_release_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"as_version='1\.0': the releases are 2\.1, "):
        Cluster(as_version="1.0")


async def test_old_brokers_advertise_less() -> None:
    async with Cluster(as_version="2.1") as cluster, connected(cluster.bootstrap) as client:
        answer = await client.ask(ApiVersionsRequest(), 2)
    newest = {one.api_key: one.max_version for one in answer.api_keys}
    assert (newest[ApiKey.FETCH], newest[ApiKey.METADATA], newest[ApiKey.PRODUCE]) == (10, 7, 7)
    assert ApiKey.DESCRIBE_CLUSTER not in newest


@pytest.mark.parametrize("release", RELEASES)
def test_clients_speak_with_a_broker_of_each_release(release: str) -> None:
    values = [f"{number}".encode() for number in range(10)]
    with Cluster(as_version=release, topics={"events": 1}).in_thread() as cluster:
        produce(cluster.bootstrap, "events", values)
        with asyncio.Runner() as runner:
            assert runner.run(_read(cluster.bootstrap)) == values


async def _read(bootstrap: str) -> list[bytes | None]:
    partition = aiokc.TopicPartition("events", 0)
    async with aiokc.Client(bootstrap_servers=bootstrap) as client:
        return [record.value async for some in client.read({partition: (0, 10)}) for record in some.records]
