"""Bugs to plant in the client on purpose: the checker of the simulation must catch each of them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from aiokc.client.aio.supervisor import Supervisor
from aiokc.client.cluster.metadata import Metadata
from aiokc.client.consumer.poll import Poll
from aiokc.client.consumer.runtime import ConsumerRuntime
from aiokc.client.fetch.deserializing import Deserializing
from aiokc.client.fetch.fetcher import Fetcher
from aiokc.client.group.membership import GroupMembership
from aiokc.client.group.reconciler import Reconciler
from aiokc.client.group.user_commits import UserCommits
from aiokc.client.offsets.auto_commit import AutoCommit
from aiokc.client.offsets.commit_order import CommitOrder, CommitSlot
from aiokc.client.offsets.group_offsets import GroupOffsets
from aiokc.client.offsets.offset_requests import OffsetRequests
from aiokc.core.assignors import sticky
from aiokc.core.cluster.leader_hints import LeaderHints
from aiokc.core.fetch import planner
from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.partition.partition_buffer import PartitionBuffer
from aiokc.core.fetch.partition.record_sequence import RecordSequence
from aiokc.core.group.classic import leader
from aiokc.core.group.classic.membership import Membership
from aiokc.core.group.classic.owned_partitions import OwnedPartitions
from aiokc.core.group.consumer.holdings import Holdings
from aiokc.core.group.consumer.membership import ConsumerMembership
from aiokc.core.group.consumer.messages import ConsumerGroup
from aiokc.core.group.consumer.told import Told
from aiokc.core.group.events import IdentityLost, Rebalancing, RevocationDone, SendHeartbeat, SentCommit
from aiokc.core.offsets.messages import Committed
from aiokc.core.offsets.stored import StoredOffsets
from aiokc.core.subscription.assigned_partitions import AssignedPartitions
from aiokc.core.subscription.position import PartitionPosition
from aiokc.core.subscription.state import Subscription
from aiokc.errors import BrokerError
from aiokc.net.pool import Pool
from aiokc.records import RecordReader
from aiokc.records.transactions import AbortedTransactions
from aiokc.testing.groups.consumer.heartbeating import Heartbeating
from aiokc.types import OffsetAndMetadata, RecordColumns, TopicPartition

from . import consumer_bugs
from .checking.history import replaced


@dataclass(frozen=True)
class PlantedBug:
    """The replacements that make the bug, and the anomalies of which the checker must find one.

    ``group``, ``cooperative``, ``recreated``, ``consumer`` and ``wrong_leaders`` choose the worlds. ``first`` is
    the first seed to try: some bugs show only in one world of fifty, and the test must be fast.
    """

    kinds: frozenset[str]
    group: bool | None
    first: int
    replacements: tuple[tuple[Any, str, Any], ...]
    cooperative: bool = False
    recreated: bool = False
    consumer: bool = False
    wrong_leaders: bool = False


def _bug(
    kinds: str,
    *replacements: tuple[Any, str, Any],
    group: bool | None = None,
    first: int = 0,
    cooperative: bool = False,
    recreated: bool = False,
    consumer: bool = False,
    wrong_leaders: bool = False,
) -> PlantedBug:
    kind = cooperative, recreated, consumer, wrong_leaders
    return PlantedBug(frozenset(kinds.split(", ")), group, first, replacements, *kind)


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a bug in the client within the block; None plants none."""
    with ExitStack() as stack:
        for target, attribute, value in PLANTED_BUGS[name].replacements if name is not None else ():
            stack.enter_context(replaced(target, attribute, value))
        yield


# Reading


_records = Poll.records
_columns = Poll.columns


async def _await_between_taking_and_returning(poll: Any, only: Any, timeout_ms: Any, decode: int, most: int) -> Any:
    """The positions have moved, and the call can still be cancelled after that."""
    batch = await _records(poll, only, timeout_ms, decode, most)
    await asyncio.sleep(0)
    return batch


async def _wait_for_ever(poll: Any, only: Any, timeout_ms: Any, decode: int, most: int) -> Any:
    return await _records(poll, only, None, decode, most)


_skips = AbortedTransactions.skips


