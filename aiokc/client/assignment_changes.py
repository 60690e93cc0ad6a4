"""Giving up partitions and taking over new ones: one change after the other, whatever the user holds."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio

from ..core.group_protocol import Assign, Lost, PollClock, Released, Revoke
from ..core.subscription import Subscription
from ..errors import AssignmentFailed
from ..types import TopicPartition
from .auto_commit import AutoCommit
from .rebalance_listener import ListenerCalls, RebalanceListener
from .signal import Signal
from .turns import Turns

logger = logging.getLogger("aiokc.group")

_SHOWN: Final = 20  # partitions that one log line names
_MANY: Final = 1_000  # to take over more of them holds the loop for milliseconds: then others get their turn half way


@dataclass(frozen=True, slots=True, eq=False)
class _Queued:
    """A change that waits for its turn: since when, and whom its end of partitions is to be told to.

    The listener is the one at that time: who unsubscribes and subscribes anew, with another one, means the old one to
    hear of what he had.
    """

    change: Revoke | Lost | Assign
    since: float
    listener: RebalanceListener | None


class AssignmentChanges:
    """Carries out Revoke, Lost and Assign in their order, and tells the user's listener of each.

    ``user_moved`` is to be notified when the user has come back from the records that he holds, or committed them;
    ``changed`` is notified of every change of the assignment. A callback ends within ``max_poll_interval`` seconds:
    of the user's last poll while he is not waiting for records, because the group does without him then; and of the
    beginning of the change, because the group waits no longer for a member.
    """

    def __init__(
        self,
        group_id: str,
        subscription: Subscription,
        changed: Signal,
        auto_commit: AutoCommit | None,
        commit_timeout: float,
        *,
        turns: Turns,
        listener: ListenerCalls,
        polls: PollClock,
        max_poll_interval: float,
        tell_assignor: Callable[[Assign], None],
    ) -> None:
        self.user_moved = Signal()
        self._commit_timeout = commit_timeout
        self._committing: anyio.CancelScope | None = None  # the commits that the Revoke under way waits for
        self._group_id = group_id
        self._subscription = subscription
        self._changed = changed
        self._auto_commit = auto_commit
        self._turns = turns
        self._listener = listener
        self._tell_assignor = tell_assignor
        self._polls = polls
        self._max_poll_interval = max_poll_interval
        self._queue: deque[_Queued] = deque()
        self._added = Signal()
        self._is_at_work = False
        self._newest_release: Revoke | Lost | None = None
        self._announced: set[TopicPartition] = set()  # assigned, and nobody was told yet that they go

    def add(self, change: Revoke | Lost | Assign) -> None:
        """Carry this out after all others. A newer Revoke or Lost overrules the Revoke under way."""
        self._queue.append(_Queued(change, asyncio.get_running_loop().time(), self._listener.listener))
        if isinstance(change, Lost):  # at once, whatever has to end before its turn
            self._block(change)
            if not self._subscription.by_topics:  # what the user has left by unsubscribe() others may commit by now
                self._subscription.forget(change.partitions)
        if not isinstance(change, Assign):
            self._newest_release = change
            self.user_moved.notify()
            if self._committing is not None:
                self._committing.cancel()
        self._added.notify()

    def commit_within(self, timeout: float) -> None:
        """Let the last commits of a revocation, also of the one under way, take no longer than this from now on."""
        self._commit_timeout = timeout
        if self._committing is not None:
            self._committing.deadline = min(self._committing.deadline, asyncio.get_running_loop().time() + timeout)

    @property
    def are_done(self) -> bool:
        """Whether no change is under way or waits for its turn."""
        return not self._queue and not self._is_at_work

    async def run(self, released: Callable[[Released], None]) -> None:
        """Carry out changes for ever. ``released`` is told what was given up, in the tick in which it is."""
        while True:
            while not self._queue:
                self._is_at_work = False
                await self._added.wait()
            self._is_at_work = True
            await self._carry_out(self._queue.popleft(), released)  # and refer to its listener no longer than that

    async def _carry_out(self, queued: _Queued, released: Callable[[Released], None]) -> None:
        match queued.change:
            case Revoke():
                await self._revoke(queued.change, queued, released)
            case Lost():
                await self._lose(queued.change, queued, released)
            case Assign():
                await self._assign(queued.change, queued)

    async def _revoke(self, change: Revoke, queued: _Queued, released: Callable[[Released], None]) -> None:
        """First nothing more is handed out, then the user finishes what he holds, then that is committed, and told."""
        self._block(change)
        partitions = frozenset(change.partitions)
        while change.wait and self._is_newest(change) and self._holds_records(partitions):
            await self.user_moved.wait()
        if self._is_newest(change):
            await self._finish_commits(self._deadline(queued.since))
        if not self._is_newest(change):
            return  # a newer release is in the queue: nothing may be committed any more, or there is no time left
        going = self._announced & partitions
        if going or not partitions:
            self._announced -= going  # so a loss that overtakes the callback is not told for them again
            await self._listener.revoked(queued.listener, going, self._deadline(queued.since))
        if not self._is_newest(change):
            return  # what is queued gives up these partitions too, without a word to the listener
        self._drop(partitions)
        logger.info("group %r: revoked %s", self._group_id, _Shown(change.partitions))
        released(Released(change.step))

    async def _finish_commits(self, until: float) -> None:
        """Commits that were called for before are through, then auto-commit's last one; or the time is over.

        With the JoinGroup that follows ends the generation that they name. They get half of the time that is left
        ``until`` the member has to join again: the other half is the listener's.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(self._commit_timeout, (until - loop.time()) / 2)
        turn = self._turns.take()
        with anyio.CancelScope() as scope:
            self._committing = scope
            try:
                with suppress(TimeoutError):  # whoever called for them hears of it
                    await turn.wait(deadline)
                turn.end()
                if self._auto_commit is not None:
                    await self._auto_commit.hand_over(deadline - loop.time())
            finally:
                turn.end()
                self._committing = None
        if scope.cancelled_caught:
            logger.info("group %r: the last commits of a revocation were cut short", self._group_id)

    async def _lose(self, change: Lost, queued: _Queued, released: Callable[[Released], None]) -> None:
        """Others may be reading these by now: a commit would overwrite theirs."""
        going = self._announced.intersection(change.partitions)
        self._announced -= going
        self._drop(frozenset(change.partitions))
        logger.warning("group %r: lost %s: %s", self._group_id, _Shown(change.partitions), change.reason)
        if going:
            now = asyncio.get_running_loop().time()  # nobody waits for this: the member is outside its group
            await self._listener.lost(queued.listener, going, now + self._max_poll_interval)
        released(Released(change.step))

    async def _assign(self, change: Assign, queued: _Queued) -> None:
        """What is held goes on as it is. What is added comes behind it, and is read when the listener is done.

        The positions of what is added are looked up meanwhile; a seek() of the listener wins over that.
        """
        subscription = self._subscription
        if not subscription.by_topics or any(isinstance(later.change, Lost) for later in self._queue):
            return  # overtaken, by the user or by a loss: the machine knows, and a release follows in the queue
        try:
            self._tell_assignor(change)
        except AssignmentFailed as error:
            self._listener.keep("on_assignment()", error)
        # Not only what is new to the machine: what was left out of an earlier assignment, because the user did not want
        # its topic at that moment, may have stayed this member's until he wanted it again.
        added = [tp for tp in change.partitions if tp.topic in subscription.topics and tp not in self._announced]
        subscription.replace([*subscription.assigned, *added])
        subscription.block(added)
        kept = set(change.partitions).difference(added)
        subscription.unblock(tp for tp in kept if tp.topic in subscription.topics)
        self._announced.update(added)
        logger.info("group %r: %s reads %s", self._group_id, change.member, _Shown(change.partitions))
        self._changed.notify()
        await self._listener.assigned(self._who_is_told(queued), added, self._deadline(queued.since))
        if len(added) > _MANY:
            await asyncio.sleep(0)
        subscription.unblock(tp for tp in added if tp.topic in subscription.topics)
        self._changed.notify()

    def _who_is_told(self, queued: _Queued) -> RebalanceListener | None:
        """Whoever will hear that they go hears that they have come: another one may have subscribed anew since."""
        later = (later for later in self._queue if isinstance(later.change, Revoke))
        return next((revoked.listener for revoked in later), self._listener.listener)

    def _deadline(self, since: float) -> float:
        begin = since if self._polls.waiting else min(since, self._polls.last)
        return begin + self._max_poll_interval

    def _is_newest(self, change: Revoke) -> bool:
        return self._newest_release is change

    def _holds_records(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether the user holds what the group has given him; not what he has assigned to himself since."""
        return self._subscription.by_topics and self._subscription.holds_records(partitions)

    def _block(self, change: Revoke | Lost) -> None:
        if self._subscription.by_topics:  # what the user has assigned by hand since is not the group's to take
            self._subscription.block(change.partitions)

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        subscription = self._subscription
        if subscription.by_topics:  # else the user has unsubscribed, and what he assigned since is his
            subscription.replace([tp for tp in subscription.assigned if tp not in partitions])
        subscription.forget(partitions)
        if self._auto_commit is not None:
            self._auto_commit.forget(partitions)
        self._changed.notify()


@dataclass(frozen=True, slots=True)
class _Shown:
    """Partitions as a log line names them, if it is written at all."""

    partitions: Collection[TopicPartition]

    def __str__(self) -> str:
        wanted = sorted(self.partitions)
        more = f" and {len(wanted) - _SHOWN} more" if len(wanted) > _SHOWN else ""
        return (", ".join(map(str, wanted[:_SHOWN])) or "nothing") + more
