"""Outcomes: tells everybody who waits for a record what became of it, those with callbacks in order of the sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

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

    def __init__(self, accumulator: RecordAccumulator, callbacks: Callbacks, freed: Callable[[], None]) -> None:
        """``freed`` is called when the first callback of a batch is about to be: its memory may be free by that."""
        self.unobserved = Unobserved()
        self._accumulator = accumulator
        self._callbacks = callbacks
        self._freed = freed
        self._held: dict[TopicPartition, list[ProducerBatch]] = {}

    def tell(self, batches: list[ProducerBatch], /, *, at_once: bool) -> None:
        """Tell of batches that have just got their outcome.

        ``at_once``: those who wait go on before this returns, since no task is in the middle of a step.
        """
        waiting: list[HandedOver[None]] = []
        for batch in batches:
            waiting += batch.waiting
            if isinstance(batch.outcome, Failure):
                self.unobserved.failed(batch, batch.outcome)
        self._release_all(batches)
        for waiter in waiting:
            if waiter.done():
                continue
            if at_once:
                waiter.hand_over(None)
            else:
                waiter.set_result(None)  # its task runs later, and may be cancelled by then
        self._callbacks.begin(at_once=at_once)

    def _release_all(self, batches: list[ProducerBatch]) -> None:
        """Have the callbacks of these batches called, and of those held, as far as no earlier batch keeps them back."""
        if len(batches) == 1 and not self._held:
            if batches[0].callbacks:
                self._release(batches[0].tp, batches)
            return
        for batch in batches:
            if batch.callbacks:
                self._held.setdefault(batch.tp, []).append(batch)
        for tp in list(self._held):
            self._release(tp, self._held.pop(tp))

    def _release(self, tp: TopicPartition, held: list[ProducerBatch]) -> None:
        earliest = self._accumulator.queue(tp).first_number
        if len(held) > 1:
            held.sort(key=lambda batch: batch.number)
        if earliest is not None:
            later = [batch for batch in held if batch.number > earliest]
            if later:
                self._held[tp] = later
                held = held[: len(held) - len(later)]
        for batch in held:
            self._callbacks.add(self._calls(batch))

    def _calls(self, batch: ProducerBatch) -> Iterable[Call]:
        first = partial(self._turn_comes, batch)
        if len(batch.callbacks) == 1:
            ((index, told),) = batch.callbacks
            return (first, partial(told, batch, index))
        return chain((first,), (partial(told, batch, index) for index, told in batch.callbacks))

    def _turn_comes(self, batch: ProducerBatch) -> None:
        self._accumulator.batch_memory.told(batch)
        self._freed()
