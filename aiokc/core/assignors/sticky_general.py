"""The sticky algorithm for members with different subscriptions: a member can have only partitions of its topics.

First each member keeps what it owns. Then each free partition goes to the subscriber with the fewest partitions. Then
partitions move as long as that makes the group more even.

A partition only moves from a member to one that has at least two fewer. Each such move makes Java's balance score, the
sum of the differences between all pairs of members, smaller: the two come closer by two, and no third gets further away
from both. So the search ends, and its result is never worse than its start. Java keeps a copy of the assignment before
the search, to go back to; that is not needed here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...types import TopicPartition
from .sticky_claims import Claims
from .values import GroupAssignment, Members, PartitionCounts


def assign_general(counts: PartitionCounts, order: Sequence[str], members: Members, claims: Claims) -> GroupAssignment:
    """Assign the partitions of ``counts``, each of whose topics has a subscriber. ``order``: the ids of ``members``."""
    readers = {topic: sum(topic in member.topics for member in members.values()) for topic in counts}
    topics = sorted(counts, key=lambda topic: (readers[topic], topic))  # topics with the fewest subscribers first
    partitions = [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]

    keeps = {tp: owner for tp, owner in claims.holders.items() if tp.topic in members[owner].topics}
    balance = _Balance(order, members, dict(keeps))
    free = [tp for tp in partitions if tp not in keeps]
    for tp in free:
        balance.give(tp)
    if len(keeps) == len(claims.holders):
        balance.improve(free, claims)  # where that is enough, no member loses a partition that it owned
    balance.improve(partitions, claims)

    assignment: GroupAssignment = {member_id: [] for member_id in order}
    for tp, owner in balance.owners.items():
        assignment[owner].append(tp)
    return assignment


class _Balance:
    """The owners of the partitions, and how many each member has, while they are assigned.

    Of members that subscribe to the same topics only the lightest can be the lightest reader of a topic. So the search
    for that one looks at one member of each set of topics: large groups have few such sets.
    """

    def __init__(self, order: Sequence[str], members: Members, owners: dict[TopicPartition, str]) -> None:
        self.owners = owners
        self._order = order
        self._place = {member_id: place for place, member_id in enumerate(order)}
        self._topics = {member_id: member.topics for member_id, member in members.items()}
        self._movements = _Movements()
        self._loads = dict.fromkeys(order, 0)
        for owner in owners.values():
            self._loads[owner] += 1
        alike = self._alike()
        self._ranks = {member_id: alike[member.topics] for member_id, member in members.items()}
        self._lightest_ones = sorted(ranks[0] for ranks in alike.values())

    def give(self, tp: TopicPartition) -> None:
        """Give ``tp``, which has no owner, to the subscriber with the fewest partitions."""
        owner = self._lightest(tp.topic)
        self.owners[tp] = owner
        self._load(owner, 1)

    def improve(self, partitions: Iterable[TopicPartition], claims: Claims) -> None:
        """Move ``partitions`` to members that have at least two fewer, until none can move."""
        moved = True
        while moved:
            moved = False
            for tp in partitions:
                target = self._better_owner(tp, claims.previous.get(tp))
                if target is not None:
                    self._move(self._movements.instead_of(tp, self.owners[tp], target), target)
                    moved = True

    def _better_owner(self, tp: TopicPartition, previous: str | None) -> str | None:
        """Return a member with at least two partitions fewer than the owner: the previous owner, else the lightest."""
        limit = self._loads[self.owners[tp]] - 2
        if self._lightest_ones[0][0] > limit:
            return None
        if previous is not None and tp.topic in self._topics[previous] and self._loads[previous] <= limit:
            return previous
        lightest = self._lightest(tp.topic)
        return lightest if self._loads[lightest] <= limit else None

    def _move(self, tp: TopicPartition, target: str) -> None:
        source = self.owners[tp]
        self._movements.add(tp, source, target)
        self.owners[tp] = target
        self._load(source, -1)
        self._load(target, 1)

    def _alike(self) -> dict[frozenset[str], list[tuple[int, int]]]:
        """Return (load, place) of the members with each set of topics, in order."""
        alike: dict[frozenset[str], list[tuple[int, int]]] = {}
        for member_id in self._order:
            alike.setdefault(self._topics[member_id], []).append((self._loads[member_id], self._place[member_id]))
        for ranks in alike.values():
            ranks.sort()
        return alike

    def _lightest(self, topic: str) -> str:
        in_order = (self._order[place] for _, place in self._lightest_ones)
        return next(member_id for member_id in in_order if topic in self._topics[member_id])

    def _load(self, member_id: str, change: int) -> None:
        ranks, place = self._ranks[member_id], self._place[member_id]
        before = ranks[0]
        del ranks[bisect_left(ranks, (self._loads[member_id], place))]
        self._loads[member_id] += change
        insort(ranks, (self._loads[member_id], place))
        if ranks[0] != before:
            del self._lightest_ones[bisect_left(self._lightest_ones, before)]
            insort(self._lightest_ones, ranks[0])


class _Movements:
    """The partitions that have moved so far, each from its first owner to its present one.

    Two members that swap two partitions of one topic gain nothing, and lose what they have cached about them. So where
    a partition would go to a member that gave one of the same topic the other way, that one goes back instead.
    """

    def __init__(self) -> None:
        self._paths: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: defaultdict[tuple[str, str, str], set[TopicPartition]] = defaultdict(set)

    def instead_of(self, tp: TopicPartition, owner: str, target: str) -> TopicPartition:
        """Return a partition of the same topic that ``owner`` got from ``target`` earlier, else ``tp``."""
        return min(self._moved[tp.topic, target, owner], default=tp)

    def add(self, tp: TopicPartition, source: str, target: str) -> None:
        path = self._paths.pop(tp, None)
        if path is not None:
            source = path[0]
            self._moved[tp.topic, *path].remove(tp)
        if source != target:
            self._paths[tp] = source, target
            self._moved[tp.topic, source, target].add(tp)
