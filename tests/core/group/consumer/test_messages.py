"""The heartbeat of a KIP-848 member on the wire: what each kind of it says, and what each answer and code means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aiokc.core.group.consumer.events import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    Contents,
    InstanceUnreleased,
    Interests,
    JoinDeclined,
    LeaveByHeartbeat,
    MemberAlive,
    MemberHeartbeat,
)
from aiokc.core.group.consumer.keepalive import ConsumerKeepalive
from aiokc.core.group.consumer.messages import ConsumerGroup
from aiokc.core.group.events import CoordinatorLost, Event, Fatal, IdentityLost, MemberToken, NotNow
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BrokerError,
    ConnectionFailed,
    KafkaError,
    MalformedResponse,
    MemberFenced,
    UnsupportedVersion,
)
from aiokc.wire.messages.group import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

from .consumer_member import ID, OTHER_ID, ids

GROUP = ConsumerGroup(group_id="g", max_poll_interval_ms=300_000, server_assignor="range", rack_id="east")
NAMES = Interests(frozenset({"u", "t"}))
NEW = MemberToken(-1, "m")
MEMBER = MemberToken(3, "m")
STATIC = MemberToken(3, "m", "i")
NODE = 7


def beat(member: MemberToken = MEMBER, *, contents: Contents | None = None) -> MemberHeartbeat:
    return MemberHeartbeat(1, member, contents=contents or Contents())


# Requests

EVERYTHING = Contents(NAMES, ids(1, 0) | ids(2, topic_id=OTHER_ID), is_full=True)


def said(sent: MemberHeartbeat, group: ConsumerGroup = GROUP) -> dict[str, Any]:
    """What the request says beyond the member and its group."""
    request = group.heartbeat_request(sent, 1)
    assert (request.group_id, request.member_id) == ("g", "m")
    owned = request.topic_partitions
    return {
        "rack": request.rack_id,
        "timeout": request.rebalance_timeout_ms,
        "names": request.subscribed_topic_names,
        "regex": request.subscribed_topic_regex,
        "assignor": request.server_assignor,
        "owned": None if owned is None else {one.topic_id: one.partitions for one in owned},
    }


NOTHING = {"rack": None, "timeout": -1, "names": None, "regex": None, "assignor": None, "owned": None}


def test_a_join_says_everything_and_owns_nothing() -> None:
    """Whatever the member held when it was fenced: the coordinator refuses a join that lists partitions."""
    sent = beat(NEW, contents=EVERYTHING)
    assert GROUP.heartbeat_request(sent, 1).member_epoch == JOIN
    assert said(sent) == {
        "rack": "east",
        "timeout": 310_000,
        "names": ["t", "u"],
        "regex": "",
        "assignor": "range",
        "owned": {},
    }


def test_a_full_heartbeat_says_everything_but_the_rack() -> None:
    sent = beat(contents=EVERYTHING)
    assert GROUP.heartbeat_request(sent, 1).member_epoch == 3
    assert said(sent) == {
        "rack": None,
        "timeout": 310_000,
        "names": ["t", "u"],
        "regex": "",
        "assignor": "range",
        "owned": {ID: [0, 1], OTHER_ID: [2]},
    }


def test_a_keepalive_says_nothing() -> None:
    assert said(beat()) == NOTHING


def test_an_acknowledgement_says_what_is_owned() -> None:
    assert said(beat(contents=Contents(owned=ids(0)))) == {**NOTHING, "owned": {ID: [0]}}
    assert said(beat(contents=Contents(owned=frozenset()))) == {**NOTHING, "owned": {}}, "null would be 'as before'"


@pytest.mark.parametrize(
    ("interests", "names", "regex"),
    [(NAMES, ["t", "u"], ""), (Interests(regex="t.*"), [], "t.*"), (Interests(), [], "")],
)
def test_a_change_says_names_and_pattern_always(interests: Interests, names: list[str], regex: str) -> None:
    """What it left out would stay in force: what a member, or its predecessor, has subscribed to before."""
    assert said(beat(contents=Contents(interests))) == {**NOTHING, "names": names, "regex": regex}


@pytest.mark.parametrize("contents", [Contents(), Contents(owned=ids(0)), EVERYTHING])
def test_a_static_member_always_says_its_instance(contents: Contents) -> None:
    assert GROUP.heartbeat_request(beat(STATIC, contents=contents), 1).instance_id == "i"
    assert GROUP.heartbeat_request(beat(MEMBER, contents=contents), 1).instance_id is None


@pytest.mark.parametrize("epoch", [LEAVE, LEAVE_STATIC])
def test_a_farewell_says_who_leaves_and_how(epoch: int) -> None:
    """KAFKA-16152: without the instance the coordinator refuses it."""
    request = GROUP.leave_request(LeaveByHeartbeat(1, replace(STATIC, generation_id=epoch), "why"))
    assert (request.group_id, request.member_id, request.member_epoch) == ("g", "m", epoch)
    assert (request.instance_id, request.topic_partitions) == ("i", None)


def test_a_very_long_poll_interval_fits_into_the_request() -> None:
    group = replace(GROUP, max_poll_interval_ms=0x7FFFFFFF)
    assert said(beat(NEW, contents=EVERYTHING), group)["timeout"] == 0x7FFFFFFF


# Answers


def answer(**changes: Any) -> ConsumerGroupHeartbeatResponse:
    options: dict[str, Any] = {"error_code": 0, "member_id": "m", "member_epoch": 4, "heartbeat_interval_ms": 5_000}
    return ConsumerGroupHeartbeatResponse(**options | changes)


def test_an_answer_has_an_epoch_an_interval_and_perhaps_an_assignment() -> None:
    sent = beat()
    assert GROUP.answered(sent, answer(), NODE) == MemberAlive(sent=sent, epoch=4, interval=5.0, assignment=None)
    topics = [ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=ID, partitions=[1, 0])]
    assigned = GROUP.answered(sent, answer(assignment=Assignment(topic_partitions=topics)), NODE)
    assert assigned == MemberAlive(sent=sent, epoch=4, interval=5.0, assignment=ids(0, 1))
    empty = GROUP.answered(sent, answer(assignment=Assignment(topic_partitions=[])), NODE)
    assert empty == MemberAlive(sent=sent, epoch=4, interval=5.0, assignment=frozenset()), "which is not None"


def test_partitions_that_no_topic_has_are_told_and_left_out() -> None:
    topics = [ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=ID, partitions=[1, -1, 0, 1])]
    alive = GROUP.answered(beat(), answer(assignment=Assignment(topic_partitions=topics)), NODE)
    assert isinstance(alive, MemberAlive)
    assert alive.assignment == ids(0, 1)
    assert alive.nonsense == f"partition -1 of topic {ID}, partitions twice"


# Error codes

E = ErrorCode
#: What each code means to a join, and to a later heartbeat of a dynamic and of a static member.
MEANINGS: dict[ErrorCode, tuple[type[Event], type[Event], type[Event]]] = {
    E.FENCED_MEMBER_EPOCH: (IdentityLost, IdentityLost, IdentityLost),
    E.UNKNOWN_MEMBER_ID: (IdentityLost, IdentityLost, IdentityLost),
    E.UNRELEASED_INSTANCE_ID: (InstanceUnreleased, Fatal, Fatal),
    E.FENCED_INSTANCE_ID: (Fatal, Fatal, Fatal),
    E.UNSUPPORTED_ASSIGNOR: (Fatal, Fatal, Fatal),
    E.GROUP_MAX_SIZE_REACHED: (Fatal, Fatal, Fatal),
    E.UNSUPPORTED_VERSION: (JoinDeclined, IdentityLost, IdentityLost),
    E.INVALID_REGULAR_EXPRESSION: (Fatal, Fatal, Fatal),
    E.INVALID_REQUEST: (Fatal, Fatal, Fatal),
    E.GROUP_ID_NOT_FOUND: (JoinDeclined, IdentityLost, IdentityLost),
    E.NOT_COORDINATOR: (CoordinatorLost, CoordinatorLost, CoordinatorLost),
    E.COORDINATOR_NOT_AVAILABLE: (CoordinatorLost, CoordinatorLost, CoordinatorLost),
    E.COORDINATOR_LOAD_IN_PROGRESS: (NotNow, NotNow, NotNow),
    E.GROUP_AUTHORIZATION_FAILED: (Fatal, Fatal, Fatal),
    E.TOPIC_AUTHORIZATION_FAILED: (NotNow, NotNow, NotNow),
    E.UNKNOWN_SERVER_ERROR: (NotNow, NotNow, NotNow),
}


@pytest.mark.parametrize("code", MEANINGS)
def test_what_a_code_means(code: ErrorCode) -> None:
    refused = answer(error_code=code, error_message="since I say so", member_epoch=0)
    for member, meaning in zip((NEW, MEMBER, STATIC), MEANINGS[code], strict=True):
        event = GROUP.answered(beat(member, contents=EVERYTHING), refused, NODE)
        assert type(event) is meaning
        if isinstance(event, IdentityLost):
            assert event.keep_member_id, "another id would leave its partitions to the old one for a session"
            continue
        assert isinstance(event, CoordinatorLost | NotNow | Fatal | JoinDeclined | InstanceUnreleased)
        assert "since I say so" in str(event.error)
        assert "group 'g'" in str(event.error)
        if isinstance(event, CoordinatorLost):
            assert event.node_id == NODE


@pytest.mark.parametrize("contents", [Contents(), Contents(NAMES)], ids=["nothing", "topics"])
def test_a_heartbeat_that_lists_no_partitions_is_fenced_for_nothing(contents: Contents) -> None:
    """The member's epoch may be the one before the newest, which only what it owns can prove: it asks again."""
    sent = beat(contents=contents)
    event = GROUP.answered(sent, answer(error_code=E.FENCED_MEMBER_EPOCH, member_epoch=0), NODE)
    assert isinstance(event, NotNow)
    assert (event.sent, event.error) == (sent, None), "there is nothing to report"


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (E.UNRELEASED_INSTANCE_ID, MemberFenced, "give each one its own, or wait until the session"),
        (E.FENCED_MEMBER_EPOCH, BrokerError, "takes this one when that session has ended"),
        (E.UNKNOWN_MEMBER_ID, BrokerError, "group 'g'"),
        (E.FENCED_INSTANCE_ID, MemberFenced, "another consumer joined with the same group_instance_id"),
        (E.UNSUPPORTED_ASSIGNOR, BrokerError, "group_remote_assignor='range' is not in the brokers'"),
        (E.GROUP_MAX_SIZE_REACHED, BrokerError, r"as many members as the brokers' group\.consumer\.max\.size"),
        (E.GROUP_AUTHORIZATION_FAILED, AuthorizationFailed, "needs the READ permission on the group"),
        (E.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed, "needs the DESCRIBE permission on all topics"),
        (E.INVALID_REGULAR_EXPRESSION, BrokerError, "the broker refuses the pattern"),
        (E.GROUP_ID_NOT_FOUND, BrokerError, r"a classic group that group\.consumer\.migration\.policy"),
        (E.UNSUPPORTED_VERSION, UnsupportedVersion, "set group_protocol='classic', or finalize group.version=1"),
        (E.UNKNOWN_SERVER_ERROR, BrokerError, "that broker's log says why"),
    ],
)
def test_an_error_says_what_to_do(code: ErrorCode, kind: type[KafkaError], advice: str) -> None:
    event = GROUP.refusal(beat(NEW), code, NODE)
    assert isinstance(event, NotNow | Fatal | IdentityLost | JoinDeclined | InstanceUnreleased)
    with pytest.raises(kind, match=advice):
        raise event.error or AssertionError


