"""A coordinator in trouble for half a minute of virtual time: members send few requests meanwhile, and lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import CommitFailed, KafkaError, MalformedResponse
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Fault, disconnect, drop, garble, half_frame, lose_answer
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire import Request
from aiokc.wire.messages.discovery import FindCoordinatorRequest, FindCoordinatorResponse
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from tests.suite.unused_faults import may_be_unused

from ...virtually import Asked, virtually

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP_APIS: tuple[type[Request[Any]], ...] = (
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
TROUBLE_SECONDS = 30.0
#: The most requests of one member, of any kind, in each single second; a Fetch every 0.5 s is among them.
MOST_REQUESTS_PER_SECOND = 19
#: The most attempts to connect to each of the brokers per second; in the first second the pauses are short.
MOST_CONNECTS = {"first second": 12, "later": 4}


def of_the_group(fault: Callable[[], Fault]) -> Callable[[Cluster], None]:
    def begin(cluster: Cluster) -> None:
        for api in GROUP_APIS:
            may_be_unused(cluster.intercept(api, fault()))  # which of them are sent is up to the machine

    return begin


def unknown(cluster: Cluster) -> None:
    cluster.intercept(FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    of_the_group(disconnect)(cluster)


def dead(cluster: Cluster) -> None:
    """FindCoordinator goes on naming a broker that is down, as it does until the cluster has noticed that."""
    node = cluster.coordinator("g")
    cluster.take_down(node)
    cluster.move_coordinator("g", to=node)


def all_down(cluster: Cluster) -> None:
    for node in (1, 2, 3):
        cluster.take_down(node)


TROUBLES: dict[str, Callable[[Cluster], None]] = {
    "no broker knows it": unknown,
    "it is dead": dead,
    "all brokers are dead": all_down,
    "it has moved": of_the_group(lambda: ErrorCode.NOT_COORDINATOR),
    "it is not available": of_the_group(lambda: ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "it loads the group": of_the_group(lambda: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    "it breaks off": of_the_group(disconnect),
    "it breaks off half way": of_the_group(half_frame),
    "it is silent": of_the_group(drop),
    "it talks nonsense": of_the_group(garble),
}


class User:
    """Reads, and commits after each batch; a commit may fail. Any other error fails the test."""

    def __init__(self, cluster: Cluster) -> None:
        self.consumer = Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            default_api_timeout_ms=5_000,
            auto_commit_interval_ms=1_000,
        )
        self.read: list[bytes | None] = []

    async def live(self) -> None:
        while True:
            for records in (await self.consumer.getmany(timeout_ms=500)).values():
                self.read += [record.value for record in records]
            try:
                await self.consumer.commit()
            except (CommitFailed, MalformedResponse):
                continue  # not joined yet; noise
            except KafkaError as error:
                if not error.retriable:
                    raise

    async def joined(self) -> None:
        while len(self.consumer.assignment()) != 2:
            await self.consumer._runtime.changed.wait()
        for tp in (T0, T1):
            await self.consumer.position(tp)

    @property
    def generation(self) -> int:
        assert self.consumer._runtime.membership is not None
        return self.consumer._runtime.membership.generation


def check_calm(asked: Asked, began: float) -> None:
    requests = asked.requests_per_second(began)
    assert max(requests) <= MOST_REQUESTS_PER_SECOND, (requests, asked.since(began))
    for port, (first, *later) in asked.connects_per_second(began).items():
        assert first <= MOST_CONNECTS["first second"], (port, first)
        assert max(later) <= MOST_CONNECTS["later"], (port, later)


def loop_of_now() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("joined", [True, False], ids=["while it reads", "before it joins"])
def test_half_a_minute_of_trouble_is_calm_and_costs_nothing(trouble: str, joined: bool) -> None:
    async def story(cluster: Cluster) -> None:
        loop = loop_of_now()
        asked = Asked(cluster, loop)
        user = User(cluster)
        written: list[bytes] = []
        async with user.consumer:
            living = loop.create_task(user.live())
            if joined:
                await user.joined()
            generation = user.generation
            TROUBLES[trouble](cluster)
            began = loop.time()
            while loop.time() < began + TROUBLE_SECONDS:
                if cluster._state.alive:
                    written.append(b"%d" % len(written))
                    cluster.append("t", written[-1])
                await asyncio.sleep(0.5)
                assert not living.done(), living.exception()
            check_calm(asked, began)
            for node in (1, 2, 3):
                if node not in cluster._state.alive:
                    cluster.bring_up(node)
            cluster.heal()
            healed = loop.time()
            # A member cannot tell a lost JoinGroup from a parked one, which may last for max_poll_interval_ms.
            patience = 310.0 if trouble == "it is silent" and not joined else 60.0
            written.append(b"last")
            await asyncio.sleep(0.1)
            cluster.append("t", b"last")
            while len(user.read) < len(written):
                await asyncio.sleep(0.1)
                assert not living.done(), living.exception()
                assert loop.time() < healed + patience, "it does not come back"
            assert user.read == written
            assert user.generation == (generation if joined else 1)
            assert asked.of(LeaveGroupRequest) == []
            living.cancel()
        assert user.consumer.assignment() == frozenset()

    virtually(story)


@pytest.mark.parametrize("kind", [FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest])
@pytest.mark.parametrize("fault", [disconnect, half_frame, lose_answer, garble])
def test_a_connection_that_breaks_in_the_middle_of_joining(
    kind: type[Request[Any]], fault: Callable[[], Fault]
) -> None:
    """Also if the coordinator has carried out the request: then it has a member that no consumer knows the id of."""

    async def story(cluster: Cluster) -> None:
        loop = loop_of_now()
        hurt = cluster.intercept(kind, fault(), times=3)
        user = User(cluster)
        async with user.consumer:
            living = loop.create_task(user.live())
            async with asyncio.timeout(60.0):
                await user.joined()
            assert not living.done(), living.exception()
            living.cancel()
        assert hurt.hits == 3

    virtually(story)


def test_a_coordinator_that_moves_and_loads_the_group_keeps_its_members() -> None:
    async def story(cluster: Cluster) -> None:
        loop = loop_of_now()
        user = User(cluster)
        async with user.consumer:
            living = loop.create_task(user.live())
            await user.joined()
            asked = Asked(cluster, loop)
            for n in range(6):
                cluster._state.move_coordinator("g", 1 + n % 3, loading=3.0)
                cluster.append("t", b"%d" % n)
                await asyncio.sleep(10.0)
                assert not living.done(), living.exception()
            assert user.read == [b"%d" % n for n in range(6)]
            assert user.generation == 1
            assert asked.of(JoinGroupRequest) == []
            assert (await user.consumer.committed(T0))[T0] is not None
            living.cancel()

    virtually(story)


def test_a_coordinator_with_an_id_below_zero_is_looked_for_again() -> None:
    async def of_none(exchange: Exchange) -> FindCoordinatorResponse:
        response = await exchange.handle()
        assert isinstance(response, FindCoordinatorResponse)
        response.node_id = -1  # the id of the first bootstrap server
        return response

    async def story(cluster: Cluster) -> None:
        cluster.intercept(FindCoordinatorRequest, of_none, times=2)
        async with asyncio.timeout(10), Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g") as consumer:
            assert await consumer.wait_assigned() == {T0, T1}
            await consumer.commit({T0: 7})

    virtually(story)
