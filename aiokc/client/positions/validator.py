"""Validates positions: asks a new leader whether its log holds what was read before (OffsetForLeaderEpoch, KIP-320)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Final, NamedTuple

import anyio
from anyio.abc import TaskGroup

from ...config import ClientConfig
from ...core.backoff import Backoff, retry_backoff
from ...core.cluster.by_leader import group_by_leader
from ...core.cluster.leader_hints import DENY_LEADING
from ...core.cluster.snapshot import Cluster
from ...core.fetch.buffer import FetchBuffer
from ...core.rate_limit import RateLimit
from ...core.subscription.position import PartitionPosition, PositionState
from ...core.subscription.state import Subscription
from ...error_codes import ErrorCode
from ...errors import KafkaError, MalformedResponse, UnsupportedVersion, broker_error
from ...net.pool import Pool
from ...types import TopicPartition, named
from ...wire.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ..aio.complaints import Complaints
from ..aio.signal import Signal
from ..cluster.leaderless import LeaderlessReport
from ..cluster.list_offsets import AT_ONCE
from ..cluster.metadata import Metadata

logger = logging.getLogger("aiokc.offsets")

_DIVERGING_SECONDS: Final = 30.0
_UNDEFINED: Final = -1
_CONSUMER: Final = -1  # replica_id: not a broker that replicates

# After these no partition is asked about again. Each other code says that the broker can't answer now.
_ANSWERS: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)


class _Asked(NamedTuple):
    """What was asked about one partition.

    token         the partition's token
    offset        the offset up to which its records were fetched
    epoch         the leader epoch of the last of them
    leader_epoch  the epoch of the leader that was asked
    is_read       whether a record of ``epoch`` was read; if not, all records may be of older epochs
    """

    token: int
    offset: int
    epoch: int
    leader_epoch: int
    is_read: bool


#: Called for a position after the point from which on the log is not what was read (None: that point is not known).
Truncated = Callable[[TopicPartition, PartitionPosition, "Ending | None"], None]


class Ending(NamedTuple):
    """Where the leader's log stops being what was read, the log's epoch before that, and the leader's own epoch."""

    offset: int
    epoch: int
    leader_epoch: int


