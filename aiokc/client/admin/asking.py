"""``Asking``: one administrative call, with its deadline, the pauses between its attempts, and the brokers to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

import anyio

from ...config import ClientConfig
from ...core.backoff import retry_backoff
from ...core.cluster.snapshot import Cluster
from ...core.versions import api_name
from ...error_codes import ErrorCode
from ...errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionFailed,
    KafkaError,
    MalformedResponse,
    NoBrokersAvailable,
    RequestTimedOut,
    fresh,
)
from ...net.own_thread import OwnThread
from ...wire import Request, Response
from ..cluster.cluster_client import ClusterClient
from ..cluster.list_offsets import OffsetLister

R = TypeVar("R", bound=Response)
T = TypeVar("T")

#: After these errors the same question has another answer later: the coordinator has moved, or is not ready yet.
_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


#: After these of them a change was not made. With the others it may have been: a coordinator appends a change to its
#: log first, and then waits until the other replicas have it. NOT_ENOUGH_REPLICAS_AFTER_APPEND of that wait becomes
#: COORDINATOR_NOT_AVAILABLE, and one that loses its role meanwhile answers what waits with NOT_COORDINATOR.
_UNDONE: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNSTABLE_OFFSET_COMMIT})


def passes(error: object) -> bool:
    """Whether another attempt may succeed. Authorization, an unknown group or version, and the like do not pass."""
    if isinstance(error, BrokerError):
        return error.code in _PASSING
    return isinstance(error, ConnectionFailed | RequestTimedOut | AuthenticationFailed) and error.retriable


def leaves_open(error: object) -> bool:
    """Whether the change that ended by this error may have been made. It was sent, and may be tried again."""
    if isinstance(error, BrokerError):
        return error.code in _PASSING - _UNDONE
    return isinstance(error, ConnectionFailed | RequestTimedOut)


#: So many items of an answer are read without giving the event loop a turn.
_AT_ONCE: Final = 200


class Asking:
    """The requests of one call, until its deadline."""

    def __init__(
        self, cluster_client: ClusterClient[ClientConfig], lister: OffsetLister, timeout: float, thread: OwnThread
    ) -> None:
        self.cluster_client = cluster_client
        self.lister = lister
        self.timeout = timeout
        self._thread = thread
        self._config = cluster_client.config
        self._pool = cluster_client.pool
        self.home = self._pool.home
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout
        self._backoff = retry_backoff(self._config, cluster_client.random)

    @property
    def left(self) -> float:
        """The seconds that are left; 0 after the deadline."""
        return max(0.0, self._deadline - self._loop.time())

    def has_ended(self) -> bool:
        return self._loop.time() >= self._deadline

    @property
    def patience(self) -> float:
        """The seconds for one request: one broker that hangs must not use up all the time."""
        return min(self.left, self._config.request_timeout_ms / 1e3)

    def part(self) -> Asking:
        """Return the asking for a step that others follow: it has half of the time, and leaves them the rest.

        One coordinator that hangs is then no reason for not asking the leaders of everything else.
        """
        return Asking(self.cluster_client, self.lister, self.left / 2, self._thread)

    async def may_try_again(self) -> bool:
        """Wait before the next attempt, with newer metadata on their way; return False at the deadline.

        Each pause is longer than the one before. An attempt without any time would only hide why the last one failed.
        """
        self.cluster_client.metadata.request_update()
        await asyncio.sleep(min(self._backoff.next(), self.left))
        return not self.has_ended()

    def too_late(self, what: str, cause: KafkaError | None) -> RequestTimedOut:
        """Return the error of what was not done before the deadline; ``cause`` is the error of the last attempt."""
        error = RequestTimedOut(f"{what}: not done within {self.timeout:.3g} s" + (f": {cause}" if cause else ""))
        error.__cause__ = cause
        return error

    async def reach(self, node_id: int) -> None:
        """Return once there is a connection to a broker. If this raises KafkaError, nothing was sent to it."""
        await self._pool.connection(node_id, timeout=self.patience)

    async def version(self, node_id: int, request_type: type[Request[R]], max_version: int | None = None) -> int:
        """Return the version in which a broker will be asked. Raises what ``broker`` raises."""
        connection = await self._pool.connection(node_id, timeout=self.patience)
        return connection.usable_version(request_type, max_version)

    async def broker(
        self,
        node_id: int,
        request_type: type[Request[R]],
        make: Callable[[int], Request[R]],
        max_version: int | None = None,
    ) -> R:
        """Send one broker the request that ``make(version)`` returns, which changes nothing. Raises KafkaError."""
        return await self._pool.request_made(
            node_id, request_type, make, timeout=self.patience, max_version=max_version
        )

    async def change(self, node_id: int, request: Request[R], max_version: int | None = None) -> R:
        """Send one broker a request that changes something, once. Raises KafkaError.

        1. The coordinator deletes a group, and the connection ends before the answer, at the end of its SASL session.
        2. Sent again as a request of ``broker``, the answer would be GROUP_ID_NOT_FOUND.

        So this raises ConnectionFailed instead, and the next attempt is known to come behind one in doubt.
        """
        return await self._pool.request_made(
            node_id,
            type(request),
            always(request),
            timeout=self.patience,
            max_version=max_version,
            repeatable=False,
        )

    async def read(self, function: Callable[[], T], items: int) -> T:
        """Return what a pure function reads from an answer of so many items: members, partitions or settings.

        Where these are many, it runs in a thread: thousands of them would hold the event loop for long.
        """
        return await self.in_thread(function) if items > _AT_ONCE else function()

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Return what ``function`` returns, which waits for nothing: called in a thread of this call.

        It is called in the loop where the process can have no more threads. The loop's default executor belongs to the
        application: its threads may all be busy for longer than this call may take, and it may be shut down.
        """
        try:
            return await self._thread.run(function)
        except ConnectionFailed:
            return function()

    async def any_broker(
        self,
        request_type: type[Request[R]],
        make: Callable[[int], Request[R]],
        unusable: Callable[[str, R], KafkaError | None] | None = None,
    ) -> R:
        """Return the answer of a broker, whichever answers: those that fail or hang come last, as for the metadata.

        Raises RequestTimedOut after the deadline, with the errors of all; and at once what does not pass. ``unusable``
        returns the error of an answer that counts as none, given the broker's name.
        """
        try:
            return await self._from_open_client(
                self._pool.any_broker(request_type, make, timeout=self.left, unusable=unusable)
            )
        except NoBrokersAvailable as error:
            if not self.has_ended():
                raise
            raise self.too_late(api_name(request_type), error) from error

    async def snapshot(self, topics: Iterable[str] | None) -> Cluster:
        """Ask for these topics (None: all), and make their leaders known to the pool."""
        names = None if topics is None else frozenset(topics)
        cluster = await self._from_open_client(self.cluster_client.metadata.fetch(names, timeout=self.left))
        for broker in cluster.brokers.values():
            self._pool.introduce(broker)
        return cluster

    async def _from_open_client(self, answer: Awaitable[T]) -> T:
        """Return the answer. If the end of the client has made it fail, wait for the end of this call.

        The connections close before the calls under way are ended. A call that keeps what it has found would take that
        for an error of its last request alone, and return meanwhile.
        """
        try:
            return await answer
        except ConnectionFailed:
            if self._pool.is_closed:
                await asyncio.sleep(self.left)  # CallsUnderWay cancels it
            raise

    async def each_broker(
        self, nodes: Collection[int] | None, ask: Callable[[int], Awaitable[T]]
    ) -> dict[int, T | KafkaError]:
        """Ask these brokers (None: all of the cluster) at once; return the answer or the error of each, by id.

        What passes is tried again until the deadline, as long as the metadata name the broker. If the metadata lose a
        broker meanwhile that was not asked for by its id, all others are asked again: what it had may be theirs now.
        """
        found: dict[int, T | KafkaError] = {}
        brokers = (await self.snapshot(())).brokers
        while True:
            wanted = set(brokers) if nodes is None else set(nodes)
            await self._ask_each(sorted(one for one in wanted if passes(found.get(one, _NOT_ASKED))), ask, found)
            if not any(passes(found[one]) for one in wanted if one in found) or not await self.may_try_again():
                break
            try:
                brokers = (await self.snapshot(())).brokers
            except KafkaError:
                if not self.has_ended():
                    raise
                break
            if nodes is None:
                gone = found.keys() - brokers.keys()
                found = {} if gone else found
            elif all(one not in brokers for one in wanted if passes(found[one])):
                break
        return dict(sorted(found.items()))

    async def _ask_each(
        self, nodes: Iterable[int], ask: Callable[[int], Awaitable[T]], found: dict[int, T | KafkaError]
    ) -> None:
        async def ask_one(node_id: int) -> None:
            try:
                found[node_id] = await ask(node_id)
            except KafkaError as error:
                found[node_id] = error

        async with anyio.create_task_group() as tasks:
            for node_id in nodes:
                tasks.start_soon(ask_one, node_id)


_NOT_ASKED: Final = RequestTimedOut("not asked yet")


def always(request: Request[R]) -> Callable[[int], Request[R]]:
    """Return a function for ``broker`` that makes this request, whatever the version is."""
    return lambda version: request


def raised(found: T | KafkaError) -> T:
    """Return what was found, or raise it, where it is an error."""
    if isinstance(found, KafkaError):
        raise fresh(found)
    return found


def checked_answers(found: Mapping[str, T | KafkaError], wanted: Iterable[str], api: str) -> dict[str, T | KafkaError]:
    """Return the answers for what was asked; MalformedResponse where one is missing."""
    return {
        one: found[one] if one in found else MalformedResponse(f"the answer to {api} says nothing about {one!r}")
        for one in wanted
    }
