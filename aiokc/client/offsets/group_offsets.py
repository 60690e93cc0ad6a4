"""Commits and fetches a group's offsets (OffsetCommit, OffsetFetch), with retries; never one of a recreated topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from ...config import ClientConfig
from ...core.backoff import retry_backoff
from ...core.group.events import MemberToken
from ...core.offsets.messages import (
    TOPIC_IDS,
    Committed,
    FetchedOffset,
    PartitionsError,
    TopicIds,
    commit_codes,
    commit_request,
    fetch_code,
    fetch_request,
    fetched_offsets,
)
from ...core.stopwatch import RequestCounter
from ...core.subscription.position import is_of_another_topic
from ...error_codes import ErrorCode
from ...errors import BrokerError, CommitFailed, KafkaError, RequestTimedOut, broker_error
from ...net.pool import Pool
from ...types import OffsetAndMetadata, TopicPartition
from ...wire import prepare
from ...wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from ..cluster.coordinator_lookup import CoordinatorLookup
from .commit_order import CommitOrder, CommitSlot
from .unknown_topics import UnknownTopics

prepare(OffsetFetchRequest, OffsetCommitRequest)

# The most partitions in one OffsetFetch or OffsetCommit; more of them take several requests, one after the other. So
# neither writing a request nor reading its answer holds the loop for long.
_AT_ONCE: Final = 1_000

T = TypeVar("T")
FindTopicId: TypeAlias = Callable[[str], UUID | None]


@dataclass(frozen=True, slots=True)
class AsOfItsSlot:
    """Offsets that are asked for only when the commit's slot has come.

    They may be newer than those of commits that were called for later and named their offsets then.
    """

    tell: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]]

    def __call__(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self.tell()


@dataclass(frozen=True, slots=True)
class _Stored:
    """The offset of a partition that was committed last.

    named  the order of the newest call that named its offset and was stored; 0: none. What is stored may be newer.
    known  when ``offset`` was known: the order of its call; with AsOfItsSlot, of the moment in the slot
    """

    named: int
    known: int
    offset: OffsetAndMetadata


#: The offsets to commit, or a function that is asked for them as late as possible.
Offsets: TypeAlias = (
    Mapping[TopicPartition, OffsetAndMetadata] | Callable[[], Mapping[TopicPartition, OffsetAndMetadata]]
)

# After these errors the coordinator is looked up anew. The offsets of a commit may be stored all the same: so a broker
# says, too, that it has appended them, and has not heard in time from enough replicas.
_NOT_THE_COORDINATOR: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)
# After these errors the metadata are asked for anew: the topic may have been deleted or recreated.
TOPIC_NOT_KNOWN: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
# These errors say nothing of other topics: their offsets are stored all the same.
_OF_SINGLE_TOPICS: Final = TOPIC_NOT_KNOWN | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
# After these errors the group has gone on without the member that sent the commit.
_OUTSIDE_THE_GROUP: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


#: Returns the member in whose name to commit these offsets now (None: none). Raises CommitFailed if their partitions
#: are gone.
CommitSender: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata]], MemberToken | None]


def _nobody_of(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> MemberToken | None:
    return None


def _no_topic_id(topic: str) -> UUID | None:
    return None


def _nobody() -> MemberToken | None:
    return None


def _tell_nobody(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    pass


def _no_doubts(partitions: Iterable[TopicPartition]) -> None:
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
        request_metadata: Callable[[], None] | None = None,
    ) -> None:
        self.lookup = CoordinatorLookup(config, pool, group_id, random, request_metadata)
        self._config = config
        self._group_id = group_id
        self._request_metadata = request_metadata
        self._random = random
        self.commit_order = CommitOrder()
        self._stored: dict[TopicPartition, _Stored] = {}
        self.commits = RequestCounter()
        #: Called when the coordinator has a newer epoch of the member than the request (KIP-848).
        self.on_stale: Callable[[], None] = lambda: None

    async def commit(
        self,
        offsets: Offsets,
        *,
        timeout: float,
        sender: CommitSender = _nobody_of,
        current_id: FindTopicId = _no_topic_id,
        unknown: UnknownTopics | None = None,
        on_stored: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] = _tell_nobody,
        on_unsure: Callable[[Iterable[TopicPartition]], None] = _no_doubts,
        retry: bool = True,
        slot: CommitSlot | None = None,
        rewinds: Collection[TopicPartition] = (),
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Store all of ``offsets``, and return them. Commits go out in the order of their calls, one at a time.

        So a retry of an older commit never overtakes and undoes a newer one (but for a request that is still in a
        connection which was given up: the broker may read that at any time). A ``slot`` that was taken earlier stands
        for the time of the call. An offset is neither sent nor returned if a newer one of its partition is stored
        (``_is_over``). ``rewinds``: the partitions that the call takes back behind what was processed then. If
        ``offsets`` is a function, it is called when the slot has come. Its offsets count as those of that moment if it
        is an AsOfItsSlot, so they are never older than those stored, and else as those of the call.

        Each offset is stored for the topic it belongs to. If ``current_id``, at any attempt, gives another id for that
        topic's name, the topic was recreated: that raises CommitFailed, once all other offsets are stored.

        Retriable errors are retried until ``timeout`` seconds are over (then RequestTimedOut names the last error), or
        not at all without ``retry``. If all offsets left to store are of topics that the coordinator does not know, and
        that do not exist (``unknown``), or were recreated, the coordinator's error is raised after
        retry_backoff_max_ms; not before, because brokers hear of a new topic one by one. Raises CommitFailed,
        MemberFenced, AuthorizationFailed, BrokerError (REBALANCE_IN_PROGRESS, ...), and whatever ``sender`` raises,
        which is asked before each attempt. Where topics are forbidden, or not known, all other offsets are stored
        before that is raised or tried again. After an error, some of the offsets may be stored. ``on_stored`` is called
        with those that an answer says are, also where other partitions of it are refused. ``on_unsure`` is called with
        partitions whose offset may be stored, or not: the call was cancelled, or an attempt got no answer, or one that
        leaves it open.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        may_be_new_until = loop.time() + self._config.retry_backoff_max_ms / 1e3
        remaining: dict[TopicPartition, OffsetAndMetadata] = {}

        def is_hopeless(error: KafkaError) -> bool:
            is_unknown = isinstance(error, BrokerError) and error.code in TOPIC_NOT_KNOWN
            if unknown is None or not is_unknown or loop.time() < may_be_new_until:
                return False
            return unknown.all_gone(remaining, current_id)

        async def attempt(left: float) -> None:
            until = loop.time() + left
            refused: dict[TopicPartition, int] = {}
            while pending := _without(remaining, refused):
                member = sender(remaining)
                portion = _portion(pending, current_id)
                if not portion:
                    break
                try:
                    codes = await self._send_commit(portion, member, until - loop.time())
                except BaseException:  # a cancellation, too: the request may have been sent
                    on_unsure(portion)
                    raise
                stored = {tp: remaining.pop(tp) for tp in portion if codes[tp] == ErrorCode.NONE}
                self._note_stored(stored, order, is_named)
                on_stored(stored)
                refused |= {tp: codes[tp] for tp in portion if tp not in stored}
                if not _OF_SINGLE_TOPICS.issuperset(refused.values()):
                    break
            if refused:
                on_unsure(tp for tp, code in refused.items() if code in _NOT_THE_COORDINATOR)
                if unknown is not None:
                    unknown.follow(_former_topics(remaining, refused))
                raise self._commit_error(member, refused)
            if remaining:
                raise self._of_former_topics(remaining)

        async with self._slot(deadline, timeout, slot) as mine:
            is_named = not isinstance(offsets, AsOfItsSlot)
            order = mine.order if is_named else self.commit_order.now()
            wanted = offsets() if callable(offsets) else offsets
            wanted = {
                tp: offset for tp, offset in wanted.items() if not self._is_over(tp, offset, order, tp in rewinds)
            }
            remaining.update(wanted)
            if remaining:
                what = f"commit for group {self._group_id!r}"
                await self._retried(attempt, deadline, what, retry, is_hopeless)
        return wanted

    def _note_stored(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], order: int, is_named: bool) -> None:
        for tp, offset in offsets.items():
            before = self._stored.get(tp)
            if before is None or is_of_another_topic(before.offset, offset.topic_id):
                before = _Stored(0, 0, offset)
            self._stored[tp] = _Stored(order if is_named else before.named, order, offset)

    def _is_over(self, tp: TopicPartition, offset: OffsetAndMetadata, order: int, is_rewind: bool) -> bool:
        """Whether the stored offset of ``tp`` is newer than ``offset``, which was known at ``order``.

        That is so if a later call named an offset, and that was stored. Where auto-commit has stored one since
        (AsOfItsSlot), that is newer only if it is higher, too: then the application had come further by then. An
        auto-commit leaves out the records that the application still holds, and ``offset`` may include these. When that
        auto-commit was called for does not matter: if ``offset`` were left out for a lower one, its commit would be
        answered as done, and stored by nobody. An offset behind what was processed at the time of its call
        (``is_rewind``) is a decision of the application: that an auto-commit knew of more is no reason against it.
        """
        stored = self._stored.get(tp)
        if stored is None or is_of_another_topic(stored.offset, offset.topic_id):
            return False
        if stored.named > order:
            return True
        return not is_rewind and stored.known > order and stored.offset.offset > offset.offset

    async def fetch(
        self,
        partitions: Iterable[TopicPartition],
        *,
        member: Callable[[], MemberToken | None] = _nobody,
        timeout: float,
        topic_ids: FindTopicId = _no_topic_id,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each of ``partitions``; None for a partition that has none.

        An offset that an open transaction is about to replace, or that only a newer member epoch may see, does not
        count as none: this waits for it. ``member`` is called before each attempt, and matters to KIP-848 groups alone.
        Raises RequestTimedOut after ``timeout`` seconds, with the last error; AuthorizationFailed; BrokerError.
        """
        found = await self._fetch(partitions, member, timeout, topic_ids, partly=False)
        return found.offsets

    async def fetch_known(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float,
        topic_ids: FindTopicId = _no_topic_id,
    ) -> Committed:
        """As ``fetch``, but an error of single partitions is returned, and at once: it keeps nothing of the others."""
        return await self._fetch(partitions, _nobody, timeout, topic_ids, partly=True)

    async def _fetch(
        self,
        partitions: Iterable[TopicPartition],
        member: Callable[[], MemberToken | None],
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
            for begin in range(0, len(wanted), _AT_ONCE):
                portion = wanted[begin : begin + _AT_ONCE]
                found |= await self._send_fetch(portion, member(), until - loop.time(), topic_ids)
            codes = {tp: one.error_code for tp, one in found.items() if one.error_code != ErrorCode.NONE}
            if codes and not partly:
                raise self._worst(codes, needs="DESCRIBE")
            offsets = {tp: one.offset for tp, one in found.items() if tp not in codes}
            return Committed(offsets, self._errors(codes, "DESCRIBE"))

        return await self._retried(attempt, deadline, f"fetch of the offsets of group {self._group_id!r}")

    # One attempt

    async def _send_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberToken | None,
        timeout: float,
    ) -> dict[TopicPartition, int]:
        """Return the error code of each partition. Either all of ``offsets`` have a topic id, or none has."""
        is_by_id = all(offset.topic_id is not None for offset in offsets.values())
        with self.commits.attempt(asyncio.get_running_loop().time):
            node_id, response = await self.lookup.ask(
                OffsetCommitRequest,
                lambda version: commit_request(self._group_id, offsets, member),
                timeout=timeout,
                max_version=_max_version(is_by_id),
            )
        codes = commit_codes(response, offsets)
        self._apply(node_id, codes.values())
        if any(codes.values()):
            self.commits.failed += 1
        return codes

    async def _send_fetch(
        self, partitions: Collection[TopicPartition], member: MemberToken | None, timeout: float, find_id: FindTopicId
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the offset or the error code of each partition. Raises the error of the group."""
        topic_ids = _known_ids(partitions, find_id)
        node_id, response = await self.lookup.ask(
            OffsetFetchRequest,
            lambda version: fetch_request(self._group_id, partitions, member, topic_ids, version),
            timeout=timeout,
            max_version=_max_version(all(tp.topic in topic_ids for tp in partitions)),
        )
        code = fetch_code(response)
        if code != ErrorCode.NONE:
            self._apply(node_id, [code])
            raise broker_error(code, f"offsets of group {self._group_id!r}", needs="DESCRIBE")
        fetched = fetched_offsets(response, partitions, topic_ids)
        self._apply(node_id, (found.error_code for found in fetched.values()))
        return fetched

    def _apply(self, node_id: int, codes: Iterable[int]) -> None:
        """Forget the coordinator, or ask for metadata, if ``codes`` say that what this client knows is out of date."""
        found = set(codes)
        if ErrorCode.STALE_MEMBER_EPOCH in found:
            self.on_stale()
        if found & _NOT_THE_COORDINATOR:
            self.lookup.forget(node_id)
        if found & TOPIC_NOT_KNOWN and self._request_metadata is not None:
            self._request_metadata()

    # Errors

    def _commit_error(self, member: MemberToken | None, codes: Mapping[TopicPartition, int]) -> BrokerError:
        # Behind the error of a forbidden topic, one after which the others are tried again would go unseen.
        codes = {tp: code for tp, code in codes.items() if code not in _OF_SINGLE_TOPICS} or codes
        error = self._worst(codes, needs="READ")
        if error.code not in _OUTSIDE_THE_GROUP:
            return error
        if member is None:
            advice = "the group has members, and while it has, only they may commit"
        else:
            advice = (
                f"the group has gone on without {member}, and others read these partitions by now: poll to join again; "
                "if this happens often, process less at a time or raise max_poll_interval_ms"
            )
        return CommitFailed(error.code, f"group {self._group_id!r}, {_names(codes)}: {advice}")

    def _of_former_topics(self, offsets: Collection[TopicPartition]) -> CommitFailed:
        return CommitFailed(
            ErrorCode.UNKNOWN_TOPIC_ID,
            f"group {self._group_id!r}, {_names(offsets)}: the topic was deleted and created again since these offsets "
            "were read: they mean nothing in the new one; poll, and commit what is read of that",
        )

    def _worst(self, codes: Mapping[TopicPartition, int], *, needs: str) -> BrokerError:
        """The error to act on, with its partitions: one that is not retriable, if there is any."""
        return min((error for error, _ in self._errors(codes, needs)), key=lambda error: error.retriable)

    def _errors(self, codes: Mapping[TopicPartition, int], needs: str) -> list[PartitionsError]:
        """One error for each code, with its partitions."""
        alike: dict[int, list[TopicPartition]] = {}
        for tp, code in codes.items():
            alike.setdefault(code, []).append(tp)
        what = f"group {self._group_id!r}"
        return [(broker_error(code, f"{what}, {_names(some)}", needs=needs), some) for code, some in alike.items()]

    # Time

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

    async def _retried(
        self,
        attempt: Callable[[float], Awaitable[T]],
        deadline: float,
        what: str,
        retry: bool = True,
        is_hopeless: Callable[[KafkaError], bool] = lambda error: False,
    ) -> T:
        """Return what ``attempt(seconds)`` returns; retry retriable errors until ``deadline``."""
        loop = asyncio.get_running_loop()
        config = self._config
        backoff = retry_backoff(config, self._random)
        start, patience = loop.time(), config.request_timeout_ms / 1e3
        last: KafkaError | None = None
        while (left := deadline - loop.time()) > 0:
            try:
                return await attempt(min(left, patience))
            except KafkaError as error:
                stale = isinstance(error, BrokerError) and error.code == ErrorCode.STALE_MEMBER_EPOCH
                if not retry or not (error.retriable or stale) or is_hopeless(error):
                    raise
                if last is None or left > patience or not isinstance(error, RequestTimedOut):
                    last = error  # but not the timeout of a last attempt that ``deadline`` cut short
            await asyncio.sleep(min(backoff.next(), max(0.0, deadline - loop.time())))
        reason = f"; the last attempt: {last}" if last is not None else ""
        raise RequestTimedOut(f"{what}: not done after {loop.time() - start:.3g} s{reason}") from last


def _known_ids(partitions: Iterable[TopicPartition], find_id: FindTopicId) -> TopicIds:
    found = {topic: find_id(topic) for topic in {tp.topic for tp in partitions}}
    return {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}


def _max_version(is_by_id: bool) -> int | None:
    """Versions from TOPIC_IDS on name topics by id alone: a topic without a known id needs an older version."""
    return None if is_by_id else TOPIC_IDS - 1


def _without(
    offsets: dict[TopicPartition, OffsetAndMetadata], refused: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {tp: offset for tp, offset in offsets.items() if tp not in refused} if refused else offsets


def _portion(
    remaining: Mapping[TopicPartition, OffsetAndMetadata], current_id: FindTopicId
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What the next OffsetCommit stores: no offset of a former topic, and offsets with ids before those without."""
    ids: dict[str, UUID | None] = {}
    by_id: dict[TopicPartition, OffsetAndMetadata] = {}
    by_name: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, offset in remaining.items():
        if tp.topic not in ids:
            ids[tp.topic] = current_id(tp.topic)
        if offset.topic_id is None:
            by_name[tp] = offset
        elif not is_of_another_topic(offset, ids[tp.topic]):
            by_id[tp] = offset
            # If the metadata have no such topic at the moment, offsets of several former topics of this name may be
            # left: one request takes those of one topic.
            ids[tp.topic] = offset.topic_id
        if len(by_id) == _AT_ONCE:
            break
    return by_id or dict(islice(by_name.items(), _AT_ONCE))


def _former_topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], codes: Mapping[TopicPartition, int]
) -> set[str]:
    """The topics that the coordinator does not know, though this client did. One without an id may be created soon."""
    return {tp.topic for tp, code in codes.items() if code in TOPIC_NOT_KNOWN and offsets[tp].topic_id is not None}


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
