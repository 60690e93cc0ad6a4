"""aiokc: an asyncio-native Kafka client. What is not here, nor in the modules that docs/ names, is internal.

Each name is imported from its module when it is first asked for (PEP 562): a program that needs a TopicPartition does
not load the consumer. ``from aiokc import Consumer`` at the head of a module loads the consumer there and then. The
first ``aiokc.Consumer`` does it wherever it stands, for some 200 ms: so import the name, not the package alone, in a
program whose event loop must not wait.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from . import errors as errors
    from . import records as records
    from .assignor import Assignment, Assignor, Claim, Group, MemberSubscription, RebalanceProtocol
    from .client.client import Client
    from .client.consumer.consumer import Consumer
    from .client.group.rebalance_listener import RebalanceListener
    from .client.produce.batch_delivery import BatchDelivery, StoredRecords
    from .client.produce.delivery import Delivery
    from .client.producer.producer import Producer
    from .client.transactional_loop.transactional_loop import TransactionalLoop
    from .client.transactions.transaction import Transaction
    from .config import (
        ClientConfig,
        ClientOptions,
        ClusterOptions,
        ConsumerConfig,
        ConsumerOptions,
        ProducerConfig,
        ProducerOptions,
    )
    from .error_codes import ErrorCode
    from .errors import KafkaError
    from .interceptor import ConsumerInterceptor, ProducerInterceptor
    from .observation import (
        Health,
        Latency,
        Metrics,
        NodeMetrics,
        PartitionTrouble,
        ProducerHealth,
        ProducerMetrics,
        ReadMetrics,
    )
    from .observer import Observer, ProducerObserver
    from .partitioner import Partitioner
    from .secret import Secret
    from .serialization.deserializer import AsyncDeserializer, Deserializer
    from .serialization.serializer import AsyncSerializer, Serializer
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
        ProducerRecord,
        RawRecord,
        RawRecords,
        RecordColumns,
        RecordMetadata,
        SubscriptionPattern,
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
    "AsyncSerializer",
    "BatchDelivery",
    "Broker",
    "Claim",
    "Client",
    "ClientConfig",
    "ClientOptions",
    "ClusterOptions",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInterceptor",
    "ConsumerOptions",
    "ConsumerRecord",
    "ConsumerRecords",
    "Delivery",
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
    "NodeMetrics",
    "OAuthToken",
    "Observer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "PartitionRecords",
    "PartitionTrouble",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerHealth",
    "ProducerInterceptor",
    "ProducerMetrics",
    "ProducerObserver",
    "ProducerOptions",
    "ProducerRecord",
    "RawRecord",
    "RawRecords",
    "ReadMetrics",
    "RebalanceListener",
    "RebalanceProtocol",
    "RecordColumns",
    "RecordMetadata",
    "Secret",
    "Serializer",
    "StoredRecords",
    "SubscriptionPattern",
    "TokenProvider",
    "TopicInfo",
    "TopicPartition",
    "Transaction",
    "TransactionalLoop",
]

#: The module of each name, as the imports for type checkers say, too.
_MODULES: Final = {
    "Assignment": ".assignor",
    "Assignor": ".assignor",
    "Claim": ".assignor",
    "Group": ".assignor",
    "MemberSubscription": ".assignor",
    "RebalanceProtocol": ".assignor",
    "Client": ".client.client",
    "Consumer": ".client.consumer.consumer",
    "RebalanceListener": ".client.group.rebalance_listener",
    "BatchDelivery": ".client.produce.batch_delivery",
    "StoredRecords": ".client.produce.batch_delivery",
    "Delivery": ".client.produce.delivery",
    "Producer": ".client.producer.producer",
    "TransactionalLoop": ".client.transactional_loop.transactional_loop",
    "Transaction": ".client.transactions.transaction",
    "ClientConfig": ".config",
    "ClientOptions": ".config",
    "ClusterOptions": ".config",
    "ConsumerConfig": ".config",
    "ConsumerOptions": ".config",
    "ProducerConfig": ".config",
    "ProducerOptions": ".config",
    "ErrorCode": ".error_codes",
    "KafkaError": ".errors",
    "ConsumerInterceptor": ".interceptor",
    "ProducerInterceptor": ".interceptor",
    "ProducerObserver": ".observer",
    "Health": ".observation",
    "Latency": ".observation",
    "Metrics": ".observation",
    "NodeMetrics": ".observation",
    "PartitionTrouble": ".observation",
    "ProducerHealth": ".observation",
    "ProducerMetrics": ".observation",
    "ReadMetrics": ".observation",
    "Observer": ".observer",
    "Partitioner": ".partitioner",
    "Secret": ".secret",
    "AsyncDeserializer": ".serialization.deserializer",
    "Deserializer": ".serialization.deserializer",
    "AsyncSerializer": ".serialization.serializer",
    "Serializer": ".serialization.serializer",
    "OAuthToken": ".token_provider",
    "TokenProvider": ".token_provider",
    "CREATE_TIME": ".types",
    "EARLIEST": ".types",
    "LATEST": ".types",
    "LOG_APPEND_TIME": ".types",
    "NO_TIMESTAMP": ".types",
    "Broker": ".types",
    "ConsumerRecord": ".types",
    "ConsumerRecords": ".types",
    "GroupMetadata": ".types",
    "Headers": ".types",
    "OffsetAndMetadata": ".types",
    "OffsetAndTimestamp": ".types",
    "PartitionInfo": ".types",
    "PartitionRecords": ".types",
    "ProducerRecord": ".types",
    "RawRecord": ".types",
    "RawRecords": ".types",
    "RecordColumns": ".types",
    "RecordMetadata": ".types",
    "SubscriptionPattern": ".types",
    "TopicInfo": ".types",
    "TopicPartition": ".types",
}
#: Modules that are public themselves.
_PUBLIC_MODULES: Final = frozenset({"errors", "records"})


def __getattr__(name: str) -> object:
    if name in _PUBLIC_MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_MODULES[name], __name__), name)
    globals()[name] = value  # the next access is an ordinary one
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PUBLIC_MODULES})
