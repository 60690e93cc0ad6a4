"""Subscription by pattern: topics that come and go, with a group and without one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.client.aio.signal import Signal
from aiokc.error_codes import ErrorCode
from aiokc.errors import ConfigError, UsageError
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.discovery import MetadataRequest, MetadataResponse, MetadataResponseTopic
from aiokc.wire.messages.group import JoinGroupRequest
from tests.suite.unused_faults import may_be_unused

from ..listening import Noting, Polling, listening, partitions
from ..virtually import virtually

pytestmark = pytest.mark.timeout(30)

EVENTS = re.compile("events-.*")
ONE, TWO = TopicPartition("events-1", 0), TopicPartition("events-2", 0)


def generation(consumer: Consumer) -> int:
    membership = consumer._runtime.membership
    assert membership is not None
    return membership.generation


async def refreshed(consumer: Consumer, condition: Callable[[], bool] = lambda: True) -> None:
    """Refresh the metadata, as metadata_max_age_ms does, until the condition holds after a refresh."""
    metadata = consumer._runtime.cluster_client.metadata
    moved = Signal()
    for signal in (metadata.changed, consumer._runtime.changed):
        signal.followed_by(moved)
    version = metadata.cluster.version
    async with asyncio.timeout(10):
        while metadata.cluster.version == version or not condition():
            metadata.request_update()
            await moved.wait()
    for signal in (metadata.changed, consumer._runtime.changed):
        signal.not_followed_by(moved)


# In a group


async def test_new_matching_topics_are_read_and_deleted_ones_are_not_any_more() -> None:
    listener = Noting()
    async with (
        Cluster(topics={"events-1": 1, "other": 1}) as cluster,
        listening(cluster, EVENTS, listener=listener) as consumer,
        Polling(consumer) as user,
    ):
        await listener.heard("assigned")
        assert consumer.subscription() == {"events-1"}
        assert consumer.assignment() == {ONE}
        cluster.create_topic("events-2")
        cluster.append("events-2", b"new")
        await refreshed(consumer, lambda: consumer.assignment() == {ONE, TWO})
        assert await user.has(1) == [b"new"]
        assert consumer.subscription() == {"events-1", "events-2"}
        cluster.delete_topic("events-1")
        await refreshed(consumer, lambda: consumer.assignment() == {TWO})
        assert consumer.subscription() == {"events-2"}
        await listener.until(lambda: listener.holds == {TWO})


async def test_a_matching_topic_is_found_within_metadata_max_age() -> None:
    async with (
        Cluster(topics={"events-1": 1}) as cluster,
        listening(cluster, EVENTS, metadata_max_age_ms=100, enable_auto_commit=True) as consumer,
        Polling(consumer) as user,
    ):
        cluster.append("events-1", b"0")
        await user.has(1)
        cluster.create_topic("events-2")
        cluster.append("events-2", b"1")
        assert await user.has(2) == [b"0", b"1"]


async def test_a_pattern_that_matches_nothing_yet_waits() -> None:
    async with (
        Cluster(topics={"other": 1}) as cluster,
        listening(cluster, EVENTS, metadata_max_age_ms=100) as consumer,
    ):
        assert await consumer.getmany(timeout_ms=150) == {}
        assert cluster.members("g") == [], "there is nothing to be a member for"
        cluster.create_topic("events-1")
        cluster.append("events-1", b"0")
        assert (await consumer.getone()).value == b"0"


async def test_topics_that_kafka_keeps_for_itself_match_only_if_wanted() -> None:
    async with Cluster(topics={"events": 1, "__consumer_offsets": 1}) as cluster:
        for exclude, expected in ((True, {"events"}), (False, {"events", "__consumer_offsets"})):
            listener = Noting()
            async with listening(
                cluster, re.compile(".*"), listener=listener, exclude_internal_topics=exclude
            ) as consumer:
                await listener.heard("assigned")
                assert consumer.subscription() == expected


async def test_a_name_is_a_name_even_if_kafka_keeps_that_topic_for_itself() -> None:
    listener = Noting()
    async with (
        Cluster(topics={"__consumer_offsets": 1}) as cluster,
        listening(cluster, "__consumer_offsets", listener=listener) as consumer,
    ):
        await listener.heard("assigned")
        assert len(consumer.assignment()) == 1


async def test_what_does_not_match_may_come_and_go_without_a_rebalance() -> None:
    listener = Noting()
    async with (
        Cluster(brokers=2, topics={"events-1": 1, "other": 1}) as cluster,
        listening(cluster, EVENTS, listener=listener) as consumer,
        Polling(consumer),
    ):
        await listener.heard("assigned")
        cluster.create_topic("another")
        await refreshed(consumer)
        cluster.add_partitions("other", 3)
        cluster.delete_topic("another")
        await refreshed(consumer)
        assert listener.calls == ["assigned"]
        assert generation(consumer) == 1


@pytest.mark.parametrize("by_pattern", [True, False])
async def test_more_partitions_rebalance_and_another_leader_does_not(by_pattern: bool) -> None:
    """The group leader compares the numbers of partitions, and nothing else."""
    listener = Noting()
    async with (
        Cluster(brokers=2, topics={"events-1": 1}) as cluster,
        listening(cluster, EVENTS if by_pattern else "events-1", listener=listener) as consumer,
        Polling(consumer) as user,
    ):
        await listener.heard("assigned")
        leader = cluster.move_leader("events-1")
        known = consumer._runtime.cluster_client.metadata
        await refreshed(consumer, lambda: known.cluster.leader(ONE) == known.cluster.brokers[leader])
        cluster.append("events-1", b"0")
        await user.has(1)
        assert (listener.calls, generation(consumer)) == (["assigned"], 1)
        cluster.add_partitions("events-1", 3)
        await refreshed(consumer, lambda: consumer.assignment() == partitions("events-1", 3))
        assert generation(consumer) == 2


async def test_a_follower_does_not_rebalance_for_partitions_that_only_the_leader_counts() -> None:
    async with (
        Cluster(topics={"events-1": 1}) as cluster,
        listening(cluster, "events-1", listener=(one := Noting())) as leader,
        Polling(leader),
    ):
        await one.heard("assigned")
        async with listening(cluster, "events-1", listener=(two := Noting())) as follower, Polling(follower):
            await two.heard("assigned")
            before = generation(follower)
            cluster.add_partitions("events-1", 2)
            await refreshed(follower)
            assert generation(follower) == before
            await refreshed(leader, lambda: len(leader.assignment()) == 1 and generation(leader) == before + 1)


async def test_one_new_topic_costs_a_group_one_rebalance() -> None:
    """Each member looks for new topics before it joins again. Otherwise each would start one more rebalance of the
    group.
    """
    ages: dict[str, Any] = {"metadata_max_age_ms": 300_000}
    async with (
        Cluster(topics={"events-1": 2}) as cluster,
        listening(cluster, EVENTS, listener=(one := Noting()), **ages) as first,
        Polling(first),
    ):
        await one.heard("assigned")
        async with listening(cluster, EVENTS, listener=(two := Noting()), **ages) as second, Polling(second):
            await two.heard("assigned")
            await one.until(lambda: len(one.holds) == 1)
            before = generation(first)
            await asyncio.sleep(0.05)  # so that the snapshot with which it joined is not new any more
            cluster.create_topic("events-2", partitions=2)
            await refreshed(second)
            await two.until(lambda: len(two.holds) == 2)
            await one.until(lambda: len(one.holds) == 2)
            assert generation(first) == generation(second) == before + 1
            assert first.subscription() == second.subscription() == {"events-1", "events-2"}


async def test_a_topic_that_appears_while_a_member_joins_is_in_its_first_assignment() -> None:
    """The member finds the topic when it looks before JoinGroup. It sends the subscription of that moment."""
    async with Cluster(topics={"events-1": 1}) as cluster:
        joins: list[Exchange] = []

        async def note(exchange: Exchange) -> None:
            joins.append(exchange)

        def create(exchange: Exchange) -> None:
            cluster.create_topic("events-2")

        cluster.intercept(JoinGroupRequest, note)
        created = cluster.intercept(MetadataRequest, create, times=1)
        listener = Noting()
        async with listening(cluster, EVENTS, listener=listener) as consumer:
            await listener.heard("assigned")
            assert created.hits == 1
            assert consumer.assignment() == {ONE, TWO}
            assert generation(consumer) == 1


async def test_a_leader_by_pattern_does_not_wait_for_topics_that_do_not_exist(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its metadata list all topics that exist, so it need not ask about each name whether that is unknown."""
    async with (
        Cluster(topics={"events-1": 2}) as cluster,
        listening(cluster, EVENTS, listener=(one := Noting())) as leader,
        Polling(leader),
    ):
        await one.heard("assigned")
        async with listening(cluster, "events-1", "missing", listener=(two := Noting())) as other, Polling(other):
            await two.heard("assigned")
    assert "assigning what is known" not in caplog.text, "that would be the end of a wait of 5 s"


