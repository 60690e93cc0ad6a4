"""ToCompress: which batches are compressed within the event loop's step, and which in threads, so that none is long."""

from __future__ import annotations

from typing import Final

from ....records.compression import quickly_compressed
from ....records.encoding.batch_builder import OpenBatch
from ..batch import ProducerBatch

#: What it costs to compress a batch, however small, in bytes of records that take as long: a codec clears its tables.
COMPRESSION_COST: Final = 4096


class ToCompress:
    """The batches that are to be compressed in threads. The driver ``take``s them, and says when one is ``done``.

    What about a millisecond is enough for is compressed at once, in each turn of the loop. ``most``: so many bytes are
    compressed ahead in threads. Beyond that, batches are filled on: a batch that is compressed takes no more records.
    """

    def __init__(self, codec: int, level: int | None, most: int) -> None:
        self._codec, self._quickly, self._most = codec, quickly_compressed(codec, level), most
        self._left = 0  # bytes that can be compressed in this turn
        self._under_way = 0  # bytes that are given to threads
        self._batches: list[tuple[ProducerBatch, OpenBatch]] = []

    def turn_begins(self) -> None:
        self._left = self._quickly

    def goes_at_once(self, batch: ProducerBatch, opened: OpenBatch) -> bool:
        """Whether to compress the batch in this turn. If not, it is one for a thread, or has to wait for its turn."""
        cost = opened.size + COMPRESSION_COST
        if cost <= self._left:
            self._left -= cost
            return True
        if not self._under_way or self._under_way + opened.size <= self._most:
            batch.seal()
            batch.closing = True
            self._under_way += opened.size
            self._batches.append((batch, opened))
        return False

    @property
    def is_empty(self) -> bool:
        """Whether there are none for threads."""
        return not self._batches

    def take(self) -> list[tuple[ProducerBatch, OpenBatch]]:
        """Return the batches for threads, each once."""
        taken, self._batches = self._batches, []
        return taken

    def done(self, batch: ProducerBatch, opened: OpenBatch) -> None:
        self._under_way -= opened.size
        batch.closing = False
