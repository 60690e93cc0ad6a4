"""The column builder on pyarrow: used where the C extension is missing, and the reference in the extension's tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..types import RawRecord
from .unfit import no_timestamp, too_large

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError(
        "this installation of aiokc has no working aiokc._native.extension, and without that columns need pyarrow: "
        "pip install 'aiokc[arrow]', or install aiokc from a wheel or with a C compiler"
    ) from error

_HEADER_BYTES: Final = 8
_AT_ONCE: Final = 512
_LAST_MICROSECOND_MS: Final = ((1 << 63) - 1) // 1000

_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_TYPES: Final[dict[str, Any]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "timestamp_type": pa.int32(),
    "timestampType": pa.int32(),
    "headers": _HEADERS,
    "leader_epoch": pa.int32(),
}
_WIDE: Final = ("offset", "timestamp")


def _headers(record: RawRecord) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in record.headers] or None


_FIELDS: Final[dict[str, Callable[[RawRecord], Any]]] = {
    "headers": _headers,
    "timestampType": lambda record: record.timestamp_type,
}


class ArrowBatch:
    """A batch of columns, in the memory layout of Apache Arrow."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    @property
    def nbytes(self) -> int:
        return int(self._batch.nbytes)

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def __arrow_c_schema__(self) -> object:
        return self._batch.schema.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        both: tuple[object, object] = self._batch.__arrow_c_array__(requested_schema)
        return both

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._batch.__arrow_c_stream__(requested_schema)


class ColumnBuilder:
    """Turns records into batches of columns."""

    __slots__ = (
        "_columns",
        "_contents",
        "_done",
        "_in_microseconds",
        "_most",
        "_records",
        "_row_bytes",
        "_schema",
        "is_full",
        "rows",
        "size",
    )

    def __init__(self, columns: Sequence[str], timestamp_unit: str = "ms", most: int = (1 << 31) - 1) -> None:
        types = {**_TYPES, "timestamp": pa.timestamp(timestamp_unit, "UTC")}
        self._schema = pa.schema([(name, types[name]) for name in columns])
        self._columns = tuple(columns)
        self._in_microseconds = timestamp_unit == "us" and "timestamp" in columns
        self._most = most
        self._row_bytes = sum(8 if name in _WIDE else 4 for name in columns)
        self._begin()

    def _begin(self) -> None:
        self._records: list[RawRecord] = []
        self._done: list[Any] = []  # the records before ``_records``, as columns
        self.rows = 0
        self._contents = [0] * 5  # bytes of keys, values, topics, and of headers' keys and values; see _measure
        self.size = 0
        self.is_full = False

    def append_records(self, records: list[RawRecord], until: int, size: int) -> int:
        """Append records before offset ``until``, until all rows have ``size`` bytes; return how many were appended."""
        for count, record in enumerate(records):
            if self.size >= size or record.offset >= until:
                return count
            if not self._append(record, is_first=count == 0):
                return count
        return len(records)

    def _append(self, record: RawRecord, *, is_first: bool) -> bool:
        measured = self._measure(record)
        contents = list(map(sum, zip(self._contents, measured, strict=True)))
        if max(contents) > self._most or contents[3] + contents[4] > self._most:
            self.is_full = self.rows > 0
            if self.is_full or not is_first:
                return False
            raise too_large(record.topic, record.partition, record.offset, self._most)
        if self._in_microseconds and abs(record.timestamp) > _LAST_MICROSECOND_MS:
            if not is_first:
                return False
            raise no_timestamp(record.topic, record.partition, record.offset, record.timestamp)
        self._records.append(record)
        self.rows += 1
        self._contents = contents
        self.size += self._row_bytes + sum(measured)
        if "headers" in self._columns:
            self.size += _HEADER_BYTES * len(record.headers)
        if len(self._records) == _AT_ONCE:
            self._convert()
        return True

    def _measure(self, record: RawRecord) -> list[int]:
        columns = self._columns
        headers = record.headers if "headers" in columns else ()
        return [
            len(record.key or b"") if "key" in columns else 0,
            len(record.value or b"") if "value" in columns else 0,
            len(record.topic.encode()) if "topic" in columns else 0,
            sum(len(key.encode()) for key, _ in headers),
            sum(len(value or b"") for _, value in headers),
        ]

    def finish(self) -> ArrowBatch:
        """Return the rows so far and begin another batch."""
        self._convert()
        (batch,) = pa.Table.from_batches(self._done).combine_chunks().to_batches() if self.rows else self._done
        self._begin()
        return ArrowBatch(batch)

    def _convert(self) -> None:
        """Turn the records so far into columns. That is done 512 at a time, so that ``finish`` does not take long."""
        if self._records or not self._done:
            arrays = [self._array(name, field.type) for name, field in zip(self._columns, self._schema, strict=True)]
            self._done.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            self._records = []

    def _array(self, name: str, kind: Any) -> Any:
        of = _FIELDS.get(name)
        contents = [getattr(record, name) if of is None else of(record) for record in self._records]
        if name == "timestamp" and kind.unit == "us":
            contents = [timestamp * 1000 for timestamp in contents]
        return pa.array(contents, pa.int64()).cast(kind) if name == "timestamp" else pa.array(contents, kind)