async def test_another_pattern_replaces_the_one_before() -> None:
    async with (
        Cluster(topics={"events-1": 1, "events-2": 1, "logs": 1}) as cluster,
        listening(cluster, EVENTS, listener=(listener := Noting())) as consumer,
        Polling(consumer) as user,
    ):
        await listener.heard("assigned")
        cluster.append("events-1", b"0")
        await user.has(1)
        consumer.subscribe(re.compile("events-2|logs"), listener=listener)
        cluster.append("events-1", b"not any more")
        cluster.append("logs", b"1")
        cluster.append("events-2", b"2")
        assert set(await user.has(3)) == {b"0", b"1", b"2"}
        assert consumer.subscription() == {"events-2", "logs"}
        assert generation(consumer) == 2, "the new topics are found before the member joins again"


async def test_the_same_pattern_again_changes_nothing() -> None:
    async with (
        Cluster(topics={"events-1": 1}) as cluster,
        listening(cluster, EVENTS, listener=(listener := Noting())) as consumer,
        Polling(consumer),
    ):
        await listener.heard("assigned")
        consumer.subscribe(re.compile("events-.*"), listener=listener)
        await refreshed(consumer)
        assert (listener.calls, generation(consumer)) == (["assigned"], 1)


async def test_metadata_is_asked_for_all_topics_only_while_a_pattern_needs_it() -> None:
    async with Cluster(topics={"events-1": 1, "other": 1}) as cluster:
        asked: list[list[str] | None] = []

        def note(exchange: Exchange) -> None:
            topics = exchange.request.topics
            asked.append(None if topics is None else sorted(topic.name for topic in topics))

        cluster.intercept(MetadataRequest, note)
        async with listening(cluster, "other") as consumer:
            await refreshed(consumer)
            assert asked
            assert all(names == ["other"] for names in asked)
            consumer.unsubscribe()
            asked.clear()
            consumer.subscribe(EVENTS)
            await refreshed(consumer, lambda: consumer.subscription() == {"events-1"})
            assert asked
            assert set(map(str, asked)) <= {"None"}
            consumer.unsubscribe()
            consumer.subscribe(["other"])
            asked.clear()
            await refreshed(consumer, lambda: bool(asked))
            assert asked[-1] == ["other"]


