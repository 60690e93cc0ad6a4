"""Opens large batches in a thread, one at a time, while the calls for records serve other partitions, or wait."""

from __future__ import annotations

import asyncio
from typing import Final

from ...core.fetch.partition.batch_queue import Opened
from ...core.fetch.partition.frame_memory import Unread
from ...core.fetch.partition.partition_buffer import PartitionBuffer
from ...errors import RecordError, UsageError
from ..aio.signal import Signal

# A batch of more bytes than that takes long to check, or to decompress. Both release the GIL, so a thread does it. A
# thread also opens a batch that has turned out to be larger than it looks (PartitionBuffer).
_LARGE_BYTES: Final = 256 << 10
_LARGE_COMPRESSED_BYTES: Final = 128 << 10


class BatchOpening:
    """The large batch that a thread of the loop's default executor opens, if any.

    No call waits for the thread itself: the executor is the application's, and may have no free thread for as long as
    its jobs wait for what the call is to return. Until the batch is open, its partition is served as if the batch had
    not come. ``arrived`` is notified then, as it is of records that have come.
    """

    def __init__(self, arrived: Signal) -> None:
        self._arrived = arrived
        self._unread: Unread | None = None
        self._failed: tuple[Unread, BaseException] | None = None

    @staticmethod
    def takes_long(buffer: PartitionBuffer) -> bool:
        """Whether the next batch is to be opened in a thread: opening it takes long, or may do so."""
        unread = buffer.unopened()
        if unread is None:
            return False
        header = unread.header
        return unread.is_large or header.batch_length > (_LARGE_COMPRESSED_BYTES if header.codec else _LARGE_BYTES)

    @property
    def _is_under_way(self) -> bool:
        """Whether a thread is to open a batch that is still wanted: one that was dropped has no bytes any more."""
        return self._unread is not None and len(self._unread.view) > 0

    def holds_up(self, buffer: PartitionBuffer) -> bool:
        """Whether the next batch is to be opened in a thread, and that one, or another batch, is being opened."""
        return self._is_under_way and self.takes_long(buffer)

    def begin(self, buffer: PartitionBuffer) -> None:
        """Have a thread open the next batch, which ``takes_long``, unless one is at work already, on this or another.

        Raises UsageError if the executor takes nothing, and what else than the batch's contents has made a thread fail.
        """
        unread = buffer.unopened()
        if unread is None or self._is_under_way:
            return
        failed, self._failed = self._failed, None
        if failed is not None and failed[0] is unread:
            raise failed[1]
        try:
            opening = asyncio.get_running_loop().run_in_executor(None, buffer.open, unread)
        except RuntimeError as error:
            raise UsageError(
                f"{buffer.tp}: no thread opens the batch at offset {unread.header.base_offset}: the loop's default "
                f"executor takes nothing ({error}); if it was shut down, give it another by "
                "loop.set_default_executor(), and if the process can have no more threads, raise that limit; then "
                "call again"
            ) from error
        self._unread = unread

        def done(future: asyncio.Future[Opened | None]) -> None:
            # Whether or not a call waits: calls with short timeouts would never get the batch if each began anew.
            if self._unread is unread:
                self._unread = None
            if not future.cancelled():  # else the application has shut its executor down, and may have set another one
                self._store(buffer, unread, future)
            self._arrived.notify()

        opening.add_done_callback(done)

    def _store(self, buffer: PartitionBuffer, unread: Unread, future: asyncio.Future[Opened | None]) -> None:
        error = future.exception()
        if error is None:
            buffer.opened(unread, future.result())
        elif not isinstance(error, RecordError):
            self._failed = unread, error
        elif buffer.first is unread:
            buffer.failed_with(error)
