"""``authorized``: refuses what a request's user may not do, as KafkaApis does, and hands on the rest of the request.

Metadata, FindCoordinator and Fetch decide in their own handlers, because their answers leave topics out, or hide them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar, cast

from ...error_codes import ErrorCode
from ...wire import Request, Response
from ...wire.messages.describing import DescribeConfigsRequest, DescribeConfigsResource, DescribeLogDirsRequest
from ...wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from ...wire.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ...wire.messages.group_description import ConsumerGroupDescribeRequest
from ...wire.messages.offsets import (
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
)
from ...wire.messages.produce import InitProducerIdRequest, ProduceRequest
from ...wire.messages.txn import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from ...wire.primitives import NO_UUID
from ...wire.schema import Struct
from ..messages.topic_admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from ..refusal import ClosesConnection
from ..security.authorizer import CLUSTER_NAME, Operation, ResourceType
from .call import Call
from .refusals import refused

S = TypeVar("S", bound=Struct)
Handler: TypeAlias = Callable[[Call[Any]], Awaitable[Response | None]]

_TOPIC: Final = 2  # a resource type of DescribeConfigs

_CODES: Final[dict[ResourceType, ErrorCode]] = {
    "topic": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "group": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    "transactional_id": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "cluster": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True)
class _Needs:
    """What the whole request needs: ``name`` is the request's field that names the resource."""

    operation: Operation
    kind: ResourceType
    name: str


@dataclass(frozen=True)
class _Each:
    """What each item of the request's list ``items`` needs. ``answers`` is the list in the answer."""

    operation: Operation
    items: str
    answers: str
    kind: ResourceType = "topic"


_MEMBER: Final = (_Needs(Operation.READ, "group", "group_id"),)
_PRODUCER: Final = _Needs(Operation.WRITE, "transactional_id", "transactional_id")

_WHOLE: Final[dict[type[Request[Any]], tuple[_Needs, ...]]] = {
    ProduceRequest: (_PRODUCER,),
    JoinGroupRequest: _MEMBER,
    SyncGroupRequest: _MEMBER,
    HeartbeatRequest: _MEMBER,
    LeaveGroupRequest: _MEMBER,
    OffsetCommitRequest: _MEMBER,
    OffsetDeleteRequest: (_Needs(Operation.DELETE, "group", "group_id"),),
    AddPartitionsToTxnRequest: (_Needs(Operation.WRITE, "transactional_id", "v3_and_below_transactional_id"),),
    AddOffsetsToTxnRequest: (_PRODUCER, *_MEMBER),
    TxnOffsetCommitRequest: (_PRODUCER, *_MEMBER),
    EndTxnRequest: (_PRODUCER,),
    InitProducerIdRequest: (_PRODUCER,),
}

_EACH: Final[dict[type[Request[Any]], _Each]] = {
    ProduceRequest: _Each(Operation.WRITE, "topic_data", "responses"),
    ListOffsetsRequest: _Each(Operation.DESCRIBE, "topics", "topics"),
    OffsetForLeaderEpochRequest: _Each(Operation.DESCRIBE, "topics", "topics"),
    OffsetCommitRequest: _Each(Operation.READ, "topics", "topics"),
    TxnOffsetCommitRequest: _Each(Operation.READ, "topics", "topics"),
    DescribeGroupsRequest: _Each(Operation.DESCRIBE, "groups", "groups", "group"),
    ConsumerGroupDescribeRequest: _Each(Operation.DESCRIBE, "group_ids", "groups", "group"),
    DeleteGroupsRequest: _Each(Operation.DELETE, "groups_names", "results", "group"),
    DescribeConfigsRequest: _Each(Operation.DESCRIBE_CONFIGS, "resources", "results"),
    CreateTopicsRequest: _Each(Operation.CREATE, "topics", "topics"),
    CreatePartitionsRequest: _Each(Operation.ALTER, "topics", "results"),
    DeleteRecordsRequest: _Each(Operation.DELETE, "topics", "topics"),
    DeleteTopicsRequest: _Each(Operation.DELETE, "topics", "responses"),
}

#: The rights on the cluster that stand for one on every topic.
_BY_CLUSTER: Final[dict[type[Request[Any]], Operation]] = {
    CreateTopicsRequest: Operation.CREATE,
    DeleteTopicsRequest: Operation.DELETE,
    OffsetForLeaderEpochRequest: Operation.CLUSTER_ACTION,
}