async def test_the_same_names_again_change_nothing() -> None:
    """The call causes no rebalance and no request."""
    async with (
        Cluster(topics={"t": 1, "u": 1}) as cluster,
        listening(cluster, "t", "u", listener=(listener := Noting())) as consumer,
        Polling(consumer),
    ):
        await listener.heard("assigned")
        asked = may_be_unused(cluster.intercept(MetadataRequest, lambda exchange: None))
        consumer.subscribe(["u", "t"], listener=listener)
        await asyncio.sleep(0.1)
        assert (listener.calls, generation(consumer), asked.hits) == (["assigned"], 1, 0)


@pytest.mark.parametrize("group", ["g", None])
async def test_subscribe_replaces_and_what_was_fetched_of_the_old_topic_is_not_returned(group: str | None) -> None:
    async with Cluster(topics={"a": 1, "b": 1}) as cluster:
        cluster.append("a", *[b"a"] * 10)
        cluster.append("b", b"b")
        async with listening(cluster, "a", group=group) as consumer:
            assert (await consumer.getone()).value == b"a"
            consumer.subscribe(["b"])
            assert [(await consumer.getone()).value] == [b"b"]
            assert await consumer.getmany(timeout_ms=50) == {}
            assert consumer.assignment() == {TopicPartition("b", 0)}


