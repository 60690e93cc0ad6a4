"""Asks leaders for offsets by timestamp, and sets the positions of the partitions that wait for one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import cast

from anyio.abc import TaskGroup

from ...config import ConsumerConfig
from ...core.backoff import Backoff, retry_backoff
from ...core.cluster.by_leader import group_by_leader
from ...core.cluster.snapshot import Cluster
from ...core.subscription.position import AWAIT_RESET
from ...core.subscription.state import Subscription
from ...errors import AuthenticationFailed
from ...types import EARLIEST, LATEST, TopicPartition, partition_count
from ..aio.complaints import Complaints
from ..aio.signal import Signal
from ..cluster.leaderless import LeaderlessReport
from ..cluster.list_offsets import AT_ONCE, Answer, Asked, Found, OffsetLister, may_pass
from ..cluster.metadata import Metadata
from .position_errors import SET_AT_ONCE, PositionErrors, PositionTokens, by_kind, only

logger = logging.getLogger("aiokc.offsets")


class TimestampPositions:
    """Gives partitions in AWAIT_RESET the offset of their timestamp; where no record is as new, the end of the log.

    Parameters are those of PositionFinder, and what it shares: its signals and its errors.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: Metadata,
        lister: OffsetLister,
        random: Random,
        *,
        connect_to: Callable[[Iterable[int]], None],
        wake: Signal,
        found: Signal,
        errors: PositionErrors,
    ) -> None:
        self._subscription = subscription
        self._metadata = metadata
        self._lister = lister
        self._connect_to = connect_to
        self._wake = wake
        self._found = found
        self._errors = errors
        self._request_timeout = config.request_timeout_ms / 1e3
        self._new_backoff = partial(retry_backoff, config, random)
        self._backoffs: dict[int, Backoff] = {}
        self._complaints = Complaints(logger)
        self._report = LeaderlessReport(logger)
        self._absent: frozenset[TopicPartition] = frozenset()
        self._leaderless: PositionTokens = {}  # the partitions that wait for metadata which name their leader
        self._under_way: dict[int, tuple[int, PositionTokens]] = {}  # which leader is asked for which partitions
        self._looked_at: Cluster | None = None  # for leaders of these

    async def run(self, tasks: TaskGroup) -> None:
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
                self._complain_of_absent(without_leader)
                there = [tp for tp in without_leader if tp not in self._absent]
                retry_at = now + leaderless.next()
                self._report.searched(there, self._metadata.cluster, now, retry_at)
                subscription.retry_later(without_leader, retry_at)
                self._leaderless.update((tp, tokens[tp]) for tp in without_leader)
            elif tokens:
                leaderless.reset()
            if len(tokens) < AT_ONCE:
                retry = self._subscription.next_retry(now)
                await self._wake.wait(None if retry is None else retry - now)
            else:
                await asyncio.sleep(0)

    async def _first_topics(self, until: float) -> None:
        """Wait until the metadata have a topic, or for the time of the next request for them."""
        loop = asyncio.get_running_loop()
        while not self._metadata.cluster.topics and (left := until - loop.time()) > 0:
            await self._wake.wait(left)

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
                if done % SET_AT_ONCE == 0:
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
        for begin in range(0, len(waiting), SET_AT_ONCE):
            if begin:
                await asyncio.sleep(0)
            led: list[TopicPartition] = []
            for tp in waiting[begin : begin + SET_AT_ONCE]:
                if self._subscription.get(tp, self._leaderless[tp]) is None:
                    del self._leaderless[tp]  # a seek, or a new assignment
                elif cluster.leader(tp) is not None:
                    del self._leaderless[tp]
                    led.append(tp)
            self._subscription.retry_now(led)

    def _complain_of_absent(self, partitions: Iterable[TopicPartition]) -> None:
        """Warn about a partition that was assigned by hand and that its topic does not have: that may be a slip.

        The first time it is not logged: the metadata may be older than the partition.
        """
        topics = {} if self._subscription.by_topics else self._metadata.cluster.topics
        seen, self._absent = (
            self._absent,
            frozenset(tp for tp in partitions if tp.topic in topics and self._metadata.cluster.partition(tp) is None),
        )
        for tp in sorted(seen & self._absent):
            text = "%s does not exist: its topic has %d partitions; looking again until it does"
            self._complaints.warn(tp, text, tp, partition_count(topics[tp.topic].partitions))

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
            if done % SET_AT_ONCE == 0:
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
            for error, lacking in by_kind(answer.errors, left):
                is_retriable = may_pass(error) or isinstance(error, AuthenticationFailed)
                self._errors.report(error, only(tokens, lacking), retriable=is_retriable)
        elif not answer.errors and None not in found.values():  # an error for what was sought since is one, too
            self._backoffs.pop(node_id, None)
        self._found.notify()
        self._wake.notify()

    def _log(self, tp: TopicPartition, offset: int, timestamp: int) -> None:
        """Log both offsets of a reset: as a warning if the log had lost the old one, since no caller asked for that."""
        position = self._subscription[tp]
        how = _names.get(timestamp, f"the first record of {timestamp} or later")
        if position.position < 0:
            logger.info("%s: position set to offset %d (%s)", tp, offset, how)
        else:
            level = logging.WARNING if position.lost else logging.INFO
            logger.log(level, "%s: position reset from offset %d to offset %d (%s)", tp, position.position, offset, how)


_names = {EARLIEST: "earliest", LATEST: "latest"}
