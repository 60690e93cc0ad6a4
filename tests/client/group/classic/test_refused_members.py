"""A coordinator that refuses a member: the application gets the error once, and its next call is another attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.assignor import Assignment
from aiokc.core.group.classic.embedded import write_assignment
from aiokc.error_codes import ErrorCode
from aiokc.errors import AssignmentFailed, AuthorizationFailed, BrokerError, MemberFenced
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire import Request
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from aiokc.wire.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

from ...virtually import Asked, virtually

pytestmark = pytest.mark.timeout(30)


def reader(cluster: Cluster, **options: Any) -> Consumer[Any, Any]:
    return Consumer(
        "t", bootstrap_servers=cluster.bootstrap, **{"group_id": "g", "auto_offset_reset": "earliest", **options}
    )


@pytest.mark.parametrize("api", [FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest, HeartbeatRequest])
def test_an_error_of_the_group_is_raised_once_and_the_next_call_goes_on(api: type[Request[Any]]) -> None:
    """As in Java, whose poll() raises the error of a lookup or heartbeat once: a permission may be granted later."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        refused = cluster.intercept(
            api, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1, where=lambda _: api is not HeartbeatRequest or has_read
        )
        has_read = False
        async with reader(cluster) as consumer:
            if api is HeartbeatRequest:
                assert (await consumer.getone()).value == b"0"
                has_read = True
            with pytest.raises(AuthorizationFailed, match="group 'g'"):
                await consumer.getmany(timeout_ms=60_000)
            assert refused.hits == 1
            assert isinstance(consumer.health().error, AuthorizationFailed)
            with pytest.raises(AuthorizationFailed):
                await consumer.commit({TopicPartition("t", 0): 1})
            cluster.append("t", b"1")
            values = [(await consumer.getone()).value for _ in range(2)]
            assert values == [b"0", b"1"], "what was not committed is read again"
            health = consumer.health()
            assert health.error is None
            assert len(health.assigned) == 2

    virtually(story)


def test_a_lookup_that_is_refused_to_a_heartbeat_ends_the_membership() -> None:
    """The coordinator has moved, and meanwhile this principal has lost its permission for the group."""

    async def story(cluster: Cluster) -> None:
        told: list[str] = []

        class Listener(RebalanceListener):
            def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
                told.append("lost")

        async with reader(cluster) as consumer:
            consumer.subscribe(["t"], listener=Listener())
            await consumer.getmany(timeout_ms=10_000)
            assert len(consumer.assignment()) == 2
            moved = cluster.intercept(HeartbeatRequest, ErrorCode.NOT_COORDINATOR, times=1)
            refused = cluster.intercept(FindCoordinatorRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1)
            with pytest.raises(AuthorizationFailed, match="group 'g'"):
                await consumer.getmany(timeout_ms=60_000)
            assert (moved.hits, refused.hits) == (1, 1)
            assert told == ["lost"]
            assert consumer.assignment() == frozenset()
            await consumer.getmany(timeout_ms=10_000)
            assert len(consumer.assignment()) == 2
            assert consumer.health().error is None

    virtually(story)


def test_a_place_that_becomes_free_is_taken_by_the_next_call() -> None:
    """KIP-389 (group.max.size)."""

    async def story(cluster: Cluster) -> None:
        first = reader(cluster)
        await first.start()
        await first.getmany(timeout_ms=10_000)
        async with reader(cluster) as second:
            for _ in range(3):
                with pytest.raises(BrokerError, match=r"group\.max\.size"):
                    await second.getmany(timeout_ms=10_000)
            await first.stop()
            await second.getmany(timeout_ms=10_000)
            assert len(second.assignment()) == 2

    virtually(story, group_max_size=1)


def test_a_fenced_member_stays_out() -> None:
    async def story(cluster: Cluster) -> None:
        async with reader(cluster, group_instance_id="i") as first:
            await first.getmany(timeout_ms=10_000)
            async with reader(cluster, group_instance_id="i") as second:
                for _ in range(3):
                    with pytest.raises(MemberFenced):
                        await first.getmany(timeout_ms=10_000)
                await second.getmany(timeout_ms=10_000)
                assert len(second.assignment()) == 2

    virtually(story)