async def test_a_topic_that_is_deleted_under_its_reader_is_no_error_and_the_rest_is_read_on() -> None:
    listener = Noting()
    async with (
        Cluster(topics={"a": 1, "b": 1}) as cluster,
        listening(cluster, "a", "b", listener=listener) as consumer,
        Polling(consumer) as user,
    ):
        await listener.heard("assigned")
        cluster.append("a", b"0")
        await user.has(1)
        cluster.delete_topic("a")
        await refreshed(consumer, lambda: consumer.assignment() == {TopicPartition("b", 0)})
        cluster.append("b", b"1")
        assert b"1" in await user.has(2)
        assert user.errors == []


@pytest.mark.parametrize("group", ["g", None])
async def test_names_pattern_and_partitions_exclude_each_other_until_unsubscribe(group: str | None) -> None:
    async with Cluster(topics={"events-1": 1}) as cluster:
        cluster.append("events-1", b"0")
        async with listening(cluster, EVENTS, group=group) as consumer:
            with pytest.raises(UsageError, match="mutually exclusive"):
                consumer.subscribe(["events-1"])
            with pytest.raises(UsageError, match="mutually exclusive"):
                consumer.assign([ONE])
            consumer.unsubscribe()
            with pytest.raises(UsageError, match="nothing to read"):
                await consumer.getmany()
            consumer.assign([ONE])
            with pytest.raises(UsageError, match="mutually exclusive"):
                consumer.subscribe(EVENTS)
            assert (await consumer.getone()).value == b"0"
            consumer.unsubscribe()
            consumer.subscribe(["events-1"])
            with pytest.raises(UsageError, match="mutually exclusive"):
                consumer.subscribe(EVENTS)
            assert (await consumer.getone()).value == b"0"


