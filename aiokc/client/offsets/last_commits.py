"""The last commits for partitions that are about to be revoked, before the group assigns them anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import anyio

from ...types import TopicPartition
from .auto_commit import AutoCommit
from .commit_order import CommitOrder

logger = logging.getLogger("aiokc.group")


class LastCommits:
    """The commits of a revocation. They must end before the JoinGroup that ends the generation which they name."""

    def __init__(
        self, group_id: str, commit_order: CommitOrder, auto_commit: AutoCommit | None, timeout: float
    ) -> None:
        """``timeout``: the most seconds that the commits of one revocation may take."""
        self._group_id = group_id
        self._commit_order = commit_order
        self._auto_commit = auto_commit
        self._timeout = timeout
        self._scope: anyio.CancelScope | None = None  # of the commits under way
        self._waited_for = 0  # the order of the newest commit that ``finish`` has waited for

    async def finish(self, until: float) -> None:
        """Wait for the commits called for before, then make auto-commit's last one; give up when the time is over.

        The commits get half of the time that is left ``until`` the member has to join again. The other half is the
        listener's.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(self._timeout, (until - loop.time()) / 2)
        with self._may_be_cut_short():
            await self._commit_order.settled(deadline)
            if self._auto_commit is not None:
                await self._auto_commit.hand_over(deadline - loop.time())
        self._waited_for = self._commit_order.newest

    async def finish_those_of_the_listener(self, until: float) -> None:
        """Wait for the commits that the listener has called for since ``finish``; give up when the time is over.

        In a plain function it can call commit_soon() only, which returns before anything is sent.
        """
        if self._commit_order.newest == self._waited_for:
            return  # an older commit that is still being tried has had its time in ``finish``
        with self._may_be_cut_short():
            await self._commit_order.settled(min(until, asyncio.get_running_loop().time() + self._timeout))

    @contextmanager
    def _may_be_cut_short(self) -> Iterator[None]:
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                yield
            finally:
                self._scope = None
        if scope.cancelled_caught:
            logger.info("group %r: the last commits of a revocation were cut short", self._group_id)

    def cut_short(self) -> None:
        """Cancel the commits under way: a newer revocation follows, or the partitions are lost."""
        if self._scope is not None:
            self._scope.cancel()

    def within(self, timeout: float) -> None:
        """From now on, let the commits of a revocation, also those under way, take ``timeout`` seconds at most."""
        self._timeout = timeout
        if self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, asyncio.get_running_loop().time() + timeout)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Other members may commit for ``partitions`` from here on: do not rely on what was stored for them."""
        if self._auto_commit is not None:
            self._auto_commit.forget(partitions)
