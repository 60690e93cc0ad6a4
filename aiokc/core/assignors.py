"""Who reads which partition: the assignors of Kafka's consumer groups, as plain functions on values.

The leader of a group runs the one that all members have in common. All of them agree with Java's to the partition,
because a group may be led by a member written in any language, and leaders change.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from itertools import cycle

from ..errors import ConfigError
from ..types import TopicPartition
from .assignment import (
    Assignor,
    GroupAssignment,
    Members,
    PartitionCounts,
    RebalanceProtocol,
    java_order,
    subscribed,
)
from .sticky import assign_cooperative_sticky, assign_sticky
from .sticky_claims import cooperative_user_data, sticky_user_data


def assign_range(counts: PartitionCounts, members: Members) -> GroupAssignment:
    """Give each member one contiguous range of each topic that it subscribes to (Java's RangeAssignor).

    The first members of the order get what does not divide evenly, in every topic anew.
    """
    assignment: GroupAssignment = {member_id: [] for member_id in members}
    order = _in_order(members)
    for topic in subscribed(counts, members):
        readers = [member_id for member_id in order if topic in members[member_id].topics]
        share, extra = divmod(counts[topic], len(readers))
        start = 0
        for place, member_id in enumerate(readers):
            end = start + share + (place < extra)
            assignment[member_id] += [TopicPartition(topic, partition) for partition in range(start, end)]
            start = end
    return assignment


def assign_roundrobin(counts: PartitionCounts, members: Members) -> GroupAssignment:
    """Deal all partitions of all topics in turn (Java's RoundRobinAssignor).

    The circle goes on from topic to topic, and a member that does not subscribe to the topic loses its turn.
    """
    assignment: GroupAssignment = {member_id: [] for member_id in members}
    turns = cycle(_in_order(members))
    for topic in subscribed(counts, members):
        for partition in range(counts[topic]):
            reader = next(member_id for member_id in turns if topic in members[member_id].topics)
            assignment[reader].append(TopicPartition(topic, partition))
    return assignment


ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_range),
        Assignor("roundrobin", assign_roundrobin),
        Assignor("sticky", assign_sticky, sticky_user_data),
        Assignor("cooperative-sticky", assign_cooperative_sticky, cooperative_user_data, frozenset(RebalanceProtocol)),
    )
}


def assignors(names: Iterable[str]) -> tuple[Assignor, ...]:
    """Return the assignors of ``partition_assignment_strategy`` in its order. Raises ConfigError for an unknown one."""
    return tuple(_assignor(name) for name in names)


def common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """Return how a member with these assignors rebalances, as in Java: the newest way that is right for all of them.

    So a group gets from "range" to "cooperative-sticky" without a stop: first all members list both, and stay eager;
    once they do, one after the other drops "range", and cooperates.
    """
    shared = frozenset.intersection(*(assignor.protocols for assignor in assignors))
    if not shared:
        raise ConfigError("partition_assignment_strategy: its assignors have no rebalance protocol in common")
    return max(shared)


def _assignor(name: str) -> Assignor:
    found = ASSIGNORS.get(name)
    if found is None:
        close = difflib.get_close_matches(name.lower(), ASSIGNORS, n=1)
        advice = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(map(repr, ASSIGNORS))}"
        raise ConfigError(f"partition_assignment_strategy: unknown assignor {name!r}; {advice}")
    return found


def _in_order(members: Members) -> list[str]:
    """Member ids as Java orders them: static members by instance id, then dynamic ones by member id.

    A static member so keeps its place, and with it its partitions, although each restart gives it a new member id.
    """

    def place(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].group_instance_id
        return instance_id is None, java_order(member_id if instance_id is None else instance_id)

    return sorted(members, key=place)
