"""The built-in assignors by their names: range, roundrobin (defined here), sticky, cooperative-sticky.

The group leader runs the assignor that all members have in common. Any client in any language may lead the group, and
leaders change. So range and roundrobin agree with Java's in every partition. The sticky ones do, too, but for choices
that Java leaves to the order of a hash map, and for claims that contradict each other.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from ...assignor import EAGER_ONLY, Assignment, Assignor, Claim, Group, RebalanceProtocol
from ...config.checks import LONGEST_TEXT
from ...errors import ConfigError, shown
from ...types import TopicPartition
from .range import assign_range
from .sticky import assign_cooperative_sticky, assign_sticky
from .sticky_claims import cooperative_user_data, sticky_user_data
from .values import GroupAssignment, Members, PartitionCounts, in_order, subscribed


def assign_roundrobin(counts: PartitionCounts, members: Members) -> GroupAssignment:
    """Deal all partitions of all topics to the members in turn (Java's RoundRobinAssignor).

    The turn passes on from topic to topic, and a member that does not subscribe to the topic loses its turn.
    """
    assignment: GroupAssignment = {member_id: [] for member_id in members}
    turns = cycle(in_order(members))
    for topic in subscribed(counts, members):
        for partition in range(counts[topic]):
            reader = next(member_id for member_id in turns if topic in members[member_id].topics)
            assignment[reader].append(TopicPartition(topic, partition))
    return assignment


def _no_user_data(claim: Claim) -> bytes | None:
    return None


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """An Assignor made of pure functions: it keeps no state."""

    name: str
    assign_all: Callable[[Group], GroupAssignment]
    describe: Callable[[Claim], bytes | None] = _no_user_data
    protocols: frozenset[RebalanceProtocol] = EAGER_ONLY

    def user_data(self, topics: frozenset[str], last: Claim) -> bytes | None:
        return self.describe(last)

    def assign(self, group: Group) -> GroupAssignment:
        return self.assign_all(group)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        pass


ASSIGNORS: Final[Mapping[str, BuiltIn]] = {
    assignor.name: assignor
    for assignor in (
        BuiltIn("range", lambda group: assign_range(group.partition_counts, group.members, group.racks)),
        BuiltIn("roundrobin", lambda group: assign_roundrobin(group.partition_counts, group.members)),
        BuiltIn("sticky", lambda group: assign_sticky(group.partition_counts, group.members), sticky_user_data),
        BuiltIn(
            "cooperative-sticky",
            lambda group: assign_cooperative_sticky(group.partition_counts, group.members),
            cooperative_user_data,
            frozenset(RebalanceProtocol),
        ),
    )
}


def assignors(strategy: Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """Return the assignors of ``partition_assignment_strategy`` in its order.

    Raises ConfigError for an unknown name, for an assignor without a name, for two assignors of one name, for one whose
    ``protocols`` are no set of RebalanceProtocol, and for assignors without a rebalance protocol in common.
    """
    found = tuple(_assignor(entry) if isinstance(entry, str) else entry for entry in strategy)
    names = [_name(assignor) for assignor in found]
    if len(set(names)) < len(names):
        raise ConfigError(f"partition_assignment_strategy: {names} names one assignor twice")
    common_protocol(found)
    return found


def common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """Return how a member with these assignors rebalances, as in Java: the newest protocol that all of them support.

    So a group can change from "range" to "cooperative-sticky" without a stop. First all members list both, and stay
    eager. Then one member after the other drops "range", and becomes cooperative.
    """
    shared = frozenset.intersection(*map(_protocols, assignors))
    if not shared:
        raise ConfigError("partition_assignment_strategy: its assignors have no rebalance protocol in common")
    return max(shared)


def _name(assignor: Assignor) -> str:
    """Return the name under which the group finds the assignor. Raises ConfigError if no request can carry it."""
    name: object = assignor.name
    try:
        if isinstance(name, str) and 0 < len(name.encode()) <= LONGEST_TEXT:
            return name
    except UnicodeEncodeError:
        pass
    raise ConfigError(
        f"{type(assignor).__name__}.name is {shown(name)}: the members agree on an assignor by its name, a string that "
        "is not empty, of 32 KiB at most"
    )


def _protocols(assignor: Assignor) -> frozenset[RebalanceProtocol]:
    """Return the rebalance protocols that the assignor supports. Raises ConfigError if they are no set of such."""
    protocols: object = assignor.protocols
    if isinstance(protocols, Set) and all(isinstance(protocol, RebalanceProtocol) for protocol in protocols):
        return frozenset(protocols)
    raise ConfigError(
        f"{type(assignor).__name__}.protocols is {shown(protocols)}: it must be a set of RebalanceProtocol, such as "
        "frozenset({RebalanceProtocol.EAGER})"
    )


def _assignor(name: str) -> Assignor:
    found = ASSIGNORS.get(name)
    if found is None:
        close = difflib.get_close_matches(name.lower(), ASSIGNORS, n=1)
        advice = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(map(repr, ASSIGNORS))}"
        raise ConfigError(f"partition_assignment_strategy: unknown assignor {name!r}; {advice}")
    return found
