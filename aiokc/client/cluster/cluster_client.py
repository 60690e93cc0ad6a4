"""What Client and Consumer stand on: connections, the picture of the cluster, and the background that keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any

from ...config import ClientConfig
from ...error_codes import ErrorCode
from ...errors import ConsumerClosed, KafkaError, UsageError, broker_error, fresh
from ...net.pool import Pool
from ...types import TopicInfo
from ..aio.supervisor import Driver, Supervisor
from .list_offsets import OffsetLister
from .metadata import Metadata
from .start_order import StartOrder, start_order

# A topic that was created a moment ago is not known to every broker yet: how long to believe that it may appear.
_NEW_TOPIC_SECONDS = 3.0


class ClusterClient:
    """Connections to one cluster, from ``start`` to ``stop``."""

    def __init__(self, config: ClientConfig, random: Random, *, allow_auto_topic_creation: bool = False) -> None:
        self.config = config
        self.random = random
        self.pool = Pool(config, random=random)
        self.metadata = Metadata(config, self.pool, random, allow_auto_topic_creation=allow_auto_topic_creation)
        self.lister = OffsetLister(config, self.pool, self.metadata, random)
        self.background = Supervisor("aiokc background")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = asyncio.Event()  # start() has ended, well or not
        self._start_order: StartOrder | None = None  # held for those that start later
        self._stopped = False
        self._ending: asyncio.Task[None] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop of start(); None before that."""
        return self._loop

    @property
    def running(self) -> bool:
        return self._loop is not None and not self._stopped

    @property
    def stopped(self) -> bool:
        return self._stopped

    def now(self) -> float:
        """The time of its loop; 0 before start()."""
        return self._loop.time() if self._loop is not None else 0.0

    def check(self) -> None:
        """Raise ConsumerClosed unless running, and what ended the background if something did.

        Raises UsageError in another event loop than that of start(): there, nothing would ever wake who waits.
        """
        if self._stopped:
            raise ConsumerClosed("stopped: make a new one to go on")
        if self._loop is None:
            raise ConsumerClosed("not started: call start(), or use 'async with'")
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError("it was started in another event loop: use it there, or make one for this loop")
        self.background.check()

    def check_loop(self) -> None:
        """Raise UsageError where what is to be stopped runs in another event loop, which alone can stop it.

        One that is closed has ended it.
        """
        loop = self._loop
        if loop is None or loop is asyncio.get_running_loop() or loop.is_closed():
            return
        if not self._stopped or self.background.alive:
            raise UsageError("stop(): it was started in another event loop: stop it there")

    async def start(self, drivers: list[Driver], *, timeout: float, asked_to_join: asyncio.Event | None = None) -> None:
        """Start the background and return once a broker has answered. Raises NoBrokersAvailable after ``timeout``.

        ``asked_to_join`` is what one of the drivers tells the others of this loop that want to start, see StartOrder.
        After a failure it is stopped, for good.
        """
        if self._stopped:
            raise ConsumerClosed("stopped: make a new one to go on")
        if self._loop is not None:
            self.check()
            await self._begun.wait()  # somebody else is starting it, and has a deadline
            return self.check()
        self._loop = asyncio.get_running_loop()
        deadline = self._loop.time() + timeout
        try:
            self._start_order = start_order()
            async with self._start_order.starting(asked_to_join):
                self.background.start([self._keep_connections, self.metadata.run, *drivers])
                await self.metadata.first(max(0.0, deadline - self._loop.time()))
        except BaseException as error:
            was_stopped = self.stopped
            await self.stop()
            if was_stopped and isinstance(error, KafkaError):
                raise ConsumerClosed("stopped before it had started") from error
            if self.background.error is not None and isinstance(error, KafkaError):
                raise self.background.error from None  # else it would be "closed", which is what came of it
            raise
        finally:
            self._begun.set()

    async def _keep_connections(self) -> None:
        """Run the pool. Where nobody stops this, as when the whole loop ends, no connection is left behind."""
        try:
            await self.pool.run()
        finally:
            if not self._stopped:
                self.pool.close()

    async def stop(self) -> None:
        """End the background and close every connection, also when cancelled. A second call finds nothing to do."""
        self.check_loop()
        self._stopped = True
        try:
            await self.background.stop()
        finally:
            await self.pool.aclose()

    def forgotten(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Nobody is left who could stop it, so ``end`` does; unless the background is about to end by itself."""
        if not self._stopped and not self.background.cancellation_is_ours:
            self._ending = asyncio.get_running_loop().create_task(end(), name="aiokc stops what was forgotten")

    async def topics(self, names: Iterable[str] | None, *, timeout: float) -> dict[str, TopicInfo]:
        """Return these topics (None: all that this principal may see), as of now.

        Raises UnknownTopic where the cluster has none of that name, AuthorizationFailed where it may not be seen.
        """
        wanted = None if names is None else frozenset(names)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        patience = loop.time() + min(timeout, _NEW_TOPIC_SECONDS)
        while True:
            cluster = await self.metadata.fetch(wanted, timeout=deadline - loop.time())
            if wanted is None:
                return dict(cluster.topics)
            missing = sorted(wanted - cluster.topics.keys() | wanted & cluster.errors.keys())
            if not missing:
                return {name: cluster.topics[name] for name in wanted}
            code = cluster.errors.get(missing[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            error = broker_error(code, f"topic {missing[0]!r}")
            pause = self.config.retry_backoff_ms / 1e3
            if not error.retriable or loop.time() + pause >= patience:
                raise fresh(error)
            await asyncio.sleep(pause)
