"""Eyes in a world: what members own (asked of the client's one record of it), what coordinators accept and assign."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from aiokc.core.subscription import Subscription
from aiokc.error_codes import ErrorCode
from aiokc.testing.apis import HANDLERS, Handler
from aiokc.testing.call import Call
from aiokc.testing.virtual_hosts import LOCALHOST, current_host
from aiokc.types import TopicPartition
from aiokc.wire import Response, decode
from aiokc.wire.messages.embedded import ConsumerProtocolAssignment
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest

from .history import Assigned, Claimed, CommitStored, Disowned, History, Joining, Unclaimed, replaced


@contextmanager
def observed(history: History) -> Iterator[None]:
    """Write down claims, joins, assignments and stored commits."""
    with ExitStack() as stack:
        stack.enter_context(_claims_observed(history))
        for request_class, observe in (
            (JoinGroupRequest, _joining),
            (SyncGroupRequest, _assigned),
            (HeartbeatRequest, _beaten),
            (OffsetCommitRequest, _committed),
        ):
            if request_class in HANDLERS:
                stack.enter_context(_handler_observed(history, request_class, observe))
        yield


@contextmanager
def _claims_observed(history: History) -> Iterator[None]:
    original = Subscription.replace

    def replace(self: Subscription, partitions: Iterable[TopicPartition]) -> bool:
        before = set(self.assigned)
        changed = original(self, partitions)
        member = current_host()
        if member != LOCALHOST:
            for tp in sorted(before - self.assigned.keys()):
                history.add(Unclaimed(member, tp))
            for tp in sorted(self.assigned.keys() - before):
                history.add(Claimed(member, tp))
        return changed

    with replaced(Subscription, "replace", replace):
        yield


@contextmanager
def _handler_observed(history: History, request_class: Any, observe: Any) -> Iterator[None]:
    original: Handler = HANDLERS[request_class]

    async def handle(call: Call[Any]) -> Response | None:
        if observe is _joining:
            _joining(history, call)
            return await original(call)
        response = await original(call)
        observe(history, call, response)
        return response

    HANDLERS[request_class] = handle
    try:
        yield
    finally:
        HANDLERS[request_class] = original


def _joining(history: History, call: Call[JoinGroupRequest]) -> None:
    history.add(Joining(call.client_id))


def _assigned(history: History, call: Call[SyncGroupRequest], response: Any) -> None:
    if response.error_code != ErrorCode.NONE:
        return
    raw = memoryview(response.assignment)
    partitions: frozenset[TopicPartition] = frozenset()
    if raw:
        assignment = decode(ConsumerProtocolAssignment, raw[2:], int.from_bytes(raw[:2], "big"))
        partitions = frozenset(
            TopicPartition(topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions
        )
    history.add(Assigned(call.client_id, call.request.generation_id, partitions))


def _beaten(history: History, call: Call[HeartbeatRequest], response: Any) -> None:
    if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        history.add(Disowned(call.client_id))


def _committed(history: History, call: Call[OffsetCommitRequest], response: Any) -> None:
    request: Any = call.request
    codes = {
        (topic.name or topic.topic_id, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    generation = request.generation_id_or_member_epoch
    for topic in request.topics:
        name = topic.name or call.cluster.topics.by_id[topic.topic_id].name
        for partition in topic.partitions:
            if codes[topic.name or topic.topic_id, partition.partition_index] == ErrorCode.NONE:
                tp = TopicPartition(name, partition.partition_index)
                history.add(CommitStored(call.client_id, generation, tp, partition.committed_offset))
