"""Which leader of a partition is the newest, while brokers learn one by one of an election (KIP-320).

The one of the highest leader epoch is. But epochs go back where a cluster is restored from copies of its disks, or has
lost its controllers. A client that kept the highest epoch for ever would stand still until it is restarted: brokers
refuse an epoch that they do not know. So it believes a lower one once several answers in a row have named one.

Only answers to a client that is in trouble count: it can't fetch or send, and so has found what it knew wrong; or it
knows of no leader, or of none that is among the brokers. One that is well asks now and then, too, and maybe each time
the same broker, which is cut off from the controllers, and still believes to lead what others lead by now.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from typing import Final, TypeAlias

from ...types import PartitionInfo
from .occasion import Occasion

#: So many answers in a row take a second or more, with retry_backoff_ms between them. Most brokers are behind by less;
#: and one that is cut off does not give all of them, for others are asked before it (UselessAnswers).
_ENOUGH: Final = 10

#: How many answers in a row have named a lower epoch than the one that counts, by topic and partition.
LowerEpochs: TypeAlias = Mapping[tuple[str, int], int]


class LeaderEpochs:
    """Judges the leader epochs in one Metadata response. ``before``: what the last one has left.

    ``brokers``: those that the client knows so far. A leader that is not among them can't be asked for anything, so it
    never refuses anything. ``occasion``: why the question was asked. That something else is lacking does not count: a
    client that fetches and sends well looks for other topics, too.
    """

    def __init__(self, before: LowerEpochs, brokers: Container[int | None], occasion: Occasion) -> None:
        self._before = before
        self._brokers = brokers
        self._found_wrong = occasion is Occasion.FOUND_WRONG
        self._lower: dict[tuple[str, int], int] = {}

    def newest(self, old: PartitionInfo, new: PartitionInfo) -> PartitionInfo:
        """Return ``new``, or ``old`` where the broker that answers is behind, or tells nothing new."""
        if old == new:
            return old
        if old.leader_epoch is None or new.leader_epoch is None or new.leader_epoch >= old.leader_epoch:
            return new
        key = new.topic, new.partition
        named = self._before.get(key, 0) + (self._found_wrong or old.leader not in self._brokers)
        if named >= _ENOUGH:
            return new
        if named:
            self._lower[key] = named
        return old

    def result(self, answered: Collection[str], topics: Collection[str]) -> LowerEpochs:
        """Return what to hand to the next one: of ``topics``, the response was about those that were ``answered``."""
        if not self._before:
            return self._lower
        kept = {key: named for key, named in self._before.items() if key[0] in topics and key[0] not in answered}
        return kept | self._lower
