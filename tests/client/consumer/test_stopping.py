"""stop(): its steps and their order, how long each may take, and whether the member leaves its group."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest
from confluent_kafka.admin import AdminClient

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import BrokerError, ConsumerClosed
from aiokc.testing import Cluster
from aiokc.testing.brokers.apis.table import REQUESTS
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold, drop
from aiokc.testing.kafka import LocalKafka
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest, HeartbeatRequest, LeaveGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest
from tests.net.scripted import ticks
from tests.suite.unused_faults import may_be_unused

from ..virtually import virtually

pytestmark = [pytest.mark.timeout(60), pytest.mark.every_kafka]

ZERO = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, topics={"t": 2}) as cluster:
        for partition in (0, 1):
            cluster.append("t", *(b"%d" % number for number in range(10)), partition=partition)
        yield cluster


async def reading(cluster: Cluster, *topics: str, **options: Any) -> Consumer:
    """A consumer whose application holds one batch and has processed another one."""
    consumer = Consumer(
        *topics,
        bootstrap_servers=cluster.bootstrap,
        **{"group_id": "g", "auto_offset_reset": "earliest", "auto_commit_interval_ms": 60_000, **options},
    )
    await consumer.start()
    if not topics:
        consumer.assign([ZERO])
    await consumer.getmany(max_records=3)
    await consumer.getmany(max_records=3)
    return consumer


def noted(cluster: Cluster) -> list[str]:
    """Commits and LeaveGroup requests from here on, in the order of their arrival."""
    seen: list[str] = []

    def note(exchange: Exchange) -> None:
        seen.append(type(exchange.request).__name__.removesuffix("Request"))

    for api in (OffsetCommitRequest, LeaveGroupRequest):
        may_be_unused(cluster.intercept(api, note))
    return seen


# The order


async def test_stop_commits_and_then_leaves(cluster: Cluster) -> None:
    consumer = await reading(cluster, "t")
    seen = noted(cluster)
    await consumer.stop()
    assert seen == ["OffsetCommit", "LeaveGroup"]


async def test_stop_calls_the_listener_after_the_commit_and_before_it_leaves(cluster: Cluster) -> None:
    class Watching(RebalanceListener):
        def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            seen.append("revoked")

    consumer = await reading(cluster, "t")
    consumer.subscribe(["t"], listener=Watching())
    seen = noted(cluster)
    await consumer.stop()
    assert seen == ["OffsetCommit", "revoked", "LeaveGroup"]


async def test_stop_asks_for_no_more_records(cluster: Cluster) -> None:
    """Whatever else takes its time, no Fetch follows the one that is under way."""
    consumer = await reading(cluster, "t", fetch_max_wait_ms=20)
    hold = Hold()
    cluster.intercept(OffsetCommitRequest, hold)
    stopping = asyncio.ensure_future(consumer.stop())
    await hold.arrived()
    fetcher = consumer._runtime.fetcher
    async with asyncio.timeout(20):
        while fetcher._busy:
            await ticks(1)
    later: list[bool] = []
    cluster.intercept(FetchRequest, lambda exchange: later.append(bool(exchange.request.topics)))
    hold.release()
    await stopping
    assert not any(later), "all that follows is the end of the session"


async def test_stop_lets_a_commit_under_way_be_done_before_it_leaves(cluster: Cluster) -> None:
    consumer = await reading(cluster, "t", enable_auto_commit=False)
    hold = Hold()
    cluster.intercept(OffsetCommitRequest, hold, times=1)
    consumer.commit_soon()
    await hold.arrived()
    seen = noted(cluster)
    stopping = asyncio.ensure_future(consumer.stop())
    waited = asyncio.ensure_future(consumer.commit())
    await asyncio.sleep(0)
    assert not stopping.done()
    hold.release()
    await stopping
    await waited
    assert seen == ["OffsetCommit", "LeaveGroup"], "the commit in the other task was sent, and then the goodbye"


async def test_no_record_is_handed_out_once_stop_has_begun(cluster: Cluster) -> None:
    consumer = await reading(cluster, "t")
    hold = Hold()
    cluster.intercept(OffsetCommitRequest, hold)
    stopping = asyncio.ensure_future(consumer.stop())
    await hold.arrived()
    with pytest.raises(ConsumerClosed, match="stopping"):
        await consumer.getmany(timeout_ms=0)
    hold.release()
    await stopping


async def test_a_member_in_a_scope_that_is_cancelled_leaves_its_group_all_the_same(cluster: Cluster) -> None:
    """In a cancelled scope, such as a task group of anyio, each await of stop() would end at once."""
    told: list[str] = []

    class Watching(RebalanceListener):
        async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            await asyncio.sleep(0)
            if partitions:
                told.append("revoked")

    options: Any = {"group_id": "g", "auto_offset_reset": "earliest", "auto_commit_interval_ms": 60_000}
    with anyio.CancelScope() as scope:
        async with Consumer("t", bootstrap_servers=cluster.bootstrap, listener=Watching(), **options) as consumer:
            await consumer.getmany(max_records=3)
            await consumer.getmany(max_records=3)
            seen = noted(cluster)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert seen == ["OffsetCommit", "LeaveGroup"]
    assert told == ["revoked"]
    assert cluster.members("g") == []
    assert consumer.health().assigned == frozenset()
    assert not consumer._runtime.cluster_client.background.alive, "nothing is left for the loop to end"


async def test_a_stop_that_is_given_less_time_by_a_scope_has_less(cluster: Cluster) -> None:
    consumer = await reading(cluster, "t")
    cluster.intercept(LeaveGroupRequest, drop())
    loop = asyncio.get_running_loop()
    began = loop.time()
    with anyio.move_on_after(0.2) as scope:
        await consumer.stop()
    assert scope.cancelled_caught
    assert loop.time() - began < 25


# What goes wrong meanwhile


class Told(RebalanceListener):
    """Calls ``revoking`` when the listener is called with a revocation. ``told`` lists the callbacks that have
    finished.
    """

    def __init__(self, revoking: Callable[[], Awaitable[None]] | None = None) -> None:
        self.told: list[str] = []
        self._revoking = revoking

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        if self._revoking is not None and partitions:
            await self._revoking()
            self.told.append("revoked")

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(2.0)
        self.told.append("lost")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("where", ["unwaited commit", "last commit", "listener", "goodbye"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_stop_that_is_cancelled_hurries_and_leaves_all_the_same(where: str, protocol: str, times: int) -> None:
    """A second signal, asyncio.timeout() around stop(), a task group whose other task fails during __aexit__()."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *(b"%d" % number for number in range(10)))
        loop, reached = asyncio.get_running_loop(), asyncio.Event()

        async def revoking() -> None:
            if where == "listener":
                reached.set()
                await asyncio.sleep(1.0)

        listener = Told(revoking)
        auto = where != "unwaited commit"
        options: Any = {"group_protocol": protocol, "enable_auto_commit": auto, "listener": listener}
        consumer = await reading(cluster, "t", **options)
        hold = Hold()
        if where in ("unwaited commit", "last commit"):
            cluster.intercept(OffsetCommitRequest, hold)
        elif where == "goodbye":
            api = LeaveGroupRequest if protocol == "classic" else ConsumerGroupHeartbeatRequest
            cluster.intercept(api, hold, where=lambda exchange: getattr(exchange.request, "member_epoch", -1) < 0)
        if where == "unwaited commit":
            consumer.commit_soon()
        stopping = asyncio.ensure_future(consumer.stop())
        await (reached.wait() if where == "listener" else hold.arrived())
        began = loop.time()
        for _ in range(times):
            stopping.cancel()
            await ticks(3)
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert loop.time() - began <= 2.5
        assert listener.told == ["revoked"]
        assert not consumer._runtime.cluster_client.background.alive, "nothing is left for the loop to end"
        hold.release()
        await consumer.stop()
        await asyncio.sleep(1)  # the brokers read what was sent before the connections were closed
        assert cluster.members("g") == []

    virtually(story, topics={"t": 2})


