"""The promises of a record, whichever code built it. A type written in C is one more parameter here."""

from __future__ import annotations

import copy
import functools
import importlib.util
import operator
import pickle
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeAlias

import pytest

from aiokc.records import NewRecord, decode, encode_batch, split_batches
from aiokc.types import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord, RawRecord, raw_record

Build: TypeAlias = Callable[..., RawRecord]

FIELDS: Final[dict[str, Any]] = {
    "topic": "events",
    "partition": 3,
    "offset": 42,
    "timestamp": 1_700_000_000_000,
    "timestamp_type": CREATE_TIME,
    "key": b"key",
    "value": b"value",
    "headers": (("h", b"1"), ("h", None)),
    "leader_epoch": 7,
}
OTHER: Final[dict[str, Any]] = {
    "topic": "others",
    "partition": 4,
    "offset": 43,
    "timestamp": -1,
    "timestamp_type": LOG_APPEND_TIME,
    "key": None,
    "value": b"",
    "headers": (),
    "leader_epoch": None,
}


def decoded(
    implementation: str,
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    leader_epoch: int | None,
) -> RawRecord:
    """The record as a decoder builds it, from the bytes of a batch."""
    data = encode_batch(
        [NewRecord(value, key, headers, timestamp)],
        base_offset=offset,
        append_time=timestamp if timestamp_type == LOG_APPEND_TIME else None,
        leader_epoch=-1 if leader_epoch is None else leader_epoch,
    )
    ((header, view),) = split_batches(memoryview(data))
    payload = decode.read_payload(header, view, 1 << 20)
    record: RawRecord
    (record,) = decode.choose(implementation)[0].RecordReader(header, payload, topic=topic, partition=partition).take(1)
    return record


BUILDERS: Final[dict[str, Build]] = {
    "public": ConsumerRecord,
    "raw_record": raw_record,
    "decoded in Python": functools.partial(decoded, "0"),
}
if importlib.util.find_spec("aiokc._native.extension") is not None:
    BUILDERS["decoded in C"] = functools.partial(decoded, "1")


@pytest.fixture(params=BUILDERS)
def build(request: pytest.FixtureRequest) -> Build:
    return BUILDERS[request.param]


@pytest.fixture(params=BUILDERS)
def build_another(request: pytest.FixtureRequest) -> Build:
    return BUILDERS[request.param]


def test_fields(build: Build) -> None:
    for given in (FIELDS, OTHER):
        record = build(**given)
        assert {name: getattr(record, name) for name in FIELDS} == given


def test_the_public_constructor_s_defaults() -> None:
    record: RawRecord = ConsumerRecord("events", 3, 42)
    assert (record.timestamp, record.timestamp_type, record.key, record.value) == (-1, CREATE_TIME, None, None)
    assert (record.headers, record.leader_epoch) == ((), None)


@pytest.mark.parametrize("name", FIELDS)
def test_no_field_can_be_set_or_deleted(build: Build, name: str) -> None:
    record = build(**FIELDS)
    with pytest.raises(AttributeError, match=name):
        setattr(record, name, OTHER[name])
    with pytest.raises(AttributeError, match=name):
        delattr(record, name)
    assert getattr(record, name) == FIELDS[name]


def test_no_field_can_be_added(build: Build) -> None:
    record = build(**FIELDS)
    with pytest.raises(AttributeError):
        record.note = "mine"
    assert not hasattr(record, "note")


def test_equal_when_all_fields_are(build: Build, build_another: Build) -> None:
    record, same = build(**FIELDS), build_another(**FIELDS)
    assert record == same
    assert operator.ne(record, same) is False
    assert hash(record) == hash(same)
    assert len({record, same}) == 1


@pytest.mark.parametrize("name", FIELDS)
def test_not_equal_when_one_field_differs(build: Build, build_another: Build, name: str) -> None:
    record, other = build(**FIELDS), build_another(**{**FIELDS, name: OTHER[name]})
    assert record != other
    assert operator.eq(record, other) is False


def test_not_equal_to_anything_else(build: Build) -> None:
    record = build(**FIELDS)
    assert record != tuple(FIELDS.values())
    assert record != FIELDS
    assert operator.eq(record, None) is False
    assert record != object()


def test_it_is_one_thing_and_no_sequence(build: Build) -> None:
    record = build(**FIELDS)
    assert isinstance(record, ConsumerRecord)
    assert isinstance(record, Hashable)
    with pytest.raises(TypeError):
        iter(record)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        assert record < build(**OTHER)  # type: ignore[operator]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_and_back(build: Build, protocol: int) -> None:
    for given in (FIELDS, OTHER):
        record = build(**given)
        again = pickle.loads(pickle.dumps(record, protocol))
        assert again == record
        assert repr(again) == repr(record)
        with pytest.raises(AttributeError):
            again.offset = 1


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_copied(build: Build, duplicate: Callable[[RawRecord], RawRecord]) -> None:
    record = build(**FIELDS)
    again = duplicate(record)
    assert again == record
    with pytest.raises(AttributeError):
        again.offset = 1


def test_matched_by_position(build: Build) -> None:
    match build(**FIELDS):
        case ConsumerRecord(topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch):
            found = (topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch)
            assert found == tuple(FIELDS.values())
        case _:
            pytest.fail("no match")


def test_matched_by_name(build: Build) -> None:
    match build(**FIELDS):
        case ConsumerRecord(value=bytes(value), headers=[("h", b"1"), *_]):
            assert value == b"value"
        case _:
            pytest.fail("no match")


def test_repr_names_every_field(build: Build) -> None:
    assert repr(build(**FIELDS)) == (
        "ConsumerRecord(topic='events', partition=3, offset=42, timestamp=1700000000000, timestamp_type=0, "
        "key=b'key', value=b'value', headers=(('h', b'1'), ('h', None)), leader_epoch=7)"
    )


def test_what_repr_says_can_be_evaluated(build: Build) -> None:
    record = build(**OTHER)
    assert eval(repr(record), {"ConsumerRecord": ConsumerRecord}) == record


def test_unhashable_content_is_only_unhashable() -> None:
    """Keys and values may be any object that the application put there."""
    record: ConsumerRecord[None, dict[str, int]] = ConsumerRecord("events", 3, 42, value={"a": 1})
    assert record == ConsumerRecord("events", 3, 42, value={"a": 1})
    with pytest.raises(TypeError):
        hash(record)
