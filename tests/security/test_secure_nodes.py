"""Three real brokers with TLS and SASL: they are killed while a consumer reads, and topics that may not be created."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed
from aiokc.testing.kafka import Acl, SecureKafka
from aiokc.testing.kafka.secure.acls import CLUSTER_NAME
from tests.producing import produce

from .actors.members import SECONDS, committed, read
from .ways import Way

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(400)]

PARTITIONS = 6
ALICE, BOB = Way("SASLTLS", "SCRAM-SHA-512"), Way("SASLTLS", "SCRAM-SHA-256")


@pytest.fixture(scope="module")
def secure_nodes() -> Iterator[SecureKafka]:
    with SecureKafka(3, config={"auto.create.topics.enable": "true"}) as running:
        running.add_acls(Acl("alice", "ALL", "TOPIC", "*"), Acl("alice", "ALL", "GROUP", "*"))
        yield running


class Lost(RebalanceListener):
    """Counts the partitions that the member has lost without being asked."""

    def __init__(self) -> None:
        self.lost = 0

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.lost += len(partitions)


async def test_each_record_comes_once_while_one_broker_after_the_other_is_killed(
    secure_nodes: SecureKafka, topic_name: str
) -> None:
    """The leaders and the coordinator move; each connection that is made anew logs in over TLS."""
    secure_nodes.create_topic(topic_name, PARTITIONS, replication_factor=3)
    listener, sent, received = Lost(), list[bytes](), list[bytes]()

    async def exchange() -> None:
        values = [b"%d" % (len(sent) + number) for number in range(300)]
        sent.extend(values)
        await asyncio.to_thread(produce, secure_nodes.bootstrap, topic_name, values, acks="all")
        received.extend(await read(consumer, len(values), seconds=120))
        assert sorted(received) == sorted(sent), "each record once"

    options = {**ALICE.options(secure_nodes), "auto_offset_reset": "earliest", "auto_commit_interval_ms": 200}
    async with Consumer(group_id=topic_name, **options) as consumer:
        consumer.subscribe([topic_name], listener=listener)
        await exchange()
        for node in secure_nodes.nodes:
            node.kill()
            await exchange()
            await asyncio.to_thread(secure_nodes.heal)
            await exchange()
        assert await consumer.getmany(timeout_ms=1000) == {}, "no record comes twice"
        await consumer.commit()
        offsets = [await committed(consumer, topic_name, partition) or 0 for partition in range(PARTITIONS)]
        assert sum(offsets) == len(sent)
    assert listener.lost == 0


async def test_who_may_not_create_topics_reads_on_and_gets_the_missing_one_when_allowed(
    secure_nodes: SecureKafka, topic_name: str
) -> None:
    """Brokers create a topic for a consumer if it may create topics in the cluster."""
    secure_nodes.create_topic(topic_name)
    produce(secure_nodes.bootstrap, topic_name, [b"0", b"1"])
    missing = f"{topic_name}-missing"
    secure_nodes.add_acls(
        *(Acl("bob", "READ", resource, name) for resource in ("TOPIC", "GROUP") for name in (topic_name, missing))
    )
    options = {**BOB.options(secure_nodes, "bob"), "auto_offset_reset": "earliest", "metadata_max_age_ms": 500}
    async with asyncio.timeout(SECONDS), Consumer(group_id=topic_name, **options) as consumer:
        consumer.subscribe([topic_name, missing])
        values, errors = list[bytes | None](), list[AuthorizationFailed]()
        while len(values) < 2 or not errors:
            try:
                values += [record.value for records in (await consumer.getmany()).values() for record in records]
            except AuthorizationFailed as error:
                errors.append(error)
        assert values == [b"0", b"1"]
        assert {error.code for error in errors} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert all(missing in str(error) for error in errors)
        await asyncio.to_thread(secure_nodes.add_acls, Acl("bob", "CREATE", "CLUSTER", CLUSTER_NAME))
        while missing not in {partition.topic for partition in consumer.assignment()}:
            try:
                await consumer.getmany(timeout_ms=100)
            except AuthorizationFailed:
                pass  # from before the right was there
        await consumer.commit()
        assert await committed(consumer, topic_name) == 2
