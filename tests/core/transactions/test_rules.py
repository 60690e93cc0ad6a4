"""Rules that hold for a transactional producer whatever it is answered, and whatever its application does."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokc.core.produce.identity import NOBODY
from aiokc.core.transactions.events import (
    Abort,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Appended,
    Begin,
    Commit,
    Effect,
    Ended,
    EndTxn,
    Event,
    Initialize,
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
)
from aiokc.core.transactions.machine import IllegalTransition, TransactionMachine
from aiokc.core.transactions.transitions import FATAL, NEXT, OPEN, SENDS, State
from aiokc.core.transactions.verdicts import Verdict, table_of, verdict_without_answer
from aiokc.error_codes import ErrorCode
from aiokc.errors import ConnectionFailed, KafkaError, RequestTimedOut, UnsupportedVersion, broker_error

from .one_producer import GROUP, OFFSETS, REQUESTS, T0, T1, U0, Producer

#: Codes of each class, and one that no table has.
CODES = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.OFFSET_OUT_OF_RANGE,
)
GONE = ConnectionFailed("gone")
NO_ANSWERS = (GONE, GONE, UnsupportedVersion("old"), broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED))
#: Each step picks one of the things that can happen in the state.
STEPS = st.lists(st.integers(0, 10**6), max_size=60)


class Story:
    """A producer, and what an observer of its requests knows."""

    def __init__(self, version: int) -> None:
        self.producer = Producer(version)
        self.in_flight: Any = None
        self.settle: Settle | None = None
        self.is_settled = False
        self.failed = False  # a record of the open transaction, its offsets, or a request about it
        self.added: set[Any] = set()  # answered by the coordinator
        self.touched = False
        self.end_sent: EndTxn | None = None  # not answered definitely
        self.committed_at_coordinator = False
        self.is_v2 = False  # the open transaction
        self.unanswered = False  # of the open, old transaction: a request may come late
        self.waiting: set[int] = set()
        self.number = 0
        self.identity = self.producer.machine.identity

    @property
    def machine(self) -> Any:
        return self.producer.machine

    def feed(self, event: Any) -> None:
        try:
            effects = self.producer.feed(event)
        except IllegalTransition:
            raise
        except KafkaError:
            return  # the state does not allow this call
        if isinstance(event, Begin):
            self.failed = self.touched = self.committed_at_coordinator = self.unanswered = False
            self.added = set()
            self.is_v2 = self.machine.uses_v2
        self.take(effects)

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, REQUESTS):
                self.sends(effect)
            match effect:
                case Settle():
                    self.settle, self.is_settled = effect, False
                case Ended():
                    self.ends(effect)
                case OffsetsEnded():
                    assert effect.number in self.waiting, "each call ends once"
                    self.waiting.remove(effect.number)
                case Renewed():
                    self.identity = effect.identity
                case PartitionsAdded():
                    self.added.update(effect.partitions)

    def sends(self, request: Any) -> None:
        assert self.in_flight is None, "one control request at a time"
        assert request.identity == self.identity
        self.in_flight = request
        match request:
            case InitProducerId():
                assert self.machine.state is State.INITIALIZING, "no new epoch inside of a transaction"
            case AddPartitionsToTxn() | AddOffsetsToTxn():
                assert not self.machine.uses_v2
                self.touched = True
            case TxnOffsetCommit():
                assert request.uses_v2 or "g" in self.added
                self.touched = True
            case EndTxn():
                assert self.is_settled, "no end before the last batch is answered"
                assert self.touched, "nothing was sent, so nothing is ended"
                assert not (request.committed and self.failed), "no commit after a failure"
                assert not (request.committed and self.waiting), "no commit before all offsets are answered"
                assert self.end_sent in (None, request), "repeated as it was, and not taken back"
                self.end_sent = request

    def answered(self, code: int | None, error: KafkaError = GONE) -> None:
        """The request under way is answered; None: it never is, because of ``error``."""
        request, self.in_flight = self.in_flight, None
        table = table_of(request)
        meaning = verdict_without_answer(request, error) if code is None else table.get(code, Verdict.FATAL)
        if isinstance(request, EndTxn) and meaning not in (Verdict.RETRY, Verdict.LOOK_UP):
            self.end_sent = None
            self.committed_at_coordinator = request.committed and code == 0
        if isinstance(request, AddOffsetsToTxn) and code == 0:
            self.added.add("g")
        if not isinstance(request, InitProducerId | EndTxn) and meaning in (Verdict.ABORTABLE, Verdict.FATAL):
            self.failed = True
        if code is None:
            self.unanswered = self.unanswered or not isinstance(request, InitProducerId)
            self.feed(NotAnswered(request, error))
        else:
            assert self.producer.last is request
            self.take(self.producer.answer(code))

    def ends(self, ended: Ended) -> None:
        assert not self.waiting, "the calls for offsets have ended before"
        if ended.error is not None:
            return
        if ended.committed:
            assert not self.failed
            assert self.committed_at_coordinator or not self.touched, "a commit is reported only if it was answered"
        if not self.is_v2 and self.touched and (self.unanswered or not ended.committed):
            assert self.machine.state is State.INITIALIZING, "what is late must not join the next transaction"

    def possible(self) -> list[tuple[str, Any]]:
        """What can happen now; what is written twice happens more often."""
        machine = self.machine
        can: list[tuple[str, Any]] = [("begin", None), ("begin", None), ("commit", None), ("abort", None)]
        can += [("initialize", None), ("version", 0), ("version", 2), ("late", None), ("fails", False), ("wait", 0.05)]
        if self.in_flight is not None:
            can += [("answer", 0)] * 6 + [("answer", code) for code in CODES]
            can += [("no answer", error) for error in NO_ANSWERS]
        elif machine.deadline < float("inf"):
            can += [("wait", 2.0)] * 6
        if self.settle is not None and not self.is_settled:
            can += [("settled", None)] * 4
        if machine.state is State.READY:
            can += [("seen", 0), ("seen", 2)]
        if machine.state is State.IN_TRANSACTION:
            can += [("append", T0), ("append", T1), ("append", U0), ("offsets", None)]
        can += [("send", tp) for tp in (T0, T1, U0) if machine.may_send(tp)]
        if self.touched:
            can += [("fails", True)]
        if self.waiting:
            can += [("abandon", None)] * 2
        return can

    def picks(self, number: int) -> None:
        can = self.possible()
        self.do(*can[number % len(can)])

    def do(self, what: str, value: Any = None) -> None:
        machine = self.machine
        match what:
            case "answer":
                self.answered(int(value))
            case "no answer":
                self.answered(None, value)
            case "version":
                self.producer.version = value
            case "seen":
                self.producer.version = value
                self.feed(VersionSeen(value))
            case "append":
                self.feed(Appended(value))
            case "send":
                assert machine.state in SENDS
                assert machine.uses_v2 or value in self.added
                self.touched = True
                self.feed(Produced())
            case "wait":
                self.waits(value)
            case "settled" if self.settle is not None:
                self.is_settled = True
                self.feed(Settled(self.settle.step))
            case "late" if self.settle is not None:
                self.feed(Settled(self.settle.step - 1))
            case "fails":
                self.fails(value)
            case "offsets":
                self.number += 1
                if machine.state is State.IN_TRANSACTION:
                    self.waiting.add(self.number)
                self.feed(SendOffsets(self.number, dict(OFFSETS), GROUP))
            case "abandon":
                number = min(self.waiting)
                self.waiting.remove(number)  # nobody waits any more
                self.failed = self.failed or machine.state in SENDS
                self.feed(OffsetsAbandoned(number, RequestTimedOut("cancelled")))
            case "initialize" | "begin" | "commit" | "abort":
                self.feed({"initialize": Initialize, "begin": Begin, "commit": Commit, "abort": Abort}[what]())
        assert machine.identity == self.identity, "an identity that nobody was told of"

    def fails(self, ends_producer: bool) -> None:
        if self.machine.state in OPEN and not self.is_settled:
            self.failed = True
            self.feed(RecordFailed(KafkaError("a record"), ends_producer))

    def waits(self, seconds: float) -> None:
        until = self.producer.now + seconds
        while self.machine.deadline <= until:
            self.producer.now = max(self.producer.now, self.machine.deadline)
            self.feed(Tick())
        self.producer.now = until

    def goes_on(self) -> None:
        """Everything works from here on: then whatever was begun comes to an end."""
        for _ in range(20):
            if self.settle is not None and not self.is_settled:
                self.do("settled")
            self.waits(2.0)
            if self.in_flight is not None:
                self.answered(0)
        assert self.machine.state not in (
            State.COMMITTING_TRANSACTION | State.ABORTING_TRANSACTION | State.INITIALIZING
        ), "it hangs"
        assert not self.waiting


def some(version: int, steps: list[int]) -> Story:
    story = Story(version)
    story.do("initialize")
    for number in steps:
        state, identity = story.machine.state, story.machine.identity
        story.picks(number)
        if state in SENDS | State.ABORTABLE_ERROR and story.machine.state in OPEN:
            assert story.machine.identity == identity, "the identity of a transaction never changes"
        assert not (state is FATAL and story.machine.state is not FATAL)
    story.goes_on()
    return story


@settings(max_examples=400)
@given(st.sampled_from([0, 2]), STEPS)
def test_whatever_happens_it_ends_and_the_next_transaction_is_right(version: int, steps: list[int]) -> None:
    story = some(version, steps)
    if story.machine.state is FATAL:
        return
    story.do("initialize")
    story.do("abort")
    story.goes_on()
    assert story.machine.state is State.READY
    for step in ("begin", "offsets", "goes on", "commit", "goes on"):
        story.goes_on() if step == "goes on" else story.do(step)
    assert story.machine.state is State.READY
    assert story.producer.of(Ended)[-1] == Ended(True)
    assert story.machine.identity != NOBODY


def test_stories_take_every_edge_of_the_table() -> None:
    """An edge to another state that no story takes is not needed, or not tried by the test above."""
    taken: set[tuple[State, str, State]] = set()
    random = Random(1)
    on = TransactionMachine.on

    def noted(machine: TransactionMachine, event: Event, now: float) -> list[Effect]:
        before = machine.state
        effects = on(machine, event, now)
        taken.add((before, type(event).__name__, machine.state))
        return effects

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionMachine, "on", noted)
        for _ in range(4_000):
            some(random.choice([0, 2]), [random.randrange(10**6) for _ in range(random.randrange(80))])
    table = {
        (state, event.__name__, target)
        for state, row in NEXT.items()
        for event, targets in row.items()
        for target in State
        if target in targets and target is not state
    }
    assert {" ".join(map(str, edge)) for edge in table - taken} == set()
