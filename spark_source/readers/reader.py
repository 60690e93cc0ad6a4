"""The readers that Spark calls: the one for batch queries, and the base of those for streams.

Spark makes two of each. One is pickled and sent to the executors, where Spark only calls read(). The other plans, in
the driver's process. So a reader connects only when it has to, and finds files and makes tokens only then.

The two of a stream are made in two processes that Spark starts for each query, one after the other. To import the
client takes longer than all else that the first one does. So a reader imports it only when it is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from aiokc.errors import ConfigError, fresh

from ..options.source_options import SourceOptions
from ..planning.task_plan import Task, tasks
from ..schema import columns_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ..cluster.commit_back import CommitBack
    from ..cluster.driver import DriverCluster
    from ..planning.stream_plan import StreamPlan


class AiokcBatchReader(DataSourceReader):
    """Reads a range of offsets for each partition, fixed when Spark plans the query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._columns = options, columns_of(schema)

    def partitions(self) -> Sequence[InputPartition]:
        from ..planning.batch_plan import batch_ranges

        with _cluster(self._options) as cluster:
            ranges, from_earliest, topic_ids = batch_ranges(self._options, cluster)
        return _input_partitions(tasks(ranges, self._options, from_earliest=from_earliest, topic_ids=topic_ids))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._columns, partition)


class StreamReader(DataSourceStreamReader):
    """Reads topics in micro-batches that can be repeated: each is a range of offsets for each partition.

    How Spark asks for the end of the next batch depends on its release: the derived classes do this.
    """

    _refusal: ConfigError | None = None

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._accepted, self._columns = options, columns_of(schema)

    @classmethod
    def refusing(cls, error: ConfigError) -> Self:
        """Return a reader that raises ``error`` whatever Spark asks it, and that can be stopped.

        A stream's process makes a reader and stops it ``finally``. Where it gets none, it fails to stop it, and what
        Spark then shows is that UnboundLocalError: last, or with SPARK_HIDE_TRACEBACK alone.
        """
        reader = cls.__new__(cls)
        reader._refusal = error
        return reader

    @property
    def _options(self) -> SourceOptions:
        """The query's options, which nearly all that Spark can ask needs. Raises what the reader is ``refusing``."""
        self._check()
        return self._accepted

    def _check(self) -> None:
        """Raise what the reader is ``refusing``."""
        if self._refusal is not None:
            raise fresh(self._refusal)

    @cached_property
    def _cluster(self) -> DriverCluster:
        return _cluster(self._options)

    @cached_property
    def _plan(self) -> StreamPlan:
        from ..planning.stream_plan import StreamPlan

        return StreamPlan(self._options, self._cluster)

    @cached_property
    def _commit_back(self) -> CommitBack:
        from ..cluster.commit_back import CommitBack

        return CommitBack(self._options, self._cluster)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's names here and below)
        start = self._plan.initial()
        self._commit_back.began(start)
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._plan.ranges(start, end)
        return _input_partitions(tasks(ranges, self._options, topic_ids=self._plan.topic_ids(ranges)))

    def commit(self, end: dict[str, Any]) -> None:
        # Spark calls this for every source of the query, also when the batch has only records of another source.
        self._plan.batch_begins()
        self._commit_back.finished(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._columns, partition)

    def stop(self) -> None:
        if "_cluster" in self.__dict__:  # else nothing was ever asked
            self._cluster.close()


def _cluster(options: SourceOptions) -> DriverCluster:
    from ..cluster.driver import DriverCluster

    return DriverCluster(
        options.client,
        security=options.security,
        attempts=options.offset_attempts,
        retry_ms=options.offset_retry_ms,
    )


def _input_partitions(planned: Sequence[Task]) -> list[InputPartition]:
    return [InputPartition(task) for task in planned]


def _read(options: SourceOptions, columns: Sequence[str], partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    if partition is None or partition.value is None:  # no partitions: None before Spark 4.2, value None since
        return iter(())
    from ..worker import read_task

    return read_task(options, columns, partition.value)