async def authorized(call: Call[Any], handle: Handler) -> Response | None:
    """Answer a request: ``handle`` gets what its user may do, and the rest is refused."""
    kind = type(call.request)
    for needs in _WHOLE.get(kind, ()):
        name = getattr(call.request, needs.name)
        if name is not None and not _may_go_unnamed(call, needs) and not call.allows(needs.operation, needs.kind, name):
            return _refuse(call, call.request, _CODES[needs.kind])
    if kind in _SPECIAL:
        return await _SPECIAL[kind](call, handle)
    if kind in _EACH:
        return await _split(call, handle, _EACH[kind])
    return await handle(call)


def _may_go_unnamed(call: Call[Any], needs: _Needs) -> bool:
    """Return whether a field that is empty names nothing: AddPartitionsToTxn from version 4 on is for brokers."""
    return needs.name.startswith("v3_") and call.version >= 4


def _refuse(call: Call[Any], request: Request[Any], code: ErrorCode) -> Response:
    if isinstance(request, ProduceRequest) and request.acks == 0:
        raise ClosesConnection(f"Produce with acks=0: {code.name}")
    return refused(request, call.version, code)


def _changed(message: S, **fields: Any) -> S:
    """Return a copy of a message with other values in some fields."""
    return type(message)(**{name: getattr(message, name) for name in message._specs} | fields)


async def _split(call: Call[Any], handle: Handler, each: _Each) -> Response | None:
    """Refuse the forbidden items, handle the others, and answer both."""
    request = call.request
    field = each.items
    if isinstance(request, DeleteTopicsRequest) and call.version < 6:
        field = "topic_names"
    items = getattr(request, field) or []
    forbidden = [item for item in items if not _may(call, each, item)]
    if not forbidden:
        return await handle(call)
    allowed = [item for item in items if not any(item is one for one in forbidden)]
    answer = await handle(replace(call, request=_changed(request, **{field: allowed}))) if allowed else None
    refusal = _refuse(call, _changed(request, **{field: forbidden}), _CODES[each.kind])  # acks=0: closes the connection
    if not allowed:
        return refusal
    if answer is not None:
        getattr(answer, each.answers).extend(getattr(refusal, each.answers))
    return answer


def _may(call: Call[Any], each: _Each, item: Any) -> bool:
    of_cluster = _BY_CLUSTER.get(type(call.request))
    if of_cluster is not None and call.allows(of_cluster, "cluster", CLUSTER_NAME):
        return True
    name = item if isinstance(item, str) else _name_of(call, item)
    return name is None or call.allows(each.operation, each.kind, name)


def _name_of(call: Call[Any], item: Any) -> str | None:
    """Return the name of an item that may name its topic by id only; None for an id that no topic has."""
    if isinstance(item, DescribeConfigsResource):
        return item.resource_name if item.resource_type == _TOPIC else None
    name: str | None = item.topic if hasattr(item, "topic") else item.name
    topic_id = getattr(item, "topic_id", NO_UUID)
    return call.cluster.topics.name_of(topic_id) if not name and topic_id != NO_UUID else name


# Requests with rules of their own


