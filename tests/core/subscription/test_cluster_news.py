"""What a new snapshot of the cluster is looked at for: a thousand partitions at a time, and none is missed."""

from __future__ import annotations

import sys
from uuid import UUID

from aiokc.config import ClientConfig
from aiokc.core.cluster.snapshot import Cluster
from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.planner import FetchPlanner
from aiokc.core.subscription.cluster_news import ClusterNews
from aiokc.core.subscription.state import Subscription
from aiokc.types import EARLIEST, Broker, PartitionInfo, TopicInfo, TopicPartition

BROKERS = {1: Broker(1, "a", 9092)}


def topic(number: int) -> TopicInfo:
    return TopicInfo("t", {}, topic_id=UUID(int=number))


def reading(count: int, *topics: str) -> tuple[Subscription, list[TopicPartition]]:
    subscription = Subscription()
    assigned = [TopicPartition(name, number) for name in topics for number in range(count)]
    subscription.assign(assigned)
    for tp in assigned:
        subscription.seek(tp, 0)
    return subscription, assigned


def taken(news: ClusterNews) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    while news:
        found += news.take()
    return found


def test_all_come_in_their_order_and_a_thousand_at_a_time() -> None:
    subscription, assigned = reading(2_500, "t")
    news = ClusterNews(subscription)
    assert not news
    assert list(news.take()) == []
    news.came(Cluster(), Cluster(brokers=BROKERS))
    assert [len(news.take()) for _ in range(3)] == [1_000, 1_000, 500]
    assert not news
    news.came(Cluster(), Cluster(brokers=BROKERS))
    assert taken(news) == assigned


def test_where_the_brokers_are_the_same_only_topics_that_have_changed_are_concerned() -> None:
    subscription, _ = reading(3, "t", "u")
    news, same = ClusterNews(subscription), topic(1)
    before = Cluster(brokers=BROKERS, topics={"t": same, "u": topic(2)})
    news.came(before, Cluster(brokers=dict(BROKERS), topics={"t": same, "u": topic(3)}))
    assert {tp.topic for tp in taken(news)} == {"u"}
    news.came(before, Cluster(brokers=dict(BROKERS), topics={"t": same}))
    assert {tp.topic for tp in taken(news)} == {"u"}, "it is gone"


def test_what_was_not_looked_at_for_one_snapshot_is_for_the_next() -> None:
    """Given that the second one changes nothing, the rest of what the first one changed is still due."""
    subscription, assigned = reading(1_200, "t")
    news, changed = ClusterNews(subscription), topic(2)
    first = Cluster(brokers=BROKERS, topics={"t": changed})
    news.came(Cluster(brokers=BROKERS, topics={"t": topic(1)}), first)
    seen = list(news.take())
    news.came(first, Cluster(brokers=BROKERS, topics={"t": changed}))
    assert set(seen + taken(news)) == set(assigned)


def test_a_snapshot_that_another_one_has_replaced_is_let_go_of() -> None:
    subscription, _ = reading(1, "t")
    news, before = ClusterNews(subscription), Cluster(topics={"t": topic(1)})
    held = sys.getrefcount(before)
    news.came(before, Cluster(topics={"t": topic(2)}))
    assert sys.getrefcount(before) > held
    assert len(taken(news)) == 1
    assert sys.getrefcount(before) == held


def test_what_has_no_position_or_is_revoked_meanwhile_is_not_looked_at() -> None:
    subscription, assigned = reading(4, "t")
    for tp in assigned[:2]:
        subscription.await_reset(tp, EARLIEST)
    subscription[assigned[1]].topic_id = UUID(int=1)
    news = ClusterNews(subscription)
    news.came(Cluster(), Cluster(brokers=BROKERS))
    subscription.assign(assigned[:3])
    assert taken(news) == assigned[1:3]


def led_by(node_id: int, version: int, partitions: list[TopicPartition]) -> Cluster:
    infos = {tp.partition: PartitionInfo("t", tp.partition, node_id, version, (1, 2)) for tp in partitions}
    brokers = {number: Broker(number, "h", 9092) for number in (1, 2)}
    return Cluster(version, brokers=brokers, topics={"t": TopicInfo("t", infos)})


def test_no_fetch_is_planned_before_all_are_looked_at() -> None:
    """Else the leader before would be asked once more for all that lies behind the first thousand."""
    subscription, assigned = reading(1_500, "t")
    planner = FetchPlanner(subscription, FetchBuffer(), ClientConfig())
    while planner.look(led_by(1, 1, assigned), 0.0, 10_000).more:
        pass
    moved = led_by(2, 2, assigned)
    assert planner.look(moved, 0.0, 10_000).more
    assert not planner.look(moved, 0.0, 10_000).more
    asked = {fetch.node_id: fetch.session.asked for fetch in planner.plan({}, 0.0).fetches if fetch.session.asked}
    assert asked.keys() == {2}
