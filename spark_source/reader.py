"""The readers that Spark calls, for batch and for streaming queries.

Spark makes two of each: one is pickled and sent to the executors, where only read() is called; the other plans, in the
driver's process. So nothing is connected before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from aiokc import TopicPartition

from .batch_plan import batch_ranges
from .driver import DriverCluster
from .options import SourceOptions
from .schema import columns_of
from .stream_plan import StreamPlan
from .worker import OffsetRange, read_range

if TYPE_CHECKING:
    import pyarrow as pa


class AiokcBatchReader(DataSourceReader):
    """Reads the offsets that the topics have when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._columns = options, columns_of(schema)

    def partitions(self) -> Sequence[InputPartition]:
        with DriverCluster(self._options.client) as cluster:
            return _input_partitions(batch_ranges(self._options, cluster))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._columns, partition)


class AiokcStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics in micro-batches that can be repeated: each is a range of offsets per partition."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._columns = options, columns_of(schema)
        self._cluster = DriverCluster(options.client)
        self._plan = StreamPlan(options, self._cluster)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's names here and below)
        self._plan.freeze()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._plan.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return self._plan.latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._plan.known_ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return _input_partitions(self._plan.ranges(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._columns, partition)

    def stop(self) -> None:
        self._cluster.close()


def _input_partitions(ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[InputPartition]:
    return [InputPartition(OffsetRange(tp, start, until)) for tp, (start, until) in sorted(ranges.items())]


def _read(options: SourceOptions, columns: Sequence[str], partition: InputPartition) -> Iterator[pa.RecordBatch]:
    wanted = partition.value
    return iter(()) if wanted is None else read_range(options, columns, wanted)  # None: Spark's "no partitions"