@pytest.mark.parametrize("where", ["last commit", "commit in the listener", "heartbeat"])
@pytest.mark.parametrize("instance_id", ["i", None], ids=["static", "dynamic"])
def test_a_member_that_fails_while_it_leaves_stops_soon(where: str, instance_id: str | None) -> None:
    """Another member has come with its instance id, or its permission is gone: there is nothing to wait for."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *(b"%d" % number for number in range(10)))

        async def revoking() -> None:
            if where == "commit in the listener":
                with pytest.raises(BrokerError):
                    await consumer.commit()
            else:
                await asyncio.sleep(4.0)

        listener = Told(revoking)
        auto = where == "last commit"
        options: Any = {"group_instance_id": instance_id, "enable_auto_commit": auto, "listener": listener}
        consumer = await reading(cluster, "t", **options)
        async with contextlib.AsyncExitStack() as later:
            if instance_id is None:
                first = HeartbeatRequest if where == "heartbeat" else OffsetCommitRequest
                for api in (HeartbeatRequest, OffsetCommitRequest):
                    refused = cluster.intercept(api, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                    if api is not first:
                        may_be_unused(refused)
            elif where == "heartbeat":
                cluster.intercept(HeartbeatRequest, ErrorCode.FENCED_INSTANCE_ID)
            else:
                options = {"group_id": "g", "group_instance_id": instance_id}
                other = Consumer("t", bootstrap_servers=cluster.bootstrap, **options)
                await later.enter_async_context(other)
                while other.health().generation < 0:
                    await other._runtime.changed.wait()
            began = asyncio.get_running_loop().time()
            await consumer.stop()
            assert asyncio.get_running_loop().time() - began < 7
            fenced = where == "last commit" and instance_id is not None
            assert listener.told == (["lost"] if fenced else ["revoked"]), "each partition goes once"

    virtually(story, topics={"t": 2})


def test_stop_after_a_failure_lets_the_listener_hear_of_the_loss_to_its_end() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *(b"%d" % number for number in range(10)))
        listener = Told()
        consumer = await reading(cluster, "t", listener=listener)
        cluster.intercept(HeartbeatRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        while consumer.health().error is None:
            await consumer._runtime.changed.wait()
        await consumer.stop()
        assert listener.told == ["lost"]

    virtually(story, topics={"t": 2})


def test_stop_lets_the_listener_hear_of_a_loss_whose_leave_group_is_not_answered() -> None:
    """The LeaveGroup is from before stop(), and what nobody waits for any more. But the callback is under way."""

    class Slow(Told):
        async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
            await asyncio.sleep(5.0)
            self.told.append("lost")

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *(b"%d" % number for number in range(10)))
        listener = Slow()
        consumer = await reading(cluster, "t", listener=listener, max_poll_interval_ms=5_000)
        leaves = cluster.intercept(LeaveGroupRequest, drop(), times=1)
        await leaves.caught()
        await asyncio.sleep(3.0)
        await consumer.stop()
        assert listener.told == ["lost"]

    virtually(story, topics={"t": 2})


# The time


@pytest.mark.parametrize("options", [{"group_id": "g"}, {"group_id": None}], ids=["group", "alone"])
@pytest.mark.parametrize("topics", [("t",), ()], ids=["subscribed", "assigned"])
@pytest.mark.parametrize("how", ["dead", "silent"])
async def test_stop_ends_within_its_timeout_with_every_broker_dead_or_silent(
    cluster: Cluster, how: str, topics: tuple[str, ...], options: dict[str, Any]
) -> None:
    consumer = await reading(cluster, *topics, **options)
    if how == "dead":
        cluster.take_down(1)
        cluster.take_down(2)
    else:
        for api in REQUESTS:  # whatever it is asked
            may_be_unused(cluster.intercept(api, drop()))
    if options["group_id"] is not None:
        consumer.commit_soon()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await consumer.stop(timeout_ms=400)
    assert loop.time() - began < 25, "0.4 s, and what a busy machine adds; by default it has 30 s"
    with pytest.raises(ConsumerClosed, match="stopped"):
        await consumer.getone()


async def test_a_timeout_of_zero_waits_for_no_answer(cluster: Cluster) -> None:
    consumer = await reading(cluster, "t")
    for api in REQUESTS:  # whatever it is asked
        may_be_unused(cluster.intercept(api, drop()))
    async with asyncio.timeout(25):
        await consumer.stop(timeout_ms=0)
    assert consumer.assignment() == frozenset()


@pytest.mark.parametrize(
    ("silent", "options", "least", "most"),
    [
        pytest.param(REQUESTS, {}, 0, 3, id="nothing to commit, every broker silent"),
        pytest.param([LeaveGroupRequest], {}, 0, 3, id="nothing to commit, LeaveGroup unanswered"),
        pytest.param(REQUESTS, {"group_instance_id": "i"}, 0, 1, id="nothing to tell the group either"),
        pytest.param([FetchRequest], {}, 0, 1, id="fetch sessions that nobody closes"),
        pytest.param(REQUESTS, {"group_id": None}, 0, 1, id="no group"),
        pytest.param(REQUESTS, {"enable_auto_commit": True}, 25, 30, id="something to commit, every broker silent"),
        pytest.param([OffsetCommitRequest], {"enable_auto_commit": True}, 25, 30, id="something to commit, unanswered"),
    ],
)
def test_each_step_of_stop_waits_for_what_it_can_still_bring(
    silent: list[Any], options: dict[str, Any], least: float, most: float
) -> None:
    """The brokers accept connections and requests, and answer nothing, as can happen behind a firewall."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *(b"%d" % number for number in range(10)))
        consumer = await reading(cluster, "t", **{"enable_auto_commit": False, **options})
        if consumer.config.group_id is not None and not consumer.config.enable_auto_commit:
            await consumer.commit()
        for api in silent:
            may_be_unused(cluster.intercept(api, drop()))
        loop = asyncio.get_running_loop()
        began = loop.time()
        await consumer.stop()
        assert least <= round(loop.time() - began, 1) <= most

    virtually(story)


