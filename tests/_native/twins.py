"""What a decoder makes of a payload, so that the one in C can be compared with the one in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Final, TypeAlias

from aiokc.errors import CorruptRecord, RecordError
from aiokc.records import BatchHeader, NewRecord, _pure, append, encode_batch, split_batches

#: Calls of RecordReader.take: count, and from which offset on.
Calls: TypeAlias = Iterable[tuple[int, int]]
#: For each call: the records, or all about the error; and what remains.
Outcome: TypeAlias = list[object]

HEADER_SIZE: Final = 61


def batch(records: Iterable[NewRecord], **options: int | None) -> tuple[BatchHeader, bytes]:
    """An uncompressed batch as its header and its payload."""
    ((header, view),) = split_batches(memoryview(encode_batch(list(records), **options)))  # type: ignore[arg-type]
    return header, bytes(view[HEADER_SIZE:])


def outcome(decoder: ModuleType, header: BatchHeader, payload: bytes, calls: Calls) -> Outcome:
    """Return all that can be seen of a batch that ``decoder`` reads."""
    found: Outcome = []
    try:
        reader = decoder.RecordReader(header, payload, topic="events", partition=3)
    except CorruptRecord as error:
        return [_described(error)]
    for call in calls:
        try:
            found.append([repr(record) for record in reader.take(*call)])
        except CorruptRecord as error:
            found.append(_described(error))
        found.append(reader.remaining)
    return found


def assert_same(decoder: ModuleType, header: BatchHeader, payload: bytes, calls: Calls) -> Outcome:
    """Compare ``decoder`` with the one in Python, and return what both found."""
    found, expected = outcome(decoder, header, payload, calls), outcome(_pure, header, payload, calls)
    assert found == expected, f"{header!r}, {payload!r}, {list(calls)!r}"
    return found


def column_outcome(
    decoder: ModuleType,
    builders: ModuleType,
    header: BatchHeader,
    payload: bytes,
    calls: Iterable[tuple[int, int, int, int]],
    columns: Sequence[str],
    unit: str,
) -> Outcome:
    """Return all that can be seen of a batch that becomes columns. ``calls`` are those of ``aiokc.records.append``."""
    import pyarrow  # here: there is none for some Pythons, and the rest needs none

    found: Outcome = []
    try:
        reader = decoder.RecordReader(header, payload, topic="events", partition=3)
    except CorruptRecord as error:
        return [_described(error)]
    builder = builders.ColumnBuilder(columns, unit)
    for from_offset, until, rows, size in calls:
        try:
            found.append(append(builder, reader, from_offset, until, rows, size))
        except RecordError as error:
            found.append(_described(error))
        found.append((reader.remaining, reader.next_offset, builder.rows, builder.size, builder.is_full))
    table = pyarrow.record_batch(builder.finish())
    table.validate(full=True)
    return [*found, table]


def _described(error: RecordError) -> tuple[object, ...]:
    return type(error), str(error), error.topic, error.partition, error.offset
