"""The transaction machine, story by story: v1 are transactions before KIP-890, v2 those of KIP-890."""

from __future__ import annotations

import math
import re

import pytest

from aiokc.core.produce.identity import NOBODY, ProducerIdentity
from aiokc.core.transactions.events import (
    Abort,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Answered,
    Appended,
    Begin,
    Commit,
    Ended,
    EndTxn,
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
    TxnOffsetCommit,
    Wish,
)
from aiokc.core.transactions.machine import IllegalTransition
from aiokc.core.transactions.transitions import State
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthorizationFailed,
    CommitFailed,
    KafkaError,
    ProducerFenced,
    RecordRefused,
    RequestTimedOut,
    TransactionAbortable,
    TransactionAborted,
    UnsupportedVersion,
    UsageError,
    broker_error,
)

from .one_producer import BACKOFF, GONE, GROUP, OFFSETS, T0, T1, U0, Producer, kinds

REFUSED = RecordRefused(ErrorCode.INVALID_RECORD)
both = pytest.mark.parametrize("version", [0, 2], ids=["v1", "v2"])


# Identity


def test_a_producer_asks_for_an_identity_and_repeats_that_until_it_has_one() -> None:
    producer = Producer(2)
    assert producer.feed(Initialize()) == [InitProducerId(NOBODY)]
    assert producer.answer(ErrorCode.CONCURRENT_TRANSACTIONS) == []
    assert producer.machine.deadline == producer.now + BACKOFF
    assert producer.waits() == [InitProducerId(NOBODY)]
    assert producer.answer(ErrorCode.NOT_COORDINATOR) == [ForgetCoordinator(None)]
    producer.waits()
    assert producer.gets_no_answer() == []
    producer.waits()
    assert producer.answer() == [Renewed(ProducerIdentity(1, 0)), Initialized()]
    assert (producer.state, producer.machine.deadline) == (State.READY, math.inf)


def test_a_producer_that_is_refused_an_identity_may_ask_again() -> None:
    producer = Producer(2)
    producer.feed(Initialize())
    [told] = producer.answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert isinstance(told, Initialized)
    assert isinstance(told.error, AuthorizationFailed)
    assert producer.state is State.UNINITIALIZED
    assert producer.ready().state is State.READY


def test_a_producer_that_is_fenced_before_it_began_can_do_nothing_more() -> None:
    producer = Producer(2)
    producer.feed(Initialize())
    effects = producer.answer(ErrorCode.PRODUCER_FENCED)
    assert kinds(effects) == ["Settle", "Initialized"]
    with pytest.raises(ProducerFenced):
        producer.feed(Begin())


@both
def test_a_wrong_call_raises_and_changes_nothing(version: int) -> None:
    producer = Producer(version)
    calls: dict[str, Wish] = {
        "initialize": Initialize(),
        "begin": Begin(),
        "offsets": SendOffsets(1, OFFSETS, GROUP),
        "commit": Commit(),
        "abort": Abort(),
    }
    for name in ("begin", "commit", "abort", "offsets"):
        with pytest.raises(UsageError):
            producer.feed(calls[name])
    producer.ready()
    said = {
        "commit": "commit_transaction()",
        "abort": "abort_transaction()",
        "offsets": "send_offsets()",
        "initialize": "start()",
    }
    for name, call in said.items():
        with pytest.raises(UsageError, match=re.escape(f"{call}: no transaction is open: begin one first")):
            producer.feed(calls[name])
    producer.feed(Begin())
    with pytest.raises(UsageError, match="commit it, or abort it"):
        producer.feed(Begin())
    producer.feed(Commit())
    for name in ("begin", "commit", "abort"):
        with pytest.raises(UsageError, match="being committed"):
            producer.feed(calls[name])
    assert producer.state is State.COMMITTING_TRANSACTION
    with pytest.raises(IllegalTransition):
        producer.feed(Appended(T0))


# A transaction from its begin to its end


