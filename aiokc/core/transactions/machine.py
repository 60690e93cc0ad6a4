"""The state machine of a transactional producer: how each event changes its state, and which effects follow.

transitions.py says which events can happen in which state, verdicts.py what each error code means. Five rules explain
most of what follows:

1. One control request is under way at a time. Which one comes next follows from the state alone, so to try a request
again is to leave the state as it is, and to wait for a while.

2. A transaction ends only once none of its batches is unanswered (Settle), and only in one way: no abort follows a
commit that may have reached the coordinator.

3. The identity changes between two transactions only. A new epoch inside of one would begin another transaction without
a word (librdkafka #3575).

4. An EndTxn without an answer is repeated until it has one. Nothing else tells whether the transaction was committed.

5. A request that was given up may still reach the coordinator, and would then join, or end, a later transaction. In
transactions of KIP-890 each one has an epoch of its own, by which the broker knows the late request. In older ones the
producer asks for a new epoch (InitProducerId with its own identity, KIP-360) before the next transaction. Coordinators
before Kafka 2.5 take no identity, and give the next epoch to whoever asks.
"""

from __future__ import annotations

import math
from typing import Final

from ...error_codes import ErrorCode
from ...errors import KafkaError, TransactionAborted, UsageError, fresh
from ...types import TopicPartition
from ..backoff import Backoff
from ..produce.identity import NOBODY, ProducerIdentity
from .events import (
    Abort,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Answered,
    Appended,
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
    NotAnswered,
    OffsetsAbandoned,
    OffsetsEnded,
    PartitionsAdded,
    Produced,
    RecordFailed,
    Renewed,
    SendOffsets,
    Settle,
    Settled,
    Tick,
    TxnOffsetCommit,
    VersionSeen,
    Wish,
)
from .open_transaction import RETRIES, OpenTransaction
from .transitions import FATAL, NEXT, SENDS, State
from .verdicts import Verdict, error_of, verdict, verdict_without_answer

#: The level of the feature transaction.version from which on transactions are those of KIP-890.
_V2: Final = 2
#: What a coordinator may answer to an EndTxn that it has carried out: it appends PrepareCommit to its log, and then
#: loses that log, or too few replicas of it acknowledge in time.
_MAYBE_DONE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
# The coordinator is still ending the transaction before this one, which takes it a few milliseconds.
_FIRST_PAUSE: Final = 0.02

_ALLOWED: Final = {
    State.UNINITIALIZED: "the producer has no producer id: begin a transaction",
    State.INITIALIZING: "the producer is being initialized: wait for that",
    State.READY: "no transaction is open: begin one first",
    State.IN_TRANSACTION: "a transaction is open: commit it, or abort it, first",
    State.COMMITTING_TRANSACTION: "the transaction is being committed: call commit_transaction() again to wait for it",
    State.ABORTING_TRANSACTION: "the transaction is being aborted: call abort_transaction() again to wait for it",
    State.ABORTABLE_ERROR: "the transaction has failed: abort it first",
}
#: What the application calls for each wish.
_CALLS: Final[dict[type[Event], str]] = {
    Initialize: "start()",
    Begin: "begin_transaction()",
    SendOffsets: "send_offsets()",
    Commit: "commit_transaction()",
    Abort: "abort_transaction()",
}


class IllegalTransition(KafkaError):
    """The transaction machine got an event that cannot happen in its state: a defect of its driver."""

    def __init__(self, state: object, event: object) -> None:
        super().__init__(f"{type(event).__name__} cannot happen to a producer that is {state}: {event!r}")


