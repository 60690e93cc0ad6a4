"""The group coordinator with a clock that the test moves: what takes minutes, and faults that only a test can cause."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing.groups.coordinator import Groups
from aiokc.testing.groups.settings import GroupSettings
from aiokc.testing.log.topics import Partition, Topic, Topics
from aiokc.wire import Request
from aiokc.wire.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from aiokc.wire.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from aiokc.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from aiokc.wire.messages.txn import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aiokc.wire.primitives import NO_UUID

GROUP, TOPIC = "group", "topic"
JOIN_TIMEOUT = 300.0  # of a new member


class Coordinator:
    """The coordinator, and its time."""

    def __init__(self, **settings: Any) -> None:
        topics = Topics()
        topics.add(Topic(TOPIC, NO_UUID, [Partition(0, [1])]))
        self.groups = Groups(
            Random(1), GroupSettings(**{"group_initial_rebalance_delay_ms": 1000} | settings), topics=topics
        )
        self.now = 100.0

    def send(self, request: Request[Any], version: int | None = None) -> list[Any]:
        """Send a request; its answer is in the list, once it is there."""
        answers: list[Any] = []
        self.groups.handle(
            request,
            client_id="app",
            client_host="/::1",
            version=request.max_version if version is None else version,
            now=self.now,
            reply=answers.append,
        )
        return answers

    def ask(self, request: Request[Any], version: int | None = None) -> Any:
        (answer,) = self.send(request, version)
        return answer

    def wait(self, seconds: float) -> None:
        """Let time pass, in the steps that the coordinator asks for."""
        until = self.now + seconds
        while (deadline := self.groups.deadline) is not None and deadline <= until:
            self.now = deadline
            self.groups.tick(self.now)
        self.now = until

    # Members

    def join(self, member_id: str = "", version: int = 3, **options: Any) -> list[JoinGroupResponse]:
        defaults: dict[str, Any] = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
        }
        return self.send(JoinGroupRequest(group_id=GROUP, member_id=member_id, **defaults | options), version)

    def sync(self, member: JoinGroupResponse, **assignments: str) -> list[SyncGroupResponse]:
        given = [
            SyncGroupRequestAssignment(member_id=one, assignment=text.encode()) for text, one in assignments.items()
        ]
        return self.send(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=member.generation_id,
                member_id=member.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=given,
            )
        )

    def heartbeat(self, member: JoinGroupResponse) -> int:
        request = HeartbeatRequest(group_id=GROUP, generation_id=member.generation_id, member_id=member.member_id)
        return int(self.ask(request).error_code)

    def commit(self, member: JoinGroupResponse | None = None) -> int:
        one = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=member.generation_id if member else -1,
            member_id=member.member_id if member else "",
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[one])],
        )
        return int(self.ask(request, 9).topics[0].partitions[0].error_code)

    def committed(self) -> int:
        wanted = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=wanted)]
        return int(self.ask(OffsetFetchRequest(groups=groups), 9).groups[0].topics[0].partitions[0].committed_offset)

    def state(self) -> str:
        return str(self.ask(DescribeGroupsRequest(groups=[GROUP])).groups[0].group_state)

    def stable(self, count: int = 2) -> list[JoinGroupResponse]:
        """Return so many members in a stable group, the leader first; its first rebalance waits for them."""
        joins = [self.join() for _ in range(count)]
        while not all(joins):
            self.wait(1)
        members = [answer for (answer,) in joins]
        leader = members[0].leader
        members.sort(key=lambda one: one.member_id != leader)
        self.sync(members[0], **{f"assignment-{index}": one.member_id for index, one in enumerate(members)})
        return members


# The first rebalance


def test_the_first_rebalance_waits_for_others() -> None:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=3000)
    first = coordinator.join()
    coordinator.wait(2.9)
    second = coordinator.join()
    coordinator.wait(2.9)  # the second one gave everyone another three seconds
    assert (first, second) == ([], [])
    coordinator.wait(0.3)
    assert [first[0].generation_id, second[0].generation_id] == [1, 1]
    assert len(first[0].members) == 2


def test_newcomers_can_delay_the_first_rebalance_until_the_rebalance_timeout() -> None:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=3000)
    first = coordinator.join(rebalance_timeout_ms=7000)
    for _ in range(6):
        coordinator.join(rebalance_timeout_ms=7000)
        coordinator.wait(1.1)
    assert first == []
    coordinator.wait(0.5)  # seven seconds, however many come
    assert len(first[0].members) == 7


def test_a_group_is_served_as_soon_as_the_loop_has_run() -> None:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=0)
    joined = coordinator.join()
    assert (joined, coordinator.groups.deadline) == ([], coordinator.now)
    coordinator.wait(0)
    assert joined[0].error_code == 0


# Sessions


def test_a_member_lives_by_heartbeats_and_commits() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable()
    for _ in range(5):
        coordinator.wait(9.9)
        assert (coordinator.heartbeat(leader), coordinator.commit(follower)) == (0, 0)
    coordinator.wait(9.9)
    assert coordinator.heartbeat(leader) == 0
    coordinator.wait(0.2)  # ten seconds since the follower's last commit
    assert coordinator.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.heartbeat(follower) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_that_waits_for_a_rebalance_is_dropped_after_five_minutes() -> None:
    """It sends no heartbeats while it waits, so the coordinator has no other way to know that it is gone."""
    coordinator = Coordinator()
    leader, _ = coordinator.stable()
    waiting = coordinator.join(leader.member_id, rebalance_timeout_ms=900_000)
    coordinator.wait(1)
    newcomer = coordinator.join()
    given_id = coordinator.join(version=4, session_timeout_ms=1_800_000)  # it never returns: the rebalance cannot go on
    assert given_id[0].error_code == ErrorCode.MEMBER_ID_REQUIRED
    coordinator.wait(JOIN_TIMEOUT - 1)
    assert (newcomer, waiting) == ([], [])
    coordinator.wait(1)
    assert [one.error_code for one in newcomer] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert waiting == []


def test_a_heartbeat_counts_in_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.stable()
    waiting = coordinator.join(rebalance_timeout_ms=60_000)
    for _ in range(5):
        coordinator.wait(9)
        assert coordinator.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting == []
    coordinator.wait(10)
    assert [waiting[0].member_id] == coordinator.groups.members(GROUP)


def test_a_member_is_expired_by_hand() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable()
    assert coordinator.groups.expire_member(GROUP, follower.member_id, coordinator.now) == follower.member_id
    assert coordinator.groups.members(GROUP) == [leader.member_id]
    assert coordinator.heartbeat(follower) == ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(LookupError, match=f"no member {follower.member_id!r}; its members: {leader.member_id}"):
        coordinator.groups.expire_member(GROUP, follower.member_id, coordinator.now)
    assert coordinator.groups.expire_member(GROUP, "app", coordinator.now) == leader.member_id  # by its client id
    with pytest.raises(LookupError, match="has no members"):
        coordinator.groups.expire_member("other", None, coordinator.now)


# The size of a group (KIP-389)


def test_a_full_group_takes_no_member() -> None:
    coordinator = Coordinator(group_max_size=2)
    leader, follower = coordinator.stable()
    (refused,) = coordinator.join()
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert (coordinator.heartbeat(leader), coordinator.heartbeat(follower)) == (0, 0)


def test_members_that_join_first_have_the_places() -> None:
    coordinator = Coordinator(group_max_size=2)
    leader, follower = coordinator.stable()
    assert coordinator.join(leader.member_id) == []
    newcomer = coordinator.join()
    (refused,) = coordinator.join(follower.member_id)
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    (again,) = coordinator.join(leader.member_id)  # a waiting member may ask again: now the last one is there
    assert (again.error_code, len(again.members), newcomer[0].error_code) == (0, 2, 0)


# Another coordinator


def test_a_group_that_moves_keeps_its_members() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable()
    coordinator.commit(leader)
    coordinator.groups.unload(GROUP)
    assert coordinator.heartbeat(leader) == ErrorCode.NOT_COORDINATOR
    assert coordinator.commit(leader) == ErrorCode.NOT_COORDINATOR
    assert coordinator.join(follower.member_id)[0].error_code == ErrorCode.NOT_COORDINATOR
    coordinator.groups.begin_loading(GROUP)
    assert coordinator.heartbeat(leader) == 0  # it is not the member's fault
    assert coordinator.commit(leader) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.groups.load(GROUP, coordinator.now)
    assert (coordinator.heartbeat(leader), coordinator.heartbeat(follower)) == (0, 0)
    assert (coordinator.committed(), coordinator.state()) == (7, "Stable")
    (again,) = coordinator.sync(follower)
    assert again.assignment.startswith(b"assignment-")
    coordinator.wait(10.1)
    assert coordinator.groups.members(GROUP) == []  # their sessions began anew


def test_parked_requests_get_not_coordinator_when_the_group_moves() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable()
    parked_join = coordinator.join(leader.member_id)
    coordinator.groups.unload(GROUP)
    assert [one.error_code for one in parked_join] == [ErrorCode.NOT_COORDINATOR]
    coordinator.groups.load(GROUP, coordinator.now)

    joins = [coordinator.join(one.member_id) for one in (leader, follower)]
    parked_sync = coordinator.sync(joins[1][0])
    coordinator.groups.unload(GROUP)
    assert [one.error_code for one in parked_sync] == [ErrorCode.NOT_COORDINATOR]


def test_a_generation_that_was_not_stored_is_lost_with_its_coordinator() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable()
    joins = [coordinator.join(one.member_id) for one in (leader, follower)]
    assert joins[0][0].generation_id == leader.generation_id + 1
    coordinator.groups.unload(GROUP)
    coordinator.groups.load(GROUP, coordinator.now)
    assert coordinator.heartbeat(joins[0][0]) == ErrorCode.ILLEGAL_GENERATION
    assert coordinator.heartbeat(leader) == 0


def test_a_group_that_is_away_is_not_listed_deleted_or_described() -> None:
    coordinator = Coordinator()
    coordinator.stable()
    coordinator.groups.unload(GROUP)
    assert coordinator.ask(ListGroupsRequest()).groups == []
    deleted = coordinator.ask(DeleteGroupsRequest(groups_names=[GROUP]))
    assert deleted.results[0].error_code == ErrorCode.NOT_COORDINATOR
    described = coordinator.ask(DescribeGroupsRequest(groups=[GROUP])).groups[0]
    assert (described.error_code, described.group_state) == (ErrorCode.NOT_COORDINATOR, "")
    coordinator.groups.begin_loading(GROUP)
    assert coordinator.ask(ListGroupsRequest()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_broker_answers_for_its_own_groups() -> None:
    coordinator = Coordinator()
    coordinator.stable()
    codes: list[Any] = []
    for coordinated in (GROUP, "other"):
        coordinator.groups.handle(
            DescribeGroupsRequest(groups=[GROUP, "other"]),
            client_id="app",
            client_host="/::1",
            version=6,
            now=coordinator.now,
            reply=codes.append,
            coordinates=coordinated.__eq__,
        )
    assert [[one.error_code for one in answer.groups] for answer in codes] == [
        [0, ErrorCode.NOT_COORDINATOR],
        [ErrorCode.NOT_COORDINATOR, ErrorCode.GROUP_ID_NOT_FOUND],
    ]


@pytest.mark.parametrize("version", [1, 2, 8])
def test_offsets_of_a_group_that_is_away(version: int) -> None:
    coordinator = Coordinator()
    coordinator.groups.unload(GROUP)
    if version >= 8:
        answer = coordinator.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP)]), version)
        codes = [answer.groups[0].error_code, len(answer.groups[0].topics)]
    else:
        topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        answer = coordinator.ask(OffsetFetchRequest(group_id=GROUP, topics=topics), version)
        codes = (
            [answer.topics[0].partitions[0].error_code, 0] if version < 2 else [answer.error_code, len(answer.topics)]
        )
    assert codes == [ErrorCode.NOT_COORDINATOR, 0]


@pytest.mark.parametrize("version", [2, 5])
def test_leaving_a_group_that_is_away(version: int) -> None:
    coordinator = Coordinator()
    coordinator.groups.unload(GROUP)
    request = LeaveGroupRequest(group_id=GROUP, member_id="who") if version < 3 else LeaveGroupRequest(group_id=GROUP)
    assert coordinator.ask(request, version).error_code == ErrorCode.NOT_COORDINATOR


# Offsets


def test_the_offsets_of_a_deleted_topic_are_gone() -> None:
    coordinator = Coordinator()
    assert coordinator.commit() == 0
    one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata="")
    topics = [TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[one])]
    coordinator.ask(
        TxnOffsetCommitRequest(transactional_id="t", group_id=GROUP, producer_id=1, producer_epoch=0, topics=topics)
    )
    coordinator.groups.forget_topic(TOPIC)
    coordinator.groups.end_transaction(GROUP, 1, committed=True)
    assert coordinator.committed() == -1


def test_member_ids_come_from_the_random_that_was_passed_in() -> None:
    ids = [Coordinator().join(version=4)[0].member_id for _ in range(2)]
    assert ids[0] == ids[1]
    assert ids[0].startswith("app-")
