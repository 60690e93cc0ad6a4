"""SubscriptionPattern: topics that the coordinator chooses by a regular expression (KIP-848), on a Cluster."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from aiokc import Consumer, SubscriptionPattern, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import AssignmentFailed, BrokerError, ConfigError, UnsupportedVersion, UsageError
from aiokc.testing import Acl, ApiKey, Cluster
from aiokc.testing.faults import Hold
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest

from ...virtually import Asked, virtually
from .group_stories import Told, altered, asked_of, consumer_of, heartbeats, polls, read

EVENTS = SubscriptionPattern("events-.*")
ONE, TWO, OTHER = TopicPartition("events-1", 0), TopicPartition("events-2", 0), TopicPartition("other", 0)
TOPICS: dict[str, Any] = {"topics": {"events-1": 1, "other": 1}}


async def holds(consumer: Consumer, *partitions: TopicPartition) -> None:
    """Poll until exactly these are assigned."""
    async with asyncio.timeout(120):
        while consumer.assignment() != set(partitions):
            await consumer.getmany(timeout_ms=100)


def subscribed(asked: Asked) -> list[tuple[Any, Any]]:
    """What the heartbeats said about the subscription: names and pattern; None is "as before"."""
    said = [(sent.subscribed_topic_names, sent.subscribed_topic_regex) for _, sent in heartbeats(asked)]
    return [one for one in said if one != (None, None)]


def topics_asked(asked: Asked) -> list[Any]:
    return [request.topics for _, request in asked.of(MetadataRequest)]


# The topics of the assignment


def test_the_coordinator_chooses_the_topics_and_the_client_asks_for_these_alone() -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("events-1", b"one")
        cluster.append("other", b"not this")
        async with consumer_of(cluster, told, EVENTS) as consumer:
            assert consumer.subscription() == frozenset()
            assert await read(consumer, 1) == [b"one"]
            assert consumer.assignment() == {ONE}
            assert consumer.subscription() == {"events-1"}
            await consumer.commit()
            assert cluster.committed("g") == {ONE: 1}
        assert subscribed(asked)[0] == ([], "events-.*")
        assert None not in topics_asked(asked)
        by_id = [topic for topics in topics_asked(asked) for topic in topics if topic.name is None]
        assert len(by_id) == 1
        assert {topic.name for topics in topics_asked(asked) for topic in topics} == {None, "events-1"}
        assert told.events[0] == ("assigned", frozenset())
        assert told.events[1:] == [(what, frozenset({ONE})) for what in ("assigned", "revoked", "gave up")]

    virtually(story, **TOPICS)


def test_topics_come_go_and_are_created_again() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("events-1", b"one")
        async with consumer_of(cluster, topics=EVENTS) as consumer:
            assert await read(consumer, 1) == [b"one"]
            cluster.create_topic("events-2")
            cluster.append("events-2", b"two")
            assert await read(consumer, 1) == [b"two"]
            assert consumer.subscription() == {"events-1", "events-2"}
            cluster.delete_topic("events-1")
            await holds(consumer, TWO)
            cluster.create_topic("events-1")
            cluster.append("events-1", b"new")
            assert await read(consumer, 1) == [b"new"]
            await holds(consumer, ONE, TWO)

    virtually(story, **TOPICS)


def test_a_pattern_matches_whole_names() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, topics=SubscriptionPattern("^events")) as consumer:
            await polls(consumer, 20.0)
            assert consumer.assignment() == frozenset()
            assert consumer.health().has_assignment

    virtually(story, **TOPICS)


@pytest.mark.parametrize("excludes", [True, False])
def test_internal_topics_are_read_only_where_the_application_says_so(
    caplog: pytest.LogCaptureFixture, excludes: bool
) -> None:
    """The coordinator matches them, too: `.*` gives a member 50 partitions of __consumer_offsets."""
    internal = TopicPartition("__consumer_offsets", 0)

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("__consumer_offsets", b"none of your business")
        cluster.append("events-1", b"one")
        options: dict[str, Any] = {} if excludes else {"exclude_internal_topics": False}
        async with consumer_of(cluster, told, SubscriptionPattern(".*"), **options) as consumer:
            values = await read(consumer, 1 if excludes else 2)
            await polls(consumer, 10.0)
            assert consumer.assignment() == ({ONE} if excludes else {ONE, internal})
            assert set(values) == ({b"one"} if excludes else {b"one", b"none of your business"})
            owned = [sent.topic_partitions for _, sent in heartbeats(asked) if sent.topic_partitions]
            assert len(owned[-1]) == 2, "the coordinator counts on the member for both"
            consumer.unsubscribe()
            consumer.subscribe(SubscriptionPattern(".*"), listener=told)
            await polls(consumer, 20.0)
            assert consumer.assignment() == ({ONE} if excludes else {ONE, internal})
        assert all(internal not in partitions for _, partitions in told.events) is excludes

    virtually(story, topics={"events-1": 1, "__consumer_offsets": 1})
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len([said for said in warnings if "__consumer_offsets" in said and "prefix" in said]) == excludes


def test_what_the_user_may_describe_by_now_is_matched_with_the_next_refresh() -> None:
    """The coordinator matches what the member's user may describe, and does not notice that he may describe more."""

    async def story(cluster: Cluster) -> None:
        cluster.revoke("ANONYMOUS", "events-2")
        async with consumer_of(cluster, topics=EVENTS) as consumer:
            await holds(consumer, ONE)
            began = asyncio.get_running_loop().time()
            cluster.grant(Acl("ANONYMOUS", "Read", topic="events-2"))
            await holds(consumer, ONE, TWO)
            assert 45.0 < asyncio.get_running_loop().time() - began < 66.0

    topics = {"events-1": 1, "events-2": 1}
    virtually(story, topics=topics, super_users=(), group_consumer_regex_refresh_interval_ms=60_000)


