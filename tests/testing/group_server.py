"""The group coordinator alone, behind a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Final
from uuid import UUID

from aiokc.testing.groups import Groups
from aiokc.testing.messages.describing import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
)
from aiokc.testing.messages.producing import InitProducerIdRequest, InitProducerIdResponse
from aiokc.testing.messages.txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
)
from aiokc.testing.rebalances import GroupSettings
from aiokc.wire import Request, Response, decode, decode_request_header, encode_response
from aiokc.wire.messages.discovery import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest

_REQUESTS: Final[dict[int, type[Request[Any]]]] = {
    request.api_key: request
    for request in (
        JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest, OffsetCommitRequest,
        OffsetFetchRequest, TxnOffsetCommitRequest, OffsetDeleteRequest, DescribeGroupsRequest, ListGroupsRequest,
        DeleteGroupsRequest, FindCoordinatorRequest, InitProducerIdRequest, AddOffsetsToTxnRequest, EndTxnRequest,
    )
}  # fmt: skip
_FLEXIBLE_FROM: Final = {key: request.flexible_from for key, request in _REQUESTS.items()}


class TopicNames:
    """Topics that have a name, an id, and partitions; nothing is in them."""

    def __init__(self) -> None:
        self.by_name: dict[str, tuple[UUID, int]] = {}

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, (known, _) in self.by_name.items() if known == topic_id), None)

    def id_of(self, name: str) -> UUID:
        return self.by_name[name][0] if name in self.by_name else UUID(int=0)

    def has_partition(self, name: str, index: int) -> bool:
        return name in self.by_name and 0 <= index < self.by_name[name][1]


class GroupServer:
    """Serves one connection's requests in order: a parked one holds up those behind it, as in a broker."""

    def __init__(self, settings: GroupSettings) -> None:
        self.topics = TopicNames()
        self.groups = Groups(Random(1), settings, topics=self.topics)
        self.bootstrap = ""
        self._transactions: dict[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None

    def create_topic(self, name: str, partitions: int = 1) -> UUID:
        self.topics.by_name[name] = (UUID(int=len(self.topics.by_name) + 1), partitions)
        return self.topics.id_of(name)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                header = decode_request_header(memoryview(await reader.readexactly(size)), _FLEXIBLE_FROM)
                request_class, version = _REQUESTS[header.api_key], header.api_version
                response = await self._answer(decode(request_class, header.body, version), version, header.client_id)
                writer.write(encode_response(response, version=version, correlation_id=header.correlation_id))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, request: Request[Any], version: int, client_id: str | None) -> Response:
        if isinstance(request, FindCoordinatorRequest):
            node = [Coordinator(key=key, node_id=1, port=1, error_code=0) for key in request.coordinator_keys]
            return FindCoordinatorResponse(coordinators=node)
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(error_code=0, producer_id=1, producer_epoch=0)
        if isinstance(request, AddOffsetsToTxnRequest):
            self._transactions[request.transactional_id] = request.group_id
            return AddOffsetsToTxnResponse(error_code=0)
        if isinstance(request, EndTxnRequest):
            group_id = self._transactions.pop(request.transactional_id)
            self.groups.end_transaction(group_id, request.producer_id, request.committed)
            return EndTxnResponse(error_code=0)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Response] = loop.create_future()

        def reply(response: Response) -> None:
            if not answered.done():
                answered.set_result(response)

        self.groups.handle(
            request, client_id=client_id or "", client_host="/127.0.0.1", version=version, now=loop.time(), reply=reply
        )
        self._set_timer()
        return await answered

    def _set_timer(self) -> None:
        self.stop_timer()
        deadline = self.groups.deadline
        if deadline is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self.groups.tick(asyncio.get_running_loop().time())
        self._set_timer()


@asynccontextmanager
async def running_groups(settings: GroupSettings) -> AsyncIterator[GroupServer]:
    """Serve an empty coordinator at a port that the system chooses."""
    served = GroupServer(settings)
    connections: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.get_running_loop().create_task(served.serve(reader, writer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    served.bootstrap = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        served.stop_timer()
        server.close()
        for connection in list(connections):
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
