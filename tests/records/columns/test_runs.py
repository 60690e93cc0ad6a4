"""Runs of plain batches: C makes the same rows and records of a run as Python makes batch by batch."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokc.records import (
    COLUMNS,
    NATIVE,
    NOT_BEGUN,
    NewRecord,
    encode_batch,
    encode_control_batch,
    measure_run,
    split_batches,
)
from aiokc.records.transactions import ControlType

from ..batches import compacted_records

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)
from ..._native.run_twin import Call, assert_same_run  # noqa: E402

ALL: Final = Call()
EVERYTHING: Final = (*COLUMNS, "leader_epoch")

calls: Final = st.lists(
    st.builds(
        Call,
        until=st.just(ALL.until) | st.integers(0, 90_000),
        rows=st.integers(1, 12) | st.just(ALL.rows),
        size=st.integers(1, 3_000) | st.just(ALL.size),
        check_crcs=st.booleans(),
    ),
    max_size=6,
).map(lambda some: [*some, *[ALL._replace(check_crcs=False)] * 3])
chosen: Final = st.permutations(EVERYTHING).flatmap(lambda names: st.integers(1, 9).map(lambda count: names[:count]))
starts: Final = st.just(0) | st.integers(0, 60_000)


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Batches side by side, most of which are plain."""
    data, offset = b"", draw(st.sampled_from((0, 0, 50)))
    for records in draw(st.lists(compacted_records(), min_size=1, max_size=4)):
        kind = draw(st.sampled_from(("plain",) * 6 + ("transactional", "marker")))
        offset += draw(st.sampled_from((0, 0, 3)))
        if kind == "marker":
            data += encode_control_batch(ControlType.COMMIT, base_offset=offset, producer_id=9, producer_epoch=0)
            offset += 1
            continue
        options: dict[str, Any] = {"producer_id": 9, "transactional": True} if kind == "transactional" else {}
        epoch, append_time = draw(st.sampled_from((-1, 0, 7))), draw(st.sampled_from((None, 1_700_000_000_000)))
        data += encode_batch(
            records,
            base_offset=offset,
            last_offset_delta=20_000,
            leader_epoch=epoch,
            append_time=append_time,
            **options,
        )
        offset += 20_001
    return data


@settings(deadline=None)
@given(runs(), starts, calls, chosen, st.sampled_from(("ms", "us")))
def test_good_batches(run: bytes, start: int, some: list[Call], names: list[str], unit: str) -> None:
    assert_same_run(run, start, some, names, unit)


