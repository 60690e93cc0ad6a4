"""``Application``: one producer on a host of its own: its tasks send, wait, flush, cancel calls; then it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from aiokc import Delivery, Producer, RecordMetadata
from aiokc.config import ProducerOptions
from aiokc.errors import DeliveryTimedOut, KafkaError, ProduceError
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.types import TopicPartition

from ..checking.history import CutShort, Failure, History
from .events import Acked, Appended, Called, Failed, NotAppended, Sending
from .plan import AppPlan

T = TypeVar("T")

EPOCH: Final = 1_700_000_000.0
#: What any call may take beyond its time: steps of the loop, and a last pause before an attempt.
_SLACK: Final = 2.0
#: A call is cancelled after fewer than this many iterations of the loop.
_INTERRUPT_ROUNDS: Final = 60
_STOP_SECONDS: Final = 30.0
_SOON: Final = (0.45, 0.65, 0.9)  # send, send_and_wait, send_soon, and else flush


class Interrupted(Exception):
    """A call was cancelled."""


class Application:
    """Sends unique values to ``topics`` (their partitions by name), until ``leave`` is called.

    ``frozen``: for how many seconds its host may stand still in all. ``stopped`` is true once its stop() has
    returned, ``ended`` once it does nothing more. ``is_open`` tells whether a transactional id has an open transaction,
    which after stop() it may not have where all is ``calm``.
    """

    def __init__(
        self,
        plan: AppPlan,
        loop: VirtualLoop,
        history: History,
        bootstrap: str,
        topics: dict[str, int],
        *,
        frozen: float,
        is_open: Callable[[str], bool],
    ) -> None:
        self.calm = False
        self.is_open = is_open
        self.plan = plan
        self.loop = loop
        self.history = history
        self.producer: Producer[bytes, bytes] | None = None
        self.crashed = False
        self.stopped = False
        self.ended = False
        self.transaction: int | None = None
        self.random = Random(plan.seed)
        self._bootstrap = bootstrap
        self._topics = topics
        self._slack = _SLACK + frozen
        self._leaving: asyncio.Future[None] = loop.create_future()
        self._numbers: dict[int, int] = {}
        self._kept: list[tuple[bytes, Delivery]] = []
        self._unanswered: list[Delivery] = []
        self._uncalled: set[bytes] = set()  # the values of records whose callback was not called yet
        self._watching: set[asyncio.Task[None]] = set()
        options = plan.options
        self.block = options["max_block_ms"] / 1e3
        self._delivery = options["delivery_timeout_ms"] / 1e3

    @property
    def leaving(self) -> bool:
        return self._leaving.done()

    def leave(self) -> None:
        """Stop the producer at the next opportunity; a call under way is cancelled."""
        if not self._leaving.done():
            self._leaving.set_result(None)

    async def live(self) -> None:
        """Run the application from start to stop. An error that must not occur goes to the history."""
        try:
            producer = await self._started()
            if producer is not None:
                await self.work(producer)
                await self._stop(producer)
        except Exception as error:
            self.history.add(Failure("error", f"{self.plan.name}: {error!r}"))
        self.ended = True

    async def _started(self) -> Producer[bytes, bytes] | None:
        """Return a started producer, once one has started."""
        while not self.leaving:
            who: ProducerOptions = {"bootstrap_servers": self._bootstrap, "client_id": self.plan.name}
            options: ProducerOptions = {**self.plan.options, **who}
            producer: Producer[bytes, bytes] = Producer(**options)
            try:
                await self.call(producer.start(), self.block, "start()")
            except KafkaError as error:
                self.history.about(self.plan.name, f"start failed: {error!r}")
                await asyncio.sleep(0.3)
            except Interrupted:
                self.history.add(CutShort(self.plan.name, "start"))
                await producer.stop()
            else:
                self.producer = producer
                return producer
        return None

    async def work(self, producer: Producer[bytes, bytes]) -> None:
        """Send with all tasks until it is time to leave."""
        await asyncio.gather(*(self._send_for_ever(producer, task) for task in range(self.plan.tasks)))

    async def _send_for_ever(self, producer: Producer[bytes, bytes], task: int) -> None:
        while not self.leaving:
            await asyncio.wait((self._leaving,), timeout=self.random.expovariate(1 / self.plan.pause))
            try:
                await self.send_one(producer, task)
            except Interrupted:
                self.history.about(self.plan.name, "interrupted")

    # Sending

    async def send_one(self, producer: Producer[bytes, bytes], task: int) -> None:
        """Send one record in one of the three ways, or flush."""
        way = self.random.random()
        if way >= _SOON[2]:
            await self.flush(producer)
            return
        value, arguments = self._record(task)
        key, timestamp = arguments.get("key"), arguments["timestamp_ms"]
        self.history.add(Sending(self.plan.name, task, value, self.transaction, key, timestamp))
        if way < _SOON[0]:
            await self._send(producer, task, value, arguments)
        elif way < _SOON[1]:
            await self._send_and_wait(producer, value, arguments)
        else:
            self._send_soon(producer, task, value, arguments)

    async def _send(self, producer: Producer[bytes, bytes], task: int, value: bytes, arguments: dict[str, Any]) -> None:
        try:
            delivery = await self.call(producer.send(value=value, **arguments), self.block, "send()")
        except (KafkaError, Interrupted) as error:
            self.history.add(NotAppended(self.plan.name, value, repr(error)))
            if isinstance(error, Interrupted):
                self.history.add(CutShort(self.plan.name, "send"))
                raise
            return
        self._appended(task, value, delivery)
        if self.random.random() < 0.6:
            watching = self.loop.create_task(self._watch(delivery, value))
            self._watching.add(watching)
            watching.add_done_callback(self._watching.discard)
        else:
            self._kept.append((value, delivery))

    async def _send_and_wait(self, producer: Producer[bytes, bytes], value: bytes, arguments: dict[str, Any]) -> None:
        work = producer.send_and_wait(value=value, **arguments)
        try:
            metadata = await self.call(work, self.block + self._delivery, "send_and_wait()")
        except ProduceError as error:
            self._failed(value, error)
        except KafkaError as error:
            self.history.add(NotAppended(self.plan.name, value, repr(error)))
        except Interrupted:
            self.history.add(CutShort(self.plan.name, "send_and_wait"))
            raise
        else:
            self._acked(value, metadata)

    def _send_soon(self, producer: Producer[bytes, bytes], task: int, value: bytes, arguments: dict[str, Any]) -> None:
        try:
            delivery = producer.send_soon(value=value, on_done=partial(self._told, value), **arguments)
        except KafkaError as error:
            self.history.add(NotAppended(self.plan.name, value, repr(error)))
        else:
            self._uncalled.add(value)
            self._appended(task, value, delivery)

    def _record(self, task: int) -> tuple[bytes, dict[str, Any]]:
        number = self._numbers[task] = self._numbers.get(task, -1) + 1
        head = f"{self.plan.name}/{task}/{number}/".encode()
        value = head.ljust(max(len(head), self.random.choice(self.plan.sizes)), b".")
        topic = self.random.choice(sorted(self._topics))
        arguments: dict[str, Any] = {"topic": topic, "timestamp_ms": int((EPOCH + self.loop.time()) * 1000)}
        if self.random.random() < 0.4:
            arguments["partition"] = self.random.randrange(self._topics[topic])
        elif self.random.random() < self.plan.by_key:
            arguments["key"] = b"k%d" % self.random.randrange(6)
        return value, arguments

    def _appended(self, task: int, value: bytes, delivery: Delivery) -> None:
        self.history.add(Appended(self.plan.name, task, value, delivery._batch.tp))
        self._unanswered.append(delivery)
        assert self.producer is not None
        accumulator, limit = self.producer._runtime.accumulator, self.plan.options["buffer_memory"]
        # A batch that is split while memory is full takes more than before: a batch costs something beside its records.
        split = sum(len(batch.number) > 1 for queue in accumulator.queues.active for batch in queue.snapshot())
        if accumulator.used > limit + split * accumulator.cost(0):
            text = f"{self.plan.name}: {accumulator.used} bytes, {split} parts of batches, buffer_memory is {limit}"
            self.history.add(Failure("memory", text))

    # Outcomes

    async def _watch(self, delivery: Delivery, value: bytes) -> None:
        async def awaited() -> RecordMetadata:
            return await delivery

        try:
            metadata = await self.call(awaited(), self._delivery, "a Delivery")
        except KafkaError as error:
            self._failed(value, error)
        except Interrupted:  # the waiting only: the record stays
            self.history.add(CutShort(self.plan.name, "delivery"))
            self._kept.append((value, delivery))
        else:
            self._acked(value, metadata)

    def _acked(self, value: bytes, metadata: RecordMetadata) -> None:
        tp = TopicPartition(metadata.topic, metadata.partition)
        self.history.add(Acked(self.plan.name, value, tp, metadata.offset))

    def _failed(self, value: bytes, error: Exception) -> None:
        maybe = getattr(error, "persisted", "maybe") == "maybe"
        timed_out = isinstance(error, DeliveryTimedOut)
        self.history.add(Failed(self.plan.name, value, maybe, repr(error), timed_out))

    def _told(self, value: bytes, metadata: RecordMetadata, error: Exception | None) -> None:
        self.history.add(Called(self.plan.name, value, TopicPartition(metadata.topic, metadata.partition)))
        self._uncalled.discard(value)
        if error is None:
            self._acked(value, metadata)
        else:
            self._failed(value, error)

    async def flush(self, producer: Producer[bytes, bytes]) -> None:
        """Flush: afterwards all that was appended before has its outcome, and its callback was called."""
        before = list(self._unanswered)
        try:
            await self.call(self._flush(producer), self._delivery, "flush()")
        except Interrupted:
            self.history.add(CutShort(self.plan.name, "flush"))
            raise
        self._unanswered = [one for one in self._unanswered if not one.done()]
        if left := sum(not one.done() for one in before):
            self.history.add(Failure("unflushed", f"{self.plan.name}: {left} records after flush()"))

    async def _flush(self, producer: Producer[bytes, bytes]) -> None:
        """Look in the moment in which flush() returns: the callbacks may come soon after it."""
        before = set(self._uncalled)
        try:
            await producer.flush()
        except ProduceError as error:  # the first failure of a record, once all have their outcome
            self.history.about(self.plan.name, f"flush raised {error!r}")
        if left := len(before & self._uncalled):
            self.history.add(Failure("uncalled", f"{self.plan.name}: {left} callbacks of records after flush()"))

    # The end

    async def _stop(self, producer: Producer[bytes, bytes]) -> None:
        if self.random.random() < self.plan.cancels:
            try:
                await self.call(producer.stop(), _STOP_SECONDS, "stop()")
            except Interrupted:
                self.history.add(CutShort(self.plan.name, "stop"))
        began = self.loop.time()
        await producer.stop()
        self.check_time(began, _STOP_SECONDS, "stop()")
        if self._watching:
            await asyncio.wait(self._watching, timeout=1.0)
        for value, delivery in self._kept:
            if not delivery.done():
                self.history.add(Failure("stuck", f"{self.plan.name}: {value!r} is not done after stop()"))
                continue
            try:
                self._acked(value, delivery.result())
            except KafkaError as error:
                self._failed(value, error)
        accumulator = producer._runtime.accumulator
        if accumulator.used or accumulator.queues.unanswered:
            left = f"{accumulator.used} bytes, {accumulator.queues.unanswered} batches"
            self.history.add(Failure("leak", f"{self.plan.name} after stop(): {left}"))
        self.stopped = True
        self.history.about(self.plan.name, "stopped")

    # Calls

    def check_time(self, began: float, limit: float, what: str) -> None:
        took = self.loop.time() - began
        if took > limit + self._slack:
            self.history.add(Failure("stuck", f"{self.plan.name}: {what} took {took:.1f} s, its time is {limit:.1f} s"))

    async def call(self, work: Coroutine[Any, Any, T], limit: float | None, what: str) -> T:
        """Await a call, which may take ``limit`` seconds.

        Sometimes cancel it, after some iterations of the loop or some time, and raise Interrupted.
        """
        began = self.loop.time()
        task = self.loop.create_task(work)
        try:
            await self._wait(task)
        finally:  # a call around this one may have been cancelled
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
            _ = task.cancelled() or task.exception()
        if limit is not None:
            self.check_time(began, limit, what)
        if task.cancelled():
            raise Interrupted
        return task.result()

    async def _wait(self, task: asyncio.Task[Any]) -> None:
        """Wait for a task, and sometimes for less."""
        if self.random.random() >= self.plan.cancels:
            await asyncio.wait((task,))
        elif self.random.random() < 0.6:
            for _ in range(self.random.randrange(_INTERRUPT_ROUNDS)):
                if task.done():
                    break
                await asyncio.sleep(0)
        else:
            await asyncio.wait((task,), timeout=self.random.expovariate(4))