def test_v1_adds_a_partition_before_its_first_batch_and_ends_under_the_same_epoch() -> None:
    producer = Producer(0).ready()
    me = producer.machine.identity
    producer.feed(Begin())
    assert producer.feed(Appended(T0)) == [AddPartitionsToTxn(me, (T0,))]
    assert producer.feed(Appended(T1)) == []  # one request at a time
    assert not producer.machine.may_send(T0)
    assert producer.answer() == [PartitionsAdded((T0,)), AddPartitionsToTxn(me, (T1,))]
    assert producer.machine.may_send(T0)
    assert not producer.machine.may_send(T1)
    producer.answer()
    assert producer.feed(Appended(T0)) == []
    assert producer.feed(Commit()) == [Settle(1, None)]
    assert producer.settle() == [EndTxn(me, True, False)]
    assert producer.answer() == [Ended(True)]
    assert (producer.state, producer.machine.identity) == (State.READY, me)


def test_v2_adds_nothing_and_each_transaction_has_an_epoch_of_its_own() -> None:
    producer = Producer(2).ready()
    producer.feed(Begin())
    assert producer.feed(Appended(T0)) == []
    assert producer.machine.may_send(T0)
    producer.feed(Produced())
    producer.feed(Commit())
    assert producer.settle() == [EndTxn(ProducerIdentity(1, 0), True, True)]
    assert producer.machine.deadline == math.inf, "while a request is under way"
    assert producer.answer() == [Renewed(ProducerIdentity(1, 1)), Ended(True)]
    assert (producer.state, producer.machine.identity) == (State.READY, ProducerIdentity(1, 1))


def test_v2_an_end_that_brings_no_identity_is_followed_by_the_request_for_one() -> None:
    """No broker answers so; a producer that went on under the old epoch would be in the old transaction."""
    producer = Producer(2).begun(T0).commits()
    assert producer.feed(Answered(producer.last, ErrorCode.NONE, "", None, 2)) == [
        Ended(True),
        InitProducerId(ProducerIdentity(1, 0)),
    ]


@both
@pytest.mark.parametrize("end", [Commit(), Abort()])
def test_a_transaction_of_which_nothing_was_sent_ends_without_a_request(version: int, end: Commit | Abort) -> None:
    producer = Producer(version).ready()
    producer.feed(Begin())
    producer.feed(end)
    assert producer.settle() == [Ended(isinstance(end, Commit))]
    assert kinds(producer.sent) == ["InitProducerId"]
    assert producer.state is State.READY


def test_v2_a_partition_may_be_in_the_transaction_though_every_batch_has_failed() -> None:
    producer = Producer(2).begun(T0)
    producer.feed(RecordFailed(REFUSED))
    producer.feed(Abort())
    assert producer.settle() == [EndTxn(ProducerIdentity(1, 0), False, True)]


@both
def test_no_end_before_the_last_batch_is_answered(version: int) -> None:
    producer = Producer(version).begun(T0)
    before = len(producer.sent)
    [settle] = producer.feed(Commit())
    assert isinstance(settle, Settle)
    producer.feed(Settled(settle.step - 1))
    assert len(producer.sent) == before
    producer.feed(Settled(settle.step))
    assert isinstance(producer.last, EndTxn)
    producer.answer()
    producer.feed(Begin())
    producer.writes(T0).feed(Commit())
    assert len(producer.of(EndTxn)) == 1, "that the last transaction was settled says nothing about this one"


def test_v1_the_first_pause_for_the_transaction_before_is_short() -> None:
    producer = Producer(0).ready()
    producer.feed(Begin())
    producer.feed(Appended(T0))
    began = producer.now
    producer.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    producer.waits()
    producer.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    producer.waits()
    assert producer.now - began == pytest.approx(0.02 + BACKOFF)


def test_v1_only_the_transaction_before_makes_the_first_pause_short() -> None:
    producer = Producer(0).ready()
    producer.feed(Begin())
    producer.feed(Appended(T0))
    producer.answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert producer.machine.deadline == producer.now + BACKOFF


# Offsets


