"""Wires the parts behind a Producer together: appending, flushing, and in which order they start and stop."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

import anyio

from ...config import ProducerConfig
from ...core.produce.accumulator import AccumulatorOptions, RecordAccumulator
from ...core.produce.batch import ProducerBatch
from ...core.produce.failure import Cause, Failure
from ...core.produce.session import PlainSession, ProducerSession
from ...errors import AuthenticationFailed, ProducerClosed, RequestTimedOut, UnsupportedCodec, UsageError
from ...net.user_errors import scope_is_cancelled
from ...observation import ProducerHealth, ProducerMetrics
from ...records import Codec
from ...records.compression import compress
from ..aio.last_steps import to_its_end
from ..aio.signal import Signal
from ..aio.supervisor import Driver
from ..cluster.cluster_client import ClusterClient, running_loop
from ..cluster.first_start import FirstStart
from ..produce.callbacks import Callbacks
from ..produce.memory import MemoryWaiters
from ..produce.outcomes import Outcomes
from ..produce.producer_ids import ProducerIds
from ..produce.routes import Routes
from ..produce.sender import Sender
from ..produce.serializing import Serializing
from ..transactions.driver import TransactionDriver
from ..transactions.session import TransactionSession
from .appending import Appending
from .health import health, metrics
from .observing import ProducerObservers
from .send_many import ManyRecords

logger = logging.getLogger("aiokc.produce")

#: How long stop() calls what is due at its end, beyond its timeout: with timeout_ms=0 all comes at the end.
_CALLBACKS_SECONDS: Final = 1.0


class _Calls(Signal):
    """A follower of a signal that calls a function at once."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    def notify(self) -> None:
        self._call()


