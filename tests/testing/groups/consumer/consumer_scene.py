"""Members of one consumer group that send hand-made heartbeats, each with a connection of its own (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from aiokc.wire import decode_prefix, encode
from aiokc.wire.messages.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from aiokc.wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    SyncGroupRequestAssignment,
)
from aiokc.wire.messages.group_description import ConsumerGroupDescribeRequest, DescribedConsumerGroup
from aiokc.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

from ...wire_client import WireClient
from ..group_scene import Actor, Scene

#: "As it is": what the member holds.
HELD: Final = object()


class Member:
    """A member of a consumer group. It adopts the epoch and the assignment of each answer."""

    def __init__(self, client: WireClient, group: str, member_id: str, topics: dict[str, UUID]) -> None:
        self.client = client
        self.group = group
        self.member_id = member_id
        self.topics = topics
        self.instance: str | None = None
        self.epoch = 0
        self.held: frozenset[tuple[str, int]] = frozenset()

    async def beat(self, *, owned: Any = None, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat: a keepalive, but for ``changes``. ``owned`` are partitions to list, or HELD."""
        listed = self.held if owned is HELD else owned
        options: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "topic_partitions": None if listed is None else self._by_topic(listed),
        }
        answer: ConsumerGroupHeartbeatResponse = await self.client.ask(
            ConsumerGroupHeartbeatRequest(**options | changes)
        )
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.held = self.assigned(answer)
        return answer

    def _by_topic(self, listed: Iterable[tuple[str, int]]) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=self.topics[name], partitions=[number for topic, number in sorted(listed) if topic == name]
            )
            for name in sorted({topic for topic, _ in listed})
        ]

    def assigned(self, answer: ConsumerGroupHeartbeatResponse) -> frozenset[tuple[str, int]]:
        assert answer.assignment is not None
        names = {topic_id: name for name, topic_id in self.topics.items()}
        return frozenset(
            (names[topic.topic_id], number)
            for topic in answer.assignment.topic_partitions
            for number in topic.partitions
        )

    async def join(self, *names: str, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """Join by epoch 0, subscribed to these topics (all by default)."""
        subscribed = list(names) or sorted(self.topics)
        options: dict[str, Any] = {
            "member_epoch": 0,
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": subscribed,
            "subscribed_topic_regex": "",
        }
        return await self.beat(owned=(), **options | changes)

    async def full(self, *names: str, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """Send everything, as after a lost answer."""
        subscribed = list(names) or sorted(self.topics)
        options: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": subscribed}
        return await self.beat(owned=HELD, **options | changes)

    async def leave(self, epoch: int = -1) -> int:
        return (await self.beat(member_epoch=epoch)).error_code

    async def settle(self) -> None:
        """Acknowledge what the coordinator has assigned, twice: then it has all that is free."""
        for _ in range(2):
            await self.beat(owned=HELD)

    # Offsets

    async def commit(self, *partitions: int, epoch: int | None = None, version: int = 9, offset: int = 1) -> list[int]:
        """Commit an offset of the first topic's partitions; return the codes."""
        name = sorted(self.topics)[0]
        places = [
            OffsetCommitRequestPartition(partition_index=one, committed_offset=offset, committed_metadata="")
            for one in partitions
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[
                OffsetCommitRequestTopic(
                    name="" if version > 9 else name,
                    **({"topic_id": self.topics[name]} if version > 9 else {}),
                    partitions=places,
                )
            ],
        )
        (topic,) = (await self.client.ask(request, version)).topics
        return [one.error_code for one in topic.partitions]

    async def fetch(self, epoch: int | None, member_id: str | None) -> Any:
        """Fetch the committed offset of the first partition; return the code of the group, or the offset."""
        name = sorted(self.topics)[0]
        group = OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            topics=[OffsetFetchRequestTopics(name=name, partition_indexes=[0])],
        )
        (answer,) = (await self.client.ask(OffsetFetchRequest(groups=[group]), 9)).groups
        if answer.error_code:
            assert answer.topics == []
            return answer.error_code
        return answer.topics[0].partitions[0].committed_offset


async def member_of(scene: Scene, member_id: str, **more_topics: UUID) -> Member:
    """Return a client that may become a member of the scene's group."""
    actor = await scene.actor()
    return Member(actor.client, scene.group, member_id, {scene.topic: scene.topic_id, **more_topics})


async def described(scene: Scene) -> DescribedConsumerGroup:
    """Return the description of the scene's group."""
    (found,) = (
        await scene.admin.ask(
            ConsumerGroupDescribeRequest(group_ids=[scene.group], include_authorized_operations=False)
        )
    ).groups
    group: DescribedConsumerGroup = found
    return group


async def topic_is_known(scene: Scene) -> None:
    """Wait until the coordinator assigns the scene's topic: a real one hears of a new topic a little later."""
    actor = await scene.actor()
    probe = Member(actor.client, f"{scene.group}-probe", "probe", {scene.topic: scene.topic_id})
    await probe.join()
    while not probe.held:
        await probe.full()
    await probe.leave()


# Classic members


def partitions_of(assignment: bytes) -> list[int]:
    """Return the partitions in the assignment of a classic member."""
    found, _ = decode_prefix(ConsumerProtocolAssignment, memoryview(assignment)[2:], 0)
    return [number for topic in found.assigned_partitions for number in topic.partitions]


async def classic_group(scene: Scene, user_data: bytes | None = None) -> Actor:
    """Return the only member of a stable classic group; it has both partitions."""
    actor = await scene.actor()
    assert (await actor.join()).error_code == 0
    topic = ConsumerProtocolAssignmentTopicPartition(topic=scene.topic, partitions=[0, 1])
    message = ConsumerProtocolAssignment(assigned_partitions=[topic], user_data=user_data)
    assigned = SyncGroupRequestAssignment(member_id=actor.member_id, assignment=b"\0\0" + encode(message, 0))
    assert (await actor.sync(assignments=[assigned])).error_code == 0
    return actor
