"""QuickSends: lets sends append in one step of C what needs nothing but a place in an open batch.

A record costs 4 µs on its way through the checks and layers of an ordinary send, and a tenth of that here. Most records
of a busy producer go this way: the first one to a topic is an ordinary one, and the records that follow are put behind
it. A record that needs another batch, and nothing else, has been looked at in C as well: so it goes without the checks
of an ordinary send. What is out of the ordinary (the topic unknown, memory wanted, an argument wrong) is refused in C,
and goes the ordinary way. So there is no second place where such things are decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from ... import native
from ...config import ProducerConfig
from ...core.produce.batch import ProducerBatch
from ...records.encoding.batch_builder import BufferMemory
from ...types import HeadersToSend
from ..produce.delivery import Delivery, OnDelivered
from ..produce.memory import MemoryWaiters
from ..produce.routes import TopicRoute

_NO_PARTITION: Final = -1


class AppendPlain(Protocol):
    """Appends a record of ``size`` bytes at most that needs no check; None: there is no memory for it."""

    def __call__(
        self,
        route: TopicRoute,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: HeadersToSend,
        timestamp_ms: int,
        size: int,
        on_done: OnDelivered | None,
        /,
    ) -> Delivery | None: ...


class QuickSends:
    """The topics that may be sent to without a look at anything else, in ``loop``. ``clear`` ends that, until the next
    ordinary append to a topic.

    Whoever changes what an ordinary send looks at clears them: the producer stops, its background ends, somebody waits
    for memory, the metadata change, something happens to the transaction.
    """

    def __init__(
        self,
        config: ProducerConfig,
        memory: BufferMemory,
        waiters: MemoryWaiters,
        clock: Callable[[], float],
        append_plain: AppendPlain,
        *,
        keys: int | None,
        refused: Callable[[Exception], None],
    ) -> None:
        """``keys``: how ``append_records`` chooses partitions by keys. None: each record goes the ordinary way.

        ``append_plain`` appends a record of which C has said that it needs another batch. ``refused`` is told of what
        ``append`` raises: the open transaction lacks the record.
        """
        self.topics: dict[str, TopicRoute] = {}  # each with a TopicAppender of the extension
        self.loop: asyncio.AbstractEventLoop | None = None
        self._memory, self._waiters, self._clock = memory, waiters, clock
        self._append_plain, self._refused = append_plain, refused
        self._largest = config.max_request_size
        self._keys = keys if native.NATIVE else None

    def append(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        on_done: OnDelivered | None = None,
    ) -> Delivery | None:
        """Append a record and return its Delivery; None: it goes the ordinary way."""
        route = self.topics.get(topic) if type(topic) is str else None
        try:
            if route is None or asyncio.get_running_loop() is not self.loop:
                return None
        except RuntimeError:  # called in a thread that runs no loop, as the ordinary way says
            return None
        try:
            if type(headers) is list or headers is None:  # C reads tuples only: nobody can change those meanwhile
                headers = tuple(headers or ())
            appended = route.quick.append(value, key, partition, timestamp_ms, headers)
            if type(appended) is tuple:
                chosen, timestamp_ms, size = appended
                return self._append_plain(
                    route, None if chosen < 0 else chosen, key, value, headers, timestamp_ms, size, on_done
                )
            delivery: Delivery | None = appended
            if on_done is not None and delivery is not None:
                delivery._call_when_done(on_done)
            return delivery
        except Exception as error:  # whatever it is, a lack of memory, too
            self._refused(error)
            raise

    def appended(self, route: TopicRoute, batch: ProducerBatch) -> None:
        """A record was appended by Python, and the next ones may be put behind it, if its batch is still open."""
        if self._keys is None or not self._waiters.is_idle:
            return
        if route.quick is None:
            count = len(route.queues)
            route.quick = native.extension.TopicAppender(
                Delivery, self._clock, self._memory, count, self._keys, self._largest
            )
            self.loop = asyncio.get_running_loop()
        if batch.open is not None:
            route.quick.put(batch.tp.partition, batch, batch.open)
        route.quick.sticky = _NO_PARTITION if route.sticky.partition is None else route.sticky.partition
        self.topics[route.topic] = route

    def clear(self) -> None:
        self.topics.clear()
