"""Outcomes: tells everybody who waits for a record what became of it, those with callbacks in order of the sends."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ...core.produce.accumulator import RecordAccumulator
from ...core.produce.batch import ProducerBatch
from ...core.produce.failure import Failure
from ...net.reply import HandedOver
from ...types import TopicPartition
from .callbacks import Call, Callbacks
from .unobserved import Unobserved


class Outcomes:
    """What is to be done once batches have their outcome.

    A partition's callbacks come in order of its records. A batch may fail before an earlier one is stored: then its
    callbacks wait for those of the earlier one.
    """

    def __init__(self, accumulator: RecordAccumulator, callbacks: Callbacks) -> None:
        self.unobserved = Unobserved()
        self._accumulator = accumulator
        self._callbacks = callbacks
        self._held: dict[TopicPartition, list[ProducerBatch]] = {}

    def tell(self, batches: list[ProducerBatch], /, *, at_once: bool) -> None:
        """Tell of batches that have just got their outcome.

        ``at_once``: those who wait go on before this returns, since the caller is in the middle of nothing.
        """
        waiting: list[HandedOver[None]] = []
        for batch in batches:
            waiting += batch.waiting
            if batch.callbacks:
                self._held.setdefault(batch.tp, []).append(batch)
            if isinstance(batch.outcome, Failure):
                self.unobserved.failed(batch, batch.outcome)
        if self._held:
            for tp in list(self._held):
                self._release(tp)
        for waiter in waiting:
            if waiter.done():
                continue
            if at_once:
                waiter.hand_over(None)
            else:
                waiter.set_result(None)  # its task runs later, and may be cancelled by then
        self._callbacks.begin(at_once=at_once)

    def _release(self, tp: TopicPartition) -> None:
        earliest = self._accumulator.queue(tp).first_number
        held = self._held.pop(tp)
        if len(held) > 1:
            held.sort(key=lambda batch: batch.number)
        later = [] if earliest is None else [batch for batch in held if batch.number > earliest]
        for batch in held[: len(held) - len(later)]:
            self._callbacks.add(_calls(batch, batch.callbacks))
            batch.callbacks = []
        if later:
            self._held[tp] = later


def _calls(batch: ProducerBatch, callbacks: list[tuple[int, Any]]) -> Iterator[Call]:
    return (partial(told, batch, index) for index, told in callbacks)
