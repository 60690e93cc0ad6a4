"""Giving up partitions and taking over new ones: one change after the other, whatever the user holds."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final

from ..core.group_protocol import Assign, Lost, Released, Revoke
from ..core.subscription import Mode, Subscription
from ..types import TopicPartition
from .auto_commit import AutoCommit
from .signal import Signal

logger = logging.getLogger("aiokc.group")

_SHOWN: Final = 20  # partitions that one log line names


class AssignmentChanges:
    """Carries out Revoke, Lost and Assign in their order.

    ``user_moved`` is to be notified when the user has come back from the records that he holds, or committed them;
    ``changed`` is notified of every change of the assignment.
    """

    def __init__(
        self,
        group_id: str,
        subscription: Subscription,
        changed: Signal,
        auto_commit: AutoCommit | None,
        commit_timeout: float,
    ) -> None:
        self.user_moved = Signal()
        self.commit_timeout = commit_timeout
        self._group_id = group_id
        self._subscription = subscription
        self._changed = changed
        self._auto_commit = auto_commit
        self._queue: deque[Revoke | Lost | Assign] = deque()
        self._added = Signal()
        self._newest_release: Revoke | Lost | None = None

    def add(self, change: Revoke | Lost | Assign) -> None:
        """Carry this out after all others. A newer Revoke or Lost overrules the Revoke under way."""
        self._queue.append(change)
        if not isinstance(change, Assign):
            self._newest_release = change
            self.user_moved.notify()
        self._added.notify()

    async def run(self, released: Callable[[Released], None]) -> None:
        """Carry out changes for ever. ``released`` is told what was given up, in the tick in which it is."""
        while True:
            while not self._queue:
                await self._added.wait()
            change = self._queue.popleft()
            match change:
                case Revoke():
                    await self._revoke(change, released)
                case Lost():
                    await self._lose(change, released)
                case Assign():
                    await self._assign(change)

    async def _revoke(self, change: Revoke, released: Callable[[Released], None]) -> None:
        """First nothing more is handed out, then the user finishes what he holds, then that is committed."""
        subscription = self._subscription
        subscription.block(change.partitions)
        partitions = frozenset(change.partitions)
        while change.wait and self._is_newest(change) and subscription.holds_records(partitions):
            await self.user_moved.wait()
        if self._is_newest(change) and self._auto_commit is not None:
            await self._auto_commit.flush(timeout=self.commit_timeout, retry=True)
        if not self._is_newest(change):
            return  # a newer release is in the queue: nothing may be committed any more, or there is no time left
        self._drop(partitions)
        logger.info("group %r: revoked %s", self._group_id, _shown(change.partitions))
        released(Released(change.step))

    async def _lose(self, change: Lost, released: Callable[[Released], None]) -> None:
        """Others may be reading these by now: a commit would overwrite theirs."""
        self._drop(frozenset(change.partitions))
        logger.warning("group %r: lost %s: %s", self._group_id, _shown(change.partitions), change.reason)
        released(Released(change.step))

    async def _assign(self, change: Assign) -> None:
        """What is held goes on as it is, what is added comes behind it."""
        subscription = self._subscription
        if subscription.mode is not Mode.TOPICS or any(isinstance(later, Lost) for later in self._queue):
            return  # overtaken, by the user or by a loss: the machine knows, and a release follows in the queue
        added = [tp for tp in change.added if tp.topic in subscription.topics]
        subscription.replace([*subscription.assigned, *added])
        subscription.unblock(tp for tp in change.partitions if tp.topic in subscription.topics)
        logger.info("group %r: %s reads %s", self._group_id, change.member, _shown(change.partitions))
        self._changed.notify()

    def _is_newest(self, change: Revoke) -> bool:
        return self._newest_release is change

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        subscription = self._subscription
        if subscription.mode is Mode.TOPICS:  # else the user has unsubscribed, and what he assigned since is his
            subscription.replace([tp for tp in subscription.assigned if tp not in partitions])
        subscription.forget(partitions)
        if self._auto_commit is not None:
            self._auto_commit.forget(partitions)
        self._changed.notify()


def _shown(partitions: Iterable[TopicPartition]) -> str:
    names = [str(tp) for tp in sorted(partitions)]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "nothing") + more
