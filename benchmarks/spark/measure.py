"""Measuring in a Spark session: ``python -m benchmarks.spark.measure JOB FOLDER`` prints a line of JSON for each.

The folder is its starter's, who removes it, also where this process is killed.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.functions import count, length, lit
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming.query import StreamingQuery

from ..cases import Case
from .cases import ALL, LEAST_RECORDS, READS, SOURCES, STREAM, TWO, VARIANTS, Read, Variant
from .cpu import seconds_between, usages
from .session import load, options, start

#: Micro-batches before the first one that counts; after so many seconds this many suffice.
_WARM_UP: Final = 1
_ENOUGH_SECONDS: Final = 15
_ENOUGH: Final = 3
#: A batch of so many seconds is still at work when the records for the next one have been written meanwhile.
_LONG: Final = 3.0
_TIMEOUT: Final = 300
#: What idles: both sources, and a session without any.
IDLE: Final = ("kafka", "aiokc", "no query")


class Incomplete(Exception):
    """A query did not read what there was to read; str() says what it was."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that one session has to measure.

    ``triggers`` micro-batches count in each of the first ``trigger_rounds`` rounds; ``idle`` is in seconds.
    """

    bootstrap: str
    slots: int
    rounds: int
    topics: dict[str, dict[str, Any]]
    reads: list[str]
    partitions: list[int]
    triggers: int
    trigger_rounds: int
    idle: float
    sources: Sequence[str] = SOURCES


@dataclass(frozen=True, slots=True)
class Found:
    """One measurement. ``what`` is a read's name, "N partitions" or "idle"; ``who`` is a source or a variant.

    ``seconds`` of a read are those of the whole query, of micro-batches the median of their addBatch; ``cpu`` is the
    time that all processes of the session used meanwhile.
    """

    what: str
    slots: int
    who: str
    round: int
    seconds: float
    cpu: float
    rows: int


def measure(job: Job, spark: SparkSession, folder: Path) -> Iterator[Found]:
    """Measure everything: every source once per round. Each round begins with another source."""
    cases = {name: Case(**fields) for name, fields in job.topics.items()}
    reads = [read for read in READS if read.name in job.reads]
    for topic, columns in dict.fromkeys((read.topic, read.columns) for read in reads):
        for source in job.sources:
            check(spark, source, job.bootstrap, cases[topic], columns)
    for number in range(1, job.rounds + 1):
        for read in reads:
            for source in _turned(job.sources, number):
                found = _read(spark, source, job.bootstrap, cases[read.topic], read, folder)
                yield Found(read.name, job.slots, source, number, *found)
        for partitions in job.partitions if number <= job.trigger_rounds else ():
            for name in _turned(list(VARIANTS), number):
                found = triggers(spark, VARIANTS[name], job.bootstrap, partitions, job.triggers, folder)
                yield Found(f"{partitions} partitions", job.slots, name, number, *found)
        if job.idle:
            for name in _turned(IDLE, number):
                seconds, cpu = idle(spark, VARIANTS.get(name), job.bootstrap, job.idle, folder)
                yield Found("idle", job.slots, name, number, seconds, cpu, 0)


def check(spark: SparkSession, source: str, bootstrap: str, case: Case, columns: str) -> None:
    """Read everything, unmeasured. Raises Incomplete unless each record was read once, with its key and value."""
    rows = load(spark, source, options(source, bootstrap, case), columns, stream=False)
    size = total(length("value")) + (0 if columns == TWO else total(length("key")))
    found = rows.agg(count(lit(1)), size, total("offset")).first()
    keys = case.records * (case.data_bytes // case.records - case.value_size)
    wanted = (case.records, case.data_bytes - (keys if columns == TWO else 0), case.offset_sum)
    known = 2 if source in ("prebuilt", "drained") else 3  # their offsets are made up
    if found is None or tuple(found)[:known] != wanted[:known]:
        raise Incomplete(f"{source} read {found} of {case.topic}, not {wanted}")


def _read(
    spark: SparkSession, source: str, bootstrap: str, case: Case, read: Read, folder: Path
) -> tuple[float, float, int]:
    given, is_stream = options(source, bootstrap, case), read.query == STREAM
    last = max(_executions(spark), default=-1)
    cpu, began = usages(), time.perf_counter()
    frame = load(spark, source, given, read.columns, stream=is_stream)
    if is_stream:
        checkpoint = str(folder / uuid.uuid4().hex)
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(_TIMEOUT):
            raise Incomplete(f"{read.name} from {source} was not done after {_TIMEOUT} s")
    else:
        frame.write.format("noop").mode("overwrite").save()
    seconds, used = time.perf_counter() - began, seconds_between(cpu, usages())
    rows = _rows_of_stream(query) if is_stream else _rows_of_batch(spark, last)
    if rows != case.records:
        raise Incomplete(f"{read.name} from {source} read {rows} rows, not {case.records}")
    return seconds, used, rows


def _rows_of_stream(query: StreamingQuery) -> int:
    return sum(progress.numInputRows for progress in query.recentProgress)


def _status(spark: SparkSession) -> Any:
    """Return Spark's store of the queries that its SQL tab shows, up to date."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return spark._jsparkSession.sharedState().statusStore()


