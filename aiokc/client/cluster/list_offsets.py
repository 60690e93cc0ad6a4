"""Looks up offsets by timestamp: sends ListOffsets to the partitions' leaders, and retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final, TypeVar

import anyio

from ...config import ClientConfig, IsolationLevel, isolation_code
from ...core.backoff import retry_backoff
from ...core.cluster.by_leader import former_leaders, group_by_leader, is_any_led
from ...core.cluster.leader_hints import DENY_LEADING
from ...core.cluster.snapshot import Cluster, known_error, unknown_partition
from ...error_codes import ErrorCode
from ...errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionFailed,
    KafkaError,
    MalformedResponse,
    RequestTimedOut,
    UnsupportedVersion,
    broker_error,
    fresh,
)
from ...native import untrack
from ...net.pool import Pool
from ...net.reply import in_steps
from ...types import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    OffsetAndTimestamp,
    TopicPartition,
    named,
)
from ...wire import prepare
from ...wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from .metadata import Metadata

A = TypeVar("A")

logger = logging.getLogger("aiokc.offsets")
prepare(ListOffsetsRequest)

# The most partitions of one request; for more, requests follow one another on the same connection. With 1000, neither
# writing a request nor reading a response holds the loop for long. A smaller number would delay fetching: the
# partitions of the first response are fetched first, and when those have nothing more, the next Fetch parks at the
# broker for fetch_max_wait_ms before other partitions can be asked for.
AT_ONCE: Final = 1_000

# After so many answers of a response, Python's garbage collector is told to ignore them, and other tasks run.
_UNTRACKED_AT_ONCE: Final = 100

# The special timestamps that not every broker knows: the version of ListOffsets, the name, the release.
_SPECIAL: Final = {
    MAX_TIMESTAMP: (7, "MAX_TIMESTAMP", "3.0"),
    EARLIEST_LOCAL: (8, "EARLIEST_LOCAL", "3.5"),
    LATEST_TIERED: (9, "LATEST_TIERED", "3.9"),
}

Asked = Mapping[TopicPartition, int]
Found = dict[TopicPartition, OffsetAndTimestamp | None]

# These may pass, too, although Java's exceptions for them are not retriable: the broker has no connection to another
# one right now, or it does not say what went wrong.
_PASSING: Final = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR})

# Each log has these two: an answer without their offset, and without an error, is no answer.
_EDGES: Final = frozenset({EARLIEST, LATEST})


@dataclass(frozen=True, slots=True)
class Answer:
    """One leader's answer: an offset or an error for each partition."""

    found: Found
    errors: dict[TopicPartition, KafkaError]


