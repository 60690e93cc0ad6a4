"""Commits for deleted topics: they fail soon, and no rebalance waits for them."""

from __future__ import annotations

import re

import pytest

from aiokc import TopicPartition
from aiokc.errors import BrokerError, RequestTimedOut

from ..group.test_rebalancing import EAGER, fill
from ..stage import T0, Stage, scenario

U0 = TopicPartition("u", 0)


@scenario(topics={"t": 1, "u": 1})
async def test_a_commit_of_a_deleted_topic_says_so_soon(stage: Stage) -> None:
    """Given a batch of t and u, when u is deleted before the batch is committed, then commit() raises the coordinator's
    error within seconds, and the offsets of t are stored. Java's consumer retries until default_api_timeout_ms, and a
    group waits for it if the commit is in on_partitions_revoked.
    """
    fill(stage, 5, 1)
    stage.cluster.append("u", b"0")
    async with stage.member("c1", "t", "u", allow_auto_create_topics=False, **EAGER) as c1:
        while len(c1.read) < 6:
            c1.took(await c1.consumer.getmany())
        stage.cluster.delete_topic("u")
        began = stage.loop.time()
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
            await c1.consumer.commit()
        assert stage.loop.time() - began < 5
        assert stage.cluster.committed("g")[T0] == 5


@scenario(topics={"t": 1})
async def test_a_topic_that_was_in_no_metadata_request_is_tried_until_the_timeout(stage: Stage) -> None:
    """Given offsets of a topic that was in no metadata request, then the topic may exist soon: commit() retries until
    its timeout.
    """
    async with stage.consumer(group_id="g", client_id="c1") as consumer:
        consumer.assign([T0])
        began = stage.loop.time()
        with pytest.raises(RequestTimedOut, match="UNKNOWN_TOPIC"):
            await consumer.commit({U0: 1}, timeout_ms=20_000)
        assert stage.loop.time() - began == pytest.approx(20, abs=0.5)


@scenario(topics={"t": 1})
async def test_a_topic_that_is_new_to_the_coordinator_is_waited_for(stage: Stage) -> None:
    """Given offsets of a topic that no broker knows yet, when it is created a second later, then they are stored."""
    async with stage.consumer(group_id="g", client_id="c1") as consumer:
        consumer.assign([T0])
        stage.loop.call_later(1.0, stage.cluster.create_topic, "u", 1)
        await consumer.commit({U0: 1})
        assert stage.cluster.committed("g")[U0] == 1


@scenario(topics={"t": 1, "u": 1})
async def test_a_commit_of_a_deleted_topic_of_a_pattern_says_so_soon_too(stage: Stage) -> None:
    """Given a subscription by pattern, then the metadata have all topics, and no error for deleted ones: that the topic
    is missing is enough.
    """
    fill(stage, 5, 1)
    stage.cluster.append("u", b"0")
    async with stage.member("c1", allow_auto_create_topics=False, **EAGER) as c1:
        c1.consumer.unsubscribe()
        c1.consumer.subscribe(re.compile("[tu]"))
        while len(c1.read) < 6:
            c1.took(await c1.consumer.getmany())
        stage.cluster.delete_topic("u")
        began = stage.loop.time()
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
            await c1.consumer.commit()
        assert stage.loop.time() - began < 5
        assert stage.cluster.committed("g")[T0] == 5
