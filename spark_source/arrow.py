"""Records into Arrow record batches of the very types that Spark expects: it refuses any other.

``to_batch`` is the one place that knows how records look; whatever decodes straight into columns takes its place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aiokc import RawRecord, TopicPartition

# Spark's JVM side is slow on batches below 1 MB and far above 8 MB.
TARGET_BYTES: Final = 4 << 20
# What a row costs apart from key, value, topic and headers: five numbers and three offsets.
_ROW_BYTES: Final = 40

_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


def to_batch(partition: TopicPartition, records: Sequence[RawRecord], columns: Sequence[str]) -> pa.RecordBatch:
    """Return these records of one partition as the named columns, in that order."""
    return pa.RecordBatch.from_arrays([_COLUMN[name](partition, records) for name in columns], names=list(columns))


def _timestamps(partition: TopicPartition, records: Sequence[RawRecord]) -> pa.Array:
    milliseconds = pa.array([record.timestamp for record in records], pa.int64())
    return pc.multiply_checked(milliseconds, 1000).cast(pa.timestamp("us", "UTC"))


def _headers(partition: TopicPartition, records: Sequence[RawRecord]) -> pa.Array:
    # Null where a record has none, as in Spark's own source.
    return pa.array([list(record.headers) or None for record in records], _HEADERS)


_COLUMN: Final[dict[str, Callable[[TopicPartition, Sequence[RawRecord]], Any]]] = {
    "key": lambda _, records: pa.array([record.key for record in records], pa.binary()),
    "value": lambda _, records: pa.array([record.value for record in records], pa.binary()),
    "topic": lambda tp, records: pa.repeat(pa.scalar(tp.topic, pa.string()), len(records)),
    "partition": lambda tp, records: pa.repeat(pa.scalar(tp.partition, pa.int32()), len(records)),
    "offset": lambda _, records: pa.array([record.offset for record in records], pa.int64()),
    "timestamp": _timestamps,
    "timestampType": lambda _, records: pa.array([record.timestamp_type for record in records], pa.int32()),
    "headers": _headers,
}


class BatchBuilder:
    """Gathers records, of one partition after another, until they make a batch of a good size."""

    def __init__(self, columns: Sequence[str], target_bytes: int = TARGET_BYTES) -> None:
        self._columns, self._target = tuple(columns), target_bytes
        self._runs: list[tuple[TopicPartition, list[RawRecord]]] = []
        self._bytes = 0

    def add(self, partition: TopicPartition, records: Sequence[RawRecord]) -> Iterator[pa.RecordBatch]:
        """Take these records; yield the batches that became full, each about the target or one record beyond it."""
        size = partial(self._size, _ROW_BYTES + len(partition.topic))
        ends = list(accumulate(map(size, records), initial=self._bytes))[1:]
        taken = done = 0
        while ends and ends[-1] - done >= self._target:
            full = bisect_left(ends, self._target + done, lo=taken) + 1
            self._keep(partition, records[taken:full])
            taken, done = full, ends[full - 1]
            yield from self.rest()
        self._keep(partition, records[taken:])
        self._bytes = ends[-1] - done if ends else self._bytes

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield what is left, if anything is."""
        runs, self._runs, self._bytes = self._runs, [], 0
        batches = [to_batch(partition, records, self._columns) for partition, records in runs]
        if len(batches) > 1:
            yield pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        else:
            yield from batches

    def _keep(self, partition: TopicPartition, records: Sequence[RawRecord]) -> None:
        if not records:
            return
        if self._runs and self._runs[-1][0] == partition:
            self._runs[-1][1].extend(records)
        else:
            self._runs.append((partition, list(records)))

    def _size(self, row_bytes: int, record: RawRecord) -> int:
        size = row_bytes + len(record.key or b"") + len(record.value or b"")
        if record.headers and "headers" in self._columns:
            size += sum(len(key) + len(value or b"") + 8 for key, value in record.headers)
        return size
