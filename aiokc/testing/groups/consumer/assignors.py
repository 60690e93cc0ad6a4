"""The coordinator's assignors: uniform and range. Each gives every member its partitions, as one plan for the group.

Where the coordinator says that all members are ``alike``, an assignor asks one of them alone what it subscribes to, as
Kafka's do: range the first one of its order, uniform any one (here the first by its id).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from .members import TopicIdPartition

_MOST_PASSES: Final = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member as an assignor sees it. ``target`` is what the assignment before gave it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    target: frozenset[TopicIdPartition]


#: The partitions of each member, by member id.
Targets: TypeAlias = Mapping[str, frozenset[TopicIdPartition]]
#: Gets the members (one at least), the number of partitions of each topic that one of them subscribes to, and whether
#: the coordinator takes all of them to subscribe to the same topics.
Assignor: TypeAlias = Callable[[list[Candidate], Mapping[UUID, int], bool], Targets]


def assign_range(members: list[Candidate], sizes: Mapping[UUID, int], alike: bool) -> Targets:
    """Give each topic's partitions to its subscribers in blocks, in the order of their ids, static members first.

    It does not look at the assignment before: a newcomer with a low id shifts the blocks of all others.
    """
    ordered = sorted(members, key=lambda one: (one.instance_id is None, one.instance_id or one.member_id))
    found: dict[str, set[TopicIdPartition]] = {one.member_id: set() for one in members}
    for topic, size in sizes.items():
        subscribers = [one.member_id for one in ordered if topic in (ordered[0] if alike else one).topics]
        if not subscribers:
            continue
        least, extra = divmod(size, len(subscribers))
        start = 0
        for number, member_id in enumerate(subscribers):
            end = start + least + (number < extra)
            found[member_id].update((topic, partition) for partition in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in found.items()}


def assign_uniform(members: list[Candidate], sizes: Mapping[UUID, int], alike: bool) -> Targets:
    """Balance the number of partitions of each member, and move as few as possible.

    Where all members are alike, the numbers differ by one at most. Otherwise it moves partitions from the member with
    the most to one with fewer, in at most 16 passes over all partitions.
    """
    ordered = sorted(members, key=lambda one: one.member_id)
    partitions = [(topic, partition) for topic, size in sorted(sizes.items()) for partition in range(size)]
    if alike:
        return _equal_shares(ordered, [tp for tp in partitions if tp[0] in ordered[0].topics])
    return _balanced(ordered, partitions)


def _equal_shares(members: list[Candidate], partitions: list[TopicIdPartition]) -> Targets:
    least, extra = divmod(len(partitions), len(members))
    existing, free = set(partitions), set(partitions)
    found: dict[str, list[TopicIdPartition]] = {}
    for one in sorted(members, key=lambda one: -len(one.target & existing)):  # the larger shares keep their extra one
        kept = sorted(one.target & free)[: least + (extra > 0)]
        extra -= len(kept) > least
        found[one.member_id] = kept
        free.difference_update(kept)
    rest = sorted(free, reverse=True)
    for one in members:
        mine = found[one.member_id]
        while len(mine) < least:
            mine.append(rest.pop())
    for one in members:
        if rest and len(found[one.member_id]) == least:
            found[one.member_id].append(rest.pop())
    return {member_id: frozenset(mine) for member_id, mine in found.items()}


def _balanced(members: list[Candidate], partitions: list[TopicIdPartition]) -> Targets:
    subscribers = {
        topic: [one.member_id for one in members if topic in one.topics] for topic in {tp[0] for tp in partitions}
    }
    before = {tp: one.member_id for one in members for tp in one.target if tp[0] in one.topics}
    owners: dict[TopicIdPartition, str] = {}
    load = dict.fromkeys((one.member_id for one in members), 0)
    for tp in sorted(partitions, key=lambda tp: (tp not in before, len(subscribers[tp[0]]), tp)):
        owner = before.get(tp) or min(subscribers[tp[0]], key=lambda member_id: (load[member_id], member_id))
        owners[tp] = owner
        load[owner] += 1
    for _ in range(_MOST_PASSES):
        moved = False
        for tp, owner in owners.items():
            other = min(subscribers[tp[0]], key=lambda member_id: (load[member_id], member_id))
            if load[owner] > load[other] + 1:
                owners[tp] = other
                load[owner] -= 1
                load[other] += 1
                moved = True
        if not moved:
            break
    return {member_id: frozenset(tp for tp, owner in owners.items() if owner == member_id) for member_id in load}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
