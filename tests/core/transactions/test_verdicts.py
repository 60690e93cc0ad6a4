"""The tables of error codes: each code that Kafka's own producer knows has a row in them."""

from __future__ import annotations

import pytest

from aiokc.core.produce.identity import ProducerIdentity
from aiokc.core.transactions.events import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    ControlRequest,
    EndTxn,
    InitProducerId,
    TxnOffsetCommit,
)
from aiokc.core.transactions.verdicts import Verdict, error_of, table_of, verdict, verdict_without_answer
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BrokerError,
    CommitFailed,
    ConnectionFailed,
    KafkaError,
    MalformedResponse,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    UnsupportedVersion,
    broker_error,
)

from .one_producer import GROUP, OFFSETS, T0

ME = ProducerIdentity(1, 2)
INIT, ADD = InitProducerId(ME), AddPartitionsToTxn(ME, (T0,))
OF_GROUP = AddOffsetsToTxn(ME, "g")
OFFSET_COMMIT = TxnOffsetCommit(ME, GROUP, OFFSETS, True)
OLD_OFFSET_COMMIT = TxnOffsetCommit(ME, GROUP, OFFSETS, False)
COMMIT, ABORT = EndTxn(ME, True, True), EndTxn(ME, False, True)
ALL: tuple[ControlRequest, ...] = (INIT, ADD, OF_GROUP, OFFSET_COMMIT, COMMIT, ABORT)

#: Codes of KIP-1050's classes, as they are for every request of a transaction.
EVERYWHERE = {
    ErrorCode.NONE: Verdict.DONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.RETRY,
    ErrorCode.CONCURRENT_TRANSACTIONS: Verdict.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.LOOK_UP,
    ErrorCode.NOT_COORDINATOR: Verdict.LOOK_UP,
    ErrorCode.PRODUCER_FENCED: Verdict.FATAL,
    ErrorCode.INVALID_REQUEST: Verdict.FATAL,
}


@pytest.mark.parametrize("sent", ALL, ids=lambda sent: f"{type(sent).__name__}-{getattr(sent, 'committed', '')}")
def test_what_is_the_same_for_all_requests(sent: ControlRequest) -> None:
    assert {code: verdict(sent, code) for code in EVERYWHERE} == EVERYWHERE
    assert verdict(sent, 12_345) is Verdict.FATAL
    assert all(isinstance(code, ErrorCode) for code in table_of(sent))


@pytest.mark.parametrize(
    ("sent", "code", "meaning"),
    [
        (INIT, ErrorCode.UNSUPPORTED_VERSION, Verdict.FATAL),
        (COMMIT, ErrorCode.UNSUPPORTED_VERSION, Verdict.FATAL),
        (OFFSET_COMMIT, ErrorCode.UNSUPPORTED_VERSION, Verdict.ABORTABLE),
        (OLD_OFFSET_COMMIT, ErrorCode.UNSUPPORTED_VERSION, Verdict.FATAL),
        (INIT, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.REFUSED),
        (INIT, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Verdict.REFUSED),
        (INIT, ErrorCode.INVALID_TRANSACTION_TIMEOUT, Verdict.REFUSED),
        (INIT, ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.FATAL),
        (ADD, ErrorCode.OPERATION_NOT_ATTEMPTED, Verdict.RETRY),
        (ADD, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Verdict.RETRY),
        (ADD, ErrorCode.TOPIC_AUTHORIZATION_FAILED, Verdict.ABORTABLE),
        (ADD, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.FATAL),
        (ADD, ErrorCode.INVALID_TXN_STATE, Verdict.FATAL),
        (ADD, ErrorCode.INVALID_PRODUCER_ID_MAPPING, Verdict.ABORTABLE),
        (OF_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, Verdict.ABORTABLE),
        (OF_GROUP, ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.FATAL),
        (OFFSET_COMMIT, ErrorCode.REQUEST_TIMED_OUT, Verdict.LOOK_UP),
        (OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Verdict.RETRY),
        (OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_ID, Verdict.RETRY_SOME_TIMES),
        (OFFSET_COMMIT, ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.ABORTABLE),
        (OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, Verdict.ABORTABLE),
        (OFFSET_COMMIT, ErrorCode.TRANSACTION_ABORTABLE, Verdict.ABORTABLE),
        (COMMIT, ErrorCode.INVALID_TXN_STATE, Verdict.ABORTABLE),
        (COMMIT, ErrorCode.TRANSACTION_ABORTABLE, Verdict.ABORTABLE),
        (COMMIT, ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.FATAL),
        (ABORT, ErrorCode.INVALID_TXN_STATE, Verdict.NOTHING_OPEN),
        (ABORT, ErrorCode.INVALID_PRODUCER_ID_MAPPING, Verdict.NOTHING_OPEN),
        (ABORT, ErrorCode.TRANSACTION_ABORTABLE, Verdict.FATAL),
    ],
    ids=lambda value: getattr(value, "name", None) or type(value).__name__,
)
def test_what_differs(sent: ControlRequest, code: ErrorCode, meaning: Verdict) -> None:
    assert verdict(sent, code) is meaning


