"""Columns: the builders in C and Python make equal columns of equal batches, and exported columns stay valid."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokc.errors import CorruptRecord, RecordError, RecordTooLarge
from aiokc.records import BatchHeader, NewRecord, _pure, _pure_columns, columns
from aiokc.types import ConsumerRecord, RawRecord, raw_record

from ..._native.test_native import RECORDS, epochs_of_ms, headers_of
from ..._native.twins import batch, column_outcome
from ..batches import ALL, compacted_records

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)

EVERYTHING: Final = (*columns.COLUMNS, "leader_epoch")
END: Final = (1 << 63) - 1
MB: Final = 1 << 20
#: The extension keeps this many buffers for later batches.
SPARE_BATCHES: Final = 4

#: from_offset, until, rows, size
Call = tuple[int, int, int, int]
WHOLE: Final[list[Call]] = [(0, END, ALL, MB)] * 3

calls: Final = st.lists(
    st.tuples(
        st.just(0) | st.integers(-5, 20_200),
        st.just(END) | st.integers(0, 20_200),
        st.integers(0, 5) | st.just(ALL),
        st.integers(0, 2_000) | st.just(MB),
    ),
    max_size=6,
).map(lambda some: [*some, *WHOLE])
chosen: Final = st.permutations(EVERYTHING).flatmap(lambda names: st.integers(1, 9).map(lambda count: names[:count]))
units: Final = st.sampled_from(("ms", "us"))


def assert_same(
    header: BatchHeader, payload: bytes, some: Sequence[Call], names: Sequence[str] = EVERYTHING, unit: str = "ms"
) -> list[object]:
    found = column_outcome(_native, _native, header, payload, some, names, unit)
    expected = column_outcome(_pure, _pure_columns, header, payload, some, names, unit)
    assert found == expected
    return found


def built(records: list[NewRecord], names: Sequence[str] = EVERYTHING, unit: str = "ms", **options: int) -> Any:
    """Return the columns of these records, as C makes them."""
    header, payload = batch(records, **options)
    builder = _native.ColumnBuilder(names, unit)
    reader = _native.RecordReader(header, payload, topic="events", partition=3)
    assert builder.append(reader, 0, END, ALL, 1 << 40) == len(records)
    return builder.finish()


# the same as on pyarrow


@settings(deadline=None)
@given(st.data(), compacted_records(), st.sampled_from((0, 50, (1 << 63) - 20_200)), calls, chosen, units)
def test_good_batches(
    data: st.DataObject,
    records: list[NewRecord],
    base_offset: int,
    some: list[Call],
    names: Sequence[str],
    unit: str,
) -> None:
    header, payload = batch(records, base_offset=base_offset, last_offset_delta=20_000)
    header = header._replace(
        base_timestamp=data.draw(epochs_of_ms),
        attributes=data.draw(st.sampled_from((0, 8))),
        partition_leader_epoch=data.draw(st.sampled_from((-1, 0, 7))),
    )
    moved = [
        (max(0, base_offset - 10 + start), min(END, base_offset + until), rows, size)
        for start, until, rows, size in some
    ]
    assert_same(header, payload, moved, names, unit)


def test_truncated_at_every_byte() -> None:
    header, payload = batch(RECORDS[:7], base_offset=50)
    refused = 0
    for cut in range(len(payload)):
        found = assert_same(header, payload[:cut], [(52, END, 1, MB), *WHOLE])
        refused += any(isinstance(part, tuple) and CorruptRecord in part for part in found)
    assert refused == len(payload)


@settings(deadline=None)
@given(st.data(), compacted_records(), calls, chosen, units)
def test_mutated(
    data: st.DataObject, records: list[NewRecord], some: list[Call], names: Sequence[str], unit: str
) -> None:
    header, payload = batch(records, last_offset_delta=20_000)
    mutated = bytearray(payload)
    for at in data.draw(st.lists(st.integers(0, max(len(mutated) - 1, 0)), max_size=4)):
        mutated[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    assert_same(data.draw(headers_of(header)), bytes(mutated), some, names, unit)


@settings(deadline=None)
@given(st.data(), st.binary(max_size=60), calls)
def test_any_bytes(data: st.DataObject, payload: bytes, some: list[Call]) -> None:
    header, _ = batch(RECORDS)
    assert_same(data.draw(headers_of(header)), payload, some)


def test_many_rows() -> None:
    header, payload = batch([record for _ in range(100) for record in RECORDS])
    for rows in (512, 600, 1100, ALL):
        assert_same(header, payload, [(0, END, rows, MB), *WHOLE])


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("names", [EVERYTHING, ("value",), ("key", "offset"), ("timestamp", "headers")])
def test_keys_and_values_of_all_lengths(names: Sequence[str], unit: str) -> None:
    """Those that are copied in pieces, and longer ones; with some headers, nulls and times beyond microseconds."""
    lengths = [*range(140), 8_191, 8_192, 200, 0, (1 << 20) - 1, 1 << 20, 31]
    records = [
        NewRecord(
            None if length % 29 == 1 else bytes([length % 251]) * length,
            None if length % 3 == 2 else b"k" * (length % 130),
            (("h", b"v"),) if length % 17 == 5 else (),
            1_000 + length - 70,
        )
        for length in lengths
    ]
    for some in (records, records[:7], records[::-1]):
        header, payload = batch(some, base_offset=77)
        found = assert_same(header, payload, [(0, 90, 5, MB), (80, END, 3, 999), (0, END, ALL, 1 << 40)], names, unit)
        assert sum(count for count in found[:-1] if isinstance(count, int)) >= len(some) - 3
    far = [*records[:100], NewRecord(b"v", timestamp=(1 << 63) // 1000), *records[:20]]
    assert_same(*batch(far), WHOLE, names, unit)


# Records that are objects already


def described(builder: Any, records: list[RawRecord], until: int, size: int) -> list[object]:
    """Return what a builder makes of these records, call after call."""
    found: list[object] = []
    for _ in range(3):
        try:
            count = builder.append_records(records, until, size)
        except RecordError as error:
            found.append((type(error), str(error)))
            break
        found += [count, builder.size, builder.rows, builder.is_full]
        records = records[count:]
    table = pa.record_batch(builder.finish())
    table.validate(full=True)
    return [*found, table]


raw_records: Final = st.builds(
    raw_record,
    topic=st.sampled_from(("t", "a.longer_topic")),
    partition=st.integers(0, 5),
    offset=st.integers(0, 100),
    timestamp=epochs_of_ms,
    timestamp_type=st.sampled_from((-1, 0, 1)),
    key=st.none() | st.binary(max_size=400),
    value=st.none() | st.binary(max_size=400),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    leader_epoch=st.none() | st.integers(0, 9),
)


@settings(deadline=None)
@given(st.lists(raw_records, max_size=9), st.integers(0, 120), st.integers(0, 3000), chosen, units)
def test_records_of_another_reader(
    records: list[RawRecord], until: int, size: int, names: Sequence[str], unit: str
) -> None:
    in_c = described(_native.ColumnBuilder(names, unit, 1024), records, until, size)
    in_python = described(_pure_columns.ColumnBuilder(names, unit, 1024), records, until, size)
    assert in_c == in_python


def test_what_is_no_record_is_refused() -> None:
    builder = _native.ColumnBuilder(EVERYTHING)
    good = raw_record("t", 0, 1, 2, 0, b"k", b"v", (("h", b"1"), ("i", None)), None)
    for name, wrong in (
        ("key", "text"),
        ("headers", [("h", b"1")]),
        ("headers", (("h", b"1"), ("i",))),
        ("headers", (("h", b"1"), ("i", "2"))),
        ("headers", (("h", b"1"), (b"i", b"2"))),
        ("offset", None),
        ("timestamp", 1 << 63),
        ("topic", b"t"),
        ("partition", "0"),
    ):
        bad = type("Bad", (), {field: getattr(good, field) for field in ConsumerRecord.__match_args__})()
        setattr(bad, name, wrong)
        with pytest.raises((TypeError, OverflowError)):
            builder.append_records([bad], END, MB)
        assert builder.append_records([good, bad, good], END, MB) == 1
    with pytest.raises(AttributeError):
        builder.append_records([None], END, MB)
    table = pa.record_batch(builder.finish())
    table.validate(full=True)
    assert table.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}, {"key": "i", "value": None}]] * 9


# What a column cannot hold


@pytest.mark.parametrize("name", ["key", "value", "headers"])
def test_more_bytes_than_32_bit_offsets_can_address(name: str) -> None:
    """It never overflows: the batch is full before, and a record that is too large by itself is refused."""

    def record(size: int) -> NewRecord:
        content = bytes(size)
        return NewRecord(
            content if name == "value" else None,
            content if name == "key" else None,
            [("h", content)] if name == "headers" else (),
        )

    most = 2000
    header, payload = batch([record(200) for _ in range(30)])
    builder = _native.ColumnBuilder(["offset", name], "ms", most)
    reader = _native.RecordReader(header, payload, topic="events", partition=3)
    rows = []
    while reader.remaining:
        rows.append(builder.append(reader, 0, END, ALL, MB))
        assert builder.is_full == bool(reader.remaining)
        assert builder.append(reader, 0, END, ALL, MB) == 0
        builder.finish()
    assert sum(rows) == 30
    assert len(set(rows[:-1])) == 1
    assert 1 < rows[0] <= most // 200

    header, payload = batch([record(10), record(most + 1), record(10)])
    reader = _native.RecordReader(header, payload, topic="events", partition=3)
    assert builder.append(reader, 0, END, ALL, MB) == 1
    builder.finish()
    for _ in range(2):
        with pytest.raises(RecordTooLarge, match=r"events-3 at offset 1: .*seek\(\) to 2"):
            builder.append(reader, 0, END, ALL, MB)
    assert builder.append(reader, 2, END, ALL, MB) == 1


@pytest.mark.parametrize("module", [_native, _pure_columns])
def test_names_of_headers_count_in_bytes(module: Any) -> None:
    builder = module.ColumnBuilder(["headers"], "ms", 1024)
    headers = (("\N{GRINNING FACE}" * 340, None),)
    with pytest.raises(RecordTooLarge):
        builder.append_records([raw_record("t", 0, 0, 0, 0, None, None, headers, None)], END, MB)


def test_topics_count_too() -> None:
    header, payload = batch([NewRecord(None)] * 100)
    builder = _native.ColumnBuilder(["topic"], "ms", 1024)
    reader = _native.RecordReader(header, payload, topic="t" * 100, partition=3)
    assert builder.append(reader, 0, END, ALL, MB) == 10
    assert builder.is_full
    assert builder.append(reader, 0, END, ALL, MB) == 0


# Header keys


def test_keys_that_are_not_utf_8_are_replaced() -> None:
    header, payload = batch([NewRecord(b"v", None, [("k\u00fc" * 3, b"1"), ("plain", None)])])
    raw = "k\u00fc".encode() * 3
    broken = payload.replace(raw, b"k\xc3(\xff\xfek\xf0\x9f\x98"[: len(raw)])
    assert broken != payload
    assert_same(header, broken, WHOLE)
    builder = _native.ColumnBuilder(["headers"])
    builder.append(_native.RecordReader(header, broken, topic="events", partition=3), 0, END, ALL, MB)
    (record,) = _native.RecordReader(header, broken, topic="events", partition=3).take(1)
    rows = pa.record_batch(builder.finish()).column("headers").to_pylist()
    assert rows == [[{"key": key, "value": value} for key, value in record.headers]]
    assert "\ufffd" in rows[0][0]["key"]


# Export


def test_the_schema() -> None:
    header = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
    types = {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": header,
        "leader_epoch": pa.int32(),
    }
    expected = pa.schema(list(types.items()))
    arrow = built(RECORDS, list(types), "us")
    assert pa.schema(arrow).equals(expected, check_metadata=True)
    assert pa.record_batch(arrow).schema.equals(expected, check_metadata=True)
    assert pa.table(arrow).schema.equals(expected, check_metadata=True)
    empty = _native.ColumnBuilder(list(types), "us").finish()
    assert pa.record_batch(empty).schema.equals(expected, check_metadata=True)


def test_it_can_be_exported_many_times_and_without_a_copy() -> None:
    arrow = built(RECORDS)
    tables = [pa.record_batch(arrow), pa.record_batch(arrow), pa.table(arrow).to_batches()[0]]
    assert tables[0] == tables[1] == tables[2]
    places = {tuple(buffer and buffer.address for buffer in table.column("value").buffers()) for table in tables}
    assert len(places) == 1
    assert len(arrow) == len(RECORDS)
    assert arrow.nbytes >= tables[0].nbytes


def test_a_capsule_is_taken_over_once() -> None:
    schema, array = built(RECORDS).__arrow_c_array__()
    table = pa.RecordBatch._import_from_c_capsule(schema, array)
    assert table.num_rows == len(RECORDS)
    with pytest.raises(pa.ArrowInvalid):
        pa.RecordBatch._import_from_c_capsule(schema, array)


def test_requested_schemas() -> None:
    """Columns of other types are given as those that exist; other columns are an error."""
    arrow = built(RECORDS, ["key", "value"])
    schema, array = arrow.__arrow_c_array__(
        pa.schema([("key", pa.large_binary()), ("value", pa.binary())]).__arrow_c_schema__()
    )
    assert pa.RecordBatch._import_from_c_capsule(schema, array).schema.field("key").type == pa.binary()
    assert pa.table(arrow, schema=pa.schema([("key", pa.binary()), ("value", pa.large_binary())])).num_rows == 12
    for wrong in (pa.schema([("key", pa.binary())]).__arrow_c_schema__(), pa.int32().__arrow_c_schema__()):
        for export in (arrow.__arrow_c_array__, arrow.__arrow_c_stream__):
            with pytest.raises(ValueError, match="these 2 columns"):
                export(requested_schema=wrong)
    with pytest.raises(ValueError, match="PyCapsule"):
        arrow.__arrow_c_array__(object())


def test_a_child_outlives_its_parent() -> None:
    """A consumer may keep one column and release the others."""
    column = pa.record_batch(built(RECORDS)).column("headers").values.field(1)
    gc.collect()
    assert column.to_pylist()[:3] == [b"1", None, b"1"]


def test_the_next_batch_begins_empty() -> None:
    header, payload = batch(RECORDS)
    builder = _native.ColumnBuilder(["offset", "headers"])
    for _ in range(3):
        reader = _native.RecordReader(header, payload, topic="events", partition=3)
        assert builder.append(reader, 0, END, ALL, MB) == len(RECORDS)
        arrow = builder.finish()
        assert (builder.rows, builder.size, len(arrow)) == (0, 0, len(RECORDS))
        assert pa.record_batch(arrow).column("offset").to_pylist() == list(range(len(RECORDS)))
    assert len(builder.finish()) == 0


def test_the_buffers_of_a_batch_are_not_used_again_while_it_has_a_holder() -> None:
    """Buffers are used again, of the same columns or others, once the last holder is gone; not before."""
    held: list[tuple[int, Any]] = []
    for number in range(60):
        names = ["value"] if number % 5 else ["key", "value"]
        arrow = built([NewRecord(b"%d" % number * 9, b"k")] * (1 + number % 7), names)
        if number % 3:
            held.append((number, pa.record_batch(arrow)))
        if number % 4 == 0 and held:
            held.pop(0)
        del arrow
        for which, table in held:
            assert table.column("value").to_pylist() == [b"%d" % which * 9] * (1 + which % 7)


def test_batches_that_are_mostly_room_give_it_back_if_many_are_held() -> None:
    big, small = [NewRecord(bytes(30_000))] * 100, [NewRecord(bytes(10))]
    kept: list[Any] = []

    def hold_another() -> int:
        """Hold a small batch, in the buffers of a big one that were spare."""
        built(big, ["value"])
        before = tracemalloc.get_traced_memory()[0]
        kept.append(built(small, ["value"]))
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        for _ in range(2):
            changes = [hold_another() for _ in range(20)]
            assert min(changes) < -2_000_000, "later ones are trimmed"
            assert tracemalloc.get_traced_memory()[0] < 16 * MB + 4 * 8 * MB + 100_000
            assert pa.record_batch(kept[0]).column("value").to_pylist() == [bytes(10)]
            kept.clear()
        assert abs(hold_another()) < 100_000, "what is not held any more does not count"
    finally:
        tracemalloc.stop()


def test_what_is_no_builder() -> None:
    for names, unit, most in (
        (["values"], "ms", 1024),
        (["key", "key"], "ms", 1024),
        (["timestamp_type", "timestampType"], "ms", 1024),
        ([b"key"], "ms", 1024),
        (["key"], "s", 1024),
        (["key"], "ms", 1023),
        (["key"], "ms", 1 << 31),
    ):
        with pytest.raises(ValueError, match=r"."):
            _native.ColumnBuilder(names, unit, most)
    with pytest.raises(TypeError):
        _native.ColumnBuilder(None)
    with pytest.raises(TypeError):
        _native.ColumnBuilder(["key"]).append(object(), 0, END, ALL, MB)
    with pytest.raises(TypeError):
        _native.ArrowBatch()


# Nothing is leaked


def consumed(arrow: Any) -> None:
    pa.record_batch(arrow)
    pa.table(arrow).validate(full=True)


def exported(arrow: Any) -> None:
    """Capsules that no reader takes over, one of them kept longer than the batch."""
    kept = arrow.__arrow_c_schema__(), arrow.__arrow_c_array__(), arrow.__arrow_c_stream__()
    del arrow, kept


def in_a_thread(arrow: Any) -> None:
    """The last holder is another thread."""
    holder = [pa.record_batch(arrow)]
    del arrow
    thread = threading.Thread(target=holder.clear, daemon=True)
    thread.start()
    thread.join(20)


@pytest.mark.parametrize("use", [lambda arrow: None, consumed, exported, in_a_thread])
def test_memory_is_freed_with_its_last_holder(use: Callable[[Any], None]) -> None:
    header, payload = batch([NewRecord(bytes(1000), b"k", [("h", bytes(100))])] * 50)

    def made() -> Any:
        builder = _native.ColumnBuilder(EVERYTHING)
        builder.append(_native.RecordReader(header, payload, topic="events", partition=3), 0, END, ALL, MB)
        return builder.finish()

    def rounds(number: int) -> int:
        for _ in range(number):
            use(made())
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        stages = [rounds(200) for _ in range(5)]
        held = [made() for _ in range(SPARE_BATCHES + 3)]
        holding = tracemalloc.get_traced_memory()[0] - stages[-1]
    finally:
        tracemalloc.stop()
    assert holding > 2 * held[0].nbytes > 100_000  # a leak would be seen
    assert min(after - before for before, after in pairwise(stages)) < 200 * 50  # less than any part of an export


def test_no_object_is_left_behind() -> None:
    header, payload = batch(RECORDS)

    def rounds(number: int) -> int:
        for _ in range(number):
            assert_same(header, payload, WHOLE)
            assert_same(header, payload[:-1], [(0, END, 3, MB), *WHOLE])
        gc.collect()
        return sys.getallocatedblocks()

    assert rounds(100) - rounds(20) < 100


# Without pyarrow


def test_without_c_and_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "aiokc.records._pure_columns")
    with pytest.raises(ImportError, match=r"pip install 'aiokc\[arrow\]'"):
        importlib.import_module("aiokc.records._pure_columns")


def test_in_c_columns_need_no_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert len(built(RECORDS)) == len(RECORDS)
