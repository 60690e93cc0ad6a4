"""The group leader's assignment: run the assignor that the members have agreed on, and check its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ....assignor import Assignment, Assignor, Group, RebalanceProtocol
from ....errors import AssignmentFailed, shown
from ....types import TopicPartition
from .embedded import write_assignment


def assign_group(assignor: Assignor, group: Group, protocol: RebalanceProtocol) -> dict[str, bytes]:
    """Return the assignment of each member, as SyncGroup carries it. ``protocol``: how all members rebalance.

    Raises AssignmentFailed for whatever the assignor raises, and for an assignment that the members could not carry
    out.
    """
    try:
        answered = assignor.assign(group)
        assigned = {member_id: _as_assignment(value) for member_id, value in answered.items()}
        _check(group, assigned)
        if protocol is RebalanceProtocol.COOPERATIVE:
            _check_cooperative(group, assigned)
        nothing = Assignment()
        return {member_id: write_assignment(assigned.get(member_id, nothing)) for member_id in group.members}
    except BaseException as error:  # an assignor may be anyone's code; its GeneratorExit would end our tasks
        raise AssignmentFailed(f"assignor {assignor.name!r} failed: {shown(error)}") from error


def _as_assignment(value: Assignment | Iterable[TopicPartition]) -> Assignment:
    return value if isinstance(value, Assignment) else Assignment(tuple(TopicPartition(*tp) for tp in value))


def _check(group: Group, assigned: Mapping[str, Assignment]) -> None:
    owners: dict[TopicPartition, str] = {}
    for member_id, assignment in assigned.items():
        member = group.members.get(member_id)
        if member is None:
            raise ValueError(f"{member_id!r} is no member of the group")
        for tp in assignment.partitions:
            if tp.topic not in member.topics:
                raise ValueError(f"{tp} goes to {member_id!r}, which does not subscribe to its topic")
            if not 0 <= tp.partition < group.partition_counts.get(tp.topic, 0):
                raise ValueError(f"{tp} does not exist")
            if owners.setdefault(tp, member_id) != member_id:
                raise ValueError(f"{tp} goes to {owners[tp]!r} and to {member_id!r}")


def _check_cooperative(group: Group, assigned: Mapping[str, Assignment]) -> None:
    """Raise ValueError where a partition goes to one member while another member still reads it.

    Only claims of the newest generation count: a member that claims a partition with an older one has lost it already.
    Members older than KIP-792 do not name their generation. Where two of them claim one partition, the assignor may
    know better than this check, so neither claim counts.
    """
    newest = max((member.generation_id for member in group.members.values()), default=-1)
    current = {member_id: member for member_id, member in group.members.items() if member.generation_id == newest}
    claims = [(tp, member_id) for member_id, member in current.items() for tp in member.owned]
    claimed = Counter(tp for tp, _ in claims)
    owners = {tp: member_id for tp, member_id in claims if claimed[tp] == 1}
    for member_id, assignment in assigned.items():
        for tp in assignment.partitions:
            owner = owners.get(tp, member_id)
            if owner != member_id:
                raise ValueError(
                    f"{tp} goes to {member_id!r} while {owner!r} still reads it: a cooperative assignor leaves it out, "
                    "and gives it away in the rebalance that follows"
                )