def test_a_pattern_is_compiled_from_str_and_stands_alone() -> None:
    with pytest.raises(ConfigError, match="from str, not from bytes"):
        Consumer(re.compile(b"events"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="one compiled pattern"):
        Consumer(EVENTS, "other")
    assert Consumer(EVENTS).subscription() == frozenset()


# Without a group


async def test_without_a_group_matching_topics_come_and_go() -> None:
    listener = Noting()
    async with (
        Cluster(topics={"events-1": 2, "other": 1}) as cluster,
        listening(cluster, EVENTS, group=None, listener=listener) as consumer,
        Polling(consumer) as user,
    ):
        await listener.heard("assigned")
        assert consumer.assignment() == partitions("events-1", 2)
        cluster.create_topic("events-2")
        cluster.append("events-2", b"new")
        await refreshed(consumer, lambda: TWO in consumer.assignment())
        assert await user.has(1) == [b"new"]
        cluster.delete_topic("events-1")
        await refreshed(consumer, lambda: consumer.assignment() == {TWO})
        await listener.heard("assigned", "assigned", "revoked")
        assert listener.told[1:] == [("assigned", frozenset({TWO})), ("revoked", partitions("events-1", 2))]


async def test_without_a_group_a_topic_created_later_is_read_from_its_beginning_also_with_latest() -> None:
    """Otherwise records that were written before this client heard of the topic would be skipped."""
    async with Cluster(topics={"events-1": 1}) as cluster:
        cluster.append("events-1", b"old")
        async with listening(cluster, EVENTS, group=None, auto_offset_reset="latest") as consumer:
            await refreshed(consumer, lambda: ONE in consumer.assignment())
            assert await consumer.position(ONE) == 1
            cluster.create_topic("events-2")
            cluster.append("events-2", b"0", b"1")
            await refreshed(consumer, lambda: TWO in consumer.assignment())
            assert [(await consumer.getone()).value for _ in range(2)] == [b"0", b"1"]


async def test_without_a_group_the_first_topic_that_matches_is_new_where_none_matched_at_first() -> None:
    async with (
        Cluster(topics={"other": 1}) as cluster,
        listening(cluster, EVENTS, group=None, auto_offset_reset="latest") as consumer,
    ):
        assert await consumer.getmany(timeout_ms=100) == {}
        cluster.create_topic("events-1")
        cluster.append("events-1", b"0")
        await refreshed(consumer, lambda: ONE in consumer.assignment())
        assert (await consumer.getone()).value == b"0"


@pytest.mark.parametrize("by_pattern", [True, False])
@pytest.mark.parametrize("group", ["g", None])
async def test_a_broker_that_does_not_know_a_topic_for_a_moment_changes_nothing(
    group: str | None, by_pattern: bool
) -> None:
    """It may have just started. What was read is not read again, and a group does not rebalance."""
    wanted = [EVENTS] if by_pattern else ["events-1", "events-2"]
    options: dict[str, Any] = {"group": group, "retry_backoff_max_ms": 10_000}
    async with Cluster(topics={"events-1": 1, "events-2": 1}) as cluster:
        cluster.append("events-1", b"0")
        async with listening(cluster, *wanted, listener=(listener := Noting()), **options) as consumer:
            assert (await consumer.getone()).value == b"0"
            known = consumer._runtime.cluster_client.metadata

            async def forget(exchange: Exchange) -> MetadataResponse:
                response = await exchange.handle()
                assert isinstance(response, MetadataResponse)
                for topic in [topic for topic in response.topics if topic.name == "events-1"]:
                    response.topics.remove(topic)
                    if not by_pattern:
                        code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                        response.topics.append(MetadataResponseTopic(error_code=code, name="events-1", partitions=[]))
                return response

            forgetful = cluster.intercept(MetadataRequest, forget, times=2)
            await refreshed(consumer, lambda: "events-1" not in known.cluster.topics)
            assert consumer.subscription() == {"events-1", "events-2"}
            assert consumer.assignment() == {ONE, TWO}
            await refreshed(consumer, lambda: forgetful.hits == 2 and "events-1" in known.cluster.topics)
            cluster.append("events-1", b"1")
            assert (await consumer.getone()).value == b"1"
            assert listener.calls == ["assigned"]
            assert group is None or generation(consumer) == 1


def test_a_pattern_that_is_replaced_while_it_is_matched_matches_nothing_any_more() -> None:
    """This many topics are matched in several steps. What the old pattern finds is not what the new one asked for."""

    async def story(cluster: Cluster) -> None:
        async with listening(cluster, re.compile("a-.*")) as consumer:
            reading = consumer._runtime
            while reading.cluster_client.metadata.cluster.version == 0:
                await reading.cluster_client.metadata.changed.wait()
            reading._pattern._seen = None
            looking = asyncio.ensure_future(reading._pattern._look())
            await asyncio.sleep(0)  # it has begun
            assert not looking.done()
            consumer.subscribe(re.compile("b-.*"))
            await looking
            assert not any(topic.startswith("a-") for topic in consumer.subscription())

    virtually(story, topics={f"{letter}-{number}": 1 for letter in "ab" for number in range(600)}, brokers=1)