class OffsetLister:
    """Sends ListOffsets to the leaders. The driver of ``metadata`` must run beside it."""

    def __init__(self, config: ClientConfig, pool: Pool, metadata: Metadata, random: Random) -> None:
        self._config = config
        self._pool = pool
        self._metadata = metadata
        self._random = random
        # Answers for thousands of partitions come together, and each is read in steps. One is read at a time: a step of
        # each in every iteration of the loop would make the iterations long, and timers late.
        self._turn = asyncio.Lock()

    async def list_offsets(
        self, asked: Asked, *, timeout: float, isolation_level: IsolationLevel | None = None
    ) -> Found:
        """Return the first offset at or after each timestamp (ms since the epoch, or a special one); None: none.

        Retries with refreshed metadata until ``timeout`` (seconds). Then it raises RequestTimedOut, which names the
        last cause, or UnknownTopic where the cluster says that a partition does not exist. Other error codes raise
        BrokerError. An error of a topic (AuthorizationFailed, an invalid name) is raised as soon as a metadata response
        that is newer than the call has it.
        """
        version = self._metadata.cluster.version
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        backoff = retry_backoff(self._config, self._random)
        found: Found = {}
        cause: KafkaError | None = None
        while left := {tp: timestamp for tp, timestamp in asked.items() if tp not in found}:
            remaining = deadline - loop.time()
            if remaining <= 0:
                await asyncio.sleep(0)  # without time, no other task has run yet, and a caller may ask again at once
                raise self._too_late(left, timeout, cause)
            before = self._metadata.cluster
            cause = await self._ask_leaders(left, remaining, found, isolation_level) or cause
            left = {tp: timestamp for tp, timestamp in left.items() if tp not in found}
            cluster = self._metadata.cluster
            if not left or len(await in_steps(former_leaders(before, cluster, left))) > 0:
                continue  # metadata that have come meanwhile name a leader to ask
            if await in_steps(is_any_led(cluster, left)):
                self._metadata.request_update()
            else:
                self._metadata.request_missing()
            await self._pause(left, cluster, version, min(loop.time() + backoff.next(), deadline))
        return found

    async def _pause(self, left: Asked, looked_at: Cluster, version: int, end: float) -> None:
        """Return at ``end``, or once other metadata than ``looked_at`` name a leader to ask.

        Raises the error of a topic, where metadata that are newer than ``version`` have it.
        """
        loop = asyncio.get_running_loop()
        # To look at thousands of partitions lets other tasks run. A refresh may end meanwhile, unnoticed by wait().
        while self._metadata.cluster is not looked_at or await self._metadata.changed.wait(end - loop.time()):
            looked_at = self._metadata.cluster
            error = known_error(looked_at, {tp.topic for tp in left})
            if error is not None and looked_at.version > version:
                raise fresh(error)
            if await in_steps(is_any_led(looked_at, left)):
                return

    async def _ask_leaders(
        self,
        left: Asked,
        timeout: float,
        found: Found,
        isolation_level: IsolationLevel | None,
    ) -> KafkaError | None:
        """Ask all leaders. Return once each has answered, or has lost a partition for which it has not answered yet.

        Returns the last error that may pass; raises any other one. A broker that hangs loses its partitions within
        seconds, and says nothing for request_timeout_ms.
        """
        before = self._metadata.cluster
        by_leader = group_by_leader(before, left)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        failures: list[KafkaError] = []
        cause: KafkaError | None = None  # of all that may pass only the last: each partition has one at each attempt
        if not by_leader:
            return None
        under_way = {node_id: anyio.CancelScope() for node_id in by_leader}
        # The watching has a scope of its own, in its own task. The scope of the group would cancel this task, too. If
        # the application cancels it in the same iteration of the loop, anyio 4.8 and some later releases take that
        # for their own cancellation: the call would return as if nobody had cancelled it
        # (github.com/agronholm/anyio/issues/1214).
        watching = anyio.CancelScope()

        async def ask(node_id: int, asked: Asked) -> None:
            nonlocal cause
            with under_way[node_id]:
                for portion in portions(asked):
                    left_seconds = deadline - loop.time()
                    answer = await self.ask(node_id, portion, timeout=left_seconds, isolation_level=isolation_level)
                    found.update(answer.found)
                    for error in answer.errors.values():
                        if may_pass(error):
                            cause = error
                        else:
                            failures.append(error)
            del under_way[node_id]
            if not under_way:
                watching.cancel()

        async def leave_former_leaders() -> None:
            with watching:
                await self._leave_former_leaders(before, left, found, under_way)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave_former_leaders)
            for node_id, asked in by_leader.items():
                tasks.start_soon(ask, node_id, asked)
        if failures:
            raise fresh(failures[0])
        return cause

    async def _leave_former_leaders(
        self, before: Cluster, left: Asked, found: Found, under_way: Mapping[int, anyio.CancelScope]
    ) -> None:
        """Cancel what is ``under_way`` at brokers that have lost a partition since ``before``, until cancelled."""
        looked_at = before
        # The metadata may be newer already when this task begins, and after a look at thousands of partitions.
        while True:
            while looked_at is not self._metadata.cluster:
                looked_at = self._metadata.cluster
                lacking = (tp for tp in left if tp not in found)
                former = await in_steps(former_leaders(before, looked_at, lacking))
                for node_id, scope in under_way.items():
                    if node_id in former:
                        scope.cancel()
            await self._metadata.changed.wait()

    async def ask(
        self,
        node_id: int,
        asked: Asked,
        *,
        timeout: float,
        isolation_level: IsolationLevel | None = None,
        cluster: Cluster | None = None,
    ) -> Answer:
        """Send one request to one leader. Raises nothing: the answer has an offset or an error for each partition.

        ``isolation_level`` (None: the client's) decides what the end of a log is. ``cluster`` (None: the metadata's) is
        the snapshot that named the leader; the leader epochs are from there. The metadata keep a topic that nobody
        follows any more as it was: the leader would fence its epochs after an election, for ever.
        """

        def make(version: int) -> ListOffsetsRequest:
            check_timestamps(asked.values(), version, node_id)
            snapshot = self._metadata.cluster if cluster is None else cluster
            return self._request(asked, isolation_level or self._config.isolation_level, snapshot)

        try:
            response = await self._pool.request_made(
                node_id, ListOffsetsRequest, make, timeout=min(timeout, self._config.request_timeout_ms / 1e3)
            )
        except KafkaError as error:
            if may_pass(error):
                self._metadata.disprove_leader(node_id)
            return Answer({}, dict.fromkeys(asked, error))
        for topic in response.topics:
            untrack(topic.partitions)
        async with self._turn:
            return await self._read(response, node_id, asked)

    async def _read(self, response: ListOffsetsResponse, node_id: int, asked: Asked) -> Answer:
        """Return what a leader has answered. Lets other tasks run after every few partitions."""
        answer = Answer({}, {})
        denied: set[TopicPartition] = set()
        for done, (tp, error_code, offset) in enumerate(read_offsets(response), start=1):
            if done % _UNTRACKED_AT_ONCE == 0:
                untrack(answer.found)
                untrack(answer.found.values())
                await asyncio.sleep(0)
            if tp not in asked:
                continue
            if not error_code:
                if offset is not None or asked[tp] not in _EDGES:
                    answer.found[tp] = offset
            elif error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                answer.found[tp] = None  # a log in the format of Kafka 0.9 has no timestamps to search
            else:
                what = f"listing offsets of {tp} at broker {node_id}"
                answer.errors[tp] = broker_error(error_code, what, needs="DESCRIBE")
                if error_code in DENY_LEADING:
                    denied.add(tp)
        if left_out := [tp for tp in asked if tp not in answer.found and tp not in answer.errors]:
            what = (
                f"broker {node_id}: the answer to ListOffsets has neither an offset nor an error for {named(left_out)}"
            )
            incomplete = MalformedResponse(what)
            incomplete.retriable = True  # unlike one that is no ListOffsets response at all
            answer.errors.update(dict.fromkeys(left_out, incomplete))
            self._metadata.disprove_leader(node_id, set(left_out))
        if denied:
            self._metadata.leader_denies(node_id, denied)
        untrack(answer.found)
        untrack(answer.found.values())
        return answer

    def _request(self, asked: Asked, isolation_level: IsolationLevel, cluster: Cluster) -> ListOffsetsRequest:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for tp, timestamp in asked.items():
            name, number = tp
            partitions = topics.get(name)
            if partitions is None:
                partitions = topics[name] = []
            partitions.append(
                ListOffsetsPartition(
                    partition_index=number, current_leader_epoch=cluster.leader_epoch(tp), timestamp=timestamp
                )
            )
        for partitions in topics.values():
            untrack(partitions)
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_code(isolation_level),
            topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            timeout_ms=self._config.request_timeout_ms,
        )

    def _too_late(self, left: Asked, timeout: float, cause: KafkaError | None) -> Exception:
        unknown = unknown_partition(self._metadata.cluster, left)
        if unknown is not None:
            return unknown
        cause = cause or self._metadata.error
        why = f": {cause}" if cause is not None else ""
        error = RequestTimedOut(f"no offsets of {named(left)} after {timeout:.3g} s{why}")
        error.__cause__ = cause
        return error


