"""The offsets of a group at the Cluster and at a real Kafka: what was committed is what is fetched."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.wire.messages.group_admin import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokc.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from aiokc.wire.primitives import NO_UUID

from .group_scene import Scene
from .group_transactions import Transaction

pytestmark = pytest.mark.every_kafka

by_topic_id = pytest.mark.every_kafka(since="4.2")
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


async def _fetch(scene: Scene, version: int = 9, *, all_topics: bool = False, **options: Any) -> Any:
    """Fetch the offsets of both partitions; return the answer's group."""
    wanted = OffsetFetchRequestTopics(name=scene.topic, partition_indexes=[0, 1])
    if version >= 10:
        wanted = OffsetFetchRequestTopics(topic_id=scene.topic_id, partition_indexes=[0, 1])
    group = OffsetFetchRequestGroup(group_id=scene.group, topics=None if all_topics else [wanted])
    (found,) = (await scene.admin.ask(OffsetFetchRequest(groups=[group], **options), version)).groups
    return found


async def _offsets(scene: Scene, *, require_stable: bool = False) -> list[tuple[int, int]]:
    """Return offset and error code of both partitions."""
    found: OffsetFetchResponseGroup = await _fetch(scene, require_stable=require_stable)
    partitions = sorted(found.topics[0].partitions, key=lambda one: one.partition_index)
    return [(one.committed_offset, one.error_code) for one in partitions]


async def _commit(scene: Scene, offset: int) -> None:
    one = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=3, committed_metadata="why"
    )
    topics = [OffsetCommitRequestTopic(name=scene.topic, partitions=[one])]
    answer = await scene.admin.ask(OffsetCommitRequest(group_id=scene.group, member_id="", topics=topics), 9)
    assert answer.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("version", range(1, 8))
