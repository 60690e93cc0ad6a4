"""Members of one group, each with a connection of its own, and the states that they bring the group into."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final
from uuid import UUID

from aiokc.error_codes import ErrorCode
from aiokc.testing.messages.topic_admin import CreatableTopic, CreateTopicsRequest
from aiokc.wire import encode
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from aiokc.wire.messages.embedded import ConsumerProtocolSubscription, ConsumerProtocolSubscriptionTopicPartition
from aiokc.wire.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from aiokc.wire.messages.group_admin import DescribedGroup, DescribeGroupsRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic

from ...security.actors.held import Held
from ..wire_client import WireClient, connected

#: The codes of a coordinator that is not ready yet.
NOT_YET = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
#: If no answer comes for this long, a request counts as parked.
PARKED_SECONDS = 0.2
#: If nothing was held up for so long, no timeout of a story was over too soon.
LATE_SECONDS = 0.2
PARKED = "parked"


def subscription(topic: str, user_data: bytes = b"", owned: Sequence[int] | None = None) -> bytes:
    """What JoinGroup says of the member. ``owned``: partitions that it keeps while it joins, as cooperative ones do."""
    if owned is None:
        return b"\0\0" + encode(ConsumerProtocolSubscription(topics=[topic], user_data=user_data), 0)
    kept = [ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=list(owned))]
    message = ConsumerProtocolSubscription(topics=[topic], user_data=user_data, owned_partitions=kept)
    return b"\0\1" + encode(message, 1)


class Actor:
    """A client of a coordinator: a member, or one that asks to be."""

    def __init__(self, scene: Scene, client: WireClient) -> None:
        self.scene = scene
        self.client = client
        self.member_id = ""
        self.generation = -1
        self.instance: str | None = None
        self.leader = ""

    async def ask(self, request: Any, version: int | None = None) -> Any:
        return await self.client.ask(request, version)

    def later(self, request: Any, version: int | None = None) -> asyncio.Task[Any]:
        """Send a request whose answer may take a while."""
        self.client.send(request, version)
        return self.scene.background(self.client.receive())

    def join_request(self, **changes: Any) -> JoinGroupRequest:
        subscribed = subscription(self.scene.topic, owned=changes.pop("owned", None))
        metadata = changes.pop("metadata", subscribed)
        names = changes.pop("protocols", ["range", "roundrobin"])
        options: dict[str, Any] = {
            "group_id": self.scene.group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names],
        }
        return JoinGroupRequest(**options | changes)

    async def join(self, version: int = 9, **changes: Any) -> JoinGroupResponse:
        """Join as consumers do, asking once more with the member id that is required."""
        answer: JoinGroupResponse = await self.ask(self.join_request(**changes), version)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = await self.ask(self.join_request(**changes), version)
        return self.joined(answer)

    def joined(self, answer: JoinGroupResponse) -> JoinGroupResponse:
        if answer.error_code == 0:
            self.member_id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
        return answer

    def join_later(self, version: int = 9, **changes: Any) -> asyncio.Task[Any]:
        return self.later(self.join_request(**changes), version)

    def sync_request(self, *assigned: Actor, **changes: Any) -> SyncGroupRequest:
        assignments = [
            SyncGroupRequestAssignment(member_id=one.member_id, assignment=one.member_id.encode()) for one in assigned
        ]
        options: dict[str, Any] = {
            "group_id": self.scene.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": assignments,
        }
        return SyncGroupRequest(**options | changes)

    async def sync(self, *assigned: Actor, version: int = 5, **changes: Any) -> SyncGroupResponse:
        answer: SyncGroupResponse = await self.ask(self.sync_request(*assigned, **changes), version)
        return answer

    async def heartbeat(self, version: int = 4, **changes: Any) -> int:
        options: dict[str, Any] = {
            "group_id": self.scene.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        answer: HeartbeatResponse = await self.ask(HeartbeatRequest(**options | changes), version)
        return answer.error_code

    async def leave(self, *members: MemberIdentity, version: int = 5, **changes: Any) -> LeaveGroupResponse:
        leaving = list(members) or [MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)]
        options: dict[str, Any] = {"group_id": self.scene.group}
        options |= {"members": leaving} if version >= 3 else {"member_id": leaving[0].member_id}
        answer: LeaveGroupResponse = await self.ask(LeaveGroupRequest(**options | changes), version)
        return answer

    async def commit(
        self,
        version: int = 9,
        *,
        offset: int = 1,
        metadata: str | None = "",
        topic: str | None = None,
        partition: int = 0,
        **changes: Any,
    ) -> int:
        one = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        options: dict[str, Any] = {
            "group_id": self.scene.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance if version >= 7 else None,
            "topics": [OffsetCommitRequestTopic(name=topic or self.scene.topic, partitions=[one])],
        }
        answer = await self.ask(OffsetCommitRequest(**options | changes), version)
        return int(answer.topics[0].partitions[0].error_code)


class Scene:
    """One group, one topic of two partitions, and the clients that use them."""

    topic_id: UUID

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[Any]] = set()

    def background(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        return task

    async def actor(self) -> Actor:
        """Return a client with a connection of its own."""
        return Actor(self, await self._stack.enter_async_context(connected(self.bootstrap)))

    async def open(self) -> None:
        """Send requests until the coordinator is ready."""
        self.admin = await self.actor()
        while (await self.admin.ask(FindCoordinatorRequest(key=self.group), 3)).error_code in NOT_YET:
            pass
        while (await self.described()).error_code in NOT_YET:
            pass

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def described(self, version: int = 6) -> DescribedGroup:
        (found,) = (await self.admin.ask(DescribeGroupsRequest(groups=[self.group]), version)).groups
        described: DescribedGroup = found
        return described

    async def until(self, state: str) -> None:
        """Describe the group until it is in this state."""
        while (await self.described()).group_state != state:
            pass

    # States

    async def stable(self, *, static: bool = False) -> tuple[Actor, Actor]:
        """Two members, the leader first, in a stable group of generation 2; the second one may be a static one."""
        leader, follower = await self.completing(static=static)
        later = follower.later(follower.sync_request())
        assert (await leader.sync(leader, follower)).assignment == leader.member_id.encode()
        answer: SyncGroupResponse = await later
        assert answer.assignment == follower.member_id.encode()
        return leader, follower

    async def completing(self, *, static: bool = False) -> tuple[Actor, Actor]:
        """Two members that have joined and not synced yet."""
        leader, follower = await self.actor(), await self.actor()
        assert (await leader.join()).error_code == 0
        assert (await leader.sync(leader)).error_code == 0
        if static:
            follower.instance = "instance"
        else:
            follower.member_id = (await follower.ask(follower.join_request())).member_id
        joining = follower.join_later()
        await self.until("PreparingRebalance")
        leader.joined(await leader.ask(leader.join_request()))
        follower.joined(await joining)
        assert leader.leader == follower.leader == leader.member_id
        return leader, follower

    async def preparing(self, *, static: bool = False) -> tuple[Actor, Actor]:
        """Two members that have to join again, because a third one did, which waits for them."""
        leader, follower = await self.stable(static=static)
        third = await self.actor()
        third.join_later(3)
        await self.until("PreparingRebalance")
        return leader, follower

    async def empty(self, *, static: bool = False) -> tuple[Actor, Actor]:
        """Two former members; both have left."""
        leader, follower = await self.stable(static=static)
        await follower.leave()
        await leader.leave()
        return leader, follower

    async def missing(self, *, static: bool = False) -> tuple[Actor, Actor]:
        """Two clients that take themselves for members of a group that does not exist."""
        leader, follower = await self.actor(), await self.actor()
        for one in (leader, follower):
            one.member_id, one.generation = "nobody", 1
        follower.instance = "instance" if static else None
        return leader, follower


async def answered(task: asyncio.Task[Any], seconds: float = PARKED_SECONDS) -> object:
    """Return the error code of the answer, or PARKED if none comes in time."""
    done, _ = await asyncio.wait({task}, timeout=seconds)
    return task.result().error_code if done else PARKED


_TOPIC: Final = f"groups-{uuid.uuid4().hex[:8]}"


@asynccontextmanager
async def open_scene(bootstrap: str, group: str) -> AsyncIterator[Scene]:
    """Open a scene at a broker; the group's coordinator is ready."""
    scene = Scene(bootstrap, group, _TOPIC)
    try:
        await scene.open()
        scene.topic_id = await _create_topic(scene.admin)
        yield scene
    finally:
        await scene.close()


async def tried_again(scene: Scene, story: Callable[[Scene, int], Awaitable[None]]) -> None:
    """Tell the story of short timeouts, or if a busy machine is too late for one, once more of those 5 times as long.

    That is then the story of another group.
    """
    try:
        with Held(scene.bootstrap) as held:
            async with asyncio.timeout(10):
                return await story(scene, 1)
    except (AssertionError, TimeoutError):
        if held.longest < LATE_SECONDS:
            raise
    async with open_scene(scene.bootstrap, f"{scene.group}-again") as another:
        await story(another, 5)


async def _create_topic(admin: Actor) -> UUID:
    """Create the topic, and wait until the broker knows its leaders; return its id."""
    new = CreatableTopic(name=_TOPIC, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    await admin.ask(CreateTopicsRequest(topics=[new], timeout_ms=10_000))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=_TOPIC)], allow_auto_topic_creation=False)
    while len((topic := (await admin.ask(asked, 12)).topics[0]).partitions) < 2:
        pass
    topic_id: UUID = topic.topic_id
    return topic_id
