"""Wires the parts behind a Producer together: appending, flushing, and in which order they start and stop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import anyio

from ...config import ProducerConfig
from ...core.produce.accumulator import AccumulatorOptions, RecordAccumulator
from ...core.produce.failure import Cause, Failure
from ...core.produce.session import ProducerSession
from ...errors import BufferFull, MessageTooLarge, ProducerClosed, RequestTimedOut, UsageError
from ...records import Codec
from ...records.encoding.batch_builder import record_bound
from ...types import HeadersToSend, ProducerRecord, RecordMetadata
from ..aio.signal import Signal
from ..aio.supervisor import Driver
from ..cluster.cluster_client import ClusterClient
from ..produce.callbacks import Callbacks
from ..produce.delivery import Delivery, OnDelivered, Told
from ..produce.intercepting import ProducerInterceptors
from ..produce.memory import MemoryWaiters
from ..produce.outcomes import Outcomes
from ..produce.producer_ids import ProducerIds
from ..produce.routes import Routes, TopicRoute
from ..produce.sender import Sender
from ..produce.serializing import Serializing
from ..transactions.driver import TransactionDriver
from ..transactions.session import TransactionSession


class _Calls(Signal):
    """A follower of a signal that calls a function at once."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    def notify(self) -> None:
        self._call()


