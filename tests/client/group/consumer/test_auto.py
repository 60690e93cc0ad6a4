"""group_protocol="auto" against clusters that have the consumer protocol, have it not, and switch it off or on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokc.client.group.consumer.assigned_topics import AssignedTopics
from aiokc.errors import UnsupportedVersion
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.discovery import ApiVersionsRequest
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest, JoinGroupRequest

from ...virtually import virtually
from .group_stories import BOTH, T0, T1, Told, asked_of, consumer_of, polls, read, shared

AUTO: dict[str, Any] = {"group_protocol": "auto"}


def test_a_cluster_with_the_feature_takes_the_member_by_the_consumer_protocol() -> None:
    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        async with consumer_of(cluster, **AUTO) as consumer:
            assert consumer.health().group_protocol is None
            assert "no coordinator has answered a join yet" in consumer.health().group_protocol_reason
            await shared(consumer)
            assert asked.of(JoinGroupRequest) == []
            assert consumer.health().group_protocol == "consumer"
            assert "takes the member by it" in consumer.health().group_protocol_reason
            consumer.unsubscribe()
            await asyncio.sleep(10.0)
            assert consumer.health().group_protocol == "consumer", "it is what the next join uses"

    virtually(story)


@pytest.mark.parametrize(
    ("options", "protocol", "reason"),
    [
        ({"group_protocol": "classic"}, "classic", "group_protocol='classic'"),
        ({"group_protocol": "consumer"}, "consumer", "group_protocol='consumer'"),
        (
            {**AUTO, "heartbeat_interval_ms": 2_000},
            "classic",
            "group_protocol='auto', and only the classic protocol has the option heartbeat_interval_ms",
        ),
        ({"group_protocol": "classic", "group_id": None}, None, ""),
    ],
)
def test_health_says_which_protocol_it_is_and_why(options: dict[str, Any], protocol: str | None, reason: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, **options) as consumer:
            await shared(consumer)
            health = consumer.health()
            assert (health.group_protocol, health.group_protocol_reason) == (protocol, reason)

    virtually(story)


@pytest.mark.parametrize("release", ["2.8", "3.9", "4.4"])
def test_a_cluster_without_the_feature_takes_it_by_the_classic_one(
    release: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokc.group")

    async def story(cluster: Cluster) -> None:
        cluster.finalize_feature("group.version", 0)
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told, **AUTO) as consumer:
            assert await read(consumer, 1) == [b"one"]
            assert consumer.health().group_protocol == "classic"
            assert "the consumer protocol (KIP-848) not switched on" in consumer.health().group_protocol_reason
            await consumer.commit()
            assert asked.of(JoinGroupRequest)[0][1].member_id == ""
            assert len(asked.of(ConsumerGroupHeartbeatRequest)) <= 1
            assert told.events == [("assigned", BOTH)]

    virtually(story, as_version=release)
    (said,) = [each for each in caplog.messages if "joins by the classic protocol" in each]
    assert "not switched on" in said


def test_a_cluster_that_names_no_topic_ids_takes_it_by_the_classic_one() -> None:
    """The consumer protocol assigns by id: the member would hold partitions that it can't name, and read nothing.

    So it is where a proxy speaks an older Metadata than the cluster.
    """
    why = "the coordinator offers Metadata v0-9, and v10 is needed for topic ids"

    async def story(cluster: Cluster) -> None:
        cluster._state.versions[ApiKey.METADATA] = (0, 9)  # type: ignore[index]
        cluster.append("t", b"one")
        async with consumer_of(cluster, **AUTO) as consumer:
            assert await read(consumer, 1) == [b"one"]
            assert consumer.health().group_protocol == "classic"
            assert why in consumer.health().group_protocol_reason
        async with consumer_of(cluster, group_id="h") as consumer:
            with pytest.raises(UnsupportedVersion, match="set group_protocol='classic'") as declined:
                await consumer.getmany()
            assert why in str(declined.value)

    virtually(story)


def test_a_coordinator_that_names_no_topic_ids_takes_it_where_another_broker_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Metadata come from any broker: of two, the coordinator alone may be behind a proxy."""
    monkeypatch.setattr(AssignedTopics, "have_ids", lambda topics: True)

    async def story(cluster: Cluster) -> None:
        cluster._state.versions[ApiKey.METADATA] = (0, 9)  # type: ignore[index]
        async with consumer_of(cluster, **AUTO) as consumer:
            await polls(consumer, 5.0)
            assert consumer.health().group_protocol == "consumer"

    virtually(story)


