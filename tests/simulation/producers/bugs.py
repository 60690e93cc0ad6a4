"""Bugs to plant in the producer on purpose: the checker of its simulation must catch each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiokc.client.produce import answers
from aiokc.client.produce.callbacks import Callbacks
from aiokc.client.produce.memory import MemoryWaiters
from aiokc.client.produce.outcomes import Outcomes
from aiokc.client.produce.sender import Sender
from aiokc.client.producer.appending import Appending
from aiokc.client.transactions.driver import TransactionDriver
from aiokc.client.transactions.session import TransactionSession
from aiokc.core.cluster.leader_hints import LeaderHints
from aiokc.core.partitioning import key_partitions
from aiokc.core.produce import verdicts
from aiokc.core.produce.accumulator import RecordAccumulator
from aiokc.core.produce.batch import ProducerBatch, Stored
from aiokc.core.produce.failure import Failure
from aiokc.core.produce.identity import NO_SEQUENCE, NOBODY, ProducerIdentity
from aiokc.core.produce.partition_queue import PartitionQueue
from aiokc.core.produce.session import ProducerSession
from aiokc.core.transactions.events import EndTxn, NotAnswered, Settled
from aiokc.core.transactions.machine import TransactionMachine
from aiokc.core.transactions.transitions import OPEN
from aiokc.error_codes import ErrorCode
from aiokc.records.encoding import batch_builder
from aiokc.records.encoding.batch_builder import ClosedBatch, OpenBatch

from ..checking.history import replaced
from .checker import murmur2


@dataclass(frozen=True)
class ProducerBug:
    """The replacements that make the bug, and the anomalies of which the checker must find one.

    ``transactional``, ``impatient`` and ``wrong_leaders`` choose the worlds. ``first`` is the first seed to try: some
    bugs show only in one world of many, and the test must be fast.
    """

    kinds: frozenset[str]
    replacements: tuple[tuple[Any, str, Any], ...]
    transactional: bool
    impatient: bool
    first: int
    wrong_leaders: bool = False


def _bug(
    kinds: str,
    *replacements: tuple[Any, str, Any],
    transactional: bool = False,
    impatient: bool = False,
    first: int = 0,
    wrong_leaders: bool = False,
) -> ProducerBug:
    return ProducerBug(
        frozenset(kinds.split(", ")), replacements, transactional, impatient, first, wrong_leaders=wrong_leaders
    )


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a bug in the producer within the block; None plants none."""
    with ExitStack() as stack:
        for target, attribute, value in PRODUCER_BUGS[name].replacements if name is not None else ():
            stack.enter_context(replaced(target, attribute, value))
        yield


# Sequences


_put_back = PartitionQueue.put_back


def _number_each_attempt(self: PartitionQueue, batch: ProducerBatch, retry_at: float) -> None:
    """The broker can't tell the second attempt from a new batch."""
    _put_back(self, batch, retry_at)
    batch.sequence, batch.identity = NO_SEQUENCE, NOBODY


def _give_back_the_sequence(self: PartitionQueue, batch: ProducerBatch) -> None:
    """The batch may be in the log, and the next one is taken for it."""
    self.in_flight.pop(batch, None)
    if batch.is_numbered and batch.identity == self.sequences.identity and not self.waiting:
        self.sequences.next = batch.sequence


_resolve = PartitionQueue.resolve


def _bump_under_in_flight(self: PartitionQueue, session: ProducerSession) -> bool:
    """Batches in flight are stored under the old epoch, and again or not at all."""
    in_flight, self.in_flight = self.in_flight, {}
    try:
        return _resolve(self, session)
    finally:
        self.in_flight = {**in_flight, **self.in_flight}


def _number_without_probing(self: PartitionQueue, batch: ProducerBatch, session: ProducerSession) -> bool:
    """The second batch goes before the first one is stored: a broker that knows neither may take it alone."""
    probing = self.probing
    numbered = _number(self, batch, session)
    self.probing = probing
    return numbered


_number = PartitionQueue.number


def _has_not_passed(self: PartitionQueue, batch: ProducerBatch) -> bool:
    """The first batch would fail otherwise, told so, and not be stored behind the second one."""
    return False


def _append_what_comes_back(self: PartitionQueue, batch: ProducerBatch) -> None:
    """Without sequences to keep the order, later records would overtake it."""
    self.waiting.append(batch)