# Another subscription


@pytest.mark.parametrize("pauses", [True, False], ids=["the member leaves", "in one step"])
def test_from_a_pattern_to_names_and_back(pauses: bool) -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        async with consumer_of(cluster, told, EVENTS) as consumer:
            await holds(consumer, ONE)
            for wanted, partition in (["other"], OTHER), (EVENTS, ONE):
                with pytest.raises(UsageError, match="unsubscribe"):
                    consumer.subscribe(wanted, listener=told)
                consumer.unsubscribe()
                if pauses:
                    await asyncio.sleep(1.0)
                    assert cluster.members("g") == []
                consumer.subscribe(wanted, listener=told)
                await holds(consumer, partition)
            consumer.unsubscribe()
            await asyncio.sleep(1.0)
            assert cluster.members("g") == []
        said = subscribed(asked)
        assert said[0] == ([], "events-.*")
        assert (["other"], "") in said
        assert said[-1] == ([], "events-.*")
        changes = [(what, partitions) for what, partitions in told.events if partitions and what != "gave up"]
        assert changes == [(what, frozenset({tp})) for tp in (ONE, OTHER, ONE) for what in ("assigned", "revoked")], (
            "nothing that was not subscribed to is read in between"
        )

    virtually(story, **TOPICS)


def test_another_pattern_replaces_the_one_before() -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        async with consumer_of(cluster, told, EVENTS) as consumer:
            await holds(consumer, ONE)
            consumer.subscribe(SubscriptionPattern("events-.*"), listener=told)  # no change
            consumer.subscribe(SubscriptionPattern("oth.*"), listener=told)
            await holds(consumer, OTHER)
            assert consumer.subscription() == {"other"}
            assert subscribed(asked) == [([], "events-.*"), ([], "oth.*")]
            assert cluster.members("g") == [consumer.group_metadata().member_id]

    virtually(story, **TOPICS)


def test_another_pattern_takes_away_what_both_match_until_it_is_matched() -> None:
    """The former assignment stays until the coordinator answers; its first answer knows of nothing that matches."""

    async def story(cluster: Cluster) -> None:
        told, hold = Told(), Hold()
        async with consumer_of(cluster, told, EVENTS) as consumer:
            await holds(consumer, ONE)
            cluster.intercept(ConsumerGroupHeartbeatRequest, hold, times=1)
            consumer.subscribe(SubscriptionPattern("events-1|other"), listener=told)
            cluster.append("events-1", b"one")
            assert await read(consumer, 1) == [b"one"]
            hold.release()
            await holds(consumer, ONE, OTHER)
        changes = [(what, partitions) for what, partitions in told.events if partitions and what != "gave up"]
        assert changes[:3] == [(what, frozenset({ONE})) for what in ("assigned", "revoked", "assigned")]

    virtually(story, **TOPICS)


