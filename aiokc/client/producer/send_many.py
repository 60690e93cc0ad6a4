"""send_many(): appends many records of one topic, most of them by one call into C for some hundred at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from ...config import ProducerConfig
from ...core.produce.accumulator import BATCH_COST
from ...errors import ConfigError, ProduceError, shown
from ...records.encoding.batch_builder import append_records
from ...types import ProducerRecord
from ..aio.time_slice import TimeSlice
from ..produce.batch_delivery import BatchDelivery
from ..produce.routes import TopicRoute
from .appending import Appending
from .records import checked_record

#: So many records are taken from the application's iterable at once; they take less than a millisecond.
_AT_ONCE: Final = 500


class ManyRecords:
    """Appends the records of one call after the other, in time slices. Other tasks may append in between."""

    def __init__(self, config: ProducerConfig, appending: Appending) -> None:
        self._config = config
        self._appending = appending

    async def send(self, topic: str, records: Iterable[Any], *, timeout: float) -> BatchDelivery:
        """Append all records; wait for metadata and memory, at most ``timeout`` seconds without an append.

        What is raised for a record says in a note how many were appended before it.
        """
        appending, delivery, time_slice = self._appending, BatchDelivery(), TimeSlice()
        appending.check()
        route = appending.routes.known(topic) or await appending.routes.find(topic, None, timeout)
        appending.check()
        time_slice.begins()
        left: Iterator[Any] = iter(records)
        while some := tuple(islice(left, _AT_ONCE)):
            at = 0
            while at < len(some):
                before = at
                at = self._append_simple(route, some, at, delivery)
                if at == before:
                    await self._append_one(topic, some[at], delivery, timeout)
                    route = appending.routes.known(topic) or route
                    at += 1
                if asyncio.get_running_loop().time() > time_slice.ends:
                    await time_slice.give_way()
                    appending.check()
        return delivery

    async def _append_one(self, topic: str, given: Any, delivery: BatchDelivery, timeout: float) -> None:
        try:
            one = await self._appending.send(_record(topic, given), timeout=timeout)
        except Exception as error:
            if delivery.count:
                error.add_note(f"aiokc: {delivery.count} records of this send_many() were appended before this one")
            if isinstance(error, ProduceError):
                error.appended = delivery.count
            raise
        delivery.add(*one.place())

    def _append_simple(self, route: TopicRoute, records: tuple[Any, ...], at: int, delivery: BatchDelivery) -> int:
        """Append records from ``at`` on as long as nothing is out of the ordinary; return how far it got."""
        appending = self._appending
        accumulator = appending.accumulator
        keys = appending.routes.keys_mode
        if keys is None or not appending.takes_bytes or not appending.memory.has_room(0):
            return at
        appending.routes.settle(route)
        queues = route.queues
        room = self._config.buffer_memory - accumulator.used - BATCH_COST
        sticky = -1 if route.sticky.partition is None else route.sticky.partition
        taken, _ = append_records(
            [queue.appender for queue in queues],
            route.topic,
            records,
            at,
            len(records),
            int(appending.clock() * 1000),
            sticky if sticky < len(queues) else -1,
            keys,
            self._config.max_request_size,
            room,
        )
        if taken > at:
            route.used_at = appending.now()
            for queue in queues:
                grown = accumulator.take_in(queue)
                if grown is not None:
                    delivery.add(*grown)
                    if queue.tp.partition == sticky:
                        appending.routes.stuck(route, queue)
            appending.look()
        return taken


def _record(topic: str, given: Any) -> ProducerRecord[Any, Any]:
    if not isinstance(given, ProducerRecord):
        return ProducerRecord(topic, given)
    if given.topic != topic:
        raise ConfigError(f"send_many({topic!r}, ...): a record is for topic {shown(given.topic)}: one call, one topic")
    return checked_record(*given)
