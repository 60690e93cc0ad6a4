"""A topic that is hidden for a while, with failOnDataLoss=false: nothing that was read before is read again.

A list of all topics leaves out those that the principal may not see: as if they were deleted.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from aiokc import ClientConfig
from aiokc.errors import AuthorizationFailed
from aiokc.testing import Acl, Cluster
from spark_source.cluster.driver import DriverCluster
from spark_source.offsets import ANCHOR, OffsetJson
from spark_source.options.topic_choice import TopicChoice, subscribe
from spark_source.planning.stream_plan import StreamPlan

from .played_cluster import A0, A1, B0, FROM_EARLIEST, OPTIONS, PlayedCluster, stored

BY_PATTERN = TopicChoice("subscribePattern", None, "[ab]")
READ = {"a": {"0": 50}}


@pytest.fixture
def cluster() -> PlayedCluster:
    cluster = PlayedCluster({A0: (0, 50)})
    cluster.ids = {"a": UUID(int=1), "b": UUID(int=9)}
    return cluster


def planned(cluster: PlayedCluster) -> StreamPlan:
    """Return the plan of a query that has read all."""
    plan = cluster.plan(fail_on_data_loss=False, choice=BY_PATTERN)
    assert stored(plan.latest(READ)) == READ
    return plan


def after_hiding(cluster: PlayedCluster, plan: StreamPlan, start: OffsetJson = READ) -> OffsetJson:
    """Return the end of the batch that is planned while topic "a" is hidden; then it is seen again."""
    cluster.hidden = [A0] * 9
    cluster.sleep(10)
    end = stored(plan.latest(start))
    cluster.hidden = []
    cluster.sleep(10)
    return end


def test_it_goes_on_where_it_was(cluster: PlayedCluster, caplog: pytest.LogCaptureFixture) -> None:
    plan = planned(cluster)
    end = after_hiding(cluster, plan)
    assert end == {}
    assert plan.ranges(READ, end) == {}
    assert "it is gone" in caplog.text
    caplog.clear()
    cluster.logs[A0] = (10, 60)

    after = stored(plan.latest(end))

    assert after == {"a": {"0": 60}, ANCHOR: {"a": {"0": 50}}}
    assert plan.ranges(end, after) == {A0: (50, 60)}
    assert not caplog.records
    restarted = cluster.plan(fail_on_data_loss=False, choice=BY_PATTERN)
    assert restarted.ranges(end, after) == {A0: (50, 60)}, "Spark repeats that batch"


@pytest.mark.parametrize("is_missed", [False, True], ids=["found by freeze()", "missed by freeze()"])
def test_available_now_goes_on_where_it_was_up_to_the_frozen_end(cluster: PlayedCluster, is_missed: bool) -> None:
    """Else the query would end without it, and the next run would read it from its first record."""
    cluster.logs[A0] = (0, 100)
    plan = cluster.plan(fail_on_data_loss=False, choice=BY_PATTERN)
    cluster.hidden = [A0] * is_missed
    plan.freeze()
    cluster.sleep(10)
    read = stored(plan.latest(READ, 20))
    assert read == {"a": {"0": 70}}
    end = after_hiding(cluster, plan, read)
    assert end == {}
    cluster.logs[A0] = (0, 130)

    after = stored(plan.latest(end))

    assert after == {"a": {"0": 100}, ANCHOR: {"a": {"0": 70}}}
    assert plan.ranges(end, after) == {A0: (70, 100)}
    assert plan.latest(after) is after


def test_available_now_does_not_go_on_in_another_topic_of_that_name(cluster: PlayedCluster) -> None:
    """It is new since freeze(): the next run reads it from its first record."""
    plan = cluster.plan(fail_on_data_loss=False, choice=BY_PATTERN)
    plan.freeze()
    end = after_hiding(cluster, plan, stored(plan.latest({"a": {"0": 20}}, 20)))
    cluster.ids["a"] = UUID(int=2)

    assert plan.latest(end) is end
    later = cluster.plan(fail_on_data_loss=False, choice=BY_PATTERN)
    assert later.ranges(end, stored(later.latest(end))) == {A0: (0, 50)}


def test_a_new_leader_that_does_not_know_its_end_yet_is_asked_again(
    cluster: PlayedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """As for a partition that was never hidden: else the query would go on at that end, before what it has read."""
    plan = planned(cluster)
    end = after_hiding(cluster, plan)
    caplog.clear()
    cluster.logs[A0] = (0, 60)
    cluster.stale = [(A0, 40)]

    after = stored(plan.latest(end))

    assert plan.ranges(end, after) == {A0: (50, 60)}
    assert "data loss" not in caplog.text


def test_another_topic_of_that_name_may_be_shorter(cluster: PlayedCluster, caplog: pytest.LogCaptureFixture) -> None:
    plan = planned(cluster)
    end = after_hiding(cluster, plan)
    caplog.clear()
    cluster.ids["a"], cluster.logs[A0] = UUID(int=2), (0, 30)

    assert plan.ranges(end, stored(plan.latest(end))) == {A0: (0, 30)}
    assert not caplog.records


def test_it_may_be_hidden_again_and_again(cluster: PlayedCluster) -> None:
    plan, end = planned(cluster), READ
    for until in (60, 60, 70):
        start = after_hiding(cluster, plan, end)
        began, cluster.logs[A0] = cluster.logs[A0][1], (0, until)
        end = stored(plan.latest(start))
        assert plan.ranges(start, end) == ({A0: (began, until)} if began < until else {})
        assert end["a"] == {"0": until}
        end = stored(plan.latest(end))
        assert not plan._gone, "what is back is not remembered any more"


def test_it_goes_on_there_although_the_batch_waits_for_more(cluster: PlayedCluster) -> None:
    plan = planned(cluster)
    cluster.logs[B0] = (0, 5)
    cluster.sleep(10)
    read = stored(plan.latest(READ))
    end = after_hiding(cluster, plan, read)
    cluster.logs[A0] = (0, 60)

    for _ in range(3):
        assert plan.latest(end, None, 100) is end
    cluster.logs[A0] = (0, 200)
    cluster.sleep(10)

    assert plan.ranges(end, stored(plan.latest(end, None, 100))) == {A0: (50, 200)}


def test_another_topic_of_that_name_is_read_from_its_first_record(cluster: PlayedCluster) -> None:
    plan = planned(cluster)
    end = after_hiding(cluster, plan)
    cluster.ids["a"] = UUID(int=2)
    cluster.logs[A0] = (0, 70)

    after = stored(plan.latest(end))

    assert after == {"a": {"0": 70}, ANCHOR: {"a": {"0": 0}}}
    assert plan.ranges(end, after) == {A0: (0, 70)}


def test_a_cluster_without_topic_ids_can_not_tell(cluster: PlayedCluster) -> None:
    """So each record is read at least once: it may be another topic."""
    cluster.ids.clear()
    plan = planned(cluster)
    end = after_hiding(cluster, plan)

    assert plan.ranges(end, stored(plan.latest(end))) == {A0: (0, 50)}


@pytest.mark.parametrize(("log", "read"), [((55, 70), {A0: (55, 70)}), ((0, 40), {})], ids=["deleted", "cut"])
def test_what_was_lost_meanwhile_is_told(
    cluster: PlayedCluster, caplog: pytest.LogCaptureFixture, log: tuple[int, int], read: object
) -> None:
    plan = planned(cluster)
    end = after_hiding(cluster, plan)
    cluster.logs[A0] = log

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        after = stored(plan.latest(end))

    assert (
        "0: its log no longer reaches what was read before the partition was gone. Wanted: from offset 50"
        in caplog.text
    )
    assert plan.ranges(end, after) == read
    assert after["a"] == {"0": log[1]}


def test_a_partition_that_is_new_meanwhile_is_read_from_its_first_record(cluster: PlayedCluster) -> None:
    plan = planned(cluster)
    end = after_hiding(cluster, plan)
    cluster.logs[A1] = (0, 5)

    assert plan.ranges(end, stored(plan.latest(end))) == {A1: (0, 5)}


@pytest.mark.parametrize("unaware", [0, 1, 2], ids=lambda unaware: f"{unaware} brokers still list it")
def test_the_permission_is_taken_away_after_the_topics_were_listed(cluster: PlayedCluster, unaware: int) -> None:
    """The list is two seconds old at most, and the ends of all that is on it are asked for."""
    cluster.logs[B0] = (0, 5)
    plan = cluster.plan(fail_on_data_loss=False, choice=BY_PATTERN)
    end = stored(plan.latest({"a": {"0": 50}, "b": {"0": 5}}))
    cluster.forbidden, cluster.unaware = {A0}, unaware
    cluster.logs[B0] = (0, 7)

    after = stored(plan.latest(end))

    assert after == {"b": {"0": 7}}
    assert plan.ranges(end, after) == {B0: (5, 7)}
    cluster.forbidden.clear()
    cluster.sleep(10)
    again = stored(plan.latest(after))
    assert again == {"a": {"0": 50}, "b": {"0": 7}, ANCHOR: {"a": {"0": 50}}}


@pytest.mark.parametrize(
    ("changed", "unaware"),
    [({"fail_on_data_loss": True}, 0), ({"choice": subscribe("a")}, 0), ({}, 99)],
    ids=["failOnDataLoss", "its name is in the options", "it is listed and refused for good"],
)
def test_a_permission_that_is_missing_may_be_what_ends_the_query(
    cluster: PlayedCluster, changed: dict[str, Any], unaware: int
) -> None:
    options: dict[str, Any] = {"fail_on_data_loss": False, "choice": BY_PATTERN} | changed
    plan = cluster.plan(**options)
    plan.latest(READ)
    cluster.forbidden, cluster.unaware = {A0}, unaware

    with pytest.raises(AuthorizationFailed):
        plan.latest(READ)


def test_a_batch_that_is_planned_is_not_lost_with_the_permission(cluster: PlayedCluster) -> None:
    """Else the query would go on behind it once the permission is back. It fails, and a restart repeats the batch."""
    plan = planned(cluster)
    cluster.logs[A0] = (0, 60)
    end = stored(plan.latest(READ))
    cluster.forbidden = {A0}

    with pytest.raises(AuthorizationFailed):
        plan.ranges(READ, end)


def as_alice(cluster: Cluster) -> ClientConfig:
    return ClientConfig(
        bootstrap_servers=cluster.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="alice",
        sasl_plain_password="a secret",
    )


def test_brokers_take_the_permission_away_and_give_it_back() -> None:
    permission = Acl("alice", "Read", topic="a")
    played = PlayedCluster({})  # for its clock
    with Cluster(
        topics={"a": 1, "b": 1}, sasl={"alice": "a secret"}, acls=[permission, Acl("alice", "Read", topic="b")]
    ).in_thread() as cluster:
        cluster.append("a", *[b"x"] * 3)
        config = as_alice(cluster)
        options = replace(OPTIONS, choice=BY_PATTERN, starting=FROM_EARLIEST, fail_on_data_loss=False)
        with DriverCluster(config) as driver:
            plan = StreamPlan(options, driver, clock=played.clock, sleep=played.sleep)
            first = stored(plan.latest(stored(plan.initial())))
            cluster.withdraw(permission)

            hidden = stored(plan.latest(first))
            with DriverCluster(config) as another:
                restarted = StreamPlan(options, another, clock=played.clock, sleep=played.sleep)
                with pytest.raises(AuthorizationFailed):  # Spark repeats a batch, whose records are there
                    restarted.ranges({"a": {"0": 1}}, {"a": {"0": 3}})
            cluster.grant(permission)
            cluster.append("a", b"x")
            played.sleep(10)
            back = stored(plan.latest(hidden))

            assert (hidden, back["a"]) == ({"b": {"0": 0}}, {"0": 4})
            assert plan.ranges(hidden, back) == {A0: (3, 4)}


def test_a_topic_that_is_missing_does_not_hide_that_another_one_may_not_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are named in the options. Else the position of the one that is there would leave the checkpoint."""
    monkeypatch.setattr("aiokc.client.cluster.cluster_client._NEW_TOPIC_SECONDS", 0.2)
    permission = Acl("alice", "Read", topic="b")
    with Cluster(
        topics={"a": 1, "b": 1}, sasl={"alice": "a secret"}, acls=[Acl("alice", "Read", topic="a"), permission]
    ).in_thread() as cluster:
        for topic in ("a", "b"):
            cluster.append(topic, *[b"x"] * 3)
        options = replace(OPTIONS, choice=subscribe("a", "b"), starting=FROM_EARLIEST, fail_on_data_loss=False)
        with DriverCluster(as_alice(cluster)) as driver:
            read = {"a": {"0": 3}, "b": {"0": 3}}
            assert StreamPlan(options, driver).latest(read) == read
            cluster.delete_topic("a")
            cluster.withdraw(permission)

            with pytest.raises(AuthorizationFailed, match="topic 'b'"):
                StreamPlan(options, driver).latest(read)
            cluster.grant(permission)

            assert stored(StreamPlan(options, driver).latest(read)) == {"b": {"0": 3}}


def test_only_so_many_partitions_are_remembered(cluster: PlayedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_source.planning.stream_plan._MOST_GONE", 1)
    cluster.logs[B0] = (0, 5)
    plan = cluster.plan(fail_on_data_loss=False, choice=BY_PATTERN)
    read = stored(plan.latest({"a": {"0": 50}, "b": {"0": 5}}))
    logs, cluster.logs = dict(cluster.logs), {}
    cluster.sleep(10)
    end = stored(plan.latest(read))
    cluster.logs = logs
    cluster.sleep(10)

    assert plan.ranges(end, stored(plan.latest(end))) == {A0: (0, 50)}, "b went last"
