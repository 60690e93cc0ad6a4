"""The last commits for partitions that are about to be revoked: in time, before the group assigns them anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress

import anyio

from ...types import TopicPartition
from ..offsets.auto_commit import AutoCommit
from ..offsets.commit_order import CommitOrder

logger = logging.getLogger("aiokc.group")


class LastCommits:
    """What of a revocation commits. With the JoinGroup that follows it ends the generation that these commits name."""

    def __init__(self, group_id: str, turns: CommitOrder, auto_commit: AutoCommit | None, timeout: float) -> None:
        """``timeout``: the most that the commits of one revocation may take, in seconds."""
        self._group_id = group_id
        self._turns = turns
        self._auto_commit = auto_commit
        self._timeout = timeout
        self._scope: anyio.CancelScope | None = None  # of those under way

    async def finish(self, until: float) -> None:
        """Commits that were called for before are through, then auto-commit's last one; or the time is over.

        They get half of the time that is left ``until`` the member has to join again: the other half is the listener's.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(self._timeout, (until - loop.time()) / 2)
        turn = self._turns.take()
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                with suppress(TimeoutError):  # the caller of those commits hears of it
                    await turn.wait(deadline)
                turn.end()
                if self._auto_commit is not None:
                    await self._auto_commit.hand_over(deadline - loop.time())
            finally:
                turn.end()
                self._scope = None
        if scope.cancelled_caught:
            logger.info("group %r: the last commits of a revocation were cut short", self._group_id)

    def cut_short(self) -> None:
        """End those under way: a newer revocation follows, or the partitions are lost."""
        if self._scope is not None:
            self._scope.cancel()

    def within(self, timeout: float) -> None:
        """Let the commits of a revocation, also those under way, take no longer than this from now on."""
        self._timeout = timeout
        if self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, asyncio.get_running_loop().time() + timeout)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Others may commit for these from here on."""
        if self._auto_commit is not None:
            self._auto_commit.forget(partitions)
