"""Reading one range of one partition in an executor's Python worker.

Spark reuses a worker process for many tasks, so the connections stay: one loop thread and one client for each
configuration, for as long as the process lives. Positions do not stay: the next batch of a partition may run in another
worker. Whatever fails or is abandoned half-way takes its client along, so that a retry starts with a fresh one.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from aiokc import Client, ClientConfig, KafkaError, TopicPartition
from aiokc.errors import OffsetOutOfRange, UnknownTopic

from .arrow import BatchBuilder
from .data_loss import within
from .driver import log_ranges
from .handoff import Handoff
from .loop_thread import LoopThread
from .options import SourceOptions

_logger = logging.getLogger(__name__)

# Converted batches that Spark has not taken yet; the client's own fetch_buffer_bytes come on top.
_QUEUE_BYTES: Final = 16 << 20
_STOP_TIMEOUT: Final = 5.0
_UNSETTLED_READS: Final = 2


class OffsetRange(NamedTuple):
    """What one task reads: records of one partition from ``start`` on, before ``until``."""

    partition: TopicPartition
    start: int
    until: int


class Runtime:
    """One loop thread with one client, which connects when it is first needed."""

    def __init__(self, config: ClientConfig) -> None:
        self.thread = LoopThread("aiokc in a Spark worker")
        self._config = config
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._unsettled_reads = _UNSETTLED_READS

    async def client(self) -> Client:
        """Return the client, connected. Raises NoBrokersAvailable."""
        async with self._connecting:
            if self._client is None:
                client = Client(self._config)
                await client.start()
                self._client = client
            return self._client

    def settle(self) -> None:
        """Take what was imported by now out of the garbage collector's sight.

        PySpark's worker calls gc.collect() after every task. With pyarrow and pandas loaded that takes some 40 ms, more
        than all the rest of a small task. Some of their imports are made during the first read only.
        """
        if self._unsettled_reads:
            self._unsettled_reads -= 1
            gc.collect()
            gc.freeze()

    def close(self) -> None:
        """Close the connections and end the thread, within some seconds."""
        client, self._client = self._client, None
        try:
            if client is not None:
                self.thread.call(client.stop(), what="closing the connections", timeout=_STOP_TIMEOUT)
        except KafkaError as error:
            _logger.warning("the connections of a Spark task were not closed cleanly: %s", error)
        finally:
            self.thread.close(timeout=_STOP_TIMEOUT)


_runtimes: dict[ClientConfig, Runtime] = {}
# Threads do not survive a fork: a child must not wait for those of its parent.
os.register_at_fork(after_in_child=_runtimes.clear)


def read_range(options: SourceOptions, columns: Sequence[str], wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the records of ``wanted`` as Arrow record batches, in order of their offsets.

    Raises DataLoss where the log does not hold them (any more), and RequestTimedOut after
    kafkaConsumer.pollTimeoutMs without progress.
    """
    runtime = _runtimes.get(options.client)
    if runtime is None:
        runtime = _runtimes[options.client] = Runtime(options.client)
    handoff: Handoff[pa.RecordBatch] = Handoff(runtime.thread.loop, max_bytes=_QUEUE_BYTES)
    reading = runtime.thread.submit(_read_into(handoff, runtime, options, columns, wanted))
    reading.add_done_callback(lambda done: handoff.finish(None if done.cancelled() else done.exception()))
    is_complete = False
    try:
        yield from handoff
        is_complete = True
    finally:
        if is_complete:
            runtime.settle()
        else:
            reading.cancel()
            _runtimes.pop(options.client, None)
            runtime.close()


async def _read_into(
    handoff: Handoff[pa.RecordBatch],
    runtime: Runtime,
    options: SourceOptions,
    columns: Sequence[str],
    wanted: OffsetRange,
) -> None:
    client, builder = await runtime.client(), BatchBuilder(wanted.partition, columns)
    tp, position, until = wanted
    while position < until:
        try:
            async for part in client.read({tp: (position, until)}, timeout_ms=options.poll_timeout_ms):
                for batch in builder.add(part.records):
                    await handoff.put(batch, batch.nbytes)
                position = part.next_offset
            break  # the range is passed, also where its last offsets hold no record
        except (OffsetOutOfRange, UnknownTopic):
            left = await _what_is_left(client, options, OffsetRange(tp, position, until))
            if left == (position, until):
                raise  # the log does hold it: then this is not about data loss
            position, until = left
    for batch in builder.rest():
        await handoff.put(batch, batch.nbytes)


async def _what_is_left(client: Client, options: SourceOptions, wanted: OffsetRange) -> tuple[int, int]:
    """Return the part of ``wanted`` that the log still holds. Raises DataLoss if that is not all of it."""
    tp, start, until = wanted
    try:
        available = (await log_ranges(client, [tp])).get(tp)
    except UnknownTopic:
        available = None
    return within(tp, (start, until), available, fail=options.fail_on_data_loss)
