"""aiokc: an asyncio-native Kafka consumer. Names that are not here, in aiokc.errors or aiokc.testing are internal."""

from __future__ import annotations

from .assignor import Assignment, Assignor, Claim, Group, MemberSubscription, RebalanceProtocol
from .client.client import Client
from .client.consumer.consumer import Consumer
from .client.group.rebalance_listener import RebalanceListener
from .config import ClientConfig, ConsumerConfig
from .deserializer import AsyncDeserializer, Deserializer
from .error_codes import ErrorCode
from .errors import KafkaError
from .interceptor import ConsumerInterceptor
from .observation import Health, Latency, Metrics, ReadMetrics
from .secret import Secret
from .token_provider import OAuthToken, TokenProvider
from .types import (
    CREATE_TIME,
    EARLIEST,
    LATEST,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Broker,
    ConsumerRecord,
    ConsumerRecords,
    GroupMetadata,
    Headers,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    PartitionRecords,
    RawRecord,
    RawRecords,
    RecordColumns,
    TopicInfo,
    TopicPartition,
)

__all__ = [
    "CREATE_TIME",
    "EARLIEST",
    "LATEST",
    "LOG_APPEND_TIME",
    "NO_TIMESTAMP",
    "Assignment",
    "Assignor",
    "AsyncDeserializer",
    "Broker",
    "Claim",
    "Client",
    "ClientConfig",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerRecords",
    "Deserializer",
    "ErrorCode",
    "Group",
    "GroupMetadata",
    "Headers",
    "Health",
    "KafkaError",
    "Latency",
    "MemberSubscription",
    "Metrics",
    "OAuthToken",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "PartitionRecords",
    "RawRecord",
    "RawRecords",
    "ReadMetrics",
    "RebalanceListener",
    "RebalanceProtocol",
    "RecordColumns",
    "Secret",
    "TokenProvider",
    "TopicInfo",
    "TopicPartition",
]
