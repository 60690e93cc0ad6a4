"""Looks up committed offsets for partitions without a position; where there is none, auto_offset_reset decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice
from random import Random

from ...config import ConsumerConfig
from ...core.backoff import retry_backoff
from ...core.cluster.by_leader import group_by_leader
from ...core.offsets.messages import Committed
from ...core.subscription.offset_reset import OffsetReset
from ...core.subscription.position import INITIALIZING
from ...core.subscription.state import Subscription
from ...errors import AuthenticationFailed, BrokerError, KafkaError, NoOffsetForPartition
from ...types import EARLIEST, OffsetAndMetadata, TopicPartition
from ..aio.signal import Signal
from ..cluster.metadata import Metadata
from .position_errors import SET_AT_ONCE, PositionErrors, PositionTokens, only

logger = logging.getLogger("aiokc.offsets")

#: Returns the group's committed offset of each partition that has no error of its own.
FetchCommitted = Callable[[Iterable[TopicPartition]], Awaitable[Committed]]


class CommittedPositions:
    """Gives partitions in INITIALIZING their committed offset, or what auto_offset_reset says where there is none.

    Parameters are those of PositionFinder, and what it shares: its signals and its errors.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: Metadata,
        fetch_committed: FetchCommitted | None,
        random: Random,
        clock: Callable[[], float],
        *,
        connect_to: Callable[[Iterable[int]], None],
        wake: Signal,
        found: Signal,
        errors: PositionErrors,
    ) -> None:
        self._subscription = subscription
        self._metadata = metadata
        self._fetch_committed = fetch_committed
        self._reset = OffsetReset(config.auto_offset_reset)
        # Without a group there is nobody to ask first, so the partitions can be taken a few at a time.
        self._begins_at_earliest = fetch_committed is None and self._reset.timestamp(clock()) == EARLIEST
        self._backoff = retry_backoff(config, random)
        self._clock = clock
        self._request_timeout = config.request_timeout_ms / 1e3
        self._connect_to = connect_to
        self._wake = wake
        self._found = found
        self._errors = errors

    async def run(self) -> None:
        """Look up committed offsets until cancelled; retry a failed lookup after a growing pause."""
        loop = asyncio.get_running_loop()
        failing_since: float | None = None
        while True:
            now = loop.time()
            if self._begins_at_earliest:
                await self._await_earliest()
            tokens = self._subscription.in_state(INITIALIZING, now)
            if not tokens:
                retry = self._subscription.next_retry(now)
                await self._wake.wait(None if retry is None else retry - now)
                continue
            errors = await self._look_up_committed(tokens)
            if not errors:
                self._backoff.reset()
                failing_since = None
                continue
            failing_since = now if failing_since is None else failing_since
            still, retry_at = self._subscription.in_state(INITIALIZING, now), loop.time() + self._backoff.next()
            for error, lacking in errors:
                self._subscription.retry_later([tp for tp in lacking if still.get(tp) == lacking[tp]], retry_at)
                # A single partition may wait for a transaction's end: that is worth a word only if it takes long.
                if not _is_passing(error) or loop.time() - failing_since >= self._request_timeout:
                    is_retriable = error.retriable or isinstance(error, AuthenticationFailed)
                    self._errors.report(error, lacking, retriable=is_retriable)

    async def _await_earliest(self) -> None:
        """Have the first offset of each partition looked up, a few hundred in a step: there may be ten thousand."""
        has_news, now = False, asyncio.get_running_loop().time
        while tokens := self._subscription.in_state(INITIALIZING, now(), SET_AT_ONCE):
            self._subscription.await_resets(tokens, EARLIEST)
            has_news = True
            await asyncio.sleep(0)
        if has_news:
            self._found.notify()
            # An assignment wakes the loop of TimestampPositions first, as a rule. It finds nothing, and waits again:
            # where nothing is fetched, and no metadata are on their way, for metadata_max_age_ms.
            self._wake.notify()

    async def _look_up_committed(self, tokens: PositionTokens) -> list[tuple[KafkaError, PositionTokens]]:
        """Set the positions that are found. Return the errors, each with the partitions that it leaves without one.

        What a coordinator does not tell of one partition, such as one of a forbidden topic, keeps no other from its
        position.
        """
        committed = Committed({})
        if self._fetch_committed is not None:
            some = dict(islice(tokens.items(), SET_AT_ONCE))
            self._connect_to(group_by_leader(self._metadata.cluster, some))
            try:
                committed = await self._fetch_committed(tokens)
            except KafkaError as error:
                return [(error, tokens)]
        errors: list[tuple[KafkaError, PositionTokens]] = []
        if committed.errors:
            errors += [(error, only(tokens, lacking)) for error, lacking in committed.errors]
            tokens = only(tokens, committed.offsets)
        if missing := await self._set_committed(tokens, committed.offsets):
            errors.append((NoOffsetForPartition(missing), only(tokens, missing)))
        return errors

    async def _set_committed(
        self, tokens: PositionTokens, committed: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> list[TopicPartition]:
        """Set the positions of all these. Return those that have no committed offset, and no other place to begin."""
        missing: list[TopicPartition] = []
        timestamp = self._reset.timestamp(self._clock())
        for done, (tp, token) in enumerate(tokens.items(), start=1):
            if done % SET_AT_ONCE == 0:
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
        self._found.notify()
        self._wake.notify()  # for the other loop: some partitions are to be looked up by timestamp now
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


def _is_passing(error: KafkaError) -> bool:
    """Whether this is an error of single partitions that may pass: GroupOffsets has retried all others long enough."""
    return isinstance(error, BrokerError) and error.retriable
