"""Reading the ranges of one Spark task, in an executor's Python worker, into Arrow record batches.

A task that fails or is abandoned half-way closes its client (``runtimes.py``), so that a retry starts with a fresh one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from copy import copy
from typing import Final
from uuid import UUID

import pyarrow as pa

from aiokc import Client, KafkaError, RecordColumns, TopicPartition
from aiokc.errors import LogTruncated, OffsetOutOfRange, RecordError, RequestTimedOut, UnknownTopic
from aiokc.types import named

from .cluster.driver import log_ranges, topics
from .data_loss import GO_ON, RECREATED, DataLoss, OtherTopic, report, within
from .handoff import Handoff
from .options.client_options import in_words_of_a_query, with_java_names
from .options.source_options import SourceOptions
from .planning.task_plan import Task
from .runtimes import Runtime, drop, runtime_of, settling

_logger = logging.getLogger(__name__)
_package_logger = logging.getLogger(__package__)
# Set in the environment if Spark keeps what its workers log (spark.sql.pyspark.worker.logging.enabled). Spark takes
# what the loggers let through: by default only warnings. No code of the application runs here that could change that.
_SPARK_LOGS: Final = "PYSPARK_SPARK_SESSION_UUID"

# Spark's JVM side is slow on batches below 1 MB and far above 8 MB.
_BATCH_BYTES: Final = 4 << 20
# The limit of batches that Spark has not taken yet; the client's own fetch_buffer_bytes come on top. With the one that
# is being filled and the one that is being written, these are as many as the decoder keeps the memory of: more of them
# would cost new memory, and a page fault for every 4 KiB.
_QUEUE_BYTES: Final = 8 << 20
# How long a task that is about to fail checks whether its topics still exist, and how far their logs go.
_LOOK_MS: Final = 10_000

# What a client advises where a record can't be read, and what a Spark query can do instead.
_ADVICE: Final = (
    (re.compile(r"read it with getmany\(\), leave its column out"), "leave its column out of the schema"),
    (re.compile("read it with timestamp_unit='ms'"), "leave 'timestamp' out of the schema"),
    (
        re.compile(r"seek\(\) to (\d+) to skip"),
        r"begin at offset \1 by startingOffsets (a stream: with a new checkpoint) to skip",
    ),
)


class ReadCancelled(KafkaError):
    """A task ended before it had read all of its ranges, without an error that says why."""


def read_task(options: SourceOptions, columns: Sequence[str], task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the records of the task's ranges as Arrow record batches, each partition's in the order of their offsets.

    Raises DataLoss if the logs do not hold them (any more), and RecordError if one can't be read. After
    kafkaConsumer.pollTimeoutMs without progress, raises DataLoss if a log ends where the task reads on, else
    RequestTimedOut, or NoBrokersAvailable if the process had no connection yet. Logs one line when all is read.
    """
    if _SPARK_LOGS in os.environ and _package_logger.level == logging.NOTSET:
        _package_logger.setLevel(logging.INFO)
    runtime = runtime_of(options.client, options.security)
    handoff: Handoff[pa.RecordBatch] = Handoff(runtime.thread, max_bytes=_QUEUE_BYTES)
    reading = runtime.thread.submit(_TaskRead(options, columns, runtime, handoff).run(task))
    reading.add_done_callback(lambda done: handoff.finish(_outcome(done)))
    is_complete = False
    try:
        yield from handoff
        is_complete = True
    finally:
        if is_complete:
            runtime.used_now()
            settling.read_done()
        else:
            reading.cancel()
            drop(runtime)


def _outcome(done: Future[None]) -> BaseException | None:
    """Return the error that ended the reading. A cancelled one must be an error too: else rows would be missing.

    Only read_task cancels the reading, and then it no longer takes batches.
    """
    return ReadCancelled("the reading of a Spark task was cancelled") if done.cancelled() else done.exception()