class TransactionMachine:
    """The transactions of one transactional id. Times in seconds.

    ``identity`` is the producer's id and epoch; it changes in no state that has a transaction open. ``error`` is why
    the transaction must be aborted, or why the producer can't go on.
    """

    def __init__(self, transactional_id: str, backoff: Backoff) -> None:
        self.state = State.UNINITIALIZED
        self.identity = NOBODY
        self.error: Exception | None = None
        self._transactional_id = transactional_id
        self._backoff = backoff
        self._uses_v2 = False  # as the coordinator said last; the open transaction keeps what it began with
        self._open = OpenTransaction(uses_v2=False)
        self._under_way: ControlRequest | None = None
        self._pause_until = -math.inf
        self._step = 0
        self._is_settled = False
        self._needs_epoch = False  # the next transaction must not begin before the producer has another epoch
        self._commit_may_be_done = False  # an EndTxn that commits has no clear answer

    @property
    def deadline(self) -> float:
        """When the machine needs the next Tick; infinity where it needs none."""
        return math.inf if self._under_way is not None or self._wanted() is None else self._pause_until

    @property
    def has_work(self) -> bool:
        """Whether a control request is under way, or is to be sent now or after a pause."""
        return self._under_way is not None or self._wanted() is not None

    @property
    def uses_v2(self) -> bool:
        """Whether the open transaction is one of KIP-890; without one, whether the next is."""
        return self._open.uses_v2

    @property
    def may_be_known(self) -> bool:
        """Whether the coordinator may know of the open transaction."""
        return self._open.may_be_known

    @property
    def can_fail(self) -> bool:
        """Whether a record that is missing still keeps the transaction from being committed: no EndTxn was sent."""
        return self.state in SENDS and not self._open.is_ending

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether batches for ``partition`` may be sent now."""
        return self.state in SENDS and self._open.is_added(partition)

    def has(self, partition: TopicPartition) -> bool:
        """Whether ``partition`` was Appended to in the open transaction."""
        return partition in self._open.partitions

    def refusal(self, call: str, *, begins: bool = False) -> Exception:
        """Return the error for a ``call`` that the state does not allow: why the transaction has failed, if it has.

        ``begins``: the call is for another transaction than the one that has failed.
        """
        if self.error is not None and not (begins and self.state is State.ABORTABLE_ERROR):
            return fresh(self.error)
        error = UsageError(f"{call}: {_ALLOWED[self.state]}")
        error.__cause__ = self.error
        return error

    def on(self, event: Event, now: float) -> list[Effect]:
        """Handle an event that happened at ``now`` (monotonic seconds). Return the effects to perform, in order.

        A wish that the state does not allow raises, and changes nothing.
        """
        state = self.state
        targets = NEXT[state].get(type(event))
        if targets is None:
            if isinstance(event, Wish):
                raise self.refusal(_CALLS[type(event)], begins=isinstance(event, Begin))
            raise IllegalTransition(state, event)
        effects = self._react(event, now)
        if self.state not in targets:
            raise IllegalTransition(f"{state}, and became {self.state}", event)
        return effects + self._next(now)

    def _react(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Answered():
                return self._on_answered(event, now)
            case NotAnswered():
                return self._on_not_answered(event, now)
            case RecordFailed():
                return self._on_record_failed(event)
            case OffsetsAbandoned():
                return self._on_abandoned(event)
            case Appended():
                self._open.append(event.partition)
            case Produced():
                self._open.may_be_known = True
            case Settled():
                self._is_settled = self._is_settled or event.step == self._step
            case VersionSeen():
                self._uses_v2 = event.transaction_version >= _V2
                if self._is_raised:
                    self.state = State.INITIALIZING
                else:
                    self._open = OpenTransaction(uses_v2=self._uses_v2)
            case Tick():
                pass
            case _:
                return self._on_wish(event)
        return []

    def _on_wish(self, event: Wish) -> list[Effect]:
        match event:
            case Initialize():
                self.state = State.INITIALIZING
            case Begin():
                self.state = State.IN_TRANSACTION
            case SendOffsets():
                self._open.send_offsets(event)
            case Commit():
                self.state = State.COMMITTING_TRANSACTION
                return [self._settle(None)]
            case Abort():
                return self._on_abort()
        return []

    # The next request

    def _next(self, now: float) -> list[Effect]:
        """Send the next request, if it is due; end a transaction that needs none."""
        effects: list[Effect] = []
        while self._under_way is None and self._pause_until <= now:
            request = self._wanted()
            if request is None:
                break
            if isinstance(request, EndTxn) and not self._open.may_be_known:
                effects += self._end(request.committed)
                continue
            if isinstance(request, EndTxn):
                self._open.is_ending = True
            elif not isinstance(request, InitProducerId):
                self._open.may_be_known = True
            self._under_way = request
            effects.append(request)
        return effects

    def _wanted(self) -> ControlRequest | None:
        """Return the request that the state asks for."""
        if self.state is State.INITIALIZING:
            return InitProducerId(self.identity)
        if self.state in SENDS and (request := self._open.next_request(self.identity)) is not None:
            return request
        if self.state is State.COMMITTING_TRANSACTION and self._is_settled:
            return EndTxn(self.identity, True, self._open.uses_v2)
        if self.state is State.ABORTING_TRANSACTION and self._is_settled:
            return EndTxn(self.identity, False, self._open.uses_v2)
        return None

    def _settle(self, error: Exception | None) -> Settle:
        self._step += 1
        self._is_settled = False
        return Settle(self._step, error)

    # Answers

    def _on_answered(self, event: Answered, now: float) -> list[Effect]:
        self._under_way = None
        self._uses_v2 = event.transaction_version >= _V2  # the answer to EndTxn, the last one, is what counts
        sent, meaning = event.sent, verdict(event.sent, event.code)
        if meaning is Verdict.DONE:
            self._backoff.reset()
            self._open.retries_left = RETRIES
            return self._on_done(event)
        if meaning is Verdict.RETRY_SOME_TIMES:
            meaning = Verdict.RETRY if self._open.retries_left > 0 else Verdict.ABORTABLE
            self._open.retries_left -= 1
        if meaning in (Verdict.RETRY, Verdict.LOOK_UP):
            self._commit_may_be_done |= isinstance(sent, EndTxn) and sent.committed and event.code in _MAYBE_DONE
            self._pause(now, event.code == ErrorCode.CONCURRENT_TRANSACTIONS and not isinstance(sent, InitProducerId))
            return [_forget(sent)] if meaning is Verdict.LOOK_UP else []
        if self._commit_may_be_done and event.code != ErrorCode.INVALID_TXN_STATE:
            meaning = Verdict.FATAL  # an EndTxn before this one may have committed: an abort would hide that
        error = error_of(sent, event.code, meaning, self._transactional_id, event.what)
        return self._on_refused(sent, meaning, error)

    def _on_not_answered(self, event: NotAnswered, now: float) -> list[Effect]:
        self._under_way = None
        if event.written and not isinstance(event.sent, InitProducerId):
            self._needs_epoch = self._needs_epoch or not self._open.uses_v2
        if event.written and isinstance(event.sent, EndTxn) and event.sent.committed:
            self._commit_may_be_done = True
        meaning = verdict_without_answer(event.sent, event.error)
        if meaning is Verdict.RETRY:
            self._pause(now)
            return []
        return self._on_refused(event.sent, meaning, event.error)

    def _pause(self, now: float, is_first_of_many: bool = False) -> None:
        if is_first_of_many and not self._open.has_added and not self._open.has_paused:
            self._open.has_paused = True
            self._pause_until = now + _FIRST_PAUSE
        else:
            self._pause_until = now + self._backoff.next()

    def _on_done(self, event: Answered) -> list[Effect]:
        match event.sent:
            case InitProducerId():
                return self._initialized(event.identity or NOBODY)
            case EndTxn():
                effects = self._end(event.sent.committed)
                if not event.sent.uses_v2:
                    return effects
                if event.identity is None:  # no broker answers so
                    self.state = State.INITIALIZING
                    return effects
                self.identity = event.identity
                return [Renewed(event.identity), *effects]
            case AddPartitionsToTxn():
                self._open.added(event.sent)
                return [PartitionsAdded(event.sent.partitions)]
            case AddOffsetsToTxn() | TxnOffsetCommit():
                number = self._open.added(event.sent)
                return [] if number is None else [OffsetsEnded(number)]

    def _on_refused(self, sent: ControlRequest, meaning: Verdict, error: KafkaError) -> list[Effect]:
        if meaning is Verdict.FATAL:
            return self._fail(error)
        if meaning is Verdict.REFUSED:
            self.state = State.UNINITIALIZED
            return [Initialized(error)]
        if meaning is Verdict.NOTHING_OPEN:
            self._needs_epoch = True
            return self._end(False)
        return self._fail_transaction(error)

    def _initialized(self, identity: ProducerIdentity) -> list[Effect]:
        self.identity = identity
        self.state = State.READY
        self._open = OpenTransaction(uses_v2=self._uses_v2)
        self._needs_epoch = False
        return [Renewed(identity), Initialized()]

    @property
    def _is_raised(self) -> bool:
        """Whether the next transaction is one of KIP-890, and the last one was not: that takes another epoch.

        Not the other way round: each transaction of KIP-890 ends with another epoch. And a coordinator whose level was
        lowered answers InitProducerId by UNSUPPORTED_VERSION: it can't store what it knows of the last transaction.
        """
        return self._uses_v2 and not self._open.uses_v2

    def _end(self, committed: bool) -> list[Effect]:
        """The transaction is over. The next one may need another epoch: see rule 5, and ``_is_raised``."""
        needs_epoch = self._is_raised or (self._needs_epoch and self._open.may_be_known)
        calls = self._open.take_offsets()
        self.state = State.INITIALIZING if needs_epoch else State.READY
        self.error = None
        self._open = OpenTransaction(uses_v2=self._uses_v2)
        self._needs_epoch = self._commit_may_be_done = False
        assert not calls, "a transaction ends after the calls of send_offsets"
        return [Ended(committed)]

    # Failures

    def _on_record_failed(self, event: RecordFailed) -> list[Effect]:
        if self.state not in SENDS | State.ABORTABLE_ERROR | State.ABORTING_TRANSACTION:
            return []  # of a transaction that is over, or that can't be ended any more
        return self._fail(event.error) if event.ends_producer else self._fail_transaction(event.error)

    def _on_abandoned(self, event: OffsetsAbandoned) -> list[Effect]:
        return self._fail_transaction(event.error) if self._open.abandon(event.number) else []

    def _on_abort(self) -> list[Effect]:
        is_new = self.state is State.IN_TRANSACTION
        self.state = State.ABORTING_TRANSACTION
        # A batch that was numbered, and then given up, leaves a gap in the sequences.
        self._needs_epoch = not self._open.uses_v2
        if not is_new:
            return []  # the batches are being settled since the transaction has failed
        error = TransactionAborted("the application has aborted the transaction")
        return [*self._offsets_end(error), self._settle(error)]

    def _fail_transaction(self, error: Exception) -> list[Effect]:
        """Something of the transaction has failed: it must be aborted."""
        if self.state not in SENDS:
            return []  # it has failed before, or is being aborted
        was_committing = self.state is State.COMMITTING_TRANSACTION
        self.state, self.error = State.ABORTABLE_ERROR, error
        aborted = TransactionAborted(f"the transaction has failed, and will be aborted: {error}")
        aborted.__cause__ = error
        effects: list[Effect] = [*self._offsets_end(error), self._settle(aborted)]
        return [*effects, Ended(True, error)] if was_committing else effects

    def _fail(self, error: Exception) -> list[Effect]:
        """The producer can't go on."""
        before = self.state
        if self._commit_may_be_done:
            error.add_note("a request to commit had no clear answer before: nobody knows whether it was carried out")
            if isinstance(error, KafkaError):
                error.may_be_committed = True
        self.state, self.error = FATAL, error
        effects: list[Effect] = [*self._offsets_end(error), self._settle(error)]
        if before is State.INITIALIZING:
            effects.append(Initialized(error))
        if before in State.COMMITTING_TRANSACTION | State.ABORTING_TRANSACTION:
            effects.append(Ended(before is State.COMMITTING_TRANSACTION, error))
        return effects

    def _offsets_end(self, error: Exception) -> list[Effect]:
        return [OffsetsEnded(number, error) for number in self._open.take_offsets()]


def _forget(sent: ControlRequest) -> ForgetCoordinator:
    return ForgetCoordinator(sent.group.group_id if isinstance(sent, TxnOffsetCommit) else None)
