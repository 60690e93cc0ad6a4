from __future__ import annotations

from itertools import islice

import pytest

from aiokc.assignor import Group, MemberSubscription
from aiokc.core.assignors.registry import BuiltIn, assignors
from aiokc.core.assignors.values import GroupAssignment
from aiokc.core.group.classic.messages import ClassicGroup
from aiokc.core.group.events import (
    ComputeAssignment,
    Computed,
    CoordinatorLost,
    Event,
    Fatal,
    IdentityLost,
    Joined,
    JoinedMember,
    MemberToken,
    NotNow,
    Rebalancing,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Sent,
    SentCommit,
    Synced,
)
from aiokc.error_codes import ErrorCode
from aiokc.errors import AssignmentFailed, ConnectionFailed, MalformedResponse, UnsupportedVersion
from aiokc.types import TopicPartition
from aiokc.wire.messages.group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse

GROUP = ClassicGroup(
    group_id="g", session_timeout_ms=45_000, rebalance_timeout_ms=300_000, assignors=assignors(["range", "roundrobin"])
)
ME = MemberToken(3, "m-1")
JOIN = SendJoin(1, ME, frozenset({"b", "a"}), (TopicPartition("b", 1), TopicPartition("b", 0)), "why")
SYNC = SendSync(1, ME, "range", {})
HEARTBEAT = SendHeartbeat(1, ME)
COMMIT = SentCommit(ME)

# Version 3 of the subscription, by hand: topics a and b, no user data, b-0 and b-1 owned, generation 3, no rack.
SUBSCRIPTION = bytes.fromhex(
    "0003 00000002 000161 000162 ffffffff 00000001 000162 00000002 00000000 00000001 00000003 ffff"
)


def answer(metadata: bytes, leader: str = "m-1", instance_id: str | None = None) -> JoinGroupResponse:
    member = JoinGroupResponseMember(member_id="m-1", group_instance_id=instance_id, metadata=metadata)
    return JoinGroupResponse(
        error_code=0, generation_id=4, protocol_name="range", leader=leader, member_id="m-1", members=[member]
    )


def joined(sent: SendJoin, response: JoinGroupResponse, node_id: int) -> Event:
    decoding = GROUP.joined(sent, response, node_id)
    while True:
        try:
            next(decoding)
        except StopIteration as end:
            event: Event = end.value
            return event


def test_a_join_offers_every_assignor_with_the_same_subscription() -> None:
    request = GROUP.join_request(JOIN, 9)
    assert [(protocol.name, protocol.metadata) for protocol in request.protocols] == [
        ("range", SUBSCRIPTION),
        ("roundrobin", SUBSCRIPTION),
    ]
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (45_000, 300_000)
    assert (request.member_id, request.protocol_type, request.reason) == ("m-1", "consumer", "why")


def test_a_static_member_asks_for_a_broker_that_knows_it() -> None:
    static = SendJoin(1, MemberToken(-1, "", "i"), frozenset("a"), (), "")
    assert GROUP.join_request(static, 5).group_instance_id == "i"
    with pytest.raises(UnsupportedVersion, match=r"Kafka 2\.3"):
        GROUP.join_request(static, 4)


def test_the_leader_reads_what_members_said() -> None:
    event = joined(JOIN, answer(SUBSCRIPTION, instance_id="i"), 1)
    assert isinstance(event, Joined)
    [member] = event.members
    owned = (TopicPartition("b", 0), TopicPartition("b", 1))
    assert member.subscription == MemberSubscription(frozenset("ab"), owned, 3, None, None, "i")


def test_what_thousands_of_members_said_can_be_read_one_by_one() -> None:
    response = answer(SUBSCRIPTION)
    [said] = response.members
    response.members = [*[said] * 2, JoinGroupResponseMember(member_id="m-3", metadata=b"garbage")]
    read = list(islice(GROUP.joined(JOIN, response, 1), 2))
    assert [member.member_id for member in read] == ["m-1", "m-1"], "the third one has not been looked at"


@pytest.mark.parametrize(
    "metadata",
    [
        "0000 00000001 000161 00000002ffee",  # version 0, with user data
        "0009 00000001 000161 00000002ffee 00000000 ffffffff ffff c0ffee",  # a future version
        "0001 00000001 000161 00000002ffee",  # these lack the last fields of their version, as some clients write it
        "0003 00000001 000161 00000002ffee",
        "0003 00000001 000161 00000002ffee 00000001 000161 00000001 00000004",
        "0003 00000001 000161 00000002ffee 00000001 000161 00000001 00000004 00000007",
    ],
)
def test_older_and_newer_subscriptions_are_understood(metadata: str) -> None:
    event = joined(JOIN, answer(bytes.fromhex(metadata)), 1)
    assert isinstance(event, Joined)
    subscription = event.members[0].subscription
    assert (subscription.topics, subscription.user_data) == (frozenset("a"), b"\xff\xee")
    assert subscription.owned == ((TopicPartition("a", 4),) if "00000004" in metadata else ())
    assert subscription.generation_id == (7 if "00000007" in metadata else -1)


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff\0\0\0\0", SUBSCRIPTION[:-3], b"\0\3\x7f\xff\xff\xff"])
def test_garbage_in_a_subscription_is_the_groups_fault(metadata: bytes) -> None:
    event = joined(JOIN, answer(metadata), 1)
    assert isinstance(event, NotNow)
    assert event.resigns_as == "m-1"
    assert isinstance(event.error, AssignmentFailed)
    assert "subscription of member 'm-1'" in str(event.error)


