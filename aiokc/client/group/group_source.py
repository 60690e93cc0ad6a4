"""The AssignmentSource of a consumer with a group_id: the group member together with the application's commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...config import ConsumerConfig
from ...core.subscription.state import Subscription
from ..aio.signal import Signal
from ..aio.supervisor import Driver
from .assignment_source import SourceReport
from .member import Coordinator
from .user_commits import UserCommits


class GroupSource:
    """A consumer that is a member of a group, or (after assign()) only commits to one.

    ``changed`` is notified when there are callbacks to run. ``holds_for_good``: see UserCommits.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        coordinator: Coordinator,
        changed: Signal,
        holds_for_good: Callable[[], bool],
    ) -> None:
        self.coordinator = coordinator
        self.commits = UserCommits(config, subscription, coordinator, holds_for_good)
        self.commits.unwaited.reported.followed_by(changed)
        self.subscription_changed = coordinator.subscription_changed
        self.polling_begins = coordinator.polling_begins
        self.polling_ends = coordinator.polling_ends
        self.polled = coordinator.polled
        self.raise_error = coordinator.raise_error
        self.run_callbacks = self.commits.unwaited.run_callbacks
        self.close = self.commits.unwaited.close
        self.loop_is_closed = coordinator.loop_is_closed

    @property
    def asked_to_join(self) -> asyncio.Event:
        return self.coordinator.asked_to_join

    @property
    def drivers(self) -> list[Driver]:
        return [self.coordinator.run, self.commits.unwaited.run]

    @property
    def has_assigned(self) -> bool:
        return self.coordinator.has_assigned

    async def leave(self, timeout: float, leave_group: bool | None) -> None:
        """Give half of the time to the commits under way, and what is left to the last commit and leaving the group."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        await self.commits.unwaited.settled(loop.time() + timeout / 2)
        await self.coordinator.leave(deadline - loop.time(), leave_group)

    def report(self) -> SourceReport:
        coordinator = self.coordinator
        return SourceReport(
            error=coordinator.error,
            last_error=coordinator.last_error,
            generation=coordinator.generation,
            member_id=coordinator.member_id,
            group=coordinator.counters,
            commits=coordinator.offsets.commits,
        )