def test_v1_offsets_go_by_two_coordinators() -> None:
    producer = Producer(0).begun()
    me = producer.machine.identity
    assert producer.stores() == [AddOffsetsToTxn(me, "g")]
    assert producer.stores(2) == []
    assert producer.answer() == [TxnOffsetCommit(me, GROUP, OFFSETS, False)]
    assert producer.answer(ErrorCode.NOT_COORDINATOR) == [ForgetCoordinator("g")]
    producer.waits()
    assert producer.answer() == [OffsetsEnded(1), TxnOffsetCommit(me, GROUP, OFFSETS, False)]
    assert producer.answer() == [OffsetsEnded(2)]
    producer.feed(Commit())
    assert producer.settle() == [EndTxn(me, True, False)]


def test_v2_offsets_go_to_the_group_alone() -> None:
    producer = Producer(2).begun()
    assert producer.stores() == [TxnOffsetCommit(producer.machine.identity, GROUP, OFFSETS, True)]
    assert producer.answer() == [OffsetsEnded(1)]


def test_v2_a_topic_that_the_coordinator_does_not_know_may_be_new_and_is_asked_for_a_few_times() -> None:
    producer = Producer(2).begun()
    for _ in range(2):  # of each request
        asked = producer.stores()
        for _ in range(5):
            assert producer.answer(ErrorCode.UNKNOWN_TOPIC_ID) == []
            assert producer.waits() == asked
        assert kinds(producer.answer()) == ["OffsetsEnded"]
    producer.stores()
    for _ in range(5):
        producer.answer(ErrorCode.UNKNOWN_TOPIC_ID)
        producer.waits()
    assert kinds(producer.answer(ErrorCode.UNKNOWN_TOPIC_ID)) == ["OffsetsEnded", "Settle"]
    assert isinstance(producer.machine.error, TransactionAbortable)


@both
def test_a_commit_waits_for_offsets_that_are_not_answered(version: int) -> None:
    producer = Producer(version).begun()
    producer.stores()
    producer.feed(Commit())
    producer.settle()
    assert not producer.of(EndTxn)
    while not producer.of(OffsetsEnded):
        producer.answer()
    assert isinstance(producer.last, EndTxn)


@both
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_a_zombie_s_offsets_end_the_transaction(version: int, code: ErrorCode) -> None:
    producer = Producer(version).begun()
    producer.stores()
    if version == 0:
        producer.answer()
    told = producer.answer(code)
    assert kinds(told) == ["OffsetsEnded", "Settle"]
    assert isinstance(told[0], OffsetsEnded)
    assert isinstance(told[0].error, CommitFailed)
    with pytest.raises(CommitFailed, match="gone on without member 'member' of generation 3"):
        producer.feed(Commit())


@both
def test_offsets_whose_call_was_cancelled_end_the_transaction_and_are_not_withdrawn(version: int) -> None:
    producer = Producer(version).begun()
    producer.stores()
    producer.feed(OffsetsAbandoned(1, RequestTimedOut("send_offsets() was cancelled")))
    assert producer.state is State.ABORTABLE_ERROR
    producer.feed(Abort())
    producer.settle()
    assert not producer.of(EndTxn), "the request goes on"
    producer.answer()
    assert isinstance(producer.last, EndTxn)


# Failures


@both
def test_a_record_that_has_failed_prevents_the_commit(version: int) -> None:
    producer = Producer(version).begun(T0)
    [settle] = producer.feed(RecordFailed(REFUSED))
    assert isinstance(settle, Settle)
    assert isinstance(settle.error, TransactionAborted)
    assert not producer.machine.may_send(T0)
    with pytest.raises(RecordRefused):
        producer.feed(Commit())
    with pytest.raises(UsageError, match="abort it first"):
        producer.feed(Begin())
    producer.feed(RecordFailed(KafkaError("the second one")))
    assert producer.machine.error is REFUSED