class ProducerRuntime:
    """The parts of a Producer, and its life. Timeouts are in seconds."""

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
        self._first_start = FirstStart(self.check_running)
        self._stopping = False
        self._patient_until = math.inf  # how long stop() waits for callbacks (loop time), but for a second at least
        self.cluster_client = ClusterClient(config, random, allow_auto_topic_creation=True, closed=ProducerClosed)
        self.observers = ProducerObservers(config.observer)
        self._set_up_session(random)
        self._set_up_sending(random)
        self._set_up_appending(Serializing(key, value), clock)
        self._connect_parts()

    def _set_up_session(self, random: Random) -> None:
        """Make what says under which producer id records are sent, and when: idempotent, or in transactions."""
        config, pool = self._config, self.cluster_client.pool
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
                request_metadata=self.cluster_client.metadata.request_update,
                batches=lambda: self.sender,
                check=self.check_running,
                settled=lambda: self.outcomes.unobserved.transaction_ended(),
                ended=self.observers.transaction,
                told=lambda seconds: self.callbacks.caught_up(seconds),
            )
            self.session = TransactionSession(config.transactional_id, transactions)
            self._own_driver = transactions.run

    def _set_up_sending(self, random: Random) -> None:
        """Make what keeps batches, sends them, and tells of their outcomes."""
        config, pool, metadata = self._config, self.cluster_client.pool, self.cluster_client.metadata
        self.accumulator = RecordAccumulator(options_of(config), self.session, pauses_of(config, random))
        self.callbacks = Callbacks()
        self.outcomes = Outcomes(self.accumulator, self.callbacks, freed=lambda: self.memory.grant())
        self.memory = MemoryWaiters(self.accumulator, lambda: self.sender.wake.notify())
        self.sender = Sender(
            config,
            pool,
            metadata,
            self.accumulator,
            random,
            tell=self._tell,
            memory_is_wanted=lambda: len(self.memory) > 0,
        )
        self.routes = Routes(
            config,
            metadata,
            self.accumulator,
            random,
            self.check_running,
            slow_nodes=self.sender.slow_nodes,
            wake=self.sender.wake.notify,
        )

    def _set_up_appending(self, serializing: Serializing, clock: Callable[[], float]) -> None:
        """Make what the application's calls append records with."""
        cluster_client = self.cluster_client
        self.appending = Appending(
            self._config,
            self.accumulator,
            self.sender,
            self.routes,
            self.memory,
            self.callbacks,
            serializing,
            check=self.check,
            now=cluster_client.now,
            clock=clock,
            trouble=lambda: cluster_client.pool.trouble(cluster_client.now()) or cluster_client.metadata.error,
        )
        self.many = ManyRecords(self._config, self.appending)

    def _connect_parts(self) -> None:
        """Have each part look when something has happened that another one knows of."""
        cluster_client = self.cluster_client
        self.sender.progress.followed_by(_Calls(self.memory.grant))
        cluster_client.metadata.changed.followed_by(self.sender.wake)
        cluster_client.metadata.changed.followed_by(_Calls(self.appending.quick.clear))
        if self.transactions is not None:
            self.transactions.moved.followed_by(_Calls(self.appending.quick.clear))
        cluster_client.background.ended.followed_by(_Calls(self._background_ended))
        cluster_client.pool.on_refused = cluster_client.metadata.changed.notify
        cluster_client.on_forked = self.appending.quick.clear

    # Life

    async def start(self, *, timeout: float) -> None:
        """Start, and be ready for the first transaction. A second call waits for the first one, and changes nothing."""
        if self.cluster_client.loop is not None:
            return await self._first_start.wait(timeout)
        try:
            await self._start(timeout)
        finally:
            self._first_start.ends()

    async def _start(self, timeout: float) -> None:
        self.accumulator.owner = loop = running_loop()
        deadline = loop.time() + timeout
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
        if not await self.callbacks.let_them_end():
            raise UsageError("stop() in a callback: it would wait for that callback; call it in a task of its own")
        self.cluster_client.check_loop()
        if self.cluster_client.is_stranded:
            return await self._stop_stranded()
        is_first, self._stopping = not self._stopping, True
        loop = running_loop()
        ends = loop.time() + timeout
        was_cancelled = scope_is_cancelled()
        if is_first:
            self._patient_until = ends
        else:
            self._hurry()
        self.memory.close(lambda: ProducerClosed("stopping: the record was not appended"))
        self.appending.close()
        self.cluster_client.metadata.changed.notify()  # who waits for metadata looks again, and ends
        try:
            if is_first and self.cluster_client.running and self.cluster_client.background.alive:
                # As in last_steps.in_time: a scope that was cancelled before must not lose what was appended.
                with anyio.CancelScope(shield=was_cancelled):
                    if self.transactions is not None:
                        await self.transactions.close(ends)
                    await self.sender.flushed(self.sender.flush(), ends - loop.time())
                    await self.sender.arrived(ends - loop.time())
        except asyncio.CancelledError:
            self._hurry()
            raise
        finally:
            self.sender.end(Failure(Cause.CLOSED))
            await to_its_end(self._close(), self._hurry, was_cancelled=was_cancelled)

    async def _stop_stranded(self) -> None:
        """The loop was closed with the background in it: nobody sends any more, or calls callbacks."""
        if batches := self.accumulator.queues.unanswered:
            text = "%d batches were not sent, or not acknowledged, when the producer's loop was closed"
            logger.warning(text, batches)
            # A transaction would wake its driver, in the closed loop.
            self.accumulator.session = PlainSession(idempotent=False)
            self.accumulator.fail_all(Failure(Cause.CLOSED))
        await self.cluster_client.stop()
        self._close_interceptors()

    def _hurry(self) -> None:
        """A stop() is cancelled while it is under way, or called again: whoever does that wants it to end."""
        self._patient_until = min(self._patient_until, running_loop().time())

    async def _close(self) -> None:
        await self.cluster_client.stop()
        self.callbacks.add([self._close_interceptors])
        least = running_loop().time() + _CALLBACKS_SECONDS
        await self.callbacks.all_called(lambda: max(self._patient_until, least))

    def _close_interceptors(self) -> None:
        if self.appending.interceptors is not None:
            self.appending.interceptors.close()

    def _background_ended(self) -> None:
        """Whatever ended the background, nobody may wait for it any more: neither may stop().

        1. A task is inside ``async with Producer()``, and main() returns. 2. asyncio.run() cancels all tasks at once.
        3. The block's stop() waits until all is sent. 4. The background ends by its own cancellation.
        """
        error = self.cluster_client.background.error
        if self._stopping:
            self.sender.end(Failure(Cause.CLOSED) if error is None else Failure(Cause.BROKEN, error=error))
            return
        failure = Failure(Cause.BROKEN, error=error or ProducerClosed("the background task was cancelled"))
        self.sender.end(failure)
        self.memory.close(failure.producer_error)
        self.cluster_client.metadata.changed.notify()
        if self.transactions is not None:
            self.transactions.moved.notify()

    def _tell(self, batches: list[ProducerBatch], /, *, at_once: bool) -> None:
        try:
            if self.observers.all:
                self.observers.batches(batches)
        finally:  # last, for those who wait go on by this
            self.outcomes.tell(batches, at_once=at_once)

    def health(self) -> ProducerHealth:
        return health(self.cluster_client, self.accumulator, self.memory, self.transactions)

    def metrics(self) -> ProducerMetrics:
        unobserved = self.outcomes.unobserved
        return metrics(self._config, self.cluster_client, self.accumulator, self.sender, self.memory, unobserved)

    def check_running(self) -> None:
        """Raise ProducerClosed unless running, and what ended the background."""
        self.cluster_client.check()
        if self._stopping:
            raise ProducerClosed("stopping: nothing more is sent")

    def check(self) -> None:
        """Raise what every append raises now. A refused login, too: the open transaction lacks the record then."""
        self.check_running()
        try:
            self.cluster_client.raise_refusal()
        except AuthenticationFailed as refusal:
            self.session.refused(refusal, self.session.open_number)
            raise
        self.session.check_append()

    # Flushing

    async def flush(self, *, timeout: float | None) -> None:
        """Return when all that was appended before has its outcome, and its callbacks were called.

        Raises the first failure that nobody has seen.
        """
        self.cluster_client.check()
        began = running_loop().time()
        if not await self.sender.flushed(self.sender.flush(), timeout):
            raise RequestTimedOut(f"flush(): not all records were acknowledged within {timeout:.3g} s")
        if not await self.callbacks.caught_up(None if timeout is None else began + timeout - running_loop().time()):
            raise RequestTimedOut(f"flush(): not all callbacks of records were called within {timeout:.3g} s")
        self.raise_unobserved()

    def raise_unobserved(self) -> None:
        error = self.outcomes.unobserved.take()
        if error is not None:
            raise error


def options_of(config: ProducerConfig) -> AccumulatorOptions:
    """Return what the accumulator needs of a producer's options.

    The package that compresses is imported here: the first batch would hold the event loop for that.
    """
    codec = Codec[config.compression_type.upper()]
    with suppress(UnsupportedCodec):  # each batch fails with it
        compress(codec, b"")
    return AccumulatorOptions(
        batch_size=config.effective_batch_size,
        buffer_memory=config.buffer_memory,
        max_request_size=config.max_request_size,
        linger=config.linger_ms / 1e3,
        delivery_timeout=config.delivery_timeout_ms / 1e3,
        window=config.max_in_flight_requests_per_connection,
        codec=codec,
        level=config.effective_compression_level,
    )


def pauses_of(config: ProducerConfig, random: Random) -> Callable[[int], float]:
    """Return how long a batch waits for its next attempt, by how many have failed (KIP-580)."""
    least, most = config.retry_backoff_ms / 1e3, config.retry_backoff_max_ms / 1e3

    def pause(attempts: int) -> float:
        grown: float = min(least * 2 ** min(attempts - 1, 30), most)
        return min(grown * random.uniform(0.8, 1.2), most)

    return pause
