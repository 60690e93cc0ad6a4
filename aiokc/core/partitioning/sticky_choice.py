"""The sticky choice of a partition for records without a key (KIP-480), adaptive (KIP-794) and by rack (KIP-1123).

Records without a key fill one batch of one partition before they go to the next one: so batches are large, and few. The
next partition is a matter of chance, where those with short queues have better prospects: what a slow broker does not
take, others get.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from ..backoff import Chance


class TopicLoad(NamedTuple):
    """A topic at the moment at which the next partition is chosen.

    ``partitions`` is their number, ``available`` those that have a leader. ``queues`` are the batches that
    wait for each partition that anything was ever appended to, where the choice is adaptive. ``slow`` are the
    partitions whose broker has taken nothing for partitioner_availability_timeout_ms, ``near`` those whose leader is in
    the client's rack, where that counts.
    """

    partitions: int
    available: Sequence[int]
    queues: Mapping[int, int] | None = None
    slow: Collection[int] = ()
    near: Collection[int] = ()


def next_partition(load: TopicLoad, random: Chance) -> int:
    """Return a partition to go on with. Without a leader for any, one of all: its records wait for a leader."""
    candidates = load.available or range(load.partitions)
    queues = load.queues
    # An empty queue is one that something was taken from. While partitions are missing, queues say nothing about those.
    if queues is None or load.partitions < 2 or len(queues) < load.partitions:
        return _one_of(_preferred(candidates, load.near), None, random)
    fast = [partition for partition in candidates if partition not in load.slow] if load.slow else candidates
    chosen = _preferred(fast or candidates, load.near)
    if not fast:
        return _one_of(chosen, None, random)
    lengths = [queues.get(partition, 0) for partition in chosen]
    above = max(lengths) + 1
    return _one_of(chosen, [above - length for length in lengths], random)


def _preferred(candidates: Sequence[int], near: Collection[int]) -> Sequence[int]:
    return ([partition for partition in candidates if partition in near] if near else ()) or candidates


def _one_of(candidates: Sequence[int], weights: Sequence[int] | None, random: Chance) -> int:
    sums = range(1, len(candidates) + 1) if weights is None else list(accumulate(weights))
    drawn = int(random.uniform(0, sums[-1]))  # uniform() may return its upper end, by rounding
    return candidates[min(bisect_right(sums, drawn), len(candidates) - 1)]


class StickyChoice:
    """The partition of one topic that records without a key go to now. ``batch_size`` is the producer's option."""

    def __init__(self, batch_size: int, random: Chance) -> None:
        #: The partition to append to; None: ``choose`` the first one.
        self.partition: int | None = None
        self._batch_size = max(1, batch_size)
        self._random = random
        self._appended = 0

    def choose(self, load: TopicLoad) -> int:
        """Choose the partition to go on with, and return it."""
        self._appended = 0
        self.partition = next_partition(load, self._random)
        return self.partition

    def leaves(self, size: int) -> bool:
        """Whether to choose another partition for a record of ``size`` bytes that does not fit into the open batch.

        By Java's count the open batch is left for the next one, and that one soon after, with a record or two in it.
        """
        return self._appended > 0 and self._appended + size >= self._batch_size

    def appended(self, size: int, *, is_open: bool) -> bool:
        """Note that a record was appended to ``partition``; return whether another one is to be chosen.

        ``size`` has the record and, if it opened a batch, that batch's header. ``is_open`` says whether the partition's
        last batch has room for more.

        The choice stays while a batch is open, since leaving it would send batches that are not full
        (KAFKA-14156), but not for ever: large records may always leave one open.
        """
        self._appended += size
        if self._appended < self._batch_size or (is_open and self._appended < 2 * self._batch_size):
            return False
        self.partition = None
        return True
