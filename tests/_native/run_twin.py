"""Runs as C reads them, and the same in Python, batch by batch: both must agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Final, NamedTuple

import pyarrow as pa

from aiokc._native import extension
from aiokc.errors import CorruptRecord, RecordError
from aiokc.records import NOT_BEGUN, BatchHeader, _pure, _pure_columns, append, split_batches
from aiokc.records.decode import check_crc
from aiokc.types import RawRecord

from .twins import HEADER_SIZE, Outcome

_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_READ_AT_ONCE: Final = 1 << 20
_BATCH_COUNTS: Final = 1024


class Call(NamedTuple):
    """Arguments of ``append_run`` and ``take_run``, apart from the run and the place in it."""

    until: int = (1 << 63) - 1
    rows: int = 1 << 30
    size: int = 1 << 40
    check_crcs: bool = True


def _plain(records: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The plain batches at the beginning."""
    try:
        for header, view in split_batches(records):
            if header.magic < 2 or header.attributes & ~(_LOG_APPEND_TIME | _TRANSACTIONAL):
                return
            yield header, view
    except CorruptRecord:
        return


def measured(records: memoryview, after: int, transactional: bool, most: int) -> tuple[int, int, int, int]:
    """Return what measure_run must return."""
    count, size, epoch = 0, 0, -1
    for header, _ in _plain(records):
        if header.size > most or header.next_offset <= after or (header.is_transactional and not transactional):
            break
        count, size, after, epoch = count + 1, size + header.size, header.next_offset, header.partition_leader_epoch
    return count, size, after, epoch


def _append_run(builder: object, run: memoryview, at: int, start: int, call: Call) -> tuple[int, int, int, int]:
    """Do what append_run must do."""
    count, epoch, read = 0, -1, 0
    for header, view in _plain(run[at:]):
        if count >= call.rows or builder.size >= call.size or read >= _READ_AT_ONCE:  # type: ignore[attr-defined]
            break
        if header.next_offset > start:
            try:
                if call.check_crcs:
                    check_crc(header, view)
                reader = _pure.RecordReader(header, bytes(view[HEADER_SIZE:]), topic="events", partition=3)
                rows = append(builder, reader, start, call.until, call.rows - count, call.size)
            except RecordError:
                break
            if rows:
                count, start, epoch = count + rows, reader.next_offset, header.partition_leader_epoch
            if reader.remaining:
                break
            start, epoch = header.next_offset, header.partition_leader_epoch
            read += header.size + _BATCH_COUNTS
        else:
            read += HEADER_SIZE
        at += header.size
    return count, at, start, epoch


def run_outcome(
    builders: ModuleType, run: bytes, start: int, calls: Sequence[Call], columns: Sequence[str], unit: str
) -> Outcome:
    """Return all that can be seen of a run that becomes columns, call after call, with either builder."""
    found: Outcome = []
    at = 0
    view = memoryview(run)
    builder = builders.ColumnBuilder(columns, unit)
    for call in calls:
        if builders is _pure_columns:
            result = _append_run(builder, view, at, start, call)
        else:
            result = builder.append_run(view, at, "events", 3, start, call.until, call.rows, call.size, call.check_crcs)
        found += [result, (builder.rows, builder.size, builder.is_full)]
        _, at, start, _ = result
    table = pa.record_batch(builder.finish())
    table.validate(full=True)
    return [*found, table]


def _take_run(
    run: memoryview, at: int, is_begun: bool, start: int, call: Call
) -> tuple[list[RawRecord], int, bool, int, int]:
    """Do what take_run must do; its ``inside`` is only whether a call has begun to read the batch."""
    records: list[RawRecord] = []
    epoch, read = -1, 0
    for header, view in _plain(run[at:]):
        if len(records) >= call.rows or read >= _READ_AT_ONCE:
            break
        if header.next_offset > start:
            try:
                if call.check_crcs and not is_begun:
                    check_crc(header, view)
                reader = _pure.RecordReader(header, bytes(view[HEADER_SIZE:]), topic="events", partition=3)
                some = reader.take(call.rows - len(records), start)
            except RecordError:
                break
            if some:
                records, start, epoch = records + some, reader.next_offset, header.partition_leader_epoch
            if reader.remaining:
                is_begun = True
                break
            start, epoch = header.next_offset, header.partition_leader_epoch
            read += header.size + _BATCH_COUNTS
        else:
            read += HEADER_SIZE
        at += header.size
        is_begun = False
    return records, at, is_begun, start, epoch


def taken_outcome(in_c: bool, run: bytes, start: int, calls: Sequence[Call]) -> Outcome:
    """Return all that can be seen of a run that becomes records, call after call."""
    found: Outcome = []
    view, at, inside, is_begun = memoryview(run), 0, NOT_BEGUN, False
    for call in calls:
        if in_c:
            records, at, inside, start, epoch = extension.take_run(
                view, at, inside, "events", 3, start, call.rows, call.check_crcs
            )
        else:
            records, at, is_begun, start, epoch = _take_run(view, at, is_begun, start, call)
        found += [[repr(record) for record in records], (at, start, epoch)]
    return found


def assert_same_run(run: bytes, start: int, calls: Sequence[Call], columns: Sequence[str], unit: str = "ms") -> Outcome:
    """Compare both, and return what they found."""
    found = run_outcome(extension, run, start, calls, columns, unit)
    expected = run_outcome(_pure_columns, run, start, calls, columns, unit)
    assert found == expected, f"{run!r}, {start!r}, {calls!r}, {columns!r}, {unit!r}"
    records = taken_outcome(True, run, start, calls)
    assert records == taken_outcome(False, run, start, calls), f"{run!r}, {start!r}, {calls!r}"
    for transactional in (False, True):
        for most in (150, 1 << 20):
            in_c = extension.measure_run(memoryview(run), start, transactional, most)
            assert in_c == measured(memoryview(run), start, transactional, most), f"{run!r}, {start!r}, {most!r}"
    return found