async def test_one_group_s_offsets(scene: Scene, version: int) -> None:
    await _commit(scene, 5)
    wanted = [OffsetFetchRequestTopic(name=scene.topic, partition_indexes=[0, 1])]
    answer: OffsetFetchResponse = await scene.admin.ask(
        OffsetFetchRequest(group_id=scene.group, topics=wanted), version
    )
    (topic,) = answer.topics
    found = {
        one.partition_index: (one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
        for one in topic.partitions
    }
    assert (answer.error_code, topic.name) == (0, scene.topic)
    assert found == {0: (5, 3 if version >= 5 else -1, "why", 0), 1: (-1, -1, "", 0)}


@pytest.mark.parametrize("version", [2, 7])
async def test_all_offsets_of_one_group(scene: Scene, version: int) -> None:
    request = OffsetFetchRequest(group_id=scene.group, topics=None)
    assert (await scene.admin.ask(request, version)).topics == []
    await _commit(scene, 5)
    (topic,) = (await scene.admin.ask(request, version)).topics
    assert [(one.partition_index, one.committed_offset) for one in topic.partitions] == [(0, 5)]


@pytest.mark.parametrize(
    "version",
    [
        *(pytest.param(version, marks=pytest.mark.every_kafka(since="3.9")) for version in (8, 9)),
        pytest.param(10, marks=by_topic_id),
    ],
)
async def test_offsets_of_groups(scene: Scene, version: int) -> None:
    await _commit(scene, 5)
    for all_topics, expected in ((False, {0: (5, 3, "why"), 1: (-1, -1, "")}), (True, {0: (5, 3, "why")})):
        found: OffsetFetchResponseGroup = await _fetch(scene, version, all_topics=all_topics)
        (topic,) = found.topics
        assert (found.group_id, found.error_code) == (scene.group, 0)
        assert (topic.name, topic.topic_id) == (("", scene.topic_id) if version >= 10 else (scene.topic, NO_UUID))
        assert {
            one.partition_index: (one.committed_offset, one.committed_leader_epoch, one.metadata)
            for one in topic.partitions
        } == expected


@pytest.mark.every_kafka(since="3.9")
async def test_several_groups_at_once(scene: Scene) -> None:
    await _commit(scene, 5)
    wanted = [OffsetFetchRequestTopics(name=scene.topic, partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=wanted) for name in (scene.group, scene.group + "-none")]
    answer = await scene.admin.ask(OffsetFetchRequest(groups=groups), 8)
    assert {one.group_id: one.topics[0].partitions[0].committed_offset for one in answer.groups} == {
        scene.group: 5,
        scene.group + "-none": -1,
    }


@pytest.mark.parametrize(
    ("topic", "version", "code"),
    [
        pytest.param({"name": "no-such-topic"}, 9, 0, id="name", marks=pytest.mark.every_kafka(since="4.0")),
        pytest.param({"topic_id": UUID(int=77)}, 10, ErrorCode.UNKNOWN_TOPIC_ID, id="id", marks=by_topic_id),
    ],
)
async def test_a_topic_that_does_not_exist(scene: Scene, topic: dict[str, Any], version: int, code: int) -> None:
    wanted = [OffsetFetchRequestTopics(**topic, partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=scene.group, topics=wanted)]
    (group,) = (await scene.admin.ask(OffsetFetchRequest(groups=groups), version)).groups
    (partition,) = group.topics[0].partitions
    assert (group.error_code, partition.committed_offset, partition.error_code) == (0, -1, code)


@by_topic_id
async def test_commits_by_topic_id(scene: Scene) -> None:
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None)
    ids = [scene.topic_id, UUID(int=77)]
    topics = [OffsetCommitRequestTopic(topic_id=topic_id, partitions=[one]) for topic_id in ids]
    answer = await scene.admin.ask(OffsetCommitRequest(group_id=scene.group, member_id="", topics=topics), 10)
    assert {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics} == {
        scene.topic_id: 0,
        UUID(int=77): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    assert await _offsets(scene) == [(5, 0), (-1, 0)]
    (topic,) = (await _fetch(scene)).topics
    assert {one.metadata for one in topic.partitions} == {""}  # null is stored as nothing


async def test_the_first_commit_makes_a_group_without_a_protocol(scene: Scene) -> None:
    await _commit(scene, 5)
    described = await scene.described()
    assert (described.error_code, described.group_state, described.protocol_type) == (0, "Empty", "")


@pytest.mark.every_kafka(since="3.9")
async def test_offsets_of_a_transaction_are_unstable_until_it_ends(scene: Scene) -> None:
    await _commit(scene, 5)
    transaction = Transaction(scene.admin)
    await transaction.begin()
    assert await transaction.commit_offset(9) == 0
    assert await transaction.commit_offset(4, partition=1) == 0
    assert await _offsets(scene) == [(5, 0), (-1, 0)]
    assert await _offsets(scene, require_stable=True) == [(-1, UNSTABLE), (-1, UNSTABLE)]
    everything = await _fetch(scene, all_topics=True, require_stable=True)
    assert [(one.partition_index, one.error_code) for one in everything.topics[0].partitions] == [(0, UNSTABLE)]
    await transaction.end(committed=True)
    while (-1, UNSTABLE) in await _offsets(scene, require_stable=True):
        pass
    assert await _offsets(scene) == [(9, 0), (4, 0)]


@pytest.mark.every_kafka(since="3.9")
async def test_offsets_of_an_aborted_transaction_never_were(scene: Scene) -> None:
    await _commit(scene, 5)
    transaction = Transaction(scene.admin)
    await transaction.begin()
    assert await transaction.commit_offset(9) == 0
    await transaction.end(committed=False)
    while (-1, UNSTABLE) in await _offsets(scene, require_stable=True):
        pass
    assert await _offsets(scene) == [(5, 0), (-1, 0)]


@pytest.mark.every_kafka(since="3.9")
async def test_what_was_committed_last_counts_and_not_when_a_transaction_ended(scene: Scene) -> None:
    transaction = Transaction(scene.admin)
    await transaction.begin()
    assert await transaction.commit_offset(9) == 0
    await _commit(scene, 5)
    await transaction.end(committed=True)
    while (-1, UNSTABLE) in await _offsets(scene, require_stable=True):
        pass
    assert await _offsets(scene) == [(5, 0), (-1, 0)]


@pytest.mark.every_kafka(since="3.9")
async def test_deleted_offsets_and_groups(scene: Scene) -> None:
    await _commit(scene, 5)
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1, 7)]
    topics = [
        OffsetDeleteRequestTopic(name=scene.topic, partitions=partitions),
        OffsetDeleteRequestTopic(name="no-such-topic", partitions=partitions[:1]),
    ]
    answer = await scene.admin.ask(OffsetDeleteRequest(group_id=scene.group, topics=topics))
    codes = {(topic.name, one.partition_index): one.error_code for topic in answer.topics for one in topic.partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {
        (scene.topic, 0): 0,
        (scene.topic, 1): 0,
        (scene.topic, 7): unknown,
        ("no-such-topic", 0): unknown,
    }
    assert await _offsets(scene) == [(-1, 0), (-1, 0)]
    await _commit(scene, 6)
    assert (await scene.admin.ask(DeleteGroupsRequest(groups_names=[scene.group]))).results[0].error_code == 0
    assert await _offsets(scene) == [(-1, 0), (-1, 0)]
