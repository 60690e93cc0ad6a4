"""What each API answers to a user without the right, or with a part of it: the rest of the request is served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing import Acl, Cluster, faults
from aiokc.testing.messages.topic_admin import (
    CreatableTopic,
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
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from aiokc.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokc.wire.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokc.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiokc.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aiokc.wire.messages.txn import AddOffsetsToTxnRequest
from aiokc.wire.primitives import NO_UUID

from ..questions import add_to_transaction, batch_of, end_transaction, new_producer
from ..wire_client import WireClient, connected
from .sasl_client import is_closed, logged_in

pytestmark = pytest.mark.timeout(20)

TOPIC, GROUP, TXN, CLUSTER = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)

ACLS = [
    Acl("alice", "Read", topic="mine"),
    Acl("alice", "Write", topic="mine"),
    Acl("alice", "Read", group="my-group"),
    Acl("alice", "Write", transactional_id="my-txn"),
]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    topics = {"mine": 1, "theirs": 1}
    async with Cluster(
        sasl={"alice": "secret", "root": "secret"}, acls=ACLS, topics=topics, super_users=["root"]
    ) as one:
        for topic in topics:
            one.append(topic, b"a record")
        yield one


@pytest.fixture
async def alice(cluster: Cluster) -> AsyncIterator[WireClient]:
    async with logged_in(cluster.bootstrap) as client:
        yield client


def topic_id(cluster: Cluster, name: str) -> Any:
    return cluster._state.topics.named(name).topic_id


# Metadata


async def test_metadata(cluster: Cluster, alice: WireClient) -> None:
    names = ["mine", "theirs", "missing"]
    topics = [MetadataRequestTopic(name=name) for name in names]
    for creating in (True, False):
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=creating)
        found = {one.name: one for one in (await alice.ask(request)).topics}
        assert [found[name].error_code for name in names] == [0, TOPIC, TOPIC]  # missing or forbidden: not told
    assert (found["theirs"].topic_id, found["theirs"].partitions) == (NO_UUID, [])
    assert [one.name for one in (await alice.ask(MetadataRequest(topics=None))).topics] == ["mine"]
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id(cluster, "theirs"), name=None)])
    (one,) = (await alice.ask(by_id)).topics
    assert (one.error_code, one.name, one.topic_id) == (TOPIC, None, topic_id(cluster, "theirs"))
    assert "missing" not in cluster._state.topics.by_name


async def test_metadata_creates_what_its_user_may_create(cluster: Cluster, alice: WireClient) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    cluster.grant(Acl("alice", "Describe", topic="new"))
    assert (await alice.ask(request)).topics[0].error_code == TOPIC
    cluster.grant(Acl("alice", "Create", topic="new"))
    assert (await alice.ask(request)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await alice.ask(request)).topics[0].error_code == 0


async def test_operations_in_metadata(cluster: Cluster, alice: WireClient) -> None:
    request = MetadataRequest(
        topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    answer = await alice.ask(request, 9)
    assert answer.topics[0].topic_authorized_operations == 1 << 3 | 1 << 4 | 1 << 8
    assert answer.cluster_authorized_operations == 0
    cluster.grant(Acl("alice", "Describe", cluster=True))
    described = await alice.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert described.cluster_authorized_operations == 1 << 8


# Records


async def test_fetch_serves_the_neighbours_of_a_forbidden_topic(cluster: Cluster, alice: WireClient) -> None:
    for version in (12, 16):
        topics = [
            FetchTopic(
                topic=name,
                topic_id=topic_id(cluster, name) if version > 12 and name != "missing" else NO_UUID,
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
            )
            for name in ("theirs", "mine", *(["missing"] if version == 12 else []))
        ]
        answer = await alice.ask(FetchRequest(topics=topics, max_wait_ms=100, min_bytes=1), version)
        found = [(one.partitions[0].error_code, bool(one.partitions[0].records)) for one in answer.responses]
        assert found[:2] == [(TOPIC, False), (0, True)]
        assert found[2:] == ([(TOPIC, False)] if version == 12 else [])


async def test_a_right_to_read_changes_between_fetches_of_a_session(cluster: Cluster, alice: WireClient) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="mine", partitions=[partition])]
    first = await alice.ask(FetchRequest(topics=topics, max_wait_ms=0, min_bytes=1, session_epoch=0), 12)
    cluster.revoke("alice", "mine")
    later = FetchRequest(topics=[], max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=1)
    assert (await alice.ask(later, 12)).responses[0].partitions[0].error_code == TOPIC
    cluster.grant(Acl("alice", "Read", topic="mine"))
    later = FetchRequest(topics=[], max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=2)
    (answered,) = (await alice.ask(later, 12)).responses[0].partitions
    assert (answered.error_code, bool(answered.records)) == (0, True)


async def test_produce(alice: WireClient, cluster: Cluster) -> None:
    data = [
        TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=0, records=memoryview(batch_of(b"new")))]
        )
        for name in ("theirs", "mine")
    ]
    for txn, expected in ((None, {"mine": 0, "theirs": TOPIC}), ("theirs", {"mine": TXN, "theirs": TXN})):
        answer = await alice.ask(ProduceRequest(transactional_id=txn, acks=-1, timeout_ms=100, topic_data=data), 9)
        assert {one.name: one.partition_responses[0].error_code for one in answer.responses} == expected
    assert (cluster.end_offset("mine"), cluster.end_offset("theirs")) == (2, 1)
    alice.send(ProduceRequest(transactional_id=None, acks=0, timeout_ms=100, topic_data=data), 9)
    assert await is_closed(alice)
    assert (cluster.end_offset("mine"), cluster.end_offset("theirs")) == (3, 1)


async def test_one_partition_of_a_produce_is_refused_beside_a_forbidden_topic(
    alice: WireClient, cluster: Cluster
) -> None:
    cluster.add_partitions("mine", 2)
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.intercept(ProduceRequest, faults.refuse_partition("mine", 0, moved), times=1)
    records = memoryview(batch_of(b"new"))
    data = [
        TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=index, records=records) for index in range(count)]
        )
        for name, count in (("theirs", 1), ("mine", 2))
    ]
    answer = await alice.ask(ProduceRequest(transactional_id=None, acks=-1, timeout_ms=100, topic_data=data), 9)
    codes = {(one.name, part.index): part.error_code for one in answer.responses for part in one.partition_responses}
    assert codes == {("theirs", 0): TOPIC, ("mine", 0): moved, ("mine", 1): 0}


async def test_offsets_of_logs(alice: WireClient) -> None:
    listed = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            for name in ("theirs", "mine")
        ],
    )
    answer = await alice.ask(listed, 7)
    assert {one.name: one.partitions[0].error_code for one in answer.topics} == {"mine": 0, "theirs": TOPIC}
    epochs = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
            for name in ("theirs", "mine")
        ]
    )
    found = await alice.ask(epochs, 3)
    assert {one.topic: one.partitions[0].error_code for one in found.topics} == {"mine": 0, "theirs": TOPIC}


# Groups


async def test_find_coordinator(alice: WireClient) -> None:
    for kind, mine, code in ((0, "my-group", GROUP), (1, "my-txn", TXN)):
        answer = await alice.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[mine, "other"]), 4)
        assert [one.error_code for one in answer.coordinators] == [0, code]
        assert (await alice.ask(FindCoordinatorRequest(key_type=kind, key="other"), 3)).error_code == code


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (
            JoinGroupRequest(
                group_id="g", session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=[]
            ),
            9,
        ),
        (SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]), 5),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
        (LeaveGroupRequest(group_id="g", members=[]), 5),
    ],
    ids=["JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"],
)
async def test_members(alice: WireClient, request_: Any, version: int) -> None:
    assert (await alice.ask(request_, version)).error_code == GROUP
    fields = {name: getattr(request_, name) for name in request_._specs}
    assert (await alice.ask(type(request_)(**fields | {"group_id": "my-group"}), version)).error_code != GROUP


def commit(group: str, *topics: str) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions) for topic in topics],
    )


async def test_commits(cluster: Cluster, alice: WireClient) -> None:
    for group, expected in (("my-group", {"mine": 0, "theirs": TOPIC}), ("g", {"mine": GROUP, "theirs": GROUP})):
        answer = await alice.ask(commit(group, "theirs", "mine"), 8)
        assert {one.name: one.partitions[0].error_code for one in answer.topics} == expected
    assert {tp.topic for tp in cluster.committed("my-group")} == {"mine"}
    assert cluster.committed("g") == {}


async def test_committed_offsets(cluster: Cluster, alice: WireClient) -> None:
    async with logged_in(cluster.bootstrap, "root") as root:
        await root.ask(commit("my-group", "mine", "theirs"), 8)
    named = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("mine", "theirs")]
    groups = [
        OffsetFetchRequestGroup(group_id="g", topics=None),
        OffsetFetchRequestGroup(group_id="my-group", topics=named),
    ]
    answer = await alice.ask(OffsetFetchRequest(groups=groups), 8)
    found = {one.group_id: one for one in answer.groups}
    assert found["g"].error_code == GROUP
    offsets = {one.name: one.partitions[0] for one in found["my-group"].topics}
    assert (offsets["mine"].committed_offset, offsets["mine"].error_code) == (1, 0)
    assert (offsets["theirs"].committed_offset, offsets["theirs"].error_code) == (-1, TOPIC)
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="my-group", topics=None)])
    assert [one.name for one in (await alice.ask(everything, 8)).groups[0].topics] == ["mine"]
    assert (await alice.ask(OffsetFetchRequest(group_id="g", topics=None), 7)).error_code == GROUP
    old = await alice.ask(OffsetFetchRequest(group_id="my-group", topics=None), 7)
    assert (old.error_code, [one.name for one in old.topics]) == (0, ["mine"])


async def test_groups_of_other_users(cluster: Cluster, alice: WireClient) -> None:
    async with logged_in(cluster.bootstrap, "root") as root:
        for group in ("my-group", "g"):
            await root.ask(commit(group, "mine"), 8)
        assert {one.group_id for one in (await root.ask(ListGroupsRequest())).groups} == {"my-group", "g"}
    assert {one.group_id for one in (await alice.ask(ListGroupsRequest())).groups} == {"my-group"}
    request = DescribeGroupsRequest(groups=["g", "my-group"], include_authorized_operations=True)
    described = {one.group_id: one for one in (await alice.ask(request)).groups}
    assert [described[name].error_code for name in ("g", "my-group")] == [GROUP, 0]
    assert described["my-group"].authorized_operations == 1 << 3 | 1 << 8
    deleted = await alice.ask(DeleteGroupsRequest(groups_names=["g", "my-group"]), 2)
    assert [one.error_code for one in deleted.results] == [GROUP, GROUP]
    cluster.grant(Acl("alice", "Delete", group="my-group"))
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in ("theirs", "mine")]
    offsets = await alice.ask(OffsetDeleteRequest(group_id="my-group", topics=topics))
    assert {one.name: one.partitions[0].error_code for one in offsets.topics} == {"mine": 0, "theirs": TOPIC}
    assert (await alice.ask(OffsetDeleteRequest(group_id="g", topics=topics))).error_code == GROUP
    deleted = await alice.ask(DeleteGroupsRequest(groups_names=["g", "my-group"]), 2)
    assert {one.group_id: one.error_code for one in deleted.results} == {"g": GROUP, "my-group": 0}


# Transactions


async def test_producers(cluster: Cluster, alice: WireClient) -> None:
    assert (await new_producer(alice))[0] == 0  # alice may write to a topic
    cluster.withdraw(Acl("alice", "Write", topic="mine"))
    assert (await new_producer(alice))[0] == CLUSTER
    cluster.grant(Acl("alice", "IdempotentWrite", cluster=True))
    assert (await new_producer(alice))[0] == 0
    assert (await new_producer(alice, "other"))[0] == TXN
    assert (await new_producer(alice, "my-txn"))[0] == 0


async def test_transactions(cluster: Cluster, alice: WireClient) -> None:
    _, *ids = await new_producer(alice, "my-txn")
    producer = (ids[0], ids[1])
    assert await add_to_transaction(alice, "my-txn", producer, "theirs", 0) == [TOPIC]
    assert await add_to_transaction(alice, "my-txn", producer, "mine", 0) == [0]
    assert await add_to_transaction(alice, "other", producer, "mine", 0) == [TXN]
    for txn, group, expected in (("my-txn", "my-group", 0), ("my-txn", "g", GROUP), ("other", "my-group", TXN)):
        request = AddOffsetsToTxnRequest(
            transactional_id=txn, producer_id=producer[0], producer_epoch=producer[1], group_id=group
        )
        assert (await alice.ask(request, 3)).error_code == expected
    assert await end_transaction(alice, "other", producer, True) == TXN
    assert await end_transaction(alice, "my-txn", producer, True) == 0


# Topics


async def test_topics(cluster: Cluster, alice: WireClient) -> None:
    new = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in ("new", "mine-too")
    ]
    create = CreateTopicsRequest(topics=new, timeout_ms=1000)
    cluster.grant(Acl("alice", "Create", topic="mine", prefixed=True))
    assert {one.name: one.error_code for one in (await alice.ask(create, 7)).topics} == {"new": TOPIC, "mine-too": 0}
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("theirs", "mine")],
        timeout_ms=1000,
        validate_only=False,
    )
    assert {one.error_code for one in (await alice.ask(grow, 3)).results} == {TOPIC}
    cluster.grant(Acl("alice", "Alter", topic="mine"))
    assert {one.name: one.error_code for one in (await alice.ask(grow, 3)).results} == {"mine": 0, "theirs": TOPIC}
    cluster.grant(Acl("alice", "Delete", topic="mine"))
    partition = [DeleteRecordsPartition(partition_index=0, offset=1)]
    trim = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=partition) for name in ("theirs", "mine")], timeout_ms=1000
    )
    trimmed = await alice.ask(trim, 2)
    assert {one.name: one.partitions[0].error_code for one in trimmed.topics} == {"mine": 0, "theirs": TOPIC}
    by_name = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=NO_UUID) for name in ("theirs", "mine")], timeout_ms=1000
    )
    assert {one.name: one.error_code for one in (await alice.ask(by_name, 6)).responses} == {"mine": 0, "theirs": TOPIC}
    by_id = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=None, topic_id=topic_id(cluster, "theirs"))], timeout_ms=1000
    )
    assert (await alice.ask(by_id, 6)).responses[0].error_code == TOPIC
    old = DeleteTopicsRequest(topic_names=["theirs"], timeout_ms=1000)
    assert (await alice.ask(old, 5)).responses[0].error_code == TOPIC
    assert "theirs" in cluster._state.topics.by_name


async def test_a_right_on_the_cluster_stands_for_one_on_every_topic() -> None:
    acls = [Acl("ANONYMOUS", "Delete", cluster=True), Acl("ANONYMOUS", "ClusterAction", cluster=True)]
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=NO_UUID)], timeout_ms=1000)
    asked = OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
    async with Cluster(topics={"t": 1}, acls=acls, super_users=()) as cluster, connected(cluster.bootstrap) as client:
        epochs = await client.ask(OffsetForLeaderEpochRequest(topics=[asked]))
        assert epochs.topics[0].partitions[0].error_code == 0
        assert [one.error_code for one in (await client.ask(delete, 6)).responses] == [0]


async def test_revoking_works_in_a_cluster_without_acls() -> None:
    async with Cluster(topics={"t": 1, "u": 1}, super_users=()) as cluster, connected(cluster.bootstrap) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t"), MetadataRequestTopic(name="u")])
        cluster.revoke("ANONYMOUS", "t")
        assert {one.name: one.error_code for one in (await client.ask(request)).topics} == {"t": TOPIC, "u": 0}
        cluster.revoke("ANONYMOUS", group="g")
        answer = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"]), 4)
        assert [one.error_code for one in answer.coordinators] == [GROUP, 0]
        cluster.revoke("ANONYMOUS")
        assert (await new_producer(client))[0] == 0  # it may write to a topic
