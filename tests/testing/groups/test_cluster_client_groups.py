"""Groups of other clients, and of aiokc, on the Cluster: three members that join, leave, and fall silent."""

from __future__ import annotations

import threading
import warnings
from itertools import count
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.types import TopicPartition
from aiokc.wire.messages.group import HeartbeatRequest

from .foreign_members import (
    AiokafkaMember,
    AiokcMember,
    ConfluentMember,
    CooperativeMember,
    ForeignMember,
    KafkaPythonMember,
    Witness,
)

with warnings.catch_warnings():  # it reads its schemas in a way that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

TOPIC, GROUP = "events", "readers"
_SECONDS = 20.0
PARTITIONS = [TopicPartition(TOPIC, index) for index in range(6)]


class Group:
    """A group, and the records that are written for it."""

    def __init__(self, cluster: Cluster, kind: type[ForeignMember]) -> None:
        self.members: dict[str, ForeignMember] = {}
        self._cluster = cluster
        self._kind = kind
        self._witness = Witness()
        self._numbers = count()

    def start(self, *names: str) -> None:
        for name in names:
            bootstrap = self._cluster.bootstrap
            self.members[name] = self._kind(name, bootstrap, GROUP, TOPIC, self._witness)
            self.members[name].start()

    def leave(self, name: str) -> None:
        self.members.pop(name).leave()

    def assert_shared_and_read(self) -> None:
        """Check that all share the partitions evenly, and read what is written from now on."""
        self._witness.until_shared(PARTITIONS, self.members)
        values = [f"{next(self._numbers)}".encode() for _ in range(60)]
        for number, value in enumerate(values):
            self._cluster.append(TOPIC, value, partition=number % len(PARTITIONS))
        self._witness.until_read(values)

    def move_coordinator(self) -> None:
        """Return once all members have found the new one: librdkafka tries only once to leave, where it knows of."""
        found = set[str]()
        heard = threading.Event()
        new = self._cluster.move_coordinator(GROUP)

        def hear(exchange: Exchange) -> None:
            if exchange.broker == new:
                found.add(exchange.request.member_id)
                heard.set()

        listening = self._cluster.intercept(HeartbeatRequest, hear)
        while not found.issuperset(self._cluster.members(GROUP)):
            assert heard.wait(_SECONDS), f"only {found} have found the new coordinator"
            heard.clear()
        listening.cancel()

    def end(self) -> None:
        for name in list(self.members):
            self.leave(name)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind",
    [
        ConfluentMember,
        pytest.param(CooperativeMember, marks=pytest.mark.long),
        # Its close() takes back a connection that is just being made, and leaves the socket to the garbage collector.
        pytest.param(KafkaPythonMember, marks=pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")),
        AiokafkaMember,
        AiokcMember,
    ],
)
def test_a_group_of_three_with_members_coming_and_going(kind: type[ForeignMember]) -> None:
    with Cluster(brokers=3, topics={TOPIC: len(PARTITIONS)}).in_thread() as cluster:
        group = Group(cluster, kind)
        try:
            group.start("a", "b", "c")
            group.assert_shared_and_read()
            group.leave("b")
            group.assert_shared_and_read()
            group.start("d")
            group.assert_shared_and_read()
            expired = cluster.expire_member(GROUP, "a")  # it joins anew
            group.assert_shared_and_read()
            assert expired not in cluster.members(GROUP)
            group.move_coordinator()
            group.assert_shared_and_read()
        finally:
            group.end()
        ends = {one: cluster.end_offset(one.topic, one.partition) for one in PARTITIONS}
        assert cluster.committed(GROUP) == ends
        assert cluster.members(GROUP) == []  # they have left: their sessions did not just expire


# Offsets in transactions: the records read and those produced from them count together or not at all


def _confluent_offsets(bootstrap: str, name: str, *, committed: bool) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    producer: Any = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    try:
        producer.init_transactions(_SECONDS)
        producer.begin_transaction()
        producer.produce("results", b"a result")
        producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(TOPIC, 0, 7)], consumer.consumer_group_metadata(), _SECONDS
        )
        if committed:
            producer.commit_transaction(_SECONDS)
        else:
            producer.abort_transaction(_SECONDS)
    finally:
        consumer.close()


def test_confluent_kafka_commits_offsets_in_a_transaction() -> None:
    with Cluster(topics={TOPIC: 1, "results": 1}).in_thread() as cluster:
        _confluent_offsets(cluster.bootstrap, "aborted", committed=False)
        assert cluster.committed(GROUP) == {}
        _confluent_offsets(cluster.bootstrap, "committed", committed=True)
        assert cluster.committed(GROUP) == {PARTITIONS[0]: 7}


async def test_aiokafka_commits_offsets_in_a_transaction() -> None:
    async with Cluster(topics={TOPIC: 1, "results": 1}) as cluster:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="t")
        await producer.start()
        offsets = {aiokafka.TopicPartition(TOPIC, 0): 7}
        try:
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction(offsets, GROUP)
            assert cluster.committed(GROUP) == {}
            await producer.abort_transaction()
            assert cluster.committed(GROUP) == {}
            async with producer.transaction():
                await producer.send("results", b"a result")
                await producer.send_offsets_to_transaction(offsets, GROUP)
        finally:
            await producer.stop()
        assert cluster.committed(GROUP) == {PARTITIONS[0]: 7}


def test_kafka_python_commits_offsets_in_a_transaction() -> None:
    with Cluster(topics={TOPIC: 1, "results": 1}).in_thread() as cluster:
        producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="t")
        offsets = {kafka.TopicPartition(TOPIC, 0): kafka.structs.OffsetAndMetadata(7, "", -1)}
        try:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send_offsets_to_transaction(offsets, GROUP)
            producer.abort_transaction()
            assert cluster.committed(GROUP) == {}
            producer.begin_transaction()
            producer.send("results", b"a result")
            producer.send_offsets_to_transaction(offsets, GROUP)
            producer.commit_transaction()
        finally:
            producer.close()
        assert cluster.committed(GROUP) == {PARTITIONS[0]: 7}


# Administration of groups


def test_an_admin_client_sees_and_deletes_groups() -> None:
    with Cluster(brokers=3, topics={TOPIC: len(PARTITIONS)}).in_thread() as cluster:
        admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap})
        group = Group(cluster, AiokcMember)
        try:
            group.start("a", "b")
            group.assert_shared_and_read()
            (listed,) = admin.list_consumer_groups().result(_SECONDS).valid
            assert (listed.group_id, listed.state.name) == (GROUP, "STABLE")
            described = admin.describe_consumer_groups([GROUP])[GROUP].result(_SECONDS)
            assert sorted(member.client_id for member in described.members) == ["a", "b"]
            assigned = [one for member in described.members for one in member.assignment.topic_partitions]
            assert sorted((one.topic, one.partition) for one in assigned) == PARTITIONS
            with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
                admin.delete_consumer_groups([GROUP])[GROUP].result(_SECONDS)
        finally:
            group.end()
        (offsets,) = admin.list_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions(GROUP)]).values()
        assert {one.offset for one in offsets.result(_SECONDS).topic_partitions} == {10}
        admin.delete_consumer_groups([GROUP])[GROUP].result(_SECONDS)
        assert cluster.committed(GROUP) == {}