def portions(asked: Mapping[TopicPartition, A]) -> Iterator[dict[TopicPartition, A]]:
    """Split ``asked`` into the parts that one request may have."""
    left = iter(asked.items())
    while portion := dict(islice(left, AT_ONCE)):
        yield portion


def check_timestamps(timestamps: Iterable[int], version: int, node_id: int) -> None:
    """Raise UnsupportedVersion for a special timestamp that this version of ListOffsets does not have yet.

    A broker that does not know it would take it for a time before 1970, and answer the first record.
    """
    for timestamp in timestamps:
        needed, name, release = _SPECIAL.get(timestamp, (0, "", ""))
        if version < needed:
            raise UnsupportedVersion(
                f"broker {node_id} does not know the timestamp {name}: that needs ListOffsets v{needed} "
                f"(Kafka {release}), and it speaks v{version}"
            )


def may_pass(error: KafkaError) -> bool:
    """Whether a retry with newer metadata may succeed; after an authentication or version error, for one, it can't."""
    if isinstance(error, BrokerError):
        # To send a batch again may help where it was damaged on its way; to read a damaged log again does not.
        return error.code != ErrorCode.CORRUPT_MESSAGE and (error.retriable or error.code in _PASSING)
    passing = ConnectionFailed, RequestTimedOut, AuthenticationFailed, MalformedResponse
    return error.retriable and isinstance(error, passing)


def read_offsets(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, int, OffsetAndTimestamp | None]]:
    """Yield (partition, error code, offset); the offset is None if no record is at or after the timestamp (-1)."""
    for topic in response.topics:
        name = topic.name
        for part in topic.partitions:
            found = None
            if part.offset >= 0:
                epoch = part.leader_epoch if part.leader_epoch >= 0 else None
                found = OffsetAndTimestamp(part.offset, part.timestamp, epoch)
            yield TopicPartition(name, part.partition_index), part.error_code, found
