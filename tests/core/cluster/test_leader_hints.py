"""Leaders that brokers name in their answers: until when they count, and what counts after that."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from aiokc.core.cluster.leader_hints import DENY_LEADING, LeaderHints
from aiokc.core.cluster.snapshot import Cluster, NewLeader
from aiokc.error_codes import ErrorCode
from aiokc.types import Broker, PartitionInfo, TopicInfo, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def metadata(version: int = 1, *, leader: int = 1, epoch: int = 3, topic_id: UUID | None = None) -> Cluster:
    """Both partitions have this leader; the brokers are 1 and 2."""
    partitions = {tp.partition: PartitionInfo("t", tp.partition, leader, epoch) for tp in (T0, T1)}
    brokers = {node_id: Broker(node_id, "h", node_id) for node_id in (1, 2)}
    return Cluster(version, brokers=brokers, topics={"t": TopicInfo("t", partitions, topic_id)})


@pytest.fixture
def hints() -> LeaderHints:
    found = LeaderHints()
    found.refreshed(metadata())
    return found


def leader(hints: LeaderHints, tp: TopicPartition) -> tuple[int, int]:
    found = hints.cluster.leader(tp)
    assert found is not None
    return found.node_id, hints.cluster.leader_epoch(tp)


def named(node_id: int, epoch: int, topic_id: UUID | None = None) -> NewLeader:
    return NewLeader(node_id, epoch, topic_id)


def test_a_leader_that_was_named_counts_until_the_metadata_know_as_much(hints: LeaderHints) -> None:
    assert hints.learn({T0: named(2, 4)}, {}) == {T0}
    assert (leader(hints, T0), leader(hints, T1)) == ((2, 4), (1, 3))
    hints.refreshed(metadata(2))
    assert leader(hints, T0) == (2, 4)
    hints.refreshed(metadata(3, leader=1, epoch=5))
    assert leader(hints, T0) == (1, 5)
    hints.refreshed(metadata(4, leader=1, epoch=3))
    assert leader(hints, T0) == (1, 3), "what was named is forgotten"


def test_a_leader_that_is_found_wrong_counts_no_more_and_neither_does_its_address(hints: LeaderHints) -> None:
    hints.learn({T0: named(2, 4), T1: named(9, 4)}, {9: Broker(9, "other", 2)})
    assert hints.disprove(2)
    assert (leader(hints, T0), leader(hints, T1)) == ((1, 3), (9, 4))
    assert hints.disprove(9, {T1})
    assert leader(hints, T1) == (1, 3)
    assert 9 not in hints.cluster.brokers


def test_a_broker_is_where_the_metadata_say_and_only_without_them_where_the_name_says(hints: LeaderHints) -> None:
    """A proxy may rewrite the addresses in Metadata, and not those that come with a name."""
    hints.learn({T0: named(2, 4)}, {2: Broker(2, "other", 1)})
    assert (leader(hints, T0), hints.cluster.brokers[2].host) == ((2, 4), "h")
    said = metadata(2)
    hints.refreshed(replace(said, brokers={1: said.brokers[1]}))
    assert (leader(hints, T0), hints.cluster.brokers[2].host) == ((2, 4), "other")
    hints.refreshed(metadata(3))
    assert (leader(hints, T0), hints.cluster.brokers[2].host) == ((2, 4), "h")


def test_only_a_leader_that_was_named_is_found_wrong(hints: LeaderHints) -> None:
    hints.learn({T0: named(2, 4)}, {})
    assert not hints.disprove(1)
    assert not hints.disprove(2, {T1})
    assert leader(hints, T0) == (2, 4)


def test_after_a_wrong_name_none_counts_before_the_next_metadata_and_the_same_one_not_then(hints: LeaderHints) -> None:
    hints.learn({T0: named(2, 4)}, {})
    hints.disprove(2)
    assert hints.learn({T0: named(2, 5)}, {}) == set()
    hints.refreshed(metadata(2))
    assert hints.learn({T0: named(2, 4)}, {}) == set()
    assert hints.learn({T0: named(2, 5)}, {}) == {T0}
    hints.disprove(2)
    hints.refreshed(metadata(3, leader=2, epoch=5))
    assert leader(hints, T0) == (2, 5), "the metadata are always believed"


def test_a_wrong_name_says_nothing_of_a_recreated_topic() -> None:
    """The epochs of the new topic start anew, and would not reach that of the wrong leader for a long time."""
    old, new = UUID(int=1), UUID(int=2)
    hints = LeaderHints()
    hints.refreshed(metadata(topic_id=old))
    hints.learn({T0: named(2, 9, old)}, {})
    hints.disprove(2)
    hints.refreshed(metadata(2, topic_id=old))
    assert hints.learn({T0: named(2, 9, old)}, {}) == set()
    hints.refreshed(metadata(3, epoch=0, topic_id=new))
    assert hints.learn({T0: named(2, 1, new)}, {}) == {T0}


def test_of_a_topic_that_is_gone_nothing_is_kept(hints: LeaderHints) -> None:
    hints.learn({T0: named(2, 4), T1: named(9, 4)}, {9: Broker(9, "other", 2)})
    hints.disprove(2)
    hints.refreshed(Cluster(2, brokers=metadata().brokers))
    assert not hints._wrong
    assert not hints._leaders
    assert not hints._addresses


def test_a_leader_that_was_elected_a_moment_ago_denies_nothing() -> None:
    """It answers OFFSET_NOT_AVAILABLE until it knows how far its followers are (KIP-207)."""
    assert ErrorCode.OFFSET_NOT_AVAILABLE not in DENY_LEADING
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED not in DENY_LEADING
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in DENY_LEADING
    assert ErrorCode.UNKNOWN_LEADER_EPOCH in DENY_LEADING
