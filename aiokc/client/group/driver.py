"""Performs what the machine of a group membership decides, and tells it what came of that."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup

from ...config import ConsumerConfig
from ...core.counters import GroupCounters
from ...core.group.events import (
    Alive,
    Assign,
    Complain,
    Effect,
    Event,
    Exchange,
    Fail,
    ForgetCoordinator,
    Lost,
    PollClock,
    Polled,
    Revoke,
    SendHeartbeat,
    SendLeave,
    Subscribed,
    Tick,
    Unpolled,
)
from ...core.subscription.state import Subscription
from ...errors import KafkaError
from ...net.connection import ConnectionOptions
from ..aio.signal import Signal
from ..cluster.coordinator_lookup import CoordinatorLookup
from ..cluster.metadata import Metadata
from .protocol import GroupProtocol
from .reconciler import Reconciler
from .retry_report import RetryReport
from .watchdog import Watchdog

logger = logging.getLogger("aiokc.group")

#: How long who stops waits for the answer to its LeaveGroup. Sent, it does its work without; and a coordinator that has
#: to be found and connected to first, and is well, is found in less.
GOODBYE_SECONDS: Final = 2.0


@dataclass(slots=True)
class _UnderWay:
    """An exchange that nothing has ended yet: what comes of it is told to the machine."""

    exchange: Exchange
    scope: anyio.CancelScope


class MembershipDriver:
    """Runs the machine of one protocol: its clock, its requests, the changes of the assignment, the watchdog.

    What only the user can repair is put into ``error``, and ``failed`` called; it stands there until another attempt
    has led to an assignment. ``moved`` is notified of every event, and ``asked_to_join`` set when the first JoinGroup
    has gone out, or there is nothing to join for.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        protocol: GroupProtocol,
        polls: PollClock,
        *,
        lookup: CoordinatorLookup,
        options: ConnectionOptions,
        metadata: Metadata,
        subscription: Subscription,
        changes: Reconciler,
        failed: Callable[[], None],
    ) -> None:
        self._request_timeout = request_timeout = config.request_timeout_ms / 1e3
        self.machine = protocol.machine
        self.error: KafkaError | None = None
        self.retry_report = RetryReport(protocol.group_id)
        self.counters = GroupCounters()
        self.moved = Signal()
        self.asked_to_join = asyncio.Event()
        self._protocol = protocol
        self._group_id = protocol.group_id
        self._polls = polls
        self._lookup = lookup
        self._watchdog = Watchdog(protocol.keepalive, polls, options, request_timeout, protocol.rest)
        self._metadata = metadata
        self._sooner = Signal()  # there is something to do before _wakes_at, or there are new metadata
        self._wakes_at = math.inf
        metadata.changed.followed_by(self._sooner)
        self._subscription = subscription
        self._changes = changes
        self._failed = failed
        self._tasks: TaskGroup | None = None
        self._under_way: _UnderWay | None = None
        self._goodbyes = 0  # on their way
        self._goodbye_at = -math.inf  # when the last one has set out
        self._is_conversing = False  # the task of the last one goes on with the next

    async def run(self) -> None:
        """Keep the membership until cancelled. Nothing that can be repaired is raised."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._changes.run, self.feed)
                while self._subscription.pattern is not None and self._metadata.cluster.version == 0:
                    await self._metadata.changed.wait()  # names are known without; what a pattern matches is not
                self._polls.last = asyncio.get_running_loop().time()
                self._protocol.start(self._joining)
                self._watchdog.start(self.hear)
                self.feed(Subscribed(self._subscription.topics))
                if not self.machine.is_rebalancing:
                    self.asked_to_join.set()
                await self._keep_time()
        finally:
            self._tasks = None
            self._watchdog.stop()
            self._protocol.close()
            self.moved.notify()  # `left` may wait for what will not happen any more

    def loop_is_closed(self) -> None:
        """End the thread, which else would wait for ever, with all that it refers to. Any thread may call this."""
        self._watchdog.stop()

    async def left(self) -> None:
        """Return when the machine has left its group, and the coordinator was told, or nothing will come of that.

        Who has failed, or was not polled, has said goodbye before: that may still be on its way. Its answer is not
        waited for longer than GOODBYE_SECONDS: nothing depends on that.
        """
        while self._tasks is not None and (not self.machine.has_left or self._goodbyes):
            patience = self._goodbye_at + GOODBYE_SECONDS - asyncio.get_running_loop().time()
            if self._goodbyes and patience <= 0:
                return
            await self.moved.wait(patience if self._goodbyes else None)

    async def _keep_time(self) -> None:
        """Tell the machine what it has not asked for: that its time has come, and what is new in the metadata."""
        loop = asyncio.get_running_loop()
        known = self._metadata.cluster
        while True:
            if self._metadata.cluster is not known:
                known = self._metadata.cluster
                if (news := self._protocol.news()) is not None:
                    self.feed(news)
            self._wakes_at = self.machine.deadline
            left = self._wakes_at - loop.time()
            if left > 0:
                await self._sooner.wait(None if left == math.inf else left)
            else:
                self.feed(Tick())
                await asyncio.sleep(0)

    def hear(self) -> None:
        """Let the machine know what the watchdog has heard, if it has."""
        if self._watchdog.has_heard:
            self.feed()

    def feed(self, *events: Event) -> None:
        """Let the machine know of ``events``, and perform what it makes of them."""
        if self._tasks is None:
            return  # not running: run() will ask for all that it needs to know
        # Between the two calls of the watchdog it speaks for nobody. What it has heard while the loop was blocked is
        # older than anything that the loop finds out now.
        now = asyncio.get_running_loop().time()
        effects: list[Effect] = []
        for event in (*self._watchdog.retract(), *events):
            self.counters.heard(event, now)
            if isinstance(event, Alive):
                self.retry_report.is_alive()
            effects += self.machine.on(event, now)
            # Who waits for records polls all the time, and was only kept from it. That has to be said here, whoever
            # feeds, since this happens: the loop is blocked; the thread claims that the member is out, sends its
            # LeaveGroup and waits for the answer; the loop is back, and a Tick retracts the claim; the answer comes,
            # and the thread calls hear(), which finds that nothing was heard. Nobody else would tell of a poll until
            # the user, who waits for records, is back from that.
            if isinstance(event, Unpolled) and self._polls.waiting and self.machine.needs_poll:
                effects += self.machine.on(Polled(), now)
        self._watchdog.watch(self.machine.plan, self._lookup.route())
        self.counters.stands(self.machine.is_settling, any(isinstance(effect, Assign) for effect in effects), now)
        for effect in effects:
            logger.debug("group %r: %s", self._group_id, effect)
            self._perform(effect, self._tasks)
        if not self._subscription.by_topics:
            self.error = None
            self.retry_report.is_over()
        self._protocol.moved()
        if self.machine.deadline < self._wakes_at:  # most events only put it off
            self._sooner.notify()
        self.moved.notify()

    def _perform(self, effect: Effect, tasks: TaskGroup) -> None:
        match effect:
            case Revoke() | Lost():
                self._end_exchange()
                self._changes.add(effect)
            case Assign():
                self.error = None
                self.retry_report.is_over()
                self._changes.add(effect)
            case Exchange():
                self._begin(effect, tasks)
            case SendHeartbeat():
                tasks.start_soon(self._tell, effect)
            case SendLeave():
                self._end_exchange()
                self._goodbyes += 1
                self._goodbye_at = asyncio.get_running_loop().time()
                tasks.start_soon(self._say_goodbye, effect)
            case ForgetCoordinator():
                self._lookup.forget(effect.node_id)
            case Complain():
                self.retry_report.tell(effect)
            case Fail():
                self._end_exchange()
                self.error = effect.error
                logger.error("group %r: %s", self._group_id, effect.error)
                self._failed()

    def _begin(self, exchange: Exchange, tasks: TaskGroup) -> None:
        """End the exchange under way, because its answer would be stale, and begin this one."""
        self._end_exchange()
        self._under_way = _UnderWay(exchange, anyio.CancelScope())
        if not self._is_conversing:
            tasks.start_soon(self._converse, self._under_way)

    def _joining(self) -> None:
        """Get ready what is needed once the group is complete, while the coordinator waits for others to join."""
        self.asked_to_join.set()
        if self._tasks is not None:
            self._watchdog.prepare()
            if self.machine.member.generation_id < 0:  # else it is there, for heartbeats
                self._tasks.start_soon(self._lookup.connect, self._request_timeout)

    def _end_exchange(self) -> None:
        if self._under_way is not None:
            self._under_way.scope.cancel()

    async def _converse(self, under_way: _UnderWay | None) -> None:
        """Tell the machine what came of an exchange, unless it was ended; go on with the one that this leads to.

        A task for each would be a tenth of what a member costs at the moment in which all members get their answers.
        """
        loop = asyncio.get_running_loop()
        while under_way is not None:
            event: Event | None = None
            began = loop.time()
            with under_way.scope:
                event = await self._protocol.perform(under_way.exchange)
            if self._under_way is under_way:
                self._under_way = None
            under_way = None
            if event is not None:
                self.counters.answered(event, loop.time() - began)
                under_way = self._fed(event)

    def _fed(self, event: Event) -> _UnderWay | None:
        """Feed ``event``, and return the exchange that this has begun, if it has: without a task of its own."""
        before = self._under_way  # one that was begun while the answer was on its way up to here
        self._is_conversing = True
        try:
            self.feed(event)
        finally:
            self._is_conversing = False
        return None if self._under_way is before else self._under_way

    async def _tell(self, request: SendHeartbeat | SendLeave) -> None:
        """Tell the machine what came of a request that nothing ends."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        event = await self._protocol.perform(request)
        self.counters.answered(event, loop.time() - began)
        self.feed(event)

    async def _say_goodbye(self, effect: SendLeave) -> None:
        await self._tell(effect)
        self._goodbyes -= 1
        self.moved.notify()
