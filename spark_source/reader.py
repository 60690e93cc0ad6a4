"""The readers that Spark calls, for batch and for streaming queries.

Spark makes two of each: one is pickled and sent to the executors, where only read() is called; the other plans, in the
driver's process. So nothing is connected before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .batch_plan import batch_ranges
from .commit_back import CommitBack
from .driver import DriverCluster
from .options import SourceOptions
from .schema import columns_of
from .stream_plan import StreamPlan
from .task_plan import Task, tasks
from .worker import read_task

if TYPE_CHECKING:
    import pyarrow as pa


class AiokcBatchReader(DataSourceReader):
    """Reads the offsets that the topics have when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._columns = options, columns_of(schema)

    def partitions(self) -> Sequence[InputPartition]:
        with _cluster(self._options) as cluster:
            ranges = batch_ranges(self._options, cluster)
        return _input_partitions(tasks(ranges, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._columns, partition)


class AiokcStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics in micro-batches that can be repeated: each is a range of offsets per partition."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._columns = options, columns_of(schema)
        self._cluster = _cluster(options)
        self._plan = StreamPlan(options, self._cluster)
        self._commit_back = CommitBack(options, self._cluster)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's names here and below)
        self._plan.freeze()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        start = self._plan.initial()
        self._commit_back.began(start)
        return start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark has no limit that says both; latestOffset() looks at the options for itself.
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._commit_back.finished(start)
        if isinstance(limit, ReadAllAvailable):  # no limit in the options, or trigger(once=True)
            return self._plan.latest(start)
        return self._plan.latest(start, self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._plan.known_ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return _input_partitions(tasks(self._plan.ranges(start, end), self._options))

    def commit(self, end: dict[str, Any]) -> None:
        # Spark tells every source of the query, whichever of them the next batch has records of.
        self._plan.batch_begins()
        self._commit_back.finished(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._columns, partition)

    def stop(self) -> None:
        self._cluster.close()


def _cluster(options: SourceOptions) -> DriverCluster:
    return DriverCluster(options.client, attempts=options.offset_attempts, retry_ms=options.offset_retry_ms)


def _input_partitions(planned: Sequence[Task]) -> list[InputPartition]:
    return [InputPartition(task) for task in planned]


def _read(options: SourceOptions, columns: Sequence[str], partition: InputPartition) -> Iterator[pa.RecordBatch]:
    task = partition.value
    return iter(()) if task is None else read_task(options, columns, task)  # None: Spark's "no partitions"
