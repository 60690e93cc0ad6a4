"""Partitions without a leader while all other brokers are well: what goes there, what does not, and when it goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Producer, ProducerRecord
from aiokc.errors import DeliveryTimedOut, RequestTimedOut
from aiokc.records.encoding.murmur2 import murmur2_partition
from aiokc.testing import Cluster
from tests.client.virtually import virtually

pytestmark = pytest.mark.timeout(30)

PARTITIONS = 3
#: Keys by the partition that they go to, and by the one that they would go to if there were two.
KEYS = {(murmur2_partition(key, PARTITIONS), murmur2_partition(key, 2)): key for key in map(b"%d".__mod__, range(50))}


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(**{"bootstrap_servers": cluster.bootstrap, **options})


async def without_leader(cluster: Cluster, producer: Producer[Any, Any], partitions: int = PARTITIONS) -> int:
    """Take the only replica of partition 1 down, and return its broker once the producer has heard of it."""
    cluster.create_topic("alone", partitions, replication_factor=1)
    await producer.partitions_for("alone")
    leader = cluster.leader("alone", 1)
    assert leader is not None
    cluster.take_down(leader)
    while (await producer.partitions_for("alone"))[1].leader is not None:
        await producer._runtime.cluster_client.metadata.changed.wait()
    return leader


def test_a_key_goes_to_its_partition_though_that_has_no_leader() -> None:
    """All partitions count. Else the records of a key would be in another one for as long as a broker is away."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            leader = await without_leader(cluster, producer)
            sent = [
                producer.send_soon("alone", b"1", KEYS[1, 0]),
                await producer.send("alone", b"2", KEYS[1, 0], timeout_ms=1_000),
            ]
            many = await producer.send_many("alone", [ProducerRecord("alone", b"3", KEYS[1, 0])])
            assert (await producer.send_and_wait("alone", b"4", KEYS[0, 1])).partition == 0
            assert [delivery.done() for delivery in sent] == [False, False]
            assert not many.done()
            cluster.bring_up(leader)
            assert [(await delivery).partition for delivery in sent] == [1, 1]
            assert [tp.partition for tp in await many] == [1]
        assert [record.value for record in cluster.records("alone", 1)] == [b"1", b"2", b"3"]

    virtually(story)


def test_records_without_a_key_go_to_partitions_with_a_leader() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, batch_size=100) as producer:
            await without_leader(cluster, producer)
            for _ in range(100):
                await producer.send_and_wait("alone", bytes(50))
        assert [cluster.end_offset("alone", number) > 0 for number in range(PARTITIONS)] == [True, False, True]

    virtually(story)


def test_the_leader_is_asked_for_until_there_is_one() -> None:
    """No connection fails any more that would bring news, and metadata_max_age_ms is minutes away."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            leader = await without_leader(cluster, producer)
            sent = await producer.send("alone", b"", partition=1)
            await asyncio.sleep(30)
            assert producer.health().troubled[sent._place()[0].tp].error == "the partition has no leader"
            cluster.bring_up(leader)
            async with asyncio.timeout(3):
                await sent

    virtually(story)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_what_expires_leaves_nothing_of_its_records(codec: str) -> None:
    """What appends to a partition refers to its last batch until another begins there: of a dead one nothing is left.

    buffer_memory has counted these bytes as free since the batch has failed.
    """

    async def story(cluster: Cluster) -> None:
        options = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 1_000, "compression_type": codec}
        async with producing(cluster, **options) as producer:
            await without_leader(cluster, producer, partitions=30)
            dead = [number for number, info in enumerate(await producer.partitions_for("alone")) if info.leader is None]
            sent = [await producer.send("alone", bytes(10_000), partition=number) for number in dead]
            appended = [delivery._place()[0].open for delivery in sent]
            assert len(appended) == 10
            for delivery in sent:
                with pytest.raises(DeliveryTimedOut):
                    await delivery
            assert producer._runtime.accumulator.used == 0
            for opened in appended:
                assert opened is not None
                with pytest.raises(ValueError, match="was taken before"):
                    opened.take()

    virtually(story)


def test_flushes_that_ended_early_do_not_keep_later_ones_from_their_end() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            leader = await without_leader(cluster, producer)
            sent = []
            for _ in range(50):
                sent.append(await producer.send("alone", b"", partition=1))
                with pytest.raises(RequestTimedOut):
                    await producer.flush(timeout_ms=0)
            waits = asyncio.create_task(producer.flush())
            await asyncio.sleep(1)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            cluster.bring_up(leader)
            await producer.flush()
            assert [(await delivery).offset for delivery in sent] == list(range(50))

    virtually(story)


def test_partitions_that_go_on_having_no_leader_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            leader = await without_leader(cluster, producer)
            sent = await producer.send("alone", b"", partition=1)
            await asyncio.sleep(10)
            assert [trouble.error for trouble in producer.health().troubled.values()] != []
            cluster.bring_up(leader)
            await sent

    virtually(story)
    said = [(one.name, one.getMessage()) for one in caplog.records if "no leader" in one.getMessage()]
    assert said == [("aiokc.produce", "alone-1: no leader; looking again until there is one")]
