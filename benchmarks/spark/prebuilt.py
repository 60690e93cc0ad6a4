"""The upper limit for a source written in Python: a Spark source that yields record batches made in advance.

``format("prebuilt")`` has the columns of a Kafka source. Options: ``tasks``, ``rows`` of all tasks together,
``value.size``. As a stream it has its rows once, or, with ``always=true``, again in each micro-batch.

With ``drain=host:port`` and ``topic``, each task fetches the bytes of one partition meanwhile, and drops them. It
yields no more rows than it has fetched. So the broker and the kernel's copy have their share of the processors, as
with any source.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from queue import SimpleQueue
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from spark_source.schema import kafka_schema

_BATCH_BYTES: Final = 4 << 20
_ROW_BYTES: Final = 60
#: How much of its partition a task drains with one Fetch: as much as aiokc's tasks fetch. An answer is no longer than
#: the second number: it ends with a whole batch, and has a header.
_FETCH_BYTES: Final = 4 << 20
_ANSWER_BYTES: Final = 5 << 20


@cache
def record_batch(columns: tuple[str, ...], rows: int, value_size: int) -> pa.RecordBatch:
    """Return a record batch like those of a topic of the benchmarks."""
    microseconds = pa.timestamp("us", "UTC")
    made = {
        "key": lambda: pa.array([b"%08d" % number for number in range(rows)], pa.binary()),
        "value": lambda: pa.array([b"v" * value_size] * rows, pa.binary()),
        "topic": lambda: pa.array(["benchmark"] * rows, pa.string()),
        "partition": lambda: pa.array([1] * rows, pa.int32()),
        "offset": lambda: pa.array(range(rows), pa.int64()),
        "timestamp": lambda: pa.array([1_700_000_000_000_000] * rows, pa.int64()).cast(microseconds),
        "timestampType": lambda: pa.array([0] * rows, pa.int32()),
    }
    return pa.RecordBatch.from_arrays([made[name]() for name in columns], names=list(columns))


class _Shape:
    """The shape that the options describe, and how it is read."""

    unsettled_reads = 2

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.tasks, self.rows = int(options["tasks"]), int(options["rows"])
        self.value_size, self.columns = int(options["value.size"]), tuple(schema.fieldNames())
        self.bootstrap, self.topic = options.get("drain", ""), options.get("topic", "")

    def partitions(self, batches: int = 1) -> Sequence[InputPartition]:
        rows = [batches * len(range(number, self.rows, self.tasks)) for number in range(self.tasks)]
        return [InputPartition(each) for each in enumerate(rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        number, left = partition.value
        at_once = _BATCH_BYTES // (self.value_size + _ROW_BYTES)
        full = record_batch(self.columns, at_once, self.value_size)
        arriving = drained(self.bootstrap, self.topic, number, left) if self.bootstrap else iter([left])
        arrived = 0
        while left:
            while arrived < min(left, at_once):
                arrived += next(arriving)
            yield full if left >= at_once else full.slice(0, left)
            arrived -= min(left, at_once)
            left -= min(left, at_once)
        if _Shape.unsettled_reads:  # as aiokc's tasks do: PySpark's worker collects garbage after each one
            _Shape.unsettled_reads -= 1
            gc.collect()
            gc.freeze()


@cache
def _room() -> bytearray:
    """The memory for answers. A worker of Spark's has one task at a time."""
    return bytearray(_ANSWER_BYTES)


def drained(bootstrap: str, topic: str, partition: int, records: int) -> Iterator[int]:
    """Fetch a partition's first records in a thread, and drop them; yield how many each answer brought.

    Raises what the thread raises.
    """
    from ..clients.bare_socket import drain  # not above: the plain ceiling has no need to import a part of aiokc

    host, _, port = bootstrap.rpartition(":")
    answers: SimpleQueue[int | None] = SimpleQueue()

    def fetch() -> None:
        try:
            with socket.create_connection((host, int(port))) as connection:
                for count in drain(connection, topic, {partition: 0}, records, _room(), _FETCH_BYTES):
                    answers.put(count)
        finally:
            answers.put(None)

    with ThreadPoolExecutor(1) as thread:
        fetching = thread.submit(fetch)
        yield from iter(answers.get, None)
        fetching.result()


class PrebuiltReader(_Shape, DataSourceReader):
    """All rows."""


class PrebuiltStreamReader(_Shape, DataSourceStreamReader):
    """All rows in one batch; with ``always``, the same rows again in each."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._always = options.get("always") == "true"

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's names here and below)
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"batch": start["batch"] + 1} if self._always or not start["batch"] else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # type: ignore[override]
        return super().partitions(end["batch"] - start["batch"])


class PrebuiltSource(DataSource):
    """``format("prebuilt")``."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> StructType:
        return kafka_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return PrebuiltReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return PrebuiltStreamReader(self.options, schema)
