"""The AssignmentSource with a group: subscribing, polling, committing as the member, and leaving."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from random import Random
from typing import Final, TypeAlias
from uuid import UUID

import anyio

from ...config import ConsumerConfig
from ...core.backoff import retry_backoff
from ...core.group.events import Enforced, Leave, MemberToken, PollClock, Polled
from ...core.offsets.messages import Committed
from ...core.subscription.mode import Mode
from ...core.subscription.position import is_of_another_topic
from ...core.subscription.state import Subscription
from ...error_codes import ErrorCode
from ...errors import CommitFailed, ConfigError, KafkaError, RebalanceInProgress, fresh
from ...net.pool import Pool
from ...types import GroupMetadata, OffsetAndMetadata, TopicPartition
from ..aio.signal import Signal
from ..aio.supervisor import Driver
from ..cluster.metadata import Metadata
from ..cluster.pattern_topics import PatternTopics
from ..offsets.async_commits import AsyncCommits
from ..offsets.auto_commit import AutoCommit
from ..offsets.commit_gate import CommitGate, HeldPositions
from ..offsets.commit_order import CommitSlot
from ..offsets.group_offsets import GroupOffsets, Offsets
from ..offsets.last_commits import LastCommits
from ..offsets.unknown_topics import UnknownTopics
from .assignment_source import SourceReport
from .classic.protocol import ClassicProtocol
from .driver import GOODBYE_SECONDS, MembershipDriver
from .protocol import GroupParts, NewProtocol, ProtocolInUse
from .rebalance_listener import ListenerCalls
from .reconciler import Reconciler

logger = logging.getLogger("aiokc.group")

# Errors in the answer to an OffsetCommit that say something about the membership of the consumer that sent it.
_ABOUT_THE_MEMBER: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


#: Called with the offsets of a commit, how many seconds it took, and its error.
ObserveCommit: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata], float, Exception | None], None]


def _nothing(offsets: Mapping[TopicPartition, OffsetAndMetadata], seconds: float, error: Exception | None) -> None:
    pass


class GroupMembership:
    """A consumer's membership in its group, and its offsets there.

    ``run`` joins the group and keeps the membership until it is cancelled. An error that only the application can
    repair is put into ``error``. ``changed`` is notified of such an error and of every change of the assignment,
    ``moved`` of every event. A consumer whose partitions the application has assigned by hand is in no group: for it
    this class only commits and looks up offsets. ``unwaited`` has the commits of commit_soon().
    """

    def __init__(
        self,
        config: ConsumerConfig,
        pool: Pool,
        metadata: Metadata,
        subscription: Subscription,
        changed: Signal,
        random: Random,
        listener: ListenerCalls,
        pattern: PatternTopics | None = None,
        new_protocol: NewProtocol = ClassicProtocol,
    ) -> None:
        if config.group_id is None:
            raise ConfigError("a group needs a group_id")
        self.on_commit: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] | None = None
        self.observe_commit: ObserveCommit = _nothing
        self._metadata = metadata
        self._subscription = subscription
        self._polls = PollClock()
        self.offsets = GroupOffsets(config, pool, config.group_id, random, request_metadata=metadata.request_update)
        lookup = self.offsets.requests.lookup
        self._protocol = new_protocol(
            GroupParts(config, config.group_id, lookup, metadata, subscription, self._polls, random, pattern)
        )
        self._machine = self._protocol.machine
        self._gate = CommitGate(config.group_id, self._machine, subscription, lambda: self._protocol.follows_epochs)
        self._error_told = False
        self._handed_out_to = self._machine.last_member  # the member when the application's last poll returned
        self._auto_commit = self._new_auto_commit(config, config.group_id, random)
        self.unwaited = AsyncCommits(
            config.group_id, self.offsets.commit_order, self.commit_as, config.request_timeout_ms / 1e3
        )
        self._listener = listener
        self._last_commits = LastCommits(
            config.group_id, self.offsets.commit_order, self._auto_commit, config.request_timeout_ms / 1e3
        )
        self._changes = Reconciler(
            f"group {config.group_id!r}",
            subscription,
            changed,
            listener=listener,
            polls=self._polls,
            max_poll_interval=config.max_poll_interval_ms / 1e3,
            commits=self._last_commits,
            tell_assignor=self._protocol.assigned,
            revocation_margin=lambda: self._protocol.revocation_margin,
        )
        self._driver = MembershipDriver(
            config,
            self._protocol,
            self._polls,
            lookup=lookup,
            options=pool.options,
            metadata=metadata,
            subscription=subscription,
            changes=self._changes,
            look_again=changed.notify,
        )
        self.offsets.requests.on_stale = lambda: self._driver.feed(
            Enforced("the coordinator has a newer epoch of this member")
        )
        self.moved = self._driver.moved
        self.asked_to_join = self._driver.asked_to_join
        self.run_callbacks = self.unwaited.run_callbacks
        self.close = self.unwaited.close

    def _new_auto_commit(self, config: ConsumerConfig, group_id: str, random: Random) -> AutoCommit | None:
        if not config.enable_auto_commit:
            return None
        return AutoCommit(
            group_id,
            self._subscription,
            self.commit,
            interval=config.auto_commit_interval_ms / 1e3,
            timeout=config.request_timeout_ms / 1e3,
            backoff=retry_backoff(config, random),
            unknown=UnknownTopics(self._metadata),
            is_of_former_topic=self.is_of_former_topic,
        )

    @property
    def drivers(self) -> list[Driver]:
        return [self.run, self.unwaited.run]

    async def run(self) -> None:
        """Keep the membership until cancelled. No error that a retry or the application can repair is raised."""
        async with anyio.create_task_group() as tasks:
            if self._auto_commit is not None:
                tasks.start_soon(self._auto_commit.run)
            await self._driver.run()
            # The driver has ended, which it never should. So this ends too, and the supervisor reports it.
            tasks.cancel_scope.cancel()

    def loop_is_closed(self) -> None:
        """End the watchdog thread: on a closed event loop nothing runs any more that could end ``run``."""
        self._driver.loop_is_closed()

    @property
    def error(self) -> KafkaError | None:
        """The error that has ended the membership, until it begins anew. Only the application can repair it."""
        return self._driver.error

    @property
    def protocol(self) -> ProtocolInUse:
        """Which group protocol the member speaks, and why that one."""
        return self._protocol.in_use

    def raise_error(self) -> None:
        """Raise the error that has ended the membership. The application's next poll is another attempt to join.

        That helps where the coordinator refuses today what it will grant tomorrow: a permission, a place in the group.
        """
        if self.error is not None and self._machine.has_failed:
            self._error_told = True
            raise fresh(self.error)

    @property
    def has_assigned(self) -> bool:
        return self._driver.has_assigned

    @property
    def generation(self) -> int:
        """The generation of the group that this member belongs to; -1 when it belongs to none."""
        return self._machine.member.generation_id

    @property
    def member_id(self) -> str:
        return self._machine.member.member_id

    @property
    def group_metadata(self) -> GroupMetadata:
        """The member in whose name a transaction may commit offsets of the records that the application holds.

        A coordinator accepts transactional offsets without a member's name, whatever members the group has. So a
        consumer that is outside the group keeps the name of its last generation, under which the coordinator refuses
        it. And a member that has lost partitions whose records the application still holds, and has joined again
        since, still gives the name that it had when it handed these records out.
        """
        member = self._machine.last_member
        if self._subscription.taken_from_user:
            member = self._handed_out_to
        if self._subscription.mode is Mode.PARTITIONS:  # assigned by hand: the group does not decide about them
            member = self._machine.member
            member = member if self.generation >= 0 else MemberToken(group_instance_id=member.group_instance_id)
        return GroupMetadata(self._protocol.group_id, member.generation_id, member.member_id, member.group_instance_id)

    @property
    def last_error(self) -> KafkaError | None:
        """The error that is being retried at the moment: of the coordinator's lookup, the membership or auto-commit."""
        failed_commit = self._auto_commit.error if self._auto_commit is not None else None
        return self.offsets.requests.lookup.error or self._driver.retry_report.error or failed_commit

    def report(self) -> SourceReport:
        return SourceReport(
            error=self.error,
            last_error=self.last_error,
            protocol=self.protocol,
            generation=self.generation,
            member_id=self.member_id,
            coordinator=self.offsets.requests.lookup.node_id,
            polled_at=self._driver.polled_at,
            group=self._driver.counters,
            commits=self.offsets.requests.commits,
        )

    # The application's calls

    def polling_begins(self) -> None:
        """The application waits for records from here on. To be called after Subscription.mark_processed()."""
        self._polls.waiting = True
        self.polled()

    def polling_ends(self) -> None:
        self._polls.waiting = False
        self._polls.last = asyncio.get_running_loop().time()
        self._handed_out_to = self._machine.last_member

    def polled(self) -> None:
        """The application asked for records. To be called after Subscription.mark_processed()."""
        self._driver.hear()  # first: the watchdog may have left the group because the last poll was too long ago
        self._polls.last = asyncio.get_running_loop().time()
        if self._machine.needs_poll or self._error_told:
            self._error_told = False
            self._driver.feed(Polled())
        self._changes.user_moved.notify()
        if self._subscription.left.take_more_to_commit():
            self._store_what_is_left()

    def subscription_changed(self) -> None:
        """To be called whenever the application has changed its subscription, in the same tick of the event loop."""
        self._driver.subscription_changed()
        # After unsubscribe() a revocation waits for nobody: also one that began before, for a pattern without a match.
        self._changes.user_moved.notify()
        if self._auto_commit is not None:
            self._auto_commit.go_on()
        self._store_what_is_left()

    def _store_what_is_left(self) -> None:
        """Have what was left by assign() stored at once: others may get it by hand. A revocation commits by itself."""
        if self._auto_commit is not None and not self._is_member:
            self._auto_commit.hurry()

    def enforce_rebalance(self, reason: str) -> None:
        """Make the group rebalance, unless it is rebalancing already, or no member of its protocol can do that."""
        if self.protocol.name == "consumer":
            logger.warning(
                "group %r: a member of the consumer protocol (KIP-848) can't make its group rebalance; it asks the "
                "coordinator whether something has changed (%s)",
                self._protocol.group_id,
                reason,
            )
        self._driver.feed(Enforced(reason))

    async def commit(
        self,
        offsets: Offsets,
        *,
        timeout: float,
        retry: bool = True,
        unknown: UnknownTopics | None = None,
        rewinds: Collection[TopicPartition] = (),
    ) -> None:
        """Store all of ``offsets``. Raises as ``committer`` and GroupOffsets.commit do.

        A cooperative member reads on while its group rebalances, so it may commit at any time. A commit that the
        coordinator refuses because the group has just formed its next generation is sent again in that generation, if
        the partitions have been this member's all the time.
        """
        commit_as = partial(self.commit_as, retry=retry, unknown=unknown, rewinds=rewinds)
        if not self._protocol.is_cooperative:
            return await commit_as(self.committer(), offsets, timeout=timeout)
        deadline = asyncio.get_running_loop().time() + timeout
        partitions = () if callable(offsets) else tuple(offsets)
        positions = self.held(partitions)
        with self.offsets.commit_order.call() as order:
            while True:
                # A second attempt goes behind the commits called for since. With its first order it does not undo
                # theirs, and does not look newer than they do: theirs would be left out, though nobody has stored what
                # they name.
                slot = self.offsets.commit_order.take(order)
                left = deadline - asyncio.get_running_loop().time()
                sender: MemberToken | None = None
                try:
                    sender = self.committer()
                    return await commit_as(sender, offsets, timeout=left, slot=slot)
                except (RebalanceInProgress, CommitFailed) as error:
                    slot.end()  # so that the last commits of this rebalance's revocation can go out while this waits
                    while self._machine.is_rebalancing:
                        if not await self.moved.wait(deadline - asyncio.get_running_loop().time()):
                            raise
                    is_over = self.generation < 0 or self._machine.member == sender
                    if is_over or self.held(partitions) != positions:
                        raise
                    logger.debug("group %r: committing again: %s", self._protocol.group_id, error)
                finally:
                    slot.end()

    @property
    def is_out(self) -> bool:
        """Whether the consumer is outside its group, and the application does not know it yet.

        That is so until the application polls again, and in a call from inside its listener.
        """
        return self._machine.needs_poll or (self.generation < 0 and self._listener.is_inside())

    def committer(self) -> MemberToken | None:
        """The member that sends a commit called for now; None for a consumer that commits from outside the group.

        Raises CommitFailed, RebalanceInProgress, and the error that has ended the membership.
        """
        self._driver.hear()  # first: the watchdog may know that the membership is over
        if self.error is not None:
            raise fresh(self.error)
        return self._machine.commit_token() if self._is_member else None

    async def commit_as(
        self,
        member: MemberToken | None,
        offsets: Offsets,
        *,
        timeout: float,
        retry: bool = True,
        slot: CommitSlot | None = None,
        held: HeldPositions | None = None,
        unknown: UnknownTopics | None = None,
        rewinds: Collection[TopicPartition] = (),
    ) -> None:
        """Store all of ``offsets`` in the name of ``member``; raise CommitFailed once it has been replaced.

        ``member`` is None for a consumer that commits from outside the group. ``held``: the positions when the commit
        was called for; None: they are those of now, or of the moment when a function is asked for its offsets.
        ``unknown`` follows the topics that the coordinator does not know; None: one of this commit alone does.
        ``rewinds``: the partitions of which the application had processed more, when it called, than it commits.
        """
        time = asyncio.get_running_loop().time
        began = time()
        asked = {} if callable(offsets) else offsets
        if held is None:
            offsets, held = self._gate.holding(offsets)
        try:
            with nullcontext(unknown) if unknown is not None else UnknownTopics(self._metadata) as unknown:
                stored = await self.offsets.commit(
                    offsets,
                    timeout=timeout,
                    sender=partial(self._gate.now, member, held),
                    is_assigned_otherwise=self._gate.is_assigned_otherwise,
                    current_id=self.topic_id,
                    unknown=unknown,
                    on_stored=partial(self._note_stored, rewinds),
                    on_unsure=self._note_unsure,
                    on_refused=self._note_refused,
                    retry=retry,
                    slot=slot,
                    rewinds=rewinds,
                )
        except KafkaError as error:
            self.observe_commit(asked, time() - began, error)
            raise
        if self.on_commit is not None:
            self.on_commit(stored)
        self.observe_commit(stored, time() - began, None)

    def _note_stored(
        self, rewinds: Collection[TopicPartition], stored: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Note what the group has stored, at once: if the rest of the commit fails, auto-commit must not undo this."""
        self._subscription.left.taken_back(tp for tp in rewinds if tp in stored)
        self._subscription.committed(stored)
        if self._auto_commit is not None:
            self._auto_commit.stored(stored)
        self._changes.user_moved.notify()

    def _note_unsure(self, partitions: Iterable[TopicPartition]) -> None:
        """The group may have another offset of these now than the one stored before."""
        if self._auto_commit is not None:
            self._auto_commit.forget(partitions)

    def _note_refused(self, member: MemberToken, error_code: int) -> None:
        """The coordinator has refused a commit of ``member``, maybe since that is not in its group any more."""
        if error_code in _ABOUT_THE_MEMBER:
            self._driver.feed(self._protocol.refused_commit(member, error_code))

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each of ``partitions``. Raises as GroupOffsets.fetch does."""
        found = await self.offsets.fetch(partitions, timeout=timeout, topic_ids=self.topic_id)
        self._heard(found)
        return found

    async def known_committed(self, partitions: Iterable[TopicPartition], *, timeout: float) -> Committed:
        """As ``committed``, but an error of single partitions is returned, beside the offsets of the others."""
        found = await self.offsets.fetch_known(partitions, timeout=timeout, topic_ids=self.topic_id)
        self._heard(found.offsets)
        return found

    def _heard(self, found: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        self._subscription.heard_committed(found)
        if self._auto_commit is not None:
            self._auto_commit.heard(found)

    async def leave(self, timeout: float, leave_group: bool | None) -> None:
        """Finish the commits called for before, commit for the last time (with enable_auto_commit), call the listener,
        give up the partitions, leave.

        Ends within ``timeout`` seconds, whatever the brokers do. ``leave_group`` says whether to send a LeaveGroup
        (KIP-1092); with None, a dynamic member sends one and a static member does not. The commits of commit_soon() may
        take half of the time. The last commit may take all that is left but a reserve for the listener, if there is
        one, and the LeaveGroup: half of what is left, or without a listener at most GOODBYE_SECONDS. If there is
        nothing to commit, it takes no time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        await self.unwaited.settled(loop.time() + timeout / 2)
        timeout = deadline - loop.time()
        after = timeout / 2
        if self._listener.listener is None:
            after = min(after, GOODBYE_SECONDS)
        self._last_commits.within(timeout - after)
        self._listener.end_within(timeout)  # which leaves a quarter of the time for the LeaveGroup
        with anyio.move_on_after(timeout):
            if not self._subscription.by_topics:  # no revocation follows, which would wait for these commits
                commits_until = loop.time() + timeout - after
                await self.offsets.commit_order.settled(commits_until)
                if self._auto_commit is not None:
                    await self._auto_commit.hand_over(commits_until - loop.time())
            self._driver.feed(Leave(leave_group))
            await self._driver.left()

    @property
    def has_left(self) -> bool:
        """Whether the group knows that this consumer goes, or has never had it."""
        return not self._is_member or self._driver.has_left

    @property
    def _is_member(self) -> bool:
        """Whether commits must name the member: also after unsubscribe(), until the consumer has left the group."""
        return self._subscription.by_topics or self.generation >= 0

    @property
    def decides(self) -> bool:
        """Whether the application may commit only what the group gave it, and has not given to others since.

        That is so after unsubscribe(), too. Once those others have committed and left, the group takes any commit.
        """
        mode = self._subscription.mode
        return mode.is_by_topics or (mode is Mode.NONE and self._machine.last_member.generation_id >= 0)

    def held(self, partitions: Iterable[TopicPartition]) -> HeldPositions:
        """The positions of ``partitions``: the same objects for as long as the partitions stay assigned."""
        return self._gate.held(partitions)

    def is_of_former_topic(self, tp: TopicPartition, offset: OffsetAndMetadata) -> bool:
        """Whether the metadata say by now that the topic was recreated after ``offset`` was read."""
        return is_of_another_topic(offset, self.topic_id(tp.topic))

    def topic_id(self, topic: str) -> UUID | None:
        """The id that the newest metadata give ``topic``; None if they give none."""
        return self._metadata.cluster.topic_id(topic)
