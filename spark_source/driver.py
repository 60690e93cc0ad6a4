"""The cluster as planning sees it, in the driver's process: blocking calls with deadlines over an aiokc.Client."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

from aiokc import EARLIEST, LATEST, Client, ClientConfig, KafkaError, TopicInfo, TopicPartition
from aiokc.errors import UnknownTopic

from .loop_thread import LoopThread

_logger = logging.getLogger(__name__)
T = TypeVar("T")

# The client keeps its own deadlines; this much later the call ends even if it does not.
_GRACE: Final = 5.0
_STOP_TIMEOUT: Final = 5.0


class Cluster(Protocol):
    """What planning asks of Kafka."""

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return those of these topics that exist."""

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of EARLIEST or LATEST, for each partition; raise UnknownTopic if one is gone."""

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return (earliest, latest) of each partition; raise UnknownTopic if one is gone."""


class DriverCluster:
    """A Cluster over one client, which connects at the first call.

    Every call raises within kafka.default.api.timeout.ms: RequestTimedOut, NoBrokersAvailable, AuthorizationFailed.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._thread: LoopThread | None = None
        self._client: Client | None = None

    def __enter__(self) -> DriverCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return self._call("asking for the topics", self._topics(list(names)))

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return self._call("listing offsets", self._list_offsets(timestamps))

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return self._call("listing the ends of logs", self._log_ranges(list(partitions)))

    def close(self) -> None:
        """Close the connections, as far as this is possible within some seconds."""
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

    def _call(self, what: str, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            self._thread = LoopThread("aiokc in the Spark driver")
        return self._thread.call(work, what=what, timeout=self._config.default_api_timeout_ms / 1e3 + _GRACE)

    async def _connected(self) -> Client:
        if self._client is None:
            client = Client(self._config)
            await client.start()
            self._client = client
        return self._client

    async def _topics(self, names: list[str]) -> dict[str, TopicInfo]:
        client = await self._connected()
        try:
            return await client.topics(names)
        except UnknownTopic:
            everything = await client.topics()
            return {name: everything[name] for name in names if name in everything}

    async def _list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return await list_offsets(await self._connected(), timestamps)

    async def _log_ranges(self, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return await log_ranges(await self._connected(), partitions)


async def list_offsets(client: Client, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the offset of EARLIEST or LATEST, for each partition."""
    if not timestamps:
        return {}
    found = await client.list_offsets(timestamps)
    return {tp: at.offset for tp, at in found.items() if at is not None}


async def log_ranges(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return (earliest, latest) of each partition's log."""
    wanted = list(partitions)
    earliest = await list_offsets(client, dict.fromkeys(wanted, EARLIEST))
    latest = await list_offsets(client, dict.fromkeys(wanted, LATEST))
    return {tp: (earliest[tp], latest[tp]) for tp in wanted}
