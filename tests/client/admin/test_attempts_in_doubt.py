"""Changes whose first attempt may have been carried out: its answer was lost, or leaves that open."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import Client, TopicPartition
from aiokc.admin import ToEarliest
from aiokc.error_codes import ErrorCode
from aiokc.errors import BrokerError, CommitFailed, KafkaError
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import disconnect, lose_answer, refuse_afterwards
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from aiokc.wire.messages.group import LeaveGroupRequest
from aiokc.wire.messages.group_admin import DeleteGroupsRequest, OffsetDeleteRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest

from ..virtually import virtually
from .scene import ONE, ZERO, client_of, member_of

pytestmark = pytest.mark.timeout(30)

# With these codes a coordinator answers a change that it has written to its log already: other replicas lag behind, or
# it has lost its role meanwhile.
_OPEN = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
done_in_doubt = pytest.mark.parametrize(
    "fault", [lose_answer(), *map(refuse_afterwards, _OPEN)], ids=["no answer", *(code.name for code in _OPEN)]
)


def assert_in_doubt(error: object, cause: ErrorCode) -> None:
    """A BrokerError would tell that nothing was changed."""
    assert isinstance(error, KafkaError)
    assert not isinstance(error, BrokerError)
    assert isinstance(error.__cause__, BrokerError)
    assert error.__cause__.code == cause
    assert "may have been carried out" in str(error)


async def change(client: Client, api: Any) -> dict[Any, KafkaError | None]:
    """Delete group g, or what it has committed, or reset that to the beginning of the logs."""
    if api is DeleteGroupsRequest:
        return dict(await client.delete_groups(["g"]))
    if api is OffsetDeleteRequest:
        return dict(await client.delete_group_offsets("g", [ZERO]))
    return dict(await client.apply_reset(await client.plan_reset("g", ToEarliest())))


CHANGES = [
    (DeleteGroupsRequest, ErrorCode.NON_EMPTY_GROUP, {}),
    (OffsetDeleteRequest, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, {}),
    (OffsetCommitRequest, ErrorCode.UNKNOWN_MEMBER_ID, {ZERO: 0}),
]


@done_in_doubt
@pytest.mark.parametrize(("api", "refusal", "committed"), CHANGES)
def test_a_refusal_behind_it_does_not_tell_that_nothing_was_changed(
    api: Any, refusal: ErrorCode, committed: dict[TopicPartition, int], fault: Any
) -> None:
    """The first attempt makes the change, then a member joins, and the next attempt is refused."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"v"] * 10, partition=0)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 4})
            cluster.intercept(api, fault, times=1)
            cluster.intercept(api, refusal)
            (error,) = (await change(client, api)).values()
            assert cluster.committed("g") == committed
            assert_in_doubt(error, refusal)

    virtually(story)


@pytest.mark.parametrize(("api", "refusal", "_"), CHANGES)
@pytest.mark.parametrize("fault", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, disconnect()])
def test_what_a_look_up_leaves_open_is_no_doubt(api: Any, refusal: ErrorCode, _: Any, fault: Any) -> None:
    """Nothing was sent to the coordinator yet. The same is true of a coordinator that still loads its log."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"v"] * 10, partition=0)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 4})
            cluster.intercept(FindCoordinatorRequest, fault, times=5)
            cluster.intercept(api, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
            cluster.intercept(api, refusal)
            (error,) = (await change(client, api)).values()
            assert isinstance(error, BrokerError)
            assert error.code == refusal
            assert cluster.committed("g") == {ZERO: 4}

    virtually(story)


def test_the_first_of_several_partitions_may_be_clear() -> None:
    """One code of an answer leaves open whether the change was made; another one, ahead of it, does not."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v", partition=0)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 1, ONE: 1})
            plan = await client.plan_reset("g", ToEarliest())

            async def answer(exchange: Exchange) -> Any:
                response: Any = await exchange.handle()
                first, second = response.topics[0].partitions
                first.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                second.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                return response

            cluster.intercept(OffsetCommitRequest, answer, times=1)
            cluster.intercept(OffsetCommitRequest, ErrorCode.UNKNOWN_MEMBER_ID)
            for error in (await client.apply_reset(plan)).values():
                assert_in_doubt(error, ErrorCode.UNKNOWN_MEMBER_ID)
                assert error is not None
                assert isinstance(error.__cause__, CommitFailed)

    virtually(story)


@done_in_doubt
def test_a_group_that_is_not_there_any_more_is_deleted(fault: Any) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 1})
            cluster.intercept(DeleteGroupsRequest, fault, times=1)
            assert await client.delete_groups(["g"]) == {"g": None}

    virtually(story)


@done_in_doubt
def test_a_member_that_is_not_there_any_more_is_removed(fault: Any) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client, member_of(cluster, heartbeat_interval_ms=3_000):
            (member_id,) = cluster.members("g")
            cluster.intercept(LeaveGroupRequest, fault, times=1)
            assert await client.remove_members("g", [member_id]) == {member_id: None}

    virtually(story)


@done_in_doubt
def test_a_removal_that_is_refused_behind_it_may_be_done(fault: Any) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client, member_of(cluster, heartbeat_interval_ms=3_000):
            (member_id,) = cluster.members("g")
            cluster.intercept(LeaveGroupRequest, fault, times=1)
            cluster.intercept(LeaveGroupRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            error = (await client.remove_members("g", [member_id]))[member_id]
            assert member_id not in cluster.members("g")
            assert_in_doubt(error, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            cluster.heal()

    virtually(story)
