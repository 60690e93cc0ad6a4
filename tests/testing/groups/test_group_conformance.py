"""Every request in every state of a group, to the Cluster and to a real Kafka: both give the answers below."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import product
from typing import Any, Final, TypeAlias

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.wire import Request
from aiokc.wire.messages.group import MemberIdentity
from aiokc.wire.messages.group_admin import (
    DeleteGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

from .group_scene import PARKED, PARKED_SECONDS, Actor, Scene, answered
from .group_transactions import commit_in_transaction

pytestmark = pytest.mark.every_kafka

Action: TypeAlias = Callable[[Scene, Actor, Actor], Awaitable[object]]

NONE: Final = ErrorCode.NONE
UNKNOWN: Final = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL: Final = ErrorCode.ILLEGAL_GENERATION
INCONSISTENT: Final = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
REBALANCING: Final = ErrorCode.REBALANCE_IN_PROGRESS
NO_GROUP_ID: Final = ErrorCode.INVALID_GROUP_ID
NOT_FOUND: Final = ErrorCode.GROUP_ID_NOT_FOUND
NO_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TOO_LARGE: Final = ErrorCode.OFFSET_METADATA_TOO_LARGE
TIMEOUT: Final = ErrorCode.INVALID_SESSION_TIMEOUT
ID_REQUIRED: Final = ErrorCode.MEMBER_ID_REQUIRED
NON_EMPTY: Final = ErrorCode.NON_EMPTY_GROUP
SUBSCRIBED: Final = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

STATES: Final = ("missing", "empty", "preparing", "completing", "stable")


async def _sent(actor: Actor, request: Request[Any], version: int) -> object:
    """Send a request that may be parked; the test knows whether it will be, and so how long to wait for the answer."""
    return actor.later(request, version)


async def _left(actor: Actor, member_id: str | None = None, version: int = 5, group_id: str | None = None) -> object:
    """Return the code of the whole answer, or the only member's."""
    leaving = MemberIdentity(member_id=actor.member_id if member_id is None else member_id)
    answer = await actor.leave(leaving, version=version, group_id=actor.scene.group if group_id is None else group_id)
    if version >= 3 and not answer.error_code:
        assert len(answer.members) == 1
        return answer.members[0].error_code
    assert answer.members == []
    return answer.error_code


async def _left_by_instance(actor: Actor) -> object:
    answer = await actor.leave(MemberIdentity(member_id="", group_instance_id="who"))
    return answer.members[0].error_code


async def _deleted(scene: Scene) -> object:
    answer = await scene.admin.ask(DeleteGroupsRequest(groups_names=[scene.group]))
    return answer.results[0].error_code


async def _offset_deleted(scene: Scene) -> object:
    """Return the code of the whole answer, or of the only partition."""
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=scene.topic, partitions=partitions)]
    answer = await scene.admin.ask(OffsetDeleteRequest(group_id=scene.group, topics=topics))
    return answer.error_code or answer.topics[0].partitions[0].error_code


async def _listed(scene: Scene, states: list[str], types: list[str]) -> object:
    answer = await scene.admin.ask(ListGroupsRequest(states_filter=states, types_filter=types))
    return next((one.group_state for one in answer.groups if one.group_id == scene.group), None)


async def _described(scene: Scene, version: int) -> object:
    found = await scene.described(version)
    assert (found.error_code, found.error_message) in (
        (NONE, None),
        (NOT_FOUND, f"Group {scene.group} not found."),
    )
    return found.error_code, found.group_state, found.protocol_type, found.protocol_data, len(found.members)


