"""Handles Fetch responses, partition by partition, in time slices: stores records, updates positions and metadata."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...config import ClientConfig
from ...core.cluster.leader_hints import DENY_LEADING
from ...core.cluster.snapshot import NewLeader
from ...core.counters import FetchCounters
from ...core.fetch.buffer import FetchBuffer
from ...core.fetch.partition.partition_buffer import PartitionBuffer
from ...core.fetch.planner import FetchPlanner
from ...core.fetch.refusals import FetchRefusals
from ...core.fetch.response import Answer, Verdict, fetched, is_plain
from ...core.fetch.session import FetchPlan, FetchTarget
from ...core.subscription.position import FETCHING, PartitionPosition
from ...core.subscription.state import Subscription
from ...errors import KafkaError
from ...types import Broker, TopicPartition
from ...wire.messages.fetch import FetchResponse, PartitionData
from ..aio.time_slice import TimeSlice, let_others_run
from ..cluster.metadata import Metadata
from ..positions.resets import PositionResets

logger = logging.getLogger("aiokc.fetch")

# An application is done with so many bytes of records in about the time that it takes to send the next Fetch.
_LITTLE_BYTES = 16 << 10

# So many partitions are stored between two looks at the clock, if each has brought one run: some 50 µs.
_RUNS_BETWEEN_LOOKS = 8


class FetchResponseHandler:
    """Puts records into ``buffer``, the log's offsets into the positions, and news of the cluster into ``metadata``.

    ``complain(about, error)`` is called for each error that will be retried; ``about`` names the broker or partition.
    """

    def __init__(
        self,
        config: ClientConfig,
        metadata: Metadata,
        subscription: Subscription,
        buffer: FetchBuffer,
        planner: FetchPlanner,
        lost: PositionResets,
        refusals: FetchRefusals,
        counters: FetchCounters,
        complain: Callable[[str, KafkaError], None],
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._read_committed = config.isolation_level == "read_committed"
        self._metadata = metadata
        self._subscription = subscription
        self._buffer = buffer
        self._planner = planner
        self._lost = lost
        self._refusals = refusals
        self._counters = counters
        self._complain = complain
        self._clock = clock

    async def take_in(
        self, answers: list[tuple[FetchTarget, PartitionData]], response: FetchResponse, plan: FetchPlan
    ) -> bool:
        """Store a response, partition by partition, letting other tasks run after each time slice.

        Return whether it brought little, and all that there was.
        """
        time = asyncio.get_running_loop().time
        # The first partition is one step, and most answers have no other.
        time_slice = TimeSlice.begun() if len(answers) > 1 else None
        heard_at, node_id = self._clock(), plan.node_id
        moved = self._learn_leaders(answers, response, node_id)
        is_throttled = response.throttle_time_ms > 0 and not answers  # then it says nothing about any partition
        self._note_refusals(answers, plan, time(), is_throttled=is_throttled)
        later: list[FetchTarget] = []
        size, goes_on, unlooked = 0, False, 0
        for target, data in answers:
            unlooked -= 1
            if unlooked < 0:
                if time_slice is not None and time() > time_slice.ends:
                    await time_slice.give_way()
                unlooked = _RUNS_BETWEEN_LOOKS
            position = self._position_of(target)
            if position is None:
                continue
            buffer = None if moved else self._store_run(target, data, position, node_id, heard_at)
            if buffer is None:
                unlooked = 0  # this may take longer
                if moved and target.tp in moved:
                    self._subscription.touch(target.tp)
                    continue
                if not (
                    self._store(target, data, position, plan, heard_at)
                    if is_plain(data)
                    else self._apply(Answer(target, data), position, plan)
                ):
                    later.append(target)
                    continue
                if not data.records:
                    continue
                buffer = await self._add_rest(target, time_slice or TimeSlice.begun())
            size += len(data.records or b"")
            goes_on = goes_on or self._goes_on(buffer, position)
        # A broker leaves partitions out of a response that is as long as it may be: they may have more.
        has_more = goes_on or 2 * size > plan.max_bytes
        if has_more or not (plan.is_of_some or is_throttled):
            self._planner.answered(node_id, has_more=has_more, is_of_some=plan.is_of_some)
        if later:
            # Other tasks may have run since: what was sought meanwhile is to be fetched at once.
            left = [target.tp for target in later if self._subscription.get(target.tp, target.token) is not None]
            self._subscription.retry_later(left, time() + self._config.retry_backoff_ms / 1e3)
        while self._buffer.is_replacing:
            await let_others_run()
            self._buffer.replace()
        return not has_more and size <= _LITTLE_BYTES

    def _position_of(self, target: FetchTarget) -> PartitionPosition | None:
        """Return the position that an answer is for; None where the answer is stale."""
        position = self._subscription.get(target.tp, target.token)
        if position is None or position.state is not FETCHING:
            return None  # revoked, or sought away from, while the Fetch was in flight
        epoch = position.checked_epoch
        if target.leader_epoch != (-1 if epoch is None else epoch):
            return None  # Another leader was elected since: this one may not have known that (KIP-320).
        return position

    async def _add_rest(self, target: FetchTarget, time_slice: TimeSlice) -> PartitionBuffer | None:
        """Store the rest of a partition's batches, letting other tasks run after each time slice; return the buffer.

        Stops where the answer becomes stale meanwhile: the token has changed, or the partition has another leader.
        """
        time = asyncio.get_running_loop().time
        buffer = self._buffer.of(target.tp)
        while buffer is not None and buffer.is_arriving:
            if time() > time_slice.ends:
                await time_slice.give_way()
            position = self._position_of(target)
            if position is None:
                self._buffer.leave_rest(buffer)
            else:
                self._buffer.add_more(buffer, position)
        return self._buffer.of(target.tp)

    def _goes_on(self, buffer: PartitionBuffer | None, position: PartitionPosition) -> bool:
        """Whether the log holds more of a partition than was fetched."""
        end = position.last_stable_offset if self._read_committed else position.high_watermark
        if end is None:
            return False
        return (buffer.end if buffer is not None and buffer.token == position.token else position.position) < end

    def _learn_leaders(
        self, answers: list[tuple[FetchTarget, PartitionData]], response: FetchResponse, node_id: int
    ) -> set[TopicPartition]:
        """Take over the leaders that the response names (KIP-951); return the partitions that have a new leader by it.

        These are fetched from their new leaders at once; a refresh of the metadata is requested as well. Where broker
        ``node_id`` says that it is no leader, and only a response has named it, the metadata count again.
        """
        refused = [(target, data) for target, data in answers if data.error_code]
        if not refused:
            return set()
        leaders = {
            target.tp: NewLeader(data.current_leader.leader_id, data.current_leader.leader_epoch, target.topic_id)
            for target, data in refused
            if data.current_leader is not None
        }
        moved: set[TopicPartition] = set()
        if leaders:
            self._metadata.request_update()
            nodes = response.node_endpoints
            moved = self._metadata.learn_leaders(
                leaders, {node.node_id: Broker(node.node_id, node.host, node.port, node.rack) for node in nodes}
            )
        if denied := {target.tp for target, data in refused if data.error_code in DENY_LEADING} - moved:
            self._metadata.leader_denies(node_id, denied)
        return moved

    def _apply(self, answer: Answer, position: PartitionPosition, plan: FetchPlan) -> bool:
        """Do what an answer other than DATA means; return False if it is to be fetched again after a pause."""
        tp, node_id = answer.target.tp, plan.node_id
        match answer.verdict:
            case Verdict.FAIL | Verdict.OUT_OF_RANGE | Verdict.REFRESH | Verdict.RETRY if (
                position.read_replica == node_id
            ):
                # A follower may lag: only what the leader says about the log counts (KIP-392).
                self._complain(tp.topic, answer.error(node_id))
                retry_at = asyncio.get_running_loop().time() + self._config.retry_backoff_ms / 1e3
                self._planner.avoided.erred(node_id, tp, answer.target.offset, retry_at)
                self._subscription.read_from(tp, None)
                self._metadata.request_update()
            case Verdict.FAIL:
                self._buffer.begin(fetched(answer.target, answer.data, node_id, answer.error(node_id)), position)
                self._is_led_here(tp, answer.data, plan)
                return True
            case Verdict.OUT_OF_RANGE:
                # A late answer of a follower says no more than its first one: two Fetches have asked it, and by the
                # other's answer, or since its time was over, the partition is to be fetched from the leader again.
                if self._leads(node_id, tp):
                    return self._lost.out_of_range(answer, position, node_id)
            case Verdict.DIVERGING:
                self._subscription.await_validation(tp, is_diverging=True)
            case Verdict.REFRESH | Verdict.RETRY:
                return self._refused(answer, position, node_id)
        return False

    def _note_refusals(
        self, answers: list[tuple[FetchTarget, PartitionData]], plan: FetchPlan, now: float, *, is_throttled: bool
    ) -> None:
        if is_throttled:
            return
        known = () if plan.is_beside else self._planner.session(plan.node_id).known
        self._refusals.answered(answers, now, plan.session.asked, known)

    def _refused(self, answer: Answer, position: PartitionPosition, node_id: int) -> bool:
        """The leader refuses the partition for the moment. Return False if it is to be fetched again soon."""
        tp, error = answer.target.tp, answer.error(node_id)
        self._complain(tp.topic, error)
        if answer.verdict is Verdict.REFRESH:
            self._metadata.request_update()
        retry_at = self._refusals.refused(tp, position.token, error, node_id, asyncio.get_running_loop().time())
        if retry_at is None:
            return False
        self._subscription.retry_later((tp,), retry_at)
        return True

    def _leads(self, node_id: int, tp: TopicPartition) -> bool:
        """Whether that broker is the leader by the metadata: the one that the next Fetch for ``tp`` is sent to."""
        leader = self._metadata.cluster.leader(tp)
        return leader is not None and leader.node_id == node_id

    def _store_run(
        self, target: FetchTarget, data: PartitionData, position: PartitionPosition, node_id: int, heard_at: float
    ) -> PartitionBuffer | None:
        """Do what ``_store`` does, if one run came and nothing else was said; else do nothing, and return None.

        Where partitions are many, that is so of nearly all of them.
        """
        records = data.records
        if not records or data.error_code or data.aborted_transactions or data.preferred_read_replica != -1:
            return None
        if data.diverging_epoch is not None:
            return None
        buffer = self._buffer.add_run(target.tp, target.offset, records, position, node_id)
        if buffer is not None:
            position.learn(data.high_watermark, data.last_stable_offset, data.log_start_offset)
            position.heard_at, position.retry_at = heard_at, 0.0
            self._counters.bytes += len(records)
        return buffer

    def _store(
        self, target: FetchTarget, data: PartitionData, position: PartitionPosition, plan: FetchPlan, heard_at: float
    ) -> bool:
        """Store the records that came, and what the broker said of the log.

        Return False if the partition is to be fetched again after a pause.
        """
        is_done = data.preferred_read_replica == -1 or self._is_led_here(target.tp, data, plan)
        position.learn(data.high_watermark, data.last_stable_offset, data.log_start_offset)
        position.heard_at, position.retry_at = heard_at, 0.0
        if not data.records:
            return is_done
        self._counters.bytes += len(data.records)
        self._buffer.begin(fetched(target, data, plan.node_id), position)
        return True

    def _is_led_here(self, tp: TopicPartition, data: PartitionData, plan: FetchPlan) -> bool:
        """Follow the leader to a preferred replica, if it names one (KIP-392).

        Return False if the metadata do not know that replica yet: the leader sends no records before.
        """
        replica = data.preferred_read_replica
        if replica in (-1, plan.node_id):
            return True
        if not self._metadata.cluster.has_replica(tp, replica):
            self._metadata.request_update()  # asked again at once, it would name the replica again, and send no records
            return False
        until = asyncio.get_running_loop().time() + self._config.metadata_max_age_ms / 1e3
        self._planner.avoided.named(replica, with_rack=plan.with_rack)
        logger.debug("%s is fetched from broker %d from now on", tp, replica)
        self._subscription.read_from(tp, replica, until)
        return True
