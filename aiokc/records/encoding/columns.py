"""Arrow record batches as records to send: the columns value, key, partition, timestamp and headers, found by name."""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeAlias

from ... import native
from ...types import Headers, ProducerRecord
from . import _pure

#: Value, key, partition, timestamp in ms, headers.
Row: TypeAlias = tuple[bytes | None, bytes | None, int | None, int | None, Headers]


class ArrowColumns(Protocol):
    """What has Arrow's PyCapsule interface for one record batch: pyarrow's, aiokc's own, and others."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


class ColumnRecords(Protocol):
    """The rows of a batch. ``append`` does with rows what ``append_records`` does with records."""

    def __len__(self) -> int: ...
    def append(
        self,
        appenders: list[Any],
        start: int,
        stop: int,
        timestamp: int,
        sticky: int,
        keys: int,
        largest: int,
        room: int,
        touched: list[int],
        /,
    ) -> tuple[int, int]: ...
    def record(self, row: int, /) -> Row: ...


def column_records(columns: ArrowColumns) -> ColumnRecords:
    """Return the rows of a record batch, or of an array of structs.

    Raises TypeError for columns of other types, where there is no column value, and where a row is null.

    Without the extension it raises ImportError where pyarrow is missing.
    """
    if native.NATIVE:
        found: ColumnRecords = native.extension.ColumnRecords(*columns.__arrow_c_array__())
        return found
    return PyArrowRecords(columns)


_NAMES: Final = ("value", "key", "partition", "timestamp", "headers")
_PER_MS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


class PyArrowRecords:
    """The rows of a batch by pyarrow: the oracle of the ones in C (_native/column_records.c)."""

    def __init__(self, columns: ArrowColumns) -> None:
        import pyarrow  # here: it is needed where there is no extension

        batch = _batch(pyarrow, columns)
        types, given = pyarrow.types, [name for name in batch.schema.names if name in _NAMES]
        for name in given:
            if given.count(name) > 1:
                raise TypeError(f"there are two columns {name}")
            if not _fits(types, name, batch.schema.field(name).type):
                raise TypeError(f"column {name} has Arrow's type {batch.schema.field(name).type}")
        if "value" not in given:
            raise TypeError("there is no column value")
        self._count: int = batch.num_rows
        self._columns = {name: _plain(pyarrow, batch.column(name)) for name in given}

    def __len__(self) -> int:
        return self._count

    def record(self, row: int, /) -> Row:
        if not 0 <= row < self._count:
            raise IndexError("there is no such row")
        value, key, partition, timestamp, headers = (
            self._columns[name][row] if name in self._columns else None for name in _NAMES
        )
        pairs = tuple((pair["key"], pair["value"]) for pair in headers or ())
        return value, key, partition, timestamp, pairs

    def append(
        self,
        appenders: list[Any],
        start: int,
        stop: int,
        timestamp: int,
        sticky: int,
        keys: int,
        largest: int,
        room: int,
        touched: list[int],
        /,
    ) -> tuple[int, int]:
        rows = tuple(ProducerRecord("", *self.record(row)) for row in range(max(start, 0), min(stop, self._count)))
        at, room = _pure.append_records(
            appenders, "", rows, 0, len(rows), timestamp, sticky, keys, largest, room, touched
        )
        return max(start, 0) + at, room


def _batch(pyarrow: Any, columns: ArrowColumns) -> Any:
    """Return the rows as a record batch: pyarrow.record_batch() takes no part of an array, nor one with null rows."""
    rows = pyarrow.array(columns)
    if not pyarrow.types.is_struct(rows.type):
        raise TypeError(f"Arrow's type {rows.type}: give a record batch, with a column for each part of a record")
    if rows.null_count:
        row = rows.is_null().index(True).as_py()
        raise TypeError(f"row {row} is null: a record without a value is a row whose column value is null")
    return pyarrow.RecordBatch.from_struct_array(rows)


def _fits(types: Any, name: str, kind: Any) -> bool:
    if types.is_null(kind):
        return True
    if name in ("value", "key"):
        return _is_content(types, kind)
    if name == "partition":
        return bool(types.is_int32(kind) or types.is_int64(kind))
    if name == "timestamp":
        return bool(types.is_timestamp(kind) or types.is_int64(kind) or types.is_int32(kind))
    if not (types.is_list(kind) or types.is_large_list(kind)):
        return False
    pair = kind.value_type
    if not types.is_struct(pair) or pair.num_fields != 2 or pair.field(0).name != "key":
        return False
    is_text = types.is_string(pair.field(0).type) or types.is_large_string(pair.field(0).type)
    return bool(is_text and (_is_content(types, pair.field(1).type) or types.is_null(pair.field(1).type)))


def _is_content(types: Any, kind: Any) -> bool:
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_string(kind) or types.is_large_string(kind)
    )


def _plain(pyarrow: Any, column: Any) -> list[Any]:
    """Return a column's rows as Python objects: bytes for texts, and timestamps in ms, rounded down."""
    types, kind = pyarrow.types, column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return [None if text is None else text.encode() for text in column.to_pylist()]
    if types.is_timestamp(kind):
        times, per = _PER_MS[kind.unit]
        numbers = column.cast(pyarrow.int64()).to_pylist()
        return [None if number is None else number * times // per for number in numbers]
    rows: list[Any] = column.to_pylist()
    if types.is_list(kind) or types.is_large_list(kind):
        text = types.is_string(kind.value_type.field(1).type) or types.is_large_string(kind.value_type.field(1).type)
        name = kind.value_type.field(1).name
        return [None if row is None else [_pair(pair, name, text) for pair in row] for row in rows]
    return rows


def _pair(pair: dict[str, Any] | None, name: str, is_text: bool) -> dict[str, Any]:
    if pair is None:
        return {"key": None, "value": None}
    value = pair[name]
    return {"key": pair["key"], "value": value.encode() if is_text and value is not None else value}
