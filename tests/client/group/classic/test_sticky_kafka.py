"""Groups with the assignor ``sticky`` on a real broker, alone and with members of other clients."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from aiokc.testing.kafka import LocalKafka
from aiokc.testing.kafka.jars import java_command
from aiokc.types import TopicPartition
from tests.suite.peers.java_programs import QUICK_JVM

from ..group_member import GroupMember, settled

pytestmark = [pytest.mark.kafka, pytest.mark.every_kafka]


@pytest.fixture
def topic(kafka: LocalKafka, topic_name: str) -> str:
    kafka.create_topic(topic_name, partitions=6)
    return topic_name


def sticky(kafka: LocalKafka, group_id: str) -> GroupMember:
    return GroupMember(kafka.bootstrap, group_id, partition_assignment_strategy=["sticky"])


def join(member: GroupMember, topic: str) -> None:
    member.poll()
    member.subscribe(topic)


def everything(topic: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in range(6))


async def test_members_keep_what_they_have_when_others_come_and_go(kafka: LocalKafka, topic: str) -> None:
    async with sticky(kafka, topic) as one, sticky(kafka, topic) as two, sticky(kafka, topic) as three:
        join(one, topic)
        await one.assigned(6)
        join(two, topic)
        await settled(one, two, counts=(3, 3))
        halves = one.assignment, two.assignment
        join(three, topic)
        await settled(one, two, three, counts=(2, 2, 2))
        assert one.assignment < halves[0]
        assert two.assignment < halves[1]
        thirds = two.assignment, three.assignment
        await one.leave()
        await settled(two, three, counts=(3, 3))
        assert two.assignment > thirds[0]
        assert three.assignment > thirds[1]
        assert two.assignment | three.assignment == everything(topic)
        await two.leave()
        await three.leave()


@asynccontextmanager
async def aiokafka_member(kafka: LocalKafka, topic: str) -> AsyncIterator[None]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap,
        group_id=topic,
        partition_assignment_strategy=(StickyPartitionAssignor,),
        heartbeat_interval_ms=100,
    )
    await consumer.start()
    try:
        yield
    finally:
        await consumer.stop()


@asynccontextmanager
async def java_member(kafka: LocalKafka, topic: str) -> AsyncIterator[None]:
    options = ["--bootstrap-server", kafka.bootstrap, "--topic", topic, "--group", topic]
    for name, value in {
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.StickyAssignor",
        "heartbeat.interval.ms": "100",
    }.items():
        options += ["--command-property", f"{name}={value}"]
    process = await asyncio.create_subprocess_exec(
        *java_command("org.apache.kafka.tools.consumer.ConsoleConsumer", *options, jvm=QUICK_JVM),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()  # it leaves the group first
        try:
            async with asyncio.timeout(90):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()


@pytest.mark.parametrize("other_member", [aiokafka_member, java_member])
async def test_in_a_group_with_other_clients_everybody_keeps_what_he_has(
    kafka: LocalKafka, topic: str, other_member: Callable[[LocalKafka, str], AbstractAsyncContextManager[None]]
) -> None:
    async with (
        sticky(kafka, topic) as one,
        sticky(kafka, topic) as two,
        sticky(kafka, topic) as three,
        sticky(kafka, topic) as four,
    ):
        join(one, topic)
        await one.assigned(6)
        async with other_member(kafka, topic):
            # Our member leads, and reads what the other client claims.
            half = await one.assigned(3)
            join(two, topic)
            await settled(one, two, counts=(2, 2))
            assert one.assignment < half
            third = one.assignment
            await two.leave()
            assert await one.assigned(3) > third
            await one.leave()
            # The other client leads, as the only member left, and reads what our member claims.
            join(three, topic)
            half = await three.assigned(3)
            join(four, topic)
            await settled(three, four, counts=(2, 2))
            assert three.assignment < half
            third = three.assignment
            await four.leave()
            assert await three.assigned(3) > third
        assert await three.assigned(6) == everything(topic)
        await three.leave()