def test_an_assignment_goes_round() -> None:
    members = (
        JoinedMember("m-1", MemberSubscription(frozenset("ab"))),
        JoinedMember("m-2", MemberSubscription(frozenset("b"))),
        JoinedMember("m-3", MemberSubscription(frozenset())),
    )
    computed = GROUP.assign(ComputeAssignment(1, "range", members), {"a": 2, "b": 3})
    assert isinstance(computed, Computed)
    wanted = {"m-1": "a0 a1 b0 b1", "m-2": "b2", "m-3": ""}
    for member_id, assignment in computed.assignments.items():
        event = GROUP.synced(SYNC, SyncGroupResponse(error_code=0, assignment=assignment), 1)
        assert isinstance(event, Synced)
        assert " ".join(f"{tp.topic}{tp.partition}" for tp in event.partitions) == wanted.pop(member_id)
    assert wanted == {}
    request = GROUP.sync_request(SendSync(1, ME, "range", computed.assignments))
    assert {item.member_id: item.assignment for item in request.assignments} == computed.assignments


def test_an_assignor_that_raises_is_named() -> None:
    def broken(group: Group) -> GroupAssignment:
        raise ValueError("no idea")

    group = ClassicGroup(
        group_id="g", session_timeout_ms=1, rebalance_timeout_ms=1, assignors=(BuiltIn("mine", broken),)
    )
    event = group.assign(ComputeAssignment(1, "mine", ()), {})
    assert isinstance(event, Fatal)
    assert isinstance(event.error, AssignmentFailed)
    assert "'mine' failed: ValueError('no idea')" in str(event.error)
    assert isinstance(event.error.__cause__, ValueError)


def test_the_coordinator_may_keep_the_old_assignment() -> None:
    members = (JoinedMember("m-1", MemberSubscription(frozenset("a"))),)
    assert GROUP.assign(ComputeAssignment(1, "range", members, skip=True), {"a": 2}) == Computed(1, {}, {"a": 2})


def test_leaving_in_old_and_new_versions() -> None:
    effect = SendLeave(1, ME, "bye")
    assert GROUP.leave_request(effect, 2).member_id == "m-1"
    [member] = GROUP.leave_request(effect, 5).members
    assert (member.member_id, member.group_instance_id, member.reason) == ("m-1", None, "bye")
    [member] = GROUP.leave_request(SendLeave(1, MemberToken(7, "m-1", "i"), "bye"), 5).members
    assert (member.member_id, member.group_instance_id) == ("m-1", "i"), "a fenced one throws nobody out (KIP-345)"


@pytest.mark.parametrize("sent", [JOIN, SYNC, HEARTBEAT, COMMIT], ids=lambda sent: type(sent).__name__)
def test_what_error_codes_mean(sent: Sent) -> None:
    def means(code: ErrorCode) -> object:
        event = GROUP.refusal(sent, code, 7)
        return type(event)

    assert means(ErrorCode.REBALANCE_IN_PROGRESS) is Rebalancing
    assert GROUP.refusal(sent, ErrorCode.NOT_COORDINATOR, 7) == CoordinatorLost(sent, 7)
    assert GROUP.refusal(sent, ErrorCode.COORDINATOR_NOT_AVAILABLE, 7) == CoordinatorLost(sent, 7)
    assert means(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is NotNow
    assert means(ErrorCode.UNKNOWN_SERVER_ERROR) is NotNow
    unknown, illegal = (
        GROUP.refusal(sent, code, 7) for code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    )
    assert isinstance(unknown, IdentityLost)
    assert isinstance(illegal, IdentityLost)
    assert (unknown.keep_member_id, illegal.keep_member_id) == (False, True)
    for code in (
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ):
        event = GROUP.refusal(sent, code, 7)
        assert isinstance(event, Fatal)
        assert "group 'g'" in str(event.error)


def test_only_a_sync_may_be_refused_for_any_reason() -> None:
    assert isinstance(GROUP.refusal(SYNC, 9999, 7), NotNow)
    assert isinstance(GROUP.refusal(JOIN, 9999, 7), Fatal)
    assert isinstance(GROUP.refusal(HEARTBEAT, 9999, 7), Fatal)


def test_no_answer_is_no_end_unless_it_cannot_get_better() -> None:
    assert isinstance(GROUP.failure(JOIN, ConnectionFailed("gone")), NotNow)
    assert isinstance(GROUP.failure(JOIN, MalformedResponse("garbled")), NotNow)
    assert isinstance(GROUP.failure(JOIN, UnsupportedVersion("old")), Fatal)
