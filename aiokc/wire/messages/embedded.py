"""ConsumerProtocolSubscription and -Assignment: the bytes inside JoinGroup and SyncGroup (classic protocol)."""

from __future__ import annotations

from ..primitives import Bytes, Int32, String
from ..schema import Message, Struct, field


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: String = field("1+", default="")
    partitions: list[Int32] = field("1+", default=())


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    topics: list[String]
    user_data: Bytes | None = field(default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = field("1+", default=(), ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: String | None = field("3+", default=None, ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: String
    partitions: list[Int32]


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition]
    user_data: Bytes | None = field(default=None)
