"""Members of a KIP-848 group on a real Kafka that fails, or switches the protocol off: no record is lost."""

from __future__ import annotations

import asyncio

import pytest

from aiokc import Client
from aiokc.admin import GroupDescription
from aiokc.testing.kafka import LocalKafka
from tests.features import change_feature

from .readers import PARTITIONS, WITHIN, Reader, reading, write

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(240)]


async def protocol_is(reader: Reader, name: str) -> None:
    async with asyncio.timeout(WITHIN):
        while reader.consumer.health().group_protocol != name:
            await reader.has_polled(1)


async def test_auto_follows_a_cluster_that_switches_the_protocol_on_and_off(topic_name: str) -> None:
    """Both ApiVersions answers list the API; only the refused join tells that it is off."""
    with LocalKafka(format_args=("--feature", "group.version=0")) as kafka:
        kafka.create_topic(topic_name, PARTITIONS)
        write(kafka, topic_name, 40)
        async with reading(kafka, topic_name, [topic_name], group_protocol="auto") as old:
            await old.has_read(40)
            await protocol_is(old, "classic")
            await change_feature(kafka, "upgrade", "group.version", 1)
            async with reading(kafka, topic_name, [topic_name], group_protocol="auto") as new:
                await new.holds(2)
                await old.holds(2)
                await protocol_is(new, "consumer")
                write(kafka, topic_name, 40)
                await old.has_read(60)
                await new.has_read(20)
                await new.consumer.commit()
                await old.consumer.commit()
        assert set(old.got.values()) == set(new.got.values()) == {1}
        async with reading(kafka, topic_name, [topic_name], group_protocol="auto") as last:
            await last.holds(PARTITIONS)
            await protocol_is(last, "consumer")
            await change_feature(kafka, "downgrade", "group.version", 0)
            await protocol_is(last, "classic")
            write(kafka, topic_name, 40)
            await last.holds(PARTITIONS)
            await last.has_read(40)
        assert set(last.got.values()) == {1}
        assert ("lost", PARTITIONS) in last.heard.calls


async def test_the_coordinator_dies_while_a_member_gives_up_partitions(
    three_nodes: LocalKafka, topic_name: str
) -> None:
    kafka = three_nodes
    kafka.create_topic(topic_name, PARTITIONS, 3)
    async with reading(kafka, topic_name, [topic_name], max_poll_interval_ms=60_000) as one:
        await one.holds(PARTITIONS)
        one.keeps_its_batch()
        write(kafka, topic_name, 40)
        await one.has_read(1)
        async with reading(kafka, topic_name, [topic_name]) as two:
            await two.has_heard()
            async with Client(bootstrap_servers=kafka.bootstrap) as client:
                group = (await client.describe_groups([topic_name]))[topic_name]
            assert isinstance(group, GroupDescription)
            await asyncio.to_thread(kafka.node(group.coordinator).kill)
            await asyncio.sleep(5.0)
            one.goes_on()
            await two.holds(2)
            await one.holds(2)
            await asyncio.to_thread(kafka.heal)
            async with asyncio.timeout(WITHIN):
                while len({*one.got, *two.got}) < 40:
                    await two.has_polled(1)
    assert set((one.got + two.got).values()) == {1}
    assert "lost" not in {what for what, _ in (*one.heard.calls, *two.heard.calls)}
