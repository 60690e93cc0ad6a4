"""SubscriptionPattern: the coordinator matches (RE2J), refuses, and finds new topics."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import Consumer, SubscriptionPattern
from aiokc.error_codes import ErrorCode
from aiokc.errors import BrokerError

from .readers import PARTITIONS, Broker, reading, write

pytestmark = [pytest.mark.every_kafka(since="4.0"), pytest.mark.timeout(120)]


@pytest.fixture
def topic(broker: Broker, topic_name: str) -> str:
    broker.create_topic(topic_name, PARTITIONS)
    return topic_name


async def test_topics_that_match_are_read_and_internal_ones_are_not(broker: Broker, topic: str) -> None:
    write(broker, topic, 40)
    async with reading(broker, topic, [topic]) as first:  # so that __consumer_offsets exists
        await first.holds(PARTITIONS)
    pattern = SubscriptionPattern(f"{topic}(-more)?|__consumer_offsets")
    async with reading(broker, f"{topic}-by-pattern", pattern) as reader:
        await reader.holds(PARTITIONS)
        await reader.has_read(40)
        assert reader.consumer.subscription() == {topic}
        assert reader.consumer.health().group_protocol == "consumer"
        assert [call for call in reader.heard.calls if call[1]] == [("assigned", PARTITIONS)]
    assert set(reader.got.values()) == {1}


@pytest.mark.long  # a broker looks for new topics each 10 s
async def test_a_topic_that_is_created_later_is_read(broker: Broker, topic: str) -> None:
    async with reading(broker, topic, SubscriptionPattern(f"{topic}(-more)?")) as reader:
        await reader.holds(PARTITIONS)
        broker.create_topic(f"{topic}-more", 2)
        await reader.subscribes_to(topic, f"{topic}-more")
        assert len(await reader.holds(PARTITIONS + 2)) == PARTITIONS + 2


async def test_from_a_pattern_to_names_and_to_other_patterns(broker: Broker, topic: str) -> None:
    other = f"{topic}-other"
    broker.create_topic(other, 2)
    async with reading(broker, topic, SubscriptionPattern(f"{topic}[^x]other")) as reader:
        await reader.holds(2)
        for wanted, topics in (
            ([topic], [topic]),
            (SubscriptionPattern(f"{topic}-?o?t?h?e?r?"), [topic, other]),
            (SubscriptionPattern(f"{topic}-.*"), [other]),
        ):
            reader.consumer.unsubscribe()
            reader.consumer.subscribe(wanted, listener=reader.heard)
            await reader.subscribes_to(*topics)
        reader.consumer.subscribe(SubscriptionPattern(topic), listener=reader.heard)  # in place of the one before
        await reader.subscribes_to(topic)
    assert "lost" not in [what for what, _ in reader.heard.calls]


async def test_a_static_member_that_comes_back_with_names_has_nothing_of_its_former_pattern(
    broker: Broker, topic: str
) -> None:
    other = f"{topic}-other"
    broker.create_topic(other, 2)
    async with reading(broker, topic, SubscriptionPattern(f"{topic}[^x]other"), group_instance_id="i") as reader:
        await reader.holds(2)
    async with reading(broker, topic, [topic], group_instance_id="i") as reader:
        await reader.subscribes_to(topic)
        await reader.holds(PARTITIONS)
        async with reading(broker, topic, [other]) as second:  # which gets what no pattern holds
            await second.holds(2)


async def test_what_the_broker_refuses_is_raised_with_its_words(broker: Broker, topic: str) -> None:
    options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "group_id": topic, "group_protocol": "auto"}
    async with Consumer(SubscriptionPattern("(?=a)b"), **options) as consumer:
        with pytest.raises(BrokerError, match=r"SubscribedTopicRegex `\(\?=a\)b` is not a valid") as refused:
            await consumer.getmany(timeout_ms=30_000)
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        consumer.subscribe(SubscriptionPattern(topic))
        await consumer.wait_assigned(timeout_ms=30_000)
        assert consumer.health().generation > 0
        assert consumer.health().group_protocol_reason.endswith("the coordinator takes the member by it")
