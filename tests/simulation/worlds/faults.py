"""``Nemesis``: injects the faults of a world's plan: each begins, lasts for a while, and is undone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final, TypeAlias

from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster, faults
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.testing.virtual.network import Link
from aiokc.wire import Request
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from aiokc.wire.messages.offsets import ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest
from tests.suite.unused_faults import may_be_unused

from ..checking.history import HEALED, Fault, History
from .plan import FaultPlan, SecurityPlan
from .securing import SECURITY_APPLY, heal_security
from .wrong_leaders import naming_wrong_leaders

Apply: TypeAlias = Callable[["Nemesis", Random, float], Awaitable[None]]

_READING: Final[tuple[type[Request[Any]], ...]] = (FetchRequest, MetadataRequest, ListOffsetsRequest)
_OF_GROUPS: Final[tuple[type[Request[Any]], ...]] = (
    FindCoordinatorRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
_FETCH_ERRORS: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
_COORDINATOR_ERRORS: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Nemesis:
    """Injects and heals faults. ``hosts`` returns the hosts that a fault may hit now."""

    def __init__(
        self,
        cluster: Cluster,
        loop: VirtualLoop,
        history: History,
        topics: Mapping[str, int],
        hosts: Callable[[], list[str]],
        *,
        group: bool,
        has_consumer_groups: bool = False,
        more: Mapping[str, Apply] | None = None,
    ) -> None:
        """``more``: how faults are done that are not in the table below."""
        self.cluster = cluster
        self.loop = loop
        self.topics = topics
        self.hosts = hosts
        self.frozen: set[str] = set()
        self.down: set[int] = set()
        self.security: SecurityPlan | None = None
        self.apis = _READING + _OF_GROUPS if group else _READING
        self._has_consumer_groups = has_consumer_groups
        self.apply = {**_APPLY, **(more or {})}
        self._history = history

    def target(self, api: type[Request[Any]]) -> type[Request[Any]]:
        """Return the request to hit instead of the one that was drawn: where members speak it, their heartbeat."""
        swapped = self._has_consumer_groups and api in (HeartbeatRequest, JoinGroupRequest)
        return ConsumerGroupHeartbeatRequest if swapped else api

    async def inflict(self, plan: FaultPlan) -> None:
        """Wait until the fault is due, inject it, and undo it."""
        await asyncio.sleep(plan.at)
        await self.apply[plan.kind](self, Random(plan.seed), plan.seconds)

    async def heal(self) -> None:
        """Undo all faults. Afterwards no fault is under way."""
        await asyncio.sleep(0.1)  # a broker may be about to come up
        self.cluster.heal()
        if self.security is not None:
            heal_security(self.cluster, self.security, list(self.topics))
        for link in self.loop.network.links:
            link.latency = None
            link.mend()
        for host in sorted(self.frozen):
            self.thaw(host)
        self.note(HEALED)

    def note(self, what: str) -> None:
        self._history.add(Fault(what))

    def thaw(self, host: str) -> None:
        if host in self.frozen:
            self.frozen.discard(host)
            self.loop.thaw(host)

    # The targets of faults

    @property
    def users(self) -> tuple[str, ...]:
        assert self.security is not None  # only worlds with logins have faults of users
        return self.security.users

    @property
    def ports(self) -> list[int]:
        return [int(address.rpartition(":")[2]) for address in self.cluster.bootstrap.split(",")]

    def links(self, random: Random) -> list[Link]:
        """Draw links: those of one host to all brokers, those of all hosts to one broker, or a single one."""
        hosts, ports = self.hosts(), self.ports
        kind = random.randrange(3)
        hosts = hosts if kind == 0 or not hosts else [random.choice(hosts)]
        ports = ports if kind == 1 else [random.choice(ports)]
        return [self.loop.network.link(host, port) for host in hosts for port in ports]

    def partition(self, random: Random) -> tuple[str, int]:
        topic = random.choice(sorted(self.topics))
        return topic, random.randrange(self.topics[topic])

    def broker(self, random: Random) -> int:
        return random.randrange(len(self.ports)) + 1


async def _cut(nemesis: Nemesis, random: Random, seconds: float) -> None:
    links = nemesis.links(random)
    nemesis.note(f"cut {[(link.host, link.listener[1]) for link in links]} for {seconds:.2f} s")
    for link in links:
        link.cut()
    await asyncio.sleep(seconds)
    for link in links:
        link.mend()


async def _reset(nemesis: Nemesis, random: Random, seconds: float) -> None:
    links = nemesis.links(random)
    nemesis.note(f"reset {[(link.host, link.listener[1]) for link in links]}")
    for link in links:
        link.reset()


async def _slow_link(nemesis: Nemesis, random: Random, seconds: float) -> None:
    links = nemesis.links(random)
    latency = random.choice((0.1, 1.0, 4.0))
    nemesis.note(f"slow {[(link.host, link.listener[1]) for link in links]}: {latency} s for {seconds:.2f} s")
    for link in links:
        link.latency = (latency / 4, latency)
    await asyncio.sleep(seconds)
    for link in links:
        link.latency = None


async def _slow_broker(nemesis: Nemesis, random: Random, seconds: float) -> None:
    broker, latency = nemesis.broker(random), random.choice((0.05, 0.5, 2.0))
    nemesis.note(f"slow broker {broker}: {latency} s for {seconds:.2f} s")
    nemesis.cluster.slow_link(broker, latency=latency)
    await asyncio.sleep(seconds)
    nemesis.cluster.slow_link(broker)


async def _broker_restart(nemesis: Nemesis, random: Random, seconds: float) -> None:
    broker = nemesis.broker(random)
    if broker in nemesis.down:
        return
    nemesis.down.add(broker)
    nemesis.note(f"broker {broker} down for {seconds:.2f} s")
    nemesis.cluster.take_down(broker)
    await asyncio.sleep(seconds)
    nemesis.cluster.bring_up(broker)
    nemesis.down.discard(broker)


async def _leader_move(nemesis: Nemesis, random: Random, seconds: float) -> None:
    topic, index = nemesis.partition(random)
    exists = topic in nemesis.cluster._state.topics.by_name
    if exists and (leader := nemesis.cluster.leader(topic, index)) is not None:
        try:
            leader = nemesis.cluster.move_leader(topic, index)
        except ValueError:  # the others are down: the present one begins a new epoch
            nemesis.cluster.move_leader(topic, index, to=leader)
        nemesis.note(f"{topic}-{index} is led by broker {leader}")


async def _fetch_error(nemesis: Nemesis, random: Random, seconds: float) -> None:
    code = random.choice(_FETCH_ERRORS)
    nemesis.note(f"fetch error {code.name}")
    may_be_unused(nemesis.cluster.intercept(FetchRequest, code, times=random.randint(1, 4)))


def intercepting(name: str, fault: Callable[[Random], faults.Fault], *apis: type[Request[Any]]) -> Apply:
    """Return a function that injects a fault into the next few requests of one API."""

    async def apply(nemesis: Nemesis, random: Random, seconds: float) -> None:
        api = nemesis.target(random.choice(apis or nemesis.apis))
        nemesis.note(f"{name} {api.__name__}")
        may_be_unused(nemesis.cluster.intercept(api, fault(random), times=random.randint(1, 3)))

    return apply


async def _forget_fetch_sessions(nemesis: Nemesis, random: Random, seconds: float) -> None:
    nemesis.note("fetch sessions forgotten")
    nemesis.cluster.forget_fetch_sessions()


async def _freeze(nemesis: Nemesis, random: Random, seconds: float) -> None:
    hosts = [host for host in nemesis.hosts() if host not in nemesis.frozen]
    if not hosts:
        return
    host = random.choice(hosts)
    nemesis.note(f"{host} frozen for {seconds:.2f} s")
    nemesis.frozen.add(host)
    nemesis.loop.freeze(host)
    await asyncio.sleep(seconds)
    nemesis.thaw(host)


def moved_coordinator(nemesis: Nemesis, key: str) -> int:
    """Move the coordinator of a group or a transactional id, and return it: the same one where no other is up."""
    try:
        return nemesis.cluster.move_coordinator(key)
    except ValueError:  # it loads the group anew
        return nemesis.cluster.move_coordinator(key, to=nemesis.cluster.coordinator(key))


async def _coordinator_move(nemesis: Nemesis, random: Random, seconds: float) -> None:
    if len(nemesis.down) < len(nemesis.ports):
        nemesis.note(f"group g is coordinated by broker {moved_coordinator(nemesis, 'g')}")


_APPLY: Final[dict[str, Apply]] = {
    "cut": _cut,
    "reset": _reset,
    "slow link": _slow_link,
    "slow broker": _slow_broker,
    "broker restart": _broker_restart,
    "leader move": _leader_move,
    "fetch error": _fetch_error,
    "lose answer": intercepting("lost answer to", lambda random: faults.lose_answer()),
    "delay answer": intercepting("delayed", lambda random: faults.delay(random.uniform(0.1, 5))),
    "disconnect": intercepting("disconnected at", lambda random: faults.disconnect()),
    "half frame": intercepting("half an answer to", lambda random: faults.half_frame()),
    "stale metadata": intercepting("stale", lambda random: faults.stale_leader(), MetadataRequest),
    "wrong leader": naming_wrong_leaders(FetchRequest),
    "forget fetch sessions": _forget_fetch_sessions,
    "freeze": _freeze,
    "coordinator move": _coordinator_move,
    "coordinator error": intercepting(
        "coordinator error at", lambda random: random.choice(_COORDINATOR_ERRORS), *_OF_GROUPS[1:]
    ),
    "lose commit": intercepting("lost answer to", lambda random: faults.lose_answer(), OffsetCommitRequest),
    "delay commit": intercepting("delayed", lambda random: faults.delay(random.uniform(0.1, 5)), OffsetCommitRequest),
    **SECURITY_APPLY,
    "silence member": intercepting("dropped", lambda random: faults.drop(), HeartbeatRequest, JoinGroupRequest),
}
