"""What planning asks of Kafka, in the driver: blocking calls with deadlines and retries over an aiokc.Client."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TypeVar

from aiokc import EARLIEST, LATEST, Client, ClientConfig, KafkaError, TopicInfo, TopicPartition
from aiokc.errors import RequestTimedOut, UnknownTopic

from ..loop_thread import LoopThread
from ..options.client_options import in_words_of_a_query
from ..options.security_options import NO_SECURITY, SecurityTexts
from ..secured import connected

_logger = logging.getLogger(__name__)
T = TypeVar("T")

# The client keeps its own deadlines. If it should not, the call ends this many seconds later.
_GRACE: Final = 5.0
# An unknown partition may belong to a topic that was created just now. After this time it counts as gone.
_PATIENCE_MS: Final = 5_000
# A commit is only for lag tools: no batch waits longer for it.
_COMMIT_MS: Final = 1_000
_STOP_TIMEOUT: Final = 5.0


class Cluster(Protocol):
    """What planning asks of Kafka."""

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Return those of these topics that exist; for None, all topics that the client is allowed to see.

        Raises AuthorizationFailed if the client may not see one of ``names``: it may well exist.
        """

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the EARLIEST or LATEST offset of each partition; raise UnknownTopic if one is gone."""

    def offsets_at(
        self, times: Mapping[TopicPartition, int], *, isolation_level: Literal["read_uncommitted"] | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after each time in ms; None if there is no such record.

        ``isolation_level`` (None: the client's) says whether a record behind an open transaction counts.
        """

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each log in any isolation level: it includes what open transactions have written."""

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return (earliest, latest) of each partition; raise UnknownTopic if one is gone."""

    def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return what a group has committed for each partition; None if it has committed nothing."""

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets for a group, within a second, or six if it must connect first. Raises KafkaError."""


