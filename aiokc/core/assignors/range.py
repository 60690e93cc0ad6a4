"""The range assignor, as in Java: each member gets a contiguous range of each topic, near replicas first (KIP-881)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from ...types import TopicPartition
from .values import GroupAssignment, Members, PartitionCounts, Racks, in_order, subscribed


def assign_range(counts: PartitionCounts, members: Members, racks: Racks | None = None) -> GroupAssignment:
    """Give each member one contiguous range of each topic that it subscribes to.

    What does not divide evenly goes to the first members of the order, in every topic anew. So topics with the same
    subscribers and the same number of partitions are co-partitioned: one member reads partition n of all of them.

    Where members have racks, and some partitions have replicas in only some of the racks, a member first gets
    partitions with a replica in its own rack, up to its share. Co-partitioned topics stay co-partitioned. The rest is
    assigned in ranges.
    """
    assignment: GroupAssignment = {member_id: [] for member_id in members}
    order = in_order(members)
    topics = []
    for name in subscribed(counts, members):
        readers = [member_id for member_id in order if name in members[member_id].topics]
        topics.append(_Topic(name, counts[name], readers, members, racks or {}, assignment))
    if not any(topic.rack_aware for topic in topics):
        for topic in topics:
            topic.assign_ranges()
        return assignment
    _assign_near(topics)
    for topic in topics:
        topic.assign_ranges()
    for partitions in assignment.values():
        partitions.sort()
    return assignment


def _assign_near(topics: Iterable[_Topic]) -> None:
    alike: defaultdict[tuple[tuple[str, ...], int], list[_Topic]] = defaultdict(list)
    for topic in topics:
        # A topic of whose readers none has a rack counts as near to all of them, and is assigned in ranges.
        alike[tuple(topic.readers), topic.count if topic.has_racks else 0].append(topic)
    for (readers, count), group in alike.items():
        if len(group) > 1:
            _assign_copartitioned(group, readers, count)
        elif group[0].rack_aware:
            group[0].assign_ranges(group[0].is_near)


def _assign_copartitioned(topics: Sequence[_Topic], readers: Iterable[str], count: int) -> None:
    """Give partition n of all topics to one member that has a replica of each of them in its rack."""
    remaining = list(readers)
    for number in range(count):
        for member_id in remaining:
            if all(topic.room(member_id) > 0 and topic.is_near(member_id, number) for topic in topics):
                for topic in topics:
                    topic.give(member_id, [number])
                if not any(topic.room(member_id) > 0 for topic in topics):
                    remaining.remove(member_id)
                break


class _Topic:
    """One topic while its partitions are assigned. ``readers``: its subscribers, in order."""

    def __init__(
        self, name: str, count: int, readers: list[str], members: Members, racks: Racks, assignment: GroupAssignment
    ) -> None:
        self.count = count
        self.readers = readers
        self._name = name
        self._assignment = assignment
        self._free = dict.fromkeys(range(count))
        self._share, self._extra = divmod(count, len(readers))
        self._given = dict.fromkeys(readers, 0)
        self._rack_of = {member_id: rack for member_id in readers if (rack := members[member_id].rack_id)}
        self.has_racks = bool(self._rack_of)
        nowhere: frozenset[str] = frozenset()
        self._racks = [racks.get(TopicPartition(name, n), nowhere) for n in range(count)] if self.has_racks else []
        everywhere = nowhere.union(*self._racks)
        reachable = not everywhere.isdisjoint(self._rack_of.values())
        self.rack_aware = reachable and any(here != everywhere for here in self._racks)

    def is_near(self, member_id: str, number: int) -> bool:
        """Whether a replica is in the member's rack. A member without a rack is near to every partition."""
        rack = self._rack_of.get(member_id)
        return rack is None or (self.has_racks and rack in self._racks[number])

    def room(self, member_id: str) -> int:
        """How many more partitions the member may get."""
        return max(0, self._share + (self._extra > 0) - self._given[member_id])

    def give(self, member_id: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self._free[number]
            self._given[member_id] += 1
            self._assignment[member_id].append(TopicPartition(self._name, number))
        if self._given[member_id] > self._share:
            self._extra -= 1

    def assign_ranges(self, may_get: Callable[[str, int], bool] | None = None) -> None:
        """Give each reader, in order, the first free partitions that it may get, up to its share."""
        for member_id in self.readers:
            room = self.room(member_id)
            numbers: list[int] = []
            for number in self._free:
                if len(numbers) == room:
                    break
                if may_get is None or may_get(member_id, number):
                    numbers.append(number)
            if numbers:
                self.give(member_id, numbers)