def test_a_listener_has_its_share_of_a_stop_whose_commit_is_not_answered() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *(b"%d" % number for number in range(10)))

        async def at_once() -> None: ...

        listener = Told(at_once)
        consumer = await reading(cluster, "t", listener=listener)
        cluster.intercept(OffsetCommitRequest, drop())
        began = asyncio.get_running_loop().time()
        await consumer.stop()
        assert listener.told == ["revoked"]
        assert asyncio.get_running_loop().time() - began < 16

    virtually(story, topics={"t": 2})


# Whether the group is told


@pytest.mark.parametrize(
    ("instance_id", "leave", "told"),
    [(None, None, True), (None, True, True), (None, False, False), ("i", None, False), ("i", True, True)],
)
async def test_which_members_send_leave_group(
    cluster: Cluster, instance_id: str | None, leave: bool | None, told: bool
) -> None:
    """KIP-1092: a dynamic member leaves and a static one stays, unless the caller says otherwise."""
    consumer = await reading(cluster, "t", group_instance_id=instance_id)
    seen = noted(cluster)
    await consumer.stop(leave=leave)
    assert seen == ["OffsetCommit", *(["LeaveGroup"] if told else [])]


async def test_a_static_member_that_leaves_for_good_is_not_waited_for(kafka: LocalKafka, topic_name: str) -> None:
    """Its partitions go to the others at once, and not after the session timeout of 45 s."""
    kafka.create_topic(topic_name, partitions=2)
    members = [
        Consumer(
            topic_name,
            bootstrap_servers=kafka.bootstrap,
            group_id=topic_name,
            group_instance_id=name,
            heartbeat_interval_ms=100,
        )
        for name in ("going", "staying")
    ]
    loop, admin = asyncio.get_running_loop(), AdminClient({"bootstrap.servers": kafka.bootstrap})
    async with members[0] as going, members[1] as staying, asyncio.timeout(40):
        polls = [asyncio.ensure_future(member.getmany()) for member in members]
        while [len(member.assignment()) for member in members] != [1, 1]:
            await staying._runtime.changed.wait(0.1)
        polls[0].cancel()
        await going.stop(leave=True)
        began = loop.time()
        group = await asyncio.wrap_future(admin.describe_consumer_groups([topic_name], request_timeout=20)[topic_name])
        assert len(group.members) == 1, "it has left when stop() returns"
        while len(staying.assignment()) < 2:
            assert loop.time() - began < 20
            await staying._runtime.changed.wait(0.1)
        polls[1].cancel()