def _skip_for_ever(self: AbortedTransactions, header: Any, view: memoryview) -> bool:
    """A marker does not end the aborted transaction: all that its producer writes later is skipped."""
    aborting = set(self._aborting)
    skips = _skips(self, header, view)
    self._aborting |= aborting
    return skips


_fill = Deserializing._fill


async def _await_before_columns_are_returned(poll: Any, *arguments: Any) -> RecordColumns:
    """The positions have moved: a call that is cancelled at this await loses the rows."""
    columns = await _columns(poll, *arguments)
    await asyncio.sleep(0.05)
    return columns


async def _lose_what_is_awaited(self: Deserializing, buffer: PartitionBuffer, *options: Any) -> bool:
    """A record is lost when the call that waits for its deserializer is cancelled."""
    try:
        return await _fill(self, buffer, *options)
    except asyncio.CancelledError:
        buffer.ready = RecordSequence(record for index, record in enumerate(buffer.ready) if index != len(buffer.typed))
        raise


_take_typed = PartitionBuffer.take_typed


def _pass_over_what_is_refused(self: PartitionBuffer, count: int) -> Any:
    """A record that can't be deserialized is skipped."""
    if self.refused is not None:
        self.ready = RecordSequence(record for index, record in enumerate(self.ready) if index != len(self.typed))
    return _take_typed(self, count)


def _seek_under_the_old_token(
    self: Subscription,
    tp: TopicPartition,
    offset: int,
    epoch: int | None = None,
    *,
    topic_id: UUID | None = None,
    checked_epoch: int | None = None,
) -> None:
    """Buffered records are not stale after a seek."""
    position = self[tp]
    position.locate(position.token, offset, epoch, topic_id)
    position.checked_epoch = checked_epoch
    self._waiting.remove(tp)
    self.touch(tp)


def _read_a_part_and_drop_the_rest(self: PartitionBuffer, reader: RecordReader, count: int) -> None:
    """A batch is finished once some of its records have been taken."""
    self.ready.add(reader.take(count, self.next))
    self._close_batch(self._kept.header)


def _read_from_the_start_of_the_batch(self: PartitionBuffer, reader: RecordReader, count: int) -> None:
    """A batch may begin before the position: its first records must be skipped, and are not."""
    self.ready.add(reader.take(count, 0))
    if self.ready:
        self.next = max(self.next, self.ready[-1].offset + 1)
    if reader.remaining == 0:
        self._close_batch(self._kept.header)


# Each batch is read by itself, not as part of a run.
_NO_RUNS: Final = (PartitionBuffer, "_take_of_run", lambda self, run, count: False)


async def _no_retry_after_an_error(self: Fetcher, plan: Any) -> None:
    self._planner.rest(plan.node_id, 0.0, float("inf"), 0.0)


async def _stop_nothing(self: Supervisor) -> None:
    """Background tasks are not stopped."""


async def _stop_without_closing(self: Pool) -> None:
    """Connections are not closed."""
    self._closing.set()
    self._give_up_attempts()


def _hand_out_stale_buffers(
    self: FetchBuffer, subscription: Subscription, only: Any = None
) -> Iterator[tuple[PartitionBuffer, PartitionPosition]]:
    """The buffered records of a partition are handed out, whatever their token."""
    for tp, position in list(subscription.assigned.items()):
        buffer = self._partitions.get(tp)
        if buffer is not None and position.fetchable and not buffer.empty:
            yield buffer, position


def _forget_nothing(self: FetchBuffer, tp: TopicPartition) -> None:
    """The buffers of revoked partitions are kept."""


# Groups

_offsets, _replace, _on = PartitionPosition.offsets, Subscription.replace, Membership.on


def _commit_what_is_held(self: PartitionPosition) -> OffsetAndMetadata | None:
    """The trap of auto-commit: records that the application still holds count as processed."""
    self.held = False
    self.mark_processed()
    return self.consumed()


def _consumed_one_more(positions: Any, *, processed: bool) -> dict[TopicPartition, OffsetAndMetadata]:
    found = _offsets(positions, processed=processed)
    return found if processed else {tp: OffsetAndMetadata(one.offset + 1) for tp, one in found.items()}


