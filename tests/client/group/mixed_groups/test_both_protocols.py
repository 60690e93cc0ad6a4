"""Members of both group protocols beside each other on the Cluster: policies, odd assignors, twins of one instance."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from aiokc import Assignment, Assignor, Client, Consumer, Group, TopicPartition
from aiokc.admin import GroupDescription
from aiokc.errors import MemberFenced
from aiokc.testing import Cluster
from aiokc.wire.messages.group import JoinGroupRequest, JoinGroupResponse

from ...virtually import virtually
from ..consumer.group_stories import BOTH, T0, Told, consumer_of, polls, read, shared

CLASSIC: dict[str, Any] = {"group_protocol": "classic"}


async def type_of_group(cluster: Cluster) -> str:
    async with Client(bootstrap_servers=cluster.bootstrap) as client:
        group = (await client.describe_groups(["g"]))["g"]
    assert isinstance(group, GroupDescription)
    return group.type


class Joins:
    """What the coordinator has answered to the JoinGroups of each client."""

    def __init__(self, cluster: Cluster) -> None:
        self.answers: dict[str, list[JoinGroupResponse]] = {}

        async def noted(exchange: Any) -> Any:
            answer = await exchange.handle()
            if not answer.error_code:
                self.answers.setdefault(exchange.client_id, []).append(answer)
            return answer

        cluster.intercept(JoinGroupRequest, noted)


def test_classic_members_follow_a_coordinator_that_assigns() -> None:
    """No member leads, each one's own first assignor is the protocol, and a generation may stay over a rejoin."""

    async def story(cluster: Cluster) -> None:
        joins, told = Joins(cluster), Told()
        first = {**CLASSIC, "client_id": "first", "partition_assignment_strategy": ("cooperative-sticky",)}
        second = {**CLASSIC, "client_id": "second", "partition_assignment_strategy": ("range", "cooperative-sticky")}
        for partition in range(6):
            cluster.append("t", b"%d" % partition, partition=partition)
        async with consumer_of(cluster, told, **first) as one:
            assert len(await read(one, 6)) == 6
            await one.commit()
            async with consumer_of(cluster) as new:
                await shared(one, new, total=6)
                async with consumer_of(cluster, **second) as two:
                    await shared(one, new, two, total=6)
                    held = [each.assignment() for each in (one, new, two)]
                    assert len(frozenset.union(*held)) == 6
                    assert await type_of_group(cluster) == "consumer"
                    for partition in range(6):
                        cluster.append("t", b"more", partition=partition)
                    got = await asyncio.gather(*(read(each, 2) for each in (one, new, two)))
                    assert got == [[b"more"] * 2] * 3
                    await polls(one, 30.0)
        ours = joins.answers["first"]
        led, followed = ours[0], [answer for answer in ours if not answer.leader]
        assert led.leader == led.member_id
        assert {answer.protocol_name for answer in followed} == {"cooperative-sticky"}
        generations = [answer.generation_id for answer in followed]
        assert generations == sorted(generations)
        assert len(set(generations)) < len(generations), "what it gave up was acknowledged in the same one"
        assert {answer.protocol_name for answer in joins.answers["second"] if not answer.leader} == {"range"}
        assert "lost" not in [what for what, _ in told.events]

    virtually(story, topics={"t": 6})


@pytest.mark.parametrize(("policy", "stays"), [("bidirectional", "classic"), ("upgrade", "consumer")])
def test_what_the_last_member_of_the_consumer_protocol_leaves_behind(policy: str, stays: str) -> None:
    """A group that may not become a classic one again goes on with classic members alone."""

    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, **CLASSIC) as old:
            await shared(old)
            async with consumer_of(cluster) as new:
                await shared(old, new)
            await shared(old)
            assert await type_of_group(cluster) == stays
            cluster.append("t", b"one")
            assert await read(old, 1) == [b"one"]
            await old.commit()
            async with consumer_of(cluster, **CLASSIC) as other:
                await shared(old, other)
                assert old.assignment() | other.assignment() == BOTH
                assert await type_of_group(cluster) == stays
            await shared(old)
            assert cluster.committed("g")[T0] == 1

    virtually(story, group_consumer_migration_policy=policy)


class Halves(Assignor):
    """Gives the first member the first half of all partitions, and tells each member so."""

    name = "halves"

    def assign(self, group: Group) -> Mapping[str, Assignment | Iterable[TopicPartition]]:
        every = [TopicPartition("t", number) for number in range(group.partition_counts["t"])]
        members = sorted(group.members)
        size = len(every) // len(members)
        return {
            name: Assignment(tuple(every[size * index : size * (index + 1)]), b"half")
            for index, name in enumerate(members)
        }


def test_a_group_with_an_assignor_of_its_own_takes_auto_members_as_classic_ones() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, **CLASSIC, partition_assignment_strategy=(Halves(), "range")) as old:
            await shared(old)
            async with consumer_of(cluster, group_protocol="auto") as new:
                await shared(old, new)
                assert old.assignment() | new.assignment() == BOTH
                health = new.health()
                assert health.group_protocol == "classic"
                assert "custom assignor" in health.group_protocol_reason
                assert await type_of_group(cluster) == "classic"

    virtually(story)


def _twins(before: str, after: str, cluster: Cluster, told: Told) -> tuple[Consumer[Any, Any], Consumer[Any, Any]]:
    def one(protocol: str, told: Told | None = None) -> Consumer[Any, Any]:
        return consumer_of(cluster, told, group_protocol=protocol, group_instance_id="i")

    return one(before, told), one(after)


@pytest.mark.parametrize(("before", "after"), [("classic", "consumer"), ("consumer", "classic")])
def test_a_static_twin_of_the_other_protocol_takes_the_place_and_the_first_one_stays_out(
    before: str, after: str
) -> None:
    """Across the protocols the coordinator does not ask whether the first one has left."""

    async def story(cluster: Cluster) -> None:
        told = Told()
        first, twin = _twins(before, after, cluster, told)
        async with consumer_of(cluster) as other, first:  # the other one keeps it a group of both
            await shared(first, other)
            mine = first.assignment()
            async with twin:
                going_on = asyncio.gather(polls(other, 120.0), polls(twin, 120.0))
                with pytest.raises(MemberFenced):
                    await first.getmany(timeout_ms=60_000)
                assert told.events[-1] == ("lost", mine)
                for _ in range(3):
                    with pytest.raises(MemberFenced):
                        await first.getmany(timeout_ms=1_000)
                await going_on
                assert twin.assignment() | other.assignment() == BOTH
                assert len(cluster.members("g")) == 2

    virtually(story)
