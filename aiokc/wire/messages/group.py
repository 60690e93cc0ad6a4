"""Group membership: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and ConsumerGroupHeartbeat (KIP-848)."""

from __future__ import annotations

from ..primitives import Bool, Bytes, Int16, Int32, String, Uuid
from ..schema import Request, Response, Struct, field


class JoinGroupResponseMember(Struct):
    member_id: String
    group_instance_id: String | None = field("5+", default=None, ignorable=True)
    metadata: Bytes


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field("7+", default=None, ignorable=True)
    protocol_name: String | None = field(nullable="7+")
    leader: String
    skip_assignment: Bool = field("9+", default=False)
    member_id: String
    members: list[JoinGroupResponseMember]


class JoinGroupRequestProtocol(Struct):
    name: String
    metadata: Bytes


class JoinGroupRequest(Request[JoinGroupResponse], key=11, versions="0-9", flexible="6+"):
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String
    group_instance_id: String | None = field("5+", default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = field("8+", default=None, ignorable=True)


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    protocol_type: String | None = field("5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", default=None, ignorable=True)
    assignment: Bytes


class SyncGroupRequestAssignment(Struct):
    member_id: String
    assignment: Bytes


class SyncGroupRequest(Request[SyncGroupResponse], key=14, versions="0-5", flexible="4+"):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)
    protocol_type: String | None = field("5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16


class HeartbeatRequest(Request[HeartbeatResponse], key=12, versions="0-4", flexible="4+"):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)


class MemberResponse(Struct):
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default="")
    error_code: Int16 = field("3+", default=0)


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    members: list[MemberResponse] = field("3+", default=())


class MemberIdentity(Struct):
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    reason: String | None = field("5+", default=None, ignorable=True)


class LeaveGroupRequest(Request[LeaveGroupResponse], key=13, versions="0-5", flexible="4+"):
    group_id: String
    member_id: String = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default=())


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class Assignment(Struct):
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions]


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = field(default=None)


class ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse], key=68, versions="0-1", flexible="0+"):
    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None = field(default=None)
    subscribed_topic_regex: String | None = field("1+", default=None)
    server_assignor: String | None = field(default=None)
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = field(default=None)
