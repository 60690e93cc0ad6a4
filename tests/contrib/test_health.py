"""What probes conclude: they fail for what a restart may cure, never for lag, an outage, or a rebalance."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from aiokc import Client, Consumer, ErrorCode, Health, Producer, TopicPartition
from aiokc.contrib.health import Probe, Rules, Verdict, verdict
from aiokc.errors import BrokerError, ConfigError, KafkaError, ProducerFenced
from aiokc.testing import Cluster
from aiokc.testing.faults import drop, throttle
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.group import JoinGroupRequest

from ..client.virtually import virtually
from .consumers import T0, T1, application, consumer

pytestmark = pytest.mark.timeout(30)


def health(**changes: Any) -> Health:
    well = {
        "running": True,
        "error": None,
        "last_error": None,
        "assigned": frozenset({T0}),
        "generation": 1,
        "member_id": "m",
        "rebalancing": False,
        "last_heartbeat_age_ms": 100.0,
        "last_poll_age_ms": 0.0,
        "has_assignment": True,
        "cluster_id": "cluster",
    }
    return Health(**{**well, **changes})


WELL = Verdict(True, True, ())
FAILED = BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"assigned": frozenset()},
        {"last_error": KafkaError("the broker is away")},
        {"last_heartbeat_age_ms": 1e9},
        {"last_heartbeat_age_ms": None, "generation": -1, "member_id": ""},
        {"last_poll_age_ms": 599_000.0},
        {"last_poll_age_ms": None},
        {"stalled": {T0: 59_000.0}},
    ],
)
def test_what_is_well(changes: dict[str, Any]) -> None:
    assert verdict(health(**changes), None, Rules(handler_after_ms=600_000)) == WELL


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"error": FAILED}, f"its calls raise {type(FAILED).__name__}: {FAILED}"),
        ({"running": False}, "it was stopped, or its background has ended"),
        ({"stalled": {T1: 60_000.0, T0: 61_000.0}}, "t-0, t-1: no record for 60 s, and there are some"),
        (
            {"stalled": {TopicPartition("t", number): 1e6 for number in range(9)}},
            "t-0, t-1, t-2, t-3, t-4 and 4 more: no record for 60 s, and there are some",
        ),
        ({"last_poll_age_ms": 600_000.0}, "the application has not asked for records for 600 s"),
    ],
)
def test_what_a_restart_may_cure(changes: dict[str, Any], reason: str) -> None:
    rules = Rules(handler_after_ms=600_000)
    assert verdict(health(**changes), None, rules) == verdict(health(**changes), WELL, rules)
    assert verdict(health(**changes), WELL, rules) == Verdict(False, False, (reason,))


def test_a_handler_has_all_the_time_where_no_rule_ends_it() -> None:
    assert verdict(health(last_poll_age_ms=1e9)) == WELL


def test_ready_begins_with_the_first_assignment_and_outlives_rebalances() -> None:
    starting = health(running=False, cluster_id=None, has_assignment=False, last_poll_age_ms=None)
    assert verdict(starting) == (True, False, ("it was not started yet",))
    joining = health(has_assignment=False, rebalancing=True)
    first = verdict(joining)
    assert first == Verdict(True, False, ("it waits for its first assignment",))
    assert verdict(health(), first) == WELL
    assert verdict(joining, WELL) == WELL
    failed = verdict(health(error=FAILED), WELL)
    assert not failed.ready
    assert not verdict(joining, failed).ready, "a membership that has ended begins with an assignment again"


def test_the_rules_for_a_consumer() -> None:
    assert Rules.of(Consumer("t")) == Rules(stall_after_ms=60_000, handler_after_ms=None)
    member = Consumer("t", group_id="g", max_poll_interval_ms=10_000)
    assert Rules.of(member) == Rules(handler_after_ms=20_000)


def test_ready_begins_once_all_topics_are_known_and_outlives_a_topic_that_is_deleted() -> None:
    misspelled = health(missing_topics=frozenset({"evnets"}), assigned=frozenset())
    first = verdict(misspelled)
    assert first == Verdict(True, False, ("no broker knows 'evnets'",))
    assert verdict(misspelled, first) == first
    assert verdict(health(), first) == WELL
    assert verdict(misspelled, WELL) == WELL
    many = verdict(health(missing_topics=frozenset("abcdefg")))
    assert many.reasons == ("no broker knows 'a', 'b', 'c', 'd', 'e' and 2 more",)


@pytest.mark.parametrize(
    ("trouble", "is_ready"), [({"stalled": {T0: 60_000.0}}, True), ({"error": FAILED}, False)], ids=["stall", "error"]
)
def test_ready_outlives_a_stall_in_which_a_topic_is_deleted_and_no_error(
    trouble: dict[str, Any], *, is_ready: bool
) -> None:
    deleted = {"missing_topics": frozenset({"u"})}
    reader = Consumer("t", "u")
    probe = Probe(reader)
    with patch.object(reader, "health", side_effect=[health(), health(**deleted, **trouble), health(**deleted)]):
        assert probe.look() == WELL
        assert not probe.look().live
        assert probe.look().ready == is_ready


@pytest.mark.parametrize("options", [{}, {"group_id": "g"}, {"group_id": "g", "group_protocol": "consumer"}], ids=str)
async def test_a_misspelled_topic_is_told_until_it_is_created(options: dict[str, Any]) -> None:
    async with (
        Cluster(brokers=1, topics={"t": 1}, auto_create_topics_enable=False) as cluster,
        consumer(cluster, "t", "evnets", **options) as reader,
    ):
        probe = Probe(reader)
        while not reader.health().missing_topics:
            await reader.getmany(timeout_ms=10)
        assert reader.health().missing_topics == {"evnets"}
        assert probe.look() == (True, False, ("no broker knows 'evnets'",))
        cluster.create_topic("evnets", 1)
        while probe.look() != WELL or TopicPartition("evnets", 0) not in reader.assignment():
            await reader.getmany(timeout_ms=10)
        assert reader.health().missing_topics == frozenset()


async def test_assigned_partitions_of_a_topic_that_does_not_exist_are_told_too() -> None:
    async with (
        Cluster(brokers=1, topics={"t": 1}, auto_create_topics_enable=False) as cluster,
        consumer(cluster) as reader,
    ):
        reader.assign([TopicPartition("nope", 0), T0])
        while not reader.health().missing_topics:
            await reader.getmany(timeout_ms=10)
        assert reader.health().missing_topics == {"nope"}


async def looks(probe: Probe, seconds: float, every: float = 5.0) -> list[Verdict]:
    found = []
    for _ in range(int(seconds / every)):
        await asyncio.sleep(every)
        found.append(probe.look())
    return found


# In a cluster with each trouble, from which a probe has to tell nothing


def lag(cluster: Cluster) -> None:
    for partition in (0, 1):
        for _ in range(10):
            cluster.append("t", *[b"v" * 100] * 100, partition=partition)


def outage(cluster: Cluster) -> None:
    for broker in (1, 2, 3):
        cluster.take_down(broker)


def outage_of_the_leader(cluster: Cluster) -> None:
    leader = cluster.leader("t")
    assert leader is not None
    cluster.take_down(leader)


def silence(cluster: Cluster) -> None:
    cluster.intercept(FetchRequest, drop())


def quota(cluster: Cluster) -> None:
    cluster.intercept(FetchRequest, throttle(60_000))


def rebalances(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    for number in range(10):
        loop.call_later(10.0 * number, lambda: cluster.members("g") and cluster.expire_member("g"))


def endless_rebalance(cluster: Cluster) -> None:
    cluster.expire_member("g")
    cluster.intercept(JoinGroupRequest, ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize("trouble", [lag, outage, outage_of_the_leader, silence, quota, rebalances, endless_rebalance])
def test_what_no_restart_cures_fails_no_probe(trouble: Callable[[Cluster], None]) -> None:
    async def story(cluster: Cluster) -> None:
        for partition in (0, 1):
            cluster.append("t", *[b"v"] * 10, partition=partition)
        async with consumer(cluster, "t", group_id="g", enable_auto_commit=True) as reader:
            probe = Probe(reader)
            reading = asyncio.ensure_future(application(reader, 1.0, max_records=7))
            await reader._runtime.changed.wait(60)
            await asyncio.sleep(10.0)
            assert probe.look() == WELL
            trouble(cluster)
            lag(cluster)
            assert set(await looks(probe, 100)) == {WELL}
            reading.cancel()
            await asyncio.wait([reading])

    virtually(story)


# What does fail them


def test_a_poison_record_that_holds_up_its_partition_fails_the_probe() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"1", b"two", b"3")
        async with consumer(cluster, "t", group_id="g", value_deserializer=int) as reader:
            probe = Probe(reader)
            reading = asyncio.ensure_future(application(reader, 1.0))
            found = await looks(probe, 120)
            assert [one.live for one in found] == [True] * 12 + [False] * 12
            assert found[-1].reasons == ("t-0: no record for 60 s, and there are some",)
            reading.cancel()
            await asyncio.wait([reading])

    virtually(story)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_handler_that_never_ends_fails_the_probe(protocol: str) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        options = {"group_protocol": protocol, "max_poll_interval_ms": 30_000}
        async with consumer(cluster, "t", group_id="g", **options) as reader:
            probe = Probe(reader)
            await reader.getmany()
            found = await looks(probe, 80, every=10.0)
            assert [one.live for one in found] == [True] * 5 + [False] * 3

    virtually(story)


def test_rules_that_say_nothing_of_handlers_leave_a_member_its_own() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        async with (
            consumer(cluster, "t", group_id="g", max_poll_interval_ms=30_000) as reader,
            producing(cluster) as producer,
        ):
            for_producer = Probe(reader, producer, rules=Rules(unanswered_after_ms=60_000))
            patient = Probe(reader, rules=Rules(handler_after_ms=math.inf))
            await reader.getmany()
            await asyncio.sleep(61)
            found = for_producer.look()
            assert (found.live, len(found.reasons)) == (False, 1)
            assert found.reasons[0].endswith("the application has not asked for records for 61 s")
            assert patient.look().live

    virtually(story)


def test_a_handler_of_a_consumer_that_is_no_member_has_all_the_time() -> None:
    """With assign() it has a group_id to commit by, and nobody takes its partitions."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        async with consumer(cluster, group_id="g", max_poll_interval_ms=30_000) as reader:
            reader.assign([T0])
            probe, strict = Probe(reader), Probe(reader, rules=Rules(handler_after_ms=60_000))
            batch = await reader.getmany()
            assert set(await looks(probe, 80, every=10.0)) == {WELL}
            assert not strict.look().live, "who asks for the rule gets it"
            await reader.commit(batch)
            assert cluster.committed("g") == {T0: 1}

    virtually(story)


