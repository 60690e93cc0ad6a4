"""The sticky algorithm for members that all subscribe to the same topics: any member can have any partition.

So balance only needs counting: each member gets ``least`` partitions, and ``extra`` of the members get one more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ...types import TopicPartition
from .sticky_claims import Claims
from .values import GroupAssignment


def assign_constrained(partitions: Sequence[TopicPartition], members: Sequence[str], claims: Claims) -> GroupAssignment:
    """Let each of ``members`` keep the partitions that it owns, up to its share. Deal out the rest in order.

    The first members that own more than the least share keep one extra partition each.
    """
    least, extra = divmod(len(partitions), len(members))
    held = _held(members, claims)
    assignment: GroupAssignment = {}
    short: deque[str] = deque()  # below the least share
    level: deque[str] = deque()  # at the least share: may get one more
    for member_id in members:
        mine = held[member_id]
        if len(mine) < least:
            short.append(member_id)
            assignment[member_id] = mine
        elif len(mine) > least and extra > 0:
            extra -= 1
            assignment[member_id] = mine[: least + 1]
        else:
            level.append(member_id)
            assignment[member_id] = mine[:least]
    kept = {tp for mine in assignment.values() for tp in mine}
    for tp in partitions:
        if tp not in kept:
            _give(tp, assignment, short, level, least)
    return assignment


def _give(tp: TopicPartition, assignment: GroupAssignment, short: deque[str], level: deque[str], least: int) -> None:
    """Give ``tp`` to the next member: in turn while any member is short, then once to each member that is level."""
    if not short:
        assignment[level.popleft()].append(tp)
        return
    member_id = short.popleft()
    assignment[member_id].append(tp)
    (short if len(assignment[member_id]) < least else level).append(member_id)


def _held(members: Sequence[str], claims: Claims) -> GroupAssignment:
    """Return what each member owns, in the order in which it keeps it: lowest partition numbers first, as in Java.

    So where a member gives up partitions, it gives up the last ones of several topics, rather than all of one topic.
    """
    held: GroupAssignment = {member_id: [] for member_id in members}
    for tp in sorted(claims.holders, key=lambda tp: (tp.partition, tp.topic)):
        held[claims.holders[tp]].append(tp)
    return held
