"""Without a group, a subscription to topics means all of their partitions, those to come included."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from itertools import count

import anyio

from ...config import ConsumerConfig
from ...core.cluster.topic_pattern import TopicPattern
from ...core.group.events import Assign, MemberToken, PollClock, RevocationDone, Revoke
from ...core.subscription.state import Subscription
from ...types import EARLIEST, TopicPartition
from ..aio.signal import Signal
from ..aio.supervisor import Driver
from ..cluster.metadata import Metadata
from .assignment_source import SourceReport
from .rebalance_listener import ListenerCalls
from .reconciler import Reconciler

logger = logging.getLogger("aiokc.group")

_NOBODY = MemberToken()


class AllPartitions:
    """The AssignmentSource that keeps the assignment equal to what the metadata say.

    Partitions that are there when a topic or a pattern is first looked at start where auto_offset_reset says. One that
    appears later starts at its beginning: with "latest", the records written before this client heard of it would be
    skipped. (So does a topic that was deleted and created again, which the fetcher knows by its id.)

    A topic that a broker says not to know keeps its partitions: a broker that has just started may not have heard of
    it yet, and taking them away would mean reading them again from the beginning a moment later. One that matched a
    pattern is believed to be deleted after ``retry_backoff_max_ms``, if it is still missing then.

    The listener hears of what comes and goes as in a group; nothing is committed, so nothing waits for the user.
    """

    asked_to_join: asyncio.Event | None = None

    def __init__(
        self,
        config: ConsumerConfig,
        metadata: Metadata,
        subscription: Subscription,
        listener: ListenerCalls,
        changed: Signal,
    ) -> None:
        self._metadata = metadata
        self._subscription = subscription
        self._listener = listener
        self._changed = changed
        self._changes = Reconciler(
            "without a group",
            subscription,
            changed,
            listener=listener,
            polls=PollClock(waiting=True),
            max_poll_interval=config.max_poll_interval_ms / 1e3,
        )
        self._patience = config.retry_backoff_max_ms / 1e3
        self._seen: set[str] = set()
        self._seen_pattern: TopicPattern | None = None
        self._vanished: dict[str, float] = {}  # topics that matched, and since when they are missing
        self._given: frozenset[TopicPartition] = frozenset()  # what is assigned once all changes are carried out
        self._going: frozenset[TopicPartition] = frozenset()  # what is being revoked
        self._steps = count(1)
        self._step = 0  # of the newest Revoke
        self._wake = Signal()
        metadata.changed.followed_by(self._wake)
        self._running = False
        self._leaving = False
        self._followed_at = -1  # how often it had been woken when it last looked

    @property
    def drivers(self) -> list[Driver]:
        return [self._run]

    async def _run(self) -> None:
        """Follow the metadata until ``leave``, and then do nothing more: only a driver that has failed ends."""
        self._running, has_left = True, False
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._changes.run, self._released)
                while not (self._leaving and not self._given and not self._going):
                    woken = self._wake.notified
                    self._follow()
                    if self._followed_at != woken:
                        self._followed_at = woken
                        self._changed.notify()
                    if not await self._wake.wait(self._patience if self._vanished else None):
                        self._metadata.request_update()
                has_left = True
                tasks.cancel_scope.cancel()
        finally:
            self._running = False
            self._wake.notify()
        if has_left:
            await anyio.sleep_forever()

    @property
    def has_assigned(self) -> bool:
        """Whether the assignment is what the metadata say of all that is subscribed to, and the listener is done."""
        cluster, subscription = self._metadata.cluster, self._subscription
        if self._followed_at != self._wake.notified or self._going or not self._changes.are_done:
            return False
        if subscription.pattern is not None:
            return subscription.is_matched
        return all(topic in cluster.topics or topic in cluster.errors for topic in subscription.topics)

    def subscription_changed(self) -> None:
        """What unsubscribe() has given up is revoked at once: the listener of now is told, whoever subscribes next."""
        if not self._subscription.by_topics:
            self._seen.clear()
            self._revoke(self._given)
        self._wake.notify()

    async def leave(self, timeout: float, leave_group: bool | None) -> None:
        """Tell the listener that everything goes, and hold nothing any more. Ends within ``timeout`` seconds."""
        self._leaving = True
        self._listener.end_within(timeout)
        self._wake.notify()
        while self._running:
            await self._wake.wait()

    # What is assigned

    def _follow(self) -> None:
        """Take the next step towards what the metadata say: first what goes, and when that has gone what comes."""
        if self._going or not self._subscription.by_topics:
            return
        wanted = [] if self._leaving else self._wanted()
        self._seen &= self._subscription.topics
        if going := self._given.difference(wanted):
            self._revoke(going)
        else:
            self._take_over(wanted)

    def _revoke(self, partitions: Iterable[TopicPartition]) -> None:
        going = frozenset(partitions)
        if not going:
            return
        self._given -= going
        self._going |= going  # a Revoke holds all that the one under way does: it takes its place
        self._step = next(self._steps)
        self._changes.add(Revoke(self._step, tuple(self._going), wait=False))

    def _released(self, released: RevocationDone) -> None:
        if released.step == self._step:
            self._going = frozenset()
            self._wake.notify()

    def _take_over(self, wanted: list[TopicPartition]) -> None:
        added = tuple(tp for tp in wanted if tp not in self._given)
        late = {tp: EARLIEST for tp in added if self._is_late(tp.topic)}
        self._see()
        if late:
            logger.info("new: %s: reading from the beginning", ", ".join(sorted({tp.topic for tp in late})))
        if added:
            self._given = frozenset(wanted)
            self._changes.add(Assign(_NOBODY, tuple(wanted), added, starts=late))
        else:
            self._changes.serve_again()

    def _wanted(self) -> list[TopicPartition]:
        cluster, subscription = self._metadata.cluster, self._subscription
        missing = {tp.topic for tp in self._given if tp.topic not in cluster.topics}
        if subscription.pattern is None:
            kept = missing & subscription.topics
            self._vanished = {}
        else:
            now = self._metadata.refreshed_at
            matching = {topic for topic in missing if subscription.pattern.may_match(topic)}
            self._vanished = {topic: self._vanished.get(topic, now) for topic in matching}
            kept = {topic for topic, since in self._vanished.items() if now - since < self._patience}
        return cluster.partitions_of(subscription.topics) + sorted(tp for tp in self._given if tp.topic in kept)

    def _is_late(self, topic: str) -> bool:
        """Whether the user has read what he subscribes to before this topic, or its partition, appeared."""
        pattern = self._subscription.pattern
        return topic in self._seen or (pattern is not None and pattern is self._seen_pattern)

    def _see(self) -> None:
        """From here on, what appears in these topics, or matches this pattern, is new."""
        cluster, subscription = self._metadata.cluster, self._subscription
        self._seen |= {topic for topic in subscription.topics if topic in cluster.topics or topic in cluster.errors}
        self._seen_pattern = subscription.pattern if subscription.is_matched else None

    # What makes no difference without a group

    def polling_begins(self) -> None: ...

    def polling_ends(self) -> None: ...

    def polled(self) -> None: ...

    def raise_error(self) -> None: ...

    def run_callbacks(self) -> None: ...

    def close(self) -> None: ...

    def loop_is_closed(self) -> None: ...

    def report(self) -> SourceReport:
        return SourceReport()
