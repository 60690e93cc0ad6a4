"""BatchMemory: what each batch takes of ``buffer_memory``, from its first record until its callbacks are called."""

from __future__ import annotations

from typing import Final

from ...records.encoding.batch_builder import BATCH_OVERHEAD, BufferMemory
from .batch import ProducerBatch

#: What a batch costs beside its bytes: the objects that describe it.
BATCH_COST: Final = 1024


class BatchMemory:
    """Counts batches in ``buffer``. What is appended to an open one is counted there by the append itself.

    A batch takes its memory until it has left its queue, and the first of its callbacks is about to be called. Else an
    application whose callbacks take longer than its sends would pile them up without an end. So slow callbacks make a
    send wait for memory, as slow brokers do (Java calls them before it frees a batch, too). Only one batch has its turn
    at a time. It has given back its memory by then: a callback that sends on by send_soon(), which can't wait, would
    not find room else.
    """

    def __init__(self, limit: int) -> None:
        self.buffer = BufferMemory(limit)
        self.untold = 0  # what batches take that only wait for their callbacks to be called

    def begins(self, batch: ProducerBatch) -> None:
        """A batch has got its first record."""
        batch.memory = BATCH_OVERHEAD
        self.buffer.used += BATCH_COST + BATCH_OVERHEAD

    def begins_part(self, part: ProducerBatch) -> None:
        """Another batch was split, and ``part`` has some of its records."""
        assert part.open is not None
        part.memory = part.open.size
        self.buffer.used += BATCH_COST + part.memory

    def compressed(self, batch: ProducerBatch) -> None:
        """A batch has become smaller."""
        if batch.closed is not None:
            self.buffer.used += batch.closed.size - batch.closed.payload_size - BATCH_OVERHEAD
            batch.memory = batch.closed.size

    def left(self, batch: ProducerBatch) -> None:
        """A batch is in no queue any more: its bytes are let go of."""
        if batch.open is not None:
            batch.memory = batch.open.size
        batch.forget()
        batch.has_left = True
        if batch.callbacks:
            self.untold += BATCH_COST + batch.memory
        self._give_back(batch)

    def told(self, batch: ProducerBatch) -> None:
        """A batch's callbacks are called now.

        They may have been added when it had left, and had given back its memory: it failed as its record was appended.
        """
        if batch.has_left and batch.memory >= 0:
            self.untold -= BATCH_COST + batch.memory
        batch.callbacks = []
        self._give_back(batch)

    def _give_back(self, batch: ProducerBatch) -> None:
        if batch.has_left and not batch.callbacks and batch.memory >= 0:
            self.buffer.used -= BATCH_COST + batch.memory
            batch.memory = -1
