"""OffsetCommit and OffsetFetch to a group's coordinator: single attempts, what their errors mean, and the retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from random import Random
from typing import TypeVar

from ...config import ClientConfig
from ...core.backoff import retry_backoff
from ...core.group.events import MemberToken
from ...core.offsets.messages import (
    TOPIC_IDS,
    FetchedOffset,
    PartitionsError,
    commit_codes,
    commit_request,
    fetch_code,
    fetch_request,
    fetched_offsets,
)
from ...core.offsets.portions import FindTopicId, known_ids
from ...core.offsets.verdicts import NOT_THE_COORDINATOR, TOPIC_NOT_KNOWN
from ...core.stopwatch import RequestCounter
from ...error_codes import ErrorCode
from ...errors import BrokerError, KafkaError, RequestTimedOut, broker_error
from ...net.pool import Pool
from ...types import OffsetAndMetadata, TopicPartition, named
from ...wire import prepare
from ...wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from ..cluster.coordinator_lookup import CoordinatorLookup

prepare(OffsetFetchRequest, OffsetCommitRequest)

T = TypeVar("T")


class OffsetRequests:
    """Asks the coordinator of ``group_id``, which it looks up where that is needed."""

    def __init__(
        self,
        config: ClientConfig,
        pool: Pool,
        group_id: str,
        random: Random,
        request_metadata: Callable[[], None],
    ) -> None:
        self.group_id = group_id
        self.lookup = CoordinatorLookup(config, pool, group_id, random, request_metadata)
        self.commits = RequestCounter()
        #: Called when the coordinator has a newer epoch of the member than the request (KIP-848).
        self.on_stale: Callable[[], None] = lambda: None
        self._config = config
        self._random = random
        self._request_metadata = request_metadata

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: MemberToken | None, timeout: float
    ) -> dict[TopicPartition, int]:
        """Return the error code of each partition. Either all of ``offsets`` have a topic id, or none has."""
        is_by_id = all(offset.topic_id is not None for offset in offsets.values())
        with self.commits.attempt(asyncio.get_running_loop().time):
            node_id, response = await self.lookup.ask(
                OffsetCommitRequest,
                lambda version: commit_request(self.group_id, offsets, member),
                timeout=timeout,
                max_version=_max_version(is_by_id),
            )
        codes = commit_codes(response, offsets)
        self._apply(node_id, codes.values())
        if any(codes.values()):
            self.commits.failed += 1
        return codes

    async def fetch(
        self, partitions: Collection[TopicPartition], timeout: float, find_id: FindTopicId
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the offset or the error code of each partition. Raises the error of the group."""
        topic_ids = known_ids(partitions, find_id)
        node_id, response = await self.lookup.ask(
            OffsetFetchRequest,
            lambda version: fetch_request(self.group_id, partitions, topic_ids, version),
            timeout=timeout,
            max_version=_max_version(all(tp.topic in topic_ids for tp in partitions)),
        )
        code = fetch_code(response)
        if code != ErrorCode.NONE:
            self._apply(node_id, [code])
            raise broker_error(code, f"offsets of group {self.group_id!r}", needs="DESCRIBE")
        fetched = fetched_offsets(response, partitions, topic_ids)
        self._apply(node_id, (found.error_code for found in fetched.values()))
        return fetched

    def _apply(self, node_id: int, codes: Iterable[int]) -> None:
        """Forget the coordinator, or ask for metadata, if ``codes`` say that what this client knows is out of date."""
        found = set(codes)
        if ErrorCode.STALE_MEMBER_EPOCH in found:
            self.on_stale()
        if found & NOT_THE_COORDINATOR:
            self.lookup.forget(node_id)
        if found & TOPIC_NOT_KNOWN:
            self._request_metadata()

    def worst(self, codes: Mapping[TopicPartition, int], *, needs: str) -> BrokerError:
        """The error to act on, with its partitions: one that is not retriable, if there is any."""
        return min((error for error, _ in self.errors(codes, needs)), key=lambda error: error.retriable)

    def errors(self, codes: Mapping[TopicPartition, int], needs: str) -> list[PartitionsError]:
        """One error for each code, with its partitions."""
        alike: dict[int, list[TopicPartition]] = {}
        for tp, code in codes.items():
            alike.setdefault(code, []).append(tp)
        what = f"group {self.group_id!r}"
        return [(broker_error(code, f"{what}, {named(some)}", needs=needs), some) for code, some in alike.items()]

    async def retried(
        self,
        attempt: Callable[[float], Awaitable[T]],
        deadline: float,
        what: str,
        retry: bool = True,
        is_hopeless: Callable[[KafkaError], bool] = lambda error: False,
    ) -> T:
        """Return what ``attempt(seconds)`` returns; retry retriable errors until ``deadline``.

        Raises RequestTimedOut at ``deadline``, with the last error; at once, an error that is not retriable, or that
        ``is_hopeless``.
        """
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
        await asyncio.sleep(0)  # without time, no other task has run yet, and a caller may ask again at once
        reason = f"; the last attempt: {last}" if last is not None else ""
        raise RequestTimedOut(f"{what}: not done after {loop.time() - start:.3g} s{reason}") from last


def _max_version(is_by_id: bool) -> int | None:
    """Versions from TOPIC_IDS on name topics by id alone: a topic without a known id needs an older version."""
    return None if is_by_id else TOPIC_IDS - 1
