"""ColumnRecords: the rows of Arrow batches, appended as the same records one by one would be."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.records.encoding import _pure
from aiokc.records.encoding.columns import PyArrowRecords

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)
pa = pytest.importorskip("pyarrow")

NOW = 1_700_000_000_000
AMPLE = 1 << 40

CONTENT = st.none() | st.binary(max_size=20)
TEXT = st.none() | st.text(max_size=9)
HEADERS = [
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
]

TIMES = [pa.int64(), pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("ns")]


@st.composite
def batches(draw: st.DrawFn) -> Any:
    """Record batches with some of the columns, of some of their types, and a slice of it."""
    count = draw(st.integers(0, 12))

    def column(kind: Any, values: Any) -> Any:
        return pa.array(draw(st.lists(values, min_size=count, max_size=count)), type=kind)

    def content() -> Any:
        kind = draw(st.sampled_from([pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.null()]))
        if pa.types.is_null(kind):
            return column(kind, st.none())
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return column(kind, TEXT if is_text else CONTENT)

    columns = {"offset": column(pa.int64(), st.integers(0, 9)), "value": content()}
    if draw(st.booleans()):
        columns["key"] = content()
    if draw(st.booleans()):
        columns["partition"] = column(draw(st.sampled_from([pa.int32(), pa.int64()])), st.none() | st.integers(-1, 3))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(TIMES))
        columns["timestamp"] = column(kind, st.none() | st.integers(-5_000_000, 5_000_000_000_000))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(HEADERS))
        inner = TEXT if pa.types.is_string(kind.value_type.field(1).type) else CONTENT
        pair = st.none() | st.fixed_dictionaries({"key": TEXT, "value": inner})
        columns["headers"] = column(kind, st.none() | st.lists(pair, max_size=9))
    batch = pa.record_batch(columns)
    return batch.slice(draw(st.integers(0, count)), draw(st.integers(0, count)))


def both(batch: Any) -> tuple[Any, Any]:
    return _native.ColumnRecords(*batch.__arrow_c_array__()), PyArrowRecords(batch)


def appended(records: Any, module: Any, capacity: int, **call: int) -> object:
    arguments = {
        "start": 0,
        "stop": 20,
        "timestamp": NOW,
        "sticky": 0,
        "keys": 1,
        "largest": AMPLE,
        "room": AMPLE,
        **call,
    }
    appenders = [module.RecordAppender(capacity) for _ in range(3)]
    touched: list[int] = []
    found = records.append(appenders, *arguments.values(), touched)
    return found, touched, [bytes(one.take()) for one in appenders]


@given(
    batches(),
    st.integers(60, 500) | st.just(AMPLE),
    st.fixed_dictionaries(
        {
            "start": st.integers(-1, 3),
            "stop": st.integers(-1, 14),
            "sticky": st.integers(-1, 3),
            "keys": st.integers(0, 2),
            "largest": st.integers(0, 100) | st.just(AMPLE),
            "room": st.integers(0, 500) | st.just(AMPLE),
        }
    ),
)
def test_rows_are_appended_as_pyarrow_reads_them(batch: Any, capacity: int, call: dict[str, int]) -> None:
    ours, theirs = both(batch)
    assert len(ours) == len(theirs) == batch.num_rows
    assert [ours.record(row) for row in range(len(ours))] == [theirs.record(row) for row in range(len(theirs))]
    assert appended(ours, _native, capacity, **call) == appended(theirs, _pure, capacity, **call)


def test_a_row_has_all_its_parts() -> None:
    batch = pa.record_batch(
        {
            "value": pa.array(["a", None]),
            "key": pa.array([b"k", None]),
            "partition": pa.array([2, None], pa.int32()),
            "timestamp": pa.array([-1, None], pa.timestamp("us")),
            "headers": pa.array([[{"key": "ü", "value": b"1"}], None], HEADERS[0]),
        }
    )
    records, _ = both(batch)
    assert records.record(0) == (b"a", b"k", 2, -1, (("ü", b"1"),))
    assert records.record(1) == (None, None, None, None, ())
    for wrong in (-1, 2):
        with pytest.raises(IndexError):
            records.record(wrong)


@pytest.mark.parametrize("seconds", [10**17, -(10**17)])
def test_seconds_that_are_too_many_for_milliseconds_are_told_as_they_are(seconds: int) -> None:
    """So the error that refuses them names a time that the application has given."""
    batch = pa.record_batch({"value": pa.array([b"v"]), "timestamp": pa.array([seconds], pa.timestamp("s"))})
    assert [records.record(0)[3] for records in both(batch)] == [seconds * 1000] * 2


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": pa.array([b"k"])}, "there is no column value"),
        ({"value": pa.array([1])}, "column value has Arrow's type"),
        ({"value": pa.array(["a"]).dictionary_encode()}, "column value has Arrow's type"),
        ({"value": pa.array([b"v"]), "partition": pa.array(["0"])}, "column partition has Arrow's type"),
        (
            {"value": pa.array([b"v"]), "partition": pa.array([0], pa.timestamp("ms"))},
            "column partition has Arrow's type",
        ),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([1.5])}, "column timestamp has Arrow's type"),
        ({"value": pa.array([b"v"]), "headers": pa.array([["h"]])}, "column headers has Arrow's type"),
        (
            {"value": pa.array([b"v"]), "headers": pa.array([[{"name": "h", "value": b"1"}]])},
            "column headers has Arrow's type",
        ),
    ],
    ids=lambda given: str(given),
)
def test_other_columns_are_refused(columns: dict[str, Any], message: str) -> None:
    batch = pa.record_batch(columns)
    for make in (lambda: _native.ColumnRecords(*batch.__arrow_c_array__()), lambda: PyArrowRecords(batch)):
        with pytest.raises(TypeError, match=message):
            make()


def test_two_columns_of_one_name_are_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"v"]), pa.array([b"w"])], names=["value", "value"])
    for make in (lambda: _native.ColumnRecords(*batch.__arrow_c_array__()), lambda: PyArrowRecords(batch)):
        with pytest.raises(TypeError, match="there are two columns value"):
            make()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.array([b"v"]), "give a record batch"),
        (pa.array([{"value": b"a"}, None]), "row 1 is null"),
        (
            pa.StructArray.from_arrays([pa.array([b"a", b"hidden"])], names=["value"], mask=pa.array([False, True])),
            "row 1 is null",
        ),
        (pa.array([None] * 9 + [{"value": b"a"}] * 9 + [None] * 9).slice(9, 10), "row 9 is null"),
    ],
    ids=["no struct", "null", "masked", "null in a part"],
)
def test_an_array_of_anything_else_or_with_null_rows_is_refused(rows: Any, message: str) -> None:
    for make in (lambda: _native.ColumnRecords(*rows.__arrow_c_array__()), lambda: PyArrowRecords(rows)):
        with pytest.raises(TypeError, match=message):
            make()


@pytest.mark.parametrize("count", [0, 1, 9])
def test_a_part_of_an_array_is_sent_whatever_is_null_beside_it(count: int) -> None:
    rows = pa.array([None] * 9 + [{"value": b"%d" % row} for row in range(9)] + [None] * 9).slice(9, count)
    for records in both(rows):
        assert [records.record(row)[0] for row in range(len(records))] == [b"%d" % row for row in range(count)]


def test_a_batch_is_taken_over_once() -> None:
    capsules = pa.record_batch({"value": [b"v"]}).__arrow_c_array__()
    assert len(_native.ColumnRecords(*capsules)) == 1
    with pytest.raises(ValueError, match="taken over before"):
        _native.ColumnRecords(*capsules)
    for wrong in ((capsules[1], capsules[0]), (5, 5)):
        with pytest.raises(ValueError, match="PyCapsule"):
            _native.ColumnRecords(*wrong)


def test_the_memory_of_a_batch_is_given_back() -> None:
    gc.collect()
    before = pa.total_allocated_bytes()
    batch = pa.record_batch({"value": pa.array([bytes(1_000)] * 1_000)})
    records = _native.ColumnRecords(*batch.__arrow_c_array__())
    del batch
    gc.collect()
    assert pa.total_allocated_bytes() > before
    assert records.record(999)[0] == bytes(1_000)
    del records
    gc.collect()
    assert pa.total_allocated_bytes() == before


def test_nothing_is_left_behind() -> None:
    batch = pa.record_batch(
        {
            "value": pa.array([b"value"] * 5),
            "key": pa.array(["k"] * 5),
            "headers": pa.array([[{"key": "ü", "value": None}]] * 5, HEADERS[0]),
        }
    )

    def rounds(number: int) -> int:
        for _ in range(number):
            records = _native.ColumnRecords(*batch.__arrow_c_array__())
            assert [records.record(row)[0] for row in range(5)] == [b"value"] * 5
            appended(records, _native, 200)
            with pytest.raises(TypeError):
                _native.ColumnRecords(*pa.array([b"v"]).__arrow_c_array__())
        gc.collect()
        return sys.getallocatedblocks()

    assert rounds(200) - rounds(30) < 100
