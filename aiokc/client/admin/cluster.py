"""Describes the cluster, its brokers' versions and log directories, topics and their settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from ...admin import BrokerVersions, ClusterDescription, ConfigEntry, LogDir, TopicDescription
from ...core.admin.cluster_answers import (
    cluster_of_metadata,
    configs_request,
    described_cluster,
    described_configs,
    described_log_dirs,
    described_topics,
    described_versions,
    why_undescribed,
)
from ...core.cluster.snapshot import Cluster
from ...errors import KafkaError, UnsupportedVersion
from ...net.options import SOFTWARE
from ...wire.messages.describing import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
)
from ...wire.messages.discovery import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ..cluster.metadata import merged_snapshot
from .asking import Asking, always, checked_answers, passes

_OPERATIONS: Final = 8  # Metadata tells authorized operations (KIP-430) from this version on,
_NO_CLUSTER_OPERATIONS: Final = 11  # and those of the cluster until this one: then DescribeCluster does (KIP-700)
_FENCED: Final = 2  # the version of DescribeCluster that names fenced brokers (KIP-1073)
_TOPICS_AT_ONCE: Final = 100  # each has some 40 settings, with their synonyms


async def describe_cluster(asking: Asking) -> ClusterDescription:
    def make(version: int) -> DescribeClusterRequest:
        return DescribeClusterRequest(
            include_cluster_authorized_operations=True, include_fenced_brokers=version >= _FENCED
        )

    def unusable(broker: str, response: DescribeClusterResponse) -> KafkaError | None:
        return asking.home.why_foreign(broker, response.cluster_id) or why_undescribed(broker, response)

    try:
        response = await asking.any_broker(DescribeClusterRequest, make, unusable)
    except UnsupportedVersion:
        return cluster_of_metadata(await _metadata(asking, []))
    return described_cluster(response)


async def describe_topics(asking: Asking, names: Collection[str] | None) -> dict[str, TopicDescription | KafkaError]:
    response = await _metadata(asking, names)
    snapshot = await merged_snapshot(Cluster(), response, complete=names is None)

    def read() -> dict[str, TopicDescription | KafkaError]:
        found = described_topics(response, snapshot)
        return dict(sorted(found.items())) if names is None else checked_answers(found, names, "Metadata")

    return await asking.read(read, len(response.topics))


async def _metadata(asking: Asking, names: Collection[str] | None) -> MetadataResponse:
    def make(version: int) -> MetadataRequest:
        return MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in dict.fromkeys(names)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=version >= _OPERATIONS,
            include_cluster_authorized_operations=_OPERATIONS <= version < _NO_CLUSTER_OPERATIONS,
        )

    return await asking.any_broker(MetadataRequest, make, asking.home.why_unusable)


async def topic_configs(asking: Asking, names: Sequence[str]) -> dict[str, dict[str, ConfigEntry] | KafkaError]:
    """Any broker answers for topics. A topic's error that may pass is tried again, until the deadline."""
    found: dict[str, dict[str, ConfigEntry] | KafkaError] = {}
    left = wanted = list(dict.fromkeys(names))
    while left:
        try:
            for begin in range(0, len(left), _TOPICS_AT_ONCE):
                await _ask_for_configs(asking, left[begin : begin + _TOPICS_AT_ONCE], found)
        except KafkaError as error:
            if not found:
                raise
            # What brokers have answered counts. The error is that of the topics of this request and of all later ones,
            # and of those whose own error would have passed. At the deadline that one says more than "not done".
            late = asking.has_ended()
            kept = {name: answer for name, answer in found.items() if late or not passes(answer)}
            return {name: kept.get(name, error) for name in wanted}
        left = [name for name in left if passes(found[name])]
        if left and not await asking.may_try_again():
            break
    return {name: found[name] for name in wanted}


async def _ask_for_configs(
    asking: Asking, names: Sequence[str], found: dict[str, dict[str, ConfigEntry] | KafkaError]
) -> None:
    response = await asking.any_broker(DescribeConfigsRequest, always(configs_request(names)))
    settings = sum(len(result.configs) for result in response.results)
    described = await asking.read(partial(described_configs, response), settings)
    found |= checked_answers(described, names, "DescribeConfigs")


async def log_dirs(asking: Asking, nodes: Collection[int] | None) -> dict[int, Mapping[str, LogDir] | KafkaError]:
    async def ask(node_id: int) -> Mapping[str, LogDir]:
        response = await asking.broker(node_id, DescribeLogDirsRequest, always(DescribeLogDirsRequest(topics=None)))
        replicas = sum(len(topic.partitions) for log_dir in response.results for topic in log_dir.topics)
        return await asking.read(partial(described_log_dirs, response, node_id), replicas)

    return await asking.each_broker(nodes, ask)


async def api_versions(asking: Asking, nodes: Collection[int] | None) -> dict[int, BrokerVersions | KafkaError]:
    async def ask(node_id: int) -> BrokerVersions:
        name, version = SOFTWARE
        wanted = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        return described_versions(await asking.broker(node_id, ApiVersionsRequest, always(wanted)), node_id)

    return await asking.each_broker(nodes, ask)