class PositionValidator:
    """Validates partitions in AWAIT_VALIDATION: they go on, or ``truncated`` is called.

    First it validates what was fetched ahead of the application. If only that is gone, it is dropped and fetched again.
    ``wake`` is to be notified when there may be such partitions; ``done`` is notified when some of them go on.
    """

    def __init__(
        self,
        config: ClientConfig,
        pool: Pool,
        metadata: Metadata,
        subscription: Subscription,
        buffer: FetchBuffer,
        random: Random,
        truncated: Truncated,
    ) -> None:
        self.wake = Signal()
        self.done = Signal()
        self._pool = pool
        self._metadata = metadata
        self._subscription = subscription
        self._buffer = buffer
        self._truncated = truncated
        self._timeout = config.request_timeout_ms / 1e3
        self._new_backoff = partial(retry_backoff, config, random)
        self._backoffs: dict[int, Backoff] = {}
        self._leaderless = self._new_backoff()
        self._without_leader = LeaderlessReport(logger)
        self._diverging = RateLimit(_DIVERGING_SECONDS)
        self._behind: dict[TopicPartition, tuple[int, float]] = {}  # token, and since when the metadata are older
        self._under_way: dict[int, tuple[int, dict[TopicPartition, _Asked]]] = {}  # which leader is asked about which
        self._looked_at: Cluster | None = None  # for other leaders of these
        self._complaints = Complaints(logger)

    async def run(self) -> None:
        """Validate until cancelled, with a task for each request to a leader.

        Thousands of partitions take several requests (AT_ONCE): all in one step would hold the loop too long.
        """
        async with anyio.create_task_group() as tasks:
            while True:
                await self._leave_former_leaders()
                self._leave_lost()
                now = asyncio.get_running_loop().time()
                if self._ask_leaders(tasks, now):
                    await asyncio.sleep(0)
                    continue
                retry = self._subscription.next_retry(now)
                await self.wake.wait(None if retry is None else retry - now)

    async def _leave_former_leaders(self) -> None:
        """Have the new leaders of partitions asked, by newer metadata, while the former ones have not answered.

        A broker that hangs loses its partitions within seconds, and says nothing for request_timeout_ms.
        """
        cluster = self._metadata.cluster
        if cluster is self._looked_at or not self._under_way:
            return
        self._looked_at = cluster
        for node_id, asked in list(self._under_way.values()):
            moved = [tp for tp in asked if (leader := cluster.leader(tp)) is not None and leader.node_id != node_id]
            self._subscription.retry_now([tp for tp in moved if self._waits(tp, asked.pop(tp)) is not None])
            await asyncio.sleep(0)

    def _leave_lost(self) -> None:
        """Let go of what is kept of partitions that do not wait any more: a seek, or a new assignment."""
        lost = [tp for tp, (token, _) in self._behind.items() if self._subscription.get(tp, token) is None]
        for tp in lost:
            del self._behind[tp]

    def _ask_leaders(self, tasks: TaskGroup, now: float) -> bool:
        """Ask about as many partitions as one request may have; return whether there may be more of them."""
        subscription, cluster = self._subscription, self._metadata.cluster
        tokens = subscription.in_state(PositionState.AWAIT_VALIDATION, now, AT_ONCE)
        asked: dict[TopicPartition, _Asked] = {}
        behind: list[TopicPartition] = []
        same: dict[TopicPartition, int] = {}
        for tp, token in tokens.items():
            offset, epoch, is_read = self._buffer.frontier(tp, subscription[tp])
            leader_epoch = cluster.leader_epoch(tp)
            if epoch is None or not 0 <= leader_epoch < epoch:
                self._behind.pop(tp, None)  # if the metadata are older another time, that is out of date at first, too
            if epoch is None or leader_epoch < 0:
                same[tp] = leader_epoch  # there is no epoch to compare
            elif epoch <= leader_epoch or not self._may_be_old(tp, token, now):
                asked[tp] = _Asked(token, offset, epoch, leader_epoch, is_read)
            else:
                behind.append(tp)
        self._go_on(same)
        for node_id, part in group_by_leader(cluster, asked).items():
            subscription.retry_later(part, now + self._timeout)  # sooner, if the answer is an error
            tasks.start_soon(self._ask, node_id, part)
        without_leader = [tp for tp in asked if cluster.leader(tp) is None]
        if later := behind + without_leader:
            self._metadata.request_update()
            retry_at = now + self._leaderless.next()
            self._without_leader.searched(without_leader, cluster, now, retry_at)
            subscription.retry_later(later, retry_at)
        elif asked:
            self._leaderless.reset()
        return len(tokens) == AT_ONCE

    def _may_be_old(self, tp: TopicPartition, token: int, now: float) -> bool:
        """Whether the metadata, whose leader epoch is older than that of what was read, may still be out of date.

        A deposed leader that does not know of it yet would call every later epoch unknown, and that must not lead to a
        reset. If the metadata name no newer leader within request_timeout_ms, there is none: the log was restored from
        a backup, for example.
        """
        known, since = self._behind.get(tp, (token, now))
        self._behind[tp] = token, since if known == token else now
        return now - self._behind[tp][1] < self._timeout

    async def _ask(self, node_id: int, asked: dict[TopicPartition, _Asked]) -> None:
        """Ask a leader. What ``_leave_former_leaders`` takes out of ``asked`` meanwhile, another one is asked about."""
        self._under_way[id(asked)] = node_id, asked
        try:
            response = await self._pool.request(node_id, _request(asked), timeout=self._timeout)
        except UnsupportedVersion:
            self._go_on({tp: one.leader_epoch for tp, one in asked.items() if self._waits(tp, one) is not None})
        except KafkaError as error:
            self._retry(node_id, asked, error)
        else:
            self._take_in(node_id, asked, response)
        finally:
            del self._under_way[id(asked)]
        self.wake.notify()

    def _take_in(
        self, node_id: int, asked: dict[TopicPartition, _Asked], response: OffsetForLeaderEpochResponse
    ) -> None:
        left, unheard = dict(asked), set(asked)
        same: dict[TopicPartition, int] = {}
        is_refused = False
        denied: list[TopicPartition] = []
        for topic in response.topics:
            for end in topic.partitions:
                tp = TopicPartition(topic.topic, end.partition)
                one = left.get(tp)
                unheard.discard(tp)
                is_refused |= end.error_code not in _ANSWERS
                if one is None or self._waits(tp, one) is None:
                    left.pop(tp, None)
                elif end.error_code in (ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
                    del left[tp]  # the error: brokers up to 2.2 answer only other brokers
                    if end.error_code or self._is_same_log(tp, one, end):
                        same[tp] = one.leader_epoch
                elif end.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    del left[tp]
                    self._fail(tp, broker_error(end.error_code, f"validating the position of {tp} at broker {node_id}"))
                else:
                    error = broker_error(end.error_code, f"validating the position of {tp} at broker {node_id}")
                    self._complain(error)
                    if end.error_code in DENY_LEADING:
                        denied.append(tp)
        self._go_on(same)
        if denied:
            self._metadata.leader_denies(node_id, denied)
        unheard = {tp for tp in unheard if self._waits(tp, asked[tp]) is not None}
        if unheard:
            what = f"broker {node_id}: the answer to OffsetForLeaderEpoch says nothing about {named(unheard)}"
            self._complain(MalformedResponse(what))
        if left:
            self._retry(node_id, left, None)
        elif not is_refused:  # an error for what was sought since is one, too
            self._backoffs.pop(node_id, None)

    def _is_same_log(self, tp: TopicPartition, asked: _Asked, end: EpochEndOffset) -> bool:
        position = self._subscription[tp]
        is_unknown = _UNDEFINED in (end.leader_epoch, end.end_offset)
        # ListOffsets names the epoch of the leader that it asked. If that leader wrote nothing before the next one was
        # elected, no log knows its epoch, and no log has lost anything. A higher epoch than was asked about, which some
        # brokers name, says that the log goes on under it: only a lower one says that the log does not know this one.
        is_same = end.leader_epoch >= asked.epoch or not asked.is_read
        if not is_unknown and is_same and end.end_offset >= asked.offset:
            return True
        if asked.offset > position.position:
            # What was fetched ahead is gone. The next request asks whether the position is gone too.
            logger.info("%s: what was fetched ahead, up to offset %d, is not in the log any more", tp, asked.offset)
            self._buffer.drop(tp)
            position.is_diverging = False  # that was confirmed
            self._subscription.retry_later([tp], 0.0)
            return False
        # A lower epoch that ends after the position only says that the logs diverge somewhere before it.
        is_known = not is_unknown and end.end_offset < position.position
        ending = Ending(end.end_offset, end.leader_epoch, asked.leader_epoch) if is_known else None
        self._subscription.validated(tp, None)
        self._truncated(tp, position, ending)
        self.done.notify()
        return False

    def _waits(self, tp: TopicPartition, asked: _Asked) -> PartitionPosition | None:
        """The partition, if its token is still the one that was asked about, and it waits for the answer."""
        position = self._subscription.get(tp, asked.token)
        return position if position is not None and position.state is PositionState.AWAIT_VALIDATION else None

    def _go_on(self, epochs: Mapping[TopicPartition, int]) -> None:
        diverging: dict[TopicPartition, int] = {}
        for tp, leader_epoch in epochs.items():
            if self._subscription[tp].is_diverging:
                diverging[tp] = self._stop_comparing(tp)
            self._subscription.validated(tp, leader_epoch if leader_epoch >= 0 else None)
        if diverging:
            self._complain_of_diverging(diverging)
        if epochs:
            self.done.notify()

    def _stop_comparing(self, tp: TopicPartition) -> int:
        """Let the next Fetch for ``tp`` from where the last one began name no epoch of what was read.

        The last one did, and its answer was that the log diverges. Where that can't be asked about (a proxy hides
        OffsetForLeaderEpoch, or the broker forbids it), or the leader takes it back, the same Fetch would bring the
        same answer, for ever, and no record.
        """
        position = self._subscription[tp]
        position.diverged_at, _, _ = self._buffer.frontier(tp, position)
        return position.diverged_at

    def _complain_of_diverging(self, diverging: Mapping[TopicPartition, int]) -> None:
        """Log where these are read on from: in one line, and each partition once in 30 s, whatever others do."""
        now = asyncio.get_running_loop().time()
        if told := [tp for tp in diverging if self._diverging.admit(tp, now) is not None]:
            text = "%s: a Fetch response says that the log is not the one that was read up to there, and no answer to "
            text += "OffsetForLeaderEpoch says where they diverge; reading on from there"
            logger.warning(text, named(told, write=lambda tp: f"{tp} at offset {diverging[tp]}"))

    def _fail(self, tp: TopicPartition, error: KafkaError) -> None:
        self._subscription.validated(tp, None)
        self._buffer.fail(tp, self._subscription[tp], error)
        self.done.notify()

    def _retry(self, node_id: int, asked: dict[TopicPartition, _Asked], error: KafkaError | None) -> None:
        backoff = self._backoffs.setdefault(node_id, self._new_backoff())
        waiting = [tp for tp, one in asked.items() if self._waits(tp, one) is not None]
        self._subscription.retry_later(waiting, asyncio.get_running_loop().time() + backoff.next())
        self._metadata.disprove_leader(node_id, asked)
        self._metadata.request_update()
        if error is not None:
            self._complain(error)

    def _complain(self, error: KafkaError) -> None:
        self._complaints.warn(type(error).__name__, "%s; trying again", error)


def _request(asked: dict[TopicPartition, _Asked]) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for tp, one in asked.items():
        topics.setdefault(tp.topic, []).append(
            OffsetForLeaderPartition(
                partition=tp.partition, current_leader_epoch=one.leader_epoch, leader_epoch=one.epoch
            )
        )
    return OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=[OffsetForLeaderTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
