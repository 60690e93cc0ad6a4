"""Brokers on loopback with one group of one member. They answer well, until the test scripts other answers."""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from aiokc.client.aio.signal import Signal
from aiokc.error_codes import ErrorCode
from aiokc.types import TopicPartition
from aiokc.wire import Request, Response, decode, decode_request_header, encode_response
from aiokc.wire.messages import discovery, group, offsets
from tests.net.scripted import ticks

R = TypeVar("R", bound=Request[Any])
APIS: dict[int, type[Request[Any]]] = {
    request.api_key: request
    for request in (
        discovery.ApiVersionsRequest,
        discovery.MetadataRequest,
        discovery.FindCoordinatorRequest,
        group.JoinGroupRequest,
        group.SyncGroupRequest,
        group.HeartbeatRequest,
        group.LeaveGroupRequest,
        offsets.OffsetCommitRequest,
        offsets.OffsetFetchRequest,
    )
}
TOPIC_ID = UUID(int=7)


class Silence:
    """The request stays unanswered, and so do those that follow on its connection."""


class Park:
    """The request is answered once the test sets ``until``."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.until = asyncio.Event()
        self.code = code


class Cut:
    """The connection breaks."""


Answer: TypeAlias = ErrorCode | Response | Silence | Park | Cut


@dataclass(frozen=True)
class Asked:
    """A request that has arrived: at which node, over which connection, in which version."""

    node_id: int
    connection: int
    version: int
    request: Request[Any]


class ScriptedGroup:
    """Nodes 1 and 2, topic "t" with two partitions. ``coordinator`` is the node that FindCoordinator names."""

    def __init__(self, versions: dict[type[Request[Any]], tuple[int, int]]) -> None:
        self.coordinator = 1
        self.hidden: set[int] = set()  # nodes that the metadata do not show
        self.elsewhere: dict[int, int] = {}  # node to the port that the metadata show in place of its own
        self.bootstrap = ""
        self.asked: list[Asked] = []
        self.arrived = Signal()
        self.generation = 0
        self.committed: dict[TopicPartition, int] = {}
        self.closed: set[int] = set()
        self._versions = versions
        self._instead: defaultdict[type[Request[Any]], deque[Answer]] = defaultdict(deque)
        self._ports: dict[int, int] = {}
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def instead(self, request_type: type[Request[Any]], *answers: Answer) -> None:
        """Give these answers to the next requests of this kind, one answer to each."""
        self._instead[request_type].extend(answers)

    def as_usual(self, request_type: type[Request[Any]]) -> None:
        """Forget the answers of ``instead`` that were not given yet."""
        self._instead[request_type].clear()

    def of(self, request_type: type[R]) -> list[R]:
        """The requests of this kind so far."""
        return [asked.request for asked in self.asked if isinstance(asked.request, request_type)]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when ``condition`` holds. It is checked at each request, and when a connection ends."""
        async with asyncio.timeout(20):
            while not condition():
                await self.arrived.wait()

    # Serving

    def accept(self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self._connections
        self._connections += 1
        self._tasks.add(asyncio.get_running_loop().create_task(self._serve(node_id, number, reader, writer)))

    async def _serve(
        self, node_id: int, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while await self._serve_one(node_id, number, reader, writer):
                pass
        except (EOFError, ConnectionError):
            pass  # the client closed
        finally:
            writer.close()
            self.closed.add(number)
            self.arrived.notify()

    async def _serve_one(
        self, node_id: int, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        frame = memoryview(await reader.readexactly(length))
        header = decode_request_header(frame, {key: api.flexible_from for key, api in APIS.items()})
        request = decode(APIS[header.api_key], header.body, header.api_version)
        asked = Asked(node_id, number, header.api_version, request)
        self.asked.append(asked)
        self.arrived.notify()
        waiting = self._instead[type(request)]
        answer: Answer = waiting.popleft() if waiting else ErrorCode.NONE
        match answer:
            case Silence():
                while await reader.read(65536):
                    pass
                return False
            case Cut():
                return False
            case Park():
                await answer.until.wait()
                answer = answer.code
        response = answer if isinstance(answer, Response) else self._answer(asked, answer)
        writer.write(encode_response(response, version=header.api_version, correlation_id=header.correlation_id))
        return True

    # Answers

    def _answer(self, asked: Asked, code: ErrorCode) -> Response:
        match asked.request:
            case discovery.ApiVersionsRequest():
                return self._api_versions()
            case discovery.MetadataRequest():
                return self._metadata(asked.request)
            case discovery.FindCoordinatorRequest():
                return self._find_coordinator(asked.request, asked.version, code)
            case group.JoinGroupRequest():
                return self._join(asked.request, code)
            case group.SyncGroupRequest():
                assignment = asked.request.assignments[0].assignment if asked.request.assignments else b""
                return group.SyncGroupResponse(error_code=code, assignment=assignment)
            case group.HeartbeatRequest():
                return group.HeartbeatResponse(error_code=code)
            case group.LeaveGroupRequest():
                return group.LeaveGroupResponse(error_code=code)
            case offsets.OffsetCommitRequest():
                is_here = asked.node_id == self.coordinator
                return self._commit(asked.request, code if is_here else ErrorCode.NOT_COORDINATOR)
            case offsets.OffsetFetchRequest():
                return self._fetch(asked.request, code)
        raise AssertionError(f"no answer to {asked.request!r}")

    def _api_versions(self) -> Response:
        keys = []
        for api in APIS.values():
            low, high = self._versions.get(api, (api.min_version, api.max_version))
            keys.append(discovery.ApiVersion(api_key=api.api_key, min_version=low, max_version=high))
        return discovery.ApiVersionsResponse(error_code=0, api_keys=keys)

    def _metadata(self, request: discovery.MetadataRequest) -> Response:
        brokers = [
            discovery.MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=self.elsewhere.get(node_id, port))
            for node_id, port in self._ports.items()
            if node_id not in self.hidden
        ]
        topics = [self._topic(topic.name or "") for topic in request.topics or []]
        return discovery.MetadataResponse(brokers=brokers, cluster_id="scripted", controller_id=1, topics=topics)

    def _topic(self, name: str) -> discovery.MetadataResponseTopic:
        code = ErrorCode.NONE if name == "t" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = [
            discovery.MetadataResponsePartition(
                error_code=0, partition_index=n, leader_id=1, replica_nodes=[1], isr_nodes=[1]
            )
            for n in range(2)
        ]
        return discovery.MetadataResponseTopic(error_code=code, name=name, topic_id=TOPIC_ID, partitions=partitions)

    def _find_coordinator(self, request: discovery.FindCoordinatorRequest, version: int, code: ErrorCode) -> Response:
        node_id, host, port = self.coordinator, "127.0.0.1", self._ports[self.coordinator]
        if version < 4:
            return discovery.FindCoordinatorResponse(error_code=code, node_id=node_id, host=host, port=port)
        found = discovery.Coordinator(
            key=request.coordinator_keys[0], error_code=code, error_message=None, node_id=node_id, host=host, port=port
        )
        return discovery.FindCoordinatorResponse(coordinators=[found])

    def _join(self, request: group.JoinGroupRequest, code: ErrorCode) -> Response:
        if code is ErrorCode.NONE and not request.member_id:
            code = ErrorCode.MEMBER_ID_REQUIRED
        member_id = request.member_id or "m-1"
        if code is not ErrorCode.NONE:
            return group.JoinGroupResponse(
                error_code=code, protocol_name="", leader="", member_id=member_id, members=[]
            )
        self.generation += 1
        protocol = request.protocols[0]
        return group.JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_name=protocol.name,
            leader=member_id,
            member_id=member_id,
            members=[group.JoinGroupResponseMember(member_id=member_id, metadata=protocol.metadata)],
        )

    def _commit(self, request: offsets.OffsetCommitRequest, code: ErrorCode) -> Response:
        topics = []
        for topic in request.topics:
            for part in topic.partitions:
                if code is ErrorCode.NONE:
                    self.committed[TopicPartition("t", part.partition_index)] = part.committed_offset
            answers = [
                offsets.OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                for part in topic.partitions
            ]
            topics.append(
                offsets.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
            )
        return offsets.OffsetCommitResponse(topics=topics)

    def _fetch(self, request: offsets.OffsetFetchRequest, code: ErrorCode) -> Response:
        if not request.groups:
            old = [
                offsets.OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        offsets.OffsetFetchResponsePartition(
                            partition_index=n, committed_offset=self._offset(n), error_code=code
                        )
                        for n in topic.partition_indexes
                    ],
                )
                for topic in request.topics or []
            ]
            return offsets.OffsetFetchResponse(topics=old)
        wanted = request.groups[0]
        topics = [
            offsets.OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    offsets.OffsetFetchResponsePartitions(
                        partition_index=n, committed_offset=self._offset(n), error_code=code
                    )
                    for n in topic.partition_indexes
                ],
            )
            for topic in wanted.topics or []
        ]
        return offsets.OffsetFetchResponse(
            groups=[offsets.OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics)]
        )

    def _offset(self, partition: int) -> int:
        return self.committed.get(TopicPartition("t", partition), -1)


@asynccontextmanager
async def scripted_group(
    versions: dict[type[Request[Any]], tuple[int, int]] | None = None,
) -> AsyncIterator[ScriptedGroup]:
    """Two brokers that listen until the block ends. ``versions`` limits the request versions that they offer."""
    script = ScriptedGroup(versions or {})
    servers = []
    for node_id in (1, 2):
        server = await asyncio.start_server(partial(script.accept, node_id), "127.0.0.1", 0)
        script._ports[node_id] = server.sockets[0].getsockname()[1]
        servers.append(server)
    script.bootstrap = f"127.0.0.1:{script._ports[1]}"
    try:
        yield script
        unused = {kind.__name__: len(answers) for kind, answers in script._instead.items() if answers}
        assert not unused, f"answers that were to be given instead, and that nothing has asked for: {unused}"
    finally:
        # The task for a connection that was accepted last may not run yet. Cancelled before it runs, it would not close
        # the connection.
        await ticks(5)
        for server in servers:
            server.close()
        for task in script._tasks:
            task.cancel()
        results = await asyncio.gather(*script._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