@settings(deadline=None)
@given(runs(), st.data(), starts, calls, chosen)
def test_mutated(run: bytes, data: st.DataObject, start: int, some: list[Call], names: list[str]) -> None:
    mutated = bytearray(run)
    for at in data.draw(st.lists(st.integers(0, len(mutated) - 1) | st.integers(0, 60), min_size=1, max_size=4)):
        mutated[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    assert_same_run(bytes(mutated), start, some, names)


def test_truncated_at_every_byte() -> None:
    records = [NewRecord(b"v", b"k", [("h", b"1")])] * 2
    run = b"".join(encode_batch(records, base_offset=offset) for offset in (0, 2, 4))
    size = len(run) // 3
    for cut in range(len(run)):
        found = assert_same_run(run[:cut], 1, [ALL], EVERYTHING)
        whole = cut // size
        assert found[0] == (max(0, 2 * whole - 1), whole * size, max(1, 2 * whole), -1)


def test_where_a_run_ends() -> None:
    """It ends before any batch that must be read by itself; one batch is a run, too. Python has no runs at all."""
    plain = encode_batch([NewRecord(b"v")] * 3, leader_epoch=4)
    assert measure_run(memoryview(plain), 0, transactional=True) == ((len(plain), 3, 4) if NATIVE else None)
    next_one = encode_batch([NewRecord(b"v")] * 3, base_offset=3, leader_epoch=5)
    large = encode_batch([NewRecord(bytes(300_000))], base_offset=6)
    in_transaction = encode_batch([NewRecord(b"v")], base_offset=6, producer_id=1, transactional=True)
    marker = encode_control_batch(ControlType.COMMIT, base_offset=6, producer_id=1, producer_epoch=0)
    for behind, transactional in ((b"", True), (large, True), (in_transaction, False), (marker, True), (plain, True)):
        run = measure_run(memoryview(plain + next_one + behind), 0, transactional=transactional)
        assert run == ((len(plain + next_one), 6, 5) if NATIVE else None)
    run = measure_run(memoryview(plain + next_one + in_transaction), 0, transactional=True)
    assert run == ((len(plain + next_one + in_transaction), 7, None) if NATIVE else None)
    assert measure_run(memoryview(plain + next_one), 3, transactional=True) is None
    assert measure_run(memoryview(marker + plain), 0, transactional=True) is None


def test_a_call_reads_so_much_and_no_more() -> None:
    """However few columns are wanted: the call holds the event loop meanwhile."""
    run = b"".join(encode_batch([NewRecord(bytes(60_000))], base_offset=offset) for offset in range(60))
    found = assert_same_run(run, 0, [Call(check_crcs=False)] * 5, ["offset"])
    rows = [result[0] for result in found[:-1:2]]  # type: ignore[index]
    assert rows == [18, 18, 18, 6, 0]
    run = b"".join(encode_batch([NewRecord(b"v")], base_offset=offset) for offset in range(2_000))
    found = assert_same_run(run, 0, [ALL] * 3, ["offset"])
    assert [result[0] for result in found[:-1:2]] == [960, 960, 80]  # type: ignore[index]


def test_a_run_ends_with_the_room_of_the_builder() -> None:
    run = b"".join(encode_batch([NewRecord(bytes(200))] * 3, base_offset=offset) for offset in (0, 3, 6))
    builder = _native.ColumnBuilder(["value"], "ms", 1024)
    asked = (1 << 63) - 1, 1 << 30, 1 << 40, True
    assert builder.append_run(memoryview(run), 0, "t", 0, 0, *asked) == (5, len(run) // 3, 5, -1)
    assert builder.is_full
    assert builder.append_run(memoryview(run), len(run) // 3, "t", 0, 5, *asked) == (0, len(run) // 3, 5, -1)
    builder.finish()
    assert builder.append_run(memoryview(run), len(run) // 3, "t", 0, 5, *asked) == (4, len(run), 9, -1)


def test_no_place_in_the_run() -> None:
    for at in (-1, 4):
        with pytest.raises(ValueError, match="no batch begins there"):
            _native.ColumnBuilder(["value"]).append_run(memoryview(b"run"), at, "t", 0, 0, *ALL)
    with pytest.raises(TypeError):
        _native.ColumnBuilder(["value"]).append_run(None, 0, "t", 0, 0, *ALL)


def test_records_of_a_run_from_within_a_batch() -> None:
    """The CRC of a batch is checked once, and its records are read once."""
    run = bytearray(b"".join(encode_batch([NewRecord(b"v")] * 3, base_offset=offset) for offset in (0, 3)))
    view, where = memoryview(run), ("events", 3)
    some, at, inside, after, epoch = _native.take_run(view, 0, NOT_BEGUN, *where, 0, 2, True)
    assert ([record.offset for record in some], at, after, epoch) == ([0, 1], 0, 2, -1)
    run[17] ^= 1  # the CRC of the first batch
    some, at, inside, after, _ = _native.take_run(view, at, inside, *where, after, 9, True)
    assert ([record.offset for record in some], at, inside, after) == ([2, 3, 4, 5], len(run), NOT_BEGUN, 6)
    assert _native.take_run(view, 0, NOT_BEGUN, *where, 0, 9, True)[:2] == ([], 0)
    assert _native.take_run(view, 0, NOT_BEGUN, *where, 0, 0, False)[:2] == ([], 0)


def test_no_place_in_a_batch() -> None:
    """A place that no call returned is refused, or holds nothing; nothing outside of the batch is read."""
    run = memoryview(b"".join(encode_batch([NewRecord(b"v")] * 3, base_offset=offset) for offset in (0, 3)))
    for at, inside in ((-1, NOT_BEGUN), (len(run) + 1, NOT_BEGUN), (0, (-1, -1, 3)), (0, (0, -2, 3))):
        with pytest.raises(ValueError, match="no record begins there"):
            _native.take_run(run, at, inside, "events", 3, 0, 9, True)
    for inside in ((1 << 40, -1, 3), (0, -1, 4), (0, 7, 1), (len(run), 0, 1), (3, 0, 2)):
        assert _native.take_run(run, 0, inside, "events", 3, 0, 9, True)[:2] == ([], 0)
    with pytest.raises(TypeError):
        _native.take_run(None, 0, NOT_BEGUN, "events", 3, 0, 9, True)


def test_a_run_is_what_its_batches_are() -> None:
    """No object keeps the view."""
    data = bytearray(b"".join(encode_batch([NewRecord(b"v")], base_offset=offset) for offset in range(5)))
    view = memoryview(data)
    builder = _native.ColumnBuilder(["offset"])
    assert _native.measure_run(view, 0, True, 1 << 20)[0] == len(list(split_batches(view)))
    assert builder.append_run(view, 0, "t", 0, 0, *ALL)[0] == 5
    view.release()
    data.clear()
