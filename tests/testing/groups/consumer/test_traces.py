"""The same random heartbeats, commits and leaves, sent to the Cluster and to a real Kafka: both answer the same."""

from __future__ import annotations

import uuid
from random import Random
from typing import Any

import pytest

from aiokc.testing import Cluster
from aiokc.testing.kafka import LocalKafka

from ..group_scene import Scene, open_scene
from .consumer_scene import HELD, Member, member_of, topic_is_known

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

STEPS = 60
#: In these, a member that subscribes to nothing joins while the group's assignment is out of date: after all others in
#: the order of the assignor, and before one of them.
LAST, FIRST = (20, 50), (194, 205, 213, 238, 286, 313, 330, 384, 386, 410, 426, 454, 466, 480)
QUICK = (*range(8), *LAST, 384, 480)


def _said(member: Member, answer: Any) -> object:
    parts = None if answer.assignment is None else sorted(number for _, number in member.assigned(answer))
    return answer.error_code, answer.member_epoch, parts


async def _step(random: Random, members: list[Member], topic: str) -> object:
    """Let one member do something: what, depends on the random numbers and on the answers before."""
    one = random.choice(members)
    action = random.choice(["join", "keepalive", "ack", "ack", "ack", "full", "behind", "partly", "change", "leave"])
    action = random.choice(["commit", "commit-behind", action, action, action])
    behind = one.epoch - random.choice([1, 1, 2])
    names = random.choice([[topic], [topic], []])
    kept = frozenset(tp for tp in sorted(one.held) if random.random() < 0.5)
    number = random.randrange(2)
    if one.epoch <= 0 and action not in ("leave", "commit"):
        action = "join"
    match action:
        case "join":
            said = await one.beat(
                owned=(),
                member_epoch=0,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=names,
                server_assignor="range",
            )
        case "keepalive":
            said = await one.beat()
        case "ack":
            said = await one.beat(owned=HELD)
        case "full":
            said = await one.full(topic)
        case "behind":
            said = await one.beat(owned=HELD, member_epoch=max(behind, 1))
        case "partly":
            said = await one.beat(owned=kept)
        case "change":
            said = await one.beat(subscribed_topic_names=names)
        case "leave":
            return one.member_id, action, await one.leave()
        case "commit":
            return one.member_id, action, await one.commit(number)
        case _:
            return one.member_id, action, await one.commit(number, epoch=max(behind, 0))
    if said.error_code in (25, 110):
        one.epoch, one.held = 0, frozenset()
    return one.member_id, action, _said(one, said)


async def _trace(scene: Scene, seed: int) -> list[object]:
    await topic_is_known(scene)
    random = Random(seed)
    members = [await member_of(scene, f"m{number}") for number in range(3)]
    return [await _step(random, members, scene.topic) for _ in range(STEPS)]


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=() if seed in QUICK else pytest.mark.long) for seed in (*range(100), *FIRST)],
)
async def test_a_trace(running_cluster: Cluster, kafka: LocalKafka, seed: int) -> None:
    group = f"trace-{seed}-{uuid.uuid4().hex[:6]}"
    async with open_scene(kafka.bootstrap, group) as theirs, open_scene(running_cluster.bootstrap, group) as ours:
        real = await _trace(theirs, seed)
        assert await _trace(ours, seed) == real
        assert len({str(step) for step in real}) > STEPS // 6  # it is no trace of refusals alone
