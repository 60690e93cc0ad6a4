"""The settings of topics: the Cluster and a real Kafka take the same values, and describe what holds."""

from __future__ import annotations

from typing import Final

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster
from aiokc.testing.messages.topic_admin import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from aiokc.wire.messages.describing import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)

from ..conftest import Kafka
from ..wire_client import WireClient, connected

TOPIC: Final = 2

VALID: Final = {
    "cleanup.policy": ["compact,delete", "delete , compact", "delete,delete", ""],
    "compression.gzip.level": ["-1", "1", "9"],
    "compression.lz4.level": ["1", "17"],
    "compression.type": ["gzip", " lz4"],
    "compression.zstd.level": ["-131072", "22"],
    "leader.replication.throttled.replicas": ["", "*", "0:1", "0:1,1:2", "0:1,"],
    "max.message.bytes": ["0", "+5", " 5 ", "2147483647"],
    "min.cleanable.dirty.ratio": ["0", "1", "0.5", "NaN"],
    "preallocate": ["true", "TRUE", "True", " true"],
    "remote.storage.enable": ["false"],
    "retention.bytes": ["-1", "-2"],
    "retention.ms": ["-1", "9223372036854775807"],
    "segment.bytes": ["1048576"],
}
INVALID: Final = {
    "cleanup.policy": ["compacted", "delete,"],
    "cleanup_policy": ["delete"],
    "compression.gzip.level": ["0", "10", "100", "-2"],
    "compression.lz4.level": ["0", "18"],
    "compression.type": ["none", "GZIP"],
    "compression.zstd.level": ["23"],
    "follower.replication.throttled.replicas": ["abc", "0:1,*"],
    "max.message.bytes": ["-1", "2147483648", "5_0", "5.0", ""],
    "min.cleanable.dirty.ratio": ["-0.1", "1.1", "half"],
    "preallocate": ["yes", "1", ""],
    "remote.storage.enable": ["true"],
    "retention.ms": ["-2", "9223372036854775808", "for ever"],
    "segment.bytes": ["1024", "1048575", "2147483648"],
}


async def _codes(client: WireClient, *configs: dict[str, str]) -> list[int]:
    """Return how the controller answers each configuration, without making a topic."""
    topics = [
        CreatableTopic(
            name=f"settings-{number}",
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in config.items()],
        )
        for number, config in enumerate(configs)
    ]
    answer = await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=True))
    by_name = {topic.name: topic.error_code for topic in answer.topics}
    return [by_name[topic.name] for topic in topics]


@pytest.mark.parametrize(
    ("table", "expected"), [(VALID, ErrorCode.NONE), (INVALID, ErrorCode.INVALID_CONFIG)], ids=["valid", "invalid"]
)
async def test_values(either: Kafka, table: dict[str, list[str]], expected: ErrorCode) -> None:
    asked = [(name, value) for name, values in table.items() for value in values]
    async with connected(either.bootstrap) as client:
        codes = await _codes(client, *({name: value} for name, value in asked))
    assert [one for one, code in zip(asked, codes, strict=True) if code != expected] == []


async def test_lags_that_contradict_each_other(either: Kafka) -> None:
    lags = {"min.compaction.lag.ms": "20", "max.compaction.lag.ms": "10"}
    async with connected(either.bootstrap) as client:
        assert await _codes(client, lags) == [ErrorCode.INVALID_CONFIG]


async def _described(client: WireClient, topic: str, setting: str) -> DescribeConfigsResourceResult:
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[setting])
    answer = await client.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=True))
    (found,) = answer.results[0].configs
    return found


async def test_a_default_of_the_cluster_is_described() -> None:
    async with Cluster(message_max_bytes=500, topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        cluster.create_topic("own", config={"max.message.bytes": "600"})
        default = await _described(client, "events", "max.message.bytes")
        own = await _described(client, "own", "max.message.bytes")
        other = await _described(client, "events", "message.timestamp.after.max.ms")
    assert (default.value, default.config_source) == ("500", 4)
    assert [(one.name, one.value, one.source) for one in own.synonyms] == [
        ("max.message.bytes", "600", 1),
        ("message.max.bytes", "500", 4),
        ("message.max.bytes", "1048588", 5),
    ]
    assert (own.value, own.config_source) == ("600", 1)
    assert (other.value, other.config_source) == ("3600000", 5)
