"""Drives the membership machine: sends its requests, keeps its clock, feeds it events, and performs its effects."""

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
    CheckCoordinator,
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
from ...net.options import ConnectionOptions
from ..aio.signal import Signal
from ..cluster.coordinator_lookup import CoordinatorLookup
from ..cluster.metadata import Metadata
from .protocol import GroupProtocol
from .reconciler import Reconciler
from .retry_report import RetryReport
from .watchdog import Watchdog

logger = logging.getLogger("aiokc.group")

#: How long a stopping consumer waits for the answer to its LeaveGroup, in seconds. Once the request is sent, it works
#: whether the consumer waits or not. If the coordinator must be found and connected to first, or must name the member
#: id first (KIP-394), a healthy one takes less for all of that.
GOODBYE_SECONDS: Final = 2.0


@dataclass(slots=True)
class _UnderWay:
    """The exchange that is under way, and the scope that cancels it. An exchange that was not cancelled has its result
    fed to the machine."""

    exchange: Exchange
    scope: anyio.CancelScope


class MembershipDriver:
    """Runs the machine of one group protocol: its clock, its requests, the changes of the assignment, the watchdog.

    An error that only the application can repair is put into ``error``, and ``look_again`` is called; so it is when the
    member has come to its assignment. The error stays there until another attempt has led to an assignment. ``moved``
    is notified of every event. ``asked_to_join`` is set when the first JoinGroup has gone out, or at once if nothing is
    subscribed to.
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
        look_again: Callable[[], None],
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
        self._look_again = look_again
        self._tasks: TaskGroup | None = None
        self._under_way: _UnderWay | None = None
        self._goodbyes = 0  # LeaveGroups under way
        self._goodbye_at = -math.inf  # when the last LeaveGroup was begun
        self._is_conversing = False  # a task is feeding its exchange's result, and goes on with the next exchange

    async def run(self) -> None:
        """Keep the membership until cancelled. No error that a retry or the application can repair is raised."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._changes.run, self.feed)
                # First: the application may subscribe to names while this waits, and feed() joins at once.
                self._polls.last = asyncio.get_running_loop().time()
                self._protocol.start(self._joining)
                self._watchdog.start(self.hear)
                while self._subscription.pattern is not None and self._metadata.cluster.version == 0:
                    await self._sooner.wait()  # the first metadata say which topics the pattern matches
                in_use = self._protocol.in_use
                logger.info("group %r: protocol %s: %s", self._group_id, in_use.name or "to be chosen", in_use.reason)
                self.subscription_changed()
                if not self.machine.is_rebalancing:
                    self.asked_to_join.set()
                await self._keep_time()
        finally:
            self._tasks = None
            self._watchdog.stop()
            self._protocol.close()
            self.moved.notify()  # left() may be waiting for an event that will not come any more

    @property
    def has_assigned(self) -> bool:
        """Whether this member's generation has its assignment, and the reconciler has carried all of it out."""
        return self.machine.member.generation_id >= 0 and not self.machine.is_settling and self._changes.are_done

    def loop_is_closed(self) -> None:
        """End the watchdog thread. Any thread may call this.

        Without this the thread would wait for ever, and keep alive all that it refers to.
        """
        self._watchdog.stop()

    @property
    def polled_at(self) -> float | None:
        """When the application last polled, or else the member began to join. None where it has not asked to join."""
        counts = self._tasks is not None and self.asked_to_join.is_set() and self._subscription.by_topics
        return self._polls.last if counts else None

    @property
    def has_left(self) -> bool:
        """Whether there is no membership, nor a LeaveGroup that was not answered."""
        return self.machine.has_left and not self._goodbyes

    async def left(self) -> None:
        """Return when the machine has left its group and its LeaveGroup was answered, has failed, or takes too long.

        A member that has failed, or that was not polled in time, has sent its LeaveGroup before; that may still be
        under way. This waits for an answer for GOODBYE_SECONDS at most, since nothing depends on it. Where the member
        first waits for its member id, with which it can leave, that is part of them.
        """
        waits_for_id_since = asyncio.get_running_loop().time() if self.machine.is_rebalancing else math.inf
        while self._tasks is not None and not self.has_left:
            began = min(self._goodbye_at, waits_for_id_since)
            patience = began + GOODBYE_SECONDS - asyncio.get_running_loop().time()
            if self._goodbyes and patience <= 0 and self._changes.are_done:
                return
            # The goodbye may be an older one, from before stop(), while the listener still hears of a change.
            await self.moved.wait(patience if self._goodbyes and patience > 0 else None)

    async def _keep_time(self) -> None:
        """Feed the machine the events that answer no request: a Tick at its deadline, and news in the metadata."""
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

    def subscription_changed(self) -> None:
        """Tell the machine what the application subscribes to."""
        pattern = self._subscription.server_pattern
        if pattern is None:
            self.feed(Subscribed(self._subscription.topics, matched=self._subscription.pattern is not None))
        else:  # the topics are those assigned
            self.feed(Subscribed(frozenset(), pattern.pattern))

    def hear(self) -> None:
        """Feed the machine what the watchdog thread has heard, if it has heard anything."""
        if self._watchdog.has_heard:
            self.feed()

    def feed(self, *events: Event) -> None:
        """Feed ``events`` to the machine, and perform the effects that it returns."""
        if self._tasks is None:
            return  # not running: run() begins with the subscription as it is then
        # Between retract() and watch() the watchdog thread sends nothing. What it has heard is of the machine as it
        # stands, so the machine gets that first. Which is older, an answer of the thread's or one to the loop's own
        # heartbeat that was under way meanwhile, only the coordinator knows.
        now = asyncio.get_running_loop().time()
        was_settling, was_rebalancing = self.machine.is_settling, self.machine.is_rebalancing
        effects: list[Effect] = []
        for event in (*self._watchdog.retract(), *events):
            self.counters.heard(event, now)
            if isinstance(event, Alive):
                self.retry_report.heartbeat_answered()
            effects += self.machine.on(event, now)
            # An application that waits for records polls all the time; only the blocked loop kept it from that. So a
            # Polled follows at once, and it has to follow here, whatever event was fed, because of this race:
            # 1. The loop is blocked. The thread records Unpolled, sends a LeaveGroup and waits for the answer.
            # 2. The loop is back, and a Tick takes the Unpolled over by retract().
            # 3. The answer comes. The thread calls hear(), which finds that nothing was heard.
            # After that nothing would feed a Polled until the application comes back from its wait for records.
            if isinstance(event, Unpolled) and self._polls.waiting and self.machine.needs_poll:
                effects += self.machine.on(Polled(), now)
        if was_rebalancing and not self.machine.is_rebalancing:
            self._end_exchange()  # of a member that goes without a word: a JoinGroup that still waits to go out, say
        self._watchdog.watch(self.machine.plan, self._lookup.route())
        self.counters.stands(self.machine.is_settling, any(isinstance(effect, Assign) for effect in effects), now)
        for effect in effects:
            logger.debug("group %r: %s", self._group_id, effect)
            self._perform(effect, self._tasks)
        if not self._subscription.by_topics:
            self.error = self.counters.last_heartbeat = None  # one of this group says nothing of the next membership
            self.retry_report.over()
        elif self.has_assigned and (self._subscription.pattern is None or self._subscription.is_matched):
            self._subscription.was_assigned = True  # also without an Assign: a changed subscription need not bring one
        self._protocol.moved()
        if was_settling and not self.machine.is_settling:
            self._look_again()
        if self.machine.deadline < self._wakes_at:  # most events only put the deadline off
            self._sooner.notify()
        self.moved.notify()

    def _perform(self, effect: Effect, tasks: TaskGroup) -> None:
        match effect:
            case Revoke() | Lost():
                self._end_exchange()
                self._changes.add(effect)
            case Assign():
                self.error = None
                self.retry_report.over()
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
            case CheckCoordinator():
                tasks.start_soon(self._lookup.check, min(effect.patience, self._request_timeout))
            case Complain():
                self.retry_report.tell(effect)
            case Fail():
                self._end_exchange()
                self.error = effect.error
                logger.error("group %r: %s", self._group_id, effect.error)
                self._look_again()

    def _begin(self, exchange: Exchange, tasks: TaskGroup) -> None:
        """End the exchange under way, because its answer would be stale, and begin ``exchange``."""
        self._end_exchange()
        self._under_way = _UnderWay(exchange, anyio.CancelScope())
        if not self._is_conversing:
            tasks.start_soon(self._converse, self._under_way)

    def _joining(self) -> None:
        """A JoinGroup has gone out: prepare for heartbeats while the coordinator waits for other members to join.

        That is the watchdog thread, and the connection that heartbeats use.
        """
        self.asked_to_join.set()
        if self._tasks is not None:
            self._watchdog.prepare()
            if self.machine.member.generation_id < 0:  # a member of a generation has that connection already
                self._tasks.start_soon(self._lookup.connect, self._request_timeout)

    def _end_exchange(self) -> None:
        if self._under_way is not None:
            self._under_way.scope.cancel()

    async def _converse(self, under_way: _UnderWay | None) -> None:
        """Perform an exchange, feed its result unless it was cancelled, and go on with the exchange that follows.

        A task for each exchange would be a tenth of a member's cost at the moment when all members get their answers.
        """
        loop = asyncio.get_running_loop()
        while under_way is not None:
            event: Event | None = None
            began = loop.time()
            with under_way.scope:
                if not under_way.scope.cancel_called:  # a request could go out before its first await
                    event = await self._protocol.perform(under_way.exchange)
            if self._under_way is under_way:
                self._under_way = None
            under_way = None
            if event is not None:
                self.counters.answered(event, loop.time() - began)
                under_way = self._fed(event)

    def _fed(self, event: Event) -> _UnderWay | None:
        """Feed ``event``, and return the exchange that this has begun, if any. That has no task: the caller goes on."""
        before = self._under_way  # an exchange that was begun after the answer came, and before this line
        self._is_conversing = True
        try:
            self.feed(event)
        finally:
            self._is_conversing = False
        return None if self._under_way is before else self._under_way

    async def _tell(self, request: SendHeartbeat | SendLeave) -> None:
        """Send a request that nothing cancels, and feed its result to the machine."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        event = await self._protocol.perform(request)
        self.counters.answered(event, loop.time() - began)
        self.feed(event)

    async def _say_goodbye(self, effect: SendLeave) -> None:
        await self._tell(effect)
        self._goodbyes -= 1
        self.moved.notify()
