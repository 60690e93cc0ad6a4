"""A transaction whose end is decided and whose markers are not written yet: the Cluster and a real Kafka answer alike.

The real one has a node that is paused while it leads the transaction's partition. That takes seconds, so it is long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import count
from typing import Final, Protocol

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.messages.topic_admin import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from aiokc.wire.messages.discovery import FindCoordinatorRequest
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

from ...questions import NOT_YET, batch_of, offset_at, produce_to
from ...wire_client import WireClient, connected

CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED: Final = ErrorCode.PRODUCER_FENCED
NOT_READY: Final = NOT_YET - {CONCURRENT}
OFF: Final = 1000.0
#: No other node needs node 3, and none takes it for dead: then its partitions would count as deleted.
_ALONE: Final = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "broker.session.timeout.ms": "60000",
}


class Scene:
    """A producer whose coordinator is broker 1, and two topics of one partition: ``stalled`` gets no markers."""

    def __init__(self, name: str, clients: dict[int, WireClient]) -> None:
        self.name = self.group = name
        self.stalled, self.free = f"{name}-stalled", f"{name}-free"
        self.id, self.epoch = -1, -1
        self._clients = clients

    async def init(self, producer_id: int = -1, epoch: int = -1) -> tuple[int, int, int]:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch
        )
        while (answer := await self._clients[1].ask(request, 4)).error_code in NOT_READY:
            pass
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    async def end(
        self, version: int, *, committed: bool = True, later: int = 0, stranger: int = 0
    ) -> tuple[int, int, int]:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.id + stranger,
            producer_epoch=self.epoch + later,
            committed=committed,
        )
        answer = await self._clients[1].ask(request, version)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    async def add(self, topic: str, later: int = 0, stranger: int = 0) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id + stranger,
            v3_and_below_producer_epoch=self.epoch + later,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        (found,) = (await self._clients[1].ask(request, 3)).results_by_topic_v3_and_below
        return ErrorCode(found.results_by_partition[0].partition_error_code)

    async def completed(self, version: int) -> None:
        """Wait until a repeated commit has an answer."""
        while (await self.end(version))[0] == CONCURRENT:
            pass

    async def add_offsets(self) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=self.group
        )
        return ErrorCode((await self._clients[1].ask(request, 3)).error_code)

    async def produce(
        self, broker: int, topic: str, sequence: int, version: int, later: int = 0, stranger: int = 0
    ) -> int:
        batch = batch_of(
            b"a",
            producer_id=self.id + stranger,
            producer_epoch=self.epoch + later,
            base_sequence=sequence,
            transactional=True,
        )
        return ErrorCode(
            (await produce_to(self._clients[broker], topic, batch, txn=self.name, version=version)).error_code
        )

    async def commit_offset(self, version: int, later: int = 0) -> int:
        one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self.id,
            producer_epoch=self.epoch + later,
            topics=[TxnOffsetCommitRequestTopic(name=self.free, partitions=[one])],
        )
        while True:
            code = (await self._clients[1].ask(request, version)).topics[0].partitions[0].error_code
            if code not in NOT_READY:
                return ErrorCode(code)


class Stall(Protocol):
    """Both systems, and how each is kept from writing markers at broker 3."""

    bootstrap: str

    def begin(self) -> None: ...
    def end(self) -> None: ...


class StalledCluster:
    def __init__(self, cluster: Cluster) -> None:
        self.bootstrap = cluster.bootstrap
        self._cluster = cluster

    def begin(self) -> None:
        self._cluster.slow_markers(OFF)

    def end(self) -> None:
        self._cluster.slow_markers()


class StalledKafka:
    def __init__(self, kafka: LocalKafka) -> None:
        self.bootstrap = kafka.bootstrap
        self._kafka = kafka

    def begin(self) -> None:
        self._kafka.node(3).pause()

    def end(self) -> None:
        self._kafka.node(3).resume()


@pytest.fixture(params=["cluster", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.long])])
def stall(request: pytest.FixtureRequest) -> Iterator[Stall]:
    if request.param == "kafka":
        with LocalKafka(nodes=3, config=_ALONE) as kafka:
            yield StalledKafka(kafka)
        return
    with Cluster(brokers=3, auto_create_topics_enable=False).in_thread() as cluster:
        yield StalledCluster(cluster)


async def led_by_1(clients: dict[int, WireClient], name: str, key_type: int) -> str:
    """Return a transactional id or a group id that broker 1 coordinates."""
    for number in count():
        request = FindCoordinatorRequest(key_type=key_type, key=f"{name}-{number}")
        while (answer := await clients[1].ask(request, 3)).error_code:
            pass
        if answer.node_id == 1:
            return f"{name}-{number}"
    raise AssertionError


async def new_topic(clients: dict[int, WireClient], name: str, leader: int) -> None:
    at = CreatableReplicaAssignment(partition_index=0, broker_ids=[leader])
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[at], configs=[])
    answer = await clients[1].ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert answer.topics[0].error_code == 0
    while (await offset_at(clients[leader], name, -1)).error_code:
        pass


@pytest.fixture
async def scene(stall: Stall, topic_name: str) -> AsyncIterator[Scene]:
    """A producer that has begun nothing; broker 3 leads the topic that will be stalled, broker 1 all the rest."""
    async with AsyncExitStack() as stack:
        clients = {number: await stack.enter_async_context(connected(stall.bootstrap, number)) for number in (1, 2, 3)}
        scene = Scene(await led_by_1(clients, topic_name, 1), clients)
        scene.group = await led_by_1(clients, topic_name, 0)
        await new_topic(clients, scene.stalled, 3)
        await new_topic(clients, scene.free, 1)
        code, scene.id, scene.epoch = await scene.init()
        assert code == 0
        yield scene


@pytest.mark.timeout(120)
async def test_transactions_of_the_old_kind(stall: Stall, scene: Scene) -> None:
    assert await scene.add(scene.stalled) == 0
    assert await scene.produce(3, scene.stalled, 0, 11) == 0
    stall.begin()
    assert await scene.end(3) == (0, -1, -1)
    found = {
        "add": await scene.add(scene.free),
        "add offsets": await scene.add_offsets(),
        "commit": await scene.end(3),
        "abort": await scene.end(3, committed=False),
        "commit of a later epoch": await scene.end(3, later=1),
        "a stranger's commit": await scene.end(3, stranger=1000),
        "add of a stranger": await scene.add(scene.free, stranger=1000),
        "produce 12 of a stranger": await scene.produce(1, scene.free, 0, 12, stranger=1000),
        "add to a later epoch": await scene.add(scene.free, later=1),
        "another producer": await scene.init(),
        "its own init": await scene.init(scene.id, scene.epoch),
        "an unknown producer's init": await scene.init(scene.id + 1000, 0),
        "produce 11": await scene.produce(1, scene.free, 0, 11),
        "produce 11 of a later epoch": await scene.produce(1, scene.free, 0, 11, later=1),
        "produce 12": await scene.produce(1, scene.free, 0, 12),
        "offsets 3": await scene.commit_offset(3),
        "offsets 5": await scene.commit_offset(5),
    }
    stall.end()
    assert found == {
        **dict.fromkeys(("add", "add to a later epoch", "add offsets"), CONCURRENT),
        **dict.fromkeys(("commit", "abort"), (CONCURRENT, -1, -1)),
        "commit of a later epoch": (FENCED, -1, -1),
        "a stranger's commit": (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1, -1),
        **dict.fromkeys(("another producer", "its own init", "an unknown producer's init"), (CONCURRENT, -1, -1)),
        "produce 11": ErrorCode.NOT_ENOUGH_REPLICAS,
        "produce 11 of a later epoch": ErrorCode.INVALID_PRODUCER_EPOCH,
        "add of a stranger": CONCURRENT,
        "produce 12 of a stranger": CONCURRENT,
        **dict.fromkeys(("produce 12", "offsets 3", "offsets 5"), CONCURRENT),
    }
    await scene.completed(3)
    assert await scene.add(scene.free) == 0


@pytest.mark.timeout(120)
async def test_transactions_with_an_epoch_each(stall: Stall, scene: Scene) -> None:
    assert await scene.produce(3, scene.stalled, 0, 12) == 0
    stall.begin()
    assert await scene.end(5) == (0, scene.id, scene.epoch + 1)
    found = {
        "commit again": await scene.end(5),
        "a stranger's commit": await scene.end(5, stranger=1000),
        "commit much later": await scene.end(5, later=2),
        "produce of a later one": await scene.produce(1, scene.free, 0, 12, later=2),
        "abort": await scene.end(5, committed=False),
        "commit of the next": await scene.end(5, later=1),
        "abort of the next": await scene.end(5, committed=False, later=1),
        "init before": await scene.init(scene.id, scene.epoch),
        "init": await scene.init(scene.id, scene.epoch + 1),
        "produce": await scene.produce(1, scene.free, 0, 12, later=1),
        "late produce": await scene.produce(1, scene.free, 0, 12),
        "offsets": await scene.commit_offset(5, later=1),
        "late offsets": await scene.commit_offset(5),
    }
    stall.end()
    assert found == {
        what: CONCURRENT if isinstance(code, int) else (CONCURRENT, -1, -1) for what, code in found.items()
    }
    await scene.completed(5)
    assert await scene.produce(1, scene.free, 0, 12, later=1) == 0
