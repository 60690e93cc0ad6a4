"""PartitionQueues: the batches of all partitions, in the order in which these are served, and when to look at which."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from ...types import TopicPartition
from .identity import ProducerIdentity
from .partition_queue import PartitionQueue


class PartitionQueues:
    """The queues of all partitions that were sent to, and which of them have batches without an outcome.

    A partition whose next batch is due at a known time ``rests``: nobody looks at it until then, or until it gets or
    loses a batch. So thousands of partitions that linger cost nothing while others are sent.
    What is counted of a partition stays counted where the partition is forgotten.
    """

    def __init__(self) -> None:
        self.known: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[PartitionQueue, None] = {}
        self._awake: dict[PartitionQueue, None] = {}  # those of the active ones that do not rest
        self._alarms: list[tuple[float, int, PartitionQueue]] = []  # a heap
        self._alarm_at: dict[PartitionQueue, float] = {}  # the next one of each
        self._alarms_set = 0
        self._renumbered = self._begun_anew = 0  # of partitions that are forgotten

    def __getitem__(self, tp: TopicPartition) -> PartitionQueue:
        """Return the batches of a partition: always the same object."""
        found = self.known.get(tp)
        if found is None:
            found = self.known[tp] = PartitionQueue(tp)
        return found

    def forget(self, topic: str, partitions: int, may_forget: Callable[[ProducerIdentity], bool]) -> None:
        """Let go of a topic's partitions that are at rest, where ``may_forget`` agrees."""
        for number in range(partitions):
            queue = self.known.get(TopicPartition(topic, number))
            if queue is not None and not queue and may_forget(queue.sequences.identity):
                del self.known[queue.tp]
                self._renumbered += queue.renumbered
                self._begun_anew += queue.begun_anew

    # Those with batches

    @property
    def active(self) -> list[PartitionQueue]:
        """The partitions with batches that have no outcome, or that are in flight. Any thread may ask.

        The one that was served last is at the end.
        """
        return list(self._active)

    @property
    def is_empty(self) -> bool:
        """Whether no batch waits or is in flight."""
        return not self._active

    @property
    def lone(self) -> PartitionQueue | None:
        """The partition that has all batches which have no outcome yet."""
        return next(iter(self._active)) if len(self._active) == 1 else None

    def has_lone_batch(self, queue: PartitionQueue) -> bool:
        """Whether a batch that waits in ``queue`` is the only one there is."""
        return len(self._active) == 1 and len(queue.waiting) == 1 and not queue.in_flight

    def gets_batch(self, queue: PartitionQueue) -> None:
        """A batch is about to be put into ``queue``."""
        if not (queue.waiting or queue.in_flight):
            self._active[queue] = None
        self._awake[queue] = None

    def served(self, queue: PartitionQueue) -> None:
        """A batch of ``queue`` was taken to be sent: all other partitions come before it the next time."""
        for queues in (self._active, self._awake):
            queues.pop(queue, None)
            queues[queue] = None

    def lost_batch(self, queue: PartitionQueue) -> None:
        """A batch has left ``queue``."""
        if queue.waiting or queue.in_flight:
            self._awake[queue] = None
        else:
            self._active.pop(queue, None)
            self._awake.pop(queue, None)

    # Those to look at

    def to_look_at(self, now: float, *, all_of_them: bool) -> list[PartitionQueue]:
        """Return the partitions that do not rest, in order. ``all_of_them``: none does any more."""
        alarms = self._alarms
        while alarms and alarms[0][0] <= now:
            at, _, queue = heappop(alarms)
            if self._alarm_at.get(queue) == at:
                del self._alarm_at[queue]
            self.wake(queue)
        if all_of_them:
            self._awake = dict(self._active)
        return list(self._awake)

    def rest(self, queue: PartitionQueue, until: float) -> None:
        """Nothing of ``queue`` can be sent before that time, unless something happens to it."""
        self._awake.pop(queue, None)
        # An alarm that is not needed any more stays, and costs one look in vain. It serves the batches behind its own:
        # so a partition that fills a batch each millisecond sets one alarm in each linger time, not a thousand.
        if until < self._alarm_at.get(queue, inf):
            self._alarm_at[queue] = until
            self._alarms_set += 1
            heappush(self._alarms, (until, self._alarms_set, queue))

    def wake(self, queue: PartitionQueue) -> None:
        """Something has happened to ``queue``: it may be that its next batch can be sent now."""
        if queue in self._active:
            self._awake[queue] = None

    @property
    def wakes_at(self) -> float:
        """When the next of those that rest is to be looked at."""
        return self._alarms[0][0] if self._alarms else inf

    # What is counted

    @property
    def renumbered(self) -> int:
        """How many batches were sent again under other sequences although they may have been stored."""
        return self._renumbered + sum(queue.renumbered for queue in list(self.known.values()))

    @property
    def begun_anew(self) -> int:
        """How often a partition has lost its sequences, and gone on in another epoch."""
        return self._begun_anew + sum(queue.begun_anew for queue in list(self.known.values()))

    @property
    def unanswered(self) -> int:
        """How many batches have no outcome yet."""
        return sum(sum(1 for _ in queue.unfinished()) for queue in self._active)
