"""Finds a position for each assigned partition without one: its committed offset, or an offset by timestamp."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import islice
from random import Random
from typing import TypeAlias, cast

import anyio
from anyio.abc import TaskGroup

from ...config import ConsumerConfig
from ...core.backoff import Backoff, retry_backoff
from ...core.cluster.snapshot import Cluster
from ...core.named import named
from ...core.offsets.messages import Committed
from ...core.rate_limit import RateLimit, and_more
from ...core.subscription.offset_reset import OffsetReset
from ...core.subscription.position import AWAIT_RESET, INITIALIZING
from ...core.subscription.state import Subscription
from ...errors import AuthenticationFailed, BrokerError, KafkaError, NoOffsetForPartition
from ...types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition, partition_count
from ..aio.signal import Signal
from ..cluster.list_offsets import AT_ONCE, Answer, Asked, Found, OffsetLister, group_by_leader, may_pass
from ..cluster.metadata import Metadata

logger = logging.getLogger("aiokc.offsets")

#: Returns the group's committed offset of each partition that has no error of its own.
FetchCommitted = Callable[[Iterable[TopicPartition]], Awaitable[Committed]]

_COMPLAINT_SECONDS = 30.0

# How many positions are set before other tasks get to run.
_SET_AT_ONCE = 250

#: Partitions without a position, each with its token.
PositionTokens = dict[TopicPartition, int]

_Kind: TypeAlias = tuple[type[KafkaError], int]


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
        clock: Callable[[], float] = time.time,
        *,
        connect_to: Callable[[Iterable[int]], None],
    ) -> None:
        self.found = Signal()
        self.wake = Signal()
        self._errors: dict[_Kind, tuple[KafkaError, PositionTokens]] = {}  # the newest of each kind
        self._subscription = subscription
        self._metadata = metadata
        self._lister = lister
        self._fetch_committed = fetch_committed
        self._reset = OffsetReset(config.auto_offset_reset)
        self._clock = clock
        self._connect_to = connect_to
        self._request_timeout = config.request_timeout_ms / 1e3
        self._new_backoff = partial(retry_backoff, config, random)
        self._backoffs: dict[int, Backoff] = {}
        self._complaints = RateLimit(_COMPLAINT_SECONDS)
        self._absent: frozenset[TopicPartition] = frozenset()
        self._leaderless: PositionTokens = {}  # the partitions that wait for metadata which name their leader
        self._under_way: dict[int, tuple[int, PositionTokens]] = {}  # which leader is asked for which partitions
        self._looked_at: Cluster | None = None  # for leaders of these

    async def run(self) -> None:
        """Look up positions until cancelled; retry a failed lookup after a growing pause.

        Committed offsets and offsets by timestamp are looked up in two loops, so that a coordinator which does not
        answer does not delay a seek_to_beginning().
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._find_committed)
            await self._find_by_timestamp(tasks)

    # Committed offsets

    async def _find_committed(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = self._new_backoff()
        failing_since: float | None = None
        while True:
            now = loop.time()
            tokens = self._subscription.in_state(INITIALIZING, now)
            if not tokens:
                await self._next(now)
                continue
            errors = await self._look_up_committed(tokens)
            if not errors:
                backoff.reset()
                failing_since = None
                continue
            failing_since = now if failing_since is None else failing_since
            still, retry_at = self._subscription.in_state(INITIALIZING, now), loop.time() + backoff.next()
            for error, lacking in errors:
                self._subscription.retry_later([tp for tp in lacking if still.get(tp) == lacking[tp]], retry_at)
                # A single partition may wait for a transaction's end: that is worth a word only if it takes long.
                if not _is_passing(error) or loop.time() - failing_since >= self._request_timeout:
                    is_retriable = error.retriable or isinstance(error, AuthenticationFailed)
                    self._report(error, lacking, retriable=is_retriable)

    async def _look_up_committed(self, tokens: PositionTokens) -> list[tuple[KafkaError, PositionTokens]]:
        """Set the positions that are found. Return the errors, each with the partitions that it leaves without one.

        What a coordinator does not tell of one partition, such as one of a forbidden topic, keeps no other from its
        position.
        """
        committed = Committed({})
        if self._fetch_committed is not None:
            some = dict.fromkeys(islice(tokens, _SET_AT_ONCE), LATEST)
            self._connect_to(group_by_leader(self._metadata.cluster, some))
            try:
                committed = await self._fetch_committed(tokens)
            except KafkaError as error:
                return [(error, tokens)]
        errors: list[tuple[KafkaError, PositionTokens]] = []
        if committed.errors:
            errors += [(error, _only(tokens, lacking)) for error, lacking in committed.errors]
            tokens = _only(tokens, committed.offsets)
        if missing := await self._set_committed(tokens, committed.offsets):
            errors.append((NoOffsetForPartition(missing), _only(tokens, missing)))
        return errors

    async def _set_committed(
        self, tokens: PositionTokens, committed: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> list[TopicPartition]:
        """Set the positions of all these. Return those that have no committed offset, and no other place to begin."""
        missing: list[TopicPartition] = []
        timestamp = self._reset.timestamp(self._clock())
        if self._fetch_committed is None and timestamp == EARLIEST:
            left = iter(tokens.items())
            while some_of_them := dict(islice(left, _SET_AT_ONCE)):
                self._subscription.await_resets(some_of_them, timestamp)
                await asyncio.sleep(0)
            tokens = {}
        for done, (tp, token) in enumerate(tokens.items(), start=1):
            if done % _SET_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._subscription.get(tp, token) is None:
                continue  # a seek, or a new assignment, while the answer was on its way
            offset = committed.get(tp)
            if offset is not None:
                self._subscription.seek(tp, offset.offset, offset.leader_epoch, topic_id=offset.topic_id)
            elif timestamp not in (None, EARLIEST) and self._is_made_anew(tp):
                self._subscription.await_reset(tp, EARLIEST)
            elif timestamp is not None:
                self._subscription.await_reset(tp, timestamp)
            else:
                missing.append(tp)
        self.found.notify()
        self.wake.notify()  # for the other loop: some partitions are to be looked up by timestamp now
        return missing

    def _is_made_anew(self, tp: TopicPartition) -> bool:
        """Whether the topic was recreated while this consumer followed it: earlier metadata gave it another id.

        All records of the new topic were written since, whatever their timestamps are, and the group has read none of
        them. So the partition is read from the beginning, just as if it had not been revoked in between.
        """
        topic_id = self._metadata.cluster.topic_id(tp.topic)
        former = self._metadata.cluster.former.get(tp.topic)
        if not self._subscription.by_topics or topic_id is None or former is None or not former.ids:
            return False
        logger.warning("%s: the topic was deleted and created again: reading the new log from its beginning", tp)
        return True

    # Offsets by timestamp

    async def _find_by_timestamp(self, tasks: TaskGroup) -> None:
        """Ask each leader in a task of its own: a silent broker, or a partition without a leader, delays no other.

        Thousands of partitions take several requests (AT_ONCE).
        """
        loop = asyncio.get_running_loop()
        leaderless = self._new_backoff()  # a topic that does not exist may never have one
        while True:
            await self._look_for_leaders()
            now = loop.time()
            subscription = self._subscription
            if not self._metadata.cluster.topics and subscription.in_state(AWAIT_RESET, now, 1):
                # No partition has a leader yet. To find that out one by one takes as long as to find positions.
                self._metadata.request_missing()
                await self._first_topics(now + leaderless.next())
                continue
            tokens = subscription.in_state(AWAIT_RESET, now, AT_ONCE)
            assigned = subscription.assigned
            asked = cast(dict[TopicPartition, int], {tp: assigned[tp].reset_timestamp for tp in tokens})
            by_leader = group_by_leader(self._metadata.cluster, asked)
            self._connect_to(by_leader)
            for node_id, part in by_leader.items():
                subscription.retry_later(part, now + self._request_timeout)  # sooner, if the answer is an error
                for tp in part if self._leaderless else ():
                    self._leaderless.pop(tp, None)
                tasks.start_soon(self._look_up_timestamps, node_id, part, {tp: tokens[tp] for tp in part})
            if len(tokens) > sum(map(len, by_leader.values())):
                led: set[TopicPartition] = set().union(*by_leader.values())
                without_leader = [tp for tp in tokens if tp not in led]
                self._metadata.request_missing()
                self._complain_of_absent(without_leader, now)
                subscription.retry_later(without_leader, now + leaderless.next())
                self._leaderless.update((tp, tokens[tp]) for tp in without_leader)
            elif tokens:
                leaderless.reset()
            if len(tokens) < AT_ONCE:
                await self._next(now)
            else:
                await asyncio.sleep(0)

    async def _first_topics(self, until: float) -> None:
        """Wait until the metadata have a topic, or for the time of the next request for them."""
        loop = asyncio.get_running_loop()
        while not self._metadata.cluster.topics and (left := until - loop.time()) > 0:
            await self.wake.wait(left)

    async def _look_for_leaders(self) -> None:
        """Let the partitions be asked for at once that have a leader, or another one, by newer metadata."""
        cluster = self._metadata.cluster
        if cluster is self._looked_at or not (self._leaderless or self._under_way):
            return
        self._looked_at = cluster
        await self._end_waits_for_leaders(cluster)
        await self._leave_former_leaders(cluster)

    async def _leave_former_leaders(self, cluster: Cluster) -> None:
        """Ask the new leaders of partitions while the former ones have not answered, and ignore what those answer yet.

        A broker that hangs loses its partitions within seconds, and says nothing for request_timeout_ms.
        """
        subscription = self._subscription
        for node_id, tokens in list(self._under_way.values()):
            for done, (tp, token) in enumerate(tokens.items(), start=1):
                if done % _SET_AT_ONCE == 0:
                    await asyncio.sleep(0)
                position, leader = subscription.get(tp, token), cluster.leader(tp)
                if position is None or leader is None or leader.node_id == node_id:
                    continue
                assert position.reset_timestamp is not None
                subscription.await_reset(tp, position.reset_timestamp, lost=position.lost)

    async def _end_waits_for_leaders(self, cluster: Cluster) -> None:
        """Let the partitions be asked for at once that have a leader by newer metadata.

        The pause of a partition without a leader is one between requests for metadata. It must not delay a partition
        whose metadata have come: otherwise the first record after assign() takes retry_backoff_ms longer.
        """
        waiting = list(self._leaderless)
        for begin in range(0, len(waiting), _SET_AT_ONCE):
            if begin:
                await asyncio.sleep(0)
            led: list[TopicPartition] = []
            for tp in waiting[begin : begin + _SET_AT_ONCE]:
                if self._subscription.get(tp, self._leaderless[tp]) is None:
                    del self._leaderless[tp]  # a seek, or a new assignment
                elif cluster.leader(tp) is not None:
                    del self._leaderless[tp]
                    led.append(tp)
            self._subscription.retry_now(led)

    def _complain_of_absent(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Warn about a partition that was assigned by hand and that its topic does not have: that may be a slip.

        The first time it is not logged: the metadata may be older than the partition.
        """
        topics = {} if self._subscription.by_topics else self._metadata.cluster.topics
        seen, self._absent = (
            self._absent,
            frozenset(tp for tp in partitions if tp.topic in topics and self._metadata.cluster.partition(tp) is None),
        )
        for tp in sorted(seen & self._absent):
            held_back = self._complaints.admit(str(tp), now)
            if held_back is not None:
                count = partition_count(topics[tp.topic].partitions)
                logger.warning("%s does not exist: its topic has %d partitions; looking again until it does", tp, count)

    async def _look_up_timestamps(self, node_id: int, asked: Asked, tokens: PositionTokens) -> None:
        self._under_way[id(tokens)] = node_id, tokens
        try:
            await self._look_up(node_id, asked, tokens)
        finally:
            del self._under_way[id(tokens)]

    async def _look_up(self, node_id: int, asked: Asked, tokens: PositionTokens) -> None:
        cluster = self._metadata.cluster  # as of now: the answer cannot be about a topic that is created later
        answer = await self._lister.ask(node_id, asked, timeout=self._request_timeout)
        await self._take_in(node_id, answer, asked, tokens, cluster)
        get, none = self._subscription.get, {tp for tp, offset in answer.found.items() if offset is None}
        left = {tp: token for tp, token in tokens.items() if tp in none and get(tp, token) is not None}
        if left:  # no record is as new as the timestamp (KIP-1106)
            answer, asked = await self._look_up_ends(node_id, {tp: asked[tp] for tp in left})
            await self._take_in(node_id, answer, asked, left, cluster)

    async def _look_up_ends(self, node_id: int, asked: Asked) -> tuple[Answer, dict[TopicPartition, int]]:
        """Look up the ends of logs that had no record as new as the timestamp; return what each offset stands for, too.

        A record that is written, or a transaction that ends, before the broker says where the log ends is as new, and
        would be skipped there. So the timestamp is asked for once more. If there is no such record still, what becomes
        readable from here on lies behind that end.
        """
        timeout = self._request_timeout
        self._subscription.retry_later(asked, asyncio.get_running_loop().time() + 2 * timeout)
        ends = await self._lister.ask(node_id, dict.fromkeys(asked, LATEST), timeout=timeout)
        at_end = {tp: end for tp, end in ends.found.items() if end is not None}
        if not at_end:
            return Answer({}, ends.errors), dict(asked)
        answer = await self._lister.ask(node_id, {tp: asked[tp] for tp in at_end}, timeout=timeout)
        found: Found = {tp: answer.found[tp] or end for tp, end in at_end.items() if tp in answer.found}
        meant = {tp: LATEST if answer.found.get(tp) is None else timestamp for tp, timestamp in asked.items()}
        return Answer(found, ends.errors | answer.errors), meant

    async def _take_in(
        self, node_id: int, answer: Answer, asked: Asked, tokens: PositionTokens, cluster: Cluster
    ) -> None:
        """Set the positions that ``answer`` has. Those that it has no offset for, for want of a record, stay as is."""
        subscription, found, says = self._subscription, answer.found, logger.isEnabledFor(logging.INFO)
        unanswered: list[TopicPartition] = []
        for done, (tp, token) in enumerate(tokens.items(), start=1):
            if done % _SET_AT_ONCE == 0:
                await asyncio.sleep(0)
            if tp not in found:
                unanswered.append(tp)
                continue
            offset = found[tp]
            if offset is None or (position := subscription.get(tp, token)) is None:
                continue  # a seek, or a new assignment, wins over the answer
            if says or position.lost:
                self._log(tp, offset.offset, asked[tp])
            topic = cluster.topics.get(tp.topic)
            info = None if topic is None else topic.partitions.get(tp.partition)
            subscription.seek(
                tp,
                offset.offset,
                offset.leader_epoch,
                topic_id=None if topic is None else topic.topic_id,
                checked_epoch=-1 if info is None or info.leader_epoch is None else info.leader_epoch,
            )
        left = [tp for tp in unanswered if subscription.get(tp, tokens[tp]) is not None]
        if left:
            backoff = self._backoffs.setdefault(node_id, self._new_backoff())
            self._subscription.retry_later(left, asyncio.get_running_loop().time() + backoff.next())
            self._metadata.request_update()
            for error, lacking in _by_kind(answer.errors, left):
                is_retriable = may_pass(error) or isinstance(error, AuthenticationFailed)
                self._report(error, _only(tokens, lacking), retriable=is_retriable)
        elif None not in found.values():
            self._backoffs.pop(node_id, None)
        self.found.notify()
        self.wake.notify()

    def _log(self, tp: TopicPartition, offset: int, timestamp: int) -> None:
        """Log both offsets of a reset: as a warning if the log had lost the old one, since no caller asked for that."""
        position = self._subscription[tp]
        how = _names.get(timestamp, f"the first record of {timestamp} or later")
        if position.position < 0:
            logger.info("%s: position set to offset %d (%s)", tp, offset, how)
        else:
            level = logging.WARNING if position.lost else logging.INFO
            logger.log(level, "%s: position reset from offset %d to offset %d (%s)", tp, position.position, offset, how)

    # Both

    async def _next(self, now: float) -> None:
        """Wait until a partition needs a position, or the time for another attempt has come."""
        retry = self._subscription.next_retry(now)
        await self.wake.wait(None if retry is None else retry - now)

    def _report(self, error: KafkaError, tokens: PositionTokens, *, retriable: bool) -> None:
        if retriable:
            held_back = self._complaints.admit(type(error).__name__, asyncio.get_running_loop().time())
            if held_back is not None:
                logger.warning("no position yet for %s: %s%s", named(tokens), error, and_more(held_back))
        else:
            self._errors[_kind(error)] = error, tokens
            self.found.notify()

    def take_error(self, of: Collection[TopicPartition] | None = None, *, of_blocked: bool) -> KafkaError | None:
        """Return, once, an error that leaves partitions without a position; None if a seek has given them one since.

        With ``of``, it is one that leaves some of these without. Without ``of_blocked``, a missing offset is no error
        yet for a blocked partition: the listener is being called for it, and may seek.
        """
        for kind in list(self._errors):
            if (error := self._take(kind, None if of is None else frozenset(of), of_blocked)) is not None:
                return error
        return None

    def _take(self, kind: _Kind, of: frozenset[TopicPartition] | None, of_blocked: bool) -> KafkaError | None:
        error, tokens = self._errors.pop(kind)
        left = _only(tokens, [tp for tp, token in tokens.items() if self._subscription.get(tp, token) is not None])
        due = {tp for tp in left if of is None or tp in of}
        if isinstance(error, NoOffsetForPartition):
            due = {tp for tp in due if of_blocked or not self._subscription[tp].blocked}
            if rest := left.keys() - due:
                self._errors[kind] = error, _only(left, rest)
            return NoOffsetForPartition(due) if due else None
        if left and not due:
            self._errors[kind] = error, left
        return error if due else None


def _only(tokens: PositionTokens, partitions: Iterable[TopicPartition]) -> PositionTokens:
    return {tp: tokens[tp] for tp in partitions}


def _kind(error: KafkaError) -> _Kind:
    return type(error), error.code if isinstance(error, BrokerError) else 0


def _by_kind(
    errors: Mapping[TopicPartition, KafkaError], partitions: Iterable[TopicPartition]
) -> Iterable[tuple[KafkaError, list[TopicPartition]]]:
    """Return one error of each kind, with those of ``partitions`` that have one of that kind."""
    found: dict[_Kind, tuple[KafkaError, list[TopicPartition]]] = {}
    for tp in partitions:
        if (error := errors.get(tp)) is not None:
            found.setdefault(_kind(error), (error, []))[1].append(tp)
    return found.values()


def _is_passing(error: KafkaError) -> bool:
    """Whether this is an error of single partitions that may pass: GroupOffsets has retried all others long enough."""
    return isinstance(error, BrokerError) and error.retriable


_names = {EARLIEST: "earliest", LATEST: "latest"}