@both
def test_a_missing_record_prevents_the_commit_until_the_coordinator_is_asked_for_it(version: int) -> None:
    """Also if it puts that off: another time it may have carried it out."""
    producer = Producer(version).ready()

    def can_fail() -> bool:
        return producer.machine.can_fail

    assert not can_fail()
    producer.feed(Begin())
    assert can_fail()
    producer.writes(T0).feed(Commit())
    assert can_fail()
    producer.settle()
    assert isinstance(producer.last, EndTxn)
    assert not can_fail()
    producer.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert not can_fail()
    producer.waits()
    producer.answer()
    assert producer.state is State.READY
    producer.feed(Begin())
    assert can_fail()


@both
def test_a_record_that_fails_during_the_commit_prevents_it(version: int) -> None:
    producer = Producer(version).begun(T0)
    producer.feed(Commit())
    effects = producer.feed(RecordFailed(REFUSED))
    assert effects[-1] == Ended(True, REFUSED)
    producer.feed(Settled(1))
    assert not producer.of(EndTxn)
    assert producer.state is State.ABORTABLE_ERROR


def test_v1_an_abort_is_followed_by_another_epoch() -> None:
    producer = Producer(0).begun(T0)
    me = producer.machine.identity
    producer.feed(Abort())
    producer.settle()
    assert producer.last == EndTxn(me, False, False)
    assert producer.answer() == [Ended(False), InitProducerId(me)]
    with pytest.raises(UsageError):
        producer.feed(Begin())
    assert producer.answer() == [Renewed(ProducerIdentity(1, 1)), Initialized()]


def test_v2_an_abort_needs_nothing_more() -> None:
    producer = Producer(2).begun(T0)
    producer.feed(RecordFailed(REFUSED))
    producer.feed(Abort())
    producer.settle()
    assert producer.answer() == [Renewed(ProducerIdentity(1, 1)), Ended(False)]
    assert (producer.state, producer.machine.error) == (State.READY, None)


@both
def test_a_transaction_that_failed_before_anything_was_sent_ends_by_itself(version: int) -> None:
    producer = Producer(version).ready()
    producer.feed(Begin())
    producer.feed(RecordFailed(REFUSED))
    producer.settle()
    assert producer.feed(Abort()) == [Ended(False)]
    assert producer.state is State.READY


@both
def test_a_fenced_producer_ends_with_all_that_waits_for_it(version: int) -> None:
    producer = Producer(version).begun(T0).commits()
    effects = producer.answer(ErrorCode.PRODUCER_FENCED)
    assert kinds(effects) == ["Settle", "Ended"]
    assert isinstance(effects[1], Ended)
    assert isinstance(effects[1].error, ProducerFenced)
    for wish in (Begin(), Commit(), Abort(), Initialize()):
        with pytest.raises(ProducerFenced):
            producer.feed(wish)


def test_a_record_may_end_the_producer() -> None:
    producer = Producer(2).begun(T0)
    producer.stores()
    fenced = ProducerFenced(ErrorCode.PRODUCER_FENCED)
    effects = producer.feed(RecordFailed(fenced, ends_producer=True))
    assert effects == [OffsetsEnded(1, fenced), Settle(1, fenced)]
    assert producer.answer() == []
    assert producer.state is State.FATAL_ERROR


@both
def test_a_missing_version_ends_the_producer(version: int) -> None:
    producer = Producer(version).begun(T0).commits()
    producer.feed(NotAnswered(producer.last, UnsupportedVersion("broker 1 has no such EndTxn")))
    assert producer.state is State.FATAL_ERROR


def test_an_abortable_code_without_a_class_of_its_own_is_transaction_abortable() -> None:
    producer = Producer(0).begun()
    producer.feed(Appended(T0))
    producer.answer(ErrorCode.TRANSACTION_ABORTABLE)
    with pytest.raises(TransactionAbortable, match="AddPartitionsToTxn: abort the transaction"):
        producer.feed(Commit())


def test_v1_one_partition_without_permission_ends_the_transaction_and_not_the_producer() -> None:
    producer = Producer(0).begun()
    producer.feed(Appended(U0))
    producer.feed(Answered(producer.last, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "u-0"))
    with pytest.raises(AuthorizationFailed, match="AddPartitionsToTxn of u-0"):
        producer.feed(Commit())


