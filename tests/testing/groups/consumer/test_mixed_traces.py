"""Random steps of dynamic, static and classic members of one group: the Cluster and a real Kafka answer the same."""

from __future__ import annotations

import uuid
from random import Random
from typing import Any, Final

import pytest

from aiokc.testing import Cluster
from aiokc.testing.kafka import LocalKafka
from aiokc.wire import encode
from aiokc.wire.messages.embedded import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

from ..group_scene import Actor, Scene, open_scene
from .consumer_scene import HELD, Member, member_of, partitions_of, topic_is_known

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

STEPS: Final = 60
#: In 28, a member that subscribes to nothing joins while an assignment is due, and is the first in the order of ids.
QUICK: Final = (*range(4), 28)
#: After these codes a member is out.
_OUT: Final = (22, 25, 82, 110)


class Steps:
    """The members of one group, and their random steps. What they do depends on the answers before.

    "keeper" never leaves, so that the group never becomes a classic one, where a JoinGroup would wait for the others.
    """

    def __init__(self, seed: int, scene: Scene) -> None:
        self.random = Random(seed)
        self.scene = scene
        self.held_by_classic: list[int] = []

    async def begin(self) -> None:
        self.keeper = await member_of(self.scene, "keeper")
        await self._join(self.keeper, [self.scene.topic])
        self.dynamic = await member_of(self.scene, "dynamic")
        self.static = await member_of(self.scene, "static")
        self.static.instance = "b"
        self.classic = await self.scene.actor()
        self.classic.instance = "a"

    async def step(self) -> object:
        kind = self.random.choice(["keeper", "dynamic", "static", "static", "classic", "classic"])
        names = self._names()
        action = self.random.random()
        if kind == "classic":
            return kind, await self._classic_step(self.classic, action, names)
        member: Member = getattr(self, kind)
        return kind, await self._consumer_step(member, action, names)

    def _names(self) -> list[str]:
        topic = self.scene.topic
        return self.random.choice([[topic], [topic], [topic, f"{topic}-nowhere"], []])

    # Members of the consumer protocol

    async def _join(self, member: Member, names: list[str]) -> Any:
        return await member.beat(
            owned=(),
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=names,
            server_assignor="range",
        )

    async def _consumer_step(self, member: Member, action: float, names: list[str]) -> object:
        stays = member is self.keeper
        if member.epoch <= 0:
            if member is self.static and action < 0.3:  # another process of the same instance
                member.member_id = "static" if member.member_id == "twin" else "twin"
            return "join", _said(member, await self._join(member, names))
        if action < 0.3:
            return "ack", _said(member, await member.beat(owned=HELD))
        if action < 0.4:
            return "keepalive", _said(member, await member.beat())
        if action < 0.5:
            return "change", _said(member, await member.beat(subscribed_topic_names=names))
        if action < 0.6:
            return "full", _said(member, await member.full(self.scene.topic))
        if action < 0.65:
            return "again", _said(member, await self._join(member, names))
        if action < 0.75:
            return "commit", await member.commit(self.random.randrange(2))
        if action < 0.85:
            return "behind", _said(member, await member.beat(owned=HELD, member_epoch=max(member.epoch - 1, 1)))
        if stays:
            return "ack", _said(member, await member.beat(owned=HELD))
        epoch = -2 if member.instance is not None and action < 0.95 else -1
        code = await member.leave(epoch)
        member.epoch, member.held = 0, frozenset()
        return "leave", epoch, code

    # The classic one

    async def _classic_step(self, actor: Actor, action: float, names: list[str]) -> object:
        if actor.generation < 0 or action < 0.3:
            return "join", await self._classic_join(actor, names)
        if action < 0.6:
            answer = await actor.sync()
            if answer.error_code == 0:
                self.held_by_classic = partitions_of(answer.assignment)
            return "sync", self._noted(answer.error_code), self.held_by_classic
        if action < 0.8:
            return "heartbeat", self._noted(await actor.heartbeat())
        if action < 0.9:
            return "commit", await actor.commit()
        (left,) = (await actor.leave()).members
        self._forget()
        return "leave", left.error_code

    async def _classic_join(self, actor: Actor, names: list[str]) -> object:
        owned = [ConsumerProtocolSubscriptionTopicPartition(topic=self.scene.topic, partitions=self.held_by_classic)]
        subscription = ConsumerProtocolSubscription(topics=names, owned_partitions=owned if names else [])
        answer = await actor.join(metadata=b"\0\1" + encode(subscription, 1))
        self._noted(answer.error_code)
        return answer.error_code, answer.generation_id, answer.protocol_name, answer.leader, self.held_by_classic

    def _noted(self, code: int) -> int:
        if code in _OUT:
            self._forget()
        return code

    def _forget(self) -> None:
        self.classic.member_id, self.classic.generation = "", -1
        self.held_by_classic = []


def _said(member: Member, answer: Any) -> object:
    parts = None if answer.assignment is None else sorted(number for _, number in member.assigned(answer))
    if answer.error_code in _OUT:
        member.epoch, member.held = 0, frozenset()
    return answer.error_code, answer.member_epoch, parts


async def _trace(scene: Scene, seed: int) -> list[object]:
    await topic_is_known(scene)
    steps = Steps(seed, scene)
    await steps.begin()
    return [await steps.step() for _ in range(STEPS)]


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed in QUICK else pytest.mark.long) for seed in range(100)]
)
async def test_a_trace(running_cluster: Cluster, kafka: LocalKafka, seed: int) -> None:
    group = f"mixed-trace-{seed}-{uuid.uuid4().hex[:6]}"
    async with open_scene(kafka.bootstrap, group) as theirs, open_scene(running_cluster.bootstrap, group) as ours:
        real = await _trace(theirs, seed)
        assert await _trace(ours, seed) == real
        assert len({str(step) for step in real}) > STEPS // 6  # it is no trace of refusals alone
