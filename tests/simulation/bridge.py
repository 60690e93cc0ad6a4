"""The group coordinator behind the cluster's listeners, for as long as the cluster itself does not have it there."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any
from uuid import UUID

from aiokc.error_codes import ErrorCode
from aiokc.testing.apis import FLEXIBLE_FROM, HANDLERS, REQUESTS
from aiokc.testing.call import Call
from aiokc.testing.cluster_state import ClusterState
from aiokc.testing.groups import Groups
from aiokc.testing.refusal import Refusal
from aiokc.testing.refusals import refused
from aiokc.wire import Response
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokc.wire.primitives import NO_UUID


class _Topics:
    def __init__(self, cluster: ClusterState) -> None:
        self._topics = cluster.topics

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self._topics.by_id.get(topic_id)
        return topic.name if topic is not None else None

    def id_of(self, name: str) -> UUID:
        topic = self._topics.by_name.get(name)
        return topic.topic_id if topic is not None else NO_UUID

    def has_partition(self, name: str, index: int) -> bool:
        topic = self._topics.by_name.get(name)
        return topic is not None and 0 <= index < len(topic.partitions)


class _Bridge:
    """The groups of one cluster."""

    def __init__(self, cluster: ClusterState) -> None:
        self.groups = Groups(Random(cluster.random.getrandbits(32)), topics=_Topics(cluster))
        self._timer: asyncio.TimerHandle | None = None
        self._coordinators: dict[str, int] = {}

    async def ask(self, call: Call[Any]) -> Response:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Response] = loop.create_future()
        for group_id in _groups_of(call.request):
            try:
                call.cluster.check_coordinator(group_id, call.node.node_id)
            except Refusal:
                return refused(call.request, call.version, ErrorCode.NOT_COORDINATOR)
            if self._coordinators.setdefault(group_id, call.node.node_id) != call.node.node_id:
                self._coordinators[group_id] = call.node.node_id
                self.groups.unload(group_id)
                self.groups.load(group_id, loop.time())
        self.groups.handle(
            call.request,
            client_id=call.client_id,
            client_host=call.client_host,
            version=call.version,
            now=loop.time(),
            reply=lambda response: None if reply.done() else reply.set_result(response),
        )
        self._set_alarm()
        return await reply

    def _set_alarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.groups.deadline
        if deadline is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def _tick(self) -> None:
        self.groups.tick(asyncio.get_running_loop().time())
        self._set_alarm()


def _groups_of(request: Any) -> list[str]:
    if isinstance(request, OffsetFetchRequest) and request.groups:
        return [group.group_id for group in request.groups]
    return [request.group_id]


async def _handle(call: Call[Any]) -> Response | None:
    bridge = call.cluster.__dict__.get("bridge")
    if bridge is None:
        bridge = call.cluster.__dict__["bridge"] = _Bridge(call.cluster)
    answer: Response = await bridge.ask(call)
    return answer


def build() -> None:
    """Let every cluster that is made from here on have groups."""
    for request in (
        JoinGroupRequest,
        SyncGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
    ):
        if request not in HANDLERS:
            HANDLERS[request] = _handle
            REQUESTS[request.api_key] = request
            FLEXIBLE_FROM[request.api_key] = request.flexible_from