# The coordinator's own timeout, and an id that it has forgotten


def test_v2_the_producer_goes_on_after_the_coordinator_has_aborted_its_transaction() -> None:
    producer = Producer(2).begun(T0).commits()
    effects = producer.answer(ErrorCode.INVALID_TXN_STATE)
    assert kinds(effects) == ["Settle", "Ended"]
    producer.settle()
    producer.feed(Abort())
    assert producer.last == EndTxn(ProducerIdentity(1, 0), False, True)
    producer.answer()
    assert producer.state is State.READY


def test_v1_the_coordinator_s_timeout_ends_the_producer() -> None:
    producer = Producer(0).begun(T0).commits()
    producer.answer(ErrorCode.INVALID_PRODUCER_EPOCH)  # as brokers called it before KIP-588
    with pytest.raises(ProducerFenced, match="transaction_timeout_ms"):
        producer.feed(Begin())


@both
@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE])
def test_an_abort_with_nothing_to_end_is_done_and_asks_for_an_epoch_by_the_own_identity(
    version: int, code: ErrorCode
) -> None:
    producer = Producer(version).begun(T0)
    me = producer.machine.identity
    producer.feed(Abort())
    producer.settle()
    assert producer.answer(code) == [Ended(False), InitProducerId(me)]
    producer.answer()
    assert producer.state is State.READY


def test_v1_an_id_that_was_forgotten_while_idle_is_asked_for_anew_after_the_abort() -> None:
    producer = Producer(0).begun()
    producer.feed(Appended(T0))
    producer.answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert producer.state is State.ABORTABLE_ERROR
    producer.feed(Abort())
    producer.settle()
    producer.answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert producer.last == InitProducerId(ProducerIdentity(1, 0))


# No answer


@both
def test_an_end_without_an_answer_is_repeated_until_it_has_one(version: int) -> None:
    producer = Producer(version).begun(T0).commits()
    first = producer.last
    for _ in range(3):
        assert producer.gets_no_answer() == []
        with pytest.raises(UsageError):
            producer.feed(Abort())
        assert producer.waits() == [first]
    assert Ended(True) in producer.answer()


def test_v1_another_epoch_follows_a_commit_that_was_repeated() -> None:
    producer = Producer(0).begun(T0).commits()
    producer.gets_no_answer()
    producer.waits()
    producer.answer()
    assert producer.last == InitProducerId(ProducerIdentity(1, 0))
    assert producer.state is State.INITIALIZING


def test_v1_another_epoch_follows_partitions_whose_adding_was_repeated() -> None:
    producer = Producer(0).begun()
    producer.feed(Appended(T0))
    producer.gets_no_answer()
    producer.waits()
    producer.answer()
    producer.commits()
    producer.answer()
    assert producer.state is State.INITIALIZING


def test_v2_needs_no_other_epoch_after_a_repeated_commit() -> None:
    producer = Producer(2).begun(T0).commits()
    producer.gets_no_answer()
    producer.waits()
    producer.answer()
    assert producer.state is State.READY


