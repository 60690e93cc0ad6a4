"""RecordAccumulator: the records that wait to be sent, as batches by partition, and when and where each batch goes.

Kafka's RecordAccumulator. It appends, says what is ready, hands batches out for a request, takes back what failed, and
ends what took too long. What each answer of a broker means is decided in settling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Final
from uuid import UUID

from ...records.encoding.batch_builder import BATCH_OVERHEAD, ClosedBatch, OpenBatch
from ...types import HeadersToSend, TopicPartition
from ..cluster.snapshot import Cluster
from ..connection.late_alarm import seconds_to_read
from .batch import Flushes, FlushMark, Held, Outcome, ProducerBatch, Stored
from .batch_memory import BATCH_COST, BatchMemory
from .compression.ratios import CompressionRatios
from .compression.to_compress import ToCompress
from .counters import ProduceCounters
from .failure import Cause, Failure, not_compressed, recreated
from .partition_queue import PartitionQueue
from .partition_queues import MOST_LOOKED_AT, PartitionQueues, Ready
from .session import ProducerSession

#: So many batches go into one request at most: to take, encode and settle them takes about a millisecond each time.
MOST_BATCHES: Final = 128
_BATCH_BEGINS: Final = BATCH_COST + BATCH_OVERHEAD  # what a batch takes beside its records


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorOptions:
    """Sizes in bytes, times in seconds. ``window``: how many batches of a partition may be in flight."""

    batch_size: int = 16_384
    buffer_memory: int = 32 << 20
    max_request_size: int = 1 << 20
    linger: float = 0.005
    delivery_timeout: float = 120.0
    window: int = 5
    codec: int = 0
    level: int | None = None


class RecordAccumulator:
    """All batches of one producer that have no outcome yet.

    ``used`` is the memory that they take. ``finished`` collects the batches that have got their outcome: the driver
    takes them and tells who waits. ``news`` says that an append has given the sender something to look at.
    ``to_compress`` has the batches that the driver is to have compressed in a thread, and to hand to ``compressed``:
    until then no other batch of their partitions is sent. ``splits`` has what splits the batches that brokers found too
    large, in steps, which the driver has ``split_further`` take; the same is true of their partitions.
    """

    def __init__(self, options: AccumulatorOptions, session: ProducerSession, pause: Callable[[int], float]) -> None:
        """``pause(attempts)``: how many seconds to wait after the last of so many failed attempts."""
        self.options = options
        self.session = session
        self.pause = pause
        self.batch_memory = BatchMemory(options.buffer_memory)
        self.memory = self.batch_memory.buffer
        self.finished: list[ProducerBatch] = []
        self.to_compress = ToCompress(options.codec, options.level, options.max_request_size)
        self.splits: deque[Iterator[ProducerBatch]] = deque()
        self.news = False
        self.counters = ProduceCounters()
        self.owner: object = None  # the event loop of the driver, for its batches
        self.grown = 0  # by how many bytes the last append has made its batch longer, header included
        self.ratios = CompressionRatios()
        self.queues = PartitionQueues()
        self._flushes = Flushes()
        self._held = Held(-inf, -inf)  # the last time that something has held the loop
        self._number = 0
        self._look_at = inf  # when the sender looks again at the latest
        self._seen: Cluster | None = None  # what ``ready`` was asked about last
        self._hurries = False  # whether it was to hurry
        self._transactional = session.transactional_id is not None

    # Appending

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        """Return the batches of a partition: always the same object."""
        found = self.queues.known.get(tp)
        return self.queues[tp] if found is None else found

    def forget(self, topic: str, partitions: int) -> bool:
        """Let go of a topic that nothing was sent to for long, as far as its partitions are at rest.

        Brokers remember the sequences of each, so the next record of such a partition needs another epoch. Return
        whether all are let go of: where the session has to keep the epoch for now, they are not.
        """
        self.ratios.forget(topic)
        return self.queues.forget(topic, partitions, self.session.may_forget)

    @property
    def used(self) -> int:
        """The bytes that all records take, and what describes them. The batches count what is appended to them."""
        return self.memory.used

    @used.setter
    def used(self, size: int) -> None:
        self.memory.used = size

    def has_room(self, size: int) -> bool:
        """Whether a record of ``size`` bytes at most may be appended within buffer_memory."""
        return size <= self.room()

    def room(self) -> int:
        """Return how many bytes a record may have within buffer_memory, where it begins a batch."""
        return self.options.buffer_memory - self.memory.used - _BATCH_BEGINS

    @staticmethod
    def cost(size: int) -> int:
        """Return how much memory a record of ``size`` bytes takes at most: if it begins a batch."""
        return size + _BATCH_BEGINS

    def append(
        self,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeadersToSend,
        now: float,
    ) -> ProducerBatch:
        """Append a record, and return its batch: it is the last one there. ``has_room`` was asked before."""
        waiting = queue.waiting
        batch = waiting[-1] if waiting else None
        if batch is None or batch.sealed or batch.open is None or not batch.open.append(timestamp, key, value, headers):
            first = self.opened(queue.tp.topic)
            first.append(timestamp, key, value, headers)  # where this raises, there is no batch yet
            batch = self.begin(queue, first, now)
        opened = batch.open
        assert opened is not None
        self._note(queue, batch, opened)
        batch.taken_in = opened.count
        return batch

    def _note(self, queue: PartitionQueue, batch: ProducerBatch, opened: OpenBatch) -> None:
        """``grown`` is what was appended to the batch since the last time. It is in ``used`` already."""
        self.grown, batch.memory = opened.size - batch.memory, opened.size
        if opened.is_full and not batch.sealed:
            self.seal(queue)

    def look_at(self, queue: PartitionQueue) -> OpenBatch | None:
        """Take note of what was appended to the last batch of a partition, by whatever way, and return that batch.

        None: the next record begins another one.
        """
        opened, self.grown = queue.appender, 0
        if opened is not None:
            batch = queue.waiting[-1]
            self._note(queue, batch, opened)
            batch.taken_in = opened.count
        return None if opened is None or queue.waiting[-1].sealed else opened

    def seal(self, queue: PartitionQueue) -> None:
        """No record is added to the partition's last batch any more: it is sent without linger."""
        queue.waiting[-1].seal()
        self.queues.wake(queue)
        self.news = True

    def take_in(self, queue: PartitionQueue) -> tuple[ProducerBatch, int, int] | None:
        """Take in what was appended to ``queue.appender`` itself: return its batch, the first index, and how many.

        None: there was nothing.
        """
        opened, self.grown = queue.appender, 0
        if opened is None or opened.count == (batch := queue.waiting[-1]).taken_in:
            return None
        start, batch.taken_in = batch.taken_in, opened.count
        self._note(queue, batch, opened)
        return batch, start, batch.taken_in - start

    def opened(self, topic: str) -> OpenBatch:
        """Return what a batch of the topic is made of: nothing is sent of it before ``begin``."""
        options = self.options
        capacity = self.ratios.capacity(topic, options.batch_size) if options.codec else options.batch_size
        return OpenBatch(options.codec, options.level, capacity, self._transactional, self.memory)

    def begin(self, queue: PartitionQueue, opened: OpenBatch, now: float) -> ProducerBatch:
        """Put a batch with records behind those of the partition, of which the last one is full: it need not linger."""
        options, last = self.options, queue.waiting[-1] if queue.waiting else None
        due, expires_at = now + options.linger, now + options.delivery_timeout
        self.queues.gets_batch(queue, expires_at)
        if last is not None and not last.sealed:
            last.seal()
            self.news = True
        elif due < self._look_at or self._hurries:
            self.news = True
        elif not queue:  # the sender comes in time as it is, and nothing else keeps it from sending this
            self.queues.rest(queue, due)
        self._number += 1
        batch = ProducerBatch(queue.tp, (self._number,), now, opened)
        batch.topic_id, batch.owner, batch.expires_at = queue.topic_id, self.owner, expires_at
        self._flushes.begun(batch)
        self.batch_memory.begins(batch)
        queue.begun(batch)
        return batch

    # What is ready

    def ready(self, cluster: Cluster, now: float, *, hurry: bool) -> Ready:
        """Look at some of the partitions, and return what can be sent now.

        ``hurry``: without linger, since memory is wanted or the producer closes. What has become ready by that stays
        so.
        """
        hurry = hurry or self.session.hurries
        self.to_compress.turn_begins()
        if cluster is not self._seen or (hurry and not self._hurries):
            self.queues.wake_all()
        self._seen, self._hurries = cluster, hurry
        without_leader: list[PartitionQueue] = []
        renumbered: list[TopicPartition] = []
        for queue in self.queues.to_look_at(now):
            topic = cluster.topics.get(queue.tp.topic)
            if topic is not None and topic.topic_id is not queue.topic_id:
                self.learn_topic_id(queue, topic.topic_id)
            if not queue.waiting:  # an answer or an append comes next
                continue
            before = queue.renumbered
            may_go_on = queue.resolve(self.session)
            if queue.renumbered > before:
                renumbered.append(queue.tp)
            if queue.given_up:
                self._fail_given_up(queue)
            leader = None if topic is None else topic.partitions.get(queue.tp.partition)
            if not may_go_on or not queue.waiting:
                self.queues.stays_awake(queue)
            elif leader is None or leader.leader is None or leader.leader not in cluster.brokers:
                without_leader.append(queue)
                self.queues.stays_awake(queue)
            else:
                epoch = -1 if leader.leader_epoch is None else leader.leader_epoch
                self._place(queue, leader.leader, epoch, now)
        self._look_at = self.queues.wakes_at
        return Ready(self.queues.ready, self._look_at, self.queues.round_is_over, without_leader, renumbered)

    def _place(self, queue: PartitionQueue, node_id: int, epoch: int, now: float) -> None:
        """Put a partition among those that are ready, or that rest, or that are looked at again each time."""
        options, session = self.options, self.session
        hurry, window = self._hurries, options.window
        at = queue.sendable_at(now, node_id, epoch, linger=options.linger, window=window, hurry=hurry)
        if now < at < inf:
            self.queues.rest(queue, at)
        elif at <= now and session.may_drain(queue.tp) and queue.has_identity(session):
            self.queues.place_ready(queue, node_id)
        else:  # the answer, the thread or the session wakes the sender
            self.queues.stays_awake(queue)

    def take_at_rest(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        """Take the only batch there is, without linger, for the leader that got the partition's last one.

        None: ``ready`` and ``drain`` have to look, since they might do something else.
        """
        session, batch, sequences = self.session, queue.waiting[0], queue.sequences
        is_well = session.doom is None and not (queue.lost_sequence or queue.unresolved or self.finished)
        if not is_well or now >= self.queues.expiry.next_at or batch.open is None or batch.closing:
            return None
        if session.numbered and sequences.identity != session.identity:
            return None
        self.news = False
        if self.options.codec:
            self.to_compress.turn_begins()
        if not session.may_drain(queue.tp) or not self._close(queue, batch):
            return None
        if session.numbered:
            batch.identity, batch.sequence = sequences.identity, sequences.take(batch.count)
        queue.sent_again(batch)
        self.queues.unready(queue)
        session.sent(queue.tp)
        return batch

    def _fail_given_up(self, queue: PartitionQueue) -> None:
        """The partition has begun anew without some batches: sent again, they might be stored twice."""
        given_up, queue.given_up = queue.given_up, []
        for batch in given_up:
            self.fail(queue, batch, Failure(Cause.UNCLEAR, batch.last_code, batch.last_text))

    def learn_topic_id(self, queue: PartitionQueue, topic_id: UUID | None) -> None:
        """The metadata name the topic's id: where it is another one, what was appended for the old topic fails.

        Its records may not land in the successor, which has nothing of what was before them. Batches in flight fail
        with their answers, unless the old topic has stored them.
        """
        if topic_id is None or topic_id == queue.topic_id:
            return
        before, queue.topic_id = queue.topic_id, topic_id
        if before is None:
            for batch in queue.unfinished():
                batch.topic_id = topic_id
            return
        self.fail_waiting(recreated(), [queue])
        # Where Produce goes by name (before Kafka 4.1):
        # 1. The topic is recreated. The metadata do not show it yet.
        # 2. A record is sent by name, with sequence 0. The new topic stores it.
        # 3. The metadata name the new id. If the sequences began at 0 again, the next record would have the sequence of
        #    the one that is stored, and the broker would acknowledge it as that, and store nothing.
        # So they go on. A broker takes any first sequence of a producer that it does not know (KIP-360), but in a
        # transaction of version 2, which then ends in an abort if it has written to the old topic. A transaction has no
        # other identity to give, so what is under way there does not make it wait for one.
        queue.probing = True
        if queue.in_flight and self.session.renumbers:
            queue.lost_sequence = True

    def drain(
        self, node_id: int, queues: Iterable[PartitionQueue], cluster: Cluster, now: float
    ) -> list[ProducerBatch]:
        """Take the first batch of each of these ready partitions for one request to its leader.

        It ends with MOST_BATCHES, or where the request would be longer than max_request_size; but a first batch goes
        whatever its size. A partition of which nothing can be sent any more is looked at again.
        Partitions that are served come last the next time, so none waits for ever behind others.
        """
        taken: list[ProducerBatch] = []
        size = 0
        for queue in list(queues):
            if len(taken) == MOST_BATCHES:
                break
            info = cluster.partition(queue.tp)
            epoch = -1 if info is None or info.leader_epoch is None else info.leader_epoch
            if not queue.is_sendable(self.session, now, node_id, epoch, window=self.options.window):
                self.queues.look_again(queue)
                continue
            batch = queue.waiting[0]
            if not self._close(queue, batch):
                if batch.outcome is None and not batch.closing:  # threads have enough to compress: one of them wakes us
                    break
                self.queues.look_again(queue)
                continue
            if taken and size + batch.size > self.options.max_request_size:
                break
            if not queue.number(batch, self.session):
                self.queues.look_again(queue)
                continue
            queue.sent(batch, node_id, epoch)
            self.session.sent(queue.tp)
            size += batch.size
            taken.append(batch)
            self.queues.served(queue)
        self.queues.node_served(node_id)
        return taken

    def _close(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Compress a partition's first batch, or have that done in a thread where it would hold the loop for too long.

        Return whether the batch can be sent.
        """
        opened = batch.open
        if opened is None:
            return True
        if self.options.codec and not self.to_compress.goes_at_once(batch, opened):
            return False
        try:
            closed = batch.close()
        except Exception as error:
            self._not_compressed(queue, batch, error)
            return False
        if self.options.codec:
            self._closed(batch)
        else:
            batch.memory = closed.size
        return True

    def compressed(self, batch: ProducerBatch, opened: OpenBatch, result: ClosedBatch | Exception) -> None:
        """A thread has compressed one of ``to_compress``, or has failed to."""
        self.to_compress.done(batch, opened)
        if batch.outcome is not None:  # it has expired, or the transaction was aborted
            return
        if isinstance(result, ClosedBatch):
            batch.closed_as(result)
            self._closed(batch)
        else:
            self._not_compressed(self.queue(batch.tp), batch, result)

    def _not_compressed(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        """There is no memory, or the codec's package is not installed: the others are not harmed by that."""
        queue.waiting.remove(batch)
        self.fail(queue, batch, not_compressed(batch.tp, error))

    def _closed(self, batch: ProducerBatch) -> None:
        """A batch was compressed: learn from its size, and give back the memory that it does not need any more."""
        if batch.closed is None or batch.memory < 0:
            return
        self.ratios.closed(batch.tp.topic, batch.closed.payload_size, batch.closed.size - BATCH_OVERHEAD)
        self.batch_memory.compressed(batch)

    # Flushing and ending

    def flush(self) -> FlushMark:
        """Have all that was appended so far sent without linger; return what says when it is done."""
        for queue in self.queues.active:
            self.queues.wake(queue)
            for batch in reversed(queue.waiting):
                if not self._flushes.is_new(batch):  # a flush before has sealed it, and all in front of it
                    break
                batch.urgent = True
                batch.seal()
        return self._flushes.begin()

    def expire(self, now: float, *, late: float = 0.0) -> None:
        """End batches whose time is over, as many as one step may look at.

        Those in flight keep their place until they are answered. Where this comes ``late``, they have some time more.
        """
        if more := seconds_to_read(late):
            self._held = Held(now, max(self._held.until, now + more))  # what an earlier hold has given stays
        at_once = MOST_LOOKED_AT
        for queue in self.queues.expiry.ringing(now):
            overdue = list(islice(queue.overdue(now), at_once))
            at_once -= len(overdue)
            for batch in overdue:
                if not batch.put_off(self._held, now):
                    self._expire(queue, batch)
            self.queues.expiry.set(queue, queue.expires_at)  # if more are overdue, it rings in the next step

    def _expire(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self.counters.expired += 1
        trouble = self.session.trouble or self.queues.trouble_of(queue) or batch.still_to_be
        if batch.last_text and trouble:  # credentials were refused since, for instance
            trouble = f"{batch.last_text}; since then: {trouble}"
        failure = Failure(Cause.EXPIRED, batch.last_code, trouble or batch.last_text)
        if batch not in queue.in_flight:
            queue.waiting.remove(batch)
            return self.fail(queue, batch, failure)
        queue.unresolved = queue.unresolved or batch.is_numbered
        self.fail(queue, batch, failure.maybe())

    def fail_waiting(self, failure: Failure, queues: Iterable[PartitionQueue] | None = None) -> None:
        """Every batch that is not in flight gets ``failure`` as its outcome: those of all partitions, or of these."""
        for queue in list(self.queues.active if queues is None else queues):
            waiting = list(queue.waiting)
            queue.waiting.clear()
            for batch in waiting:
                self.fail(queue, batch, failure)

    def fail_all(self, failure: Failure) -> None:
        """Every batch gets ``failure`` as its outcome; those that were sent may be stored. No answer is waited for."""
        for queue in self.queues.active:
            in_flight = list(queue.in_flight)
            queue.in_flight.clear()
            for batch in in_flight:
                self.fail(queue, batch, failure.maybe())
        self.fail_waiting(failure)

    # Outcomes, for settling

    def fail(self, queue: PartitionQueue, batch: ProducerBatch, failure: Failure) -> None:
        """The batch is not sent again. What an earlier attempt may have stored is still in the log, then."""
        if batch.outcome is None:
            failure = failure.maybe() if batch.unclear else failure
            self.session.failed(batch.tp, failure)
            self._end(batch, failure)
        if batch not in queue.in_flight:
            queue.dropped(batch)
            self.left(queue, batch)

    def store(self, queue: PartitionQueue, batch: ProducerBatch, stored: Stored) -> None:
        """The broker has the batch, maybe after its delivery_timeout: then its outcome stays what it was."""
        queue.stored(batch)
        if batch.outcome is None:
            self._end(batch, stored)
        self.left(queue, batch)

    def put_back(self, queue: PartitionQueue, batch: ProducerBatch, retry_at: float) -> None:
        """An attempt has failed, and the batch is to be sent again."""
        queue.put_back(batch, retry_at)
        self.queues.look_again(queue)

    def replace(self, queue: PartitionQueue, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """``parts`` take the place of a batch that was too large, in front of all that wait."""
        batch.split_into(parts)  # this first: where it raises, nothing has changed
        self._flushes.split(batch)
        queue.waiting.remove(batch)
        self.batch_memory.left(batch)
        queue.left(batch)
        for part in reversed(parts):  # so that none has to pass the others on its way to the front
            self.batch_memory.begins_part(part)
            queue.insert(part)
        self.queues.wake(queue)
        self.counters.splits += 1

    def _end(self, batch: ProducerBatch, outcome: Outcome) -> None:
        batch.outcome = outcome
        self.counters.ended(batch)
        self.finished.append(batch)
        self._flushes.ended(batch)

    def left(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The batch is in no queue any more."""
        self.batch_memory.left(batch)
        queue.left(batch)
        self.queues.lost_batch(queue)
