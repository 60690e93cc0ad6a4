"""What arrives of one partition: appended in order, each batch where the one before it ended, up to the first error."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from ....errors import KafkaError, RecordError
from ....records import AbortedTransactions, measure_run
from ....types import TopicPartition
from .arrived_batches import Arrived, split_arrived
from .batch_queue import BatchQueue
from .fetched_partition import FetchedPartition, Limits
from .frame_memory import FrameMemory, Run

# Appending so many single batches takes less than a millisecond. Each of them may hold only one record.
_ADDED_AT_ONCE: Final = 64


class PartitionArrivals:
    """What has arrived of one partition under one token, and was not taken: from offset ``taken`` up to ``end``.

    An error keeps its place in the order of what arrives: nothing is appended behind it.
    """

    __slots__ = (
        "_arriving",
        "_kept",
        "_limits",
        "_memory",
        "_senders",
        "end",
        "epoch",
        "error",
        "taken",
        "token",
        "tp",
    )

    # PartitionBuffer.__init__ sets them all. Where partitions are many, nearly each answer about one makes a buffer,
    # and to call a second __init__ would take a tenth more time.
    tp: TopicPartition
    token: int
    end: int  # the next offset to fetch
    epoch: int | None  # the leader epoch of the last record before ``end``
    taken: int  # the position behind what was taken
    error: KafkaError | None
    _senders: tuple[tuple[int, int], ...]  # (offset, broker): who sent what begins at this offset
    _limits: Limits
    _arriving: Iterator[Arrived] | None  # the batches of a response that are not appended yet
    _memory: FrameMemory
    _kept: BatchQueue

    def drop(self) -> None:
        """Drop everything. What a thread, or a call that let other tasks run, does to it later has no effect."""
        self._arriving = None
        self._kept.drop()
        self._memory = FrameMemory()
        self._kept = BatchQueue(self._memory)

    def add(self, fetched: FetchedPartition) -> None:
        """Append all that arrived."""
        self.begin(fetched)
        while self.is_arriving:
            self.add_more()

    def begin(self, fetched: FetchedPartition) -> None:
        """Append the first batches of what arrived; ``add_more`` appends the others, as long as ``is_arriving``.

        Ignores a response for another offset than ``end``, because it is stale.
        """
        if fetched.offset != self.end or self.error is not None or self._arriving is not None:
            return
        if fetched.error is not None:
            self.error = fetched.error
            return
        self._remember_sender(fetched.offset, fetched.broker)
        aborted = None
        if fetched.aborted:
            aborted = AbortedTransactions(fetched.aborted, check_crcs=self._limits.check_crcs)
        self._arriving = split_arrived(fetched.records, self.end, aborted)
        self.add_more()
        if self.end == fetched.offset:
            self._refuse_nothing(fetched)

    def add_run(self, records: memoryview, offset: int, broker: int) -> bool:
        """Append all that arrived, if it is one run, as most of what comes is where partitions are many.

        Return False, and change nothing, if it is anything else, or stale.
        """
        if offset != self.end or self.error is not None or self._arriving is not None:
            return False
        run = measure_run(records, offset, transactional=True)
        if run is None or run[0] != len(records):
            return False
        if self._senders:
            self._remember_sender(offset, broker)
        else:
            self._senders = ((offset, broker),)
        self._kept.add(Run(records, None))
        _, self.end, self.epoch = run
        return True

    def add_more(self) -> None:
        """Append up to 64 more batches or runs of what arrived; ``end`` moves behind the last of them."""
        arriving = self._arriving
        if arriving is None or self.error is not None:  # an earlier batch can't be read: append nothing behind it
            return self.leave_rest()
        try:
            added = 0
            for unread, next_offset, epoch in islice(arriving, _ADDED_AT_ONCE):
                self._kept.add(unread)
                self.end, self.epoch = next_offset, epoch
                added += 1
        except RecordError as error:
            self._arriving, self.error = None, self._located(error, self.end)
            return
        if added < _ADDED_AT_ONCE:
            self._arriving = None
        self._kept.unpack_ahead(self._limits)

    @property
    def is_arriving(self) -> bool:
        """Whether some batches of a response are not appended yet."""
        return self._arriving is not None

    def leave_rest(self) -> None:
        """Append no more of what arrived: the rest is fetched again, from ``end`` on."""
        self._arriving = None

    def _refuse_nothing(self, fetched: FetchedPartition) -> None:
        """Set an error where bytes arrived and no batch could be appended: nothing can be read past them."""
        if self.error is None and self.end == fetched.offset and len(fetched.records) > 0:
            error = RecordError("the broker sent bytes without one complete record batch; nothing can be read past it")
            self.error = self._located(error, self.end)

    def _remember_sender(self, offset: int, broker: int) -> None:
        senders = self._senders
        if senders and senders[-1][1] == broker:
            return
        senders = (*senders, (offset, broker))
        while len(senders) > 1 and senders[1][0] <= self.taken:
            senders = senders[1:]  # all that this broker has sent was handed out
        self._senders = senders

    def _located(self, error: RecordError, at: int) -> RecordError:
        """Return the error with its partition, the offset from which nothing can be read, and the sending broker."""
        if not error.topic:
            error.topic, error.partition, error.offset = self.tp.topic, self.tp.partition, at
        error.broker = next((broker for start, broker in reversed(self._senders) if start <= at), -1)
        return error
