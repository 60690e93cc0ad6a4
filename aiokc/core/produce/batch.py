"""ProducerBatch: one batch of one partition, from its first record until the broker's last answer about it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from ...error_codes import error_name
from ...records.encoding.batch_builder import ClosedBatch, OpenBatch
from ...types import TopicPartition
from .failure import Failure
from .identity import NO_SEQUENCE, NOBODY, ProducerIdentity


class Stored(NamedTuple):
    """The outcome of a batch that is in the log.

    ``base_offset`` is None where the broker does not say it (acks=0, a duplicate). ``append_time`` (ms) replaces the
    records' timestamps; None: they keep their own.
    """

    base_offset: int | None
    append_time: int | None = None


Outcome: TypeAlias = Stored | Failure
#: Where a batch stands among those of its partition. The parts of a split batch have one number more than it.
Number: TypeAlias = tuple[int, ...]


class Held(NamedTuple):
    """Something has held the loop: what was overdue when that was ``seen_at`` expires at ``until``, all of it.

    To look at all of it takes many steps. None of them gives what comes last more time than what came first.
    """

    seen_at: float
    until: float


_SWAPPED: Final = bytes.maketrans(b"\0\1", b"\1\0")
#: In the first one the loop reads what has come, and the batch is sent if it never was; in the second one the answer to
#: that is read. The third one is for what has to come before: a connection, or the partition's place in a transaction.
_MOST_REPRIEVES: Final = 3


class ProducerBatch:
    """The records of one partition that are sent together.

    It is open until it is full, sent or flushed; then sealed: no record is added. ``closed`` has its bytes once they
    are compressed. Its ``outcome`` is set once and for ever. Where a broker took it for too large, its ``parts`` have
    the outcomes: batches that hold its records in order.

    ``number`` orders the batches of a partition, ``created`` is when its first record was appended (loop time), and
    from ``expires_at`` on it is not tried any more.
    ``sequence`` and ``identity`` are set when it is first drained, and are frozen while it may be in the log under
    them. ``unclear``: an attempt has ended so that the batch may be in the log. ``waiting`` and ``callbacks`` belong to
    the driver: what is to be told of a record's outcome, and the record's index. They move to the parts in a split. Who
    is ``waiting`` stays there until it has seen the outcome, or gives up; ``callbacks`` until they are called.
    """

    __slots__ = (
        "_count",
        "_counted",
        "_sealed",
        "attempts",
        "callbacks",
        "closed",
        "closing",
        "created",
        "expires_at",
        "first_flush",
        "has_left",
        "identity",
        "last_code",
        "last_text",
        "memory",
        "number",
        "observed",
        "on_given_up",
        "open",
        "outcome",
        "owner",
        "parts",
        "reprieves",
        "retry_at",
        "sequence",
        "starts",
        "taken_in",
        "topic_id",
        "tp",
        "unclear",
        "urgent",
        "waiting",
        "watched",
    )

    def __init__(self, tp: TopicPartition, number: Number, created: float, batch: OpenBatch) -> None:
        self.tp, self.number, self.created = tp, number, created
        self.expires_at = inf
        self.reprieves = 0  # how often ``expires_at`` was put off
        self.open: OpenBatch | None = batch
        self.closed: ClosedBatch | None = None
        self.closing = False  # a thread compresses it, or it is being split: nothing is sent of it until that is done
        self._sealed = False
        self.urgent = False  # a flush waits for it: no linger
        self._count = 0
        self.taken_in = 0  # the records of it that send_many() has told of, or that are of others
        self.topic_id: UUID | None = None  # of the topic that it was appended for, where that is known
        self.identity: ProducerIdentity = NOBODY
        self.sequence = NO_SEQUENCE
        self.attempts = 0
        self.retry_at = 0.0
        self.unclear = False
        self.last_code = 0
        self.last_text = ""
        self.memory = 0  # what it takes of buffer_memory, beside BATCH_COST; -1: nothing any more
        self.has_left = False  # its queue: nothing is sent of it, or answered, any more
        self.outcome: Outcome | None = None
        self.parts: Sequence[ProducerBatch] = ()
        self.starts: Sequence[int] = ()  # the index of each part's first record
        self.waiting: dict[Any, int] = {}
        self.callbacks: list[tuple[int, Any]] = []
        self.observed = bytearray()  # by index: 1 for a record whose failure somebody has been told of, or will be
        self._counted = 0  # the bytes of ``_seen`` as a number: 1 for a record that count_unobserved() has counted
        self.watched: dict[tuple[object, int, int], None] = {}  # by whom, from which record on, and how many
        self.on_given_up: Callable[[ProducerBatch], None] | None = None  # who was to see a failure does not any more
        self.owner: object = None  # the event loop that has it; only the driver knows what that is
        self.first_flush = 0  # the number of the first flush that waits for it

    @property
    def count(self) -> int:
        """How many records it has. They are appended to ``open`` by single sends in C, too. Any thread may ask."""
        opened = self.open
        return self._count if opened is None else opened.count

    @property
    def sealed(self) -> bool:
        """Whether no record is added any more."""
        return self._sealed

    def seal(self) -> None:
        self._sealed = True
        if self.open is not None:
            self.open.seal()

    @property
    def size(self) -> int:
        """The length of its frame: once compressed exactly, before that at most."""
        if self.closed is not None:
            return self.closed.size
        return self.open.size if self.open is not None else 0

    @property
    def is_numbered(self) -> bool:
        return self.sequence != NO_SEQUENCE

    @property
    def last_error(self) -> str:
        """What the last attempt has failed by; "" before one has."""
        if not self.last_code:
            return ""
        return f"{error_name(self.last_code)}{self.last_text and f' ({self.last_text})'}"

    @property
    def still_to_be(self) -> str:
        """What a thread, or the loop in steps, is still to make of it before it can be sent; "": nothing."""
        if not self.closing:
            return ""
        return f"it was still to be {'compressed' if self.closed is None else 'split'}"

    def put_off(self, held: Held, now: float) -> bool:
        """Its time is over: let it expire later if that was so after the loop was held; return whether it does.

        Only so often: it expires also where something holds the loop again and again.
        """
        if self.reprieves >= _MOST_REPRIEVES or self.expires_at > held.seen_at or held.until <= now:
            return False
        self.reprieves += 1
        self.expires_at = held.until
        return True

    def close(self) -> ClosedBatch:
        """Compress it, and return what it has become."""
        assert self.open is not None, "it is closed once"
        self._sealed = True
        closed = self.open.close()
        self._count, self.closed, self.open = closed.count, closed, None
        return closed

    def closed_as(self, closed: ClosedBatch) -> None:
        """``closed`` was made of its records."""
        self._count, self.closed, self.open = closed.count, closed, None

    def forget(self) -> None:
        """Let go of its records: only their number is kept.

        Whoever appends to the partition refers to ``open`` until the next batch begins there, so its bytes are dropped,
        too. A thread that is about to compress them finds none, and what it raises is not looked at.
        """
        if self.open is not None:
            self.seal()
            self._count = self.count
            with suppress(ValueError, MemoryError):  # a thread has them already; they were lost before
                self.open.take()
        self.open = self.closed = None

    def frame(self) -> bytearray:
        """Return its bytes as they are sent: the same ones in each attempt under the same sequence."""
        assert self.closed is not None, "close() comes first"
        return self.closed.frame(self.identity.producer_id, self.identity.epoch, self.sequence)

    def find(self, index: int) -> tuple[ProducerBatch, int]:
        """Return the batch that holds the record now, and its index there: another one after a split."""
        batch = self
        while batch.parts:
            at = bisect_right(batch.starts, index) - 1
            index -= batch.starts[at]
            batch = batch.parts[at]
        return batch, index

    def split_into(self, parts: list[ProducerBatch]) -> None:
        """``parts`` hold its records from now on, and have taken over who waits for them.

        Where there is no memory for that, it raises, and the batch is what it was.
        """
        self.parts, self.starts = parts, [0, *accumulate(part.count for part in parts[:-1])]
        try:
            self._hand_over()
        except BaseException:
            self.parts, self.starts = (), ()
            raise
        self.waiting, self.callbacks, self.watched = {}, [], {}
        self.forget()

    def _hand_over(self) -> None:
        for part, at, waiter in self._in_parts((index, waiter) for waiter, index in self.waiting.items()):
            part.waiting[waiter] = at
        for part, at, callback in self._in_parts(self.callbacks):
            part.callbacks.append((at, callback))
        for watcher, first, count in self.watched:
            self._watch_parts(watcher, first, first + count)
        for part, first in zip(self.parts, self.starts, strict=True):
            part.observed, part.owner = self.observed[first : first + part.count], self.owner
            part.first_flush = self.first_flush
            part.expires_at, part.reprieves = self.expires_at, self.reprieves

    def _in_parts(self, what: Iterable[tuple[int, Any]]) -> Iterator[tuple[ProducerBatch, int, Any]]:
        """What belongs to records by their index, with the part that has the record, and the index there.

        Thousands of records may have a callback each. Most of these come in order, so few need a search.
        """
        part, start, end = self, 0, 0
        for index, one in what:
            if not start <= index < end:
                at = bisect_right(self.starts, index) - 1
                part, start = self.parts[at], self.starts[at]
                end = start + part.count
            yield part, index - start, one

    # Who has seen that its records failed

    def call_when_done(self, index: int, callback: Any) -> None:
        """The callback is told of the record's outcome, which must not be known yet, and so sees a failure."""
        self.callbacks.append((index, callback))
        self.observe(index)

    def observe(self, first: int, count: int = 1) -> None:
        """Somebody is told of a failure of these records."""
        missing = first + count - len(self.observed)
        if missing == 1 == count:  # callbacks come one by one
            self.observed.append(1)
            return
        if missing > 0:
            self.observed.extend(bytes(missing))
        self.observed[first : first + count] = b"\1" * count

    def observe_all(self) -> None:
        """Whoever has not seen yet that its record failed is told in another way. Who waits sees it, or gives up."""
        seen = self.observed.ljust(self.count, b"\0")
        self.observed = bytearray(b"\1" * self.count)
        for first, count in self._promised():
            self.observed[first : first + count] = seen[first : first + count]

    def watch(self, watcher: object, first: int, count: int) -> None:
        """The watcher sees a failure of these records, unless it gives up: by ``unwatch``."""
        self.watched[watcher, first, count] = None

    def unwatch(self, watcher: object, first: int, count: int, *, has_seen: bool) -> None:
        self.watched.pop((watcher, first, count), None)
        if not has_seen:
            self._given_up()

    def waits_no_more(self, waiter: object, *, has_seen: bool) -> None:
        """One of ``waiting`` was told of the outcome, or gives up."""
        self.waiting.pop(waiter, None)
        if not has_seen:
            self._given_up()

    def _given_up(self) -> None:
        if self.on_given_up is not None:
            self.on_given_up(self)

    def _watch_parts(self, watcher: object, first: int, end: int) -> None:
        for at in range(bisect_right(self.starts, first) - 1, bisect_left(self.starts, end)):
            part, start = self.parts[at], self.starts[at]
            begin, until = max(first, start), min(end, start + part.count)
            part.watch(watcher, begin - start, until - begin)

    def _promised(self) -> Iterator[tuple[int, int]]:
        """The records that somebody waits for who has not seen yet what became of them."""
        for index in list(self.waiting.values()):  # any thread may ask
            yield index, 1
        for _, first, count in list(self.watched):
            yield first, count

    def _seen(self) -> bytearray:
        """By index: 1 for a record whose failure somebody has seen, or is about to see."""
        seen = self.observed.ljust(self.count, b"\0")
        for first, count in self._promised():
            seen[first : first + count] = b"\1" * count
        return seen

    def count_unobserved(self) -> int:
        """Return of how many records nobody sees the failure, without those that an earlier call has counted."""
        unseen = int.from_bytes(self._seen().translate(_SWAPPED))
        fresh = unseen & ~self._counted
        self._counted |= unseen
        return fresh.bit_count()

    def first_unobserved(self) -> int | None:
        """Return the index of the first record whose failure nobody sees."""
        found = self._seen().find(0)
        return None if found < 0 else found

    def __repr__(self) -> str:
        return f"<ProducerBatch {self.tp} {self.number}: {self.count} records, sequence {self.sequence}>"