def test_what_only_one_request_can_mean() -> None:
    assert Verdict.NOTHING_OPEN in table_of(ABORT).values()
    for sent in ALL:
        assert (Verdict.NOTHING_OPEN in table_of(sent).values()) == (sent is ABORT)
        assert (Verdict.REFUSED in table_of(sent).values()) == (sent is INIT)
    assert Verdict.ABORTABLE not in {*table_of(INIT).values(), *table_of(ABORT).values()}


@pytest.mark.parametrize(
    ("error", "of_init", "of_others"),
    [
        (ConnectionFailed("gone"), Verdict.RETRY, Verdict.RETRY),
        (RequestTimedOut("late"), Verdict.RETRY, Verdict.RETRY),
        (MalformedResponse("strange"), Verdict.REFUSED, Verdict.RETRY),
        (AuthenticationFailed("no"), Verdict.REFUSED, Verdict.RETRY),
        (UnsupportedVersion("old"), Verdict.FATAL, Verdict.ABORTABLE),
        (broker_error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), Verdict.REFUSED, Verdict.FATAL),
        (broker_error(ErrorCode.GROUP_AUTHORIZATION_FAILED), Verdict.REFUSED, Verdict.ABORTABLE),
        (broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE), Verdict.RETRY, Verdict.RETRY),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_request_without_an_answer(error: KafkaError, of_init: Verdict, of_others: Verdict) -> None:
    assert verdict_without_answer(INIT, error) is of_init
    assert verdict_without_answer(OFFSET_COMMIT, error) is of_others


def test_a_version_that_only_the_coordinator_of_the_group_lacks_ends_no_producer() -> None:
    """The transactional id has a coordinator of its own."""
    ends = {type(sent): verdict_without_answer(sent, UnsupportedVersion("old")) is Verdict.FATAL for sent in ALL}
    assert [sent.__name__ for sent, is_end in ends.items() if not is_end] == ["TxnOffsetCommit"]


@pytest.mark.parametrize(
    ("sent", "code", "kind", "text"),
    [
        (COMMIT, ErrorCode.PRODUCER_FENCED, ProducerFenced, "another producer has taken over"),
        (COMMIT, ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFenced, "another producer has taken over"),
        (COMMIT, ErrorCode.INVALID_TXN_STATE, TransactionAbortable, "INVALID_TXN_STATE"),
        (ADD, ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed, "topic; abort the transaction"),
        (OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, CommitFailed, "group 'g' has gone on without member 'member'"),
        (OFFSET_COMMIT, ErrorCode.INVALID_PRODUCER_EPOCH, TransactionAbortable, "INVALID_PRODUCER_EPOCH"),
        (INIT, ErrorCode.INVALID_TRANSACTION_TIMEOUT, BrokerError, "above transaction.max.timeout.ms"),
        (INIT, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationFailed, "the WRITE permission on"),
        (ADD, ErrorCode.INVALID_REQUEST, BrokerError, "make a new producer"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_error_names_the_id_the_request_and_what_to_do(
    sent: ControlRequest, code: ErrorCode, kind: type[KafkaError], text: str
) -> None:
    error = error_of(sent, code, verdict(sent, code), "orders", "t-0" if sent is ADD else "")
    assert type(error) is kind
    assert "transactional id 'orders'" in str(error)
    assert text in str(error)
    assert not error.retriable


@pytest.mark.parametrize(
    ("code", "by", "permission"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [ADD], "the WRITE permission on the topic"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [OFFSET_COMMIT], "the READ permission on the topic"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, [OF_GROUP, OFFSET_COMMIT], "the READ permission on the group"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ALL, "the WRITE permission on the transactional id"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [INIT], "IDEMPOTENT_WRITE on the cluster"),
    ],
)
def test_a_denial_names_the_permission_before_what_to_do_then(
    code: ErrorCode, by: list[ControlRequest], permission: str
) -> None:
    for sent in by:
        meaning = verdict(sent, code)
        then = {Verdict.ABORTABLE: "; abort the transaction", Verdict.FATAL: "; make a new producer"}.get(meaning, "")
        assert str(error_of(sent, code, meaning, "orders")).endswith(f"{permission}{then}")


@pytest.mark.parametrize("sent", ALL, ids=lambda sent: type(sent).__name__)
def test_only_a_denial_speaks_of_permissions(sent: ControlRequest) -> None:
    ends = (Verdict.REFUSED, Verdict.ABORTABLE, Verdict.FATAL)
    told = {code: str(error_of(sent, code, verdict(sent, code), "orders")) for code in table_of(sent)}
    says = {code for code, text in told.items() if verdict(sent, code) in ends and "permission" in text}
    assert says == {code for code in told if code.name.endswith("_AUTHORIZATION_FAILED")}  # type: ignore[attr-defined]
