"""A coordinator that refuses a member: the user hears of it once, and what he asks for next is another attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, BrokerError, MemberFenced
from aiokc.testing import Cluster
from aiokc.testing.virtual_loop import VirtualLoop
from aiokc.wire import Request
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

from .virtually import Asked, virtually

pytestmark = pytest.mark.timeout(30)


def reader(cluster: Cluster, **options: Any) -> Consumer[Any, Any]:
    return Consumer(
        "t", bootstrap_servers=cluster.bootstrap, **{"group_id": "g", "auto_offset_reset": "earliest", **options}
    )


@pytest.mark.parametrize("api", [FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest, HeartbeatRequest])
def test_an_error_of_the_group_is_raised_once_and_the_next_call_goes_on(api: type[Request[Any]]) -> None:
    """Java's poll() raises what the lookup or the heartbeats met, and forgets it: permissions come late."""

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


def test_a_place_that_becomes_free_is_taken_by_the_next_call() -> None:
    """KIP-389."""

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
def test_a_user_who_does_not_give_up_asks_in_growing_intervals(api: type[Request[Any]]) -> None:
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