def test_a_background_that_has_ended_fails_the_probe() -> None:
    async def story(cluster: Cluster) -> None:
        reader = consumer(cluster, "t", group_id="g")
        probe = Probe(reader)
        assert probe.look() == (True, False, ("it was not started yet",))
        await reader.start()
        await reader.wait_assigned()
        assert probe.look() == WELL

        async def broken() -> None:
            raise ZeroDivisionError("a bug")

        reader._runtime.finder.wake.wait = lambda *args: broken()  # type: ignore[assignment]
        reader._runtime.finder.wake.notify()
        await asyncio.sleep(1.0)
        found = probe.look()
        assert not found.live
        assert "ZeroDivisionError" in found.reasons[0]
        await reader.stop()

    virtually(story)


def test_a_stopped_consumer_fails_the_probe_and_names_itself_among_others() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = consumer(cluster, "t", client_id="one"), consumer(cluster, "t", client_id="two")
        probe = Probe(one, two)
        async with two:
            async with one:
                await one.wait_assigned()
                await two.wait_assigned()
                assert probe.look() == WELL
            assert probe.look() == (False, False, ("one: it was stopped, or its background has ended",))

    virtually(story)


def test_a_consumer_without_a_client_id_is_named_as_brokers_know_it() -> None:
    found = Probe(Consumer("t"), Consumer("t", client_id="two")).look()
    assert found.reasons == ("aiokc: it was not started yet", "two: it was not started yet")


