"""QuickSends: lets send_soon() append in one step of C what needs nothing but a place in an open batch.

A record costs 4 µs on its way through the checks and layers of an ordinary send, and a tenth of that here. Most records
of a busy producer go this way: an ordinary append begins each batch, and the records that follow are put behind it.
What is out of the ordinary (the batch is full or gone, the topic unknown, memory wanted, an argument wrong) is refused
in C, and goes the ordinary way. So there is no second place where such things are decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ... import native
from ...config import ProducerConfig
from ...core.produce.batch import ProducerBatch
from ...records.encoding.batch_builder import BufferMemory
from ..produce.delivery import Delivery
from ..produce.memory import MemoryWaiters
from ..produce.routes import TopicRoute

_NO_PARTITION: Final = -1


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
        *,
        keys: int | None,
    ) -> None:
        """``keys``: how ``append_records`` chooses partitions by keys. None: each record goes the ordinary way."""
        self.topics: dict[str, Any] = {}  # a TopicAppender of the extension for each
        self.loop: asyncio.AbstractEventLoop | None = None
        self._memory, self._waiters, self._clock = memory, waiters, clock
        self._largest = config.max_request_size
        self._keys = keys if native.NATIVE else None

    def append(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Any:
        """Append a record and return its Delivery; None: it goes the ordinary way."""
        quick = self.topics.get(topic) if type(topic) is str else None
        if quick is None or asyncio.get_running_loop() is not self.loop:
            return None
        if type(headers) is list:  # C reads tuples only: nobody can change those meanwhile
            headers = tuple(headers)
        return quick.append(value, key, partition, timestamp_ms, headers)

    def appended(self, route: TopicRoute, batch: ProducerBatch) -> None:
        """A record was appended the ordinary way, and the next ones may be put behind it."""
        if self._keys is None or batch.open is None or not self._waiters.is_idle:
            return
        if route.quick is None:
            count = len(route.queues)
            route.quick = native.extension.TopicAppender(
                Delivery, self._clock, self._memory, count, self._keys, self._largest
            )
            self.loop = asyncio.get_running_loop()
        route.quick.put(batch.tp.partition, batch, batch.open)
        route.quick.sticky = _NO_PARTITION if route.sticky.partition is None else route.sticky.partition
        self.topics[route.topic] = route.quick

    def clear(self) -> None:
        self.topics.clear()
