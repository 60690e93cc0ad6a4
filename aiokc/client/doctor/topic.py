"""Looks at a topic: whether it exists, its leaders and replicas, and what this client may do with it."""

from __future__ import annotations

from typing import Final

from ...core.doctor.report import Finding
from ...core.doctor.topic import TopicSeen, alike, missing_topic, no_topic_metadata, seen_topic, topic_findings
from ...error_codes import ErrorCode
from ...errors import KafkaError, MalformedResponse
from ...net.connection import Connection
from ...wire.messages.discovery import MetadataRequest, MetadataRequestTopic
from .cluster import Reached
from .kit import Kit

_OPERATIONS_FROM: Final = 8


async def look_at_topic(kit: Kit, reached: Reached, name: str) -> tuple[TopicSeen | None, list[Finding]]:
    """Ask for a topic's metadata. It creates no topic."""
    try:
        connection = await reached.connection()
        version = connection.usable_version(MetadataRequest)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=version >= _OPERATIONS_FROM,
        )
        answer = await connection.request(request, timeout=kit.patience())
        found = next((one for one in answer.topics if one.name == name), None)
        if found is None:
            raise MalformedResponse(f"the answer to Metadata does not name topic {name!r}")
    except KafkaError as error:
        return None, [no_topic_metadata(name, error)]
    if found.error_code and not (found.error_code == ErrorCode.LEADER_NOT_AVAILABLE and found.partitions):
        others = await _names(kit, connection) if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else []
        return None, [missing_topic(name, found.error_code, alike(name, others))]
    return seen_topic(found), topic_findings(found, reached.seen)


async def _names(kit: Kit, connection: Connection) -> list[str | None]:
    """Return the names of all topics, to find the one that may be meant; none where that answer is too long."""
    try:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await connection.request(request, timeout=kit.patience())
    except KafkaError:
        return []
    return [one.name for one in answer.topics if not one.is_internal]
