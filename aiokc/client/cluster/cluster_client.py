"""What all clients share: the connections to a cluster, its metadata, and the background that keeps both."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

from ...config import ClusterConfig
from ...core.cluster.snapshot import Cluster, topic_error
from ...error_codes import ErrorCode
from ...errors import BrokerError, ClientClosed, KafkaError, UsageError, fresh
from ...net.pool import Pool
from ...types import TopicInfo
from ..aio.supervisor import Driver, Supervisor
from .calls_under_way import CallsUnderWay
from .first_start import FirstStart
from .metadata import Metadata
from .start_order import StartOrder, start_order

# A topic that was created a moment ago is not known to every broker yet: how long `topics` waits for it to appear.
_NEW_TOPIC_SECONDS: Final = 3.0

# How much of a start's time may pass in line behind other clients of the loop. The rest is for a broker to answer.
_LINE_SHARE: Final = 0.25

_FORKED: Final = (
    "this process was forked from the one that started it, and its connections are that one's: make another one here"
)

Config_co = TypeVar("Config_co", bound=ClusterConfig, covariant=True)


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that this runs in. Raises UsageError where asyncio has none, as under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "aiokc needs asyncio: call it under asyncio.run(), or under anyio's backend 'asyncio'"
        ) from None


class ClusterClient(Generic[Config_co]):
    """Connections to one cluster, from ``start`` to ``stop``. It starts once; make a new one after ``stop``.

    It may be made before a fork, and then start in each of the processes: ``random`` differs there from ``start`` on.
    ``closed`` is the error of a call before ``start`` and after ``stop``.
    """

    def __init__(
        self,
        config: Config_co,
        random: Random,
        *,
        allow_auto_topic_creation: bool = False,
        closed: type[ClientClosed] = ClientClosed,
    ) -> None:
        self.config = config
        self.random = random
        self._made_in = os.getpid()
        self.pool = Pool(config, random=random)
        self.metadata = Metadata(config, self.pool, random, allow_auto_topic_creation=allow_auto_topic_creation)
        self.background = Supervisor("aiokc background", closed)
        self._closed = closed
        self._calls = CallsUnderWay(self._why_closed)
        self.background.ended.followed_by(self._calls)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first_start = FirstStart(self.check)
        self._start_order: StartOrder | None = None  # kept alive for the clients of this loop that start later
        self._stopped = False
        self._is_forked = False
        self._ending: asyncio.Task[None] | None = None
        #: Called in a process that was forked while this client ran.
        self.on_forked: Callable[[], object] = lambda: None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop of start(); None before that."""
        return self._loop

    @property
    def running(self) -> bool:
        return self._loop is not None and not self._stopped

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one that started this client, whose client it is."""
        return self._is_forked

    @property
    def stopped(self) -> bool:
        return self._stopped

    def now(self) -> float:
        """The time of its loop; 0 before start()."""
        return self._loop.time() if self._loop is not None else 0.0

    def check(self) -> None:
        """Raise ClientClosed (``closed``) unless running, and what ended the background if something did.

        Raises UsageError in another event loop than that of start(): a task that waits there would never be woken. And
        in a thread that runs no event loop, and in a process that was forked since.
        """
        if self._is_forked:
            raise UsageError(_FORKED)
        if self._stopped:
            raise self._closed("stopped: make a new one to go on")
        if self._loop is None:
            raise self._closed("not started: call start(), or use 'async with'")
        if _loop_of_this_thread() is not self._loop:
            raise UsageError("it was started in another event loop: use it there, or make one for this loop")
        self.background.check()

    def _why_closed(self) -> Exception | None:
        try:
            self.check()
        except Exception as error:
            return error
        return None

    def call(self) -> AbstractContextManager[None]:
        """Return the context of a call that asks brokers. Raises as ``check`` does, now and in its block.

        The block ends so if the client stops meanwhile, or if an error ends the background.
        """
        self.check()
        return self._calls.call()

    def raise_refusal(self) -> None:
        """Raise that a broker has refused the credentials, if no call has raised that since the last attempt."""
        refusal = self.pool.logins.take()
        if refusal is not None:
            raise fresh(refusal)

    @property
    def is_stranded(self) -> bool:
        """Whether its loop was closed, and the background was not ended before: no task can end it any more."""
        return self._loop is not None and self._loop.is_closed() and self.background.alive

    def check_loop(self) -> None:
        """Raise UsageError if the background runs in another event loop: only that loop can stop it.

        If that loop is closed, the background has ended or is stranded. Raises UsageError in a process that was forked.
        """
        if self._is_forked:
            raise UsageError(_FORKED)
        loop = self._loop
        if loop is None or loop is asyncio.get_running_loop() or loop.is_closed():
            return
        if not self._stopped or self.background.alive:
            raise UsageError("stop(): it was started in another event loop: stop it there")

    async def start(
        self,
        drivers: list[Driver],
        *,
        timeout: float,
        asked_to_join: asyncio.Event | None = None,
        end: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """Start the background and return once a broker has answered. Raises NoBrokersAvailable after ``timeout``.

        A driver sets ``asked_to_join`` when its JoinGroup is on its way: other clients of this loop may wait for that
        with their start (StartOrder). After a failure this client is stopped for good: by ``end`` first, while the
        background still runs and the connections are there. A second call waits for the first one, and changes nothing.
        """
        if self._stopped:
            raise self._closed("stopped: make a new one to go on")
        if self._loop is not None:
            return await self._first_start.wait(timeout)
        self._loop = running_loop()
        if os.getpid() != self._made_in:
            self.random.seed()  # its copies in other processes draw other member ids and pauses
        _started.add(self)
        deadline = self._loop.time() + timeout
        try:
            self._start_order = start_order()
            async with self._start_order.starting(asked_to_join, patience=timeout * _LINE_SHARE):
                self.background.start([self._keep_connections, self.metadata.run, *drivers])
                await self.metadata.first(max(0.0, deadline - self._loop.time()))
        except BaseException as error:
            was_stopped = self.stopped
            try:
                if end is not None and not was_stopped:
                    await end()
            finally:
                await self.stop()
            if was_stopped and isinstance(error, KafkaError):
                raise self._closed("stopped before it had started") from error
            if self.background.error is not None and isinstance(error, KafkaError):
                raise self.background.error from None  # the cause; `error` only says "closed", which came of it
            raise
        finally:
            self._first_start.ends()

    async def _keep_connections(self) -> None:
        """Run the pool. If the task is cancelled without ``stop``, as at the end of the loop, close its connections."""
        try:
            await self.pool.run()
        finally:
            if not self._stopped:
                self.pool.close()

    async def stop(self) -> None:
        """End the background and close every connection, also when cancelled. A second call does nothing."""
        self.check_loop()
        self._stopped = True
        if self.is_stranded:  # with its connections: each step to close one is for the loop to take
            return
        try:
            await self.background.stop()
        finally:
            await self.pool.aclose()

    def in_child(self) -> None:
        """This process was forked: the client is its parent's. No call works here, and the background connects to none.

        Other code of the loop may run in the child, if it goes on with its parent's event loop.
        """
        self._is_forked = True
        self.pool.in_child()
        self.on_forked()

    def forgotten(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The application has dropped this client: run ``end`` in a task, unless the background is ending already."""
        if not self._stopped and not self.background.cancellation_is_ours:
            self._ending = asyncio.get_running_loop().create_task(end(), name="aiokc stops what was forgotten")

    async def topics(self, names: Iterable[str] | None, *, timeout: float) -> dict[str, TopicInfo]:
        """Ask the cluster for these topics (None: all that this principal may see); return them by name.

        Waits up to 3 s for a topic that may be about to appear. Raises UnknownTopic where the cluster has none of that
        name, RequestTimedOut after ``timeout`` seconds. AuthorizationFailed, without permission for one of them, comes
        at once, also where another one is missing.
        """
        with self.call():
            return await self._topics(None if names is None else frozenset(names), timeout)

    async def _topics(self, wanted: frozenset[str] | None, timeout: float) -> dict[str, TopicInfo]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        patience = loop.time() + min(timeout, _NEW_TOPIC_SECONDS)
        missed: KafkaError | None = None  # what the newest answer lacks
        while True:
            try:
                cluster = await self.metadata.fetch(wanted, timeout=deadline - loop.time())
            except KafkaError as late:
                if missed is None or loop.time() < deadline:
                    raise
                raise fresh(missed) from late  # the time was over before another answer could come
            if wanted is None:
                return dict(cluster.topics)
            missing = sorted(wanted - cluster.topics.keys() | wanted & cluster.errors.keys())
            if not missing:
                return {name: cluster.topics[name] for name in wanted}
            error = _error_of(missing, cluster)
            pause = self.config.retry_backoff_ms / 1e3
            if not error.retriable or loop.time() + pause >= patience:
                raise fresh(error)
            missed = error
            await asyncio.sleep(pause)


def _error_of(missing: list[str], cluster: Cluster) -> BrokerError:
    """Return the error of one of these topics, which ``cluster`` lacks: one that waiting does not cure goes first."""
    errors = [topic_error(cluster.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name) for name in missing]
    return next((error for error in errors if not error.retriable), errors[0])


def _loop_of_this_thread() -> asyncio.AbstractEventLoop:
    """As ``running_loop``, for a client that has started: where there is no loop, this is another thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        how = "asyncio.run_coroutine_threadsafe(producer.send(...), loop), or consumer.commit(...)"
        raise UsageError(f"called in a thread without its event loop: {how}") from None


_started: Final[WeakSet[ClusterClient[Any]]] = WeakSet()


def _in_child() -> None:
    for client in list(_started):
        client.in_child()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_in_child)
