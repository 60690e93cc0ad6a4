"""Delivery: what becomes of one sent record. It is a pair, a batch and an index, until somebody awaits it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeAlias

from ... import native
from ...core.produce.batch import ProducerBatch, Stored
from ...core.produce.failure import Failure
from ...errors import UsageError
from ...net.reply import HandedOver
from ...types import RecordMetadata, TopicPartition

#: ``on_done(metadata, error)``: the record is stored if ``error`` is None; otherwise ``metadata.offset`` is None.
OnDelivered: TypeAlias = Callable[[RecordMetadata, Exception | None], object]


class Told:
    """A callback that gets the outcome of one record. ``observes``: the application is told by it of a failure."""

    __slots__ = ("_on_done", "_timestamp", "observes")

    def __init__(self, on_done: OnDelivered, timestamp: int, *, observes: bool = True) -> None:
        self._on_done, self._timestamp, self.observes = on_done, timestamp, observes

    def __call__(self, batch: ProducerBatch, index: int) -> None:
        outcome = batch.outcome
        if isinstance(outcome, Stored):
            self._on_done(stored_as(batch.tp, index, outcome, self._timestamp), None)
        elif outcome is not None:
            metadata = RecordMetadata(batch.tp.topic, batch.tp.partition, None, self._timestamp)
            self._on_done(metadata, outcome.error_of(batch.tp, index))


def stored_as(tp: TopicPartition, index: int, stored: Stored, timestamp: int) -> RecordMetadata:
    """Return where the record is, which has this index in its batch, and was sent with this timestamp."""
    offset = None if stored.base_offset is None else stored.base_offset + index
    return RecordMetadata(
        tp.topic, tp.partition, offset, timestamp if stored.append_time is None else stored.append_time
    )


def outcome_told(batch: ProducerBatch, index: int) -> Generator[object, None, None]:
    """Wait until something is known of a record that has no outcome yet: its outcome, or that its batch was split.

    Its failure counts as seen while this goes on; the caller then takes the outcome in the same step.
    """
    loop = asyncio.get_running_loop()
    if batch.owner is not None and batch.owner is not loop:
        raise UsageError(f"{batch.tp}: the Producer runs in another event loop: await its Delivery there")
    told: HandedOver[None] = HandedOver(loop=loop)
    batch.waiting[told] = index
    try:
        yield from told
    except BaseException:  # also where the task was cancelled after the outcome was told, and before it ran
        batch.find(index)[0].waits_no_more(told, has_seen=False)
        raise
    batch.find(index)[0].waits_no_more(told, has_seen=True)


class _RecordPlace:
    """Which record a Delivery is about. In C it is made in a tenth of a microsecond (_native/topic_appender.c)."""

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: ProducerBatch, index: int, timestamp: int) -> None:
        self._batch, self._index, self._timestamp = batch, index, timestamp


if TYPE_CHECKING:
    RecordPlace = _RecordPlace
else:
    RecordPlace = native.extension.RecordPlace if native.NATIVE else _RecordPlace


class Delivery(RecordPlace):
    """One record's way to the log: await it for its RecordMetadata, as often and by as many tasks as wanted.

    It raises ProduceError where the record was not stored, or may not be; or what has ended the producer before that,
    ProducerFenced for instance. A cancelled await ends the waiting only: the record stays in the producer, and is sent.
    """

    __slots__ = ()

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        return self._find()[0].outcome is not None

    def result(self) -> RecordMetadata:
        """Return what awaiting it returns, or raise what it raises. Raises InvalidStateError before that is known."""
        batch, index = self._find()
        outcome = batch.outcome
        if outcome is None:
            raise asyncio.InvalidStateError(f"{batch.tp}: the record is not acknowledged yet")
        if isinstance(outcome, Failure):
            batch.observe(index)
            raise outcome.error_of(batch.tp, index)
        return stored_as(batch.tp, index, outcome, self._timestamp)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        while (found := self._find())[0].outcome is None:
            yield from outcome_told(*found)
        return self.result()

    def _place(self) -> tuple[ProducerBatch, int, int]:
        """The batch, the index in it, and one record: a piece of a BatchDelivery."""
        return self._batch, self._index, 1

    def _call_when_done(self, on_done: OnDelivered) -> None:
        """Have the application's callback called with the outcome, which must not be known yet."""
        self._when_done(Told(on_done, self._timestamp))

    def _when_done(self, told: Told) -> None:
        """Have ``told`` called with the outcome, which must not be known yet."""
        batch, index = self._find()
        batch.callbacks.append((index, told))
        if told.observes:
            batch.observe(index)

    def _find(self) -> tuple[ProducerBatch, int]:
        return self._batch.find(self._index)

    def __repr__(self) -> str:
        batch, _ = self._find()
        state = "waiting" if batch.outcome is None else "failed" if isinstance(batch.outcome, Failure) else "stored"
        return f"<Delivery {batch.tp} {state}>"