# Batches


_split = ClosedBatch.split


def _split_backwards(self: ClosedBatch, *arguments: Any) -> Any:
    *_, batches = _split(self, *arguments)
    yield list(reversed(batches))


_frame = ProducerBatch.frame
_last: dict[int, ProducerBatch] = {}


def _send_the_bytes_of_another(self: ProducerBatch) -> bytearray:
    """KAFKA-19012: the memory of a batch that is sent again has been given to another one."""
    other = _last.get(id(self.tp))
    _last[id(self.tp)] = self
    if self.attempts > 1 and other is not None and other is not self and other.closed and other.count == self.count:
        return other.closed.frame(self.identity.producer_id, self.identity.epoch, self.sequence)
    return _frame(self)


class _Keyless(OpenBatch):
    """What splits a batch makes its parts, and leaves out the keys and the headers."""

    def append(self, timestamp_ms: int, key: Any, value: Any, headers: Any = (), /) -> bool:
        return super().append(timestamp_ms, None, value, ())


_said = Sender._said


def _ask_the_leader_only(self: Sender) -> Any:
    """A record is acknowledged that no other replica has."""
    return {**_said(self), "acks": min(abs(self._acks), 1)}


def _take_silence_for_success(accumulator: RecordAccumulator, batch: ProducerBatch, text: str, now: float) -> None:
    queue = accumulator.queue(batch.tp)
    if batch in queue.in_flight:
        accumulator.store(queue, batch, Stored(None))


def _drop_the_sign(key: bytes, count: int) -> int:
    """abs() of the signed hash, in the place of clearing its sign bit: half of all keys go elsewhere."""
    hashed = murmur2(key)
    return (hashed if hashed < 1 << 31 else (1 << 32) - hashed) % count


def _never_maybe(self: Failure) -> Failure:
    return self


# Calls


_send = Appending.send


async def _await_after_the_append(self: Appending, record: Any, *given: Any, timeout: float) -> Any:
    """A call that is cancelled at this await has appended its record."""
    delivery = await _send(self, record, *given, timeout=timeout)
    await asyncio.sleep(0)
    return delivery


_wait = MemoryWaiters.wait


async def _keep_what_was_granted(self: MemoryWaiters, size: int, timeout: float) -> bool:
    """A call that is cancelled takes memory with it."""
    try:
        return await _wait(self, size, timeout)
    except asyncio.CancelledError:
        self._accumulator.used += self._accumulator.cost(size)
        raise


def _no_bound(self: MemoryWaiters, size: int) -> bool:
    return True


def _tell_backwards(self: Outcomes, tp: Any, held: list[ProducerBatch]) -> None:
    for batch in held:
        for index, told in reversed(batch.callbacks):
            self._callbacks.add([partial(told, batch, index)])
        batch.callbacks = []


async def _flush_nothing(self: Sender, mark: Any, timeout: float | None = None) -> bool:
    return True


async def _no_callback_is_due(self: Callbacks, timeout: float | None = None) -> bool:
    return True


def _forget_at_the_end(self: Sender, failure: Failure) -> None:
    """stop() leaves deliveries that nobody completes."""


# Transactions


def _overlook_failures(self: TransactionSession, tp: Any, failure: Failure) -> None:
    """The transaction is committed without the record."""


def _renumber_inside(self: TransactionSession, lost: ProducerIdentity) -> ProducerIdentity | None:
    """librdkafka #3575: the rest of the transaction becomes another one."""
    if self._machine.identity == lost:
        self._machine.identity = lost._replace(epoch=lost.epoch + 1)
    return self.identity


async def _settle_at_once(self: TransactionDriver, effect: Any) -> None:
    """EndTxn goes before the last acknowledgement."""
    self._batches().flush()
    self.feed(Settled(effect.step))


def _think_it_unknown(self: TransactionSession, tp: Any) -> None:
    """The abort of a transaction of KIP-890 whose batches all failed is skipped."""


_on_not_answered = TransactionMachine._on_not_answered


def _believe_in_the_commit(self: TransactionMachine, event: NotAnswered, now: float) -> Any:
    """A commit whose answer was lost counts as done."""
    if isinstance(event.sent, EndTxn) and event.sent.committed:
        self._under_way = None
        return self._end(True)
    return _on_not_answered(self, event, now)


