"""Every error: pickled, copied or raised again it stays equal, also across processes."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from copy import copy, deepcopy
from multiprocessing import get_context
from typing import Any

import pytest

import aiokc
import spark_source
from aiokc import RawRecord, TopicPartition
from aiokc.admin import GroupIsActive, GroupListing, MemberDescription, PartialListing, PlanIsOutdated
from aiokc.core.group.events import IllegalTransition
from aiokc.core.transactions import machine
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthenticationFailed,
    BrokerError,
    BufferFull,
    CertificateRefused,
    ClientClosed,
    CommitFailed,
    ConnectionFailed,
    ConsumerClosed,
    CorruptRecord,
    DeliveryTimedOut,
    DeserializationFailed,
    KafkaError,
    LogTruncated,
    MessageTooLarge,
    NoBrokersAvailable,
    NoOffsetForPartition,
    OffsetOutOfRange,
    ProduceError,
    ProducerClosed,
    RecordError,
    RecordRefused,
    RequestTimedOut,
    SerializationFailed,
    UsageError,
    broker_error,
    fresh,
    shown,
)
from spark_source.data_loss import DataLoss, OtherTopic

from .equal_errors import assert_equal_errors, depth

pytestmark = pytest.mark.timeout(60)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RECORD = RawRecord("t", 0, 7, 5, 0, b"k", b"v", (("h", b"1"),), None)


def _found() -> OffsetOutOfRange:
    error = OffsetOutOfRange({T0: 3, T1: 4})
    error.found = "broker 1 has 5 to 9"
    return error


def _sent(error: RecordError) -> RecordError:
    error.broker = 2
    return error


#: Instances of the classes that are not made from a message alone.
MADE: dict[type[KafkaError], Callable[[], list[KafkaError]]] = {
    AuthenticationFailed: lambda: [
        AuthenticationFailed("refused"),
        AuthenticationFailed("no token", mechanism="OAUTHBEARER", retriable=True),
        CertificateRefused("expired", code=58),
    ],
    RecordError: lambda: [RecordError("odd"), _sent(RecordError("odd", topic="t", partition=0, offset=3))],
    DeserializationFailed: lambda: [_sent(DeserializationFailed(RECORD, "value", "raised ValueError"))],
    ProduceError: lambda: [
        ProduceError("odd"),
        ProduceError("odd", topic="t"),
        ProduceError("late", topic="t", partition=3, persisted="maybe"),
    ],
    SerializationFailed: lambda: [SerializationFailed("key", "raised ValueError", topic="t")],
    RecordRefused: lambda: [
        RecordRefused(ErrorCode.INVALID_RECORD, "no key", topic="t", partition=3),
        RecordRefused(30_000, persisted="maybe"),
    ],
    NoOffsetForPartition: lambda: [NoOffsetForPartition([T1, T0])],
    BrokerError: lambda: [
        BrokerError(ErrorCode.NOT_COORDINATOR),
        BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED, "group 'g'"),
        BrokerError(30_000, "of a newer broker"),
        *(broker_error(code, "why") for code in ErrorCode),
    ],
    CommitFailed: lambda: [
        CommitFailed(ErrorCode.ILLEGAL_GENERATION, "group 'g'"),
        CommitFailed(ErrorCode.UNKNOWN_TOPIC_ID, "t-0", [T0]),
    ],
    OffsetOutOfRange: lambda: [OffsetOutOfRange({T0: 3}, "said broker 1"), _found()],
    LogTruncated: lambda: [LogTruncated({T0: 3, T1: 4}, {T0: 2}), LogTruncated({T0: 3}, {}, "another log")],
    IllegalTransition: lambda: [IllegalTransition("stable", T0)],
    machine.IllegalTransition: lambda: [machine.IllegalTransition("READY", T0)],
    PartialListing: lambda: [
        PartialListing([GroupListing("g", "classic", "Empty", "consumer", 1)], {2: ConnectionFailed("refused")})
    ],
    GroupIsActive: lambda: [GroupIsActive("g", "Stable", [MemberDescription("m", "app", "/10.0.0.7")])],
    PlanIsOutdated: lambda: [PlanIsOutdated("g", {T0: (3, 4), T1: (None, 1)})],
    OtherTopic: lambda: [OtherTopic({T0: 3}, {}, "another topic")],
    DataLoss: lambda: [
        DataLoss(T0, "gone", wanted=(1, None), available=None, remedy="Go on."),
        DataLoss(T0, "deleted", wanted=(1, 9), available=(3, 9), remedy="Go on."),
    ],
}


def every_class() -> list[type[KafkaError]]:
    """Return all error classes of aiokc, whichever module they are in."""
    for package in (aiokc, spark_source):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)

    def derived(kind: type[KafkaError]) -> Iterator[type[KafkaError]]:
        yield kind
        for one in kind.__subclasses__():
            yield from derived(one)

    ours = {kind for kind in derived(KafkaError) if kind.__module__.partition(".")[0] in ("aiokc", "spark_source")}
    return sorted(ours, key=lambda kind: kind.__qualname__)


def instances(kind: type[KafkaError]) -> list[KafkaError]:
    """Return some instances of a class: those in MADE, or, if it is made like its base class, those of the base."""
    made = next(base for base in kind.__mro__ if base in MADE or "__init__" in vars(base))
    if made in MADE:
        return [one for one in MADE[made]() if type(one) is kind] or [_as(kind, one) for one in MADE[made]()]
    assert made.__module__ == "builtins", f"{kind.__name__} is made from more than a message: have some in MADE"
    return [kind(), kind("what went wrong"), kind("what", "went wrong")]


def _as(kind: type[KafkaError], one: KafkaError) -> KafkaError:
    if isinstance(one, BrokerError):
        return kind(one.code, "why")
    if isinstance(one, ProduceError):
        return kind("odd", topic="t", partition=1, persisted=one.persisted)  # type: ignore[call-arg]
    return kind("odd", topic="t", partition=1, offset=9)  # type: ignore[call-arg]


def pickled(error: KafkaError) -> KafkaError:
    again: KafkaError = pickle.loads(pickle.dumps(error))
    return again


CLASSES = every_class()


def test_they_are_all_here() -> None:
    assert {CorruptRecord, LogTruncated, NoBrokersAvailable, DataLoss, IllegalTransition} <= set(CLASSES)
    assert len(CLASSES) >= 30


@pytest.mark.parametrize("kind", CLASSES)
def test_pickled_or_copied_it_is_the_same(kind: type[KafkaError]) -> None:
    for error in instances(kind):
        assert type(error) is kind
        error.add_note("seen by a test")
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert_equal_errors(pickle.loads(pickle.dumps(error, protocol)), error)
        assert_equal_errors(pickled(pickled(error)), error)
        for again in (copy, deepcopy, fresh):
            assert again(error) is not error
            assert_equal_errors(again(error), error)
            assert_equal_errors(again(again(error)), error)
            assert again(error).retriable == error.retriable


@pytest.mark.parametrize("kind", CLASSES)
def test_a_copy_has_the_same_cause_and_notes_of_its_own(kind: type[KafkaError]) -> None:
    for error in instances(kind):
        error.add_note("first")
        error.__cause__ = ValueError("the cause")
        for again in (copy, deepcopy, fresh):
            other = again(error)
            assert_equal_errors(other, error)
            other.add_note("second")
            assert error.__notes__ == ["first"]
        assert_equal_errors(pickled(error), error, with_cause=False)


def test_a_deep_copy_shares_no_field() -> None:
    error = OffsetOutOfRange({T0: 3})
    deepcopy(error).offsets[T1] = 4
    assert error.offsets == {T0: 3}


def fails(error: KafkaError) -> None:
    raise error


def test_they_come_back_from_another_process() -> None:
    errors = [
        OffsetOutOfRange({T0: 3}, "said broker 1"),
        LogTruncated({T0: 3}, {T0: 2}),
        NoOffsetForPartition([T0]),
        CommitFailed(ErrorCode.ILLEGAL_GENERATION, "group 'g'"),
        DeserializationFailed(RECORD, "key", "raised ValueError"),
        RequestTimedOut("late"),
    ]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for error in errors:
            assert_equal_errors(pool.submit(fails, error).exception(30), error, with_cause=False)


class Foreign(Exception):
    """It can't be called with its ``args``."""

    def __init__(self, number: int, *, unit: str) -> None:
        super().__init__(f"{number} {unit}")
        self.number = number