class _TaskRead:
    """Reads the ranges of one task concurrently, straight into batches of columns, and counts what it reads."""

    def __init__(
        self,
        options: SourceOptions,
        columns: Sequence[str],
        runtime: Runtime,
        handoff: Handoff[pa.RecordBatch],
    ) -> None:
        self._options, self._columns, self._runtime, self._handoff = options, columns, runtime, handoff
        self._batches = self._records = self._bytes = 0
        self._waited = 0.0
        self._starts: set[tuple[TopicPartition, int]] = set()
        self._heads: set[tuple[TopicPartition, int]] = set()  # the starts of ranges that may begin later
        self._topic_ids: dict[TopicPartition, UUID | None] = {}
        self._contradicted: set[TopicPartition] = set()  # those whose rows were of another topic than the brokers named

    async def run(self, task: Task) -> None:
        """Read all ranges and hand them over; then log counts and times."""
        with in_words_of_a_query():
            await self._read_all(task)

    async def _read_all(self, task: Task) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        client = await self._runtime.client(timeout_ms=self._options.poll_timeout_ms)
        fetches = client.metrics().fetches.count
        self._starts = {(part.partition, part.start) for part in task}
        self._heads = {(part.partition, part.start) for part in task if part.from_earliest}
        self._topic_ids = {part.partition: part.topic_id for part in task}
        for ranges in rounds(task):
            await self._read(client, ranges)
        _logger.info(
            "task done: %s: %d records, %d bytes in %d Arrow batches, %d fetches, waited for Spark %.0f ms of %.0f ms",
            _ranges_of(task),
            self._records,
            self._bytes,
            self._batches,
            client.metrics().fetches.count - fetches,
            self._waited * 1e3,
            (loop.time() - began) * 1e3,
        )

    async def _read(self, client: Client, ranges: dict[TopicPartition, tuple[int, int]]) -> None:
        while ranges:
            reading = client.read_columns(
                dict(ranges),
                columns=self._columns,
                timestamp_unit="us",
                batch_bytes=_BATCH_BYTES,
                timeout_ms=self._options.poll_timeout_ms,
            )
            try:
                # A read that is left half-way would go on fetching beside the next one.
                async with aclosing(reading) as batches:
                    async for batch in batches:
                        self._check_topics(ranges, batch)
                        if len(batch):
                            await self._hand_over(batch)
                        for tp, end in batch.next_offsets.items():
                            ranges[tp] = end.offset, ranges[tp][1]
                return  # every range is read, also if its last offsets have no record
            except RecordError as error:
                raise in_sparks_words(error) from error.__cause__
            except (OffsetOutOfRange, UnknownTopic, RequestTimedOut) as error:
                unread = {tp: (start, until) for tp, (start, until) in ranges.items() if start < until}
                ranges = await self._what_is_left(client, unread, error)

    def _check_topics(self, ranges: Mapping[TopicPartition, tuple[int, int]], batch: RecordColumns) -> None:
        """Raise OtherTopic, before any row is handed over, if rows are of another topic than the planned one.

        A client that has read the former topic hears of the new one by an error. One that is new knows only the new
        one: that of Spark's next attempt after such an error, for instance, or of a worker that has just been started.
        A batch without rows counts, too: where the new topic has no record, the planned one may have had some.
        """
        others = {tp: ranges[tp][0] for tp, end in batch.next_offsets.items() if self._is_other(tp, end.topic_id)}
        if others:
            raise OtherTopic(others, {}, "its records are of another topic than the one that was planned")

    def _is_other(self, tp: TopicPartition, topic_id: UUID | None) -> bool:
        """Whether this is another topic than the one that was planned: as far as both ids are known."""
        return None not in (topic_id, self._topic_ids[tp]) and topic_id != self._topic_ids[tp]

    async def _what_is_left(
        self, client: Client, wanted: Mapping[TopicPartition, tuple[int, int]], error: KafkaError
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the parts of ``wanted`` that the logs still hold, after reading them has raised ``error``.

        Raises DataLoss if another part is missing, and ``error`` if nothing is missing: then the error is not about
        data loss.
        """
        fail = self._options.fail_on_data_loss
        existing, recreated, logs = await self._looked_up(client, wanted, error)
        if isinstance(error, RequestTimedOut):
            logs |= await self._ended(client, {tp: wanted[tp][0] for tp in existing.keys() - recreated})
        available = {tp: wanted[tp] for tp in existing} | logs
        truncated = existing.keys() & (error.offsets.keys() if isinstance(error, LogTruncated) else ())
        for tp in sorted(recreated | truncated):
            if tp in recreated:
                what, remedy = self._what_happened(tp, existing[tp]), RECREATED
            elif (tp, wanted[tp][0]) in self._starts or isinstance(error, OtherTopic):
                # Nothing of it was read, and it is the topic that was planned. The client is older: it had metadata of
                # a former topic from another task, and has those of the new one only since that error.
                continue
            else:
                what, remedy = "its log was cut while it was read", GO_ON
            report(DataLoss(tp, what, wanted=wanted[tp], available=available[tp], remedy=remedy), fail=fail)
        # Ranges that have had no record yet. After the first record, a missing one would be a hole.
        heads = {tp for tp, (start, _) in wanted.items() if (tp, start) in self._heads}
        left = {
            tp: within(tp, wanted[tp], available.get(tp), fail=fail, from_earliest=tp in heads)
            for tp in wanted
            if tp not in recreated
        }
        left = {tp: (start, until) for tp, (start, until) in left.items() if start < until}
        if left == wanted and not truncated:
            raise error
        self._heads |= {(tp, left[tp][0]) for tp in heads & left.keys()}
        return left

    async def _looked_up(
        self, client: Client, wanted: Mapping[TopicPartition, tuple[int, int]], error: KafkaError
    ) -> tuple[dict[TopicPartition, UUID | None], set[TopicPartition], dict[TopicPartition, tuple[int, int]]]:
        """Return the topic ids of the partitions that exist, which are recreated, and what the logs hold.

        After a timeout these are the logs of recreated topics alone: _ended() tells of the others. Else they are those
        of all partitions, also of those that ``error`` does not name, as far as their leaders answer. The next read
        begins anew, without the epochs of what was read. So it would not notice that another log was cut meanwhile, and
        is written on.

        Raises ``error`` if no broker tells, or if partitions are listed again that their leader does not know.
        """
        before: dict[TopicPartition, UUID | None] | None = None
        twice = self._contradicted_twice(error)
        while True:
            try:
                there = await topics(client, sorted({tp.topic for tp in wanted}), timeout_ms=_LOOK_MS)
            except KafkaError:
                raise error from error.__cause__  # the problem is that no broker answers
            existing = {
                tp: there[tp.topic].topic_id
                for tp in wanted
                if tp.topic in there and tp.partition in there[tp.topic].partitions
            }
            recreated = {tp for tp, topic_id in existing.items() if self._is_other(tp, topic_id) or tp in twice}
            named = _named_by(error, existing) - recreated
            others = set() if isinstance(error, RequestTimedOut) else existing.keys() - recreated - named
            try:
                # Of a partition that is unknown, but listed, the leader says whether it is there.
                logs = await self._logs(client, recreated | named, untils={tp: wanted[tp][1] for tp in named})
                logs |= await self._logs_in_time(client, untils={tp: wanted[tp][1] for tp in others})
                return existing, recreated, logs
            except UnknownTopic:  # it was deleted just after it was listed
                if existing == before:
                    raise error from error.__cause__
            before = existing

    async def _logs(
        self, client: Client, partitions: Iterable[TopicPartition], *, untils: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return what the logs of these partitions hold; ask once more for those that end before ``untils``."""
        # What lies behind an open transaction is in the log: a task waits for it, also with read_committed.
        logs = await log_ranges(client, partitions, isolation_level="read_uncommitted")
        behind = [tp for tp, until in untils.items() if logs[tp][1] < until]
        if behind:  # a leader that has just been elected may not know yet where its log ends
            await asyncio.sleep(self._options.offset_retry_ms / 1e3)
            logs |= await log_ranges(client, behind, isolation_level="read_uncommitted")
        return logs

    async def _logs_in_time(
        self, client: Client, *, untils: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return what the logs of these partitions hold; {} where not all leaders answer: the next read waits for them.

        The error that is looked at is about other partitions. It must neither be hidden by a leader that is away, nor
        make a task fail that would have waited for that leader.
        """
        seconds = (_LOOK_MS + self._options.offset_retry_ms) / 1e3
        try:
            async with asyncio.timeout(seconds):
                return await self._logs(client, untils, untils=untils)
        except (KafkaError, TimeoutError) as error:
            if isinstance(error, KafkaError) and (isinstance(error, UnknownTopic) or not error.retriable):
                raise
            _log_silence(untils, error, seconds)
            return {}

    async def _ended(
        self, client: Client, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return what the logs hold of which these are the next offsets, and that end at or before them; else {}.

        A log was cut to just the offset that the task reads next, or before the task began: a Fetch there is valid, and
        waits for records that nobody writes. Where not all leaders answer, nothing is said to have ended.
        """
        ended: dict[TopicPartition, tuple[int, int]] = dict.fromkeys(positions, (0, 0))
        for is_again in False, True:  # a leader that has just been elected may not know yet where its log ends
            if not ended:
                break
            if is_again:
                await asyncio.sleep(self._options.offset_retry_ms / 1e3)
            try:
                async with asyncio.timeout(_LOOK_MS / 1e3):
                    # What lies behind an open transaction is in the log.
                    logs = await log_ranges(client, ended, isolation_level="read_uncommitted")
            except (KafkaError, TimeoutError) as error:
                _log_silence(ended, error, _LOOK_MS / 1e3)
                return {}
            ended = {tp: log for tp, log in logs.items() if log[1] <= positions[tp]}
        return ended

    def _what_happened(self, tp: TopicPartition, topic_id: UUID | None) -> str:
        """Say that the topic was recreated. Where brokers still name the planned one, only its rows have told."""
        what = "its topic was deleted and created again after this was planned"
        is_named = self._is_other(tp, topic_id)
        return f"{what}: its id was {self._topic_ids[tp]} and is {topic_id}" if is_named else what

    def _contradicted_twice(self, error: KafkaError) -> set[TopicPartition]:
        """Return the partitions of which rows were of another topic for the second time, as ``error`` says.

        A broker names the topic that was planned: one of the two brokers is behind. If it was the leader that gave the
        rows, the next read has those of the planned topic. If they are of another topic again, it was the one that was
        asked.
        """
        if not isinstance(error, OtherTopic):
            return set()
        twice = self._contradicted & error.offsets.keys()
        self._contradicted |= error.offsets.keys()
        return twice

    async def _hand_over(self, batch: RecordColumns) -> None:
        loop = asyncio.get_running_loop()
        self._batches += 1
        self._records += len(batch)
        self._bytes += batch.nbytes
        began = loop.time()
        await self._handoff.put(pa.record_batch(batch), batch.nbytes)  # copies nothing
        self._waited += loop.time() - began


def _named_by(error: KafkaError, existing: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Return the existing partitions that an error is about: those it names, and all if it may be about any."""
    if isinstance(error, OffsetOutOfRange):
        return {tp for tp in existing if tp in error.offsets}
    return set() if isinstance(error, RequestTimedOut) else set(existing)


def _ranges_of(task: Task) -> str:
    ranges: dict[TopicPartition, str] = {}
    for part in task:
        ranges[part.partition] = f"{ranges.get(part.partition, part.partition)} [{part.start}, {part.until})"
    return named(ranges, write=ranges.__getitem__)


def _log_silence(partitions: Collection[TopicPartition], error: KafkaError | TimeoutError, seconds: float) -> None:
    why = str(error) or f"no answer within {seconds:g} s"
    _logger.info("not all leaders said where the logs of %s end: %s", named(partitions), why)


def in_sparks_words(error: RecordError) -> RecordError:
    """Return this error of a client, of the same class and with the same fields, with advice that a query can follow.

    The client advises its own options and calls: a Spark query has others.
    """
    text = with_java_names(str(error.args[0]))
    for clients, sparks in _ADVICE:
        text = clients.sub(sparks, text)
    again = copy(error)
    again.args = (text,)
    return again


def rounds(task: Task) -> list[dict[TopicPartition, tuple[int, int]]]:
    """Divide the task into rounds, to be read one after the other. A round has one range of a partition at most."""
    found: list[dict[TopicPartition, tuple[int, int]]] = []
    for part in task:
        free = next((ranges for ranges in found if part.partition not in ranges), None)
        if free is None:
            found.append(free := {})
        free[part.partition] = part.start, part.until
    return found
