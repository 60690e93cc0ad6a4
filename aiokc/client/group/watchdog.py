"""The watchdog thread: sends heartbeats for a member while its event loop is blocked, and at last a LeaveGroup.

The thread waits for a threading.Event, and as long as the loop gives signs of life it does nothing else. The loop hands
it an immutable HeartbeatPlan by one assignment; the thread hands the loop the coordinator's answers. The loop decides
what follows from an answer when it runs again. The thread itself only stops sending, once the member is out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ...core.group.events import Event, Fatal, IdentityLost, PollClock, SendHeartbeat, Unpolled
from ...core.group.loop_watch import AskLoop, Beat, HeartbeatPlan, Rest, SayGoodbye, Seen, next_step
from ...core.group.machine import Keepalive
from ...core.rate_limit import RateLimit, and_more
from ...errors import AuthenticationFailed, KafkaError
from ...net.blocking import BlockingConnection
from ...net.options import ConnectionOptions, Route

logger = logging.getLogger("aiokc.group")

_LEAST_PATIENCE: Final = 1.0  # seconds for one exchange, however short the interval between heartbeats is
_WARNING_INTERVAL: Final = 30.0
# The clocks of asyncio and uvloop are the machine's monotonic clock. A loop whose clock is off by more than this is a
# simulation. Its time stands still while its callbacks run, so it is never late.
_SAME_CLOCK_SECONDS: Final = 1.0
# An application may close the loop while calls of the consumer are pending. Nothing tells the thread, so it looks this
# often: otherwise it would wait for ever, and keep in memory all that it refers to.
_LOOP_CLOSED_SECONDS: Final = 30.0
_AFTER_FAILURE_SECONDS: Final = 1.0  # the pause after an error that nothing foresees


class Watchdog:
    """Watches the loop that calls ``start``, until ``stop``. ``back`` is called on that loop when an answer has come.

    The thread runs ``_run`` and what that calls; all other methods belong to the loop.
    """

    def __init__(
        self, keepalive: Keepalive, polls: PollClock, options: ConnectionOptions, patience: float, rest: float = 0.0
    ) -> None:
        """``rest``: for so many seconds after ``prepare`` the thread has nothing to do, whatever HeartbeatPlan comes.

        ``patience``: the most that one exchange with the coordinator may take, in seconds.
        """
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
        self._rests_until = math.inf  # when the thread looks at ``_watch`` again without being woken
        self._stopped = False
        self._watch: tuple[HeartbeatPlan, Route] | None = None
        self._heard: deque[Event] = deque()
        self._lock = threading.Lock()
        self._seen = Seen(time.monotonic())
        self._warnings = RateLimit(_WARNING_INTERVAL)  # the loop uses it only before there is a thread
        # For the thread alone
        self._done: HeartbeatPlan | None = None
        self._next: tuple[HeartbeatPlan, SendHeartbeat] | None = None  # what this plan's last answer has led to
        self._connection: BlockingConnection | None = None
        self._connected_by: Route | None = None

    # Called by the loop

    def start(self, back: Callable[[], None]) -> None:
        """Be ready to watch the running loop. ``prepare`` starts the thread, or the first HeartbeatPlan does."""
        self._loop = asyncio.get_running_loop()
        self._back = back

    def prepare(self) -> None:
        """Start the thread before the first HeartbeatPlan comes, so that this need not start or wake it."""
        self._may_rest_until = time.monotonic() + self._rest
        if self._thread is None and self._loop is not None and not self._stopped and self._is_of_this_world(self._loop):
            self._start_thread()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="aiokc watchdog", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # a limit of the process, its container or its user: the next plan tries again
            held_back = self._warnings.admit("thread", time.monotonic())
            if held_back is not None:
                logger.warning(
                    "group %r: the watchdog of the event loop has no thread (%s): a loop that is blocked sends no "
                    "heartbeats; the next heartbeat tries again%s",
                    self._group_id,
                    error,
                    and_more(held_back),
                )
            return
        self._thread = thread

    def watch(self, plan: HeartbeatPlan | None, route: Route | None) -> None:
        """From here on, if the loop is late, send heartbeats for the member of ``plan`` (None: send nothing)."""
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
        """Stop the thread from sending, and return the events it has heard. To be called before the machine moves on.

        ``watch`` lets the thread send again.
        """
        heard: list[Event] = []
        with self._lock:
            self._watch = None
            while self._heard:  # one by one: the answer to a heartbeat may come in between
                heard.append(self._heard.popleft())
        return heard

    def stop(self) -> None:
        """End the thread: at once, or if it waits for a broker, when that answers or the wait times out."""
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
                try:
                    self._look()
                except _LoopClosed:
                    return logger.debug("group %r: the event loop is closed: the watchdog ends", self._group_id)
                except Exception:  # memory may be short, for one: the member still needs its heartbeats
                    self._recover()
        finally:
            self._disconnect()

    def _look(self) -> None:
        """Do what is due, and wait until there may be more to do."""
        if self._loop is not None and self._loop.is_closed():
            raise _LoopClosed
        watch = self._watch
        self._rests_until = rest = self._step(watch)
        # If the loop has replaced the plan during this step, it compared with the old _rests_until, and did not wake
        # the thread. So the thread looks again before it waits.
        if self._watch is watch:
            self._wake.wait(min(_LOOP_CLOSED_SECONDS, max(0.0, rest - time.monotonic())))
            self._wake.clear()

    def _recover(self) -> None:
        """Tell of the exception that is being handled, and wait a little.

        What earlier answers have led to stays: the coordinator would fence a heartbeat with the epoch before that.
        """
        with suppress(MemoryError):  # the log needs memory, too
            held_back = self._warnings.admit("failure", time.monotonic())
            if held_back is not None:
                logger.exception(
                    "group %r: the watchdog of the event loop has failed, and goes on in %.3g s%s",
                    self._group_id,
                    _AFTER_FAILURE_SECONDS,
                    and_more(held_back),
                )
        self._disconnect()
        self._rests_until = -math.inf
        self._wake.wait(_AFTER_FAILURE_SECONDS)  # a call of stop() ends it
        self._wake.clear()

    def _step(self, watch: tuple[HeartbeatPlan, Route] | None) -> float:
        """Do what is due, and return when to look again (monotonic seconds)."""
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
        sent = self._heartbeat(plan)
        timeout = min(self._patience, max(_LEAST_PATIENCE, plan.interval))
        try:
            connection = self._connect(route, timeout)
        except KafkaError as error:
            return self._failed(error)  # nothing was sent, so the loop has nothing to hear
        # Connecting takes time. Meanwhile the loop may have come back, found the group rebalancing and begun to join.
        # Then this heartbeat plan is over, and no heartbeat of its generation may be sent any more. The loop can still
        # come back between this line and the next. Then the heartbeat may reach the coordinator after what the loop
        # sends, which goes over another connection. Of a classic group it names the generation: it is a sign of life of
        # the same member or is refused. Of a KIP-848 group it may tell the coordinator what is out of date, and so may
        # its answer tell the loop (see _hear).
        if self._watch is not watch:
            return
        answer: Event | None = None
        try:
            question = self._keepalive.heartbeat(sent)
            answer = question.event(connection.request(question.request, question.build, timeout=timeout))
        except KafkaError as error:
            self._failed(error)
        except Exception:
            self._hear(watch, None, sent)  # it may have been sent, though nobody will read the answer
            raise
        if isinstance(answer, IdentityLost | Fatal):
            self._done = plan
        if answer is not None:
            self._next = plan, self._keepalive.after(answer, sent)
        self._hear(watch, answer, sent)

    def _failed(self, error: KafkaError) -> None:
        """Warn, unless that is held back: until the loop is back, only this line tells that no heartbeat goes out."""
        self._disconnect()
        kind = "login" if isinstance(error, AuthenticationFailed) else "failed"
        held_back = self._warnings.admit(kind, time.monotonic())
        level = logging.DEBUG if held_back is None else logging.WARNING
        text, more = "group %r: a heartbeat from the watchdog failed: %s%s", and_more(held_back or 0)
        logger.log(level, text, self._group_id, error, more)

    def _hear(self, watch: tuple[HeartbeatPlan, Route], answer: Event | None, sent: SendHeartbeat) -> None:
        """Hand the loop the ``answer`` (None: there was none).

        If the loop has called retract() since the heartbeat was sent, the machine has gone on: the answer may be older
        than what the loop has sent and heard meanwhile, and the Keepalive says what that means.
        """
        with self._lock:
            is_late = answer is None or self._watch is not watch
            heard = self._keepalive.unheard(answer, sent) if is_late else answer
            if heard is None:
                return
            self._heard.append(heard)
        self._call(self._back)

    def _heartbeat(self, plan: HeartbeatPlan) -> SendHeartbeat:
        return self._next[1] if self._next is not None and self._next[0] is plan else plan.heartbeat

    def _leave(self, watch: tuple[HeartbeatPlan, Route]) -> None:
        plan, route = watch
        last = self._heartbeat(plan)
        member = last.member
        # A LeaveGroup names no generation. If the loop came back right now and joined again under the same member id,
        # and the LeaveGroup were sent after that, the coordinator would remove a live member. So the thread records
        # Unpolled before it sends: either the loop has called retract() by now, and the thread sends nothing; or the
        # loop will hear that the member is out before it does anything else. What was sent before that may still be
        # handled after the join that follows: so the member joins under another id.
        with self._lock:
            if self._watch is not watch:
                return
            self._heard.append(Unpolled(member))
        self._done = plan
        reason = f"its event loop was blocked, and it was not polled for {plan.max_poll_interval:.3g} s"
        logger.warning("group %r: %s leaves: %s", self._group_id, member, reason)
        timeout = min(self._patience, max(_LEAST_PATIENCE, plan.interval))
        try:
            question = self._keepalive.goodbye(last, reason)
            self._connect(route, timeout).request(question.request, question.build, timeout=timeout)
        except KafkaError as error:  # the coordinator notices after the session timeout
            logger.info("group %r: %s left without a word: %s", self._group_id, member, error)
        self._disconnect()
        self._call(self._back)

    def _connect(self, route: Route, timeout: float) -> BlockingConnection:
        if self._connection is None or self._connected_by != route or self._connection.is_over:
            self._disconnect()
            self._connection = BlockingConnection.open(route, self._options, timeout=timeout)
            self._connected_by = route
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

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