def _executions(spark: SparkSession) -> dict[int, Any]:
    """Return these queries by number. Spark keeps only the newest thousand, so their count says nothing."""
    executions = _status(spark).executionsList()
    found = map(executions.apply, range(executions.size()))
    return {execution.executionId(): execution for execution in found}


def _rows_of_batch(spark: SparkSession, last: int) -> int:
    """Return what Spark has counted in the queries after the ``last`` one; 0 where its counts differ."""
    counts, store = set(), _status(spark)
    for number, execution in _executions(spark).items():
        if number <= last:
            continue
        values, metrics = store.executionMetrics(number), execution.metrics()
        for metric in map(metrics.apply, range(metrics.size())):
            value = values.get(metric.accumulatorId())
            if metric.name() == "number of output rows" and value.isDefined():
                counts.add(int(value.get().replace(",", "")))
    return counts.pop() if len(counts) == 1 else 0


def triggers(
    spark: SparkSession, variant: Variant, bootstrap: str, partitions: int, wanted: int, folder: Path
) -> tuple[float, float, int]:
    """Return the median addBatch of some micro-batches, in s; CPU seconds meanwhile, and their rows.

    Only batches with all the records that were written at a time count, and a batch that is begun while they are
    written sees a part of them. So where batches take long, each has its records written while another is at work.
    """
    topic, records = f"triggers-{uuid.uuid4().hex}", max(partitions, LEAST_RECORDS)
    if variant.source == "prebuilt":
        given = {"tasks": str(partitions), "rows": str(records), "value.size": "100", "always": "true"}
    else:
        _create(bootstrap, topic, partitions)
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **variant.options}
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 4, "linger.ms": 0})
    query = _start(spark, variant.source, given, folder)

    def write() -> None:
        for number in range(records):
            producer.produce(topic, b"v" * 100, b"k" * 8, partition=number % partitions)
        producer.flush(30)

    cpu = usages()
    try:
        whole = dict[int, float]()
        began = time.monotonic()
        while len(whole) < _WARM_UP + (_ENOUGH if time.monotonic() - began > _ENOUGH_SECONDS else wanted):
            if time.monotonic() - began > _TIMEOUT:
                if len(whole) > _WARM_UP:
                    break
                raise Incomplete(f"{variant.name}, {partitions} partitions: {len(whole)} batches in {_TIMEOUT} s")
            if variant.source == "prebuilt":
                query.awaitTermination(1)
            else:
                write()
                if min(whole.values(), default=0.0) < _LONG:
                    query.processAllAvailable()
                else:
                    _next_at_work(query)
            whole |= {
                progress.batchId: progress.durationMs["addBatch"] / 1e3
                for progress in query.recentProgress
                if progress.numInputRows == records
            }
        times = [seconds for _, seconds in sorted(whole.items())][_WARM_UP : _WARM_UP + wanted]
        return median(times), seconds_between(cpu, usages()), records * len(times)
    finally:
        query.stop()


def _next_at_work(query: StreamingQuery) -> None:
    """Wait until a batch has ended, and half a second more: the next one has begun, if there is a next one."""

    def last() -> int:
        return max((progress.batchId for progress in query.recentProgress if progress.numInputRows), default=-1)

    before, deadline = last(), time.monotonic() + _TIMEOUT
    while last() == before and time.monotonic() < deadline:
        query.awaitTermination(1)  # raises the error of the query
    time.sleep(0.5)


def idle(
    spark: SparkSession, variant: Variant | None, bootstrap: str, seconds: float, folder: Path
) -> tuple[float, float]:
    """Return for how long a stream had nothing to do, and the CPU seconds of all processes meanwhile."""
    query = None
    if variant is not None:
        topic = f"idle-{uuid.uuid4().hex}"
        _create(bootstrap, topic, 6)
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **variant.options}
        query = _start(spark, variant.source, given, folder)
    try:
        time.sleep(2)  # until compiler and garbage collector are done with earlier work
        cpu, began = usages(), time.perf_counter()
        time.sleep(seconds)
        return time.perf_counter() - began, seconds_between(cpu, usages())
    finally:
        if query is not None:
            query.stop()


def _start(spark: SparkSession, source: str, given: dict[str, str], folder: Path) -> StreamingQuery:
    rows = load(spark, source, given, ALL, stream=True)
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder / uuid.uuid4().hex))
    query = writer.start()
    if source != "prebuilt":
        query.processAllAvailable()  # the query has now fixed its start
    return query


def _create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(timeout=30)


def _turned(names: Sequence[str], number: int) -> list[str]:
    shift = number % len(names)
    return [*names[shift:], *names[:shift]]


def main(given: str, folder: str) -> None:
    job = Job(**json.loads(given))
    spark = start(job.slots, Path(folder))
    for found in measure(job, spark, Path(folder)):
        print(json.dumps(asdict(found)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