async def _init_producer_id(call: Call[InitProducerIdRequest], handle: Handler) -> Response | None:
    """Let a producer be idempotent that may write to any topic (KIP-679)."""
    may_write = call.cluster.security.acls.allows_some(call.user, Operation.WRITE, "topic")
    is_transactional = call.request.transactional_id is not None
    if is_transactional or may_write or call.allows(Operation.IDEMPOTENT_WRITE, "cluster", CLUSTER_NAME):
        return await handle(call)
    return _refuse(call, call.request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def _offset_fetch(call: Call[OffsetFetchRequest], handle: Handler) -> OffsetFetchResponse:
    """Leave forbidden topics out where all offsets of a group are asked for."""
    request, describe = call.request, Operation.DESCRIBE
    groups = request.groups if call.version >= 8 else [request]
    denied = [one for one in groups if not call.allows(describe, "group", one.group_id)]
    if call.version < 8:
        if denied:
            return cast(OffsetFetchResponse, _refuse(call, request, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    elif denied:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        refusal = cast(OffsetFetchResponse, _refuse(call, _changed(request, groups=denied), code))
        allowed = [one for one in groups if one not in denied]
        answer = await _offset_fetch(replace(call, request=_changed(request, groups=allowed)), handle)
        answer.groups.extend(refusal.groups)
        return answer
    answer = cast(OffsetFetchResponse, await handle(call))
    if call.version < 8:
        _hide_offsets(call, answer, request.topics is None)
    else:
        asked = {one.group_id: one.topics is None for one in groups}
        for group in answer.groups:
            _hide_offsets(call, group, asked[group.group_id])
    return answer


def _hide_offsets(call: Call[Any], answer: Any, asked_for_all: bool) -> None:
    """Take the offsets of forbidden topics from an answer."""
    for topic in list(answer.topics):
        name = _name_of(call, topic)
        if name is None or call.allows(Operation.DESCRIBE, "topic", name):
            continue
        if asked_for_all:
            answer.topics.remove(topic)
            continue
        for one in topic.partitions:
            one.committed_offset, one.committed_leader_epoch, one.metadata = -1, -1, ""
            one.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def _list_groups(call: Call[ListGroupsRequest], handle: Handler) -> Response | None:
    """List all groups to users who may describe the cluster, to others those that they may describe."""
    answer = cast(ListGroupsResponse, await handle(call))
    if not call.allows(Operation.DESCRIBE, "cluster", CLUSTER_NAME):
        answer.groups = [one for one in answer.groups if call.allows(Operation.DESCRIBE, "group", one.group_id)]
    return answer


async def _describe_log_dirs(call: Call[DescribeLogDirsRequest], handle: Handler) -> Response | None:
    """Describe the disks to users who may describe the cluster. Before version 3 others get an answer without any."""
    if call.allows(Operation.DESCRIBE, "cluster", CLUSTER_NAME):
        return await handle(call)
    return _refuse(call, call.request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def _add_partitions(call: Call[AddPartitionsToTxnRequest], handle: Handler) -> Response | None:
    """Add all partitions or none: beside a forbidden topic the others are not attempted."""
    topics = call.request.v3_and_below_topics if call.version < 4 else []
    forbidden = [one for one in topics if not call.allows(Operation.WRITE, "topic", one.name)]
    if not forbidden:
        return await handle(call)
    answer = cast(AddPartitionsToTxnResponse, refused(call.request, call.version, ErrorCode.OPERATION_NOT_ATTEMPTED))
    names = {one.name for one in forbidden}
    for topic in answer.results_by_topic_v3_and_below:
        for one in topic.results_by_partition if topic.name in names else []:
            one.partition_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return answer


async def _consumer_group_heartbeat(call: Call[ConsumerGroupHeartbeatRequest], handle: Handler) -> Response | None:
    """Refuse the whole heartbeat where the user may not know of one of the topics that it names.

    A cluster with the feature off says so to everybody.
    """
    request = call.request
    if not call.cluster.has_consumer_groups:
        return await handle(call)
    if not call.allows(Operation.READ, "group", request.group_id):
        return _refuse(call, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not all(call.allows(Operation.DESCRIBE, "topic", name) for name in request.subscribed_topic_names or ()):
        return _refuse(call, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return await handle(call)


async def _describe_groups(call: Call[Any], handle: Handler) -> Response | None:
    """Tell only the operations that the user may do."""
    answer = cast(DescribeGroupsResponse, await _split(call, handle, _EACH[type(call.request)]))
    for group in answer.groups:
        if group.authorized_operations > 0:
            bits = call.cluster.security.acls.bits(call.user, "group", group.group_id, group.authorized_operations)
            group.authorized_operations = bits
    return answer


async def _offset_delete(call: Call[OffsetDeleteRequest], handle: Handler) -> Response | None:
    """Refuse forbidden topics; `refused` names none, as its answers have a code for all."""
    forbidden = [one for one in call.request.topics if not call.allows(Operation.READ, "topic", one.name)]
    allowed = [one for one in call.request.topics if one not in forbidden]
    answer = cast(OffsetDeleteResponse, await handle(replace(call, request=_changed(call.request, topics=allowed))))
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer.topics += [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=code)
                for one in topic.partitions
            ],
        )
        for topic in forbidden
    ]
    return answer


_SPECIAL: Final[dict[type[Request[Any]], Callable[[Call[Any], Handler], Awaitable[Response | None]]]] = {
    InitProducerIdRequest: _init_producer_id,
    OffsetFetchRequest: _offset_fetch,
    DescribeGroupsRequest: _describe_groups,
    ConsumerGroupDescribeRequest: _describe_groups,
    ConsumerGroupHeartbeatRequest: _consumer_group_heartbeat,
    OffsetDeleteRequest: _offset_delete,
    ListGroupsRequest: _list_groups,
    DescribeLogDirsRequest: _describe_log_dirs,
    AddPartitionsToTxnRequest: _add_partitions,
}
