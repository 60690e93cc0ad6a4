"""The public Producer: checks the arguments of every call, and passes it on to the ProducerRuntime."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from types import TracebackType
from typing import Any, Final, Generic, Self, Unpack, cast

from ...config import ProducerConfig, ProducerOptions, configured
from ...config.checks import check_producer_observer
from ...config.making import named_producer
from ...observation import ProducerHealth, ProducerMetrics
from ...observer import ProducerObserver
from ...records.encoding.columns import ArrowColumns
from ...serialization.serializer import AnySerializer
from ...types import HeadersToSend, K, PartitionInfo, ProducerRecord, RecordMetadata, V
from ..aio.time_slice import Turns
from ..arguments import checked_seconds, checked_wait
from ..in_use import InUse
from ..produce.batch_delivery import BatchDelivery
from ..produce.delivery import Delivery, OnDelivered
from .records import check_on_done, check_topic
from .runtime import ProducerRuntime
from .transaction_calls import TransactionCalls

_STOP_MS: Final = 30_000


class Producer(TransactionCalls, Generic[K, V]):
    """Writes records to Kafka.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            delivery = await producer.send("events", b"value", key=b"key")
            ...
            metadata = await delivery

    Options are those of ProducerConfig, by keyword or as ``config``. A serializer is a function that returns bytes, an
    object with ``serialize``, or an AsyncSerializer. Keys are K and values V, and bytes without a serializer; None is
    no key, and a tombstone for a value.

    One event loop, many tasks: records of one partition are stored in the order of their appends. With
    ``enable_idempotence`` (the default) a record that is sent again is stored once. What was appended is sent without
    anybody waiting for it; a failure that nobody has seen is raised by the next flush(), or at the end of the ``async
    with`` block. Every call raises ProducerClosed before start() and after stop(), and what ended the background if
    something did.

    A producer that is garbage-collected while it runs, without stop(), gives a ResourceWarning and is stopped in the
    background.
    """

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        key_serializer: AnySerializer[K] | None = None,
        value_serializer: AnySerializer[V] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self.config = named_producer(configured(ProducerConfig, config, cast(dict[str, Any], options)))
        self._runtime = runtime = ProducerRuntime(self.config, Random(), key_serializer, value_serializer)
        self._quick = runtime.appending.quick
        self._turns = Turns()
        self._in_use = InUse(
            runtime.cluster_client,
            f"a Producer (client_id={self.config.client_id!r})",
            lambda listener: runtime.stop(timeout=_STOP_MS / 1e3),
            lambda: None,
        )

    async def start(self, *, timeout_ms: float | None = None) -> None:
        """Connect; return once a broker has answered. Raises NoBrokersAvailable after ``timeout_ms``.

        ``timeout_ms`` is by default max_block_ms. If start() fails, this producer is stopped: make another one.
        A second start() changes nothing: it waits for the first one, and returns if the producer runs.
        """
        await self._runtime.start(timeout=self._seconds(timeout_ms))

    async def stop(self, *, timeout_ms: float = _STOP_MS) -> None:
        """Send what was appended, for ``timeout_ms`` at most, and close every connection. Then each Delivery is done.

        Records that are not acknowledged by then fail, with ``persisted`` "maybe" if they were sent. Callbacks that are
        due then have the rest of that time, and a second at least; others come after stop(), if the event loop goes on.
        Calls that wait for metadata, memory or a serializer raise ProducerClosed. A second call ends the first one's
        wait, and so does a cancellation: that second is left to callbacks. Raises UsageError in another event loop than
        that of start(), and in a callback.
        """
        await self._runtime.stop(timeout=checked_seconds(timeout_ms))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runtime.stop(timeout=_STOP_MS / 1e3)
        unseen = self._runtime.outcomes.unobserved.take()
        if unseen is None:
            return
        if error is None:
            raise unseen
        error.add_note(f"aiokc: besides, a record was not stored, and nothing had awaited its Delivery: {unseen}")

    # Sending

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersToSend | None = (),
        on_done: OnDelivered | None = None,
        timeout_ms: float | None = None,
    ) -> Delivery:
        """Append a record, and return its Delivery: await that for where the record is stored.

        The call waits for the topic's metadata, for an AsyncSerializer, and for memory, for ``timeout_ms`` at most
        (default: max_block_ms); not for a broker's acknowledgement. ``partition`` None: by the key, or by the
        ``partitioner``. ``timestamp_ms`` None, or -1 as a record without one has it: now. A call that is cancelled has
        appended nothing. Raises MetadataMissing, BufferFull, SerializationFailed, PartitioningFailed and
        MessageTooLarge.

        ``on_done(metadata, error)`` is called in the event loop once it is known what became of the record: in order of
        the sends to a partition, and never inside of this call. ``error`` None: it is stored. What the call itself
        raises, the callback is not told.
        """
        if on_done is not None:
            self._check_on_done(on_done)
        if self._turns.is_over():
            await self._runtime.appending.give_way(topic)
        if timeout_ms is None:
            delivery = self._quick.append(topic, value, key, partition, timestamp_ms, headers, on_done)
            if delivery is not None:
                return delivery
        record = ProducerRecord(topic, value, key, partition, timestamp_ms, () if headers is None else headers)
        return await self._runtime.appending.send(record, on_done, timeout=self._patience(timeout_ms))

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersToSend | None = (),
        timeout_ms: float | None = None,
    ) -> RecordMetadata:
        """Do as send(), and wait until the record is stored: ``timeout_ms`` bounds the append, not the whole call.

        delivery_timeout_ms bounds the rest; to wait for a shorter time use asyncio.timeout(). A call that is cancelled
        may have appended its record, which is sent then.
        """
        if timeout_ms is None:
            delivery = self._quick.append(topic, value, key, partition, timestamp_ms, headers)
            if delivery is not None:
                return await delivery
        record = ProducerRecord(topic, value, key, partition, timestamp_ms, () if headers is None else headers)
        return await (await self._runtime.appending.send(record, timeout=self._patience(timeout_ms)))

    def send_soon(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersToSend | None = (),
        on_done: OnDelivered | None = None,
    ) -> Delivery:
        """Do as send(), without waiting: raises BufferFull, and MetadataMissing for a topic that is not known yet."""
        if on_done is not None:
            self._check_on_done(on_done)
        delivery = self._quick.append(topic, value, key, partition, timestamp_ms, headers, on_done)
        if delivery is not None:
            return delivery
        record = ProducerRecord(topic, value, key, partition, timestamp_ms, () if headers is None else headers)
        return self._runtime.appending.send_soon(record, on_done)

    async def send_many(
        self,
        topic: str,
        records: Iterable[V | ProducerRecord[K, V] | None] | ArrowColumns,
        *,
        timeout_ms: float | None = None,
    ) -> BatchDelivery:
        """Append many records of one topic, for much less time per record than send() takes; return one BatchDelivery.

        A record is a value, or a ProducerRecord with key, partition, timestamp and headers. Or ``records`` is a record
        batch of Arrow's, pyarrow's for instance, or what getmany_columns() returned: then its columns ``value``,
        ``key``, ``partition``, ``timestamp`` and ``headers`` are sent, of which the first must be there, and all others
        are ignored. A producer with serializers takes no columns. The call waits as send()
        does, ``timeout_ms`` at most for each record, and lets other tasks run meanwhile: their records may lie between
        these. It raises what send() raises for a record, and what ``records`` raises (UsageError for a CancelledError
        of their own); those before it are appended then (``appended`` of an error of aiokc's says how many, and a note
        in any error), and so are those before the moment in which a call is cancelled.
        """
        return await self._runtime.many.send(topic, records, timeout=self._patience(timeout_ms))

    async def flush(self, *, timeout_ms: float | None = None) -> None:
        """Send at once what was appended before; return when each record has its outcome, and its callback was called.

        Records that are appended meanwhile don't prolong it. Raises the first failure that nobody has seen: of a record
        whose Delivery was not awaited. Raises RequestTimedOut after ``timeout_ms`` (None: delivery_timeout_ms ends it).
        """
        await self._runtime.flush(timeout=checked_wait(timeout_ms))

    def health(self) -> ProducerHealth:
        """Return the producer's state at this moment. Sends no request, and may be called in any thread."""
        return self._runtime.health()

    def metrics(self) -> ProducerMetrics:
        """Return what the producer has done since it was made. Sends no request, and may be called in any thread."""
        return self._runtime.metrics()

    def observe(self, observer: ProducerObserver) -> None:
        """Tell ``observer`` of each batch and transaction from now on, beside the option ``observer``.

        Raises ConfigError for what is no ProducerObserver. To add one twice changes nothing.
        """
        check_producer_observer("observer", observer)
        self._runtime.observers.add(observer)

    def no_longer_observe(self, observer: ProducerObserver) -> None:
        """Undo ``observe()``; does nothing for an object that is no observer of this producer."""
        self._runtime.observers.remove(observer)

    async def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> list[PartitionInfo]:
        """Return the partitions of a topic, in order, without those that no broker has told of.

        Raises MetadataMissing after ``timeout_ms`` (max_block_ms).
        """
        check_topic(topic)
        self._runtime.check_running()
        route = self._runtime.routes.known(topic)
        if route is None:
            route = await self._runtime.routes.find(topic, None, self._seconds(timeout_ms))
        return [known for number in range(len(route.queues)) if (known := route.info.partitions.get(number))]

    def _seconds(self, timeout_ms: float | None) -> float:
        return checked_seconds(self.config.max_block_ms if timeout_ms is None else timeout_ms)

    def _patience(self, timeout_ms: float | None) -> float:
        """As _seconds(), for a call that sends a record."""
        try:
            return self._seconds(timeout_ms)
        except Exception as error:
            self._refused(error)
            raise

    def _check_on_done(self, on_done: OnDelivered) -> None:
        try:
            check_on_done(on_done)
        except Exception as error:
            self._refused(error)
            raise

    def _refused(self, error: Exception) -> None:
        """A call that sends a record raises ``error``: the open transaction lacks the record."""
        self._runtime.check_running()  # another thread must not tell the transaction
        session = self._runtime.session
        session.refused(error, session.open_number)
