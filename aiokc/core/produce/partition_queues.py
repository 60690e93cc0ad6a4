"""PartitionQueues: the batches of all partitions, in the order in which these are served, and when to look at which."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from ...types import TopicPartition
from .identity import ProducerIdentity
from .partition_queue import PartitionQueue

#: So many are looked at in one step at most, which takes about a millisecond.
MOST_LOOKED_AT: Final = 256
_ALARMS_SPARED: Final = 64


class Ready(NamedTuple):
    """What a look at some partitions has found: what can be sent now, by node; when to look again at the latest.

    ``nodes`` are ``PartitionQueues.ready``, which changes. ``round_is_over``: all that were awake as this round of
    looking began were looked at. What was looked at and has no leader is in ``without_leader``. ``renumbered`` are
    partitions of which batches go out in another epoch although they may be stored already.
    """

    nodes: dict[int, dict[PartitionQueue, None]]
    look_at: float
    round_is_over: bool
    without_leader: list[PartitionQueue]
    renumbered: list[TopicPartition]


class Counted(NamedTuple):
    """What was counted of all partitions so far: none of it becomes less.

    ``appended``: records. ``renumbered``: batches that were sent again under other sequences although they may have
    been stored. ``begun_anew``: how often a partition has lost its sequences, and gone on in another epoch.
    """

    appended: int
    renumbered: int
    begun_anew: int


class Alarms:
    """When something is to be done about which partition: one moment for each, the earliest of those that were set."""

    def __init__(self) -> None:
        self.next_at = inf  # when the first one rings
        self._heap: list[tuple[float, int, PartitionQueue]] = []  # those that an earlier one has replaced, too
        self._at: dict[PartitionQueue, float] = {}
        self._set = 0

    def set(self, queue: PartitionQueue, at: float) -> None:
        """Have one ring for ``queue`` at that time, unless one rings before."""
        if at >= self._at.get(queue, inf):
            return
        self._at[queue] = at
        self._set += 1
        heappush(self._heap, (at, self._set, queue))
        # Each pause before another attempt is sooner than the end of a long linger time, whose alarm stays behind.
        if len(self._heap) > 2 * len(self._at) + _ALARMS_SPARED:
            self._heap = [(at, number, one) for number, (one, at) in enumerate(self._at.items())]
            heapify(self._heap)
        self.next_at = self._heap[0][0]

    def ringing(self, now: float) -> list[PartitionQueue]:
        """Return partitions whose alarm is due, as many as one step may look at. It is over then."""
        found: list[PartitionQueue] = []
        for _ in range(MOST_LOOKED_AT):
            if self.next_at > now:
                break
            at, _, queue = heappop(self._heap)
            self.next_at = self._heap[0][0] if self._heap else inf
            if self._at.get(queue) == at:
                del self._at[queue]
                found.append(queue)
        return found

    def clear(self) -> None:
        self._heap.clear()
        self._at.clear()
        self.next_at = inf


class PartitionQueues:
    """The queues of all partitions that were sent to, and which of them have batches without an outcome.

    Of those that have some, nobody looks at one that ``rests``, since its next batch is due at a known time; nor at one
    of which all batches are in flight; nor at one that is ``ready``: it has its place among those that its leader is to
    have a batch of. So thousands of partitions that linger, or that busy brokers can take nothing of, cost nothing
    while others are sent. All others are awake, in the order in which they are looked at: in rounds of many steps. A
    round ends, whatever happens meanwhile: those that wake in it come behind all that it looks at, and are of the next.
    ``unreachable`` says of brokers why they could not be reached, until something is sent to them again.
    ``expiry`` rings for a partition when its oldest batch expires, or before.
    What is counted of a partition stays counted where the partition is forgotten.
    """

    def __init__(self) -> None:
        self.known: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[PartitionQueue, None] = {}
        self.ready: dict[int, dict[PartitionQueue, None]] = {}  # by broker, none for which nothing is ready
        self._ready_for: dict[PartitionQueue, int] = {}
        self.unreachable: dict[int, str] = {}
        self._awake: dict[PartitionQueue, None] = {}
        self._left = 0  # how many of them this round still looks at: the first ones
        self._some_woke = False  # since this round began
        self._alarms = Alarms()
        self.expiry = Alarms()
        self._looked_at = -inf  # when the sender looked at what has expired
        self._forgotten = Counted(0, 0, 0)  # of partitions that are forgotten
        self._version = 0  # odd while one is being forgotten

    def __getitem__(self, tp: TopicPartition) -> PartitionQueue:
        """Return the batches of a partition: always the same object."""
        found = self.known.get(tp)
        if found is None:
            found = self.known[tp] = PartitionQueue(tp)
        return found

    def forget(self, topic: str, partitions: int, may_forget: Callable[[ProducerIdentity], bool]) -> bool:
        """Let go of a topic's partitions that are at rest, where ``may_forget`` agrees; return whether none is left."""
        left = False
        for number in range(partitions):
            queue = self.known.get(TopicPartition(topic, number))
            if queue is None:
                continue
            if queue or not may_forget(queue.sequences.identity):
                left = True
                continue
            self._version += 1
            del self.known[queue.tp]
            self._forgotten = _sum(self._forgotten, [queue])
            self._version += 1
        return not left

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

    def gets_batch(self, queue: PartitionQueue, expires_at: float) -> None:
        """A batch is about to be put into ``queue``."""
        self.expiry.set(queue, expires_at)
        if queue not in self._ready_for:
            self._awake[queue] = None
        if queue.waiting or queue.in_flight:
            self._some_woke = True
        else:  # it rests from now on, or the sender is told of it
            self._active[queue] = None

    def served(self, queue: PartitionQueue) -> None:
        """A batch of ``queue`` was taken to be sent: all other partitions come before it the next time."""
        if self._active.pop(queue, False) is None:
            self._active[queue] = None
        self.look_again(queue)

    def lost_batch(self, queue: PartitionQueue) -> None:
        """A batch has left ``queue``."""
        if queue.waiting or queue.in_flight:
            self.look_again(queue)
        else:
            self._active.pop(queue, None)
            self._awake.pop(queue, None)
            self.unready(queue)
            if not self._active:  # nobody watches an alarm that is left: later it would pass for one that is late
                self.expiry.clear()

    # Those to look at

    def late(self, now: float) -> float:
        """The sender looks at what has expired: return how late it comes, in seconds, since something held the loop.

        That was after its last look: in many steps that end what has expired, the sender waits for itself alone.
        """
        began, self._looked_at = max(self.expiry.next_at, self._looked_at), now
        return now - began

    def to_look_at(self, now: float) -> list[PartitionQueue]:
        """Return the next ones of a round. They are left alone then, but for what is said of them in answer to this."""
        for queue in self._alarms.ringing(now):
            self.wake(queue)
        if not self._left:
            self._left, self._some_woke = len(self._awake), False
        found = list(islice(self._awake, min(self._left, MOST_LOOKED_AT)))
        for queue in found:
            del self._awake[queue]
        self._left = min(self._left - len(found), len(self._awake))
        return found

    @property
    def round_is_over(self) -> bool:
        return not self._left

    def goes_on(self, now: float) -> bool:
        """Whether there is more to look at, at once: in this round, or since some woke in it."""
        return self._left > 0 or (self._some_woke and bool(self._awake)) or self._alarms.next_at <= now

    def place_ready(self, queue: PartitionQueue, node_id: int) -> None:
        """The first batch of ``queue`` can be sent to that broker: it comes behind all others."""
        self._ready_for[queue] = node_id
        self.ready.setdefault(node_id, {})[queue] = None

    def unready(self, queue: PartitionQueue) -> None:
        """``queue`` has no place among those that are ready."""
        node_id = self._ready_for.pop(queue, None)
        if node_id is not None:
            ready = self.ready[node_id]
            del ready[queue]
            if not ready:
                del self.ready[node_id]

    def trouble_of(self, queue: PartitionQueue) -> str:
        """Why nothing of ``queue`` can be sent at the moment, where that is known. Any thread may ask."""
        node_id = self._ready_for.get(queue)
        return queue.trouble if node_id is None else self.unreachable.get(node_id, queue.trouble)

    def node_served(self, node_id: int) -> None:
        """A request to that broker was made: all others come before it the next time."""
        ready = self.ready.pop(node_id, None)
        if ready is not None:
            self.ready[node_id] = ready

    def rest(self, queue: PartitionQueue, until: float) -> None:
        """Nothing of ``queue`` can be sent before that time, unless something happens to it.

        An alarm that is not needed any more stays, and costs one look in vain. It serves the batches behind its own: so
        a partition that fills a batch each millisecond sets one alarm in each linger time, not a thousand.
        """
        self._awake.pop(queue, None)
        self._alarms.set(queue, until)

    def wake(self, queue: PartitionQueue) -> None:
        """Something has happened to ``queue``: it may be that its next batch can be sent now."""
        if queue.waiting and queue not in self._ready_for:
            self._awake[queue] = None
            self._some_woke = True

    def stays_awake(self, queue: PartitionQueue) -> None:
        """It was looked at in vain, and nobody knows until when. Whoever does wakes the sender."""
        if queue.waiting:
            self._awake[queue] = None

    def look_again(self, queue: PartitionQueue) -> None:
        """Something has happened to ``queue``: it may be that its next batch can be sent now, or can't any more."""
        self.unready(queue)
        self.wake(queue)

    def wake_all(self) -> None:
        """Look at each anew."""
        self._awake = dict(self._active)
        self._left = 0  # a round begins
        self._ready_for.clear()
        self.ready.clear()

    @property
    def wakes_at(self) -> float:
        """When the next of those that rest is to be looked at, or the next batch expires."""
        return min(self._alarms.next_at, self.expiry.next_at)

    # What is counted

    def counted(self) -> Counted:
        """Return what was counted so far.

        Another thread than the loop's may ask: where a partition is forgotten meanwhile, it looks again, so that its
        figures count neither twice nor not at all.
        """
        while True:
            version = self._version
            found = _sum(self._forgotten, list(self.known.values()))
            if self._version == version and version % 2 == 0:
                return found

    @property
    def unanswered(self) -> int:
        """How many batches have no outcome yet."""
        return sum(sum(1 for _ in queue.unfinished()) for queue in self._active)


def _sum(counted: Counted, queues: list[PartitionQueue]) -> Counted:
    appended, renumbered, begun_anew = counted
    for queue in queues:
        appended += queue.appended
        renumbered += queue.renumbered
        begun_anew += queue.begun_anew
    return Counted(appended, renumbered, begun_anew)
