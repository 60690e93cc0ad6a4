"""Three brokers: requests to a wrong broker, or with a stale epoch, get the same answers from the Cluster and a real
Kafka.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, Final, TypeAlias

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster
from aiokc.testing.messages.topic_admin import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from aiokc.wire.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from aiokc.wire.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
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
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiokc.wire.messages.produce import InitProducerIdRequest
from aiokc.wire.messages.txn import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from ..conftest import Kafka
from ..questions import batch_of, fetch_from, offset_at, produce_to, topic_id_of
from ..wire_client import WireClient, connected

pytestmark = pytest.mark.every_kafka

NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
NOT_COORDINATOR: Final = ErrorCode.NOT_COORDINATOR


@pytest.fixture(scope="module")
def three_in_python() -> Iterator[Cluster]:
    with Cluster(brokers=3, auto_create_topics_enable=False).in_thread() as cluster:
        yield cluster


@pytest.fixture(params=["cluster", pytest.param("kafka", marks=pytest.mark.kafka)])
def three(request: pytest.FixtureRequest) -> Kafka:
    """Three brokers: the Cluster's, then a real Kafka's."""
    found: Kafka = request.getfixturevalue("three_in_python" if request.param == "cluster" else "three_nodes_for_all")
    return found


class Brokers:
    """A connection to each broker, by its id."""

    def __init__(self, clients: dict[int, WireClient], topic: str) -> None:
        self.clients = clients
        self.topic = topic

    async def described(self) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        return (await self.clients[1].ask(request, 12)).topics[0]

    async def split(self) -> tuple[WireClient, WireClient]:
        """Return the leader of partition 0, and another broker."""
        leader = (await self.described()).partitions[0].leader_id
        return self.clients[leader], self.clients[leader % 3 + 1]


@pytest.fixture
async def brokers(three: Kafka, topic_name: str) -> AsyncIterator[Brokers]:
    three.create_topic(topic_name, 1)
    async with AsyncExitStack() as stack:
        clients = {number: await stack.enter_async_context(connected(three.bootstrap, number)) for number in (1, 2, 3)}
        yield Brokers(clients, topic_name)


# Leaders


async def test_only_the_leader_serves_what_is_not_fetched(brokers: Brokers) -> None:
    topic = brokers.topic
    leader, other = await brokers.split()
    while (await offset_at(leader, topic, -1)).error_code:
        pass
    assert (await produce_to(leader, topic, batch_of(b"a"))).error_code == 0
    assert (await produce_to(other, topic, batch_of(b"a"))).error_code == NOT_LEADER
    assert (await offset_at(other, topic, -1)).error_code == NOT_LEADER
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=0, current_leader_epoch=-1)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    assert (await other.ask(request)).topics[0].partitions[0].error_code == NOT_LEADER
    trimmed = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
    answer = await other.ask(DeleteRecordsRequest(topics=[trimmed], timeout_ms=10_000))
    assert answer.topics[0].partitions[0].error_code == NOT_LEADER


async def test_a_broker_that_is_asked_wrongly_names_the_leader(brokers: Brokers) -> None:
    """KIP-951: from Fetch 16 and Produce 10 on. The broker asked is no replica here, and may not answer."""
    leader, other = await brokers.split()
    while (await offset_at(leader, brokers.topic, -1)).error_code:
        pass
    described = await brokers.described()
    (replicas,) = [partition.replica_nodes for partition in described.partitions]
    stranger = next((client for number, client in brokers.clients.items() if number not in replicas), other)
    produced = await produce_to(stranger, brokers.topic, batch_of(b"a"), version=10)
    assert produced.error_code == NOT_LEADER
    assert produced.current_leader is not None
    assert (produced.current_leader.leader_id, produced.current_leader.leader_epoch) == (
        described.partitions[0].leader_id,
        described.partitions[0].leader_epoch,
    )


@pytest.mark.parametrize(("epoch", "code"), [(0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)])
async def test_an_epoch_that_no_leader_had(brokers: Brokers, epoch: int, code: ErrorCode) -> None:
    leader, _ = await brokers.split()
    while (await offset_at(leader, brokers.topic, -1)).error_code:
        pass
    topic_id = await topic_id_of(leader, brokers.topic)
    answer = await fetch_from(leader, topic_id, 0, max_wait_ms=0, partition={"current_leader_epoch": epoch})
    assert answer.responses[0].partitions[0].error_code == code
    found = await offset_at(leader, brokers.topic, -1, current_leader_epoch=epoch)
    assert found.error_code == code


# Coordinators


def _offsets_of(brokers: Brokers) -> list[OffsetCommitRequestTopic]:
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return [OffsetCommitRequestTopic(name=brokers.topic, partitions=[one])]


def _transactional_offsets_of(brokers: Brokers) -> list[TxnOffsetCommitRequestTopic]:
    one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return [TxnOffsetCommitRequestTopic(name=brokers.topic, partitions=[one])]


def _join(group: str) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=protocols
    )


Ask: TypeAlias = Callable[[Brokers, str], Any]
Code: TypeAlias = Callable[[Any], int]

#: By API: the request, and where its answer has its code.
OF_GROUPS: Final[dict[str, tuple[Ask, int, Code]]] = {
    "JoinGroup": (lambda b, g: _join(g), 9, lambda a: a.error_code),
    "SyncGroup": (
        lambda b, g: SyncGroupRequest(
            group_id=g, generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range", assignments=[]
        ),
        5,
        lambda a: a.error_code,
    ),
    "Heartbeat": (lambda b, g: HeartbeatRequest(group_id=g, generation_id=1, member_id="m"), 4, lambda a: a.error_code),
    "LeaveGroup": (
        lambda b, g: LeaveGroupRequest(group_id=g, members=[MemberIdentity(member_id="m")]),
        5,
        lambda a: a.error_code,
    ),
    "OffsetCommit": (
        lambda b, g: OffsetCommitRequest(group_id=g, member_id="", topics=_offsets_of(b)),
        9,
        lambda a: a.topics[0].partitions[0].error_code,
    ),
    "OffsetFetch": (lambda b, g: OffsetFetchRequest(group_id=g, topics=None), 7, lambda a: a.error_code),
    "OffsetFetch of several": (
        lambda b, g: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=g, topics=None)]),
        9,
        lambda a: a.groups[0].error_code,
    ),
    "OffsetDelete": (
        lambda b, g: OffsetDeleteRequest(
            group_id=g,
            topics=[
                OffsetDeleteRequestTopic(name=b.topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            ],
        ),
        0,
        lambda a: a.error_code,
    ),
    "DescribeGroups": (lambda b, g: DescribeGroupsRequest(groups=[g]), 6, lambda a: a.groups[0].error_code),
    "DeleteGroups": (lambda b, g: DeleteGroupsRequest(groups_names=[g]), 2, lambda a: a.results[0].error_code),
    "TxnOffsetCommit": (
        lambda b, g: TxnOffsetCommitRequest(
            transactional_id=g, group_id=g, producer_id=1, producer_epoch=0, topics=_transactional_offsets_of(b)
        ),
        3,
        lambda a: a.topics[0].partitions[0].error_code,
    ),
}

_MINE: Final[dict[str, Any]] = {"producer_id": 1, "producer_epoch": 0}
OF_TRANSACTIONS: Final[dict[str, tuple[Ask, int, Code]]] = {
    "InitProducerId": (
        lambda b, t: InitProducerIdRequest(transactional_id=t, transaction_timeout_ms=60_000),
        4,
        lambda a: a.error_code,
    ),
    "AddPartitionsToTxn": (
        lambda b, t: AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=t,
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=b.topic, partitions=[0])],
        ),
        3,
        lambda a: a.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
    ),
    "AddOffsetsToTxn": (
        lambda b, t: AddOffsetsToTxnRequest(transactional_id=t, group_id="g", **_MINE),
        3,
        lambda a: a.error_code,
    ),
    "EndTxn": (lambda b, t: EndTxnRequest(transactional_id=t, committed=True, **_MINE), 3, lambda a: a.error_code),
}


async def _stranger(brokers: Brokers, key_type: int, key: str) -> WireClient:
    """Return a broker that does not coordinate ``key``, once there is a coordinator."""
    find = FindCoordinatorRequest(key_type=key_type, key=key)
    while (found := await brokers.clients[1].ask(find, 3)).error_code:
        pass
    return brokers.clients[found.node_id % 3 + 1]


async def _says(client: WireClient, request: Any, version: int, code: Code) -> ErrorCode:
    return ErrorCode(code(await client.ask(request, version)))


@pytest.mark.parametrize("api", OF_GROUPS)
async def test_a_broker_that_does_not_coordinate_the_group(brokers: Brokers, api: str) -> None:
    make, version, code = OF_GROUPS[api]
    stranger = await _stranger(brokers, 0, brokers.topic)
    assert await _says(stranger, make(brokers, brokers.topic), version, code) == NOT_COORDINATOR


@pytest.mark.parametrize("api", OF_TRANSACTIONS)
async def test_a_broker_that_does_not_coordinate_the_transactional_id(brokers: Brokers, api: str) -> None:
    make, version, code = OF_TRANSACTIONS[api]
    stranger = await _stranger(brokers, 1, brokers.topic)
    assert await _says(stranger, make(brokers, brokers.topic), version, code) == NOT_COORDINATOR
