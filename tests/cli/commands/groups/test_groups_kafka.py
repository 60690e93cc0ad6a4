"""The commands about groups against kafka-consumer-groups, on a real Kafka, with members of both group protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer

from aiokc import Client, Consumer, ConsumerConfig, TopicPartition
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.kafka.jars import run_tool
from tests.producing import Message, produce
from tests.suite.peers.java_programs import QUICK_JVM

from .running_groups import Commands, told

_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


async def kafka_consumer_groups(kafka: LocalKafka, *words: str) -> str:
    """Run Kafka's own tool; return what it prints."""
    return await asyncio.to_thread(run_tool, _TOOL, "--bootstrap-server", kafka.bootstrap, *words, jvm=QUICK_JVM)


def tables(text: str) -> list[dict[str, str]]:
    """Read the tables that it prints, each with its heading; texts there have no spaces."""
    rows: list[dict[str, str]] = []
    heading: list[str] = []
    for line in text.splitlines():
        cells = line.split()
        if cells[:1] == ["GROUP"]:
            heading = cells
        elif heading and len(cells) == len(heading):
            rows.append(dict(zip(heading, cells, strict=True)))
    return rows


class LibrdkafkaMember:
    """A member of the consumer protocol (KIP-848) that owns all partitions and commits nothing."""

    def __init__(self, kafka: LocalKafka, topic: str, group: str) -> None:
        self._config: dict[str, Any] = {
            **{"bootstrap.servers": kafka.bootstrap, "group.id": group, "group.protocol": "consumer"},
            **{"client.id": "rd", "enable.auto.commit": False, "auto.offset.reset": "latest"},
        }
        self._topic, self._assigned, self._end = topic, Event(), Event()
        self._thread = Thread(target=self._consume)

    def _consume(self) -> None:
        consumer = LibrdkafkaConsumer(self._config)
        consumer.subscribe([self._topic], on_assign=lambda _, partitions: self._assigned.set() if partitions else None)
        while not self._end.is_set():
            consumer.poll(0.1)
        consumer.close()

    async def __aenter__(self) -> None:
        self._thread.start()
        assert await asyncio.to_thread(self._assigned.wait, 40)

    async def __aexit__(self, *raised: object) -> None:
        self._end.set()
        await asyncio.to_thread(self._thread.join)


@asynccontextmanager
async def members(kafka: LocalKafka, topic: str, classic: str, new: str) -> AsyncIterator[None]:
    """A member in each of two groups: one of the classic protocol, one of KIP-848."""
    options = ConsumerConfig(
        bootstrap_servers=kafka.bootstrap, group_id=classic, client_id="app", enable_auto_commit=False
    )
    async with LibrdkafkaMember(kafka, topic, new), Consumer(topic, config=options) as consumer:
        await consumer.wait_assigned()
        yield


@pytest.fixture
async def groups(kafka: LocalKafka, topic_name: str) -> tuple[str, str]:
    """Two groups that have committed offsets in a topic with two partitions of ten records."""
    kafka.create_topic(topic_name, partitions=2)
    produce(kafka.bootstrap, topic_name, [Message(b"x", partition=number % 2) for number in range(20)])
    classic, new = f"{topic_name}-classic", f"{topic_name}-new"
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    async with Client(bootstrap_servers=kafka.bootstrap) as client:
        await client.commit(classic, {first: 3, second: 10})
        await client.commit(new, {first: 5})
    return classic, new


def same(theirs: list[dict[str, str]], ours: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """Assert that the same rows are there, in any order; what is missing is "-" in a table of Kafka's tool."""

    def shown(value: object) -> str:
        return "-" if value is None else str(value)

    assert sorted(tuple(row[column] for column in columns) for row in theirs) == sorted(
        tuple(shown(row[name]) for name in columns.values()) for row in ours
    )


@pytest.mark.timeout(180)
async def test_active_groups_are_described_alike_and_not_reset(
    kafka: LocalKafka, topic_name: str, groups: tuple[str, str], tmp_path: Path
) -> None:
    commands = Commands(kafka.bootstrap, tmp_path)
    async with members(kafka, topic_name, *groups):
        theirs = tables(await kafka_consumer_groups(kafka, "--describe", "--group", groups[0], "--group", groups[1]))
        ours = await commands.rows("groups", "show", *groups)
        assert len(ours) == 4
        columns = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST")
        same(theirs, ours, {name: name.lower().replace("-", "_") for name in (*columns, "CLIENT-ID")})
        listed = {row["group"]: row for row in await commands.rows("groups", f"{topic_name}*")}
        assert [(listed[group]["type"], listed[group]["members"]) for group in groups] == [
            ("classic", 1),
            ("consumer", 1),
        ]
        for group, client in zip(groups, ("app", "rd"), strict=True):
            refused = await commands.run("reset-offsets", group, topic_name, "--to", "earliest", "--execute")
            assert refused.code == 4
            assert f"group {group!r} is Stable, with 1 member: " in refused.err
            assert f"(client {client}, on /127.0.0.1)" in refused.err
            assert (await commands.run("groups", "delete", group, "--execute")).code == 4


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_members_and_states_are_described_alike(
    kafka: LocalKafka, topic_name: str, groups: tuple[str, str], tmp_path: Path
) -> None:
    commands = Commands(kafka.bootstrap, tmp_path)
    async with members(kafka, topic_name, *groups):
        words = ("--describe", "--group", groups[0], "--group", groups[1])
        theirs = tables(await kafka_consumer_groups(kafka, *words, "--members", "--verbose"))
        ours = await commands.rows("groups", "show", *groups, "--members")
        columns = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "CURRENT-EPOCH", "CURRENT-ASSIGNMENT")
        named = {name: name.lower().replace("-", "_") for name in (*columns, "TARGET-EPOCH", "TARGET-ASSIGNMENT")}
        same(theirs, ours, {**named, "#PARTITIONS": "partitions"})
        theirs = tables(
            (await kafka_consumer_groups(kafka, *words, "--state", "--verbose"))
            .replace("  (", "(")
            .replace("R (I", "R(I")
        )
        ours = await commands.rows("groups", "show", *groups, "--state")
        assert {(row["GROUP"], row["STATE"], row["#MEMBERS"]) for row in theirs} == {
            (row["group"], row["state"], str(row["members"])) for row in ours
        }


@pytest.mark.timeout(180)
async def test_plans_are_exchanged_with_kafkas_tool(
    kafka: LocalKafka, topic_name: str, groups: tuple[str, str], tmp_path: Path
) -> None:
    commands, group = Commands(kafka.bootstrap, tmp_path), groups[0]

    async def committed() -> list[int]:
        return [row["current_offset"] for row in await commands.rows("groups", "show", group)]

    reset = ("--reset-offsets", "--group", group)
    saved = tmp_path / "ours.csv"
    assert (await commands.run("reset-offsets", group, topic_name, "--shift", "-2", "--save", str(saved))).code == 0
    printed = await kafka_consumer_groups(kafka, *reset, "--from-file", str(saved), "--execute", "--export")
    assert await committed() == [1, 8]
    assert sorted(line.replace('"', "") for line in printed.split()) == saved.read_text().split()

    exported = tmp_path / "theirs.csv"
    exported.write_text(await kafka_consumer_groups(kafka, *reset, "--all-topics", "--to-latest", "--export"))
    done = await commands.run("reset-offsets", group, "--from-file", str(exported), "--execute")
    assert done.code == 0
    assert await committed() == [10, 10]
    (undone,) = await commands.run_line(told(done, "to undo this:"))
    assert undone.code == 0
    assert await committed() == [1, 8]
