"""Stores the committed offsets of groups, and the pending ones of open transactions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

#: A topic name and a partition number.
Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset committed for a partition. The one with the highest ``order`` counts, whenever its transaction ends."""

    offset: int
    leader_epoch: int
    metadata: str
    order: int


class GroupOffsets:
    """Committed offsets by group and partition, and pending ones by group, producer and partition (KIP-98)."""

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
        """Commit an offset; with a producer id, keep it pending until the producer's transaction ends."""
        one = CommittedOffset(offset, leader_epoch, metadata or "", next(self._order))
        if producer_id is None:
            self._committed[group_id][place] = one
        else:
            self._pending[group_id].setdefault(producer_id, {})[place] = one

    def end_transaction(self, group_id: str, producer_id: int, committed: bool) -> None:
        """Commit the pending offsets, except where a later one is committed already; or forget them."""
        pending = self._pending[group_id].pop(producer_id, {})
        if committed:
            for place, one in pending.items():
                known = self._committed[group_id].get(place)
                if known is None or known.order < one.order:
                    self._committed[group_id][place] = one

    def of(self, group_id: str) -> dict[Place, CommittedOffset]:
        """Return all committed offsets of a group."""
        return dict(self._committed[group_id])

    def is_unstable(self, group_id: str, place: Place) -> bool:
        """Return whether an open transaction has an offset for the partition (KIP-447)."""
        return any(place in pending for pending in self._pending[group_id].values())

    def forget(self, group_id: str, place: Place) -> None:
        """Delete the committed offset of a partition, and the pending ones."""
        self._committed[group_id].pop(place, None)
        for pending in self._pending[group_id].values():
            pending.pop(place, None)

    def forget_group(self, group_id: str) -> None:
        self._committed.pop(group_id, None)
        self._pending.pop(group_id, None)

    def forget_topic(self, topic: str) -> None:
        """Delete all offsets of a deleted topic."""
        known = [
            *self._committed.values(),
            *(pending for by_producer in self._pending.values() for pending in by_producer.values()),
        ]
        for offsets in known:
            for place in [place for place in offsets if place[0] == topic]:
                del offsets[place]
