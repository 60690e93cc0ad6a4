"""Administration of topics, brokers, coordinators and groups: the Cluster and a real Kafka answer the same."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing.messages.topic_admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from aiokc.wire.messages.describing import DescribeClusterRequest
from aiokc.wire.messages.discovery import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from aiokc.wire.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest

from ..conftest import Kafka
from ..groups.group_scene import Scene
from ..questions import NO_ID, NOT_YET, offset_at, topic_id_of
from ..wire_client import WireClient, connected

pytestmark = pytest.mark.every_kafka

INVALID_REQUEST: Final = ErrorCode.INVALID_REQUEST
BAD_ASSIGNMENT: Final = ErrorCode.INVALID_REPLICA_ASSIGNMENT


def _new(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assigned: dict[int, list[int]] | None = None,
    config: dict[str, str] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assigned or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()],
    )


async def _created(client: WireClient, *topics: CreatableTopic, version: int = 7) -> list[tuple[int, int, int]]:
    answer = await client.ask(CreateTopicsRequest(topics=list(topics), timeout_ms=10_000), version)
    return [(ErrorCode(one.error_code), one.num_partitions, one.replication_factor) for one in answer.topics]


NEW: Final[dict[str, tuple[dict[str, Any], ErrorCode]]] = {
    "assigned and counted": ({"assigned": {0: [1]}}, INVALID_REQUEST),
    "a gap": ({"partitions": -1, "factor": -1, "assigned": {1: [1]}}, BAD_ASSIGNMENT),
    "an unknown broker": ({"partitions": -1, "factor": -1, "assigned": {0: [99]}}, BAD_ASSIGNMENT),
    "no broker": ({"partitions": -1, "factor": -1, "assigned": {0: []}}, BAD_ASSIGNMENT),
    "a broker twice": ({"partitions": -1, "factor": -1, "assigned": {0: [1, 1]}}, BAD_ASSIGNMENT),
    "an unknown setting": ({"config": {"no.such": "1"}}, ErrorCode.INVALID_CONFIG),
    "no number": ({"config": {"max.message.bytes": "x"}}, ErrorCode.INVALID_CONFIG),
    "too small a number": ({"config": {"min.insync.replicas": "0"}}, ErrorCode.INVALID_CONFIG),
    "no such policy": ({"config": {"cleanup.policy": "keep"}}, ErrorCode.INVALID_CONFIG),
    "no such timestamp type": ({"config": {"message.timestamp.type": "Mine"}}, ErrorCode.INVALID_CONFIG),
    "no replica": ({"factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "-2 replicas": ({"factor": -2}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "-2 partitions": ({"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
}


# A controller with ZooKeeper creates such topics, without a leader, or merges a name that is there twice.
kraft = pytest.mark.every_kafka(since="3.3")


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[kraft] * (what in ("an unknown broker", "no broker"))) for what in NEW]
)
async def test_a_topic_that_is_not_created(either: Kafka, topic_name: str, what: str) -> None:
    options, code = NEW[what]
    async with connected(either.bootstrap) as client:
        assert await _created(client, _new(topic_name, **options)) == [(code, -1, -1)]


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "with space"])
async def test_names_that_are_none(either: Kafka, name: str) -> None:
    async with connected(either.bootstrap) as client:
        assert await _created(client, _new(name)) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1, -1)]


@kraft
async def test_topics_that_are_created(either: Kafka, topic_name: str) -> None:
    a, b, c = f"{topic_name}.a", f"{topic_name}.b", f"{topic_name}.c"
    async with connected(either.bootstrap) as client:
        assert await _created(client, _new(a), _new(a)) == [(INVALID_REQUEST, -1, -1)]
        assert await _created(client, _new(a, -1, -1)) == [(0, 1, 1)]
        assert await _created(client, _new(b, -1, -1, {0: [1], 1: [1]})) == [(0, 2, 1)]
        assert await _created(client, _new(c, config={"retention.ms": "-1", "cleanup.policy": "compact,delete"})) == [
            (0, 1, 1)
        ]
        collision = a.replace(".a", "_a")
        assert await _created(client, _new(collision)) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1, -1)]


@pytest.mark.parametrize(
    ("count", "assigned", "times", "code"),
    [
        (4, [[1]], 1, BAD_ASSIGNMENT),
        (3, [[99]], 1, BAD_ASSIGNMENT),
        (3, [[]], 1, BAD_ASSIGNMENT),
        (3, [[1, 1]], 1, BAD_ASSIGNMENT),
        (3, None, 2, INVALID_REQUEST),
        (0, None, 1, ErrorCode.INVALID_PARTITIONS),
        (3, [[1]], 1, ErrorCode.NONE),
    ],
)
async def test_partitions_to_add(
    either: Kafka, topic: str, count: int, assigned: list[list[int]] | None, times: int, code: ErrorCode
) -> None:
    assignments = None if assigned is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=assignments)
    async with connected(either.bootstrap) as client:
        for validate_only in (True, False):
            request = CreatePartitionsRequest(topics=[wanted] * times, timeout_ms=10_000, validate_only=validate_only)
            assert [one.error_code for one in (await client.ask(request)).results] == [code]


@kraft
async def test_topics_that_cannot_be_deleted_like_this(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        topic_id = await topic_id_of(client, topic)

        async def deleted(*asked: tuple[str | None, UUID]) -> list[int]:
            states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in asked]
            answer = await client.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6)
            return [one.error_code for one in answer.responses]

        assert await deleted((topic, topic_id)) == [INVALID_REQUEST]
        assert await deleted((topic, NO_ID), (topic, NO_ID)) == [INVALID_REQUEST]
        assert await deleted((topic, NO_ID), (None, topic_id)) == [INVALID_REQUEST]
        assert await deleted() == []
        by_name = DeleteTopicsRequest(topic_names=[topic + "-none"], timeout_ms=10_000)
        answer = await client.ask(by_name, 5)
        assert [one.error_code for one in answer.responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_records_that_cannot_be_deleted(either: Kafka, topic: str) -> None:
    compacted = topic + "-compacted"
    async with connected(either.bootstrap) as client:
        assert await _created(client, _new(compacted, config={"cleanup.policy": "compact"})) == [(0, 1, 1)]
        while (await offset_at(client, compacted, -1)).error_code:
            pass

        async def trimmed(name: str, offset: int) -> tuple[int, int]:
            wanted = DeleteRecordsTopic(
                name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
            answer = await client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=10_000))
            (found,) = answer.topics[0].partitions
            return found.error_code, found.low_watermark

        assert await trimmed(compacted, 0) == (ErrorCode.POLICY_VIOLATION, -1)
        assert await trimmed(topic, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await trimmed(topic + "-none", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


# The cluster


@pytest.mark.parametrize(
    ("version", "endpoint_type", "code"),
    [
        (0, 1, ErrorCode.NONE),
        (1, 1, ErrorCode.NONE),
        (2, 1, ErrorCode.NONE),
        pytest.param(1, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE, marks=pytest.mark.every_kafka(since="3.7")),
        pytest.param(2, 7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, marks=pytest.mark.every_kafka(since="3.7")),
    ],
)
async def test_a_description_of_the_cluster(either: Kafka, version: int, endpoint_type: int, code: ErrorCode) -> None:
    found = []
    async with connected(either.bootstrap) as client:
        for wants in (False, True):
            request = DescribeClusterRequest(include_cluster_authorized_operations=wants, endpoint_type=endpoint_type)
            found.append(await client.ask(request, version))
    assert {one.error_code for one in found} == {code}
    assert {len(one.brokers) for one in found} == {0 if code else 1}
    allowed = [one.cluster_authorized_operations for one in found]
    assert allowed == [-2147483648, -2147483648 if code else 8096]


async def test_what_metadata_says_when_asked_oddly(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:

        async def asked(*names: str, version: int = 12, **options: bool) -> Any:
            topics = [MetadataRequestTopic(name=name) for name in names]
            return await client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False, **options), version)

        assert [one.name for one in (await asked(topic, topic)).topics] == [topic]
        assert [one.error_code for one in (await asked("")).topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        (found,) = (await asked(topic, include_topic_authorized_operations=True)).topics
        assert found.topic_authorized_operations == 3576
        answer = await asked(topic, version=10, include_cluster_authorized_operations=True)
        assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize("version", [10, 11])
async def test_metadata_has_no_topics_by_id_before_version_12(either: Kafka, topic: str, version: int) -> None:
    """KIP-516: the request has room for ids already, and a broker refuses the whole request if it uses them."""
    async with connected(either.bootstrap) as client:
        topic_id = await topic_id_of(client, topic)
        by_id = MetadataRequestTopic(name=None, topic_id=topic_id)
        by_both = MetadataRequestTopic(name=topic, topic_id=topic_id)
        by_none = MetadataRequestTopic(name=None)
        by_name = MetadataRequestTopic(name=topic)
        for asked in ([by_id], [by_none], [by_both], [by_name, by_id]):
            answer = await client.ask(MetadataRequest(topics=asked), version)
            assert [one.error_code for one in answer.topics] == [INVALID_REQUEST] * len(asked)
            assert [one.name for one in answer.topics] == [one.name or "" for one in asked]
            assert (answer.brokers, answer.controller_id, answer.cluster_id) == ([], -1, None)


@pytest.mark.every_kafka(since="4.0")
async def test_the_feature_by_which_producers_go(either: Kafka) -> None:
    """KIP-890. Other features exist in a real Kafka alone. Version 3 cannot name a feature that may be off."""
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    async with connected(either.bootstrap) as client:
        old, new = await client.ask(request, 3), await client.ask(request, 4)
    for answer, supported in ((old, []), (new, [(0, 2)])):
        name = "transaction.version"
        found = [(one.min_version, one.max_version) for one in answer.supported_features if one.name == name]
        on = [(one.min_version_level, one.max_version_level) for one in answer.finalized_features if one.name == name]
        assert (found, on) == (supported, [(2, 2)])


# Coordinators and groups

several_keys = pytest.mark.every_kafka(since="3.0")  # KIP-699


@pytest.mark.parametrize(
    ("version", "key_type", "key", "code"),
    [
        (0, 0, "g", ErrorCode.NONE),
        (3, 0, "", ErrorCode.NONE),
        (3, 1, "t", ErrorCode.NONE),
        (3, 7, "g", INVALID_REQUEST),
        pytest.param(4, 0, "", ErrorCode.NONE, marks=several_keys),
        pytest.param(4, 1, "", ErrorCode.NONE, marks=several_keys),
        pytest.param(6, 0, "g", ErrorCode.NONE, marks=several_keys),
        pytest.param(6, 1, "t", ErrorCode.NONE, marks=several_keys),
        pytest.param(4, 2, "g", INVALID_REQUEST, marks=several_keys),
        pytest.param(6, 2, "g", INVALID_REQUEST, marks=pytest.mark.every_kafka(since="4.0")),
        pytest.param(6, 7, "g", INVALID_REQUEST, marks=several_keys),
    ],
)
async def test_finding_a_coordinator(either: Kafka, version: int, key_type: int, key: str, code: ErrorCode) -> None:
    request = FindCoordinatorRequest(
        key_type=key_type, **({"coordinator_keys": [key]} if version >= 4 else {"key": key})
    )
    async with connected(either.bootstrap) as client:
        while True:
            answer = await client.ask(request, version)
            found = answer.coordinators[0] if version >= 4 else answer
            if found.error_code not in NOT_YET:
                break
    assert (found.error_code, found.node_id) == (code, -1 if code else 1)
    assert (found.host, found.port) == (("", -1) if code else ("127.0.0.1", int(either.bootstrap.rpartition(":")[2])))
    if not code and version > 0:
        assert found.error_message == ("" if version >= 4 else "NONE")


@pytest.mark.every_kafka(since="4.0")
async def test_groups_that_do_not_exist(scene: Scene) -> None:
    client, none = scene.admin, scene.group + "-none"
    for states, types in ((["bogus"], []), ([], ["bogus"]), (["Dead"], [])):
        listed = await client.ask(ListGroupsRequest(states_filter=states, types_filter=types))
        assert (listed.error_code, listed.groups) == (0, [])
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[none, ""])
    while any(one.error_code for one in (await client.ask(find, 4)).coordinators):
        pass
    while (await client.ask(DescribeGroupsRequest(groups=[none]))).groups[0].error_code in NOT_YET:
        pass
    deleted = await client.ask(DeleteGroupsRequest(groups_names=[none, none]))
    assert [one.error_code for one in deleted.results] == [ErrorCode.GROUP_ID_NOT_FOUND]
    described = await client.ask(DescribeGroupsRequest(groups=[none, none]))
    assert [one.error_code for one in described.groups] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


@pytest.mark.parametrize("wanted", [False, pytest.param(True, marks=pytest.mark.every_kafka(since="4.0"))])
async def test_what_one_may_do_to_a_group(scene: Scene, wanted: bool) -> None:
    await scene.stable()
    request = DescribeGroupsRequest(groups=[scene.group], include_authorized_operations=wanted)
    (found,) = (await scene.admin.ask(request)).groups
    assert (found.error_code, found.authorized_operations) == (0, 3400 if wanted else -2147483648)
