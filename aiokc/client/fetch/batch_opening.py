"""Opens large batches in a thread, one at a time, while the calls for records serve other partitions, or wait."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from ...core.fetch.partition.batch_queue import Opened
from ...core.fetch.partition.frame_memory import Unread
from ...core.fetch.partition.partition_buffer import PartitionBuffer
from ...errors import ConnectionFailed, RecordError, UsageError
from ...net.own_thread import OwnThread
from ..aio.signal import Signal

# A batch of more bytes than that takes long to check, or to decompress. Both release the GIL, so a thread does it. A
# thread also opens a batch that has turned out to be larger than it looks (PartitionBuffer).
_LARGE_BYTES: Final = 256 << 10
_LARGE_COMPRESSED_BYTES: Final = 128 << 10


class BatchOpening:
    """The large batch that a thread opens, if any.

    It is a thread of its own. The loop's default executor is the application's, and may have no free thread for as long
    as its jobs wait for what a call for records is to return. No call waits for the thread itself, either: until the
    batch is open, its partition is served as if the batch had not come. ``arrived`` is notified then, as it is of
    records that have come. If no thread can be had, or something else than the batch's contents has made one fail, the
    next call that has no record to return raises that; after one that had some, the next one. A call that does not ask
    for the batch's partition, or may not hand it out, leaves it to one that does: each partition's failure is kept
    until it is raised, and no batch of another one waits for that.
    """

    def __init__(self, arrived: Signal) -> None:
        self._arrived = arrived
        self._thread = OwnThread("aiokc large batches")
        self._unread: Unread | None = None
        self._failed: dict[PartitionBuffer, tuple[Unread, BaseException]] = {}
        self._is_closed = False

    @staticmethod
    def takes_long(buffer: PartitionBuffer) -> bool:
        """Whether the next batch is to be opened in a thread: opening it takes long, or may do so."""
        unread = buffer.unopened()
        if unread is None or unread.hidden:  # a thread has found that out, and its bytes are gone: it is passed over
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
        """Have a thread open the next batch, which ``takes_long``, unless one is at work already, on this or another,
        or this one has failed to be opened, and no call has raised that yet. Raises nothing.
        """
        unread = buffer.unopened()
        if unread is None or self._is_under_way or buffer in self.failed or self._is_closed:
            return
        try:
            opening = asyncio.get_running_loop().run_in_executor(self._thread, buffer.open, unread)
        except ConnectionFailed as error:
            failure = UsageError(
                f"{buffer.tp}: no thread opens the batch at offset {unread.header.base_offset}: {error}; if the "
                "process can have no more threads, raise that limit; then call again"
            )
            failure.__cause__ = error
            self._failed[buffer] = unread, failure
            return
        self._unread = unread

        def done(future: asyncio.Future[Opened | None]) -> None:
            # Whether or not a call waits: calls with short timeouts would never get the batch if each began anew.
            if self._unread is unread:
                self._unread = None
            if not future.cancelled():  # as all that is under way is where the loop ends
                self._store(buffer, unread, future)
            self._arrived.notify()

        opening.add_done_callback(done)

    @property
    def failed(self) -> Collection[PartitionBuffer]:
        """The buffers whose next batch is still wanted, and has failed to be opened: calls have to raise that."""
        dropped = [buffer for buffer, (unread, _) in self._failed.items() if not len(unread.view)]
        for buffer in dropped:
            del self._failed[buffer]
        return self._failed.keys()

    def raise_failure(self, buffer: PartitionBuffer) -> None:
        """Raise why the next batch of ``buffer``, one of ``failed``, is not open. The next ``begin`` tries it again."""
        _, failure = self._failed.pop(buffer)
        raise failure

    def close(self) -> None:
        """End the thread once it is done, and begin no other."""
        self._is_closed = True
        self._thread.close()

    def _store(self, buffer: PartitionBuffer, unread: Unread, future: asyncio.Future[Opened | None]) -> None:
        error = future.exception()
        if error is None:
            try:
                buffer.opened(unread, future.result())
            except MemoryError as no_memory:
                self._failed[buffer] = unread, no_memory.with_traceback(None)
        elif not isinstance(error, RecordError):
            self._failed[buffer] = unread, error.with_traceback(None)  # its frames have the bytes of the batch
        elif buffer.first is unread:
            buffer.failed_with(error)
