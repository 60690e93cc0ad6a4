"""The AssignmentSource without a group: a subscription means all partitions of its topics, also those to come."""

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
from ...error_codes import ErrorCode
from ...types import EARLIEST, TopicPartition, named
from ..aio.signal import Signal
from ..aio.supervisor import Driver
from ..cluster.metadata import Metadata
from .assignment_source import SourceReport
from .rebalance_listener import ListenerCalls
from .reconciler import Reconciler

logger = logging.getLogger("aiokc.group")

_NOBODY = MemberToken()


class AllPartitions:
    """Keeps the assignment equal to the partitions that the metadata name for the subscription.

    Partitions that exist when this first looks at a topic or a pattern start where auto_offset_reset says. A partition
    that appears later starts at its beginning: with "latest", the consumer would skip the records written before it
    heard of the partition. (A recreated topic also starts at its beginning; the fetcher recognises it by its id.)
    What brokers hid at first is not new: a topic subscribed to by name that was forbidden, or a partition that the
    first answer left out, though it named one with a higher number. With ``allow_auto_create_topics`` a forbidden topic
    may be one that there is not, and that this principal may not create: so that one counts as new, and no record of
    it is skipped.

    A topic that a broker reports as unknown keeps its partitions. A broker that has just started may not have heard of
    the topic yet, and to revoke its partitions would mean to read them again from the beginning a moment later. A topic
    that matched a pattern keeps them for as long as PatternTopics keeps the topic.

    The listener is called as in a group. Nothing is committed, so a revocation does not wait for the application.
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
        self._may_create = config.allow_auto_create_topics
        self._seen: set[str] = set()
        self._seen_pattern: TopicPattern | None = None
        self._seen_in_part: set[str] = set()  # of the pattern's topics: a partition that appears may be an old one
        self._given: frozenset[TopicPartition] = frozenset()  # the assignment once all changes are carried out
        self._going: frozenset[TopicPartition] = frozenset()  # what is being revoked
        self._starts: dict[TopicPartition, int] = {}  # of what is given and appeared late
        self._steps = count(1)
        self._step = 0  # of the newest Revoke
        self._wake = Signal()
        metadata.changed.followed_by(self._wake)
        self._running = False
        self._leaving = False
        self._followed_at = -1  # how often ``_wake`` had been notified before the last look at the metadata

    @property
    def drivers(self) -> list[Driver]:
        return [self._run]

    async def _run(self) -> None:
        """Follow the metadata until ``leave``. Then sleep: the supervisor takes a driver that returns for failed."""
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
                    self._note_assigned()
                    await self._wake.wait()
                has_left = True
                tasks.cancel_scope.cancel()
        finally:
            self._running = False
            self._wake.notify()
        if has_left:
            await anyio.sleep_forever()

    @property
    def has_assigned(self) -> bool:
        """Whether the assignment is what the metadata say about the whole subscription, and the listener is done."""
        cluster, subscription = self._metadata.cluster, self._subscription
        if self._followed_at != self._wake.notified or self._going or not self._changes.are_done:
            return False
        if subscription.pattern is not None:
            return subscription.is_matched
        return all(topic in cluster.topics or topic in cluster.errors for topic in subscription.topics)

    def _note_assigned(self) -> None:
        if self._subscription.by_topics and self.has_assigned:
            self._subscription.was_assigned = True

    def subscription_changed(self) -> None:
        """Follow a changed subscription. What unsubscribe() gave up is revoked at once, to call the present listener:
        the application may subscribe again with another one.
        """
        if not self._subscription.by_topics:
            self._seen.clear()
            self._revoke(self._given)
        self._wake.notify()

    async def leave(self, timeout: float, leave_group: bool | None) -> None:
        """Revoke everything, which calls the listener. Ends within ``timeout`` seconds."""
        self._leaving = True
        self._listener.end_within(timeout)
        self._wake.notify()
        while self._running:
            await self._wake.wait()

    # The assignment

    def _follow(self) -> None:
        """Take the next step towards what the metadata say: revoke partitions first, and add others after that."""
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
        self._starts = {tp: start for tp, start in self._starts.items() if tp not in going}
        self._going |= going  # the new Revoke replaces the one under way, so it names those partitions too
        self._step = next(self._steps)
        self._changes.add(Revoke(self._step, tuple(self._going), wait=False))

    def _released(self, released: RevocationDone) -> None:
        if released.step == self._step:
            self._going = frozenset()
            self._wake.notify()

    def _take_over(self, wanted: list[TopicPartition]) -> None:
        added = tuple(tp for tp in wanted if tp not in self._given)
        late = {tp: EARLIEST for tp in added if self._is_late(tp.topic)}
        self._starts.update(late)
        self._see()
        if late:
            logger.info("new: %s: reading from the beginning", named({tp.topic for tp in late}))
        if added or self._was_left_out(wanted):
            self._given = frozenset(wanted)
            self._changes.add(Assign(_NOBODY, tuple(wanted), added, starts=dict(self._starts)))
        else:
            self._changes.serve_again()

    def _was_left_out(self, wanted: list[TopicPartition]) -> bool:
        """Whether the Reconciler left out something given, because it was not subscribed to at that moment.

        This happens if the application drops a topic and wants it again before this object looks at the subscription,
        and the Assign is carried out between the two. Then no other Assign would follow.
        """
        assigned, wants = self._subscription.assigned, self._subscription.wants
        if len(assigned) == len(wanted) or self._changes.will_assign:
            return False
        return any(tp not in assigned and wants(tp.topic) for tp in wanted)

    def _wanted(self) -> list[TopicPartition]:
        cluster, subscription = self._metadata.cluster, self._subscription
        missing = {tp.topic for tp in self._given if tp.topic not in cluster.topics}
        kept = missing & subscription.topics
        return cluster.partitions_of(subscription.topics) + sorted(tp for tp in self._given if tp.topic in kept)

    def _is_late(self, topic: str) -> bool:
        """Whether ``topic`` or its new partition appeared after the consumer had first looked at the subscription."""
        if topic in self._seen:
            return True
        pattern = self._subscription.pattern
        return pattern is not None and pattern is self._seen_pattern and topic not in self._seen_in_part

    def _see(self) -> None:
        """From here on, a partition that appears in these topics, or a topic that matches this pattern, is new."""
        cluster, subscription = self._metadata.cluster, self._subscription
        partial = set(subscription.topics.intersection(cluster.partial))
        missing = {topic for topic in subscription.topics & cluster.errors.keys() if not self._is_hidden(topic)}
        self._seen |= (subscription.topics & cluster.topics.keys()) - partial | missing
        seen_pattern = subscription.pattern if subscription.is_matched else None
        self._seen_in_part = self._seen_in_part & partial if seen_pattern is self._seen_pattern else partial
        self._seen_pattern = seen_pattern

    def _is_hidden(self, topic: str) -> bool:
        """Whether an error of ``topic`` says that it may well be there: every other one is of a topic to come."""
        return self._metadata.cluster.errors[topic] == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not self._may_create

    # Calls that make no difference without a group

    def polling_begins(self) -> None: ...

    def polling_ends(self) -> None: ...

    def polled(self) -> None: ...

    def raise_error(self) -> None: ...

    def run_callbacks(self) -> None: ...

    def close(self) -> None: ...

    def loop_is_closed(self) -> None: ...

    def report(self) -> SourceReport:
        return SourceReport()
