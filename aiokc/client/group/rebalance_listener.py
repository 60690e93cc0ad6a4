"""RebalanceListener, and its calls: each has a deadline, and its errors are raised from the application's next call."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextvars import ContextVar
from typing import Final, Literal, TypeAlias
from weakref import ReferenceType, ref

import anyio

from ...core.counters import AssignmentCounters
from ...errors import ListenerTimedOut, UsageError, shown
from ...net.user_errors import as_error, ends_us, leaves_the_loop
from ...observer import RebalanceKind
from ...types import TopicPartition, named

logger = logging.getLogger("aiokc.listener")

_LONG_FOR_THE_LOOP: Final = 0.1  # seconds that a callback may hold the loop without a word in the log

Told: TypeAlias = Awaitable[None] | None


class RebalanceListener:
    """Is called when partitions are assigned, revoked or lost. Derive from it; methods may be ``def`` or ``async def``.

    Callbacks of one consumer run one after the other, in its background, beside the task that calls getmany(). They
    may call everything of the consumer except getmany(), getmany_columns(), getone(), the iterator, wait_assigned() and
    stop(), which raise UsageError. An exception that a callback raises is raised, as itself, from the next of these
    calls; the assignment is the same as without it. A StopAsyncIteration, StopIteration or GeneratorExit, or a
    CancelledError although nothing has cancelled the callback, would silently end the code that it is raised to. So it
    is raised as the cause of a UsageError.

    A callback that is not done in time is cancelled, and ListenerTimedOut is raised in the same places. The time is
    what is left of max_poll_interval_ms, both since the application last asked for records and since the change began.
    After unsubscribe(), and in stop(), only the second counts. In stop() it is also, at most, three quarters of what
    unwaited commits have left of its timeout, less what the last auto-commit takes. A ``def`` method can't be
    cancelled, and blocks the event loop for as long as it runs.
    """

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> Told:
        """``partitions`` go to other members next, and are still this member's: the last chance to commit for them.

        The consumer returns no more records of them, and the application has processed those that it had. This is also
        called for the partitions that unsubscribe() and stop() give up. In an eager rebalance it is called with the
        whole assignment, even if that is empty.
        """
        return None

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> Told:
        """``partitions`` are new, and none of their records is returned before this is done: the place for seek().

        Called at the end of each rebalance, even if no partition is new. Partitions that were kept are not among them.
        """
        return None

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> Told:
        """``partitions`` are gone already, and other members may be reading them: a commit raises CommitFailed.

        Unlike in Java, on_partitions_revoked() is not called in its place.
        """
        return None


def _nothing(kind: RebalanceKind, partitions: frozenset[TopicPartition], seconds: float) -> None:
    pass


class _Callback:
    """One call of a listener. Tasks that the callback has started count as inside it until it is over."""

    def __init__(self, owner: ListenerCalls) -> None:
        self.owner = owner
        self.running = True


_callback: ContextVar[_Callback | None] = ContextVar("aiokc_rebalance_callback", default=None)


class ListenerCalls:
    """Calls the listener of one consumer, and keeps its errors for the application's next call.

    ``listener`` is the listener from now on. Only the application's side (InUse) holds a strong reference to it. A
    listener often refers to its consumer, so a reference from here would keep the consumer from being collected.
    ``failed`` is called when there is an error to raise. ``observe`` hears of each change of the assignment. ``latest``
    is when all callbacks end, on the loop's clock.
    """

    def __init__(self, failed: Callable[[], None]) -> None:
        self._listener: ReferenceType[RebalanceListener] | None = None
        self._failed = failed
        self._errors: deque[Exception] = deque()
        self._scope: anyio.CancelScope | None = None
        self._is_welcome = False  # whether the running callback is on_partitions_assigned()
        self.latest = math.inf
        self._stop_seconds = 0.0  # what the newest ``end_within`` was given
        self.counters = AssignmentCounters()
        self.observe: Callable[[RebalanceKind, frozenset[TopicPartition], float], None] = _nothing

    @property
    def listener(self) -> RebalanceListener | None:
        return self._listener() if self._listener is not None else None

    @listener.setter
    def listener(self, listener: RebalanceListener | None) -> None:
        self._listener = None if listener is None else ref(listener)

    # For the application's calls

    def is_inside(self) -> bool:
        """Whether the current task runs inside a callback of this consumer's listener."""
        callback = _callback.get()
        return callback is not None and callback.running and callback.owner is self

    def refuse_inside(self, call: str) -> None:
        """Raise UsageError if ``call`` is made from inside a callback: it would wait for the callback's own end."""
        if self.is_inside():
            raise UsageError(
                f"{call} inside a rebalance listener would wait for the listener itself: let the callback return, and "
                "call it from the task that reads"
            )

    def raise_error(self) -> None:
        """Raise the oldest error of a callback that was not raised yet; each is raised once."""
        if self._errors:
            raise self._errors.popleft()

    def raise_last_error(self) -> None:
        """Raise the oldest error that is left, and drop all others: for stop()."""
        errors, self._errors = self._errors, deque()
        if errors:
            raise errors[0]

    def end_within(self, timeout: float) -> None:
        """The consumer stops: end all callbacks from now on within three quarters of ``timeout`` seconds.

        That also holds for the callback that is running. If that is on_partitions_assigned(), it gets only a quarter,
        because its partitions are about to be revoked again.
        """
        now = asyncio.get_running_loop().time()
        self.latest = min(self.latest, now + timeout * 3 / 4)
        self._stop_seconds = timeout
        if self._scope is not None:
            latest = now + timeout / 4 if self._is_welcome else self.latest
            self._scope.deadline = min(self._scope.deadline, latest)

    # Calling

    def done(self, kind: RebalanceKind, partitions: frozenset[TopicPartition], since: float) -> None:
        """Count, and tell the observers, that a change of the assignment is carried out, which began at ``since``."""
        match kind:
            case "revoked":
                self.counters.revoked += len(partitions)
            case "lost":
                self.counters.lost += len(partitions)
            case "assigned":
                pass
        if partitions:
            self.observe(kind, partitions, asyncio.get_running_loop().time() - since)

    async def revoked(
        self, listener: RebalanceListener | None, partitions: Iterable[TopicPartition], deadline: float
    ) -> None:
        if listener is not None:
            await self._call(listener, "on_partitions_revoked", partitions, deadline)

    async def assigned(
        self, listener: RebalanceListener | None, partitions: Iterable[TopicPartition], deadline: float
    ) -> None:
        if listener is not None:
            await self._call(listener, "on_partitions_assigned", partitions, deadline)

    async def lost(
        self, listener: RebalanceListener | None, partitions: Iterable[TopicPartition], deadline: float
    ) -> None:
        if listener is not None:
            await self._call(listener, "on_partitions_lost", partitions, deadline)

    async def _call(
        self,
        listener: RebalanceListener,
        method: Literal["on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"],
        partitions: Iterable[TopicPartition],
        deadline: float,
    ) -> None:
        name = f"{type(listener).__name__}.{method}()"
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        start = loop.time()
        told = frozenset(partitions)
        callback = _Callback(self)
        self._is_welcome = method == "on_partitions_assigned"
        before = _callback.set(callback)
        self._scope = scope = anyio.CancelScope(deadline=min(deadline, self.latest))
        try:
            with scope:
                result: Told = getattr(listener, method)(told)  # may be any callable, such as a mock or a partial
                self._complain_if_slow(name, loop.time() - start)
                if inspect.isawaitable(result):
                    await result
        except BaseException as error:
            if ends_us(error, task):
                raise
            leaves_the_loop(error)
            self.keep(name, as_error(error, name))
        else:
            if scope.cancelled_caught:
                limit = "what was left of max_poll_interval_ms"
                if scope.deadline < deadline:
                    limit = f"the listener's share of the {self._stop_seconds:.3g} s that stop() had left"
                self.keep(name, ListenerTimedOut(_cancelled(name, told, loop.time() - start, limit)))
        finally:
            self.counters.listener.add(loop.time() - start)
            self._scope = None
            callback.running = False
            _callback.reset(before)

    def keep(self, name: str, error: Exception) -> None:
        """Log ``error``, which ``name`` has raised, and keep it for the application's next call."""
        logger.error("%s failed; the next call raises it: %s", name, shown(error), exc_info=error)
        self._errors.append(error)
        self._failed()

    def _complain_if_slow(self, name: str, took: float) -> None:
        if took > _LONG_FOR_THE_LOOP:
            logger.warning("%s held the event loop for %.3g s: make it async, or hand work to a thread", name, took)


def _cancelled(name: str, partitions: Collection[TopicPartition], took: float, limit: str) -> str:
    return f"{name} for {named(partitions)} was cancelled: not done after {took:.3g} s, {limit}"