def test_a_member_that_becomes_a_classic_one_by_itself_is_not_advised_to() -> None:
    event = replace(GROUP, or_classic=True).refusal(beat(NEW), E.UNSUPPORTED_VERSION, NODE)
    assert isinstance(event, JoinDeclined)
    assert "group_protocol='classic'" not in str(event.error)


def test_no_heartbeat_goes_to_a_broker_that_knows_only_the_preview() -> None:
    """The watchdog thread hears of that as of any failure: it leaves the conclusion to the loop."""
    question = ConsumerKeepalive(GROUP).heartbeat(beat(contents=EVERYTHING))
    with pytest.raises(UnsupportedVersion, match="ConsumerGroupHeartbeat in version 0"):
        question.build(0)


#: What each failure means to a join, and to a later heartbeat.
FAILURES: list[tuple[KafkaError, type[Event], type[Event]]] = [
    (ConnectionFailed("broker 1: gone"), NotNow, NotNow),
    (MalformedResponse("what"), NotNow, NotNow),
    (AuthenticationFailed("wrong password"), NotNow, NotNow),
    (UnsupportedVersion("no API 68"), JoinDeclined, IdentityLost),
    (AuthorizationFailed(E.GROUP_AUTHORIZATION_FAILED, "FindCoordinator"), Fatal, Fatal),
]


@pytest.mark.parametrize(("error", "to_a_join", "to_a_member"), FAILURES)
def test_what_it_means_that_no_answer_came(error: KafkaError, to_a_join: type[Event], to_a_member: type[Event]) -> None:
    assert type(GROUP.failure(beat(NEW), error)) is to_a_join
    for member in (MEMBER, STATIC):
        assert type(event := GROUP.failure(beat(member), error)) is to_a_member
        assert not isinstance(event, IdentityLost) or event.keep_member_id