def test_the_answer_about_a_former_pattern_gives_nothing_any_more() -> None:
    """The answer that assigns is on its way while the application subscribes to something else."""

    async def story(cluster: Cluster) -> None:
        told, hold = Told(), Hold()
        async with consumer_of(cluster, told, EVENTS) as consumer:
            await polls(consumer, 1.0)
            held = cluster.intercept(ConsumerGroupHeartbeatRequest, hold, times=1)
            await polls(consumer, 6.0)
            consumer.unsubscribe()
            consumer.subscribe(SubscriptionPattern("oth.*"), listener=told)
            held.cancel()
            hold.release()
            await holds(consumer, OTHER)
            assert not any(ONE in partitions for _, partitions in told.events)

    virtually(story, **TOPICS)


def test_a_static_member_that_comes_back_with_another_subscription_has_nothing_of_the_former_one() -> None:
    """For the coordinator it is a member that it knows: what a join leaves out would stay in force."""

    async def story(cluster: Cluster) -> None:
        for topics, partition in (EVENTS, ONE), (["other"], OTHER), (EVENTS, ONE):
            async with consumer_of(cluster, topics=topics, group_instance_id="i") as consumer:
                await holds(consumer, partition)
                await polls(consumer, 20.0)
                assert consumer.assignment() == {partition}
                assert consumer.health().last_error is None, "the coordinator has given it nothing else"

    virtually(story, **TOPICS)


def test_a_member_with_names_and_one_with_a_pattern_share_a_group() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, topics=EVENTS) as one, consumer_of(cluster, topics=["other"]) as two:
            polling = asyncio.gather(polls(one, 30.0), polls(two, 30.0))
            await polling
            assert [one.assignment(), two.assignment()] == [frozenset({ONE}), frozenset({OTHER})]

    virtually(story, **TOPICS)


# Refusals


def test_a_pattern_that_the_broker_refuses_is_raised_with_its_words_and_may_be_replaced() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, topics=SubscriptionPattern("(?=a)b")) as consumer:
            with pytest.raises(BrokerError, match=r"SubscribedTopicRegex `\(\?=a\)b` is not a valid") as refused:
                await consumer.getmany()
            assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
            consumer.subscribe(EVENTS)
            await holds(consumer, ONE)
            consumer.subscribe(SubscriptionPattern("("))
            with pytest.raises(BrokerError, match="INVALID_REGULAR_EXPRESSION"):
                await polls(consumer, 10.0)

    virtually(story, **TOPICS)


@pytest.mark.parametrize(
    ("options", "why", "remedy"),
    [
        ({"group_protocol": "classic"}, "group_protocol='classic'", "; set group_protocol='consumer' (brokers of"),
        (
            {"group_protocol": "auto", "session_timeout_ms": 10_000},
            "session_timeout_ms",
            "leave session_timeout_ms out",
        ),
        ({"group_id": None, "group_protocol": "classic"}, "no group_id", "give it one, and group_protocol='consumer'"),
    ],
)
def test_no_other_protocol_has_such_a_pattern(options: dict[str, Any], why: str, remedy: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": "localhost:1", "group_id": "g", **options}
    with pytest.raises(UsageError, match=re.escape(why)) as refused:
        Consumer(EVENTS, **settings)
    assert remedy in str(refused.value)
    assert "re.compile('events-.*')" in str(refused.value)


@pytest.mark.parametrize("pattern", ["", " ", 5, re.compile("a"), "a" * 40_000, "\ud800"])
def test_what_is_no_pattern_is_refused(pattern: Any) -> None:
    with pytest.raises(ConfigError, match="give a regular expression as str"):
        Consumer(SubscriptionPattern(pattern), bootstrap_servers="localhost:1", group_id="g", group_protocol="consumer")


def test_auto_reads_by_the_pattern_where_the_cluster_takes_the_member_by_the_consumer_protocol() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, topics=EVENTS, group_protocol="auto") as consumer:
            await holds(consumer, ONE)

    virtually(story, **TOPICS)


