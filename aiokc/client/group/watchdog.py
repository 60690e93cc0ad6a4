"""A thread that speaks for a group member while its event loop is blocked: heartbeats, and at last a LeaveGroup.

It waits for an Event, and as long as the loop gives signs of life it does nothing else. The loop hands it a Vigil,
which never changes, by one assignment; it hands the loop what the coordinator answered. Whatever follows from an answer
is decided by the loop when it is back: the thread only falls silent where there is nobody to speak for any more.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from ...core.group.events import Event, Fatal, IdentityLost, PollClock, SendHeartbeat, SendLeave, Unpolled
from ...core.group.loop_watch import AskLoop, Beat, HeartbeatPlan, Rest, SayGoodbye, Seen, next_step
from ...core.group.machine import Keepalive
from ...core.rate_limit import RateLimit, and_more
from ...errors import KafkaError
from ...net.blocking import BlockingConnection
from ...net.connection import ConnectionOptions, Route

logger = logging.getLogger("aiokc.group")

_LEAST_PATIENCE: Final = 1.0  # seconds for one exchange, however short the interval between heartbeats is
_WARNING_INTERVAL: Final = 30.0
# asyncio's and uvloop's clocks are the machine's monotonic one. Where a loop's is off by more, it is a simulation's,
# whose time stands still while its callbacks run: it is never late.
_SAME_CLOCK_SECONDS: Final = 1.0
_BY_THE_THREAD: Final = 0  # the number of its heartbeats: none of the loop's own has it


class Watchdog:
    """Watches the loop that calls ``start``, until ``stop``; ``back`` is called there once something was heard.

    Everything but ``_run`` and what it calls belongs to the loop.
    """

    def __init__(
        self, keepalive: Keepalive, polls: PollClock, options: ConnectionOptions, patience: float, rest: float = 0.0
    ) -> None:
        """``rest``: for so many seconds from ``prepare`` on there is nothing to be looked at, whatever Vigil comes."""
        self._keepalive = keepalive
        self._group_id = keepalive.group_id
        self._polls = polls
        self._options = options
        self._patience = patience
        self._rest = rest
        self._loop: asyncio.AbstractEventLoop | None = None
        self._back: Callable[[], None] = _nothing
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._may_rest_until = -math.inf
        self._rests_until = math.inf  # when the thread looks at its watch again, by itself
        self._stopped = False
        self._watch: tuple[HeartbeatPlan, Route] | None = None
        self._heard: deque[Event] = deque()
        self._lock = threading.Lock()
        self._seen = Seen(time.monotonic())
        # of the thread
        self._done: HeartbeatPlan | None = None
        self._connection: BlockingConnection | None = None
        self._connected_by: Route | None = None
        self._warnings = RateLimit(_WARNING_INTERVAL)

    # Called by the loop

    def start(self, back: Callable[[], None]) -> None:
        """Be ready to watch the running loop. The thread comes with ``prepare``, or with the first Vigil."""
        self._loop = asyncio.get_running_loop()
        self._back = back

    def prepare(self) -> None:
        """A Vigil is about to come: have the thread, so that it need not be started then, nor woken."""
        self._may_rest_until = time.monotonic() + self._rest
        if self._thread is None and self._loop is not None and not self._stopped and self._is_of_this_world(self._loop):
            self._thread = threading.Thread(target=self._run, name="aiokc watchdog", daemon=True)
            self._thread.start()

    def watch(self, plan: HeartbeatPlan | None, route: Route | None) -> None:
        """Speak for this member from here on (None: for nobody), if the loop should be late."""
        self._seen.loop_alive = time.monotonic()
        if self._loop is None or self._stopped:
            return
        if plan is None or route is None or not self._is_of_this_world(self._loop):
            self._watch = None
            return
        self._watch = plan, route
        if self._thread is None:
            self.prepare()
        if plan.first_look < self._rests_until:
            self._wake.set()

    @property
    def has_heard(self) -> bool:
        """Whether ``retract`` would return anything."""
        return bool(self._heard)

    def retract(self) -> list[Event]:
        """Let the thread speak for nobody, and return what it has heard. To be called before anything changes."""
        heard: list[Event] = []
        with self._lock:
            self._watch = None
            while self._heard:  # one by one: the answer to a heartbeat may come in between
                heard.append(self._heard.popleft())
        return heard

    def stop(self) -> None:
        """End the thread: at once, or where it waits for a broker, when that answers or the wait is over."""
        self._stopped = True
        self._watch = None
        self._wake.set()

    @staticmethod
    def _is_of_this_world(loop: asyncio.AbstractEventLoop) -> bool:
        return abs(loop.time() - time.monotonic()) < _SAME_CLOCK_SECONDS

    def _pulse(self) -> None:
        self._seen.loop_alive = time.monotonic()

    # The thread

    def _run(self) -> None:
        try:
            while not self._stopped:
                watch = self._watch
                self._rests_until = rest = self._step(watch)
                # Who is watched may have changed in this step: then the loop has looked at _rests_until too early.
                if self._watch is watch:
                    self._wake.wait(None if rest == math.inf else max(0.0, rest - time.monotonic()))
                    self._wake.clear()
        except _LoopClosed:
            logger.debug("group %r: the event loop is closed: nobody to watch", self._group_id)
        except Exception:
            logger.exception("group %r: the watchdog of the event loop has failed", self._group_id)
        finally:
            self._disconnect()

    def _step(self, watch: tuple[HeartbeatPlan, Route] | None) -> float:
        """Do what is due, and return when to look again."""
        if watch is None or watch[0] is self._done:
            self._disconnect()
            return self._may_rest_until if self._may_rest_until > time.monotonic() else math.inf
        plan = watch[0]
        polls, seen = self._polls, self._seen
        polled = max(polls.last, seen.loop_alive) if polls.waiting else polls.last
        now = time.monotonic()
        match next_step(plan, seen, polled, now):
            case Rest(until):
                if not seen.unanswered or until == math.inf:
                    self._disconnect()
                return until
            case AskLoop():
                seen.asked = now
                self._call(self._pulse)
            case Beat():
                self._warn(seen)
                seen.spoken = now
                self._beat(watch)
            case SayGoodbye():
                self._leave(watch)
        return now

    def _beat(self, watch: tuple[HeartbeatPlan, Route]) -> None:
        plan, route = watch
        sent = SendHeartbeat(_BY_THE_THREAD, plan.member)
        timeout = min(self._patience, max(_LEAST_PATIENCE, plan.interval))
        try:
            connection = self._connect(route, timeout)
            # Connecting takes time. In it the loop may have come back, found the group rebalancing and begun to join:
            # then this vigil is over, and its generation must not be heard of again. What still can happen is that
            # the loop comes back between this line and the next: then the heartbeat may reach the coordinator after
            # the JoinGroup, which goes over another connection. It names its generation, so that it is a sign of life
            # of the same member or is refused; and the loop drops the answer, since it is for an older token.
            if self._watch is not watch:
                return
            question = self._keepalive.heartbeat(sent)
            answer = question.event(connection.request(question.request, question.build, timeout=timeout))
        except KafkaError as error:
            self._disconnect()
            logger.debug("group %r: a heartbeat from the watchdog failed: %s", self._group_id, error)
            return
        if isinstance(answer, IdentityLost | Fatal):
            self._done = plan
        if answer is not None:
            self._heard.append(answer)
        self._call(self._back)

    def _leave(self, watch: tuple[HeartbeatPlan, Route]) -> None:
        plan, route = watch
        # A LeaveGroup names no generation. If the loop came back right now, joined again under the same member id, and
        # this were sent then, the coordinator would throw out a member that lives. So the claim comes first: either
        # the loop has retracted the vigil by now, and nothing is sent; or it will hear that the member is out before
        # it does anything else.
        with self._lock:
            if self._watch is not watch:
                return
            self._heard.append(Unpolled(plan.member))
        self._done = plan
        reason = f"its event loop was blocked, and it was not polled for {plan.max_poll_interval:.3g} s"
        logger.warning("group %r: %s leaves: %s", self._group_id, plan.member, reason)
        effect = SendLeave(0, plan.member, reason)
        timeout = min(self._patience, max(_LEAST_PATIENCE, plan.interval))
        try:
            question = self._keepalive.goodbye(effect)
            self._connect(route, timeout).request(question.request, question.build, timeout=timeout)
        except KafkaError as error:  # the coordinator notices after the session timeout
            logger.info("group %r: %s left without a word: %s", self._group_id, plan.member, error)
        self._disconnect()
        self._call(self._back)

    def _connect(self, route: Route, timeout: float) -> BlockingConnection:
        if self._connection is None or self._connected_by != route:
            self._disconnect()
            self._connection = BlockingConnection.open(route, self._options, timeout=timeout)
            self._connected_by = route
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(self, callback: Callable[[], None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError as error:
            raise _LoopClosed from error

    def _warn(self, seen: Seen) -> None:
        now = time.monotonic()
        held_back = self._warnings.admit("blocked", now) if seen.spoken < seen.asked else None
        if held_back is not None:
            logger.warning(
                "group %r: the event loop is blocked, for %.1f s by now: heartbeats go out from a thread, until "
                "max_poll_interval_ms is over%s",
                self._group_id,
                now - seen.loop_alive,
                and_more(held_back),
            )


class _LoopClosed(Exception):
    pass


def _nothing() -> None:
    pass
