"""``ClusterCalls``: Client's calls about brokers, topics, configurations and log directories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager

from ...admin import BrokerVersions, ClusterDescription, ConfigEntry, LogDir, TopicDescription
from ...config import ClientConfig
from ...errors import KafkaError
from ..arguments import checked_topics
from ..cluster.cluster_client import ClusterClient
from .arguments import checked_names, checked_nodes
from .asking import Asking


class ClusterCalls:
    """The part of Client that looks at the cluster. Its calls change nothing."""

    _cluster: ClusterClient[ClientConfig]
    _asking: Callable[[float | None], AbstractAsyncContextManager[Asking]]

    async def describe_cluster(self, *, timeout_ms: float | None = None) -> ClusterDescription:
        """Return the cluster's id, its controller, its brokers, and what the client's principal may do to it.

        Brokers older than Kafka 2.8 answer by Metadata instead of DescribeCluster (KIP-700). Fenced brokers are named
        from Kafka 4.0 on.
        """
        self._cluster.check()
        async with self._asking(timeout_ms) as asking:
            from . import cluster

            return await cluster.describe_cluster(asking)

    async def api_versions(
        self, nodes: Iterable[int] | None = None, *, timeout_ms: float | None = None
    ) -> dict[int, BrokerVersions | KafkaError]:
        """Return the API versions and features of these brokers (None: of all), by id."""
        self._cluster.check()
        wanted = checked_nodes(nodes)
        async with self._asking(timeout_ms) as asking:
            from . import cluster

            return await cluster.api_versions(asking, wanted)

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, TopicDescription | KafkaError]:
        """Return these topics (None: all that this principal may see), with what the principal may do to each.

        A topic that does not exist has UnknownTopic in the place of its description; without permission for one it is
        AuthorizationFailed.
        """
        self._cluster.check()
        wanted = None if names is None else checked_names(names, checked_topics)
        async with self._asking(timeout_ms) as asking:
            from . import cluster

            return await cluster.describe_topics(asking, wanted)

    async def topic_configs(
        self, names: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, dict[str, ConfigEntry] | KafkaError]:
        """Return all settings in force of these topics, by name, with their origin (DescribeConfigs).

        It needs the permission DESCRIBE_CONFIGS for each topic; without it the topic has AuthorizationFailed.
        """
        self._cluster.check()
        wanted = checked_names(names, checked_topics)
        async with self._asking(timeout_ms) as asking:
            from . import cluster

            return await cluster.topic_configs(asking, wanted)

    async def log_dirs(
        self, nodes: Iterable[int] | None = None, *, timeout_ms: float | None = None
    ) -> dict[int, Mapping[str, LogDir] | KafkaError]:
        """Return the log directories of these brokers (None: of all) by path, with the bytes of each replica.

        It needs the permission DESCRIBE for the cluster. aiokc.admin.partition_sizes() sums the answer up. A broker
        that does not answer has its error.
        """
        self._cluster.check()
        wanted = checked_nodes(nodes)
        async with self._asking(timeout_ms) as asking:
            from . import cluster

            return await cluster.log_dirs(asking, wanted)