def test_a_feature_that_is_switched_off_makes_the_members_classic_without_a_lost_record() -> None:
    async def story(cluster: Cluster) -> None:
        told = Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told, **AUTO) as consumer:
            assert await read(consumer, 1) == [b"one"]
            await consumer.commit()
            cluster.finalize_feature("group.version", 0)
            while len(told.events) < 2:
                await polls(consumer, 1.0)
            assert told.events[:2] == [("assigned", BOTH), ("lost", BOTH)]
            await polls(consumer, 60.0)  # the session of its former self ends
            assert consumer.assignment() == BOTH
            cluster.append("t", b"two")
            assert await read(consumer, 1) == [b"two"]
            await consumer.commit()
            assert cluster.committed("g")[T0] == 2

    virtually(story)


async def _moves_to_an_old_broker(cluster: Cluster) -> None:
    """The group's new coordinator does not offer ConsumerGroupHeartbeat: it is an older one, say, after a rollback."""

    async def without_heartbeats(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        answer.api_keys = [each for each in answer.api_keys if each.api_key != ConsumerGroupHeartbeatRequest.api_key]
        return answer

    cluster.intercept(ApiVersionsRequest, without_heartbeats)
    before = cluster.coordinator("g")
    for node_id in {1, 2, 3} - {before}:
        cluster.disconnect(node_id)
    cluster.move_coordinator("g", to=before % 3 + 1)


@pytest.mark.timeout(30)
def test_a_group_that_moves_to_a_broker_too_old_for_it_has_one_reader_for_each_partition() -> None:
    """The members lose what they held before they join anew. Else they would read on beside its new owners."""

    async def story(cluster: Cluster) -> None:
        told = Told()
        async with (
            consumer_of(cluster, told, **AUTO) as one,
            consumer_of(cluster, **AUTO) as two,
            consumer_of(cluster, **AUTO) as three,
        ):
            await shared(one, two, three, total=3)
            mine, heard = one.assignment(), len(told.events)
            await _moves_to_an_old_broker(cluster)
            await asyncio.gather(*(polls(each, 60.0) for each in (one, two, three)))
            assert told.events[heard] == ("lost", mine)
            parts = [each.assignment() for each in (one, two, three)]
            assert [len(each) for each in parts] == [1, 1, 1]
            assert len(frozenset.union(*parts)) == 3
            assert one.health().group_protocol == "classic"

    virtually(story, topics={"t": 3})


@pytest.mark.timeout(30)
def test_a_member_that_cannot_become_a_classic_one_says_so_when_its_coordinator_is_too_old() -> None:
    async def story(cluster: Cluster) -> None:
        told = Told()
        async with consumer_of(cluster, told) as consumer:
            await shared(consumer)
            await _moves_to_an_old_broker(cluster)
            with pytest.raises(UnsupportedVersion, match="set group_protocol='classic'"):
                await polls(consumer, 60.0)
            assert told.events == [("assigned", BOTH), ("lost", BOTH)]
            assert consumer.assignment() == frozenset()

    virtually(story)


@pytest.mark.parametrize("release", ["2.8", "4.4"])
def test_a_declined_join_is_one_request_at_most_and_no_wait(release: str) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.finalize_feature("group.version", 0)
        asked = asked_of(cluster)
        cluster.append("t", b"one")
        async with consumer_of(cluster, **AUTO) as auto:
            assert await read(auto, 1) == [b"one"]
        async with consumer_of(cluster, group_protocol="classic", group_id="other") as classic:
            assert await read(classic, 1) == [b"one"]
        declined = [when for when, _ in asked.of(ConsumerGroupHeartbeatRequest)]
        joined = [when for when, sent in asked.of(JoinGroupRequest) if sent.group_id == "g"]
        assert len(declined) == (release == "4.4"), "2.8 does not have the API: nothing is sent"
        assert all(joined[0] - when < 0.01 for when in declined)

    virtually(story, as_version=release)


def test_what_one_consumer_was_told_decides_for_no_later_one() -> None:
    """Every coordinator takes a classic member, so no answer would correct a choice that was remembered too long."""

    async def story(cluster: Cluster) -> None:
        cluster.finalize_feature("group.version", 0)
        async with consumer_of(cluster, **AUTO) as first:
            await shared(first)
            assert first.health().group_protocol == "classic"
            cluster.finalize_feature("group.version", 1)
            async with consumer_of(cluster, **AUTO) as second:
                await shared(first, second)
                assert first.assignment() | second.assignment() == BOTH
                assert second.health().group_protocol == "consumer"
                assert first.health().group_protocol == "classic", "until it is started again"
        cluster.finalize_feature("group.version", 0)
        async with consumer_of(cluster, **AUTO, group_id="other") as third:
            await shared(third)
            assert third.health().group_protocol == "classic"

    virtually(story)


def test_a_group_that_stays_classic_decides_for_no_other_group() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, group_protocol="classic") as old, consumer_of(cluster, **AUTO) as new:
            await shared(old)
            await shared(old, new)
            assert new.health().group_protocol == "classic"
            async with consumer_of(cluster, **AUTO, group_id="other") as other:
                await shared(other)
                assert other.health().group_protocol == "consumer"

    virtually(story, group_consumer_migration_policy="disabled")


