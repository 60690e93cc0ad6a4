"""``User``: the application of one consumer, on a host of its own: it polls, works, commits, cancels calls, stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

import pyarrow as pa

from aiokc import Consumer, OffsetAndMetadata, RecordColumns, SubscriptionPattern
from aiokc.client.group.user_commits import Committable
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthenticationFailed, AuthorizationFailed, BrokerError, DeserializationFailed, KafkaError
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.types import TopicPartition

from ..checking.history import (
    CommitDone,
    CutShort,
    Delivered,
    Failure,
    Handled,
    History,
    Sought,
    Stopping,
    Uncertain,
)
from .plan import MemberPlan
from .user_code import Meddler, Values

T = TypeVar("T")

#: stop() promises to end within 30 seconds.
_STOP_SECONDS: Final = 30.0
#: What any call may take beyond its time: steps of the loop, a last pause before an attempt, deserializers.
_SLACK: Final = 3.0
#: Members that poll more often than this stay in their group (max_poll_interval_ms).
_POLL_SECONDS: Final = 4.0
#: A call is cancelled after fewer than this many iterations of the loop.
_INTERRUPT_ROUNDS: Final = 80
_ALL_TOPICS: Final = SubscriptionPattern("t[0-9]+")


class Record(Protocol):
    """The fields of a record that the history has."""

    @property
    def offset(self) -> int: ...
    @property
    def value(self) -> bytes | None: ...


Batch: TypeAlias = Mapping[TopicPartition, Sequence[Record]]


class Row(NamedTuple):
    """A record from getmany_columns."""

    offset: int
    value: bytes | None


def _rows(columns: RecordColumns) -> dict[TopicPartition, list[Row]]:
    rows: dict[TopicPartition, list[Row]] = {}
    for row in pa.record_batch(columns).to_pylist():
        rows.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(Row(row["offset"], row["value"]))
    return rows


class Interrupted(Exception):
    """A call was cancelled."""


class User:
    """An application that reads ``partitions`` with one consumer, until ``leave`` is called.

    ``slack``: how many seconds its calls may take beyond their time; its host may be frozen meanwhile.
    """

    def __init__(
        self,
        plan: MemberPlan,
        loop: VirtualLoop,
        history: History,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self.plan = plan
        self.consumer: Consumer | None = None
        self.crashed = False
        self.ended = False
        self.slack = _SLACK
        self._polled_at = 0.0
        self._loop = loop
        self._history = history
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._random = Random(plan.seed)
        self._habits = Random(plan.seed + 1)
        self._leaving: asyncio.Future[None] = loop.create_future()
        self._values: Values | None = None
        if plan.deserializes != "not at all":
            self._values = Values(plan.deserializes, Random(plan.seed + 2))

    def leave(self) -> None:
        """Stop the consumer at the next opportunity; a call under way is cancelled."""
        if not self._leaving.done():
            self._leaving.set_result(None)

    def hurry(self) -> None:
        """Be quick from now on: what matters now is to read everything."""
        self.plan = replace(self.plan, work=(0.0, 0.0), slow=0.0, seeks=0.0, reads="getmany", max_records=500)
        if self._values is not None:
            self._values.calm = True

    def positions(self, topic_ids: Mapping[str, UUID] | None = None) -> dict[TopicPartition, int]:
        """Return the positions of its assigned partitions; with ``topic_ids``, only for topics that have these ids."""
        if self.consumer is None or self.crashed:
            return {}
        assigned = self.consumer._runtime.subscription.assigned
        return {
            tp: one.position
            for tp, one in assigned.items()
            if topic_ids is None or topic_ids.get(tp.topic) == one.topic_id
        }

    async def live(self) -> None:
        """Run the application from start to stop. An error that must not occur goes to the history."""
        try:
            consumer = self.consumer = await self._started()
            while consumer is not None and not self._leaving.done():
                try:
                    await self._turn(consumer)
                except Interrupted:
                    self._history.about(self.plan.name, "interrupted")
                except (AuthenticationFailed, AuthorizationFailed) as error:
                    self._history.about(self.plan.name, f"goes on after {error!r}")
                    await asyncio.sleep(0.2)
                except BrokerError as error:
                    # A coordinator that loads a group from its log knows only the assignor that was chosen, and not
                    # the others that the members offer. So while a group migrates to another assignor, a member that
                    # no longer offers the old one is refused until the others have joined again. Java's consumer fails
                    # in the same way.
                    if error.code != ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                        raise
                    self._history.about(self.plan.name, f"ended, and is started again: {error!r}")
                    await self._stop(consumer)
                    await asyncio.sleep(1)
                    consumer = self.consumer = await self._started()
        except Exception as error:
            self._history.add(Failure("error", f"{self.plan.name}: {error!r}"))
        finally:
            if self.consumer is not None:
                await self._stop(self.consumer)
            self.consumer = None
            self.ended = True

    # Steps

    async def _started(self) -> Consumer | None:
        while not self._leaving.done():
            options = self.plan.options.copy()
            options["bootstrap_servers"], options["client_id"] = self._bootstrap, self.plan.name
            if self._values is not None:
                options["interceptors"] = [Meddler()]
            consumer = Consumer(value_deserializer=self._values, **options)
            if "group_id" in self.plan.options or self._random.random() < 0.5:
                by_name = {tp.topic for tp in self._partitions}
                consumer.subscribe(_ALL_TOPICS if self.plan.by_pattern else by_name)
            else:
                consumer.assign(self._partitions)
            try:
                await self._call(consumer.start(), self._api_seconds, "start()")
            except (Interrupted, KafkaError) as error:
                self._history.about(self.plan.name, f"start failed: {error!r}")
                await self._stop(consumer)
            else:
                return consumer
        return None

    async def _turn(self, consumer: Consumer) -> None:
        """Poll, work, and perhaps commit."""
        plan, random = self.plan, self._random
        if random.random() < plan.seeks and consumer.assignment():
            tp = random.choice(sorted(consumer.assignment()))
            offset = random.randrange(max(1, self.positions()[tp]))
            consumer.seek(tp, offset)
            self._history.add(Sought(plan.name, tp, offset))
        batch, whole = await self._read(consumer)
        if not batch and plan.poll_timeout_ms == 0:
            await asyncio.sleep(0.01)
        if not batch:
            return
        self._deliver(batch)
        await asyncio.sleep(random.uniform(1, 8) if random.random() < plan.slow else random.uniform(*plan.work))
        for tp, records in batch.items():
            self._history.add(Handled(plan.name, tp, records[-1].offset + 1))
        if random.random() < plan.commits:
            await self._commit(consumer, batch, whole)

    async def _read(self, consumer: Consumer) -> tuple[Batch, Committable]:
        """Read with the member's call for records; return the batch, and what commit() takes for it besides offsets."""
        plan = self.plan
        seconds = None if plan.poll_timeout_ms is None else plan.poll_timeout_ms / 1e3
        at_most: Any = {"timeout_ms": plan.poll_timeout_ms, "max_records": plan.max_records}
        try:
            if plan.reads == "getmany":
                records = await self._call(consumer.getmany(**at_most), seconds, "getmany()")
                return records, records
            if plan.reads == "getmany_columns":
                columns = await self._call(consumer.getmany_columns(**at_most), seconds, "getmany_columns()")
                return _rows(columns), columns
            one = consumer.getone() if plan.reads == "getone" else consumer.__anext__()
            record = await self._call(one, None, plan.reads)
        except Interrupted:
            self._history.add(CutShort(plan.name, plan.reads))
            raise
        except DeserializationFailed as error:
            self._history.about(plan.name, f"{error}")
            return {}, None
        finally:
            self._polled_at = self._loop.time()
        return {TopicPartition(record.topic, record.partition): [record]}, None

    def _deliver(self, batch: Batch) -> None:
        for tp, records in batch.items():
            got = tuple((record.offset, bytes(record.value or b"")) for record in records)
            self._history.add(Delivered(self.plan.name, tp, got))

    async def _commit(self, consumer: Consumer, batch: Batch, whole: Committable) -> None:
        """Commit the batch or everything, with commit() or commit_soon()."""
        offsets = {tp: OffsetAndMetadata(records[-1].offset + 1) for tp, records in batch.items()}
        since = self._loop.time()
        what: Committable = self._habits.choice([None, whole if whole is not None else offsets])
        try:
            if self._habits.random() < 0.3:
                return consumer.commit_soon(what, partial(self._committed, since))
            await self._call(consumer.commit(what), self._api_seconds, "commit()")
            self._committed(since, offsets, None)
        except KafkaError as error:
            self._history.add(Uncertain(self.plan.name))
            self._history.about(self.plan.name, f"commit failed: {error!r}")
        except Interrupted:
            self._history.add(Uncertain(self.plan.name))
            raise

    def _committed(
        self, since: float, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None
    ) -> None:
        if error is None:
            for tp, offset in offsets.items():
                self._history.add(CommitDone(self.plan.name, tp, offset.offset, since))
        else:
            self._history.add(Uncertain(self.plan.name))
            self._history.about(self.plan.name, f"commit_soon failed: {error!r}")

    async def _stop(self, consumer: Consumer) -> None:
        if self._random.random() < self.plan.cancels:
            try:
                await self._call(consumer.stop(), _STOP_SECONDS, "stop()")
            except Interrupted:
                self._history.about(self.plan.name, "stop interrupted")
        elif self._loop.time() - self._polled_at < _POLL_SECONDS:
            self._history.add(Stopping(self.plan.name))
        began = self._loop.time()
        await consumer.stop()
        took = self._loop.time() - began
        if took > _STOP_SECONDS + 1:
            self._history.add(Failure("stuck", f"{self.plan.name}: stop() took {took:.1f} s"))
        self._history.about(self.plan.name, "stopped")

    @property
    def _api_seconds(self) -> float:
        return self.plan.options["default_api_timeout_ms"] / 1e3

    async def _call(self, work: Coroutine[Any, Any, T], seconds: float | None, what: str) -> T:
        """Await a call, which may take so many ``seconds``.

        Sometimes cancel it, after some iterations of the loop or some time, and raise Interrupted.
        """
        began = self._loop.time()
        try:
            return await self._cut_short(work)
        finally:
            took = self._loop.time() - began
            if seconds is not None and took > seconds + self.slack:
                text = f"{self.plan.name}: {what} took {took:.1f} s, its time is {seconds:.1f} s"
                self._history.add(Failure("stuck", text))

    async def _cut_short(self, work: Coroutine[Any, Any, T]) -> T:
        task = self._loop.create_task(work)
        if self._random.random() >= self.plan.cancels:
            await asyncio.wait((task, self._leaving), return_when=asyncio.FIRST_COMPLETED)
        elif self._random.random() < 0.5:
            for _ in range(self._random.randrange(_INTERRUPT_ROUNDS)):
                if task.done():
                    break
                await asyncio.sleep(0)
        else:
            patience = self._random.expovariate(2)
            await asyncio.wait((task, self._leaving), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
        if task.cancelled():
            raise Interrupted
        return task.result()
