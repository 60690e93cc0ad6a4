"""ConsumerGroupDescribe (KIP-848) and ShareGroupDescribe (KIP-932): members with their epochs and assignments."""

from __future__ import annotations

from ..primitives import Bool, Int8, Int16, Int32, String, Uuid
from ..schema import Request, Response, Struct, field


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ConsumerGroupMember(Struct):
    member_id: String
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = field(default=None)
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = field("1+", default=-1, ignorable=True)


class DescribedConsumerGroup(Struct):
    error_code: Int16
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[ConsumerGroupMember]
    authorized_operations: Int32 = field(default=-2147483648)


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    groups: list[DescribedConsumerGroup]


class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse], key=69, versions="0-1", flexible="0+"):
    group_ids: list[String]
    include_authorized_operations: Bool


class ShareGroupMember(Struct):
    member_id: String
    rack_id: String | None = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    assignment: Assignment


class DescribedShareGroup(Struct):
    error_code: Int16
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[ShareGroupMember]
    authorized_operations: Int32 = field(default=-2147483648)


class ShareGroupDescribeResponse(Response, key=77, versions="1", flexible="0+"):
    throttle_time_ms: Int32
    groups: list[DescribedShareGroup]


class ShareGroupDescribeRequest(Request[ShareGroupDescribeResponse], key=77, versions="1", flexible="0+"):
    group_ids: list[String]
    include_authorized_operations: Bool