def test_a_classic_group_becomes_a_consumer_group_and_a_classic_one_again_one_member_after_the_other() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, group_protocol="classic") as old:
            await shared(old)
            async with consumer_of(cluster, **AUTO) as new:
                await shared(old, new)
                assert old.assignment() | new.assignment() == BOTH
                await polls(old, 10.0)
            await shared(old)
            async with consumer_of(cluster, group_protocol="classic") as other:
                await shared(old, other)
                assert old.assignment() | other.assignment() == BOTH

    virtually(story)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_classic_group_that_may_not_be_converted_takes_the_member_as_a_classic_one(policy: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, group_protocol="classic") as old, consumer_of(cluster, **AUTO) as new:
            await shared(old)
            await shared(old, new)
            assert old.assignment() | new.assignment() == BOTH

    virtually(story, group_consumer_migration_policy=policy)


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_classic_member_goes_on_when_the_last_member_of_the_consumer_protocol_leaves(is_behind: bool) -> None:
    """The group is a classic one again. A member that has not joined since the last epoch has lost everything."""

    async def story(cluster: Cluster) -> None:
        told = Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told, group_protocol="classic", client_id="old") as old:
            async with consumer_of(cluster) as new:
                await shared(old, new)
                await polls(old, 10.0)
                heard = len(told.events)
                if is_behind:
                    cluster.bump_epoch("g")
                    cluster.bump_epoch("g")
            cluster.append("t", b"one", partition=1)
            assert await read(old, 2) == [b"one", b"one"]
            await old.commit()
            assert cluster.committed("g") == {T0: 1, T1: 1}
            kinds = [what for what, _ in told.events[heard:]]
            assert ("lost" in kinds) == is_behind
            assert old.assignment() == BOTH
            cluster.append("t", b"two")
            assert await read(old, 1) == [b"two"]

    virtually(story)
