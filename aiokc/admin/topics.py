"""A topic with its partitions, and the values of its configuration with their origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from ..types import PartitionInfo
from .cluster import AclOperation


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions by number.

    ``topic_id`` (KIP-516) is None on brokers older than 2.8. ``authorized_operations`` are those that the client's
    principal may do to the topic (KIP-430); None where the broker does not say.
    """

    name: str
    partitions: Mapping[int, PartitionInfo]
    topic_id: UUID | None = None
    is_internal: bool = False
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def under_replicated(self) -> tuple[int, ...]:
        """The numbers of the partitions that have fewer in-sync replicas than replicas, in order."""
        return tuple(
            number
            for number, partition in sorted(self.partitions.items())
            if len(partition.in_sync_replicas) < len(partition.replicas)
        )

    @property
    def without_leader(self) -> tuple[int, ...]:
        """The numbers of the partitions that no broker leads, in order."""
        return tuple(number for number, partition in sorted(self.partitions.items()) if partition.leader is None)


class ConfigSource(IntEnum):
    """Where a configuration's value comes from, with Kafka's number."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """The type of a configuration's value, with Kafka's number. UNKNOWN on brokers older than 2.6."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the settings that may decide a value, by its own name: "log.retention.ms" for "retention.ms"."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting in force: its value as text, and where it comes from.

    ``value`` is None where it is not set, and where it is sensitive. ``synonyms`` are the settings that have one, the
    one that decides first.
    """

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType = ConfigType.UNKNOWN
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether neither the topic nor any broker sets it."""
        return self.source is ConfigSource.DEFAULT_CONFIG