_end = TransactionMachine._end


def _go_on_with_the_epoch(self: TransactionMachine, committed: bool) -> Any:
    """A late request of the transaction before joins, or ends, the next one."""
    self._needs_epoch = False
    return _end(self, committed)


def _open_unless_dead(self: TransactionDriver, number: int) -> bool:
    """A block in which the producer was fenced ends without a word."""
    is_untold = self._end is not None and self._end.committed and not self._end.told
    return number == self.begun and (self.machine.state in OPEN or is_untold)


PRODUCER_BUGS: Final[dict[str, ProducerBug]] = {
    "number each attempt": _bug("duplicate", (PartitionQueue, "put_back", _number_each_attempt), first=9),
    "give back a sequence": _bug(
        "contents, lost, duplicate", (PartitionQueue, "dropped", _give_back_the_sequence), first=66
    ),
    "bump under in-flight": _bug(
        "duplicate, reordered, lost, ghost", (PartitionQueue, "resolve", _bump_under_in_flight), first=20
    ),
    "no probing": _bug(
        "reordered",
        (PartitionQueue, "number", _number_without_probing),
        (PartitionQueue, "has_passed", _has_not_passed),
        first=137,
    ),
    "append what comes back": _bug("reordered, stuck", (PartitionQueue, "insert", _append_what_comes_back), first=53),
    "split backwards": _bug("reordered, lost", (ClosedBatch, "split", _split_backwards), first=121),
    "split without the keys": _bug("altered", (batch_builder, "OpenBatch", _Keyless), first=140),
    "ask the leader only": _bug("acks", (Sender, "_said", _ask_the_leader_only)),
    "the bytes of another batch": _bug(
        "lost, duplicate, contents", (ProducerBatch, "frame", _send_the_bytes_of_another), first=1
    ),
    "take silence for success": _bug("lost", (answers, "unanswered", _take_silence_for_success)),
    "never maybe": _bug("ghost", (Failure, "maybe", _never_maybe), first=10),
    "await after the append": _bug("ghost", (Appending, "send", _await_after_the_append), first=6, impatient=True),
    "keep what was granted": _bug("leak", (MemoryWaiters, "wait", _keep_what_was_granted), impatient=True),
    "no bound": _bug("memory", (MemoryWaiters, "has_room", _no_bound), first=24),
    "tell backwards": _bug("reordered", (Outcomes, "_release", _tell_backwards), first=3),
    "flush nothing": _bug("unflushed", (Sender, "flushed", _flush_nothing)),
    "flush before the callbacks": _bug("uncalled", (Callbacks, "caught_up", _no_callback_is_due)),
    "forget at the end": _bug("stuck, silent, leak", (Sender, "end", _forget_at_the_end), first=16),
    "drop the sign of a hash": _bug("misplaced", (key_partitions, "murmur2_partition", _drop_the_sign), first=41),
    "a refusal counts as stored": _bug(
        "lost",
        (verdicts, "RULES", {**verdicts.RULES, ErrorCode.INVALID_RECORD: verdicts.RULES[ErrorCode.NONE]}),
        first=7,
    ),
    "send to a wrong leader": _bug("late", (LeaderHints, "disprove", lambda *_: False), wrong_leaders=True),
    "commit despite a failure": _bug(
        "torn", (TransactionSession, "failed", _overlook_failures), transactional=True, first=39
    ),
    "renumber inside a transaction": _bug(
        "torn, aborted, error, dangling, stuck, contents, lost",
        (TransactionSession, "bump", _renumber_inside),
        (TransactionSession, "renumbers", True),
        transactional=True,
        first=229,
    ),
    "end before the last answer": _bug(
        "torn, aborted", (TransactionDriver, "_settle", _settle_at_once), transactional=True
    ),
    "skip an abort": _bug("dangling", (TransactionSession, "sent", _think_it_unknown), transactional=True, first=1),
    "believe in the commit": _bug(
        "torn, aborted", (TransactionMachine, "_on_not_answered", _believe_in_the_commit), transactional=True, first=12
    ),
    "go on with the epoch": _bug(
        "torn, aborted", (TransactionMachine, "_end", _go_on_with_the_epoch), transactional=True, first=346
    ),
    "a dead block says nothing": _bug(
        "torn", (TransactionDriver, "is_open", _open_unless_dead), transactional=True, first=77
    ),
}
