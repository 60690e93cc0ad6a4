"""Drives the transaction machine: sends its requests, keeps its clock, settles its batches, and serves the calls."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup

from ...config import ProducerConfig
from ...core.backoff import retry_backoff
from ...core.produce.batch import FlushMark
from ...core.produce.failure import Cause, Failure, Harm
from ...core.transactions.events import (
    Abort,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Begin,
    Commit,
    ControlRequest,
    Effect,
    Ended,
    EndTxn,
    Event,
    ForgetCoordinator,
    Initialize,
    Initialized,
    InitProducerId,
    OffsetsAbandoned,
    OffsetsEnded,
    RecordFailed,
    SendOffsets,
    Settle,
    Settled,
    Tick,
    TxnOffsetCommit,
    VersionSeen,
)
from ...core.transactions.machine import TransactionMachine
from ...core.transactions.transitions import OPEN, State
from ...errors import (
    KafkaError,
    RequestTimedOut,
    TransactionAbortable,
    TransactionAborted,
    UsageError,
    fresh,
)
from ...net.pool import Pool
from ...types import GroupMetadata, OffsetAndMetadata, TopicPartition
from ..aio.signal import Signal
from .control_requests import ControlRequests

logger = logging.getLogger("aiokc.transactions")

#: How often the level of transaction.version is asked for, and how long that may hold up a begin.
_VERSION_SECONDS: Final = 1.0
_TO_ABORT: Final = State.IN_TRANSACTION | State.ABORTABLE_ERROR

#: The result of a call: None, or why it has failed. As a value, since nobody may be there to take an exception.
Outcome: TypeAlias = "asyncio.Future[Exception | None]"


class Batches(Protocol):
    """What the driver needs of the sender, which has all batches of the producer."""

    @property
    def wake(self) -> Signal: ...

    def flush(self) -> FlushMark:
        """Have all that was appended so far sent at once."""
        ...

    async def flushed(self, mark: FlushMark) -> bool:
        """Return when all batches of ``mark`` have an outcome."""
        ...

    def fail_unsent(self, failure: Failure) -> None:
        """Have every batch fail that is not in flight."""
        ...

    async def answered(self) -> bool:
        """Return when no batch is in flight."""
        ...


@dataclass(slots=True)
class _End:
    """A commit or an abort that was called for. ``told``: its outcome was given to a caller."""

    committed: bool
    outcome: Outcome
    told: bool = False


class TransactionDriver:
    """The transactions of one producer. Its calls take deadlines in loop time, and may be cancelled at any moment.

    What a cancelled call has begun goes on: no request is withdrawn, and its outcome is kept for the next call.
    ``doom`` is what the batches that are not in flight fail by: None while the transaction is well. ``moved`` is
    notified of every event.
    """

    def __init__(
        self,
        config: ProducerConfig,
        pool: Pool,
        random: Random,
        transactional_id: str,
        *,
        request_metadata: Callable[[], None],
        batches: Callable[[], Batches],
        check: Callable[[], None],
        settled: Callable[[], None],
        ended: Callable[[bool, float, Exception | None], None],
        told: Callable[[float | None], Awaitable[bool]],
    ) -> None:
        """``batches`` returns the sender, which is made later. ``check`` raises why the producer does not run.

        ``told`` waits, for so many seconds at most, until the callbacks of all records with an outcome were called.
        ``settled`` is called when the outcome of a transaction tells what became of its records. ``ended`` is told
        whether it was a commit, how many seconds after the begin it ended, and why it has failed.
        """
        self.machine = TransactionMachine(transactional_id, retry_backoff(config, random))
        self.requests = ControlRequests(config, pool, transactional_id, random, request_metadata)
        self.doom: Failure | None = None
        self.moved = Signal()
        self.begun = 0  # transactions, so far
        self.stopped_in = 0  # the transaction that was open when the producer was stopped, which aborts it
        self._look_at_version_at = 0.0
        self._name = transactional_id
        self._batches = batches
        self.check = check
        self._settled = settled
        self._ended = ended
        self._told = told
        self._begun_at = 0.0  # the last transaction
        self._tasks: TaskGroup | None = None
        self._sooner = Signal()
        self._next: ControlRequest | None = None
        self._initializing: Outcome | None = None
        self._end: _End | None = None
        self._offsets: dict[int, Outcome] = {}
        self._calls = 0

    async def run(self) -> None:
        """Perform what the machine wants, one request at a time, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            async with anyio.create_task_group() as self._tasks:
                while True:
                    if self._next is not None:
                        request, self._next = self._next, None
                        self.feed(await self.requests.perform(request))
                    elif (left := self.machine.deadline - loop.time()) > 0:
                        await self._sooner.wait(None if left == math.inf else left)
                    else:
                        self.feed(Tick())
        finally:
            self._tasks = None
            self.moved.notify()

    def feed(self, event: Event) -> None:
        """Feed ``event`` to the machine, and perform the effects that it returns."""
        before = self.machine.state
        effects = self.machine.on(event, asyncio.get_running_loop().time())
        if self.machine.state is not before:
            logger.debug("transactional id %r: %s, by %s", self._name, self.machine.state, event)
            if self.machine.state is State.FATAL_ERROR:
                logger.error("transactional id %r: the producer can't go on: %s", self._name, self.machine.error)
        if isinstance(event, Begin):
            self.doom = None
        for effect in effects:
            self._perform(effect)
        self._sooner.notify()
        self.moved.notify()
        self._batches().wake.notify()  # what it may send, and under which identity, may be different now

    def _perform(self, effect: Effect) -> None:
        match effect:
            case InitProducerId() | AddPartitionsToTxn() | AddOffsetsToTxn() | TxnOffsetCommit() | EndTxn():
                self._next = effect
            case ForgetCoordinator():
                self.requests.forget(effect.group_id)
            case Settle():
                if effect.error is not None:
                    self.doom = _doom(effect.error)
                if self._tasks is not None:
                    self._tasks.start_soon(self._settle, effect)
            case Initialized() if self._initializing is not None:
                self._initializing.set_result(effect.error)
                self._initializing = None
            case Ended():
                self._settled()
                if self._end is not None and not self._end.outcome.done():
                    self._end.outcome.set_result(effect.error)
                # Last: it is code of the application, and may begin the next transaction (by an eager task, say).
                self._ended(effect.committed, asyncio.get_running_loop().time() - self._begun_at, effect.error)
            case OffsetsEnded() if (outcome := self._offsets.pop(effect.number, None)) is not None:
                outcome.set_result(effect.error)

    async def _settle(self, effect: Settle) -> None:
        batches = self._batches()
        if effect.error is None or self.doom is None:
            await batches.flushed(batches.flush())
        else:
            batches.fail_unsent(self.doom)
            await batches.answered()
            self._settled()
        self.feed(Settled(effect.step))

    # The application's calls

    async def initialize(self, deadline: float) -> None:
        """Return when the producer has an identity, and may begin a transaction."""
        while self.machine.state is not State.READY:
            match self.machine.state:
                case State.UNINITIALIZED:
                    self._initializing = self._new_outcome()
                    self.feed(Initialize())
                case State.INITIALIZING:
                    self._initializing = self._initializing or self._new_outcome()
                case State.ABORTING_TRANSACTION if self._end is not None:
                    await self._wait(self._end.outcome, deadline, "the abort before")
                    continue
                case _:
                    raise self.refusal("begin_transaction()", begins=True)
            await self._wait(self._initializing, deadline, "InitProducerId")
            if not self.begun:  # the connection to the coordinator is new
                self._look_at_version_at = asyncio.get_running_loop().time() + _VERSION_SECONDS

    async def begin(self, deadline: float) -> None:
        self._refuse_unclaimed("begin_transaction()")
        await self.initialize(deadline)
        await self._look_at_version(deadline)
        await self.initialize(deadline)
        self._refuse_unclaimed("begin_transaction()")
        self.check()  # stopped meanwhile: nobody would abort it
        self._begun_at = asyncio.get_running_loop().time()
        self.feed(Begin())
        self._end = None
        self.begun += 1

    async def _look_at_version(self, deadline: float) -> None:
        """See, every now and then, whether the level of transaction.version was changed: no connection tells it."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._look_at_version_at:
            return
        try:
            level = await self.requests.transaction_version(min(_VERSION_SECONDS, deadline - loop.time()))
        except KafkaError as error:
            logger.debug("transactional id %r: the level of transaction.version is not known: %s", self._name, error)
            return
        self._look_at_version_at = loop.time() + _VERSION_SECONDS
        if self.machine.state is State.READY:
            self.feed(VersionSeen(level))

    async def commit(self, deadline: float) -> None:
        end = self._end
        if end is None or end.told or not end.committed:
            end = self._begin_to_end(Commit())
        try:
            await self._wait(end.outcome, deadline, "the commit: nobody knows yet whether it was carried out", end)
        except KafkaError as error:
            if not end.outcome.done():  # it goes on, or nobody will know: the producer was stopped meanwhile
                error.may_be_committed = True
            raise

    async def abort(self, deadline: float) -> None:
        end = self._begin_to_abort()
        await self._wait(end.outcome, deadline, "the abort", end)

    def _begin_to_abort(self) -> _End:
        """Return the abort that was called for, and of which no caller was told."""
        end = self._end
        if end is None or end.told or end.committed:
            if end is not None and not (end.told or self._has_failed(end)):
                raise self._unclaimed("abort_transaction()")
            end = self._begin_to_end(Abort())
        return end

    def _begin_to_end(self, event: Commit | Abort) -> _End:
        before, self._end = self._end, _End(isinstance(event, Commit), self._new_outcome())
        try:
            self.feed(event)  # an abort may be over at once
        except Exception:
            self._end = before
            raise
        return self._end

    @property
    def open_number(self) -> int:
        """The number of the transaction that a call joins which begins now; 0: it joins none."""
        return self.begun if self.machine.state is State.IN_TRANSACTION else 0

    def refused(self, error: Exception, begun: int) -> None:
        """A call of the transaction ``begun`` has raised before it added its record or offsets: it lacks them.

        Another task may have called for the commit meanwhile:

        1. A send() waits for its serializer.
        2. Another task commits. The batches of the transaction are sent, and not all of them are answered.
        3. The serializer is done, and the send() raises: nothing is appended any more. Nor is anything committed.

        Once the coordinator was asked to commit, it is too late for that: its answer decides.
        """
        if begun != self.begun or not self.machine.can_fail:
            return
        if isinstance(error, KafkaError):
            error.may_be_committed = False  # this call keeps the transaction from it
        is_too_late = isinstance(error, UsageError) and self.machine.state is not State.IN_TRANSACTION
        if is_too_late or isinstance(error, RequestTimedOut):
            # The commit raises it, too: there it would mean that the call is wrong, or that nobody knows the outcome.
            missing = TransactionAbortable(
                f"transactional id {self._name!r}: a record is missing, since the call that sends it has raised: "
                f"{error}; abort the transaction"
            )
            missing.__cause__, error = error, missing
        self.feed(RecordFailed(error))

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, deadline: float, call: str
    ) -> None:
        """``call`` is what the application has called, for an error."""
        self.check()  # a stopped producer has no open transaction either, and that would be no reason
        if self.machine.state is not State.IN_TRANSACTION:
            raise self.refusal(call)
        self._calls += 1
        number, outcome = self._calls, self._new_outcome()
        self._offsets[number] = outcome
        try:
            self.feed(SendOffsets(number, offsets, group))
            await self._wait(outcome, deadline, f"the offsets of group {group.group_id!r}")
        except (RequestTimedOut, asyncio.CancelledError) as error:
            if self._offsets.pop(number, None) is None:
                raise
            unknown = TransactionAbortable(
                f"transactional id {self._name!r}: the offsets have no answer from the coordinator of group "
                f"{group.group_id!r}, so nobody knows whether they are part of the transaction: abort it"
            )
            # No RequestTimedOut: the same call can't succeed later, and from a commit that would mean "call it again".
            unknown.__cause__ = error if isinstance(error, KafkaError) else None
            self.feed(OffsetsAbandoned(number, unknown))
            if isinstance(error, RequestTimedOut):
                raise fresh(unknown) from error
            raise
        finally:
            self._offsets.pop(number, None)

    async def close(self, deadline: float) -> None:
        """Abort the open transaction, or wait until it has ended, until ``deadline`` at most. Raises nothing.

        Callbacks are not waited for: stop() calls them itself, and waits no longer where it is called again.
        What is not aborted by then, the coordinator aborts after transaction_timeout_ms.
        """
        end: _End | None = None
        # A commit may fail meanwhile: by a send() that still waited, and raises now that the producer stops. If a block
        # has called for it, that aborts at once: then another end is to be waited for.
        while self.machine.state in OPEN & ~_TO_ABORT and self._end is not None and self._end is not end:
            end = self._end
            try:
                await self._wait(end.outcome, deadline, "the end of the transaction")
            except Exception as error:
                logger.warning("%s; stopping all the same", error)
        if self.machine.state not in _TO_ABORT:
            return
        try:
            logger.warning("transactional id %r: stopped with an open transaction: aborting it", self._name)
            self.stopped_in = self.begun
            end = self._begin_to_abort()
            await self._wait(end.outcome, deadline, "the abort")
            end.told = True
        except Exception as error:
            logger.warning("%s; stopping all the same", error)

    def is_open(self, number: int) -> bool:
        """Whether the transaction of this number is open, or its commit is not told yet, or the producer died in it."""
        has_died = self._end is None and self.machine.state is State.FATAL_ERROR
        return number == self.begun and (self.machine.state in OPEN or self.has_untold_commit or has_died)

    @property
    def has_untold_commit(self) -> bool:
        """Whether a commit was called for, and no call has told its outcome yet."""
        return self._end is not None and self._end.committed and not self._end.told

    @property
    def has_committed(self) -> bool:
        """Whether the last transaction that was begun is committed."""
        end = self._end
        return end is not None and end.committed and end.outcome.done() and end.outcome.result() is None

    @property
    def may_be_committed(self) -> bool:
        """Whether a commit was called for, no call has told its outcome yet, and that is not a failure for sure."""
        if self._end is None or not self.has_untold_commit:
            return False
        error = self._end.outcome.result() if self._end.outcome.done() else None
        return error is None or (isinstance(error, KafkaError) and error.may_be_committed)

    @property
    def is_abortable(self) -> bool:
        """Whether the open transaction has failed, and can only be aborted."""
        return self.machine.state is State.ABORTABLE_ERROR

    # Outcomes

    def refusal(self, call: str, *, begins: bool = False) -> Exception:
        """Return the machine's, for a call that does not end a transaction.

        What ended the producer may say of a commit that nobody knows its outcome: of what comes after it that says
        nothing, once a call has told it.
        """
        error = self.machine.refusal(call, begins=begins)
        if isinstance(error, KafkaError):
            error.may_be_committed = self.may_be_committed
        return error

    def _refuse_unclaimed(self, call: str) -> None:
        end = self._end
        if end is not None and end.committed and not end.told and self.machine.state is not State.FATAL_ERROR:
            raise self._unclaimed(call)

    def _unclaimed(self, call: str) -> UsageError:
        return UsageError(
            f"{call}: commit_transaction() was called before, and its outcome is not told yet: call it again to have it"
        )

    def _has_failed(self, end: _End) -> bool:
        return end.outcome.done() and end.outcome.result() is not None

    def _new_outcome(self) -> Outcome:
        return asyncio.get_running_loop().create_future()

    async def _wait(self, outcome: Outcome, deadline: float, what: str, end: _End | None = None) -> None:
        """Return when ``outcome`` is there, raise it if it is an error; RequestTimedOut after ``deadline``."""
        loop = asyncio.get_running_loop()
        began = loop.time()

        def left() -> float | None:
            return None if deadline == math.inf else deadline - loop.time()

        while not outcome.done():
            if self._tasks is None:
                self.check()
            if not await self.moved.wait(left()):
                raise self._timed_out(what, loop.time() - began)
        if end is not None:
            await self._told(left())  # as flush(); before the end counts as told, for this may be cancelled
            end.told = True
        if (error := outcome.result()) is not None:
            raise fresh(error)

    def _timed_out(self, what: str, seconds: float) -> RequestTimedOut:
        last = self.requests.error
        why = f"; the last attempt: {last}" if last is not None else ""
        error = RequestTimedOut(f"transactional id {self._name!r}: {what}: not done after {seconds:.3g} s{why}")
        error.__cause__ = last
        return error


def _doom(error: Exception) -> Failure:
    """Return what the batches fail by that will not be sent any more."""
    if isinstance(error, TransactionAborted):
        first = error.__cause__
        return Failure(Cause.ABORTED, text=str(error), error=fresh(first) if isinstance(first, Exception) else None)
    return Failure(Cause.BROKEN, harm=Harm.PRODUCER, error=error)
