"""Finds a position for each assigned partition without one: its committed offset, or an offset by timestamp."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from random import Random

import anyio

from ...config import ConsumerConfig
from ...core.subscription.state import Subscription
from ..aio.signal import Signal
from ..cluster.list_offsets import OffsetLister
from ..cluster.metadata import Metadata
from .committed_positions import CommittedPositions, FetchCommitted
from .position_errors import PositionErrors
from .timestamp_positions import TimestampPositions


class PositionFinder:
    """Gives every assigned partition a position.

    An answer counts only for the token under which it was asked for, so a later seek or assignment always wins over it.
    ``found`` is notified when positions were found, and when there is an error for the application's next call.
    ``wake`` is to be notified when there may be partitions without a position. ``fetch_committed`` is None without a
    group. ``connect_to`` is called with the brokers that some of the partitions will be fetched from.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: Metadata,
        lister: OffsetLister,
        fetch_committed: FetchCommitted | None,
        random: Random,
        *,
        connect_to: Callable[[Iterable[int]], None],
    ) -> None:
        self.found = Signal()
        self.wake = Signal()
        self.errors = PositionErrors(subscription, self.found)
        self._committed = CommittedPositions(
            config,
            subscription,
            metadata,
            fetch_committed,
            random,
            time.time,
            connect_to=connect_to,
            wake=self.wake,
            found=self.found,
            errors=self.errors,
        )
        self._by_timestamp = TimestampPositions(
            config,
            subscription,
            metadata,
            lister,
            random,
            connect_to=connect_to,
            wake=self.wake,
            found=self.found,
            errors=self.errors,
        )

    async def run(self) -> None:
        """Look up positions until cancelled; retry a failed lookup after a growing pause.

        Committed offsets and offsets by timestamp are looked up in two loops, so that a coordinator which does not
        answer does not delay a seek_to_beginning().
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._committed.run)
            await self._by_timestamp.run(tasks)