class ProducerRuntime:
    """Everything that a Producer does, behind its public calls. Timeouts are in seconds."""

    def __init__(
        self,
        config: ProducerConfig,
        random: Random,
        key: object = None,
        value: object = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``key`` and ``value`` are the application's serializers; None: there is none."""
        self._config = config
        self._clock = clock
        self._stopping = False
        self.cluster_client = cluster_client = ClusterClient(
            config, random, allow_auto_topic_creation=True, closed=ProducerClosed
        )
        pool, metadata = cluster_client.pool, cluster_client.metadata
        self.serializing = Serializing(key, value)
        self.interceptors = ProducerInterceptors(config.interceptors) if config.interceptors else None
        self.transactions: TransactionDriver | None = None
        self.session: ProducerSession
        self._own_driver: Driver
        if config.transactional_id is None:
            self.session = ids = ProducerIds(config, pool, random, changed=lambda: self.sender.wake.notify())
            self._own_driver = ids.run
        else:
            self.transactions = transactions = TransactionDriver(
                config,
                pool,
                random,
                config.transactional_id,
                batches=lambda: self.sender,
                check=cluster_client.check,
                ended=lambda: self.outcomes.unobserved.transaction_ended(),
            )
            self.session = TransactionSession(config.transactional_id, transactions)
            self._own_driver = transactions.run
        self.accumulator = RecordAccumulator(options_of(config), self.session, pauses_of(config, random))
        self.callbacks = Callbacks()
        self.outcomes = Outcomes(self.accumulator, self.callbacks)
        self.memory = MemoryWaiters(self.accumulator, lambda: self.sender.wake.notify())
        self.sender = Sender(
            config,
            pool,
            metadata,
            self.accumulator,
            random,
            tell=self.outcomes.tell,
            memory_is_wanted=lambda: len(self.memory) > 0,
        )
        self.routes = Routes(config, metadata, self.accumulator, random, self.check)
        self.sender.progress.followed_by(_Calls(self.memory.grant))
        metadata.changed.followed_by(self.sender.wake)
        cluster_client.background.ended.followed_by(_Calls(self._background_ended))
        pool.on_refused = metadata.changed.notify

    # Life

    async def start(self, *, timeout: float) -> None:
        deadline = asyncio.get_running_loop().time() + timeout
        drivers = [self.sender.run, self._own_driver, self.routes.run]
        try:
            await self.cluster_client.start(drivers, timeout=timeout)
        except BaseException:
            if not self.cluster_client.running:
                self._close_interceptors()
            raise
        if self.transactions is not None:
            try:
                await self.transactions.initialize(deadline)
            except BaseException:
                await self.stop(timeout=0.0)
                raise

    async def stop(self, *, timeout: float) -> None:
        """Send what was appended, within ``timeout`` seconds; then every delivery is done, and the background ends."""
        if self.callbacks.running:
            raise UsageError("stop() in a callback: it would wait for that callback; call it in a task of its own")
        self.cluster_client.check_loop()
        is_first, self._stopping = not self._stopping, True
        self.memory.close(lambda: ProducerClosed("stopping: the record was not appended"))
        self.cluster_client.metadata.changed.notify()  # who waits for metadata looks again, and ends
        try:
            if is_first and self.cluster_client.running and self.cluster_client.background.alive:
                # As in ConsumerRuntime.stop: a cancelled scope around this call must not lose what was appended.
                is_cancelled = anyio.current_effective_deadline() == -math.inf
                self.sender.closing = True
                with anyio.CancelScope(shield=is_cancelled):
                    ends = self.cluster_client.now() + timeout
                    if self.transactions is not None:
                        await self.transactions.close(ends)
                    await self.sender.flushed(self.sender.flush(), ends - self.cluster_client.now())
        finally:
            self.sender.end(Failure(Cause.CLOSED))
            with anyio.CancelScope(shield=True):
                await self.cluster_client.stop()
            self.callbacks.run()
            self._close_interceptors()

    def _close_interceptors(self) -> None:
        if self.interceptors is not None:
            self.interceptors.close()

    def _background_ended(self) -> None:
        """Whatever ended the background, nobody may wait for it any more (I4)."""
        if self._stopping:
            return
        error = self.cluster_client.background.error or ProducerClosed("the background task was cancelled")
        failure = Failure(Cause.BROKEN, error=error)
        self.sender.end(failure)
        self.memory.close(failure.producer_error)
        self.cluster_client.metadata.changed.notify()
        if self.transactions is not None:
            self.transactions.moved.notify()

    def check_running(self) -> None:
        """Raise ProducerClosed unless running, and what ended the background."""
        self.cluster_client.check()
        if self._stopping:
            raise ProducerClosed("stopping: nothing more is sent")

    def check(self) -> None:
        """Raise what every append raises now."""
        self.check_running()
        self.session.check_append()

    # Appending

    async def send(self, record: ProducerRecord[Any, Any], *, timeout: float) -> Delivery:
        """Append a record: wait for its topic's metadata, its serializers and memory, at most ``timeout`` seconds."""
        self.check()
        self.cluster_client.raise_refusal()
        if self.interceptors is not None:
            record = self.interceptors.on_send(record)
        try:
            return await self._send(record, timeout)
        except Exception as error:
            self._failed_before_append(record, error)
            raise

    async def _send(self, record: ProducerRecord[Any, Any], timeout: float) -> Delivery:
        now = self.cluster_client.now
        deadline = now() + timeout
        topic, headers = record.topic, record.headers
        if self.serializing.is_async:
            serialized = self.serializing.serialize_async(topic, headers, record.key, record.value)
            with anyio.move_on_after(timeout) as scope:
                key, value = await serialized
            if scope.cancelled_caught:
                raise RequestTimedOut(f"the serializers of a record for {topic!r} took longer than {timeout:.3g} s")
            self.check()
        else:
            key, value = self.serializing.serialize(topic, headers, record.key, record.value)
        partition = record.partition
        route = self.routes.known(topic)
        if route is None or (partition is not None and partition >= len(route.queues)):
            route = await self.routes.find(topic, partition, deadline - now())
        if partition is None:
            partition = self.routes.choose(route, key, value)
            if partition is not None and partition >= len(route.queues):
                route = await self.routes.find(topic, partition, deadline - now())
        size = self._checked_size(record, key, value)
        if not self.memory.has_room(size):
            if not await self.memory.wait(size, deadline - now()):
                raise self._buffer_full(record)
            self.check()
        return self._append(route, partition, record, key, value)

    def send_soon(self, record: ProducerRecord[Any, Any], on_done: OnDelivered | None) -> Delivery:
        """Append a record now. Raises MetadataMissing and BufferFull in the place of waiting."""
        self.check()
        if self.interceptors is not None:
            record = self.interceptors.on_send(record)
        try:
            return self._send_soon(record, on_done)
        except Exception as error:
            self._failed_before_append(record, error)
            raise

    def _send_soon(self, record: ProducerRecord[Any, Any], on_done: OnDelivered | None) -> Delivery:
        if self.serializing.is_async:
            raise UsageError("send_soon() can't wait for an AsyncSerializer: use send()")
        topic, partition = record.topic, record.partition
        route = self.routes.known(topic)
        if route is None:
            self.routes.follow(topic)
            raise self.routes.missing(topic, partition)
        key, value = self.serializing.serialize(topic, record.headers, record.key, record.value)
        if partition is None:
            partition = self.routes.choose(route, key, value)
        if partition is not None and partition >= len(route.queues):
            self.cluster_client.metadata.request_missing()
            raise self.routes.missing(topic, partition)
        if not self.memory.has_room(self._checked_size(record, key, value)):
            self.sender.wake.notify()
            raise self._buffer_full(record)
        return self._append(route, partition, record, key, value, on_done)

    def _append(
        self,
        route: TopicRoute,
        partition: int | None,
        record: ProducerRecord[Any, Any],
        key: bytes | None,
        value: bytes | None,
        on_done: OnDelivered | None = None,
    ) -> Delivery:
        accumulator = self.accumulator
        queue = self.routes.stick(route) if partition is None else route.queues[partition]
        timestamp = int(self._clock() * 1000) if record.timestamp_ms is None else record.timestamp_ms
        now = self.cluster_client.now()
        batch = accumulator.append(queue, timestamp, key, value, record.headers, now)
        route.used_at = now
        if partition is None:
            self.routes.stuck(route, queue)
        if batch.count == 1:
            self.session.appended(queue.tp)
        if accumulator.news:
            self.sender.wake.notify()
        delivery = Delivery(batch, batch.count - 1, timestamp)
        if self.interceptors is not None:
            acknowledged = partial(self._acknowledged, record.headers)
            delivery.when_done(Told(acknowledged, timestamp, observes=False))
        if on_done is not None:
            delivery.when_done(Told(on_done, timestamp))
        return delivery

    def _checked_size(self, record: ProducerRecord[Any, Any], key: bytes | None, value: bytes | None) -> int:
        size = record_bound(key, value, record.headers)
        config = self._config
        if size > config.max_request_size:
            why = f"{size} bytes, and max_request_size is {config.max_request_size}: raise it, and max.message.bytes"
        elif self.accumulator.cost(size) > config.buffer_memory:
            why = f"{size} bytes, and buffer_memory is {config.buffer_memory}: raise it"
        else:
            return size
        raise MessageTooLarge(why, topic=record.topic, partition=-1 if record.partition is None else record.partition)

    def _buffer_full(self, record: ProducerRecord[Any, Any]) -> BufferFull:
        trouble = self.cluster_client.pool.error or self.cluster_client.metadata.error
        why = (
            f"buffer_memory={self._config.buffer_memory} is used up by records that are not acknowledged yet"
            f"{'' if trouble is None else f'; {trouble}'}"
        )
        return BufferFull(why, topic=record.topic, partition=-1 if record.partition is None else record.partition)

    def _acknowledged(self, headers: HeadersToSend, metadata: RecordMetadata, error: Exception | None) -> None:
        if self.interceptors is not None:
            self.interceptors.on_acknowledgement(metadata, error, headers)

    def _failed_before_append(self, record: ProducerRecord[Any, Any], error: Exception) -> None:
        self.session.refused(error)
        if self.interceptors is None:
            return
        timestamp = -1 if record.timestamp_ms is None else record.timestamp_ms
        partition = -1 if record.partition is None else record.partition
        metadata = RecordMetadata(record.topic, partition, None, timestamp)
        self.callbacks.add(partial(self._acknowledged, record.headers, metadata, error))

    # Flushing

    async def flush(self, *, timeout: float | None) -> None:
        """Return when all that was appended before has its outcome. Raises the first failure that nobody has seen."""
        self.cluster_client.check()
        if not await self.sender.flushed(self.sender.flush(), timeout):
            raise RequestTimedOut(f"flush(): not all records were acknowledged within {timeout:.3g} s")
        self.raise_unobserved()

    def raise_unobserved(self) -> None:
        error = self.outcomes.unobserved.take()
        if error is not None:
            raise error


def options_of(config: ProducerConfig) -> AccumulatorOptions:
    """Return what the accumulator needs of a producer's options."""
    return AccumulatorOptions(
        batch_size=config.batch_size,
        buffer_memory=config.buffer_memory,
        max_request_size=config.max_request_size,
        linger=config.linger_ms / 1e3,
        delivery_timeout=config.delivery_timeout_ms / 1e3,
        window=config.max_in_flight_requests_per_connection,
        codec=Codec[config.compression_type.upper()],
        level=config.effective_compression_level,
    )


def pauses_of(config: ProducerConfig, random: Random) -> Callable[[int], float]:
    """Return how long a batch waits for its next attempt, by how many have failed (KIP-580)."""
    least, most = config.retry_backoff_ms / 1e3, config.retry_backoff_max_ms / 1e3

    def pause(attempts: int) -> float:
        grown: float = min(least * 2 ** min(attempts - 1, 30), most)
        return min(grown * random.uniform(0.8, 1.2), most)

    return pause
