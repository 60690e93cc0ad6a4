"""What a consumer tells about itself: health(), metrics(), lag() and group_metadata()."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest.mock import patch

import pytest

from aiokc import Consumer, GroupMetadata, Health, Latency, TopicPartition
from aiokc.contrib.health import Probe, Verdict
from aiokc.core.counters import GroupCounters
from aiokc.core.group.events import IdentityLost, MemberToken, NotNow, Rebalancing, SendHeartbeat, SendSync
from aiokc.core.stopwatch import Stopwatch
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, KafkaError, UsageError
from aiokc.testing import Cluster
from aiokc.testing.faults import Hold
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest
from tests.equal_errors import assert_equal_errors

from ..virtually import virtually

pytestmark = pytest.mark.timeout(30)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", *(b"%d" % number for number in range(10)))
        yield cluster


def consumer(cluster: Cluster, *topics: str, **options: Any) -> Consumer:
    return Consumer(
        *topics,
        bootstrap_servers=cluster.bootstrap,
        **{
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 20,
            "retry_backoff_ms": 10,
            **options,
        },
    )


async def until(reader: Consumer, condition: Any) -> None:
    """Return when ``condition`` holds; it is checked after each event of the group."""
    membership = reader._runtime.membership
    assert membership is not None
    async with asyncio.timeout(20):
        while not condition():
            await membership.moved.wait()


# Health


async def test_the_health_of_a_consumer_without_a_group(cluster: Cluster) -> None:
    reader = consumer(cluster)
    never = Health(
        running=False,
        error=None,
        last_error=None,
        assigned=frozenset(),
        generation=-1,
        member_id="",
        rebalancing=False,
        last_heartbeat_age_ms=None,
        last_poll_age_ms=None,
    )
    assert reader.health() == never
    await reader.start()
    reader.assign([ZERO])
    assert reader.health().last_poll_age_ms is None
    await reader.getmany()
    health = reader.health()
    assert (health.running, health.assigned, health.error) == (True, frozenset({ZERO}), None)
    assert health.last_poll_age_ms is not None
    assert 0 <= health.last_poll_age_ms < 20_000
    waiting = asyncio.ensure_future(reader.getmany())
    await asyncio.sleep(0)
    assert reader.health().last_poll_age_ms == 0, "who waits for records polls all the time"
    waiting.cancel()
    await reader.stop()
    health = reader.health()
    assert (health.running, health.assigned) == (False, frozenset())


def test_health_tells_how_long_ago_the_last_call_for_records_ended() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        async with consumer(cluster) as reader:
            reader.assign([ZERO])
            await reader.getmany()
            await asyncio.sleep(3)
            assert reader.health().last_poll_age_ms == pytest.approx(3_000, abs=10)
            waiting = asyncio.ensure_future(reader.getmany())
            await asyncio.sleep(2)
            assert reader.health().last_poll_age_ms == 0
            waiting.cancel()
            await asyncio.sleep(1)
            assert reader.health().last_poll_age_ms == pytest.approx(1_000, abs=10)

    virtually(story, brokers=1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_never_polled_is_as_old_as_its_membership(protocol: str) -> None:
    async def story(cluster: Cluster) -> None:
        options: dict[str, Any] = {"group_id": "g", "group_protocol": protocol, "max_poll_interval_ms": 10_000}
        async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options) as reader:
            probe = Probe(reader)
            await asyncio.sleep(60)
            assert reader.health().last_poll_age_ms is None, "it subscribes to nothing"
            reader.subscribe(["t"])
            await asyncio.sleep(5)
            assert reader.health().last_poll_age_ms == pytest.approx(5_000, abs=100)
            assert probe.look() == Verdict(True, True, ())
            await asyncio.sleep(10)
            assert cluster.members("g") == []
            assert probe.look().live
            await asyncio.sleep(10)
            assert reader.health().last_poll_age_ms == pytest.approx(25_000, abs=100)
            assert probe.look().reasons == ("the application has not asked for records for 25 s",)
            await reader.wait_assigned()
            assert reader.health().last_poll_age_ms == pytest.approx(0, abs=100)
            assert probe.look().live
            await asyncio.sleep(10)
            assert reader.health().last_heartbeat_age_ms is not None
            reader.unsubscribe()
            await asyncio.sleep(1)
            assert reader.health().last_poll_age_ms is not None, "it has polled"
            assert reader.health().last_heartbeat_age_ms is None, "it is in no group"
            reader.subscribe(["t"])
            assert reader.health().last_heartbeat_age_ms is None, "the new membership has sent none"
            await reader.wait_assigned()
            await asyncio.sleep(10)
            assert reader.health().last_heartbeat_age_ms is not None
        stopped = reader.health()
        assert (stopped.last_poll_age_ms, stopped.last_heartbeat_age_ms) == (None, None), "no age grows for ever"

    virtually(story)


def test_a_member_whose_start_fails_has_no_age_of_polls() -> None:
    async def story(cluster: Cluster) -> None:
        reader = consumer(cluster, "t", group_id="g", default_api_timeout_ms=2_000, request_timeout_ms=1_000)
        for broker in (1, 2, 3):
            cluster.take_down(broker)
        with pytest.raises(KafkaError):
            await reader.start()
        assert reader.health().last_poll_age_ms is None
        await reader.stop()

    virtually(story)


async def test_the_health_of_a_member(cluster: Cluster) -> None:
    hold = Hold()
    cluster.intercept(JoinGroupRequest, hold, times=1)
    async with consumer(cluster, "t", group_id="g") as reader:
        await hold.arrived()
        joining = reader.health()
        assert (joining.rebalancing, joining.generation, joining.last_heartbeat_age_ms) == (True, -1, None)
        hold.release()
        await reader.getmany()
        await until(reader, lambda: reader.health().last_heartbeat_age_ms is not None)
        member = reader.health()
        assert (member.rebalancing, member.generation, member.assigned) == (False, 1, frozenset({ZERO, ONE}))
        assert member.member_id == reader.group_metadata().member_id != ""
        assert member.last_heartbeat_age_ms is not None
        assert member.last_heartbeat_age_ms < 20_000
        cluster.intercept(HeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS, times=1)
        await until(reader, lambda: reader.health().rebalancing)
        waiting = asyncio.ensure_future(reader.getmany())
        await until(reader, lambda: not reader.health().rebalancing and reader.health().generation == 2)
        waiting.cancel()


async def test_health_tells_what_is_tried_again_and_that_it_is_over(cluster: Cluster) -> None:
    trouble = cluster.intercept(FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    async with consumer(cluster, "t", group_id="g") as reader:
        await trouble.caught(2)
        health = reader.health()
        assert "COORDINATOR_NOT_AVAILABLE" in str(health.last_error)
        assert health.error is None
        trouble.cancel()
        await reader.getmany()
        assert reader.health().last_error is None


def warnings_of_the_group(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "aiokc.group" and record.levelno >= logging.WARNING
    ]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT])
@pytest.mark.parametrize("api", [JoinGroupRequest, SyncGroupRequest])
async def test_health_and_log_tell_of_a_coordinator_that_takes_no_member_and_that_it_is_over(
    cluster: Cluster, api: type[Any], code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    trouble = cluster.intercept(api, code)
    async with consumer(cluster, "t", group_id="g") as reader:
        await trouble.caught(3)
        health = reader.health()
        assert str(health.last_error).startswith(f"{code.name}: group 'g': said by broker 1")
        assert health.error is None
        [told] = warnings_of_the_group(caplog)
        assert f"'g': {api.__name__.removesuffix('GroupRequest')} of " in told
        assert f"failed, trying again: {health.last_error}" in told
        trouble.cancel()
        await reader.getmany()
        assert reader.health().last_error is None


async def test_health_and_log_tell_of_heartbeats_that_are_refused_and_that_it_is_over(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer(cluster, "t", group_id="g") as reader:
        await reader.getmany()
        trouble = cluster.intercept(HeartbeatRequest, ErrorCode.UNKNOWN_SERVER_ERROR)
        await trouble.caught(3)
        assert "UNKNOWN_SERVER_ERROR" in str(reader.health().last_error)
        [told] = warnings_of_the_group(caplog)
        assert "'g': Heartbeat of " in told
        trouble.cancel()
        await until(reader, lambda: reader.health().last_error is None)
        assert reader.health().generation == 1


async def test_a_coordinator_that_moves_and_a_rebalance_are_nothing_to_warn_of(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokc.group")
    refused = [
        cluster.intercept(JoinGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2),
        cluster.intercept(SyncGroupRequest, ErrorCode.NOT_COORDINATOR, times=1),
        cluster.intercept(SyncGroupRequest, ErrorCode.REBALANCE_IN_PROGRESS, times=1),
    ]
    async with consumer(cluster, "t", group_id="g") as reader:
        await reader.getmany()
        assert reader.health().last_error is None
        refused.append(cluster.intercept(HeartbeatRequest, ErrorCode.NOT_COORDINATOR, times=2))
        await refused[-1].caught(2)
        await until(reader, lambda: reader.health().last_error is None)
        refused.append(cluster.intercept(HeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS, times=1))
        waiting = asyncio.ensure_future(reader.getmany())
        await until(reader, lambda: reader.health().generation == 4 and not reader.health().rebalancing)
        waiting.cancel()
    assert [one.hits for one in refused] == [2, 1, 1, 2, 1]
    assert warnings_of_the_group(caplog) == []
    assert len([record for record in caplog.records if "trying again" in record.getMessage()]) == 2, "once for each"


async def test_health_tells_of_an_auto_commit_that_fails(cluster: Cluster) -> None:
    async with consumer(cluster, "t", group_id="g", enable_auto_commit=True, auto_commit_interval_ms=20) as reader:
        await reader.getmany()
        trouble = cluster.intercept(OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        waiting = asyncio.ensure_future(reader.getmany())
        await trouble.caught(2)
        assert "COORDINATOR_LOAD_IN_PROGRESS" in str(reader.health().last_error)
        trouble.cancel()
        before = reader.metrics().commits.count
        await until(reader, lambda: reader.metrics().commits.count > before and reader.health().last_error is None)
        waiting.cancel()


async def test_health_tells_beforehand_what_the_next_call_raises(cluster: Cluster) -> None:
    cluster.intercept(JoinGroupRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with consumer(cluster, "t", group_id="g") as reader:
        await until(reader, lambda: reader.health().error is not None)
        told = reader.health().error
        with pytest.raises(AuthorizationFailed) as raised:
            await reader.getmany()
        assert_equal_errors(raised.value, told)


# Metrics


async def test_what_a_consumer_has_read_is_counted(cluster: Cluster) -> None:
    async with consumer(cluster) as reader:
        reader.assign([ZERO, ONE])
        assert reader.metrics().lag == {ZERO: None, ONE: None}
        await reader.getmany(max_records=4)
        await reader.getmany(max_records=1)
        metrics = reader.metrics()
        assert (metrics.polls, metrics.records) == (2, 5)
        assert metrics.bytes == len(cluster._partition("t", 0).log.read(0, 10, 1 << 20, at_least_one=True))
        assert metrics.fetches.count >= 1
        assert metrics.fetches.last_ms is not None
        assert 0 < metrics.fetches.last_ms <= metrics.fetches.max_ms <= metrics.fetches.total_ms
        assert metrics.lag[ZERO] == reader.current_lag(ZERO) == 5
        assert metrics.commits == metrics.joins == Latency()


async def test_what_a_member_does_is_counted(cluster: Cluster) -> None:
    async with consumer(cluster, "t", group_id="g") as reader:
        await reader.getmany()
        await reader.commit()
        cluster.intercept(OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
        await reader.commit()
        cluster.intercept(HeartbeatRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
        await until(reader, lambda: reader.metrics().failed_heartbeats == 1 and reader.metrics().heartbeats.count)
        metrics = reader.metrics()
        assert (metrics.joins.count, metrics.syncs.count, metrics.rebalances.count) == (1, 1, 1)
        assert (metrics.commits.count, metrics.failed_commits, metrics.failed_joins) == (3, 1, 0)
        for latency in (metrics.joins, metrics.rebalances, metrics.commits, metrics.heartbeats):
            assert latency.mean_ms is not None
            assert 0 < latency.mean_ms <= latency.max_ms < 20_000
        cluster.intercept(JoinGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
        cluster.intercept(HeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS, times=1)
        await until(reader, lambda: reader.health().rebalancing)
        waiting = asyncio.ensure_future(reader.getmany())
        await until(reader, lambda: reader.metrics().rebalances.count == 2)
        waiting.cancel()
        assert reader.metrics().failed_joins == 1


def test_a_stopwatch_knows_the_longest_and_the_last() -> None:
    watch = Stopwatch()
    assert watch.snapshot() == Latency(0, 0.0, 0.0, None)
    assert watch.snapshot().mean_ms is None
    for seconds in (0.5, 2.0, 0.25):
        watch.add(seconds)
    assert watch.snapshot() == Latency(3, 2750.0, 2000.0, 250.0)


def test_a_rebalance_lasts_from_its_first_step_to_its_assignment() -> None:
    """A rebalance that ends otherwise (unsubscribe(), max_poll_interval_ms) is not counted."""
    counters = GroupCounters()
    counters.stands(rebalancing=True, assigned=False, now=10.0)
    counters.stands(rebalancing=True, assigned=False, now=11.0)
    counters.stands(rebalancing=False, assigned=True, now=13.0)
    assert counters.rebalances.snapshot() == Latency(1, 3000.0, 3000.0, 3000.0)
    counters.stands(rebalancing=True, assigned=False, now=20.0)
    counters.stands(rebalancing=False, assigned=False, now=21.0)
    assert counters.rebalances.count == 1
    counters.stands(rebalancing=True, assigned=False, now=30.0)
    counters.stands(rebalancing=True, assigned=True, now=31.0)
    assert counters.rebalancing_since == 31.0, "a cooperative member joins again at once"
    assert counters.rebalances.count == 2


def test_a_rebalance_is_an_answer_to_a_heartbeat_and_no_failure() -> None:
    counters, beat = GroupCounters(), SendHeartbeat(1, MemberToken(1, "m"))
    counters.heard(Rebalancing(beat), 5.0)
    assert (counters.last_heartbeat, counters.heartbeats.failed) == (5.0, 0)
    counters.heard(NotNow(beat), 6.0)
    counters.heard(IdentityLost(SendSync(1, MemberToken(1, "m"), "range", {}), "gone"), 7.0)
    assert (counters.last_heartbeat, counters.heartbeats.failed, counters.failed_joins) == (5.0, 1, 1)


# Lag


async def test_the_lag_is_known_after_the_first_fetch_and_needs_no_request(cluster: Cluster) -> None:
    async with consumer(cluster) as reader:
        with pytest.raises(UsageError, match="t-0 is not assigned"):
            reader.current_lag(ZERO)
        reader.assign([ZERO])
        assert reader.current_lag(ZERO) is None
        await reader.getmany(max_records=3)
        assert reader.current_lag(ZERO) == 7
        reader.seek(ZERO, 9)
        assert reader.current_lag(ZERO) == 1


# Its place in the group


async def test_group_metadata_names_the_member_of_the_generation(cluster: Cluster) -> None:
    async with consumer(cluster, "t", group_id="g", group_instance_id="i") as reader:
        assert reader.group_metadata() in (GroupMetadata("g", -1, "", "i"), GroupMetadata("g", -1, "i", "i"))
        await reader.getmany()
        found = reader.group_metadata()
        assert (found.group_id, found.generation_id, found.group_instance_id) == ("g", 1, "i")
        assert found.member_id.startswith("i-")
    async with consumer(cluster, "t") as reader:
        with pytest.raises(UsageError, match=r"group_metadata\(\) needs a group"):
            reader.group_metadata()


def test_health_and_metrics_ask_for_no_loop() -> None:
    """A liveness probe may come before the consumer runs."""
    reader = Consumer("t", group_id="g")
    assert reader.health().running is False
    assert reader.metrics().polls == 0


def test_health_tells_of_a_broker_that_is_not_reached() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        async with consumer(cluster, request_timeout_ms=1_000) as reader:
            reader.assign([ZERO])
            await reader.getmany()
            assert reader.health().last_error is None
            cluster.take_down(1)
            with pytest.raises(KafkaError):
                await reader.end_offsets([ZERO], timeout_ms=500)
            assert "broker 1" in str(reader.health().last_error)
            await asyncio.sleep(3)  # the metadata can't be refreshed either
            assert reader._runtime.cluster_client.metadata.error is not None
            cluster.bring_up(1)
            await reader.end_offsets([ZERO])
            await asyncio.sleep(2)  # the metadata are refreshed too, after the longest pause between two attempts
            assert reader.health().last_error is None

    virtually(story, topics={"t": 2}, brokers=1)


def test_health_tells_of_no_broker_that_nothing_needs_any_more() -> None:
    """It was restarted, and nothing has connected to it since."""

    async def story(cluster: Cluster) -> None:
        leaders = {cluster.leader(*tp): tp for tp in map(TopicPartition, "ttt", range(3))}
        async with consumer(cluster) as reader:
            reader.assign(leaders.values())
            await reader.end_offsets(leaders.values())
            reader.assign([leaders[1]])
            await asyncio.sleep(5)  # the last Fetch to broker 3 is answered
            cluster.take_down(3)
            cluster.bring_up(3)
            await asyncio.sleep(1)
            assert "broker 3" in str(reader.health().last_error)
            await asyncio.sleep(3_600)
            assert reader.health().last_error is None
            assert not reader.metrics().nodes[3].connected

    virtually(story, topics={"t": 3}, brokers=3)


def test_health_tells_of_a_broker_that_is_needed_for_as_long_as_it_is_not_reached() -> None:
    """The pauses between two attempts grow to two minutes."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        connect = loop.network.connect

        async def refused(factory: Callable[[], Any], host: str, port: int) -> Any:
            if port == unreachable:
                raise ConnectionRefusedError
            return await connect(factory, host, port)

        unreachable = int(cluster.bootstrap.rpartition(":")[2])
        needed = next(tp for tp in map(TopicPartition, "ttt", range(3)) if cluster.leader(*tp) == 3)
        with patch.object(loop.network, "connect", refused):
            async with consumer(cluster, reconnect_backoff_max_ms=120_000, retry_backoff_max_ms=120_000) as reader:
                reader.assign([needed])
                await asyncio.sleep(10)
                for _ in range(3_600):
                    await asyncio.sleep(1)
                    assert "broker 3" in str(reader.health().last_error)
                reader.assign([])
                await asyncio.sleep(300)
                assert reader.health().last_error is None

    virtually(story, topics={"t": 3}, brokers=3)