# Each action of a leader a and a follower b (in the scene s), with its answers in the order of STATES.
CELLS: Final[dict[str, tuple[Action, tuple[object, ...]]]] = {
    "heartbeat": (lambda s, a, b: b.heartbeat(), (UNKNOWN, UNKNOWN, REBALANCING, NONE, NONE)),
    "heartbeat-generation": (
        lambda s, a, b: b.heartbeat(generation_id=b.generation - 1),
        (UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    ),
    "heartbeat-member": (lambda s, a, b: b.heartbeat(member_id="who"), (UNKNOWN,) * 5),
    "heartbeat-instance": (lambda s, a, b: b.heartbeat(group_instance_id="who"), (UNKNOWN,) * 5),
    "heartbeat-no-group": (lambda s, a, b: b.heartbeat(group_id=""), (NO_GROUP_ID,) * 5),
    "sync-follower": (
        lambda s, a, b: _sent(b, b.sync_request(), 5),
        (UNKNOWN, UNKNOWN, REBALANCING, PARKED, NONE),
    ),
    "sync-leader": (
        lambda s, a, b: _sent(a, a.sync_request(a, b), 5),
        (UNKNOWN, UNKNOWN, REBALANCING, NONE, NONE),
    ),
    "sync-without-protocol-v4": (
        lambda s, a, b: _sent(b, b.sync_request(protocol_type=None, protocol_name=None), 4),
        (UNKNOWN, UNKNOWN, REBALANCING, PARKED, NONE),
    ),
    "sync-without-protocol": (
        lambda s, a, b: _sent(b, b.sync_request(protocol_name=None), 5),
        (INCONSISTENT,) * 5,
    ),
    "sync-generation": (
        lambda s, a, b: _sent(b, b.sync_request(generation_id=9), 5),
        (UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    ),
    "sync-member": (lambda s, a, b: _sent(b, b.sync_request(member_id="who"), 5), (UNKNOWN,) * 5),
    "sync-other-protocol": (
        lambda s, a, b: _sent(b, b.sync_request(protocol_name="roundrobin"), 5),
        (UNKNOWN, UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT),
    ),
    "sync-other-type": (
        lambda s, a, b: _sent(b, b.sync_request(protocol_type="connect"), 5),
        (UNKNOWN, UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT),
    ),
    "sync-no-group": (lambda s, a, b: _sent(b, b.sync_request(group_id=""), 5), (NO_GROUP_ID,) * 5),
    "join-follower": (
        lambda s, a, b: _sent(b, b.join_request(), 9),
        (UNKNOWN, UNKNOWN, PARKED, NONE, NONE),
    ),
    "join-follower-changed": (
        lambda s, a, b: _sent(b, b.join_request(protocols=["range"]), 9),
        (UNKNOWN, UNKNOWN, PARKED, PARKED, PARKED),
    ),
    "join-leader": (
        lambda s, a, b: _sent(a, a.join_request(), 9),
        (UNKNOWN, UNKNOWN, PARKED, NONE, PARKED),
    ),
    "join-member": (lambda s, a, b: _sent(b, b.join_request(member_id="who"), 9), (UNKNOWN,) * 5),
    "join-new": (lambda s, a, b: _sent(s.admin, s.admin.join_request(), 9), (ID_REQUIRED,) * 5),
    "join-new-v3": (
        lambda s, a, b: _sent(s.admin, s.admin.join_request(), 3),
        (NONE, NONE, PARKED, PARKED, PARKED),
    ),
    "join-new-v0": (
        lambda s, a, b: _sent(s.admin, s.admin.join_request(), 0),
        (NONE, NONE, PARKED, PARKED, PARKED),
    ),
    "join-new-static": (
        lambda s, a, b: _sent(s.admin, s.admin.join_request(group_instance_id="other"), 9),
        (NONE, NONE, PARKED, PARKED, PARKED),
    ),
    "join-other-type": (
        lambda s, a, b: _sent(s.admin, s.admin.join_request(protocol_type="connect"), 9),
        (ID_REQUIRED, ID_REQUIRED, INCONSISTENT, INCONSISTENT, INCONSISTENT),
    ),
    "join-without-type": (
        lambda s, a, b: _sent(s.admin, s.admin.join_request(protocol_type=""), 9),
        (INCONSISTENT,) * 5,
    ),
    "join-without-protocols": (
        lambda s, a, b: _sent(s.admin, s.admin.join_request(protocols=[]), 9),
        (INCONSISTENT,) * 5,
    ),
    "join-other-protocol": (
        lambda s, a, b: _sent(s.admin, s.admin.join_request(protocols=["sticky"]), 9),
        (ID_REQUIRED, ID_REQUIRED, INCONSISTENT, INCONSISTENT, INCONSISTENT),
    ),
    "join-follower-other-protocol": (
        lambda s, a, b: _sent(b, b.join_request(protocols=["sticky"]), 9),
        (UNKNOWN, UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT),
    ),
    "join-short-session": (
        lambda s, a, b: _sent(s.admin, s.admin.join_request(session_timeout_ms=999), 9),
        (TIMEOUT,) * 5,
    ),
    "join-long-session": (
        lambda s, a, b: _sent(s.admin, s.admin.join_request(session_timeout_ms=1_800_001), 9),
        (TIMEOUT,) * 5,
    ),
    "join-no-group": (lambda s, a, b: _sent(s.admin, s.admin.join_request(group_id=""), 9), (NO_GROUP_ID,) * 5),
    "leave": (lambda s, a, b: _left(b), (UNKNOWN, UNKNOWN, NONE, NONE, NONE)),
    "leave-v2": (lambda s, a, b: _left(b, version=2), (UNKNOWN, UNKNOWN, NONE, NONE, NONE)),
    "leave-member": (lambda s, a, b: _left(b, "who"), (UNKNOWN,) * 5),
    "leave-member-v2": (lambda s, a, b: _left(b, "who", version=2), (UNKNOWN,) * 5),
    "leave-instance": (lambda s, a, b: _left_by_instance(b), (UNKNOWN,) * 5),
    "leave-no-group": (lambda s, a, b: _left(b, group_id=""), (NO_GROUP_ID,) * 5),
    "leave-no-group-v2": (lambda s, a, b: _left(b, group_id="", version=2), (NO_GROUP_ID,) * 5),
    "commit": (lambda s, a, b: b.commit(), (NOT_FOUND, UNKNOWN, NONE, REBALANCING, NONE)),
    "commit-v8": (lambda s, a, b: b.commit(8), (ILLEGAL, UNKNOWN, NONE, REBALANCING, NONE)),
    "commit-generation": (
        lambda s, a, b: b.commit(generation_id_or_member_epoch=99),
        (NOT_FOUND, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    ),
    "commit-member": (
        lambda s, a, b: b.commit(member_id="who"),
        (NOT_FOUND, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ),
    "commit-without-generation": (
        lambda s, a, b: b.commit(generation_id_or_member_epoch=-1),
        (NONE, NONE, ILLEGAL, ILLEGAL, ILLEGAL),
    ),
    "commit-of-nobody": (lambda s, a, b: s.admin.commit(), (NONE, NONE, UNKNOWN, UNKNOWN, UNKNOWN)),
    "commit-topic": (lambda s, a, b: b.commit(topic="no-such-topic"), (NO_TOPIC,) * 5),
    "commit-partition": (lambda s, a, b: b.commit(partition=7), (NO_TOPIC,) * 5),
    "commit-metadata": (
        lambda s, a, b: b.commit(metadata="x" * 4097),
        (NOT_FOUND, UNKNOWN, TOO_LARGE, REBALANCING, TOO_LARGE),
    ),
    # A clef is two chars of Java's, and four bytes.
    "commit-metadata-chars": (
        lambda s, a, b: b.commit(metadata="\N{MUSICAL SYMBOL G CLEF}" * 2048),
        (NOT_FOUND, UNKNOWN, NONE, REBALANCING, NONE),
    ),
    "commit-metadata-many-chars": (
        lambda s, a, b: b.commit(metadata="\N{MUSICAL SYMBOL G CLEF}" * 2049),
        (NOT_FOUND, UNKNOWN, TOO_LARGE, REBALANCING, TOO_LARGE),
    ),
    # Before KIP-848 the group id could be empty; it still can.
    "commit-no-group": (lambda s, a, b: s.admin.commit(group_id=""), (NONE,) * 5),
    "transaction": (lambda s, a, b: commit_in_transaction(b), (ILLEGAL, UNKNOWN, NONE, NONE, NONE)),
    "transaction-generation": (
        lambda s, a, b: commit_in_transaction(b, generation_id_or_member_epoch=99),
        (ILLEGAL, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    ),
    "transaction-member": (
        lambda s, a, b: commit_in_transaction(b, member_id="who"),
        (ILLEGAL, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ),
    # Old producers did not send their identity, so the coordinator does not ask for it.
    "transaction-of-nobody": (
        lambda s, a, b: commit_in_transaction(
            b, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None
        ),
        (NONE,) * 5,
    ),
    "transaction-no-group": (lambda s, a, b: commit_in_transaction(b, group_id=""), (NO_GROUP_ID,) * 5),
    "transaction-metadata": (
        lambda s, a, b: commit_in_transaction(b, metadata="x" * 4097),
        (ILLEGAL, UNKNOWN, TOO_LARGE, TOO_LARGE, TOO_LARGE),
    ),
    "delete": (lambda s, a, b: _deleted(s), (NOT_FOUND, NONE, NON_EMPTY, NON_EMPTY, NON_EMPTY)),
    "delete-offset": (lambda s, a, b: _offset_deleted(s), (NOT_FOUND, NONE, SUBSCRIBED, SUBSCRIBED, SUBSCRIBED)),
    "describe": (
        lambda s, a, b: _described(s, 6),
        (
            (NOT_FOUND, "Dead", "", "", 0),
            (NONE, "Empty", "consumer", "", 0),
            (NONE, "PreparingRebalance", "consumer", "", 3),
            (NONE, "CompletingRebalance", "consumer", "", 2),
            (NONE, "Stable", "consumer", "range", 2),
        ),
    ),
    "describe-v5": (
        lambda s, a, b: _described(s, 5),
        (
            (NONE, "Dead", "", "", 0),
            (NONE, "Empty", "consumer", "", 0),
            (NONE, "PreparingRebalance", "consumer", "", 3),
            (NONE, "CompletingRebalance", "consumer", "", 2),
            (NONE, "Stable", "consumer", "range", 2),
        ),
    ),
    "list": (
        lambda s, a, b: _listed(s, [], []),
        (None, "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"),
    ),
    "list-states": (lambda s, a, b: _listed(s, ["stable", "Empty"], []), (None, "Empty", None, None, "Stable")),
    "list-classic": (lambda s, a, b: _listed(s, ["Stable"], ["CLASSIC"]), (None, None, None, None, "Stable")),
    "list-consumer": (lambda s, a, b: _listed(s, ["Stable"], ["consumer"]), (None,) * 5),
}


#: Where older releases answer differently, or know no such request: the first tested release for which it holds.
SINCE: Final = {
    **{(cell, "missing"): "4.0" for cell in CELLS if cell.startswith(("commit", "transaction")) or cell == "describe"},
    **{(cell, state): "3.9" for cell in ("list-classic", "list-consumer") for state in STATES},
    **{("heartbeat-instance", state): "3.9" for state in ("preparing", "completing", "stable")},
    ("list-states", "stable"): "3.9",
}


def _cells() -> Iterator[object]:
    for cell, state in product(CELLS, STATES):
        marks = pytest.mark.every_kafka(since=SINCE.get((cell, state), "2.8"))
        yield pytest.param(cell, state, id=f"{cell}-{state}", marks=marks)


@pytest.mark.parametrize(("cell", "state"), [*_cells()])
async def test_a_request_in_a_state(scene: Scene, cell: str, state: str) -> None:
    action, answers = CELLS[cell]
    expected = answers[STATES.index(state)]
    leader, follower = await getattr(scene, state)()
    found = await action(scene, leader, follower)
    if isinstance(found, asyncio.Task):
        found = await answered(found, PARKED_SECONDS if expected is PARKED else 20.0)
    assert found == expected
