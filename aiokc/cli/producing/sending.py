"""Sends records one after the other, and keeps account of what became of each."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from aiokc.errors import KafkaError, TransactionAborted

from ..options.partitions import numbers_below
from .encoding import Unencodable

if TYPE_CHECKING:
    from aiokc import Delivery, Producer

    from ..context import Context
    from .records import Outgoing

_MOST_SHOWN: Final = 10
#: More open deliveries than these are looked at one by one, and again when there are twice as many as stayed open.
_MANY: Final = 4_096


class Sending:
    """Sends to one topic. ``stored`` counts acknowledged records, ``failures`` the others, by where they came from."""

    def __init__(self, producer: Producer[bytes, bytes], topic: str, partitions: int) -> None:
        self._producer, self._topic, self._partitions = producer, topic, partitions
        self._open: deque[tuple[str, Delivery]] = deque()
        self._many = _MANY
        self.sent = self.stored = 0
        self.failures: list[tuple[str, Exception]] = []

    async def send(self, where: str, record: Outgoing) -> bool:
        """Send the record of ``where`` ("line 3"), once there is memory for it; return whether it is on its way.

        It is not where the topic has no such partition, and where the producer refuses it: then that is a failure.
        """
        partition = record.partition
        if partition is not None and partition >= self._partitions:
            has = numbers_below(self._partitions)
            return self.failed(where, Unencodable(f"topic {self._topic!r} has no partition {partition}: it has {has}"))
        try:
            delivery = await self._producer.send(
                self._topic,
                record.value,
                record.key,
                partition=partition,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
        except KafkaError as error:
            return self.failed(where, error)
        self.sent += 1
        self._open.append((where, delivery))
        return True

    def failed(self, where: str, error: Exception) -> bool:
        """Note that the record of ``where`` is not stored. Returns False."""
        self.failures.append((where, error))
        return False

    def settle(self) -> bool:
        """Look at what is known by now; return whether nothing has failed."""
        while self._open and self._open[0][1].done():
            self._count(*self._open.popleft())
        if len(self._open) > self._many:  # those of a partition without a leader stand before those of all others
            found, self._open = self._open, deque()
            for where, delivery in found:
                if delivery.done():
                    self._count(where, delivery)
                else:
                    self._open.append((where, delivery))
            self._many = max(_MANY, 2 * len(self._open))
        return not self.failures

    def _count(self, where: str, delivery: Delivery) -> None:
        try:
            delivery.result()
        except KafkaError as error:
            self.failed(where, error)
        else:
            self.stored += 1

    @property
    def causes(self) -> list[tuple[str, Exception]]:
        """The failures, without those of records that an abort took along: these say nothing of its cause."""
        return [each for each in self.failures if not isinstance(each[1], TransactionAborted)]

    def tell(self, context: Context) -> None:
        """Say which records failed, the first ten of them. Those that an abort took along are not news."""
        causes = self.causes
        for where, error in causes[:_MOST_SHOWN]:
            context.fail(where, error)
        if (more := len(causes) - _MOST_SHOWN) > 0:
            context.fail(f"{more} more records", "failed, too")
