"""Reads what brokers answer about the cluster: brokers, topics, settings, log directories, API versions."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import Final, TypeVar

from ...admin import (
    AclOperation,
    ApiRange,
    BrokerDescription,
    BrokerVersions,
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    FeatureRange,
    LogDir,
    ReplicaSize,
    TopicDescription,
)
from ...error_codes import ErrorCode
from ...errors import KafkaError, NoBrokersAvailable, broker_error
from ...types import TopicPartition
from ...wire.messages.describing import (
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ...wire.messages.discovery import ApiVersionsResponse, MetadataResponse
from ..cluster.snapshot import Cluster, known_cluster_id, topic_error
from ..one_line import one_line
from .api_names import API_NAMES

_NOT_TOLD: Final = -(1 << 31)  # of a bit field of operations
_TOPIC: Final = 2  # a resource type of DescribeConfigs

N = TypeVar("N", bound=IntEnum)


def operations(bits: int) -> frozenset[AclOperation] | None:
    """Return the operations of a bit field (KIP-430); None where the broker does not tell them.

    Operations that this client does not know are left out.
    """
    if bits == _NOT_TOLD:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)


def why_undescribed(broker: str, response: DescribeClusterResponse) -> KafkaError | None:
    """Return why a broker's answer tells nothing of the cluster, where another broker may tell; None if it does.

    As with Metadata: a broker that starts may know of no broker yet, and a proxy may want new addresses (KIP-1102).
    """
    code = response.error_code
    if code != ErrorCode.NONE:
        error = broker_error(code, f"{broker} answers DescribeCluster with this error")
        error.retriable = error.retriable or code == ErrorCode.REBOOTSTRAP_REQUIRED
        return error if error.retriable else None
    if all(one.broker_id < 0 for one in response.brokers):
        return NoBrokersAvailable(f"{broker}: its answer to DescribeCluster names no broker (does it still start?)")
    return None


def described_cluster(response: DescribeClusterResponse) -> ClusterDescription:
    """Raises BrokerError for a refusal."""
    if response.error_code != ErrorCode.NONE:
        raise broker_error(response.error_code, one_line(response.error_message) or "describing the cluster")
    return ClusterDescription(
        cluster_id=known_cluster_id(response.cluster_id),
        controller_id=response.controller_id if response.controller_id >= 0 else None,
        brokers=tuple(
            BrokerDescription(one.broker_id, one.host, one.port, one.rack, one.is_fenced)
            for one in sorted(response.brokers, key=lambda one: one.broker_id)
        ),
        authorized_operations=operations(response.cluster_authorized_operations),
    )


def cluster_of_metadata(response: MetadataResponse) -> ClusterDescription:
    """Return the description that a Metadata response has of the cluster, for brokers without DescribeCluster."""
    return ClusterDescription(
        cluster_id=known_cluster_id(response.cluster_id),
        controller_id=response.controller_id if response.controller_id >= 0 else None,
        brokers=tuple(
            BrokerDescription(one.node_id, one.host, one.port, one.rack)
            for one in sorted(response.brokers, key=lambda one: one.node_id)
        ),
        authorized_operations=operations(response.cluster_authorized_operations),
    )


def described_topics(response: MetadataResponse, cluster: Cluster) -> dict[str, TopicDescription | KafkaError]:
    """Return the topics of a Metadata response; ``cluster`` is the snapshot that was made of it."""
    found: dict[str, TopicDescription | KafkaError] = {}
    for answer in response.topics:
        if answer.name is None:
            continue
        topic = cluster.topics.get(answer.name)
        if answer.error_code or topic is None:
            found[answer.name] = topic_error(answer.error_code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, answer.name)
            continue
        allowed = operations(answer.topic_authorized_operations)
        found[answer.name] = TopicDescription(
            topic.name, topic.partitions, topic.topic_id, topic.is_internal, authorized_operations=allowed
        )
    return found


# Configurations


def configs_request(topics: Collection[str]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None)
            for name in topics
        ],
        include_synonyms=True,
    )


def described_configs(response: DescribeConfigsResponse) -> dict[str, dict[str, ConfigEntry] | KafkaError]:
    found: dict[str, dict[str, ConfigEntry] | KafkaError] = {}
    for result in response.results:
        name = result.resource_name
        if result.error_code != ErrorCode.NONE:
            why = f"settings of topic {name!r}" + (
                f": {one_line(result.error_message)}" if result.error_message else ""
            )
            found[name] = broker_error(result.error_code, why, needs="DESCRIBE_CONFIGS")
        else:
            found[name] = {one.name: _entry(one) for one in sorted(result.configs, key=lambda one: one.name)}
    return found


def _entry(one: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=one.name,
        value=one.value,
        source=_known(ConfigSource, one.config_source),
        type=_known(ConfigType, one.config_type),
        is_read_only=one.read_only,
        is_sensitive=one.is_sensitive,
        synonyms=tuple(ConfigSynonym(s.name, s.value, _known(ConfigSource, s.source)) for s in one.synonyms),
    )


def _known(names: type[N], number: int) -> N:
    """Return the name of a number; UNKNOWN where a newer broker has one that this client does not know."""
    return names(number) if number in names._value2member_map_ else names(0)


# Log directories


def described_log_dirs(response: DescribeLogDirsResponse, node_id: int) -> dict[str, LogDir]:
    """Raises BrokerError for a refusal. Before version 3 a refusal is an answer without any directory (KAFKA-12648)."""
    code = response.error_code
    if code == ErrorCode.NONE and not response.results:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if code != ErrorCode.NONE:
        raise broker_error(code, f"log directories of broker {node_id}", needs="DESCRIBE")
    return {result.log_dir: _log_dir(result, node_id) for result in response.results}


def _log_dir(result: DescribeLogDirsResult, node_id: int) -> LogDir:
    where = f"log directory {result.log_dir} of broker {node_id}"
    return LogDir(
        path=result.log_dir,
        replicas={
            TopicPartition(topic.name, one.partition_index): ReplicaSize(
                one.partition_size, one.offset_lag, one.is_future_key
            )
            for topic in result.topics
            for one in topic.partitions
        },
        total_bytes=result.total_bytes if result.total_bytes >= 0 else None,
        usable_bytes=result.usable_bytes if result.usable_bytes >= 0 else None,
        error=broker_error(result.error_code, where) if result.error_code != ErrorCode.NONE else None,
        is_cordoned=result.is_cordoned,
    )


# API versions


def described_versions(response: ApiVersionsResponse, node_id: int) -> BrokerVersions:
    """Return the versions of an ApiVersions response. Raises BrokerError for a refusal."""
    if response.error_code != ErrorCode.NONE:
        raise broker_error(response.error_code, f"API versions of broker {node_id}")
    final = {feature.name: feature.max_version_level for feature in response.finalized_features}
    supported = {feature.name: feature for feature in response.supported_features}
    return BrokerVersions(
        node_id=node_id,
        apis={
            api.api_key: ApiRange(api.api_key, API_NAMES.get(api.api_key, ""), api.min_version, api.max_version)
            for api in sorted(response.api_keys, key=lambda api: api.api_key)
        },
        features={
            name: FeatureRange(
                name,
                supported[name].min_version if name in supported else 0,
                supported[name].max_version if name in supported else final[name],
                final.get(name, 0),
            )
            for name in sorted(supported.keys() | final.keys())
        },
    )
