"""Appending: one record's way from the application's call into a batch, with or without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from ...config import ProducerConfig
from ...core.produce.accumulator import RecordAccumulator
from ...errors import (
    BufferFull,
    KafkaError,
    MessageTooLarge,
    MetadataMissing,
    ProduceError,
    RequestTimedOut,
    TransactionAborted,
    UsageError,
)
from ...net.user_errors import USER_ERRORS, as_error
from ...records.encoding.batch_builder import record_bound
from ...types import HeadersToSend, ProducerRecord, RecordMetadata
from ..aio.time_slice import let_others_run
from ..produce.callbacks import Callbacks
from ..produce.delivery import Delivery, OnDelivered, Told
from ..produce.memory import MemoryWaiters
from ..produce.routes import Routes, TopicRoute
from ..produce.sender import Sender
from ..produce.serializing import Serializing
from .health import longest_trouble
from .intercepting import ProducerInterceptors
from .quick_sends import QuickSends
from .records import checked_record


class Appending:
    """Appends records. ``send`` waits for what is missing, ``send_soon`` raises in its place.

    Between the last look (memory, the partition) and the append there is no await: so a cancelled call has appended
    nothing, and the records of one partition are in the order of these steps.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        sender: Sender,
        routes: Routes,
        memory: MemoryWaiters,
        callbacks: Callbacks,
        serializing: Serializing,
        *,
        check: Callable[[], None],
        now: Callable[[], float],
        clock: Callable[[], float],
        trouble: Callable[[], KafkaError | None],
    ) -> None:
        """``check`` raises what every append raises now. ``now`` is loop time, ``clock`` seconds since the epoch."""
        self.accumulator = accumulator
        self.routes = routes
        self.memory = memory
        self.callbacks = callbacks
        self.serializing = serializing
        self.interceptors = ProducerInterceptors(config.interceptors, _checked) if config.interceptors else None
        self.check = check
        self.now = now
        self.clock = clock
        self._config = config
        self._sender = sender
        self._trouble = trouble
        self._why_full = ""
        self._why_until = float("-inf")
        self._in_serializers: set[anyio.CancelScope] = set()
        keys = routes.keys_mode if self.takes_bytes else None
        self.quick = QuickSends(
            config, accumulator.memory, memory, clock, self.append_plain, keys=keys, refused=self._refused
        )

    @property
    def takes_bytes(self) -> bool:
        """Whether records are appended as they are given: there is no serializer and no interceptor."""
        return self.serializing.is_nothing and self.interceptors is None

    def look(self) -> None:
        """Records were appended: wake the sender if there is something new for it."""
        if self.accumulator.news:
            self._sender.appended(self.accumulator.queues.lone, self.now())

    def check_same(self, begun: int, topic: str) -> None:
        """Raise what an append raises after a wait: the transaction ``begun`` must not have given way to another one.

        Else the record of a block that was aborted would be committed by the next one, which sends it itself.
        """
        if begun != self.accumulator.session.begun:
            why = "the transaction in which the record was sent has ended before it was appended"
            raise TransactionAborted(why, topic=topic)
        self.check()

    async def give_way(self, topic: str) -> None:
        """Let others run before a send() has appended anything, so that it may be cancelled. Raises as check_same()."""
        session = self.accumulator.session
        begun, joined = session.begun, session.open_number
        await let_others_run()
        try:
            self.check_same(begun, topic)
        except Exception as error:
            session.refused(error, joined)
            raise

    async def send(
        self,
        record: ProducerRecord[Any, Any],
        on_done: OnDelivered | None = None,
        *,
        timeout: float,
        serialized: bool = False,
        begun: int | None = None,
    ) -> Delivery:
        """Append a record as it was given; wait for metadata, its serializers and memory, at most ``timeout`` seconds.

        ``serialized``: the serializers were asked already. ``begun``: the transaction of the call; None: the open one.
        """
        begun = self.accumulator.session.begun if begun is None else begun
        self.check_same(begun, record.topic)
        record = self._checked(record, begun)
        if self.interceptors is not None:
            record = self.interceptors.on_send(record)
        try:
            return await self._send(record, on_done, timeout, serialized, begun)
        except asyncio.CancelledError:  # no refusal: a transaction goes on without the record
            cancelled = "send() was cancelled before it had appended the record"
            self._failed_before_append(
                record, ProduceError(cancelled, topic=record.topic, partition=_partition(record))
            )
            raise
        except Exception as error:
            self.accumulator.session.refused(error, begun)
            self._failed_before_append(record, error)
            raise

    async def _send(
        self,
        record: ProducerRecord[Any, Any],
        on_done: OnDelivered | None,
        timeout: float,
        serialized: bool,
        begun: int,
    ) -> Delivery:
        deadline = self.now() + timeout
        topic, partition = record.topic, record.partition
        if serialized:
            key, value, headers = record.key, record.value, record.headers
        elif self.serializing.is_async:
            with anyio.move_on_after(timeout) as scope:
                self._in_serializers.add(scope)
                try:
                    key, value, headers = await self.serializing.serialize_async(record)
                finally:
                    self._in_serializers.discard(scope)
            if scope.cancelled_caught:
                self.check_same(begun, topic)  # the producer may have stopped
                raise RequestTimedOut(f"the serializers of a record for {topic!r} took longer than {timeout:.3g} s")
            self.check_same(begun, topic)
        else:
            key, value, headers = self.serializing.serialize(record)
        route = self.routes.known(topic)
        if route is None or (partition is not None and partition >= len(route.queues)):
            route = await self.routes.find(topic, partition, deadline - self.now())
            self.check_same(begun, topic)
        if partition is None:
            partition = self.routes.choose(route, key, value)
            if partition is not None and partition >= len(route.queues):
                route = await self.routes.find(topic, partition, deadline - self.now())
                self.check_same(begun, topic)
        size = self._checked_size(record, key, value, headers)
        if not self.memory.has_room(size):
            self.quick.clear()  # who waits comes first
            if not await self.memory.wait(size, deadline - self.now()):
                raise self._buffer_full(record)
            self.check_same(begun, topic)
            route = self.routes.again(route)
            if partition is not None and partition >= len(route.queues):  # the topic was recreated meanwhile
                raise self.routes.missing(topic, partition, f"the topic has {len(route.queues)} partitions now")
        return self._append(route, partition, key, value, headers, record.timestamp_ms, size, on_done)

    def close(self) -> None:
        """The producer stops: end the waits for serializers."""
        for scope in list(self._in_serializers):
            scope.cancel()

    def send_soon(self, record: ProducerRecord[Any, Any], on_done: OnDelivered | None) -> Delivery:
        """Append a record as it was given, now. Raises MetadataMissing and BufferFull in the place of waiting."""
        self.check()
        begun = self.accumulator.session.begun
        record = self._checked(record, begun)
        if self.interceptors is not None:
            record = self.interceptors.on_send(record)
        try:
            return self._send_soon(record, on_done)
        except Exception as error:
            if not isinstance(error, BufferFull | MetadataMissing):  # these say no more than "not yet"
                self.accumulator.session.refused(error, begun)
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
        key, value, headers = self.serializing.serialize(record)
        if partition is None:
            partition = self.routes.choose(route, key, value)
        if partition is not None and partition >= len(route.queues):
            self.routes.look_again()
            raise self.routes.missing(topic, partition, f"the topic has {len(route.queues)} partitions so far")
        size = self._checked_size(record, key, value, headers)
        if not self.memory.has_room(size):
            self._sender.hurry()
            raise self._buffer_full(record)
        return self._append(route, partition, key, value, headers, record.timestamp_ms, size, on_done)

    def append_plain(
        self,
        route: TopicRoute,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: HeadersToSend,
        timestamp_ms: int,
        size: int,
        on_done: OnDelivered | None,
    ) -> Delivery | None:
        """Append a record that QuickSends has found fit to be sent as it is, and that no open batch has room for.

        None: nothing was appended, since there is no memory.
        """
        if not self.accumulator.has_room(size):  # nobody waits for some: QuickSends are cleared before that
            return None
        return self._append(route, partition, key, value, headers, timestamp_ms, size, on_done)

    def _refused(self, error: Exception) -> None:
        """QuickSends raise ``error``: the open transaction lacks the record."""
        session = self.accumulator.session
        session.refused(error, session.open_number)

    def _append(
        self,
        route: TopicRoute,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: HeadersToSend,
        timestamp_ms: int | None,
        size: int,
        on_done: OnDelivered | None,
    ) -> Delivery:
        accumulator = self.accumulator
        accumulator.session.check_append()  # again: a serializer may have sent a record by which the transaction failed
        queue = self.routes.stick(route, size) if partition is None else route.queues[partition]
        timestamp = int(self.clock() * 1000) if timestamp_ms is None else timestamp_ms
        now = asyncio.get_running_loop().time()
        batch = accumulator.append(queue, timestamp, key, value, headers, now)
        count = batch.count
        if count == 1:
            accumulator.session.appended(queue.tp)
        if accumulator.news:
            self._sender.appended(queue, now)
        route.used_at = now  # behind the writing, as all below: meanwhile the broker is at work
        if partition is None:
            self.routes.stuck(route, queue)
        route.appenders[queue.tp.partition] = batch.open
        delivery = Delivery(batch, count - 1, timestamp)
        if self.interceptors is not None:
            acknowledged = partial(self._acknowledged, headers)
            delivery._when_done(Told(acknowledged, timestamp, observes=False))
        if on_done is not None:
            batch.call_when_done(count - 1, Told(on_done, timestamp))
        self.quick.appended(route, batch)
        return delivery

    def _checked(self, record: ProducerRecord[Any, Any], begun: int) -> ProducerRecord[Any, Any]:
        """Return the record, whose parts can be sent. If that raises, the transaction lacks the record."""
        try:
            return _checked(record)
        except USER_ERRORS as error:  # of the application's own headers, too: nothing is awaited in here
            told = as_error(error, "the iterable of a record's headers")
            self.accumulator.session.refused(told, begun)
            if told is error:
                raise
            raise told from error

    def _checked_size(
        self, record: ProducerRecord[Any, Any], key: bytes | None, value: bytes | None, headers: HeadersToSend
    ) -> int:
        size = record_bound(key, value, headers)
        config = self._config
        if size > config.max_request_size:
            why = f"{size} bytes, and max_request_size is {config.max_request_size}: raise it, and max.message.bytes"
        elif self.accumulator.cost(size) > config.buffer_memory:
            why = f"{size} bytes, and buffer_memory is {config.buffer_memory}: raise it"
        else:
            return size
        raise MessageTooLarge(why, topic=record.topic, partition=_partition(record))

    def _buffer_full(self, record: ProducerRecord[Any, Any]) -> BufferFull:
        trouble = self._trouble()
        limit, untold = self._config.buffer_memory, self.accumulator.batch_memory.untold
        which = "whose callbacks were not called yet" if untold > limit / 2 else "that are not acknowledged yet"
        # What brokers say of the records themselves counts where they can be reached.
        known = self._known_of_records() if trouble is None else str(trouble)
        why = f"buffer_memory={limit} is used up by records {which}{known and f'; {known}'}"
        error = BufferFull(why, topic=record.topic, partition=_partition(record))
        error.__cause__ = trouble
        return error

    def _known_of_records(self) -> str:
        """What keeps the oldest records from being stored; all of a second's calls hear the same.

        A program that goes on calling send_soon() is refused thousands of times in it, and each look is at all
        partitions that have records.
        """
        now = self.now()
        if now >= self._why_until:
            self._why_full, self._why_until = longest_trouble(self.accumulator, now), now + 1.0
        return self._why_full

    def _acknowledged(self, headers: HeadersToSend, metadata: RecordMetadata, error: Exception | None) -> None:
        if self.interceptors is not None:
            self.interceptors.on_acknowledgement(metadata, error, headers)

    def _failed_before_append(self, record: ProducerRecord[Any, Any], error: Exception) -> None:
        """Tell the interceptors: they have seen the record in on_send()."""
        if self.interceptors is not None:
            timestamp = -1 if record.timestamp_ms is None else record.timestamp_ms
            metadata = RecordMetadata(record.topic, _partition(record), None, timestamp)
            self.callbacks.add([partial(self._acknowledged, record.headers, metadata, error)])
            self.callbacks.begin()


def _checked(record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
    return checked_record(*record)


def _partition(record: ProducerRecord[Any, Any]) -> int:
    return -1 if record.partition is None else record.partition