class Flushes:
    """Which batches each flush waits for: those that were begun before it, and have no outcome yet.

    A batch only knows the number of the first flush that waits for it, and all later ones do, too. How many batches
    have each number is counted. So a flush that timed out, or was cancelled, leaves nothing behind.
    """

    def __init__(self) -> None:
        self._next = 0
        self._unfinished: dict[int, int] = {}  # by number, in order: only the newest one is ever added

    def begun(self, batch: ProducerBatch) -> None:
        batch.first_flush = self._next
        self._unfinished[self._next] = self._unfinished.get(self._next, 0) + 1

    def ended(self, batch: ProducerBatch) -> None:
        """The batch has got its outcome."""
        self._unfinished[batch.first_flush] -= 1
        if not self._unfinished[batch.first_flush]:
            del self._unfinished[batch.first_flush]

    def split(self, batch: ProducerBatch) -> None:
        """Its parts are waited for in its stead."""
        self._unfinished[batch.first_flush] += len(batch.parts) - 1

    def is_new(self, batch: ProducerBatch) -> bool:
        """Whether no flush waits for the batch."""
        return batch.first_flush == self._next

    def begin(self) -> FlushMark:
        """A flush begins: it waits for all that were begun so far."""
        self._next += 1
        return FlushMark(self, self._next - 1)

    def is_done(self, number: int) -> bool:
        return next(iter(self._unfinished), self._next) > number


class FlushMark(NamedTuple):
    """One flush, by its number among all. ``done``: all batches that it waits for have their outcome."""

    flushes: Flushes
    number: int

    @property
    def done(self) -> bool:
        return self.flushes.is_done(self.number)
