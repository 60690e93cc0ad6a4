"""Carries out the changes of the assignment (Revoke, Lost, Assign) one after the other, and calls the listener."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ...core.group.events import Assign, Change, Lost, PollClock, RevocationDone, Revoke
from ...core.subscription.state import Subscription
from ...errors import AssignmentFailed
from ...types import TopicPartition, named
from ..aio.signal import Signal
from ..aio.time_slice import MANY_PARTITIONS
from ..offsets.last_commits import LastCommits
from .rebalance_listener import ListenerCalls, RebalanceListener

logger = logging.getLogger("aiokc.group")


@dataclass(frozen=True, slots=True, eq=False)
class _Queued:
    """A change that waits to be carried out: when it was added, and the listener that hears of a revocation or loss.

    That is the listener at the time when the change was added. If the application unsubscribes and subscribes anew with
    another listener, the old one hears that the old partitions go: also if what it hears of is a later change, which
    overrules the revocation that the unsubscribe() led to (``of_former``).
    """

    change: Change
    since: float
    listener: RebalanceListener | None
    of_former: bool


class Reconciler:
    """Carries out Revoke, Lost and Assign in their order, and calls the application's listener for each.

    Whatever decides about the assignment (a group by any protocol, or the metadata alone) uses these three changes.

    ``user_moved`` is to be notified when the application has come back from the records that it holds, or has
    committed them. ``changed`` is notified of every change of the assignment. A callback ends within
    ``max_poll_interval`` seconds of the beginning of the change, because the group waits no longer for a member; for a
    revocation it may wait ``revocation_margin`` longer. While the application is not waiting for records, it also ends
    within ``max_poll_interval`` of the last poll, because the member leaves its group then: unless it is leaving
    already.
    """

    def __init__(
        self,
        owner: str,
        subscription: Subscription,
        changed: Signal,
        *,
        listener: ListenerCalls,
        polls: PollClock,
        max_poll_interval: float,
        commits: LastCommits | None = None,
        tell_assignor: Callable[[Assign], None] | None = None,
        revocation_margin: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``owner``: the log's name for what decides about the assignment. ``commits``: None without a group."""
        self.user_moved = Signal()
        self._owner = owner
        self._subscription = subscription
        self._changed = changed
        self._commits = commits
        self._listener = listener
        self._tell_assignor = tell_assignor
        self._polls = polls
        self._max_poll_interval = max_poll_interval
        self._revocation_margin = revocation_margin
        self._queue: deque[_Queued] = deque()
        self._added = Signal()
        self._is_at_work = False
        self._unfinished: _Queued | None = None  # the newest Revoke or Lost, until it is carried out
        self._announced: set[TopicPartition] = set()  # assigned, and not yet reported as revoked or lost
        self._told_now: frozenset[TopicPartition] = frozenset()  # what on_partitions_assigned() is being called with

    def add(self, change: Change) -> None:
        """Carry ``change`` out after all others. A newer Revoke or Lost overrules the Revoke under way."""
        queued = self._queued(change)
        self._queue.append(queued)
        if isinstance(change, Lost):  # at once, even if an earlier change is still under way
            self._block(change)
            self._subscription.forget(change.partitions)  # after unsubscribe(): others may commit for these by now
        if not isinstance(change, Assign):
            self._unfinished = queued
            self.user_moved.notify()
            if self._commits is not None:
                self._commits.cut_short()
        self._added.notify()

    def _queued(self, change: Change) -> _Queued:
        listener, of_former = self._listener.listener, not self._subscription.by_topics
        overruled = None if isinstance(change, Assign) else self._unfinished
        if overruled is not None and overruled.of_former:
            listener, of_former = overruled.listener, True
        return _Queued(change, asyncio.get_running_loop().time(), listener, of_former)

    @property
    def are_done(self) -> bool:
        """Whether no change is under way, and none waits."""
        return not self._queue and not self._is_at_work

    @property
    def will_assign(self) -> bool:
        """Whether an Assign waits for its turn."""
        return any(isinstance(queued.change, Assign) for queued in self._queue)

    async def run(self, revocation_done: Callable[[RevocationDone], None]) -> None:
        """Carry out changes until cancelled. ``revocation_done`` is called in the tick that gives up the partitions."""
        while True:
            while not self._queue:
                self._is_at_work = False
                await self._added.wait()
            self._is_at_work = True
            # No variable here keeps the change, so that nothing refers to its listener after this call.
            await self._carry_out(self._queue.popleft(), revocation_done)

    async def _carry_out(self, queued: _Queued, revocation_done: Callable[[RevocationDone], None]) -> None:
        match queued.change:
            case Revoke():
                await self._revoke(queued.change, queued, revocation_done)
            case Lost():
                await self._lose(queued.change, queued, revocation_done)
            case Assign():
                await self._assign(queued.change, queued)

    async def _revoke(self, change: Revoke, queued: _Queued, revocation_done: Callable[[RevocationDone], None]) -> None:
        """Stop handing out, wait for the application, commit, call the listener, wait for its commits, and drop.

        The application has to come back from the records that it holds, if the group can wait for that.
        """
        self._block(change)
        partitions = frozenset(change.partitions)
        while change.wait and self._is_newest(queued) and self._holds_records(partitions):
            await self.user_moved.wait()
        if self._is_newest(queued) and self._commits is not None:
            await self._commits.finish(self._deadline(queued))
        if not self._is_newest(queued):
            return  # a newer Revoke or Lost is in the queue: there is no time left, or commits are not allowed any more
        going = self._announced & partitions
        if going or not partitions:
            self._announced -= going  # so that a loss which overtakes the callback does not report them again
            await self._listener.revoked(queued.listener, going, self._deadline(queued))
            if self._is_newest(queued) and self._commits is not None:
                until = min(self._deadline(queued), self._listener.latest)
                await self._commits.finish_those_of_the_listener(until)
        if not self._is_newest(queued):
            return  # the queued change gives up these partitions too, and does not call the listener for them
        self._unfinished = None
        self._give_up(partitions)
        logger.info("%s: revoked %s", self._owner, _Shown(change.partitions))
        self._listener.done("revoked", partitions, queued.since)
        revocation_done(RevocationDone(change.step))

    async def _lose(self, change: Lost, queued: _Queued, revocation_done: Callable[[RevocationDone], None]) -> None:
        """Drop without a commit: other members may be reading these by now, and it would overwrite their commits."""
        going = self._announced.intersection(change.partitions)
        self._announced -= going
        self._give_up(frozenset(change.partitions))
        logger.warning("%s: lost %s: %s", self._owner, _Shown(change.partitions), change.reason)
        if going:
            now = asyncio.get_running_loop().time()  # no group waits for this callback: the member is outside its group
            await self._listener.lost(queued.listener, going, now + self._max_poll_interval)
        if self._is_newest(queued):
            self._unfinished = None
        self._listener.done("lost", frozenset(change.partitions), queued.since)
        revocation_done(RevocationDone(change.step))

    async def _assign(self, change: Assign, queued: _Queued) -> None:
        """Add the new partitions behind those that are kept, and read them when the listener is done.

        The kept partitions are read on as they are. The positions of the new ones are looked up while the listener
        runs; a seek() of the listener wins over that.
        """
        subscription = self._subscription
        if not subscription.by_topics or any(isinstance(later.change, Lost) for later in self._queue):
            return  # overtaken by unsubscribe() or by a Lost: the machine knows, and a Revoke or Lost is in the queue
        if self._tell_assignor is not None:
            try:
                self._tell_assignor(change)
            except AssignmentFailed as error:
                self._listener.keep("on_assignment()", error)
        # These may be more than ``change.added``. This method leaves out partitions of a topic to which the application
        # is not subscribed at the moment. They may stay this member's until the application subscribes to it again.
        added = [tp for tp in change.partitions if subscription.wants(tp.topic) and tp not in self._announced]
        subscription.replace([*subscription.assigned, *added], change.topic_ids)
        # An Assign that was queued before the application subscribed to other topics says nothing of those. Nor does an
        # empty one: the driver tells when nothing more is to come.
        if any(subscription.wants(tp.topic) for tp in change.partitions):
            subscription.was_assigned = True
        for tp in change.starts.keys() & set(added):
            subscription.await_reset(tp, change.starts[tp])
        subscription.block(added)
        kept = set(change.partitions).difference(added)
        subscription.unblock(tp for tp in kept if subscription.wants(tp.topic))
        self._announced.update(added)
        reader = change.member if change.member.generation_id >= 0 else "this consumer"
        logger.info("%s: %s reads %s", self._owner, reader, _Shown(change.partitions))
        self._changed.notify()
        self._told_now = frozenset(added)
        try:
            await self._listener.assigned(self._who_is_told(queued), added, self._deadline(queued))
        finally:
            self._told_now = frozenset()
        if len(added) > MANY_PARTITIONS:
            await asyncio.sleep(0)
        subscription.unblock(tp for tp in added if subscription.wants(tp.topic))
        self._changed.notify()
        self._listener.done("assigned", frozenset(added), queued.since)

    def serve_again(self) -> None:
        """Hand out the assigned partitions again that were blocked while their topic was not subscribed to."""
        assigned, wants = self._subscription.assigned, self._subscription.wants
        told = self._announced - self._told_now
        self._subscription.unblock(
            [tp for tp, position in assigned.items() if position.blocked and wants(tp.topic) and tp in told]
        )

    def _who_is_told(self, queued: _Queued) -> RebalanceListener | None:
        """The listener for on_partitions_assigned(): the one that will hear of the revocation, if that is queued.

        Since that was queued, the application may have subscribed anew with another listener.
        """
        later = (later for later in self._queue if isinstance(later.change, Revoke))
        return next((revoked.listener for revoked in later), self._listener.listener)

    def _deadline(self, queued: _Queued) -> float:
        """When the group waits no longer. After unsubscribe(), and in stop(), nobody waits for another poll."""
        revoke = queued.change if isinstance(queued.change, Revoke) else None
        leaves = queued.of_former or (revoke is not None and not revoke.wait)
        # 1. A revocation begins just after a poll. 2. The application comes back just within max_poll_interval, and has
        # not left its group. 3. Only the margin is left then for the last commit and the listener.
        margin = 0.0 if revoke is None else self._revocation_margin()
        deadline = queued.since + self._max_poll_interval + margin
        is_polled = self._polls.waiting or leaves
        return deadline if is_polled else min(deadline, self._polls.last + self._max_poll_interval)

    def _is_newest(self, queued: _Queued) -> bool:
        return self._unfinished is queued

    def _holds_records(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether the application holds records of ``partitions`` as the group's, not as assigned by hand since."""
        return self._subscription.by_topics and self._subscription.holds_records(partitions)

    def _block(self, change: Revoke | Lost) -> None:
        if self._subscription.by_topics:  # the group cannot take what the application has assigned by hand since
            self._subscription.block(change.partitions)

    def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Assign these no longer. The planner drops their buffers when it next looks."""
        subscription = self._subscription
        if subscription.by_topics:  # else the application has unsubscribed, and keeps what it has assigned since
            subscription.replace([tp for tp in subscription.assigned if tp not in partitions])
        subscription.forget(partitions)
        if self._commits is not None:
            self._commits.forget(partitions)
        self._changed.notify()


@dataclass(frozen=True, slots=True)
class _Shown:
    """Partitions as a log line names them. They are formatted only if the line is written."""

    partitions: Collection[TopicPartition]

    def __str__(self) -> str:
        return named(self.partitions)
