"""Group membership with coordinators that move, break, hang and refuse."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.assignor import MemberSubscription
from aiokc.core.assignors.registry import assignors
from aiokc.core.group.classic.messages import ClassicGroup
from aiokc.core.group.events import ComputeAssignment, Computed, JoinedMember, MemberToken, SendJoin
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, BrokerError, CommitFailed, UnsupportedVersion
from aiokc.types import OffsetAndMetadata, TopicPartition
from aiokc.wire import Request
from aiokc.wire.messages.discovery import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from aiokc.wire.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from aiokc.wire.messages.offsets import OffsetCommitRequest

from ...virtually import on_a_virtual_clock
from ..group_member import GroupMember
from .scripted_group import Cut, Park, ScriptedGroup, Silence, scripted_group

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = ClassicGroup(group_id="g", session_timeout_ms=1_000, rebalance_timeout_ms=1_000, assignors=assignors(["range"]))
QUICK = {"heartbeat_interval_ms": 20, "session_timeout_ms": 30_000}


def generations(script: ScriptedGroup) -> set[int]:
    return {heartbeat.generation_id for heartbeat in script.of(HeartbeatRequest)}


async def test_a_first_join_happens_in_kafkas_order() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        member.poll()
        assert await member.assigned(2) == {T0, T1}
        kinds = [type(asked.request) for asked in script.asked]
        wanted = [FindCoordinatorRequest, JoinGroupRequest, JoinGroupRequest, SyncGroupRequest]
        assert [kind for kind in kinds if kind in wanted] == wanted
        assert [join.member_id for join in script.of(JoinGroupRequest)] == ["", "m-1"]
        assert member.membership.member_id == "m-1"
        assert member.membership.generation == 1


async def test_joins_heartbeats_and_the_rest_each_have_a_connection() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t", **QUICK) as member:
        member.poll()
        await script.until(lambda: len(script.of(HeartbeatRequest)) > 1)
        used = {
            kind: {asked.connection for asked in script.asked if isinstance(asked.request, kind)}
            for kind in (JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, FindCoordinatorRequest)
        }
        assert used[JoinGroupRequest] == used[SyncGroupRequest]
        assert len(used[JoinGroupRequest] | used[HeartbeatRequest] | used[FindCoordinatorRequest]) == 3
        assert member.membership.error is None


async def test_a_first_join_takes_two_connections_and_waits_for_no_metadata() -> None:
    async with scripted_group() as script:
        held_back = Park()
        script.instead(FindCoordinatorRequest, held_back)
        async with Consumer("t", bootstrap_servers=script.bootstrap, group_id="g") as consumer:
            held_back.until.set()
            await script.until(lambda: len(script.of(JoinGroupRequest)) == 2)
            asked = [(each.connection, type(each.request)) for each in script.asked]
            assert asked[:6] == [
                (0, ApiVersionsRequest),
                (0, MetadataRequest),
                (0, FindCoordinatorRequest),
                (1, ApiVersionsRequest),
                (1, JoinGroupRequest),
                (1, JoinGroupRequest),
            ]
            await consumer.stop(leave=False)


async def test_the_connection_for_offsets_and_heartbeats_is_there_when_the_group_is_complete() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        others = Park()
        script.instead(JoinGroupRequest, ErrorCode.NONE, others)  # the first JoinGroup only gets its member id
        member.poll()
        await script.until(lambda: len(script.of(ApiVersionsRequest)) == 3)
        [join] = {asked.connection for asked in script.asked if isinstance(asked.request, JoinGroupRequest)}
        assert script.asked[-1].connection not in (0, join)
        assert script.of(SyncGroupRequest) == []
        others.until.set()
        await script.until(lambda: len(script.of(HeartbeatRequest)) > 1)
        assert len(script.of(ApiVersionsRequest)) == 3


async def test_a_coordinator_that_moved_is_found_again_and_the_generation_goes_on() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t", **QUICK) as member:
        member.poll()
        await member.assigned(2)
        script.coordinator = 2
        script.instead(HeartbeatRequest, ErrorCode.NOT_COORDINATOR)
        await script.until(
            lambda: any(a.node_id == 2 and isinstance(a.request, HeartbeatRequest) for a in script.asked)
        )
        assert generations(script) == {1}
        assert len(script.of(JoinGroupRequest)) == 2
        assert member.changed.history == [frozenset(), {T0, T1}]


async def test_a_broken_connection_costs_no_membership() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t", **QUICK) as member:
        member.poll()
        await member.assigned(2)
        script.instead(HeartbeatRequest, Cut())
        sent = len(script.of(HeartbeatRequest))
        await script.until(lambda: len(script.of(HeartbeatRequest)) >= sent + 3)
        assert generations(script) == {1}
        assert len(script.of(FindCoordinatorRequest)) == 2
        assert member.changed.history == [frozenset(), {T0, T1}]


async def test_a_silent_coordinator_is_left_after_the_session_timeout_for_a_new_connection() -> None:
    options = {**QUICK, "session_timeout_ms": 500}
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t", **options) as member:
        member.poll()
        await member.assigned(2)
        script.instead(HeartbeatRequest, Silence())
        sent = len(script.of(HeartbeatRequest))
        await script.until(lambda: len(script.of(HeartbeatRequest)) >= sent + 3)
        connections = {a.connection for a in script.asked if isinstance(a.request, HeartbeatRequest)}
        assert len(connections) >= 2  # on a busy machine a heartbeat that is answered may be given up, too
        assert script.of(LeaveGroupRequest) == []
        assert generations(script) == {1}
        assert member.membership.generation == 1


async def test_a_loading_coordinator_stays_the_coordinator() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        script.instead(JoinGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        member.poll()
        await member.assigned(2)
        assert len(script.of(FindCoordinatorRequest)) == 1
        assert len(script.of(JoinGroupRequest)) == 3


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR])
async def test_whatever_else_a_sync_is_refused_for_leads_to_another_round(code: ErrorCode) -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        script.instead(SyncGroupRequest, code)
        member.poll()
        await member.assigned(2)
        assert member.membership.generation == 2


async def test_a_rebalance_during_sync_joins_again_with_the_same_name() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        script.instead(SyncGroupRequest, ErrorCode.REBALANCE_IN_PROGRESS)
        member.poll()
        await member.assigned(2)
        assert [join.member_id for join in script.of(JoinGroupRequest)] == ["", "m-1", "m-1"]


async def test_an_unknown_member_loses_its_partitions_and_joins_without_a_name() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t", **QUICK) as member:
        member.poll()
        await member.assigned(2)
        member.take(T0, 5)
        script.instead(HeartbeatRequest, ErrorCode.UNKNOWN_MEMBER_ID)
        await member.until(lambda: member.changed.history == [frozenset(), {T0, T1}, frozenset(), {T0, T1}])
        assert [join.member_id for join in script.of(JoinGroupRequest)] == ["", "m-1", "", "m-1"]
        assert script.of(OffsetCommitRequest) == []  # another member may have read on from there


async def test_a_commit_that_meets_a_rebalance_makes_the_member_join_again() -> None:
    async with (
        scripted_group() as script,
        GroupMember(script.bootstrap, "g", "t", enable_auto_commit=False) as member,
    ):
        member.poll()
        await member.assigned(2)
        script.instead(OffsetCommitRequest, ErrorCode.REBALANCE_IN_PROGRESS)
        with pytest.raises(BrokerError, match="REBALANCE_IN_PROGRESS") as caught:
            await member.membership.commit({T0: OffsetAndMetadata(1)}, timeout=10.0)
        assert not isinstance(caught.value, CommitFailed)
        await member.until(lambda: len(member.changed.history) == 4)
        assert member.membership.generation == 2


async def test_commits_in_a_rebalance_and_outside_the_group_are_never_sent() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        join, sync = Park(), Park()
        script.instead(JoinGroupRequest, join)
        script.instead(SyncGroupRequest, sync)
        member.poll()
        await script.until(lambda: len(script.of(JoinGroupRequest)) == 1)
        with pytest.raises(CommitFailed, match="has not joined"):
            await member.membership.commit({T0: OffsetAndMetadata(1)}, timeout=10.0)
        join.until.set()
        await script.until(lambda: len(script.of(SyncGroupRequest)) == 1)
        with pytest.raises(BrokerError, match="REBALANCE_IN_PROGRESS"):
            await member.membership.commit({T0: OffsetAndMetadata(1)}, timeout=10.0)
        sync.until.set()
        await member.assigned(2)
        assert script.of(OffsetCommitRequest) == []


async def test_a_commit_is_not_repeated_for_a_generation_that_is_over() -> None:
    """The group does not wait for ever for a commit that is still being retried when its member is to join again."""
    async with (
        scripted_group() as script,
        GroupMember(script.bootstrap, "g", "t", enable_auto_commit=False) as member,
    ):
        member.poll()
        await member.assigned(2)
        parked = Park(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        script.instead(OffsetCommitRequest, parked)
        commit = asyncio.get_running_loop().create_task(
            member.membership.commit({T0: OffsetAndMetadata(1)}, timeout=10.0)
        )
        await script.until(lambda: len(script.of(OffsetCommitRequest)) == 1)
        member.membership._last_commits.within(0.01)  # not request_timeout_ms, within which it would be retried
        member.subscribe("t", "u")
        await member.until(lambda: len(member.changed.history) == 4)
        assert member.membership.generation == 2
        parked.until.set()
        with pytest.raises(CommitFailed, match="assigned its partitions anew"):
            await commit
        assert len(script.of(OffsetCommitRequest)) == 1


async def test_a_failed_auto_commit_is_tried_again_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        scripted_group() as script,
        GroupMember(script.bootstrap, "g", "t", auto_commit_interval_ms=20) as member,
    ):
        script.instead(OffsetCommitRequest, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 5)
        member.poll()
        await member.assigned(2)
        member.take(T0, 5)
        member.poll()
        await script.until(lambda: script.committed == {T0: 5})
        assert [record.levelname for record in caplog.records if "auto-commit failed" in record.message] == ["WARNING"]
        sent = len(script.of(OffsetCommitRequest))
        assert sent == 6
        member.take(T0, 7)
        member.poll()
        await script.until(lambda: script.committed == {T0: 7})
        assert len(script.of(OffsetCommitRequest)) == sent + 1  # offsets that are stored are not committed again


async def test_a_leader_that_shall_keep_the_assignment_sends_none() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        metadata = GROUP.join_request(SendJoin(1, MemberToken(), frozenset("t"), (), ""), 9).protocols[0].metadata
        itself = JoinGroupResponseMember(member_id="m-1", metadata=metadata)
        script.instead(
            JoinGroupRequest,
            JoinGroupResponse(
                error_code=0,
                generation_id=9,
                protocol_name="range",
                leader="m-1",
                skip_assignment=True,
                member_id="m-1",
                members=[itself],
            ),
        )
        members = (JoinedMember("m-1", MemberSubscription(frozenset("t"))),)
        kept = GROUP.assign(ComputeAssignment(1, "range", members), {"t": 1})
        assert isinstance(kept, Computed)
        script.instead(SyncGroupRequest, SyncGroupResponse(error_code=0, assignment=kept.assignments["m-1"]))
        member.poll()
        assert await member.assigned(1) == {T0}
        assert script.of(SyncGroupRequest)[0].assignments == []


# Fatal errors


async def test_a_group_that_may_not_be_used_is_named() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        script.instead(JoinGroupRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        member.poll()
        error = await member.failed()
        assert isinstance(error, AuthorizationFailed)
        assert "group 'g'" in str(error)
        sent = len(script.asked)
        await member.leave()
        assert len(script.asked) == sent


async def test_an_error_of_the_lookup_that_cannot_be_cured_is_the_users() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        script.instead(FindCoordinatorRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        member.poll()
        assert isinstance(await member.failed(), AuthorizationFailed)


async def test_garbage_in_an_assignment_is_named() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        script.instead(SyncGroupRequest, SyncGroupResponse(error_code=0, assignment=b"\0\0\0\0\0\7"))
        member.poll()
        assert "unreadable assignment" in str(await member.failed())


async def test_a_protocol_that_no_member_proposed_is_refused() -> None:
    strange = JoinGroupResponse(
        error_code=0, generation_id=1, protocol_name="strange", leader="x", member_id="m", members=[]
    )
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        script.instead(JoinGroupRequest, strange)
        member.poll()
        error = await member.failed()
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert "'strange'" in str(error)


async def test_a_static_member_needs_a_broker_that_knows_them() -> None:
    async with (
        scripted_group({JoinGroupRequest: (0, 4)}) as script,
        GroupMember(script.bootstrap, "g", "t", group_instance_id="i") as member,
    ):
        member.poll()
        assert isinstance(await member.failed(), UnsupportedVersion)


async def test_an_old_broker_is_spoken_to_in_its_versions() -> None:
    old: dict[type[Request[Any]], tuple[int, int]] = {
        FindCoordinatorRequest: (0, 2),
        JoinGroupRequest: (0, 3),
        SyncGroupRequest: (0, 2),
        HeartbeatRequest: (0, 2),
        LeaveGroupRequest: (0, 2),
        OffsetCommitRequest: (2, 6),
    }
    async with scripted_group(old) as script, GroupMember(script.bootstrap, "g", "t", **QUICK) as member:
        member.poll()
        await member.assigned(2)
        await script.until(lambda: bool(script.of(HeartbeatRequest)))
        await member.membership.commit({T0: OffsetAndMetadata(1)}, timeout=10.0)
        await member.leave()
        assert [leave.member_id for leave in script.of(LeaveGroupRequest)] == ["m-1"]


# Leaving


async def test_leaving_does_not_wait_for_the_batch_in_hand_but_commits_what_is_done() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t", **QUICK) as member:
        member.poll()
        await member.assigned(2)
        member.take(T0, 5)
        member.poll()
        member.take(T0, 9)
        script.instead(HeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS)
        async with asyncio.timeout(10):
            while not member.subscription[T0].blocked:
                await member.membership.moved.wait()
        await member.leave(10.0)
        assert script.committed == {T0: 5}
        assert [leave.members[0].member_id for leave in script.of(LeaveGroupRequest)] == ["m-1"]
        assert member.assignment == frozenset()


async def test_what_the_user_assigned_after_unsubscribing_is_not_revoked() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        member.poll()
        await member.assigned(2)
        member.unsubscribe()
        member.assign(T0)
        await script.until(lambda: bool(script.of(LeaveGroupRequest)))
        assert member.assignment == {T0}
        await member.membership.commit({T0: OffsetAndMetadata(1)}, timeout=10.0)
        assert [commit.member_id for commit in script.of(OffsetCommitRequest)] == [""]


async def test_an_abandoned_join_does_not_hold_up_the_next_one() -> None:
    async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
        script.instead(JoinGroupRequest, ErrorCode.NONE, Silence())
        member.poll()
        await script.until(lambda: len(script.of(JoinGroupRequest)) == 2)
        parked = script.asked[-1].connection
        member.unsubscribe()
        await script.until(lambda: parked in script.closed and bool(script.of(LeaveGroupRequest)))
        assert [leave.members[0].member_id for leave in script.of(LeaveGroupRequest)] == ["m-1"]
        member.subscribe("t")
        await member.assigned(2)


def test_leaving_ends_in_time_without_any_answer() -> None:
    async def story() -> None:
        async with scripted_group() as script, GroupMember(script.bootstrap, "g", "t") as member:
            member.poll()
            await member.assigned(2)
            member.take(T0, 5)
            member.poll()
            script.instead(OffsetCommitRequest, Silence())
            script.instead(LeaveGroupRequest, Silence())
            loop = asyncio.get_running_loop()
            start = loop.time()
            await member.leave(0.4)
            assert 0.35 < loop.time() - start < 0.45
            assert len(script.of(LeaveGroupRequest)) == 1  # the commit did not take all of the time

    on_a_virtual_clock(story)


def test_leaving_ends_in_time_without_any_broker() -> None:
    async def story() -> None:
        async with scripted_group() as script:
            bootstrap = script.bootstrap
        async with GroupMember(bootstrap, "g", "t") as member:
            member.poll()
            loop = asyncio.get_running_loop()
            start = loop.time()
            await member.leave(5.0)
            assert loop.time() - start < 2.0  # it was never a member: there is no LeaveGroup to send
            assert member.membership.error is None

    on_a_virtual_clock(story)