def test_a_probe_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one consumer"):
        Probe()
    with pytest.raises(ConfigError, match="consumers and producers, not at Client"):
        Probe(Client())  # type: ignore[arg-type]


# Producers


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(bootstrap_servers=cluster.bootstrap, **options)


def test_a_producer_is_live_and_ready_while_it_runs() -> None:
    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, client_id="p")
        probe = Probe(producer)
        assert probe.look() == (True, False, ("it was not started yet",))
        async with producer, consumer(cluster, "t") as reader:
            assert probe.look() == WELL
            await reader.wait_assigned()
            assert Probe(producer, reader).look() == WELL
        assert probe.look() == (False, False, ("it was stopped, or its background has ended",))
        assert Probe(producer, consumer(cluster, "t")).look().reasons == (
            "p: it was stopped, or its background has ended",
            "c: it was not started yet",
        )

    virtually(story)


def test_a_producer_that_was_fenced_is_not_live() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, transactional_id="x") as first, producing(cluster, transactional_id="x"):
            probe = Probe(first)
            assert probe.look() == WELL
            with pytest.raises(ProducerFenced):
                async with first.transaction():
                    await first.send("t", b"v")
            found = probe.look()
            assert not found.live
            assert found.reasons[0].startswith("its calls raise ProducerFenced: ")

    virtually(story)


def test_an_outage_fails_no_probe_of_a_producer_unless_a_rule_says_so() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, delivery_timeout_ms=200_000) as producer:
            await producer.send_and_wait("t", b"v")
            probe, strict = Probe(producer), Probe(producer, rules=Rules(unanswered_after_ms=60_000))
            outage(cluster)
            await producer.send("t", b"v")
            assert set(await looks(probe, 50)) == {WELL}
            assert strict.look() == WELL
            await asyncio.sleep(11)
            assert probe.look() == WELL
            assert strict.look() == (False, False, ("its oldest record has had no outcome for 61 s",))
            for broker in (1, 2, 3):
                cluster.bring_up(broker)
            await producer.flush()
            assert strict.look() == WELL

    virtually(story)
