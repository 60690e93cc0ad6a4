"""The same broker looked at by Kafka's own tools, by confluent-kafka's AdminClient, and by this client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as TheirPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from aiokc import Client, Consumer, TopicPartition
from aiokc.admin import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    GroupDescription,
    GroupIsActive,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToOffsets,
    ToTime,
    partition_sizes,
)
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.log.topic_settings import TOPIC_SETTINGS
from tests.producing import Message, produce

from .kafkas_tools import (
    CONFIGS,
    CONSUMER_GROUPS,
    GET_OFFSETS,
    LOG_DIRS,
    SHARE_GROUPS,
    TOPICS,
    KafkasTools,
    kafkas_tools,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


class Stage:
    """A topic of three partitions, and four groups: of each protocol, a share group, and one without members."""

    def __init__(self, kafka: LocalKafka, topic: str, client: Client, tools: KafkasTools) -> None:
        self.topic, self.client, self.tools = topic, client, tools
        self.old, self.new, self.empty, self.shared = (f"{topic}-{kind}" for kind in ("old", "new", "empty", "shared"))
        self.groups = [self.empty, self.new, self.old]
        self.partitions = [TopicPartition(topic, number) for number in range(3)]
        self.confluent = AdminClient({"bootstrap.servers": kafka.bootstrap})

    async def described(self) -> dict[str, GroupDescription]:
        found = await self.client.describe_groups([*self.groups, self.shared])
        return {name: group for name, group in found.items() if isinstance(group, GroupDescription)}


async def test_every_answer_is_that_of_the_other_tools(kafka: LocalKafka, topic_name: str, tmp_path: Path) -> None:
    kafka.create_topic(topic_name, partitions=3, config={"retention.ms": "-1"})
    messages = [Message(b"v" * 100, partition=number % 3, timestamp=1_000 * (1 + number)) for number in range(30)]
    produce(kafka.bootstrap, topic_name, messages)
    async with (
        Client(bootstrap_servers=kafka.bootstrap) as client,
        kafkas_tools(kafka.bootstrap, topic_name, f"{topic_name}-new", f"{topic_name}-shared") as tools,
        Consumer(
            topic_name,
            bootstrap_servers=kafka.bootstrap,
            group_id=f"{topic_name}-old",
            group_instance_id="place",
            client_id="classic",
            enable_auto_commit=False,
        ) as member,
    ):
        await member.wait_assigned()
        stage = Stage(kafka, topic_name, client, tools)
        await member.commit({stage.partitions[0]: 3})
        await client.commit(stage.empty, {stage.partitions[0]: 2, stage.partitions[1]: 4})
        await lists_of_groups(stage)
        await members_and_states(stage)
        await lag(stage)
        await offsets_by_timestamp(stage)
        await topics_settings_and_sizes(stage)
        await what_confluent_says(stage)
        await resets(stage, tmp_path)
        await changes(stage)


async def lists_of_groups(stage: Stage) -> None:
    listed = {one.group_id: one for one in await stage.client.list_groups() if one.group_id.startswith(stage.topic)}
    states = await stage.tools.table(CONSUMER_GROUPS, "--list", "--state")
    types = await stage.tools.table(CONSUMER_GROUPS, "--list", "--type")
    theirs = {row["GROUP"]: row["STATE"] for row in states if row["GROUP"].startswith(stage.topic)}
    assert theirs == {name: listed[name].state for name in stage.groups}
    theirs = {row["GROUP"]: row["TYPE"].lower() for row in types if row["GROUP"].startswith(stage.topic)}
    assert theirs == {name: listed[name].type for name in stage.groups}
    assert (await stage.tools.run(SHARE_GROUPS, "--list")).split() == [stage.shared]
    assert listed[stage.shared].type == "share"
    by_type = [one.group_id for one in await stage.client.list_groups(types=["consumer"])]
    assert stage.new in by_type
    assert stage.old not in by_type


def assigned(partitions: tuple[TopicPartition, ...] | None) -> str:
    """Return partitions of one topic as the tool shows them: "t:0,1"."""
    if not partitions:
        return "-"
    return f"{partitions[0].topic}:{','.join(str(tp.partition) for tp in partitions)}"


async def members_and_states(stage: Stage) -> None:
    groups = await stage.described()
    chosen = [word for name in stage.groups for word in ("--group", name)]
    rows = await stage.tools.table(CONSUMER_GROUPS, "--describe", *chosen, "--members", "--verbose")
    theirs = {
        (row["GROUP"], row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"], row.get("GROUP-INSTANCE-ID", "-")): (
            row["CURRENT-EPOCH"],
            row["CURRENT-ASSIGNMENT"],
            row["TARGET-ASSIGNMENT"],
        )
        for row in rows
    }
    assert theirs == {
        (name, one.member_id, one.host, one.client_id, one.group_instance_id or "-"): (
            "-" if one.epoch is None else str(one.epoch),
            assigned(one.assignment),
            assigned(one.target),
        )
        for name in stage.groups
        for one in groups[name].members
    }
    assert len(theirs) == 2
    rows = await stage.tools.table(CONSUMER_GROUPS, "--describe", *chosen, "--state", "--verbose")
    assert {
        row["GROUP"]: (row["ID"], row["ASSIGNMENT-STRATEGY"], row["STATE"], row["GROUP-EPOCH"], row["#MEMBERS"])
        for row in rows
    } == {
        name: (
            f"({group.coordinator})",
            group.assignor or "-",
            group.state,
            "-" if group.epoch is None else str(group.epoch),
            str(len(group.members)),
        )
        for name, group in groups.items()
        if name != stage.shared
    }
    said = await stage.tools.run(SHARE_GROUPS, "--describe", "--group", stage.shared, "--members")
    sharing = [line.split()[1:4] for line in said.splitlines() if line.startswith(stage.shared)]
    assert sharing == [[one.member_id, one.host, one.client_id] for one in groups[stage.shared].members]
    assert len(sharing) == 1
    assert groups[stage.shared].type == "share"


async def lag(stage: Stage) -> None:
    groups = await stage.described()
    found = await stage.client.group_lag(stage.groups, with_time=True)
    chosen = [word for name in stage.groups for word in ("--group", name)]
    rows = await stage.tools.table(CONSUMER_GROUPS, "--describe", *chosen, "--offsets")
    theirs = {
        (row["GROUP"], int(row["PARTITION"])): (
            row["CURRENT-OFFSET"],
            row["LOG-END-OFFSET"],
            row["LAG"],
            row["CONSUMER-ID"],
        )
        for row in rows
    }

    def cell(number: int | None) -> str:
        return "-" if number is None else str(number)

    ours = {}
    for name, of_group in found.items():
        assert isinstance(of_group, dict), of_group
        for tp, one in of_group.items():
            owner = groups[name].owner(tp)
            committed = one.committed.offset if one.committed is not None else None
            ours[name, tp.partition] = (
                cell(committed),
                cell(one.end),
                cell(one.lag),
                owner.member_id if owner is not None else "-",
            )
            if committed is not None:
                assert one.timestamp == 1_000 * (1 + tp.partition + 3 * committed), "of the record to read next"
    assert ours == theirs
    assert len(ours) == 8


async def offsets_by_timestamp(stage: Stage) -> None:
    names = {
        EARLIEST: "earliest",
        LATEST: "latest",
        MAX_TIMESTAMP: "max-timestamp",
        EARLIEST_LOCAL: "earliest-local",
        LATEST_TIERED: "latest-tiered",
        15_000: "15000",
        99_000: "99000",
    }
    for timestamp, name in names.items():
        found = await stage.client.list_offsets(dict.fromkeys(stage.partitions, timestamp))
        ours = {f"{tp.topic}:{tp.partition}:{one.offset}" for tp, one in found.items() if one is not None}
        said = (await stage.tools.run(GET_OFFSETS, "--topic", stage.topic, "--time", name)).split()
        assert ours == {line for line in said if not line.endswith(":")}, name


async def topics_settings_and_sizes(stage: Stage) -> None:
    topic = (await stage.client.describe_topics([stage.topic]))[stage.topic]
    assert not isinstance(topic, Exception)
    said = await stage.tools.run(TOPICS, "--describe", "--topic", stage.topic)
    ours = [
        f"Partition: {number}\tLeader: {one.leader}\tReplicas: {one.replicas[0]}\tIsr: {one.in_sync_replicas[0]}"
        for number, one in sorted(topic.partitions.items())
    ]
    assert [line for line in ours if line in said] == ours
    assert "PartitionCount: 3" in said

    settings = (await stage.client.topic_configs([stage.topic]))[stage.topic]
    assert isinstance(settings, dict)
    said = await stage.tools.run(
        CONFIGS, "--describe", "--all", "--entity-type", "topics", "--entity-name", stage.topic
    )
    lines = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    assert len(lines) == len(settings)
    for one in settings.values():
        synonyms = ", ".join(f"{other.source.name}:{other.name}={other.value}" for other in one.synonyms)
        assert f"{one.name}={one.value} sensitive=false synonyms={{{synonyms}}}" in lines
    assert (settings["retention.ms"].value, settings["retention.ms"].is_default) == ("-1", False)
    # What the test cluster answers is what this broker answers.
    assert {
        name: (setting.default, int(setting.type), setting.synonym)
        for name, setting in TOPIC_SETTINGS.items()
        if name not in ("retention.ms", "min.insync.replicas")
    } == {
        one.name: (one.value, int(one.type), one.synonyms[0].name if one.synonyms else "")
        for one in settings.values()
        if one.name not in ("retention.ms", "min.insync.replicas")
    }

    found = await stage.client.log_dirs()
    sizes = partition_sizes(found)
    said = await stage.tools.run(LOG_DIRS, "--describe", "--topic-list", stage.topic)
    (broker,) = json.loads(said.splitlines()[-1])["brokers"]
    (log_dir,) = broker["logDirs"]
    assert {one["partition"]: {broker["broker"]: one["size"]} for one in log_dir["partitions"]} == {
        str(tp): sizes[tp] for tp in stage.partitions
    }
    assert list(found[broker["broker"]]) == [log_dir["logDir"]]  # type: ignore[arg-type]


async def what_confluent_says(stage: Stage) -> None:
    cluster = await stage.client.describe_cluster()
    theirs: Any = stage.confluent.describe_cluster(include_authorized_operations=True).result()
    assert (theirs.cluster_id, theirs.controller.id) == (cluster.cluster_id, cluster.controller_id)
    assert [(node.id, node.host, node.port) for node in theirs.nodes] == [
        (one.node_id, one.host, one.port) for one in cluster.brokers
    ]
    assert {one.name for one in theirs.authorized_operations} == {
        one.name for one in cluster.authorized_operations or ()
    }
    groups = await stage.described()
    for name, future in stage.confluent.describe_consumer_groups(
        stage.groups, include_authorized_operations=True
    ).items():
        group: Any = future.result()
        ours = groups[name]
        assert (group.state.name.lower(), group.partition_assignor) == (ours.state.lower(), ours.assignor)
        assert group.type.name.lower() == ours.type
        assert {one.name for one in group.authorized_operations} == {
            one.name for one in ours.authorized_operations or ()
        }
        assert {
            (one.member_id, one.client_id, one.host, one.group_instance_id): sorted(
                TopicPartition(tp.topic, tp.partition) for tp in one.assignment.topic_partitions
            )
            for one in group.members
        } == {
            (one.member_id, one.client_id, one.host, one.group_instance_id): list(one.assignment)
            for one in ours.members
        }
    for name in stage.groups:
        wanted = ConsumerGroupTopicPartitions(name)
        (answer,) = stage.confluent.list_consumer_group_offsets([wanted]).values()
        committed: Any = answer.result()
        assert {
            TopicPartition(tp.topic, tp.partition): tp.offset for tp in committed.topic_partitions if tp.offset >= 0
        } == {tp: one.offset for tp, one in (await stage.client.group_offsets(name)).items()}
    specs = {TheirPartition(tp.topic, tp.partition): OffsetSpec.max_timestamp() for tp in stage.partitions}
    found = await stage.client.list_offsets(dict.fromkeys(stage.partitions, MAX_TIMESTAMP))
    for partition, offset in stage.confluent.list_offsets(specs).items():
        listed: Any = offset.result()
        newest = found[TopicPartition(partition.topic, partition.partition)]
        assert newest is not None
        assert (listed.offset, listed.timestamp) == (newest.offset, newest.timestamp)


async def resets(stage: Stage, folder: Path) -> None:
    targets: dict[Any, list[str]] = {
        ToEarliest(): ["--to-earliest"],
        ToLatest(): ["--to-latest"],
        ToOffset(7): ["--to-offset", "7"],
        ToOffset(99): ["--to-offset", "99"],
        ToTime(15_000): ["--to-datetime", "1970-01-01T00:00:15.000"],
        ToTime(99_000): ["--to-datetime", "1970-01-01T00:01:39.000"],
    }
    reset = ("--reset-offsets", "--group", stage.empty, "--topic", stage.topic)
    for target, words in targets.items():
        plan = await stage.client.plan_reset(stage.empty, target, topics=[stage.topic])
        rows = await stage.tools.table(CONSUMER_GROUPS, *reset, *words, "--dry-run")
        assert {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows} == {
            row.partition.partition: row.new for row in plan.rows
        }, target
        exported = await stage.tools.run(CONSUMER_GROUPS, *reset, *words, "--dry-run", "--export")
        csv = "\n".join(line for line in exported.splitlines() if line.lstrip('"').startswith(stage.topic))
        assert ToOffsets.from_csv(csv) == ToOffsets.from_csv(plan.to_csv()), target

    # Their tool executes our file, and we read what it has written.
    plan = await stage.client.plan_reset(stage.empty, ToOffset(7), topics=[stage.topic])
    plan.save(folder / "plan.csv")
    await stage.tools.run(
        CONSUMER_GROUPS, "--reset-offsets", "--group", stage.empty, "--from-file", str(folder / "plan.csv"), "--execute"
    )
    offsets = await stage.client.group_offsets(stage.empty)
    assert {tp: one.offset for tp, one in offsets.items()} == dict.fromkeys(stage.partitions, 7)

    # And the other way round.
    back = await stage.client.plan_reset(stage.empty, ToTime(15_000))
    assert await stage.client.apply_reset(back) == dict.fromkeys(back.new_offsets)
    rows = await stage.tools.table(CONSUMER_GROUPS, "--describe", "--group", stage.empty)
    assert {int(row["PARTITION"]): int(row["CURRENT-OFFSET"]) for row in rows} == {
        row.partition.partition: row.new for row in back.rows
    }
    for group in (stage.old, stage.new):
        active = await stage.client.plan_reset(group, ToEarliest())
        with pytest.raises(GroupIsActive, match=r"on /127\.0\.0\.1"):
            await stage.client.apply_reset(active)


async def changes(stage: Stage) -> None:
    first = stage.partitions[0]
    assert await stage.client.delete_group_offsets(stage.empty, [first]) == {first: None}
    rows = await stage.tools.table(CONSUMER_GROUPS, "--describe", "--group", stage.empty)
    assert {row["PARTITION"] for row in rows} == {"1", "2"}
    found = await stage.client.delete_groups([stage.empty, stage.old, stage.new])
    assert found[stage.empty] is None
    assert [getattr(found[name], "code", None) for name in (stage.old, stage.new)] == [68, 68], "NON_EMPTY_GROUP"
    listed = (await stage.tools.run(CONSUMER_GROUPS, "--list")).split()
    assert stage.empty not in listed
    (member,) = (await stage.described())[stage.new].members
    assert await stage.client.remove_members(stage.new, [member.member_id]) == {member.member_id: None}
    assert await stage.client.remove_members(stage.old, instances=["place"]) == {"place": None}
