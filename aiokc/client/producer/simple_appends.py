"""SimpleAppends: the records of a send_many() that are as simple as most are, some hundred by one call into C."""

from __future__ import annotations

from typing import Any, Final, Protocol

from ...config import ProducerConfig
from ...core.produce.partition_queue import PartitionQueue
from ...records.encoding.batch_builder import KEYS_STOP, OpenBatch, record_bound
from ...types import ProducerRecord
from ..produce.batch_delivery import BatchDelivery
from ..produce.routes import TopicRoute
from .appending import Appending

#: So many records are appended at once: they take less than a millisecond.
AT_ONCE: Final = 500


class Rows(Protocol):
    """Records of one topic. ``serialized``: their keys and values are bytes by now.

    ``append`` is append_records() of these. ``record`` returns a ProducerRecord, or a value alone.
    """

    topic: str
    serialized: bool

    def __len__(self) -> int: ...
    def record(self, at: int) -> Any: ...
    def append(self, appenders: list[OpenBatch | None], start: int, stop: int, /, *call: Any) -> tuple[int, int]: ...


class SimpleAppends:
    """Appends to open batches, and begins the next batches. It stops before a record that is out of the ordinary.

    There is no await in here: so nobody else appends, and nothing is sent, between two records.
    """

    def __init__(self, config: ProducerConfig, appending: Appending) -> None:
        self._largest = config.max_request_size
        self._appending = appending
        self._keys = appending.routes.keys_mode if appending.interceptors is None else None

    def append(self, route: TopicRoute, rows: Rows, at: int, delivery: BatchDelivery, ends: float) -> int:
        """Append records from ``at`` on, 500 at most, and begin no batch after ``ends``; return how far it got.

        Where it raises, for want of memory, ``delivery`` has the records that were appended before, and they are sent:
        the application is told how many, and may send the rest again.
        """
        appending = self._appending
        is_bytes = rows.serialized or appending.serializing.is_nothing
        if self._keys is None or not is_bytes or not appending.memory.has_room(0):
            return at
        # Again: a record before may have been sent at once, without linger, and its batch have failed the transaction.
        appending.accumulator.session.check_append()
        appending.routes.settle(route)
        stop = min(at + AT_ONCE, len(rows))
        before, count = -1, delivery.count
        try:
            taken = self._append(route, rows, at, stop, delivery)
            while before < taken < stop and appending.now() < ends:
                before, taken = taken, self._begin(route, rows, taken, stop, delivery)
        finally:
            if delivery.count > count:
                route.used_at = appending.now()
                appending.look()
        return taken

    def _append(self, route: TopicRoute, rows: Rows, at: int, stop: int, delivery: BatchDelivery) -> int:
        touched: list[int] = []
        try:
            return self._call(route, rows, at, stop, touched)
        finally:
            self._take_in(route, touched, delivery)

    def _begin(self, route: TopicRoute, rows: Rows, at: int, stop: int, delivery: BatchDelivery) -> int:
        """Begin the batch that the record needs, with it and what fits behind it; return how far it got.

        The batch is queued once it has a record: an empty one must never be sent.
        """
        placed = self._place(route, rows.record(at))
        if placed is None:
            return at
        queue, size = placed
        accumulator, number = self._appending.accumulator, queue.tp.partition
        if (before := queue.appender) is not None and before.fits(size):  # the choice fell on another partition
            route.appenders[number] = before
            return self._append(route, rows, at, stop, delivery)
        opened = accumulator.opened(route.topic)
        touched: list[int] = []
        route.appenders[number] = opened
        try:
            return self._call(route, rows, at, stop, touched)
        finally:
            if opened.count:
                accumulator.begin(queue, opened, self._appending.now())
                accumulator.session.appended(queue.tp)
            else:
                route.appenders[number] = queue.appender
            self._take_in(route, touched, delivery)

    def _place(self, route: TopicRoute, given: Any) -> tuple[PartitionQueue, int] | None:
        """Return the partition of a record that has met no batch with room, and the bytes that it takes at most.

        None: it is out of the ordinary.
        """
        record = given if type(given) is ProducerRecord else ProducerRecord(route.topic, given)
        _, value, key, partition, _, headers = record
        if headers or not (_is_plain(value) and _is_plain(key)) or (key is not None and self._keys == KEYS_STOP):
            return None
        size = record_bound(key, value, ())
        if size > self._largest or not self._appending.memory.has_room(size):
            return None
        routes = self._appending.routes
        if partition is None and key is not None:
            partition = routes.choose(route, key, value)
        if partition is None:
            return routes.stick(route, size), size
        if type(partition) is not int or not 0 <= partition < len(route.queues):
            return None
        return route.queues[partition], size

    def _call(self, route: TopicRoute, rows: Rows, at: int, stop: int, touched: list[int]) -> int:
        accumulator, sticky = self._appending.accumulator, route.sticky.partition
        try:
            taken, _ = rows.append(
                route.appenders,
                at,
                stop,
                int(self._appending.clock() * 1000),
                -1 if sticky is None or sticky >= len(route.queues) else sticky,
                self._keys,
                self._largest,
                accumulator.room(),
                touched,
            )
        except BaseException:
            touched[:] = range(len(route.queues))  # it may be the note of what it has appended that found no memory
            raise
        return taken

    def _take_in(self, route: TopicRoute, touched: list[int], delivery: BatchDelivery) -> None:
        accumulator = self._appending.accumulator
        for partition in touched:
            grown = accumulator.take_in(route.queues[partition])
            if grown is not None:
                delivery._add(*grown)
                if partition == route.sticky.partition:
                    self._appending.routes.stuck(route, route.queues[partition])


def _is_plain(content: object) -> bool:
    return content is None or type(content) is bytes