async def _release_without_giving_up(
    self: Reconciler, change: Any, queued: Any, revocation_done: Callable[[RevocationDone], None]
) -> None:
    """The member tells the group that the partitions are free, and goes on reading them."""
    revocation_done(RevocationDone(change.step))


def _keep_positions_of_the_revoked(self: Subscription, partitions: Any, *topic_ids: Any) -> bool:
    """A member that gets a partition again continues at its old position, whatever others have read since."""
    kept = self.__dict__.setdefault("kept", {})
    wanted = list(partitions)
    kept.update(self._assigned)
    changed = _replace(self, wanted, *topic_ids)
    for tp in wanted:
        if tp in kept:
            self._assigned[tp] = kept[tp]
            kept[tp].blocked = False
    return changed


def _deaf_to_the_coordinator(self: Membership, event: Any, now: float) -> list[Any]:
    """The member keeps its generation, whatever the answers to heartbeats and commits are."""
    is_answer = isinstance(event, Rebalancing | IdentityLost) and isinstance(event.sent, SendHeartbeat | SentCommit)
    return [] if is_answer else _on(self, event, now)


async def _nothing_is_committed(self: ConsumerRuntime, partitions: Any) -> Committed:
    await self.committed(partitions, timeout=10)
    return Committed(dict.fromkeys(partitions))


@asynccontextmanager
async def _no_turns(
    self: GroupOffsets, deadline: float, timeout: float, slot: CommitSlot | None
) -> AsyncIterator[CommitSlot]:
    """A retry of an older commit may overtake a newer one."""
    try:
        yield CommitOrder().take()
    finally:
        if slot is not None:
            slot.end()


async def _commit_under_the_newest_name(
    self: GroupMembership, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout: float, **options: Any
) -> None:
    """A commit is retried until it succeeds, in whatever generation the member is by then."""
    deadline = asyncio.get_running_loop().time() + timeout
    while True:
        try:
            await _commit(self, offsets, timeout=timeout, **options)
        except BrokerError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            return


async def _commit_anything(
    self: UserCommits, offsets: dict[TopicPartition, OffsetAndMetadata] | None, *, timeout: float
) -> None:
    """Partitions that have been revoked meanwhile are committed too."""
    remembered = self.__dict__.setdefault("remembered", {})
    remembered.update(self.subscription.consumed())
    await self.membership.commit(dict(remembered), timeout=timeout)


_send_commit = OffsetRequests.commit


async def _commit_under_the_new_id(
    self: OffsetRequests, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: Any, timeout: float
) -> dict[TopicPartition, int]:
    """A commit has the topic ids of the current metadata, and not those of the topics that were read."""
    ids = {tp: self.__dict__["find_id"](tp.topic) for tp in offsets}
    renamed = {tp: dataclasses.replace(offset, topic_id=ids[tp]) for tp, offset in offsets.items()}
    return await _send_commit(self, renamed, member, timeout)


_commit_offsets = GroupOffsets.commit


async def _commit_what_is_of_no_topic(self: GroupOffsets, offsets: Any, *, current_id: Any, **options: Any) -> Any:
    """A commit ignores topic ids, and so commits offsets of a deleted topic for its successor."""
    self.requests.__dict__["find_id"] = current_id
    return await _commit_offsets(self, offsets, current_id=lambda topic: None, **options)


_commit = GroupMembership.commit


async def _commit_never(self: AutoCommit) -> None:
    await asyncio.Event().wait()


async def _hand_over_nothing(self: AutoCommit, timeout: float) -> None:
    """What was processed since the last interval is not stored."""


# A commit is left out for an auto-commit that came before it, and that left out the records which it names.
_OVER_BY_LESS: Final = (
    StoredOffsets,
    "is_newer",
    lambda self, tp, _, order, *, is_rewind: tp in self._stored and self._stored[tp].known > order,
)

#: What the coordinator does for "store a negative epoch". By itself it costs nothing.
NEGATIVE_EPOCHS: Final = (Heartbeating, "_answer", consumer_bugs.answer_with_a_negative_epoch_now_and_then)
#: What the applications do for "take the answer to a leave for one to the join". By itself it costs nothing.
LEAVES: Final = (ConsumerMembership, "on", consumer_bugs.leave_now_and_then)

