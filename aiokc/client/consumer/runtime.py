"""Wires the parts behind a Consumer together: which part wakes which, and in which order they start and stop."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from random import Random

from ...config import ConsumerConfig
from ...core.assignors.registry import assignors
from ...core.fetch.stall_watch import StallWatch
from ...core.offsets.messages import Committed
from ...core.subscription.change_count import ChangeCount
from ...core.subscription.mode import Mode
from ...core.subscription.offset_reset import OffsetReset
from ...core.subscription.state import Subscription
from ...errors import ConsumerClosed, UsageError, shown
from ...types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from ..aio.last_steps import in_time, to_its_end
from ..aio.loop_lag import LoopLag
from ..aio.signal import Signal
from ..aio.time_slice import TimeSlice
from ..cluster.cluster_client import ClusterClient
from ..cluster.list_offsets import OffsetLister
from ..cluster.pattern_topics import PatternTopics
from ..fetch.deserializing import Deserializing
from ..fetch.fetcher import Fetcher
from ..fetch.intercepting import ConsumerInterceptors
from ..group.assignment_source import AssignmentSource
from ..group.choice import PROTOCOLS
from ..group.driver import GOODBYE_SECONDS
from ..group.membership import GroupMembership
from ..group.protocol import NewProtocol
from ..group.rebalance_listener import ListenerCalls, RebalanceListener
from ..group.user_commits import UserCommits
from ..group.without_group import AllPartitions
from ..positions.finder import PositionFinder
from .call_errors import CallErrors
from .health import PollRecord
from .observing import Observers
from .subscribing import Subscribing

logger = logging.getLogger("aiokc.group")


class ConsumerRuntime:
    """Everything that a Consumer does, behind its public calls. Timeouts are in seconds.

    ``changed`` is notified whenever a waiting getmany() should look again. ``changes`` counts that, and everything else
    that a call for records would look at: each touch of a partition, each event of the group, and each such call.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        random: Random,
        key: object = None,
        value: object = None,
        *,
        new_protocol: NewProtocol | None = None,
    ) -> None:
        """``key`` and ``value`` are the application's deserializers; None: there is none."""
        self._config = config
        self.read_committed = config.isolation_level == "read_committed"
        self._stopping = False
        self.polls = PollRecord()
        self.observers = Observers(config.observer)
        self.loop_lag = LoopLag()
        self.stalls = StallWatch()
        self.changed = Signal()
        self._moved = Signal()  # the assignment or a position changed
        self.listener = ListenerCalls(self.changed.notify)
        self.listener.observe = self.observers.rebalance
        auto_commits = config.enable_auto_commit and config.group_id is not None
        self.subscription = Subscription(auto_commits=auto_commits)
        self.changed.followed_by(self.changes)
        self.cluster_client = ClusterClient(
            config, random, allow_auto_topic_creation=config.allow_auto_create_topics, closed=ConsumerClosed
        )
        self._set_up_reading(random, key, value)
        self._set_up_assignment(random, new_protocol)
        self.lister = OffsetLister(config, self.cluster_client.pool, self.cluster_client.metadata, random)
        self.finder = PositionFinder(
            config,
            self.subscription,
            self.cluster_client.metadata,
            self.lister,
            self._fetch_committed if self.membership else None,
            random,
            connect_to=self.fetcher.connect_to,
        )
        self.errors = CallErrors(
            self.cluster_client,
            self.subscription,
            self.source,
            self.listener,
            self.finder,
            self.collector,
            is_stopping=lambda: self._stopping,
        )
        self._connect_parts()

    def _set_up_reading(self, random: Random, key: object, value: object) -> None:
        """Make what fetches records and hands them out."""
        config, cluster_client = self._config, self.cluster_client
        self.fetcher = Fetcher(
            config,
            cluster_client.pool,
            cluster_client.metadata,
            self.subscription,
            random,
            reset=OffsetReset(config.offset_out_of_range_reset or config.auto_offset_reset),
        )
        self.collector = self.fetcher.collector
        self.deserializing: Deserializing | None = None
        if key is not None or value is not None:
            patience = config.default_api_timeout_ms / 1e3
            self.deserializing = Deserializing(key, value, self.collector, patience=patience)
        self.interceptors = ConsumerInterceptors(config.interceptors) if config.interceptors else None

    def _set_up_assignment(self, random: Random, new_protocol: NewProtocol | None) -> None:
        """Make what says which partitions are read: a member of the group, or without one all of them."""
        config, metadata = self._config, self.cluster_client.metadata
        self._pattern = PatternTopics(config, metadata, self.subscription, lambda: self.subscribing.topics_changed())
        metadata.changed.followed_by(self._pattern.wake)
        self.membership: GroupMembership | None = None  # None without a group
        self._commits: UserCommits | None = None
        self.source: AssignmentSource
        if config.group_id is not None:
            self.source = self.membership = self._new_membership(
                random, new_protocol or PROTOCOLS[config.effective_group_protocol]
            )
            self._commits = UserCommits(
                self.subscription,
                self.membership,
                holds_for_good=lambda: self._stopping and self.listener.is_inside(),
            )
        else:
            assignors(config.partition_assignment_strategy)  # without a group, too, a name that is none is told at once
            self.source = AllPartitions(config, metadata, self.subscription, self.listener, self._moved)
        self.subscribing = Subscribing(
            config, metadata, self.subscription, self.source, self.listener, self._pattern, self._moved
        )

    def _connect_parts(self) -> None:
        """Have each part look when something has happened that another one knows of, and a waiting getmany(), too."""
        cluster_client = self.cluster_client
        self._moved.followed_by(self.finder.wake)
        self._moved.followed_by(self.fetcher.wake)
        self._moved.followed_by(self.changed)
        self.finder.found.followed_by(self.fetcher.wake)
        self.finder.found.followed_by(self.changed)
        cluster_client.metadata.changed.followed_by(self.fetcher.wake)
        cluster_client.metadata.changed.followed_by(self.finder.wake)
        cluster_client.metadata.changed.followed_by(self.changed)
        cluster_client.background.ended.followed_by(self.changed)
        cluster_client.pool.on_refused = self.changed.notify
        cluster_client.on_forked = self.changes.notify  # the child is not to hand out what is buffered here
        self.fetcher.lost.followed_by(self.finder.wake)
        self.fetcher.arrived.followed_by(self.changed)

    @property
    def changes(self) -> ChangeCount:
        """Grows with everything that a call for records would look at."""
        return self.subscription.changes

    def _new_membership(self, random: Random, new_protocol: NewProtocol) -> GroupMembership:
        config, cluster_client = self._config, self.cluster_client
        membership = GroupMembership(
            config,
            cluster_client.pool,
            cluster_client.metadata,
            self.subscription,
            self._moved,
            random,
            self.listener,
            self._pattern,
            new_protocol,
        )
        if self.interceptors is not None:
            membership.on_commit = self.interceptors.on_commit
        membership.observe_commit = self.observers.commit
        membership.unwaited.reported.followed_by(self.changed)
        membership.moved.followed_by(self.changes)
        return membership

    async def start(self, *, timeout: float) -> None:
        drivers = [self.fetcher.run, self.finder.run, self._pattern.run, self.loop_lag.run, *self.source.drivers]
        try:
            # The member may have joined before start() fails: its group would keep a dynamic one for its
            # session_timeout_ms.
            end = partial(self.stop, timeout=GOODBYE_SECONDS, leave_group=None)
            asked_to_join = self.source.asked_to_join
            await self.cluster_client.start(drivers, timeout=timeout, asked_to_join=asked_to_join, end=end)
        except BaseException:
            # A second start() may fail here while the consumer runs on.
            if not self.cluster_client.running:
                self._close_interceptors()
            raise

    async def stop(self, *, timeout: float, leave_group: bool | None) -> None:
        """Leave the group, within ``timeout`` seconds; then end the background, which needs no network.

        The callbacks of commit_soon() that are due then are for the caller to run.
        """
        self.listener.refuse_inside("stop()")
        self.cluster_client.check_loop()
        if self.cluster_client.is_stranded and not self.cluster_client.stopped:
            self._tell_of_what_is_kept("its event loop was closed")
            self.loop_is_closed()
        if self.cluster_client.is_stranded or not self.cluster_client.running:
            await self.cluster_client.stop()
            self._close_interceptors()
            return
        self._stopping = True
        self.fetcher.close()
        if self.deserializing is not None:
            self.deserializing.stop()
        self.changed.notify()  # a getmany() that waits in another task ends now
        try:
            background = self.cluster_client.background
            if background.alive and background.error is None:
                await in_time(partial(self._leave, leave_group), timeout)
        finally:
            await to_its_end(self._close())

    async def stop_forgotten(self, listener: RebalanceListener | None, *, timeout: float) -> None:
        """Stop a consumer that is garbage-collected: no application can stop it. Its listener is still called."""
        self.listener.listener = listener
        await self.stop(timeout=timeout, leave_group=None)
        self.run_last_callbacks(raises=False)

    def loop_is_closed(self) -> None:
        """Called when the loop was closed without stop(): end what no task can end any more, such as threads."""
        self.source.loop_is_closed()
        self.fetcher.close()

    def _tell_of_what_is_kept(self, why: str) -> None:
        if self.membership is not None and not self.membership.has_left:
            logger.warning(
                "group %r: %s before stop() was done: it may not have committed, and the group keeps the member until "
                "session_timeout_ms is over",
                self._config.group_id,
                why,
            )

    def _close_interceptors(self) -> None:
        if self.interceptors is not None:
            self.interceptors.close()

    async def _leave(self, leave_group: bool | None, timeout: float) -> None:
        """Give up the assignment and leave the group; then close the fetch sessions, as far as there is time.

        May be called again, with less time, while it is under way. Ends with the background:

        1. A task is inside ``async with Consumer()``, and main() returns. 2. asyncio.run() cancels all tasks at once.
        3. The block's stop() begins to wait for commits. 4. The background ends, which would send them.
        """
        cluster_client = self.cluster_client
        try:
            with cluster_client.call():
                await self.source.leave(timeout, leave_group)
                await self.fetcher.close_sessions()
        except Exception as error:  # whatever has ended the background: the next call raises it
            if cluster_client.background.alive and not cluster_client.stopped:
                raise
            logger.debug("stop(): the background has ended before the consumer had left: %r", error)

    async def _close(self) -> None:
        if self.cluster_client.background.cancellation_is_ours:
            self._tell_of_what_is_kept("the background was cancelled, as asyncio.run() does at its end,")
        await self.cluster_client.stop()
        self.source.close()
        self.subscription.end()
        self.polls.stops(self.cluster_client.now())
        self.changed.notify()
        self._close_interceptors()
        await self.collector.settle_all(TimeSlice())

    @property
    def hands_out_raw_records(self) -> bool:
        """Whether the application gets records as they are decoded: there is no deserializer and no interceptor."""
        return self.deserializing is None and self.interceptors is None

    @property
    def stopped(self) -> bool:
        return self._stopping or self.cluster_client.stopped

    @property
    def has_assigned(self) -> bool:
        """Whether the consumer has all that the group, the metadata or assign() gave it, and the listener is done."""
        if not self.subscription.by_topics:
            return self.subscription.mode is Mode.PARTITIONS
        return self.source.has_assigned

    def all_assigned(self) -> list[TopicPartition]:
        """Return what a call means that is given no partition. Raises UsageError before the first assignment.

        That is the first since subscribe(). start() does not wait for it: such a call would do nothing, and the caller
        would take it for done. Once there was one, a member that has lost all, and is about to join again, has no
        partitions, without an error. Within a listener the caller knows what is assigned: it is being told.
        """
        subscription = self.subscription
        assigned = list(subscription.assigned)
        if not subscription.by_topics or subscription.was_assigned or self.has_assigned or self.listener.is_inside():
            return assigned
        if not any(subscription.wants(tp.topic) for tp in assigned):
            self.cluster_client.check()
            raise UsageError("no partition is assigned yet: await wait_assigned() first, or name the partitions")
        return assigned

    # Polling

    def polling_begins(self, only: frozenset[TopicPartition] | None) -> None:
        """A call for records begins: records that were held are processed. Call ``polling_ends`` unless this raises."""
        self.changes.notify()
        self.errors.check(only)
        self.subscription.mark_processed()
        self.polls.begins(self.cluster_client.now())
        self.source.polling_begins()

    def polling_ends(self) -> None:
        """The call for records ends: the application processes what it got."""
        self.polls.ends(self.cluster_client.now())
        self.source.polling_ends()

    async def deserialize(
        self, count: int, only: frozenset[TopicPartition] | None, deadline: float | None, time_slice: TimeSlice
    ) -> None:
        """Deserialize up to ``count`` decoded records; there must be a deserializer. Cancelling it loses nothing."""
        assert self.deserializing is not None
        await self.deserializing.run(count, only, deadline, time_slice)
        self.errors.after_waiting(only)  # the application's deserializers may have taken seconds

    # Offsets

    async def edges(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, timeout: float
    ) -> dict[TopicPartition, int]:
        found = await self.list_offsets(dict.fromkeys(partitions, timestamp), timeout=timeout)
        return {tp: offset.offset for tp, offset in found.items() if offset is not None}

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        self.errors.check()
        with self.cluster_client.call(), self.cluster_client.metadata.interest() as look:
            look.set({tp.topic for tp in timestamps})
            return await self.lister.list_offsets(timestamps, timeout=timeout)

    # The group

    async def _fetch_committed(self, partitions: Iterable[TopicPartition]) -> Committed:
        membership = self.group("committed()").membership
        return await membership.known_committed(partitions, timeout=self._config.request_timeout_ms / 1e3)

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the offsets that the group has committed for these partitions (none: for all assigned)."""
        membership = self.group("committed()").membership
        return await membership.committed(partitions or self.all_assigned(), timeout=timeout)

    def enforce_rebalance(self, reason: str) -> None:
        membership = self.group("enforce_rebalance()").membership
        if self.subscription.mode is Mode.PARTITIONS:
            raise UsageError("enforce_rebalance() after assign(): no group assigns these partitions")
        membership.enforce_rebalance(reason)

    def group(self, call: str) -> UserCommits:
        """Return what commits, for the call named ``call``; it works until the member has left, also during stop().

        Raises UsageError without a group_id.
        """
        self.cluster_client.check()
        if self._commits is None:
            raise UsageError(f"{call} needs a group: give the consumer a group_id")
        return self._commits

    def run_callbacks(self) -> None:
        """Run the callbacks of commit_soon() that are due. If one raises, raise that; the next call runs the rest."""
        self.source.run_callbacks()

    def run_last_callbacks(self, *, raises: bool) -> None:
        """Run every callback of commit_soon() that is due, whatever another one raises: no later call runs the rest.

        ``raises``: raise the first error of theirs, or else what the listener has raised. All others are logged.
        """
        first: Exception | None = None
        while True:  # each turn runs those up to the next one that raises
            try:
                self.run_callbacks()
                break
            except Exception as error:
                if raises and first is None:
                    first = error
                else:
                    logger.error("on_done of commit_soon() failed: %s", shown(error), exc_info=error)
        if first is not None:
            raise first
        if raises:
            self.listener.raise_last_error()
