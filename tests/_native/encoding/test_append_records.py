"""append_records in C and in Python: the same records in the same batches, and the same stop before what is special."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.records.encoding import _pure
from aiokc.records.encoding.murmur2 import murmur2_partition
from aiokc.types import ProducerRecord

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)

NOW: Final = 1_700_000_000_000
AMPLE: Final = 1 << 40


class Bytes(bytes):
    pass


class Record(ProducerRecord[Any, Any]):
    pass


CONTENT = st.none() | st.binary(max_size=40)
ODD_CONTENT = st.sampled_from(["text", bytearray(b"b"), memoryview(b"m"), Bytes(b"s"), 7])
HEADERS = st.lists(st.tuples(st.text(max_size=3), CONTENT), max_size=9).map(tuple)
ODD_HEADERS = st.sampled_from([[("h", b"1")], (["h", b"1"],), (("h", "1"),), (("\ud800", b"1"),), (("h",),), None])
RECORD = st.builds(
    ProducerRecord,
    st.just("events"),
    CONTENT,
    CONTENT,
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, (1 << 63) - 1),
    HEADERS,
)
ODD_RECORD = st.builds(
    ProducerRecord,
    st.sampled_from(["events", "others", 5]),
    CONTENT | ODD_CONTENT,
    CONTENT | ODD_CONTENT,
    st.none() | st.sampled_from([-1, 4, True, "0", 1 << 70]),
    st.none() | st.sampled_from([-1, 1 << 63, True, 1.5]),
    HEADERS | ODD_HEADERS,
)
OTHER = st.sampled_from([Record("events", b"v"), ("events", b"v", None, None, None, ()), ()])


def outcome(module: Any, capacities: Sequence[int | None], records: tuple[object, ...], call: dict[str, int]) -> object:
    appenders = [None if capacity is None else module.RecordAppender(capacity) for capacity in capacities]
    touched = [7]
    found = module.append_records(appenders, "events", records, *call.values(), touched)
    contents = [None if one is None else (one.count, one.size, bytes(one.take())) for one in appenders]
    assert sorted(touched[1:]) == [number for number, one in enumerate(appenders) if one is not None and one.count]
    return (*found, touched), contents


def assert_same(capacities: Sequence[int | None], records: tuple[object, ...], **call: int) -> Any:
    arguments = {
        "start": 0,
        "stop": len(records),
        "timestamp": NOW,
        "sticky": 0,
        "keys": _pure.KEYS_CHOOSE_BY_MURMUR2,
        "largest": AMPLE,
        "room": AMPLE,
        **call,
    }
    found = outcome(_native, capacities, records, arguments)
    assert found == outcome(_pure, capacities, records, arguments)
    return found


@given(
    st.lists(st.none() | st.integers(0, 2_000), max_size=5),
    st.lists(CONTENT | RECORD | ODD_CONTENT | ODD_RECORD | OTHER, max_size=20).map(tuple),
    st.fixed_dictionaries(
        {
            "start": st.integers(-1, 3),
            "stop": st.integers(-1, 22),
            "sticky": st.integers(-1, 5),
            "keys": st.integers(0, 2),
            "largest": st.integers(0, 300) | st.just(AMPLE),
            "room": st.integers(0, 2_000) | st.just(AMPLE),
        }
    ),
)
def test_it_is_the_same_whatever_is_given(
    capacities: list[int | None], records: tuple[object, ...], call: dict[str, int]
) -> None:
    assert_same(capacities, records, **call)


@given(st.lists(CONTENT | RECORD, min_size=1, max_size=40).map(tuple))
def test_plain_records_are_all_appended(records: tuple[object, ...]) -> None:
    simple = tuple(one for one in records if not isinstance(one, ProducerRecord) or len(tuple(one.headers)) <= 8)
    (at, room, _), contents = assert_same([AMPLE] * 4, simple)
    assert at == len(simple)
    assert sum(count for count, _, _ in contents) == len(simple)
    assert room == AMPLE - sum(size - 61 for _, size, _ in contents)


def test_each_goes_where_it_belongs() -> None:
    key = b"customer-1"
    records = (
        b"value",
        None,
        ProducerRecord("events", b"v", key),
        ProducerRecord("events", b"v", key, 2),
        ProducerRecord("events", b"v", None, 0, 5, (("h", b"1"),)),
    )
    expected = [0, 0, 0, 0]
    for partition in (3, 3, murmur2_partition(key, 4), 2, 0):
        expected[partition] += 1
    (at, _, touched), contents = assert_same([AMPLE] * 4, records, sticky=3)
    assert at == 5
    assert touched == [7, *dict.fromkeys((3, murmur2_partition(key, 4), 2, 0))]
    assert [count for count, _, _ in contents] == expected
    (at, _, touched), contents = assert_same([AMPLE] * 4, records, sticky=3, keys=_pure.KEYS_CHOOSE_NOTHING)
    assert [count for count, _, _ in contents] == [1, 0, 1, 3]
    (at, _, touched), contents = assert_same([AMPLE] * 4, records, sticky=3, keys=_pure.KEYS_STOP)
    assert at == 2


@pytest.mark.parametrize(
    ("capacities", "call", "appended"),
    [
        ([None], {}, 0),
        ([], {}, 0),
        ([AMPLE], {"sticky": -1}, 0),
        ([AMPLE], {"sticky": 1}, 0),
        ([61 + 2 * 109], {}, 2),
        ([AMPLE], {"largest": 135}, 0),
        ([AMPLE], {"largest": 136}, 3),
        ([AMPLE], {"room": 250}, 2),
        ([AMPLE], {"start": 1, "stop": 2}, 1),
    ],
    ids=str,
)
def test_where_it_stops(capacities: list[int | None], call: dict[str, int], appended: int) -> None:
    (at, _, _), _ = assert_same(capacities, (bytes(100), bytes(100), bytes(100)), **call)
    assert at - call.get("start", 0) == appended


def test_what_is_derived_from_an_appender_is_one() -> None:
    class Mine(_native.RecordAppender):  # type: ignore[misc, name-defined]
        __slots__ = ()

    mine = Mine(1_000)
    found = _native.append_records([mine], "events", (b"v",), 0, 1, NOW, 0, 0, AMPLE, AMPLE, [])
    assert found == (1, AMPLE - (mine.size - 61))
    assert _native.append_records([object()], "events", (b"v",), 0, 1, NOW, 0, 0, AMPLE, AMPLE, []) == (0, AMPLE)
    with pytest.raises(TypeError):
        _native.append_records((mine,), "events", (b"v",), 0, 1, NOW, 0, 0, AMPLE, AMPLE, [])
    with pytest.raises(TypeError):
        _native.append_records([mine], "events", [b"v"], 0, 1, NOW, 0, 0, AMPLE, AMPLE, [])


def test_nothing_is_left_behind() -> None:
    records = (b"v", ProducerRecord("events", b"v", b"k", None, 5, (("ü", b"1"),)), ProducerRecord("others", b"v"))

    def rounds(number: int) -> int:
        for _ in range(number):
            assert_same([AMPLE] * 3, records)
            assert_same([AMPLE], (ProducerRecord("events", b"v", headers=(("\ud800", None),)),))
        gc.collect()
        return sys.getallocatedblocks()

    assert rounds(300) - rounds(30) < 100