PLANTED_BUGS: Final[dict[str, PlantedBug]] = {
    # reading
    "skip a batch on cancel": _bug("skip, lost", (Poll, "records", _await_between_taking_and_returning), first=211),
    "keep the buffer on seek": _bug(
        "non-monotonic, skip", (AssignedPartitions, "seek", _seek_under_the_old_token), group=False
    ),
    "drop the rest of a batch": _bug(
        "skip, lost", (PartitionBuffer, "_read", _read_a_part_and_drop_the_rest), _NO_RUNS
    ),
    "hand out what lies before the position": _bug(
        "non-monotonic, duplicate", (PartitionBuffer, "_read", _read_from_the_start_of_the_batch), _NO_RUNS
    ),
    "skip a record on cancel": _bug("skip, lost", (Deserializing, "_fill", _lose_what_is_awaited), first=5),
    "skip rows on cancel": _bug("skip, lost", (Poll, "columns", _await_before_columns_are_returned), first=7),
    "skip what is refused": _bug("skip, lost", (PartitionBuffer, "take_typed", _pass_over_what_is_refused), first=17),
    "give up after an error": _bug("stuck", (Fetcher, "_back_off", _no_retry_after_an_error), first=5),
    "never ask for metadata again": _bug("stuck", (Metadata, "request_update", lambda self: None), first=20),
    "leave tasks behind": _bug("leak", (Supervisor, "stop", _stop_nothing)),
    "leave connections behind": _bug("leak", (Pool, "aclose", _stop_without_closing)),
    "take no end of an abort": _bug("skip, lost, stuck", (AbortedTransactions, "skips", _skip_for_ever), first=25),
    "ignore the timeout of a call": _bug("stuck", (Poll, "records", _wait_for_ever), first=9),
    "believe a wrong leader": _bug("stuck", (LeaderHints, "disprove", lambda *_: False), wrong_leaders=True, first=2),
    # groups
    "commit early": _bug("over-commit", (PartitionPosition, "committable", _commit_what_is_held), group=True),
    "commit one too far": _bug(
        "over-commit, lost", (PartitionPosition, "offsets", staticmethod(_consumed_one_more)), group=True
    ),
    "keep buffered data of a revoked partition": _bug(
        "skip, duplicate, non-monotonic",
        (FetchBuffer, "servable", _hand_out_stale_buffers),
        (FetchBuffer, "drop", _forget_nothing),
        group=True,
    ),
    "keep positions of revoked partitions": _bug(
        "skip, duplicate", (Subscription, "replace", _keep_positions_of_the_revoked), group=True, first=6
    ),
    "release without giving up": _bug(
        "double owner", (Reconciler, "_revoke", _release_without_giving_up), group=True, first=37
    ),
    "ignore what the coordinator says": _bug(
        "zombie", (Membership, "on", _deaf_to_the_coordinator), group=True, first=178
    ),
    "do not look up what is committed": _bug(
        "duplicate, non-monotonic", (ConsumerRuntime, "_fetch_committed", _nothing_is_committed), group=True
    ),
    "let commits overtake each other": _bug("regression", (GroupOffsets, "_slot", _no_turns), group=True, first=42),
    "commit when partitions go only": _bug("under-commit", (AutoCommit, "run", _commit_never), group=True, first=6),
    "commit by the interval only": _bug("under-commit", (AutoCommit, "hand_over", _hand_over_nothing), group=True),
    "take less for a newer commit": _bug("unstored", _OVER_BY_LESS, group=True, first=51, cooperative=True),
    "ignore the generation of a commit": _bug(
        "zombie commit, regression, over-commit",
        (UserCommits, "commit", _commit_anything),
        (GroupMembership, "commit", _commit_under_the_newest_name),
        group=True,
        first=38,
    ),
    "commit under the new id": _bug(
        "over-commit, skip, lost",
        (OffsetRequests, "commit", _commit_under_the_new_id),
        (GroupOffsets, "commit", _commit_what_is_of_no_topic),
        (GroupMembership, "is_of_former_topic", lambda self, tp, offset: False),
        group=True,
        recreated=True,
    ),
    "keep the position in a topic that was created again": _bug(
        "skip, lost, over-commit",
        (planner, "_is_of_former_topic", lambda position, topic_id, buffer: False),
        group=True,
        first=14,
        recreated=True,
    ),
    # cooperative groups
    "hand over at once": _bug(
        "double owner, duplicate, over-commit, zombie commit",
        (sticky, "transferring_ownership", lambda assignment, claims: {}),
        (leader, "_check_cooperative", lambda group, assigned: None),
        group=True,
        first=10,
        cooperative=True,
    ),
    "keep what was taken away": _bug(
        "double owner, duplicate, zombie commit",
        (OwnedPartitions, "assigned", lambda self, partitions, generation_id: ()),
        group=True,
        first=10,
        cooperative=True,
    ),
    # groups of the consumer protocol
    "acknowledge before the commit": _bug(
        "double owner, duplicate, over-commit, zombie commit",
        (Holdings, "owned", property(lambda self: frozenset(self.held) & (self.target or frozenset()))),
        group=True,
        first=114,
        consumer=True,
    ),
    "commit by the newest epoch what was given up": _bug(
        "zombie commit, regression, over-commit", (UserCommits, "commit", _commit_anything), group=True, consumer=True
    ),
    "acknowledge without giving up": _bug(
        "double owner", (Reconciler, "_revoke", _release_without_giving_up), group=True, consumer=True
    ),
    "read a recreated topic before it is assigned": _bug(
        "unowned, zombie commit",
        (PartitionPosition, "is_assigned_by_another_id_than", lambda self, topic_id: False),
        group=True,
        first=4,
        recreated=True,
        consumer=True,
    ),
    "list nothing as owned": _bug(
        "overdue",
        (Told, "contents", consumer_bugs.say_nothing_of_what_is_owned),
        (Told, "is_news", consumer_bugs.count_only_interests_as_news),
        group=True,
        consumer=True,
    ),
    "take an empty list for no news": _bug(
        "overdue",
        (Holdings, "aim_at", consumer_bugs.take_an_empty_list_for_no_news),
        group=True,
        first=57,
        consumer=True,
    ),
    "take the whole assignment for what is new": _bug(
        "overdue",
        (Holdings, "aim_at", consumer_bugs.take_the_assignment_for_what_is_new),
        group=True,
        first=17,
        consumer=True,
    ),
    "drop what has no name yet": _bug(
        "stuck", (Holdings, "aim_at", consumer_bugs.drop_what_has_no_name_yet), group=True, consumer=True
    ),
    "revoke what had its name before": _bug(
        "stuck",
        (Holdings, "named", consumer_bugs.revoke_what_had_its_name_before),
        group=True,
        first=796,
        consumer=True,
    ),
    "begin anew what stays assigned": _bug(
        "non-monotonic",
        (Subscription, "replace", consumer_bugs.begin_anew_with_each_assignment),
        group=True,
        first=43,
        consumer=True,
    ),
    "keep positions of what was given up": _bug(
        "skip, duplicate, non-monotonic",
        (Subscription, "replace", _keep_positions_of_the_revoked),
        group=True,
        first=6,
        consumer=True,
    ),
    "take a refusal for no offset": _bug(
        "duplicate, regression, skip",
        (OffsetRequests, "fetch", consumer_bugs.take_a_refusal_for_no_offset),
        group=True,
        first=5,
        consumer=True,
    ),
    "say nothing after a lost answer": _bug(
        "fenced",
        (ConsumerMembership, "_try_later", consumer_bugs.keep_alive_after_a_failure),
        group=True,
        first=119,
        consumer=True,
    ),
    "store a negative epoch": _bug(
        "error",
        (ConsumerMembership, "_on_alive", consumer_bugs.take_any_epoch),
        NEGATIVE_EPOCHS,
        group=True,
        consumer=True,
    ),
    "take the answer to a leave for one to the join": _bug(
        "error",
        (ConsumerMembership, "on", consumer_bugs.take_the_answer_to_a_leave_for_one_to_the_join),
        (ConsumerGroup, "heartbeat_request", consumer_bugs.send_the_epoch_of_any_answer),
        group=True,
        first=23,
        consumer=True,
    ),
    "ignore that the epoch is over": _bug(
        "zombie", (ConsumerMembership, "on", consumer_bugs.deaf_to_the_coordinator), group=True, first=61, consumer=True
    ),
}