#: What an EndTxn gets that may have been carried out; None: nothing.
UNCLEAR = pytest.mark.parametrize(
    "code",
    [
        None,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)


def commit_gets(version: int, code: ErrorCode | None) -> Producer:
    """Return a producer whose EndTxn got this, and is out for a second time."""
    producer = Producer(version).begun(T0).commits()
    if code is None:
        producer.gets_no_answer()
    else:
        producer.answer(code)
    producer.waits()
    assert producer.last == EndTxn(producer.machine.identity, True, version == 2)
    return producer


@both
@UNCLEAR
def test_a_producer_fenced_after_an_unclear_commit_says_that_nobody_knows(version: int, code: ErrorCode | None) -> None:
    """A coordinator that loses its partition behind the append of PrepareCommit answers with NOT_COORDINATOR."""
    producer = commit_gets(version, code)
    told = producer.answer(ErrorCode.PRODUCER_FENCED)[-1]
    assert isinstance(told, Ended)
    assert told.error is not None
    assert "nobody knows" in told.error.__notes__[0]
    assert isinstance(told.error, KafkaError)
    assert told.error.may_be_committed


def test_v2_a_commit_that_never_arrived_and_is_refused_when_repeated_was_no_commit() -> None:
    """To repeat a commit that was carried out succeeds. So the coordinator has aborted the transaction."""
    producer = Producer(2).begun(T0).commits()
    producer.gets_no_answer()
    producer.waits()
    told = producer.answer(ErrorCode.INVALID_TXN_STATE)[-1]
    assert isinstance(told, Ended)
    assert told.error is not None
    assert not hasattr(told.error, "__notes__"), "what became of it is known"
    assert isinstance(told.error, KafkaError)
    assert not told.error.may_be_committed
    producer.settle()
    producer.feed(Abort())
    assert producer.last == EndTxn(producer.machine.identity, False, True)
    assert producer.answer()[-1] == Ended(False)
    assert producer.state is State.READY


@both
@UNCLEAR
@pytest.mark.parametrize("refusal", [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTION_ABORTABLE])
def test_what_calls_for_an_abort_after_an_unclear_commit_is_none(
    version: int, code: ErrorCode | None, refusal: ErrorCode
) -> None:
    """Whoever aborts the transaction does it again, and it may have been committed."""
    producer = commit_gets(version, code)
    producer.answer(refusal)
    assert producer.state is State.FATAL_ERROR


@both
@pytest.mark.parametrize("code", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_commit_that_was_only_put_off_may_be_aborted(version: int, code: ErrorCode) -> None:
    producer = commit_gets(version, code)
    producer.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert producer.state is State.ABORTABLE_ERROR


def test_v1_a_commit_that_was_not_even_written_needs_no_other_epoch() -> None:
    """Nothing is under way that could come late, and end the next transaction."""
    producer = Producer(0).begun(T0).commits()
    producer.feed(NotAnswered(producer.last, GONE, written=False))
    producer.waits()
    assert producer.answer()[-1] == Ended(True)
    assert producer.state is State.READY


@both
def test_a_commit_that_was_not_even_written_may_be_aborted(version: int) -> None:
    producer = Producer(version).begun(T0).commits()
    producer.feed(NotAnswered(producer.last, GONE, written=False))
    producer.waits()
    producer.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert producer.state is State.ABORTABLE_ERROR


def test_credentials_that_are_refused_are_told_to_who_waits_for_an_identity() -> None:
    producer = Producer(2)
    producer.feed(Initialize())
    refused = broker_error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert producer.feed(NotAnswered(producer.last, refused)) == [Initialized(refused)]


def test_a_lookup_without_permission_for_the_group_ends_the_transaction() -> None:
    producer = Producer(2).begun()
    producer.stores()
    producer.feed(NotAnswered(producer.last, broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    assert producer.state is State.ABORTABLE_ERROR


# A cluster that is upgraded while the producer runs


def test_a_transaction_ends_as_it_began_and_the_next_one_has_another_epoch() -> None:
    producer = Producer(0).begun(T0).commits()
    producer.version = 2
    assert producer.last == EndTxn(ProducerIdentity(1, 0), True, False)
    assert producer.answer() == [Ended(True), InitProducerId(ProducerIdentity(1, 0))]
    assert not producer.machine.uses_v2 or producer.state is State.INITIALIZING
    producer.answer()
    producer.feed(Begin())
    assert producer.machine.uses_v2


def test_pauses_grow_until_a_request_succeeds() -> None:
    producer = Producer(2)
    producer.feed(Initialize())
    began = producer.now
    for _ in range(3):
        producer.gets_no_answer()
        producer.waits()
    assert producer.now - began == pytest.approx(7 * BACKOFF)
    producer.answer()
    producer.feed(Begin())
    producer.writes(T0).commits()
    producer.gets_no_answer()
    assert producer.machine.deadline == producer.now + BACKOFF