class Doubling(Exception):
    """Called with its ``args``, it has another message."""

    def __init__(self, message: str) -> None:
        super().__init__(f"oh: {message}")


@pytest.mark.parametrize(
    "error",
    [
        Foreign(3, unit="kg"),
        Doubling("no"),
        ZeroDivisionError(),
        KeyError("a"),
        OSError(2, "No such file", "name"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_ours_is_raised_afresh_too(error: Any) -> None:
    error.__cause__ = ValueError("the cause")
    assert fresh(error) is not error
    assert_equal_errors(fresh(error), error)
    assert_equal_errors(fresh(fresh(error)), error)


def test_one_that_cannot_say_what_it_is_is_raised_afresh_too() -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    error = Unreadable("a", 1)
    again = fresh(error)
    assert type(again) is Unreadable
    assert again is not error
    assert again.args == ("a", 1)


def test_what_is_shown_is_its_repr_or_what_stands_in_the_way_of_that() -> None:
    class Unreadable:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    assert shown({"a": 1}) == "{'a': 1}"
    assert shown(10**5000) == "<int, whose repr() raised ValueError>"
    with pytest.raises(KeyboardInterrupt):
        shown(Unreadable())


def test_a_fresh_one_says_where_the_kept_one_came_from_and_leaves_that_as_it_is() -> None:
    kept: ConnectionFailed | None = None
    try:
        fails(ConnectionFailed("broken"))
    except ConnectionFailed as error:
        kept = error
    assert kept is not None
    before = depth(kept)
    for _ in range(3):
        with pytest.raises(ConnectionFailed) as caught:
            raise fresh(kept)
        assert depth(caught.value) == before + 1
        assert caught.traceback[-1].name == "fails"
    assert depth(kept) == before


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ProduceError("odd"), "odd"),
        (ProduceError("odd", topic="t"), "t: odd"),
        (ProduceError("late", topic="t", partition=3), "t-3: late"),
        (
            DeliveryTimedOut("late", topic="t", partition=0, persisted="maybe"),
            "t-0: late (it may be stored all the same)",
        ),
        (RecordRefused(87, "no key", topic="t", partition=3), "t-3: INVALID_RECORD: no key"),
        (SerializationFailed("key", "raised ValueError", topic="t"), "t: key_serializer raised ValueError"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_became_of_a_record_is_in_the_message(error: ProduceError, text: str) -> None:
    assert str(error) == text


def test_calls_of_what_was_stopped_have_one_base() -> None:
    for closed in (ConsumerClosed, ProducerClosed):
        assert issubclass(closed, ClientClosed)
        assert issubclass(closed, UsageError)


def test_a_code_is_an_error_code_where_one_is_known() -> None:
    refused = AuthenticationFailed("no", code=58).code
    assert isinstance(refused, ErrorCode)
    assert refused is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert [AuthenticationFailed("no", code=code).code for code in (0, 30_000)] == [0, 30_000]


def test_a_partial_listing_is_retriable_where_each_error_is() -> None:
    passes, lasts = ConnectionFailed("broke"), BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert PartialListing([], {1: passes, 2: passes}).retriable
    assert not PartialListing([], {1: passes, 2: lasts}).retriable


def test_a_refused_record_keeps_its_code() -> None:
    assert RecordRefused(ErrorCode.INVALID_RECORD).code is ErrorCode.INVALID_RECORD
    assert RecordRefused(30_000).code == 30_000
    assert issubclass(DeliveryTimedOut, TimeoutError)
    assert BufferFull("full").retriable
    assert not MessageTooLarge("large").retriable
