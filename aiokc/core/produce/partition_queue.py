"""The batches of one partition: waiting in order, in flight, and what must happen before the next one may be sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from math import inf
from uuid import UUID

from ...records.encoding.batch_builder import OpenBatch
from ...types import TopicPartition
from .batch import Number, ProducerBatch
from .identity import NO_SEQUENCE, NOBODY, ProducerIdentity, Sequences
from .session import ProducerSession


class PartitionQueue:
    """One partition's batches without an outcome, and its sequences.

    ``waiting`` is in order of the records. Batches that come back for another attempt are put in front of later ones.
    ``in_flight`` are those that a broker was sent and has not answered, in the order in which they were sent. A batch
    that expired in flight keeps its place there, with its outcome, until its answer has come.

    ``lost_sequence``: a numbered batch of it will never be acknowledged, or its broker counts otherwise than we do. So
    no batch is sent until those in flight are answered; then the partition begins anew under another identity.
    ``unresolved``: the same may be so: a batch expired that was sent, and its answer is still due. ``given_up``
    are batches that may be stored and that the session does not number anew: whoever calls ``resolve`` fails them.
    """

    __slots__ = (
        "_appended",
        "begun_anew",
        "given_up",
        "in_flight",
        "leader",
        "leader_epoch",
        "lost_sequence",
        "probing",
        "renumbered",
        "sequences",
        "topic_id",
        "tp",
        "trouble",
        "unresolved",
        "waiting",
        "was_used",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.topic_id: UUID | None = None  # the newest one that metadata have named
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: dict[ProducerBatch, None] = {}
        self.sequences = Sequences()
        self.lost_sequence = False
        self.unresolved = False
        self.given_up: list[ProducerBatch] = []
        # One batch at a time, until one is stored: after a failure, with a new leader, and with a new producer id. Of a
        # producer that it does not know a broker takes any sequence: a later batch could be stored without the first.
        self.probing = False
        self.leader: int | None = None
        self.leader_epoch = -1
        self.trouble = ""  # why nothing can be sent at the moment, but for what is known of its broker
        # Records of batches before the newest one; and that one, until it leaves: its records may still become more.
        self._appended: tuple[int, ProducerBatch | None] = 0, None
        self.was_used = False  # whether anything was ever appended
        self.begun_anew = 0  # how often its sequences were lost
        self.renumbered = 0  # batches that got another sequence though they may be in the log under the former one

    def __len__(self) -> int:
        return len(self.waiting) + len(self.in_flight)

    def unfinished(self) -> Iterator[ProducerBatch]:
        """The batches without an outcome, in order of their records as far as they wait."""
        yield from (batch for batch in self.in_flight if batch.outcome is None)
        yield from self.waiting

    @property
    def first_number(self) -> Number | None:
        """The number of the first of its batches that has no outcome; None: there is none."""
        if not self.in_flight:
            return self.waiting[0].number if self.waiting else None
        numbers = [batch.number for batch in self.in_flight if batch.outcome is None]
        if self.waiting:
            numbers.append(self.waiting[0].number)
        return min(numbers, default=None)

    def snapshot(self) -> list[ProducerBatch]:
        """The batches without an outcome. Any thread may ask: each of both is copied in one step."""
        return [batch for batch in [*list(self.in_flight), *list(self.waiting)] if batch.outcome is None]

    @property
    def oldest(self) -> float:
        """When the first of its batches was begun that has no outcome; inf: there is none."""
        oldest = self.waiting[0].created if self.waiting else inf  # what comes back is older than what is in flight
        for batch in self.in_flight:
            if batch.outcome is None:
                return min(oldest, batch.created)
        return oldest

    def overdue(self, now: float) -> Iterator[ProducerBatch]:
        """The batches whose time is over: those in flight, and of those that wait the ones in front.

        Those that wait expire in their order, but for a few that were put off: what is behind them waits for them.
        """
        yield from (batch for batch in self.in_flight if batch.outcome is None and batch.expires_at <= now)
        yield from takewhile(lambda batch: batch.expires_at <= now, self.waiting)

    @property
    def expires_at(self) -> float:
        """When the next of its batches expires; inf: it has none without an outcome."""
        first = self.waiting[0].expires_at if self.waiting else inf
        return min([first, *(batch.expires_at for batch in self.in_flight if batch.outcome is None)])

    @property
    def appender(self) -> OpenBatch | None:
        """What the next record is appended to, if it has room; None: a batch has to begin."""
        last = self.waiting[-1] if self.waiting else None
        return None if last is None or last.sealed else last.open

    def begun(self, batch: ProducerBatch) -> None:
        """A batch comes behind all others."""
        self._appended = self.appended, batch
        self.waiting.append(batch)
        self.was_used = True

    def left(self, batch: ProducerBatch) -> None:
        """The batch is among these no more, and gets no more records."""
        if self._appended[1] is batch:
            self._appended = self.appended, None

    @property
    def appended(self) -> int:
        """How many records were ever appended. Any thread may ask: it never says less than before.

        The sum of those that are stored, that have failed and that wait may: batches go from one to another meanwhile.
        """
        before, newest = self._appended
        return before if newest is None else before + newest.count

    # Sending

    def sendable_at(self, now: float, node_id: int, epoch: int, *, linger: float, window: int, hurry: bool) -> float:
        """Return when the first batch may be sent to the leader ``node_id``; inf: not before something has happened.

        There is one, and ``resolve`` has just said that batches may be sent.
        """
        first = self.waiting[0]
        in_flight = len(self.in_flight)
        comes_back = first.attempts > 0 or first.is_numbered
        if in_flight and (in_flight >= window or comes_back or self.probing or node_id != self.leader):
            return inf  # an answer comes first, from the old leader too: else the new one would meet a gap
        if first.closing:
            return inf
        if first.attempts:
            has_moved = node_id != self.leader or epoch > self.leader_epoch
            return now if has_moved else first.retry_at  # a new leader need not be spared (KIP-951)
        is_due = hurry or first.urgent or first.sealed or len(self.waiting) > 1
        return now if is_due else first.created + linger

    def is_sendable(self, session: ProducerSession, now: float, node_id: int, epoch: int, *, window: int) -> bool:
        """Whether the first batch can still be sent, which was found ready for this leader.

        It may be some time since. A batch in flight was refused, an observer was told of another batch and its send
        was written at once, or another partition has failed, and the transaction with it.
        """
        if not self.waiting or not session.may_drain(self.tp):
            return False
        if (self.lost_sequence or self.unresolved) and (self.in_flight or not self._was_first_passed):
            return False
        return self.sendable_at(now, node_id, epoch, linger=0.0, window=window, hurry=True) <= now

    def has_identity(self, session: ProducerSession) -> bool:
        """Whether there is something to number the first batch under, where it needs that."""
        if not session.numbered or session.identity is not None:
            return True
        return any(one.is_numbered for one in self.unfinished())

    def number(self, batch: ProducerBatch, session: ProducerSession) -> bool:
        """Give the batch its sequence, unless it has one; return False while there is no identity to number under."""
        if not session.numbered or batch.sequence != NO_SEQUENCE:
            return True
        sequences = self.sequences
        current = session.identity
        if sequences.identity != current and not any(one.is_numbered for one in self.unfinished()):
            if current is None:
                return False
            self.probing = self.probing or sequences.identity.producer_id != current.producer_id
            sequences.begin(current)
        batch.identity, batch.sequence = sequences.identity, sequences.take(batch.count)
        return True

    def sent(self, batch: ProducerBatch, node_id: int, epoch: int) -> None:
        """The first waiting batch goes to the leader."""
        assert self.waiting[0] is batch
        if node_id != self.leader:
            self.probing = self.probing or self.leader is not None
        self.leader, self.leader_epoch = node_id, epoch
        self.sent_again(batch)

    def sent_again(self, batch: ProducerBatch) -> None:
        """Do as ``sent``: the leader is the one that got the last batch."""
        self.trouble = ""
        self.waiting.popleft()
        batch.attempts += 1
        self.in_flight[batch] = None

    # Answers

    def stored(self, batch: ProducerBatch) -> None:
        self.in_flight.pop(batch, None)
        self.probing = False
        if batch.identity == self.sequences.identity:
            self.sequences.acknowledged(batch.sequence, batch.count)

    def put_back(self, batch: ProducerBatch, retry_at: float) -> None:
        """An attempt has failed, and the batch is to be sent again: before all batches that come after it."""
        self.in_flight.pop(batch, None)
        self.probing = True
        batch.retry_at = retry_at
        self.insert(batch)

    def insert(self, batch: ProducerBatch) -> None:
        waiting = self.waiting
        at = 0
        while at < len(waiting) and waiting[at].number < batch.number:
            at += 1
        waiting.insert(at, batch)

    def dropped(self, batch: ProducerBatch) -> None:
        """The batch has failed for good, and is not in flight any more. Where it was passed over, it leaves no gap."""
        is_of_these = batch.is_numbered and batch.identity == self.sequences.identity
        if is_of_these and not self.has_passed(batch):
            self.lost_sequence = True

    def is_next(self, batch: ProducerBatch) -> bool:
        """Whether the batch's sequence is the one behind the last acknowledged one."""
        return batch.identity == self.sequences.identity and batch.sequence == self.sequences.expected

    def has_passed(self, batch: ProducerBatch) -> bool:
        """Whether a later batch of the same numbering is acknowledged."""
        return batch.identity == self.sequences.identity and self.sequences.has_passed(batch.sequence)

    @property
    def _was_first_passed(self) -> bool:
        return bool(self.waiting) and self.waiting[0].is_numbered and self.has_passed(self.waiting[0])

    # Sequences that can't go on

    def resolve(self, session: ProducerSession) -> bool:
        """Once nothing is in flight, find out whether a sequence was lost, and begin anew if so.

        Return whether batches may be sent again. The answers that came late may show that nothing was lost at all.
        """
        if not (self.lost_sequence or self.unresolved):
            return True
        if self.in_flight:
            return False
        if self._was_first_passed:
            # Sent again as it was, it is either a duplicate or refused. Numbered anew, it would be stored behind the
            # later one, maybe for the second time. While it waits, nothing can be told of the others.
            return True
        if self.unresolved and not self.lost_sequence:
            numbered = (batch.sequence for batch in self.waiting if batch.is_numbered)
            self.lost_sequence = self.sequences.expected != next(numbered, self.sequences.next)
            self.unresolved = False
            if not self.lost_sequence:
                return True
        identity = session.bump(self.sequences.identity)
        if identity is None:
            return False
        if not session.renumbers_unclear:
            self.given_up = [batch for batch in self.waiting if batch.is_numbered and batch.unclear]
            self.waiting = deque(batch for batch in self.waiting if not (batch.is_numbered and batch.unclear))
        self._begin_anew(identity)
        return True

    def _begin_anew(self, identity: ProducerIdentity) -> None:
        for batch in self.waiting:
            if batch.is_numbered:
                self.renumbered += batch.unclear
                batch.sequence, batch.identity = NO_SEQUENCE, NOBODY
        self.sequences.begin(identity)
        self.probing = True
        self.begun_anew += 1
        self.lost_sequence = self.unresolved = False