class DriverCluster:
    """The Cluster over one client, which connects at the first call.

    Each attempt ends within kafka.default.api.timeout.ms. After an error that may pass (RequestTimedOut,
    NoBrokersAvailable) there is another one, fetchOffset.retryIntervalMs later: at most fetchOffset.numRetries in all.
    Files that ``security`` names are looked for when it connects, on the driver's machine.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        security: SecurityTexts = NO_SECURITY,
        attempts: int = 1,
        retry_ms: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._security = security
        self._config, self._attempts, self._retry_seconds, self._sleep = config, attempts, retry_ms / 1e3, sleep
        self._thread: LoopThread | None = None
        self._client: Client | None = None

    def __enter__(self) -> DriverCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        wanted = None if names is None else list(names)
        return self._retried("asking for the topics", lambda client: topics(client, wanted))

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return self._retried("listing offsets", lambda client: list_offsets(client, timestamps))

    def offsets_at(
        self, times: Mapping[TopicPartition, int], *, isolation_level: Literal["read_uncommitted"] | None = None
    ) -> dict[TopicPartition, int | None]:
        return self._retried("looking up times", lambda client: _offsets_at(client, times, isolation_level))

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, LATEST)
        return self._retried(
            "listing the high watermarks",
            lambda client: list_offsets(client, wanted, isolation_level="read_uncommitted"),
        )

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        wanted = list(partitions)
        return self._retried("listing the ends of logs", lambda client: log_ranges(client, wanted))

    def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        wanted = list(partitions)
        return self._retried(f"asking group {group_id!r}", lambda client: _committed(client, group_id, wanted))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        async def work() -> None:
            client = await self._connected()
            await client.commit(group_id, offsets, timeout_ms=_COMMIT_MS)

        self._call("committing offsets", work(), timeout=_COMMIT_MS / 1e3)

    def close(self) -> None:
        """Close the connections; give up after some seconds, and log that."""
        thread, client = self._thread, self._client
        self._thread = self._client = None
        if thread is None:
            return
        try:
            if client is not None:
                thread.call(client.stop(), what="closing the connections", timeout=_STOP_TIMEOUT)
        except KafkaError as error:
            _logger.warning("the connections of the Spark driver were not closed cleanly: %s", error)
        finally:
            thread.close(timeout=_STOP_TIMEOUT)

    def _retried(self, what: str, work: Callable[[Client], Awaitable[T]]) -> T:
        for attempt in range(1, self._attempts + 1):
            try:
                return self._call(what, self._with_client(work), timeout=self._config.default_api_timeout_ms / 1e3)
            except KafkaError as error:
                # The client itself has already waited whether an unknown topic appears.
                if not error.retriable or isinstance(error, UnknownTopic) or attempt == self._attempts:
                    raise
                _logger.warning("%s failed, attempt %d of %d: %s", what, attempt, self._attempts, error)
            self._sleep(self._retry_seconds)
        raise AssertionError("there is at least one attempt")

    def _call(self, what: str, work: Coroutine[Any, Any, T], *, timeout: float) -> T:
        if self._thread is None:
            self._thread = LoopThread("aiokc in the Spark driver")
        with in_words_of_a_query():
            return self._thread.call(work, what=what, timeout=timeout + _GRACE)

    async def _with_client(self, work: Callable[[Client], Awaitable[T]]) -> T:
        return await work(await self._connected())

    async def _connected(self) -> Client:
        if self._client is None:
            self._client = await connected(self._config, self._security)
        return self._client


async def topics(client: Client, names: list[str] | None, *, timeout_ms: int | None = None) -> dict[str, TopicInfo]:
    """Return those of these topics that exist; for None, all topics that the client is allowed to see.

    Raises AuthorizationFailed if the client may not see one of ``names``: it may well exist.
    """
    if names is None:
        return await client.list_topics(timeout_ms=timeout_ms)
    try:
        return await client.list_topics(names, timeout_ms=timeout_ms)
    except UnknownTopic:
        if len(names) == 1:
            return {}
    # The error is about one of them. A list of all topics shows which others exist, but not which do not: it leaves out
    # what the client may not see, and what a broker that has just started has not heard of. So these are asked for once
    # more, each by its name.
    everything = await client.list_topics(timeout_ms=timeout_ms)
    left_out = [name for name in names if name not in everything]
    asked = (topics(client, [name], timeout_ms=timeout_ms) for name in left_out)
    for found in await asyncio.gather(*asked, return_exceptions=True):  # all of them have ended before one is raised
        if isinstance(found, BaseException):
            raise found
        everything |= found
    return {name: everything[name] for name in names if name in everything}


async def _offsets_at(
    client: Client, times: Mapping[TopicPartition, int], isolation_level: Literal["read_uncommitted"] | None
) -> dict[TopicPartition, int | None]:
    found = await client.list_offsets(times, isolation_level=isolation_level) if times else {}
    return {tp: None if at is None else at.offset for tp, at in found.items()}


async def _committed(client: Client, group_id: str, wanted: list[TopicPartition]) -> dict[TopicPartition, int | None]:
    found = await client.committed(group_id, wanted) if wanted else {}
    return {tp: None if at is None else at.offset for tp, at in found.items()}


async def list_offsets(
    client: Client,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: Literal["read_uncommitted"] | None = None,
) -> dict[TopicPartition, int]:
    """Return the EARLIEST or LATEST offset of each partition; raise UnknownTopic if one is gone.

    ``isolation_level`` (None: the client's) says where the LATEST is.
    """
    if not timestamps:
        return {}
    whole = client.config.default_api_timeout_ms
    first = min(_PATIENCE_MS, whole)
    try:
        found = await client.list_offsets(timestamps, isolation_level=isolation_level, timeout_ms=first)
    except RequestTimedOut:  # no UnknownTopic: all partitions exist, as far as the brokers know
        if first == whole:
            raise
        found = await client.list_offsets(timestamps, isolation_level=isolation_level, timeout_ms=whole - first)
    return {tp: at.offset for tp, at in found.items() if at is not None}


async def log_ranges(
    client: Client,
    partitions: Iterable[TopicPartition],
    *,
    isolation_level: Literal["read_uncommitted"] | None = None,
) -> dict[TopicPartition, tuple[int, int]]:
    """Return (earliest, latest) of each partition's log. ``isolation_level`` is that of ``list_offsets``."""
    wanted = list(partitions)
    earliest, latest = await asyncio.gather(
        list_offsets(client, dict.fromkeys(wanted, EARLIEST)),
        list_offsets(client, dict.fromkeys(wanted, LATEST), isolation_level=isolation_level),
    )
    return {tp: (earliest[tp], latest[tp]) for tp in wanted}