@pytest.mark.parametrize("api", [FindCoordinatorRequest, JoinGroupRequest])
def test_an_application_that_does_not_give_up_asks_in_growing_intervals(api: type[Request[Any]]) -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        cluster.intercept(api, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        asked = Asked(cluster, loop)
        async with reader(cluster) as consumer:
            start = loop.time()
            while loop.time() < start + 30:
                with pytest.raises(AuthorizationFailed):
                    await consumer.getmany()
            counts = asked.requests_per_second(start)
            assert max(counts) < 20
            assert sum(counts[5:]) < 5 * len(counts)

    virtually(story)


def test_what_a_group_refused_is_no_matter_to_a_manual_assignment() -> None:
    """The coordinator refuses this consumer as a member, but takes offsets from a consumer outside the group."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        cluster.intercept(JoinGroupRequest, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, times=1)
        async with reader(cluster, enable_auto_commit=False) as consumer:
            with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
                await consumer.getmany(timeout_ms=10_000)
            consumer.unsubscribe()
            assert consumer.health().error is None
            consumer.assign([TopicPartition("t", 0)])
            assert (await consumer.getone()).value == b"0"
            await consumer.commit()
            assert cluster.committed("g") == {TopicPartition("t", 0): 1}
            consumer.unsubscribe()
            consumer.subscribe(["t"])
            await consumer.getmany(timeout_ms=1_000)
            assert len(consumer.assignment()) == 2, "another subscription is another attempt"

    virtually(story)


def test_a_failure_after_unsubscribe_is_no_matter_to_a_manual_assignment() -> None:
    class Slow(RebalanceListener):
        async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            await asyncio.sleep(10)

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        async with reader(cluster, enable_auto_commit=False) as consumer:
            consumer.subscribe(["t"], listener=Slow())
            await consumer.getmany(timeout_ms=10_000)
            consumer.unsubscribe()
            consumer.assign([TopicPartition("t", 0)])
            refused = cluster.intercept(HeartbeatRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1)
            await asyncio.sleep(20)
            assert refused.hits == 1
            assert (await consumer.getone()).value == b"0"
            await consumer.commit()
            assert cluster.committed("g") == {TopicPartition("t", 0): 1}

    virtually(story)


def test_an_assignment_of_topics_that_were_not_asked_for_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """A defect of the group leader: the member joins again and again, and its operators must hear of it."""

    async def story(cluster: Cluster) -> None:
        wrong = write_assignment(Assignment((TopicPartition("other", 0),)))

        async def mislead(exchange: Exchange) -> None:
            await exchange.answer(SyncGroupResponse(error_code=0, assignment=wrong))

        fault = cluster.intercept(SyncGroupRequest, mislead)
        async with reader(cluster) as consumer:
            await consumer.getmany(timeout_ms=45_000)
            error = consumer.health().last_error
            assert isinstance(error, AssignmentFailed)
            assert "partitions of other" in str(error)
            told = [record for record in caplog.records if "partitions of other" in record.getMessage()]
            assert len(told) == 2, "every 30 s"
            fault.cancel()
            await consumer.getmany(timeout_ms=5_000)
            assert len(consumer.assignment()) == 2
            assert consumer.health().last_error is None

    virtually(story)


def test_a_member_that_the_leader_leaves_out_has_no_partitions_until_the_next_rebalance() -> None:
    """Leaders of other clients leave members without partitions out, and the coordinator stores b"" for those."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")

        async def leave_out(exchange: Exchange) -> None:
            await exchange.answer(SyncGroupResponse(error_code=0, assignment=b""))

        cluster.intercept(SyncGroupRequest, leave_out, times=1)
        async with reader(cluster) as consumer:
            assert await consumer.wait_assigned() == frozenset()
            assert not await consumer.getmany(timeout_ms=60_000)
            error = consumer.health().last_error
            assert isinstance(error, AssignmentFailed)
            assert "no assignment, not even an empty one" in str(error)
            consumer.enforce_rebalance()
            assert (await consumer.getone()).value == b"0"
            assert consumer.health().last_error is None

    virtually(story)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_leader_that_cannot_read_a_subscription_makes_way_and_comes_back(assignor: str) -> None:
    """The defect is another member's, which may have gone a moment later; a third one may know how to read it."""

    async def story(cluster: Cluster) -> None:
        options: dict[str, Any] = {"partition_assignment_strategy": [assignor], "enable_auto_commit": False}

        async def garble(exchange: Exchange) -> None:
            response = await exchange.handle()
            assert isinstance(response, JoinGroupResponse)
            for member in response.members:
                member.metadata = b"garbage"
            await exchange.answer(response)

        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with reader(cluster, **options) as consumer:
            assert len(await consumer.wait_assigned()) == 2
            fault = cluster.intercept(JoinGroupRequest, garble)
            asked = Asked(cluster, loop)
            consumer.enforce_rebalance()
            await consumer.getmany(timeout_ms=45_000)
            error = consumer.health().last_error
            assert isinstance(error, AssignmentFailed)
            assert "unreadable subscription of member" in str(error)
            assert 10 < len(asked.of(LeaveGroupRequest)) < 100, "another one may lead; it does not hurry"
            fault.cancel()
            cluster.append("t", b"0")
            assert (await consumer.getone()).value == b"0"
            assert consumer.health().last_error is None

    virtually(story)
