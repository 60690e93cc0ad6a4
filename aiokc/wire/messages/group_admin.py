"""Groups from outside: ListGroups, DescribeGroups (classic protocol), DeleteGroups, OffsetDelete."""

from __future__ import annotations

from ..primitives import Bool, Bytes, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class DescribedGroupMember(Struct):
    member_id: String
    group_instance_id: String | None = field("4+", default=None, ignorable=True)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Struct):
    error_code: Int16
    error_message: String | None = field("6+", default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = field("3+", default=-2147483648)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: list[DescribedGroup]


class DescribeGroupsRequest(Request[DescribeGroupsResponse], key=15, versions="0-6", flexible="5+"):
    groups: list[String]
    include_authorized_operations: Bool = field("3+", default=False)


class ListedGroup(Struct):
    group_id: String
    protocol_type: String
    group_state: String = field("4+", default="", ignorable=True)
    group_type: String = field("5+", default="", ignorable=True)


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]


class ListGroupsRequest(Request[ListGroupsResponse], key=16, versions="0-5", flexible="3+"):
    states_filter: list[String] = field("4+", default=())
    types_filter: list[String] = field("5+", default=())


class DeletableGroupResult(Struct):
    group_id: String
    error_code: Int16
    error_message: String | None = field("3+", default=None, ignorable=True)


class DeleteGroupsResponse(Response, key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[DeletableGroupResult]


class DeleteGroupsRequest(Request[DeleteGroupsResponse], key=42, versions="0-3", flexible="2+"):
    groups_names: list[String]


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


class OffsetDeleteResponseTopic(Struct):
    name: String
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Response, key=47, versions="0", flexible="none"):
    error_code: Int16
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic]


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32


class OffsetDeleteRequestTopic(Struct):
    name: String
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Request[OffsetDeleteResponse], key=47, versions="0", flexible="none"):
    group_id: String
    topics: list[OffsetDeleteRequestTopic]
