"""ScriptedProtocol: a GroupProtocol that assigns what the test says, to test what is the same in every protocol."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.client.cluster.coordinator_lookup import CoordinatorLookup
from aiokc.client.consumer.poll import Poll
from aiokc.client.consumer.runtime import ConsumerRuntime
from aiokc.client.group.protocol import GroupParts, GroupProtocol, ProtocolInUse
from aiokc.core.group.events import (
    Alive,
    Assign,
    Effect,
    Enforced,
    Event,
    Exchange,
    IdentityLost,
    Leave,
    Lost,
    MemberToken,
    Rebalancing,
    Request,
    RevocationDone,
    Revoke,
    SendHeartbeat,
    SendLeave,
    SentCommit,
    Subscribed,
    Synced,
)
from aiokc.core.group.loop_watch import HeartbeatPlan
from aiokc.core.group.machine import Question
from aiokc.testing import Cluster
from aiokc.wire.messages.group import HeartbeatRequest, LeaveGroupRequest, MemberIdentity

ME = MemberToken(5, "scripted")


@dataclass(frozen=True, slots=True)
class NextPlease(Exchange):
    step: int


class ScriptedMachine:
    """Asks for an assignment, takes it over, then asks for the next one."""

    deadline = math.inf
    member = last_member = ME
    plan: HeartbeatPlan | None = None
    has_failed = needs_poll = is_settling = False

    def __init__(self) -> None:
        self.has_left = False
        self.is_rebalancing = False
        self.heard: list[str] = []
        self._step = 0
        self._leaves = False
        self._held: tuple[TopicPartition, ...] = ()
        self._wanted: tuple[TopicPartition, ...] = ()

    def commit_token(self) -> MemberToken:
        return ME

    def on(self, event: Event, now: float) -> list[Effect]:
        self.heard.append(type(event).__name__)
        match event:
            case Subscribed(topics) if topics:
                return self._ask()
            case Enforced():
                return self._ask()
            case Synced(step, partitions) if step == self._step:
                return self._take_over(partitions)
            case RevocationDone(step) if step == self._step:
                return self._released()
            case Leave():
                self._leaves = True
                return self._take_over(())
            case IdentityLost():
                self._step += 1
                held, self._held, self._wanted = self._held, (), ()
                return [Lost(self._step, held, event.reason)]
        return []

    def _ask(self) -> list[Effect]:
        self._step += 1
        return [NextPlease(self._step)]

    def _take_over(self, partitions: tuple[TopicPartition, ...]) -> list[Effect]:
        self._step += 1
        self._wanted = partitions
        going = tuple(tp for tp in self._held if tp not in partitions)
        return [Revoke(self._step, going, wait=not self._leaves)]

    def _released(self) -> list[Effect]:
        if self._leaves:
            self.has_left = True
            return [SendLeave(self._step, ME, "the script is over")]
        held, self._held = self._held, self._wanted
        added = tuple(tp for tp in self._wanted if tp not in held)
        return [Assign(ME, self._wanted, added), *self._ask()]


class ScriptedProtocol:
    """The GroupProtocol of a test: ``assign`` gives the next assignment; ``performed`` lists the requests sent."""

    group_id = "scripted"
    rest = 0.0

    def __init__(self) -> None:
        self.machine = ScriptedMachine()
        self.keepalive = self
        self.is_cooperative = True
        self.follows_epochs = False
        self.revocation_margin = 0.0
        self.performed: list[Request] = []
        self.assigned_to: list[MemberToken] = []
        self.refused: list[int] = []
        self.is_closed = False
        self.lookup: CoordinatorLookup | None = None
        self._next: asyncio.Queue[tuple[TopicPartition, ...]] = asyncio.Queue()

    def assign(self, *partitions: TopicPartition) -> None:
        self._next.put_nowait(partitions)

    def start(self, joining: Callable[[], None]) -> None:
        joining()

    @property
    def in_use(self) -> ProtocolInUse:
        return ProtocolInUse("scripted", "a test")

    def close(self) -> None:
        self.is_closed = True

    async def perform(self, request: Request) -> Event:
        self.performed.append(request)
        assert isinstance(request, NextPlease | SendLeave)
        return Synced(request.step, await self._next.get() if isinstance(request, NextPlease) else ())

    def refused_commit(self, member: MemberToken, error_code: int) -> Event:
        self.refused.append(error_code)
        return Rebalancing(SentCommit(member))

    def assigned(self, change: Assign) -> None:
        self.assigned_to.append(change.member)

    def moved(self) -> None: ...

    def news(self) -> Event | None:
        return None

    # What the watchdog's thread says while the event loop is blocked

    def heartbeat(self, sent: SendHeartbeat) -> Question:
        request = HeartbeatRequest(group_id=self.group_id, generation_id=5, member_id=sent.member.member_id)
        return Question(HeartbeatRequest, lambda version: request, lambda response: Alive(sent))

    def after(self, answer: Event, sent: SendHeartbeat) -> SendHeartbeat:
        return sent

    def unheard(self, answer: Event | None, sent: SendHeartbeat) -> Event | None:
        return answer

    def goodbye(self, last: SendHeartbeat, reason: str) -> Question:
        members = [MemberIdentity(member_id=last.member.member_id)]
        request = LeaveGroupRequest(group_id=self.group_id, members=members)
        return Question(LeaveGroupRequest, lambda version: request, lambda response: None)


def speaking(
    protocol: ScriptedProtocol, *topics: str, cluster: Cluster, listener: RebalanceListener | None = None
) -> Consumer:
    """A consumer whose group speaks this protocol."""

    def new_protocol(parts: GroupParts) -> GroupProtocol:
        assert parts.group_id == protocol.group_id
        protocol.lookup = parts.lookup
        return protocol

    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap,
        group_id=protocol.group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer._runtime = ConsumerRuntime(consumer.config, Random(1), new_protocol=new_protocol)
    consumer._poll = Poll(consumer._runtime, consumer._user)
    consumer.subscribe(topics, listener=listener)
    return consumer
