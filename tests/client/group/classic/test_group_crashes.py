"""Groups on a real Kafka whose members or coordinator are killed while records flow: no record is lost."""

from __future__ import annotations

import asyncio

import pytest

from aiokc import Consumer
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.kafka.node import Node
from tests.producing import Message, produce

from ...member_process import member_process, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.every_kafka]


def write(kafka: LocalKafka, topic: str, partitions: int, count: int) -> set[tuple[int, int]]:
    messages = [Message(b"%d" % n, partition=n % partitions) for n in range(count)]
    return {(stored.partition, stored.offset) for stored in produce(kafka.bootstrap, topic, messages)}


async def test_partitions_of_a_process_that_was_killed_are_read_on_by_the_others(
    kafka: LocalKafka, topic_name: str
) -> None:
    kafka.create_topic(topic_name, 6)
    place = (kafka.bootstrap, topic_name, topic_name)
    async with (
        member_process(*place, session_timeout_ms=3_000) as one,
        member_process(*place, session_timeout_ms=3_000) as two,
        member_process(*place, session_timeout_ms=3_000) as three,
    ):
        members = [one, two, three]
        await until(members, lambda: [len(member.assigned) for member in members] == [2, 2, 2])
        written = await asyncio.to_thread(write, kafka, topic_name, 6, 600)
        await until(members, lambda: len(three.read) >= 100)
        await three.kill()
        written |= await asyncio.to_thread(write, kafka, topic_name, 6, 600)
        await until(members, lambda: len(one.assigned) == len(two.assigned) == 3)
        assert set(one.assigned) | set(two.assigned) == set(range(6))
        written |= await asyncio.to_thread(write, kafka, topic_name, 6, 600)
        await until(members, lambda: one.read | two.read | three.read >= written)


async def test_a_static_member_that_is_killed_and_restarted_gets_its_partitions_without_a_rebalance(
    kafka: LocalKafka, topic_name: str
) -> None:
    kafka.create_topic(topic_name, 6)
    place = (kafka.bootstrap, topic_name, topic_name)
    async with member_process(*place, group_instance_id="stays") as stays:
        await until([stays], lambda: len(stays.assigned) == 6)
        async with member_process(*place, group_instance_id="restarts") as first:
            await until([stays, first], lambda: len(stays.assigned) == len(first.assigned) == 3)
            generation, held = stays.generation, first.assigned
            written = await asyncio.to_thread(write, kafka, topic_name, 6, 60)
            await until([stays, first], lambda: stays.read | first.read >= written)
            await first.kill()
        written |= await asyncio.to_thread(write, kafka, topic_name, 6, 60)
        async with member_process(*place, group_instance_id="restarts") as again:
            await until([stays, again], lambda: stays.read | first.read | again.read >= written)
            assert again.assigned == held
            assert again.generation == stays.generation == generation
            assert len(stays.assigned) == 3


class Reader:
    """A consumer in this process that commits after each batch; any error that a call raises fails the test."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.read: set[tuple[int, int]] = set()
        self.consumer = Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
        )

    async def live(self) -> None:
        async with self.consumer:
            while True:
                for tp, records in (await self.consumer.getmany()).items():
                    self.read |= {(tp.partition, record.offset) for record in records}
                await self.consumer.commit()

    @property
    def generation(self) -> int:
        assert self.consumer._runtime.membership is not None
        return self.consumer._runtime.membership.generation

    @property
    def coordinator(self) -> int:
        assert self.consumer._runtime.membership is not None
        node_id = self.consumer._runtime.membership.offsets.requests.lookup._node_id
        assert node_id is not None
        return node_id


@pytest.mark.long
async def test_a_coordinator_that_is_killed_and_started_again_costs_no_record_and_no_membership(
    three_nodes: LocalKafka, topic_name: str
) -> None:
    kafka = three_nodes
    kafka.create_topic(topic_name, 4, 3, {"min.insync.replicas": "2"})
    readers = [Reader(kafka.bootstrap, topic_name) for _ in range(2)]
    loop = asyncio.get_running_loop()
    living = [loop.create_task(reader.live()) for reader in readers]
    written: set[tuple[int, int]] = set()

    async def all_read() -> None:
        written.update(await asyncio.to_thread(write, kafka, topic_name, 4, 200))
        async with asyncio.timeout(60):
            while not readers[0].read | readers[1].read >= written:
                for task in living:
                    assert not task.done(), task.exception()
                await readers[0].consumer._runtime.changed.wait(0.2)

    try:
        async with asyncio.timeout(30):
            while [len(reader.consumer.assignment()) for reader in readers] != [2, 2]:
                await readers[0].consumer._runtime.changed.wait(0.2)
        generation = readers[0].generation
        await all_read()
        node: Node = kafka.node(readers[0].coordinator)
        node.kill()
        await all_read()
        await asyncio.to_thread(kafka.heal)
        await all_read()
        assert [reader.generation for reader in readers] == [generation, generation]
        assert [len(reader.consumer.assignment()) for reader in readers] == [2, 2]
    finally:
        for task in living:
            task.cancel()
        await asyncio.wait(living)
