"""Handles DescribeConfigs and DescribeLogDirs: the settings of topics, and the bytes of replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....error_codes import ErrorCode
from ....wire.messages.describing import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ...log.topic_settings import TOPIC_SETTINGS
from ...log.topics import Topic
from ...refusal import Refusal
from ..call import Call

TOPIC: Final = 2  # a resource type
_OF_TOPIC: Final = 1  # sources of a value
_OF_BROKER: Final = 4  # STATIC_BROKER_CONFIG
_DEFAULT: Final = 5
#: The settings of topics whose defaults are the cluster's settings.
_BROKER_SETTINGS: Final = {
    "max.message.bytes": "message_max_bytes",
    "message.timestamp.after.max.ms": "log_message_timestamp_after_max_ms",
    "message.timestamp.before.max.ms": "log_message_timestamp_before_max_ms",
}
_DISK_BYTES: Final = 1 << 40


async def describe_configs(call: Call[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_described(call, one) for one in call.request.resources])


def _described(call: Call[DescribeConfigsRequest], asked: DescribeConfigsResource) -> DescribeConfigsResult:
    code, why, configs = ErrorCode.NONE, None, list[DescribeConfigsResourceResult]()
    try:
        if asked.resource_type != TOPIC:
            raise Refusal(ErrorCode.INVALID_REQUEST, "this cluster describes the settings of topics alone")
        topic = call.cluster.topics.named(asked.resource_name)
        wanted = asked.configuration_keys
        configs = [
            _setting(topic, name, call) for name in TOPIC_SETTINGS if wanted is None or not wanted or name in wanted
        ]
    except Refusal as refusal:
        code, why = refusal.code, refusal.why
    return DescribeConfigsResult(
        error_code=code,
        error_message=why,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=configs,
    )


def _setting(topic: Topic, name: str, call: Call[DescribeConfigsRequest]) -> DescribeConfigsResourceResult:
    setting, own, of_broker = TOPIC_SETTINGS[name], topic.config.get(name), _of_broker(name, call)
    values = [(name, own, _OF_TOPIC), (setting.synonym, of_broker, _OF_BROKER)]
    found = [(where, value, source) for where, value, source in values if value is not None]
    found.append((setting.synonym, setting.default, _DEFAULT))
    tells_type = call.version >= 3
    return DescribeConfigsResourceResult(
        name=name,
        value=found[0][1],
        read_only=False,
        config_source=found[0][2],
        is_sensitive=False,
        synonyms=[
            DescribeConfigsSynonym(name=where, value=value, source=source)
            for where, value, source in found
            if where and call.request.include_synonyms
        ],
        config_type=setting.type if tells_type else 0,
        documentation=None if tells_type else "",
    )


def _of_broker(name: str, call: Call[DescribeConfigsRequest]) -> str | None:
    """Return the value that the cluster's settings give to a topic's setting; None where it is Kafka's default."""
    field = _BROKER_SETTINGS.get(name)
    value = str(getattr(call.cluster.settings, field)) if field is not None else None
    return None if value == TOPIC_SETTINGS[name].default else value


async def describe_log_dirs(call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    """Answer with the one log directory that each broker has."""
    topics = list(_sizes(call))
    used = sum(one.partition_size for topic in topics for one in topic.partitions)
    tells_disk = call.version >= 4
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                error_code=0,
                log_dir=f"/kafka/broker-{call.node.node_id}",
                topics=topics,
                total_bytes=_DISK_BYTES if tells_disk else -1,
                usable_bytes=_DISK_BYTES - used if tells_disk else -1,
            )
        ]
    )


def _sizes(call: Call[DescribeLogDirsRequest]) -> Iterator[DescribeLogDirsTopic]:
    asked = call.request.topics
    wanted = None if asked is None else {one.topic: set(one.partitions) for one in asked}
    for topic in call.cluster.topics.by_name.values():
        if wanted is not None and topic.name not in wanted:
            continue
        partitions = [
            DescribeLogDirsPartition(
                partition_index=one.index, partition_size=one.log.size, offset_lag=0, is_future_key=False
            )
            for one in topic.partitions
            if call.node.node_id in one.replicas and (wanted is None or one.index in wanted[topic.name])
        ]
        if partitions:
            yield DescribeLogDirsTopic(name=topic.name, partitions=partitions)
