"""Records as columns: which columns exist, and the builder of batches of them, which is in C or on pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

from ..errors import ConfigError, RecordError
from ..native import NATIVE
from ..types import ArrowBatch, RawRecord
from .decode import RecordReader, implementation_of_columns

TimestampUnit: TypeAlias = Literal["ms", "us"]

#: The columns that are read if none are named: all fields of a record but its leader epoch.
COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
#: The columns that can be named. ``timestampType`` is Spark's name for ``timestamp_type``.
KNOWN_COLUMNS: Final = (*COLUMNS, "leader_epoch", "timestampType")

# Readers in Python have their records appended so many at a time. Those of a step that did not fit are decoded again: a
# step takes one record more than the call has appended, at most, or long records would be decoded many times.
_AT_ONCE: Final = 128


class ColumnBuilder(Protocol):
    """Turns records into batches of columns.

    ``size`` is the bytes of all rows so far; ``is_full``: with the next row, a column would exceed its 32-bit offsets.
    """

    @property
    def rows(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    def append_records(self, records: list[RawRecord], until: int, size: int) -> int:
        """Append records before offset ``until``, until all rows have ``size`` bytes; return how many were appended.

        Raises RecordError if the first record can't be a row of any batch.
        """

    def finish(self) -> ArrowBatch:
        """Return the rows so far and begin another batch."""


def checked_columns(columns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the columns to read (None: COLUMNS). Raises ConfigError for an unknown name, one given twice, or none."""
    if columns is None:
        return COLUMNS
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise ConfigError(f"columns must be a sequence of names, not {columns!r}")
    wanted = tuple(columns)
    unknown = [name for name in wanted if name not in KNOWN_COLUMNS]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is no column; there are {', '.join(KNOWN_COLUMNS)}")
    if not wanted or len({name.replace("timestampType", "timestamp_type") for name in wanted}) < len(wanted):
        raise ConfigError(f"columns={list(wanted)!r}: name at least one column, and each once")
    return wanted


def new_builder(columns: Sequence[str], timestamp_unit: TimestampUnit) -> ColumnBuilder:
    """Return a builder of these columns, as ``checked_columns`` returned them.

    Raises ConfigError for an unknown unit, ImportError without the C extension if pyarrow is missing, too.
    """
    if timestamp_unit not in ("ms", "us"):
        raise ConfigError(f"timestamp_unit={timestamp_unit!r} must be 'ms' or 'us'")
    builder: ColumnBuilder = implementation_of_columns().ColumnBuilder(columns, timestamp_unit)
    return builder


def append(builder: Any, reader: RecordReader, from_offset: int, until: int, rows: int, size: int) -> int:
    """Append the reader's records in [from_offset, until), at most ``rows``, until all rows have ``size`` bytes.

    Return how many. 0, with records ``remaining`` and room in the builder, means that ``until`` is reached. Raises
    RecordError as ``reader.take`` does: if rows before the record could be appended, the next call raises. If it raises
    anything else, the reader is where it was, and the builder must not be used any more.
    """
    if NATIVE and hasattr(builder, "append") and type(reader).__module__ == type(builder).__module__:
        appended: int = builder.append(reader, from_offset, until, rows, size)
        return appended
    start = reader.mark()
    try:
        return _append_in_steps(builder, reader, from_offset, until, rows, size)
    except RecordError:
        raise
    except BaseException:  # no memory, say: nothing is appended, so nothing is read
        reader.go_back(start)
        raise


def _append_in_steps(
    builder: ColumnBuilder, reader: RecordReader, from_offset: int, until: int, rows: int, size: int
) -> int:
    done = 0
    while done < rows and builder.size < size and reader.remaining:
        refusal: RecordError | None = None
        before = reader.mark()
        try:
            records = reader.take(min(rows - done, done + 1, _AT_ONCE), from_offset)
        except RecordError:
            if not done:
                raise
            break
        try:
            count = builder.append_records(records, until, size)
        except RecordError as error:
            count, refusal = 0, error
        done += count
        if count < len(records):
            reader.go_back(before)
            reader.take(0, records[count].offset)  # the reader is now before the first record that was not appended
            if refusal is not None and not done:
                raise refusal
            break
    return done
