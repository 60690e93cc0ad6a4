"""Commits and fetches a group's offsets, with retries. Commits go out in the order of their calls, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import TypeAlias
from uuid import UUID

from ...config import ClientConfig
from ...core.group.events import MemberToken
from ...core.offsets.messages import Committed, FetchedOffset
from ...core.offsets.portions import FindTopicId, fetch_portions
from ...core.offsets.stored import StoredOffsets
from ...error_codes import ErrorCode
from ...errors import RequestTimedOut
from ...net.pool import Pool
from ...types import OffsetAndMetadata, TopicPartition
from ..aio.time_slice import MANY_PARTITIONS
from .commit import Commit, CommitSender, IsAssignedOtherwise
from .commit_order import CommitOrder, CommitSlot
from .offset_requests import OffsetRequests
from .unknown_topics import UnknownTopics


@dataclass(frozen=True, slots=True)
class AsOfItsSlot:
    """Offsets that are asked for only when the commit's slot has come.

    They may be newer than those of commits that were called for later and named their offsets then.
    """

    tell: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]]

    def __call__(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self.tell()


#: The offsets to commit, or a function that is asked for them as late as possible.
Offsets: TypeAlias = (
    Mapping[TopicPartition, OffsetAndMetadata] | Callable[[], Mapping[TopicPartition, OffsetAndMetadata]]
)


def _nobody_of(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> MemberToken | None:
    return None


def _as_named(tp: TopicPartition, offset: OffsetAndMetadata) -> bool:
    return False


def _no_topic_id(topic: str) -> UUID | None:
    return None


def _tell_nobody(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    pass


def _no_doubts(partitions: Iterable[TopicPartition]) -> None:
    pass


def _no_member(member: MemberToken, error_code: int) -> None:
    pass


class GroupOffsets:
    """Commits and fetches the offsets of ``group_id``, in the name of one of its members or of none."""

    def __init__(
        self,
        config: ClientConfig,
        pool: Pool,
        group_id: str,
        random: Random,
        *,
        request_metadata: Callable[[], None],
    ) -> None:
        self.requests = OffsetRequests(config, pool, group_id, random, request_metadata)
        self._stored = StoredOffsets()
        self.commit_order = CommitOrder(on_end=self._stored.let_go)
        self._config = config
        self._group_id = group_id

    async def commit(
        self,
        offsets: Offsets,
        *,
        timeout: float,
        sender: CommitSender = _nobody_of,
        is_assigned_otherwise: IsAssignedOtherwise = _as_named,
        current_id: FindTopicId = _no_topic_id,
        unknown: UnknownTopics | None = None,
        on_stored: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] = _tell_nobody,
        on_unsure: Callable[[Iterable[TopicPartition]], None] = _no_doubts,
        on_refused: Callable[[MemberToken, int], None] = _no_member,
        retry: bool = True,
        slot: CommitSlot | None = None,
        rewinds: Collection[TopicPartition] = (),
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Store all of ``offsets``, and return them. Commits go out in the order of their calls, one at a time.

        So a retry of an older commit never overtakes and undoes a newer one (but for a request that is still in a
        connection which was given up: the broker may read that at any time). A ``slot`` that was taken earlier stands
        for the time of the call. An offset is neither sent nor returned if a newer one of its partition is stored; if
        the newer one may be stored, that is sent, and returned, in its place (``StoredOffsets.to_send``). ``rewinds``:
        the partitions that the call takes back behind what was processed then. If ``offsets`` is a function, it is
        called when the slot has come. Its offsets count as those of that moment if it is an AsOfItsSlot, so they are
        never older than those stored, and else as those of the call.

        Each offset is stored for the topic it belongs to. If ``current_id``, at any attempt, gives another id for that
        topic's name, the topic was recreated: that raises CommitFailed, once all other offsets are stored. So does an
        offset of another topic than the one that the member is assigned (``is_assigned_otherwise``).

        Retriable errors are retried until ``timeout`` seconds are over (then RequestTimedOut names the last error), or
        not at all without ``retry``. If all offsets left to store are of topics that the coordinator does not know, and
        that do not exist (``unknown``), or were recreated, the coordinator's error is raised after
        retry_backoff_max_ms; not before, because brokers hear of a new topic one by one. Raises CommitFailed,
        MemberFenced, AuthorizationFailed, BrokerError (REBALANCE_IN_PROGRESS, ...), and whatever ``sender`` raises,
        which is asked before each request. Where topics are forbidden, or not known, all other offsets are stored
        before that is raised or tried again. After an error, some of the offsets may be stored. ``on_stored`` is called
        with those that an answer says are, also where other partitions of it are refused. ``on_unsure`` is called with
        partitions whose offset may be stored, or not: the call was cancelled, or an attempt got no answer, or one that
        leaves it open. ``on_refused`` is called with the code by which a coordinator has refused an attempt of a
        member: what this client refuses by itself may be raised as the same error, and says nothing of the member.
        """
        now = asyncio.get_running_loop().time()
        deadline = now + timeout
        async with self._slot(deadline, timeout, slot) as mine:
            await asyncio.sleep(0)  # the caller has just looked at each partition, and so does what follows
            is_named = not isinstance(offsets, AsOfItsSlot)
            order = mine.order if is_named else self.commit_order.now()
            wanted = self._newest_of(offsets() if callable(offsets) else offsets, order, rewinds)
            if len(wanted) > MANY_PARTITIONS:
                await asyncio.sleep(0)  # the first request has its own look at each: see ``sender``
            if wanted:
                commit = Commit(
                    requests=self.requests,
                    stored=self._stored,
                    remaining=wanted.copy(),
                    order=order,
                    is_named=is_named,
                    may_be_new_until=now + self._config.retry_backoff_max_ms / 1e3,
                    sender=sender,
                    is_assigned_otherwise=is_assigned_otherwise,
                    current_id=current_id,
                    unknown=unknown,
                    on_stored=on_stored,
                    on_unsure=on_unsure,
                    on_refused=on_refused,
                )
                what = f"commit for group {self._group_id!r}"
                await self.requests.retried(commit.attempt, deadline, what, retry, commit.is_hopeless)
        return wanted

    def _newest_of(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], order: int, rewinds: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return these offsets, but where a newer one is stored, none, and where it may be stored, that one."""
        to_send = self._stored.to_send
        return {
            tp: newest
            for tp, offset in offsets.items()
            if (newest := to_send(tp, offset, order, is_rewind=tp in rewinds)) is not None
        }

    @asynccontextmanager
    async def _slot(self, deadline: float, timeout: float, slot: CommitSlot | None) -> AsyncIterator[CommitSlot]:
        slot = slot or self.commit_order.take()
        try:
            try:
                await slot.wait(deadline)
            except TimeoutError as error:
                raise RequestTimedOut(
                    f"commit for group {self._group_id!r} not sent within {timeout:.3g} s: "
                    "an earlier one is still being tried"
                ) from error
            yield slot
        finally:
            slot.end()

    async def fetch(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float,
        topic_ids: FindTopicId = _no_topic_id,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each of ``partitions``; None for a partition that has none.

        An offset that an open transaction is about to replace does not count as none: this waits for it.
        Raises RequestTimedOut after ``timeout`` seconds, with the last error; AuthorizationFailed; BrokerError.
        """
        found = await self._fetch(partitions, timeout, topic_ids, partly=False)
        return found.offsets

    async def fetch_known(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float,
        topic_ids: FindTopicId = _no_topic_id,
    ) -> Committed:
        """As ``fetch``, but an error of single partitions is returned, and at once: it keeps nothing of the others."""
        return await self._fetch(partitions, timeout, topic_ids, partly=True)

    async def _fetch(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float,
        topic_ids: FindTopicId,
        *,
        partly: bool,
    ) -> Committed:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        wanted = list(dict.fromkeys(partitions))
        if not wanted:
            return Committed({})

        async def attempt(left: float) -> Committed:
            until = loop.time() + left
            found: dict[TopicPartition, FetchedOffset] = {}
            for portion in fetch_portions(wanted):
                found |= await self.requests.fetch(portion, until - loop.time(), topic_ids)
                await asyncio.sleep(0)  # an answer and the next request in one step would hold the loop for both
            codes = {tp: one.error_code for tp, one in found.items() if one.error_code != ErrorCode.NONE}
            if codes and not partly:
                raise self.requests.worst(codes, needs="DESCRIBE")
            offsets = {tp: one.offset for tp, one in found.items() if tp not in codes}
            return Committed(offsets, self.requests.errors(codes, "DESCRIBE"))

        return await self.requests.retried(attempt, deadline, f"fetch of the offsets of group {self._group_id!r}")
