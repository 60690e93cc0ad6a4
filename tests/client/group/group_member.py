"""GroupMember: a group member without a Consumer around it. The test plays the application and the fetcher."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from types import TracebackType
from typing import Any, Self

import anyio

from aiokc.client.aio.signal import Signal
from aiokc.client.cluster.metadata import Metadata
from aiokc.client.group.classic.protocol import ClassicProtocol
from aiokc.client.group.membership import GroupMembership
from aiokc.client.group.rebalance_listener import ListenerCalls
from aiokc.config import ConsumerConfig
from aiokc.core.subscription.position import PositionState
from aiokc.core.subscription.state import Subscription
from aiokc.errors import NoBrokersAvailable
from aiokc.net.pool import Pool
from aiokc.types import TopicPartition

WITHIN = 90.0


class _Recorder(Signal):
    """Notes every assignment in ``history`` before any task that waits for it can see it."""

    def __init__(self, subscription: Subscription) -> None:
        super().__init__()
        self.history: list[frozenset[TopicPartition]] = [frozenset()]
        self._subscription = subscription

    def notify(self) -> None:
        assignment = frozenset(self._subscription.assigned)
        if assignment != self.history[-1]:
            self.history.append(assignment)
        super().notify()


class GroupMember:
    """A running GroupMembership. Leaving the context ends it as a crash does: without a LeaveGroup."""

    def __init__(self, bootstrap: str, group_id: str, *topics: str, **options: Any) -> None:
        self.config = ConsumerConfig(
            bootstrap_servers=bootstrap,
            group_id=group_id,
            **{
                "heartbeat_interval_ms": 100,
                "retry_backoff_ms": 10,
                "retry_backoff_max_ms": 50,
                "reconnect_backoff_ms": 1,
                "reconnect_backoff_max_ms": 20,
                **options,
            },
        )
        random = Random(7)
        self.pool = Pool(self.config, random=random)
        self.metadata = Metadata(self.config, self.pool, random)
        self._interest = self.metadata.interest()
        self.subscription = Subscription()
        self.changed = _Recorder(self.subscription)
        self.listener = ListenerCalls(self.changed.notify)
        self.membership = GroupMembership(
            self.config, self.pool, self.metadata, self.subscription, self.changed, random, self.listener
        )
        self._task: asyncio.Task[None] | None = None
        if topics:
            self.subscribe(*topics)

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.crash()

    async def _run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.pool.run)
            tasks.start_soon(self.metadata.run)
            tasks.start_soon(self.membership.run)
            try:
                await self.metadata.first(WITHIN)
            except NoBrokersAvailable:
                pass  # some tests want it so

    async def crash(self) -> None:
        """End at once, without a LeaveGroup."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])
            await self.pool.aclose()
            if not task.cancelled() and task.exception() is not None:
                raise task.exception() or AssertionError

    async def leave(self, timeout: float = WITHIN) -> None:
        await self.membership.leave(timeout, None)

    # The application

    def subscribe(self, *topics: str) -> None:
        self.subscription.subscribe(topics)
        self._wish_changed()

    def assign(self, *partitions: TopicPartition) -> None:
        self.subscription.assign(partitions)
        self._wish_changed()

    def unsubscribe(self) -> None:
        self.subscription.unsubscribe()
        self._wish_changed()

    def _wish_changed(self) -> None:
        self._interest.set(self.subscription.topics or {tp.topic for tp in self.subscription.assigned})
        self.membership.subscription_changed()

    def poll(self) -> None:
        """Come back from the records held, and wait for more from here on."""
        self.subscription.mark_processed()
        self.membership.polling_begins()

    def take(self, tp: TopicPartition, until: int) -> None:
        """Receive the records below offset ``until`` of a partition, and stop waiting for more."""
        self.membership.polling_ends()
        position = self.subscription[tp]
        if position.state is not PositionState.FETCHING:
            self.subscription.seek(tp, 0)
        assert not position.blocked, "nothing may be handed out any more"
        self.subscription.hand_out(tp, until, None)

    # What the test looks at

    @property
    def classic(self) -> ClassicProtocol:
        protocol = self.membership._protocol
        assert isinstance(protocol, ClassicProtocol)
        return protocol

    # What the test waits for

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.subscription.assigned)

    async def assigned(self, count: int) -> frozenset[TopicPartition]:
        """Return the assignment as soon as it has this many partitions."""
        await self.until(lambda: len(self.assignment) == count)
        return self.assignment

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when ``condition`` holds. It is checked at each change of the assignment or the error."""
        async with asyncio.timeout(WITHIN):
            while not condition():
                await self.changed.wait()

    async def failed(self) -> Exception:
        await self.until(lambda: self.membership.error is not None)
        assert self.membership.error is not None
        return self.membership.error


async def settled(*members: GroupMember, counts: Iterable[int]) -> None:
    """Return when the members have these numbers of partitions, in whatever order they hear of them."""
    wanted = list(counts)
    woken = Signal()
    for member in members:
        member.changed.followed_by(woken)
    async with asyncio.timeout(WITHIN):
        while [len(member.assignment) for member in members] != wanted or any(
            position.blocked for member in members for position in member.subscription.assigned.values()
        ):
            await woken.wait()
    for member in members:
        member.changed.not_followed_by(woken)


async def soon(awaitable: Awaitable[Any]) -> Any:
    async with asyncio.timeout(WITHIN):
        return await awaitable
