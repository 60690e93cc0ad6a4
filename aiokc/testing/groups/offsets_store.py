"""The committed offsets of groups, and those that wait for the end of a transaction."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

#: A topic and the number of a partition.
Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What was committed for a partition. ``order`` says when: the latest one counts, whenever its transaction ends."""

    offset: int
    leader_epoch: int
    metadata: str
    order: int


class GroupOffsets:
    """By group and partition, what was committed; by producer too, what is pending (KIP-98)."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[Place, CommittedOffset]] = defaultdict(dict)
        self._pending: dict[str, dict[int, dict[Place, CommittedOffset]]] = defaultdict(dict)
        self._order = count()

    def commit(
        self,
        group_id: str,
        place: Place,
        offset: int,
        leader_epoch: int,
        metadata: str | None,
        *,
        producer_id: int | None = None,
    ) -> None:
        """Remember an offset; with a producer, once its transaction is committed."""
        one = CommittedOffset(offset, leader_epoch, metadata or "", next(self._order))
        if producer_id is None:
            self._committed[group_id][place] = one
        else:
            self._pending[group_id].setdefault(producer_id, {})[place] = one

    def end_transaction(self, group_id: str, producer_id: int, committed: bool) -> None:
        """Let what is pending become committed, unless something was committed after it; or forget it."""
        pending = self._pending[group_id].pop(producer_id, {})
        if committed:
            for place, one in pending.items():
                known = self._committed[group_id].get(place)
                if known is None or known.order < one.order:
                    self._committed[group_id][place] = one

    def of(self, group_id: str) -> dict[Place, CommittedOffset]:
        """Return all that is committed."""
        return dict(self._committed[group_id])

    def is_unstable(self, group_id: str, place: Place) -> bool:
        """Whether a transaction that is not over yet has an offset for the partition (KIP-447)."""
        return any(place in pending for pending in self._pending[group_id].values())

    def forget(self, group_id: str, place: Place) -> None:
        """Delete what is committed for a partition, and what is pending."""
        self._committed[group_id].pop(place, None)
        for pending in self._pending[group_id].values():
            pending.pop(place, None)

    def forget_group(self, group_id: str) -> None:
        self._committed.pop(group_id, None)
        self._pending.pop(group_id, None)

    def forget_topic(self, topic: str) -> None:
        """Delete all offsets of a topic that is gone."""
        known = [
            *self._committed.values(),
            *(pending for by_producer in self._pending.values() for pending in by_producer.values()),
        ]
        for offsets in known:
            for place in [place for place in offsets if place[0] == topic]:
                del offsets[place]