def test_auto_has_no_classic_member_for_a_pattern() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.finalize_feature("group.version", 0)
        async with consumer_of(cluster, topics=EVENTS, group_protocol="auto") as consumer:
            with pytest.raises(
                UnsupportedVersion, match="subscribe to topic names, or to a compiled pattern"
            ) as declined:
                await consumer.getmany()
            assert "group_protocol='classic'" not in str(declined.value), "a classic member has no such pattern"
            health = consumer.health()
            assert health.group_protocol is None
            assert (
                health.group_protocol_reason == f"group_protocol='auto', and the newest join failed: {declined.value}"
            )
            consumer.unsubscribe()
            consumer.subscribe(["events-1"])
            await holds(consumer, ONE)
            assert consumer.health().group_protocol == "classic"
            assert "the newest join failed" not in consumer.health().group_protocol_reason
            consumer.unsubscribe()
            with pytest.raises(
                UsageError, match="the protocol is classic: group_protocol='auto', and group 'g'"
            ) as refused:
                consumer.subscribe(EVENTS)
            assert "set group_protocol" not in str(refused.value), (
                "no option helps where the cluster lacks the protocol"
            )
            assert "; subscribe to re.compile('events-.*')" in str(refused.value)

    virtually(story, **TOPICS)


@pytest.mark.parametrize("protocol", ["auto", "consumer"])
def test_a_cluster_without_metadata_by_topic_id_can_not_match(protocol: str) -> None:
    """The member learns only the ids of what matches."""

    async def story(cluster: Cluster) -> None:
        cluster._state.versions[ApiKey.METADATA] = (0, 11)  # type: ignore[index]
        async with consumer_of(cluster, topics=EVENTS, group_protocol=protocol) as consumer:
            with pytest.raises(UnsupportedVersion, match="offers Metadata v0-11, and v12 is needed for topic ids"):
                await consumer.getmany()

    virtually(story, **TOPICS)


def test_auto_that_was_refused_a_pattern_takes_part_where_the_cluster_has_changed() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.finalize_feature("group.version", 0)
        async with consumer_of(cluster, topics=EVENTS, group_protocol="auto") as consumer:
            with pytest.raises(UnsupportedVersion):
                await consumer.getmany()
            cluster.finalize_feature("group.version", 1)
            consumer.unsubscribe()
            consumer.subscribe(EVENTS)
            await holds(consumer, ONE)
            health = consumer.health()
            assert health.group_protocol == "consumer"
            assert "takes the member by it" in health.group_protocol_reason
            cluster.finalize_feature("group.version", 0)
            with pytest.raises(UnsupportedVersion):
                await polls(consumer, 60.0)
            assert consumer.health().group_protocol is None
            assert "the newest join failed" in consumer.health().group_protocol_reason

    virtually(story, **TOPICS)


def test_auto_beside_classic_members_that_may_not_be_converted() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, topics=["other"], group_protocol="classic") as old:
            await holds(old, OTHER)
            async with consumer_of(cluster, topics=EVENTS, group_protocol="auto") as new:
                with pytest.raises(BrokerError, match=r"GROUP_ID_NOT_FOUND: group 'g'.*has no pattern"):
                    await new.getmany()

    virtually(story, **TOPICS, group_consumer_migration_policy="disabled")


# Names of the ids


def test_a_topic_whose_name_no_broker_tells_is_told_of_and_read_as_soon_as_one_does() -> None:
    def is_unknown(answer: Any) -> None:
        for topic in answer.topics:
            topic.error_code, topic.name, topic.partitions = ErrorCode.UNKNOWN_TOPIC_ID, None, []

    async def story(cluster: Cluster) -> None:
        cluster.append("events-1", b"one")
        async with consumer_of(cluster, topics=EVENTS) as consumer:
            bad = cluster.intercept(MetadataRequest, altered(is_unknown))
            await polls(consumer, 6.0)
            assert consumer.health().last_error is None
            await polls(consumer, 10.0)
            error = consumer.health().last_error
            assert isinstance(error, AssignmentFailed)
            assert "partitions of topics whose names it does not know" in str(error)
            bad.cancel()
            began = asyncio.get_running_loop().time()
            assert await read(consumer, 1) == [b"one"]
            assert asyncio.get_running_loop().time() < began + 2.0, "it asks at least each second"
            assert consumer.health().last_error is None

    virtually(story, **TOPICS)
