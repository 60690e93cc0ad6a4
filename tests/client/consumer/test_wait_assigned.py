"""wait_assigned(): when it returns, what it raises, and that the group counts it as polling."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, ConcurrentCall, ConsumerClosed, RequestTimedOut, UsageError
from aiokc.testing import Cluster
from aiokc.testing.faults import delay, drop
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest, HeartbeatRequest, JoinGroupRequest
from tests.suite.unused_faults import may_be_unused

from ..virtually import virtually

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = frozenset({ZERO, ONE})
READERS = pytest.mark.parametrize(
    "options", [{}, {"group_protocol": "consumer"}, {"group_id": None}], ids=["classic", "consumer", "no group"]
)
GROUPS = pytest.mark.parametrize("group_id", ["g", None])
PROTOCOLS = pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])


def consumer_of(cluster: Cluster, *topics: Any, **options: Any) -> Consumer[Any, Any]:
    return Consumer(*topics, **{"bootstrap_servers": cluster.bootstrap, "group_id": "g", **options})


class Slow(RebalanceListener):
    """A listener that takes a second for each assignment, and seeks there."""

    def __init__(self) -> None:
        self.consumer: Consumer[Any, Any] | None = None
        self.done = False

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(1)
        self.done = True


# What it returns


@READERS
@pytest.mark.parametrize("reset", ["latest", "none"])
def test_after_it_the_application_may_seek(options: dict[str, Any], reset: str) -> None:
    """Also where there is no offset to start from: the seek supplies one."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1", b"2", partition=0)
        async with consumer_of(cluster, "t", **options, auto_offset_reset=reset) as consumer:
            assigned = await consumer.wait_assigned()
            assert assigned == consumer.assignment() == BOTH
            for partition in assigned:
                consumer.seek(partition, 0)
            batch = await consumer.getmany(timeout_ms=10_000)
            assert [record.value for record in batch[ZERO]] == [b"0", b"1", b"2"]
            assert await consumer.wait_assigned(timeout_ms=0) == BOTH, "at once"

    virtually(story)


@READERS
def test_it_returns_when_the_listener_is_done(options: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        listener = Slow()
        async with consumer_of(cluster, "t", **options, listener=listener) as consumer:
            assert await consumer.wait_assigned() == BOTH
            assert listener.done

    virtually(story)


@READERS
def test_partitions_assigned_by_hand_are_there_at_once(options: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, **options) as consumer:
            consumer.assign([ONE])
            assert await consumer.wait_assigned(timeout_ms=0) == {ONE}

    virtually(story)


@READERS
def test_a_pattern_has_what_matches_it(options: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, re.compile("t|u"), **options) as consumer:
            assert await consumer.wait_assigned() == {*BOTH, TopicPartition("u", 0)}

    virtually(story, topics={"t": 2, "u": 1, "v": 1})


@READERS
def test_another_subscription_is_waited_for_anew(options: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, "t", **options) as consumer:
            await consumer.wait_assigned()
            consumer.subscribe(["u"])
            assert await consumer.wait_assigned() == {TopicPartition("u", 0)}
            consumer.unsubscribe()
            consumer.subscribe(["t"])
            assert await consumer.wait_assigned() == BOTH
            consumer.unsubscribe()
            consumer.subscribe(re.compile("u"))
            assert await consumer.wait_assigned() == {TopicPartition("u", 0)}

    virtually(story, topics={"t": 2, "u": 1})


@READERS
def test_another_subscription_for_which_there_is_nothing_has_the_empty_set(options: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, "t", allow_auto_create_topics=False, **options) as consumer:
            assert await consumer.wait_assigned() == BOTH
            consumer.subscribe(["missing"])
            began = asyncio.get_running_loop().time()
            assert await consumer.wait_assigned(timeout_ms=10_000) == frozenset()
            assert asyncio.get_running_loop().time() < began + 2.0

    virtually(story)


def test_it_hears_from_a_slow_coordinator_that_there_is_nothing_more_to_come() -> None:
    """With the consumer protocol that is an answer which changes nothing."""

    async def story(cluster: Cluster) -> None:
        options = {"group_protocol": "consumer", "allow_auto_create_topics": False}
        async with consumer_of(cluster, "t", **options) as consumer:
            assert await consumer.wait_assigned() == BOTH
            await asyncio.sleep(10.0)
            cluster.intercept(ConsumerGroupHeartbeatRequest, delay(1.0))
            consumer.subscribe(["missing"])
            began = asyncio.get_running_loop().time()
            assert await consumer.wait_assigned(timeout_ms=10_000) == frozenset()
            assert asyncio.get_running_loop().time() == pytest.approx(began + 2.0, abs=0.2)

    virtually(story)


@READERS
def test_a_call_for_all_assigned_partitions_is_refused_before_there_are_any(options: dict[str, Any]) -> None:
    """start() does not wait for the assignment: a replay that just went on would skip the whole log."""

    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, **options) as consumer:
            calls: list[Callable[[], Awaitable[object]]] = [consumer.seek_to_beginning, consumer.seek_to_end]
            if consumer.config.group_id is not None:
                calls += [consumer.seek_to_committed, consumer.committed]
            for topic in ("t", "u"):
                consumer.subscribe([topic])
                for call in calls:
                    with pytest.raises(UsageError, match=r"no partition is assigned yet: await wait_assigned\(\)"):
                        await call()
                await consumer.wait_assigned()
                for call in calls:
                    await call()
            consumer.unsubscribe()
            for call in calls:
                await call()

    virtually(story, topics={"t": 2, "u": 1})


@READERS
def test_a_call_for_all_assigned_partitions_does_nothing_where_the_assignment_is_empty(options: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, "missing", allow_auto_create_topics=False, **options) as consumer:
            assert await consumer.wait_assigned() == frozenset()
            await consumer.seek_to_beginning()
            if consumer.config.group_id is not None:
                assert await consumer.committed() == await consumer.seek_to_committed() == {}

    virtually(story)


@pytest.mark.parametrize("options", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])
def test_a_call_for_all_assigned_partitions_is_not_refused_once_there_were_any(options: dict[str, Any]) -> None:
    """Also where the application has subscribed to more since, which a coordinator need not answer by an assignment.

    The member is fenced then, and has yet to join again.
    """

    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, "t", allow_auto_create_topics=False, **options) as consumer:
            await consumer.wait_assigned()
            await asyncio.sleep(10)
            consumer.subscribe(["t", "missing"])
            await asyncio.sleep(20)
            for request in (HeartbeatRequest, ConsumerGroupHeartbeatRequest):
                may_be_unused(cluster.intercept(request, ErrorCode.UNKNOWN_MEMBER_ID, times=1))
            for join in (JoinGroupRequest, ConsumerGroupHeartbeatRequest):
                may_be_unused(cluster.intercept(join, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None))
            await asyncio.sleep(20)
            assert consumer.assignment() == frozenset()
            assert await consumer.committed() == await consumer.seek_to_committed() == {}
            await consumer.seek_to_end()

    virtually(story)


@GROUPS
def test_a_listener_may_call_for_all_assigned_partitions(group_id: str | None) -> None:
    """Also for those that go because the application has subscribed to another topic."""

    class Seeks(RebalanceListener):
        async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            told.append("revoked")
            await consumer.seek_to_end()

        async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            told.append("assigned")
            await consumer.seek_to_beginning()

    told: list[str] = []
    consumer: Consumer[Any, Any]

    async def story(cluster: Cluster) -> None:
        nonlocal consumer
        consumer = consumer_of(cluster, "t", group_id=group_id, listener=Seeks())
        async with consumer:
            await consumer.wait_assigned()
            consumer.subscribe(["u"], listener=Seeks())
            await consumer.wait_assigned()
            assert told == ["assigned", "revoked", "assigned"]

    virtually(story, topics={"t": 2, "u": 1})


@PROTOCOLS
def test_a_member_beyond_the_number_of_partitions_has_the_empty_set(assignor: str) -> None:
    async def story(cluster: Cluster) -> None:
        options = {"partition_assignment_strategy": (assignor,)}
        async with (
            consumer_of(cluster, "t", **options) as one,
            consumer_of(cluster, "t", **options) as two,
            consumer_of(cluster, "t", **options) as three,
        ):
            members = (one, two, three)
            while True:
                held = [await held for held in [asyncio.create_task(member.wait_assigned()) for member in members]]
                if sorted(map(len, held)) == [0, 1, 1] and frozenset().union(*held) == BOTH:
                    break
                polls = [asyncio.create_task(member.getmany(timeout_ms=1_000)) for member in members]
                await asyncio.wait(polls)
            idle = members[[len(partitions) for partitions in held].index(0)]
            assert await idle.wait_assigned(timeout_ms=0) == frozenset()

    virtually(story)


@READERS
def test_a_topic_that_does_not_exist_has_no_partitions(options: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, "missing", allow_auto_create_topics=False, **options) as consumer:
            assert await consumer.wait_assigned(timeout_ms=10_000) == frozenset()
            cluster.create_topic("missing", 1)
            await consumer.getmany(timeout_ms=5_000)
            assert await consumer.wait_assigned() == {TopicPartition("missing", 0)}

    virtually(story)


# It counts as polling


@PROTOCOLS
def test_a_member_that_waits_there_does_not_hold_up_the_group(assignor: str) -> None:
    """Given a member whose application holds records, when another member joins and the first one waits for its
    assignment, then both have theirs soon: with that wait the application says that those records are processed.
    """

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        cluster.append("t", b"0", partition=0)
        cluster.append("t", b"0", partition=1)
        options = {"partition_assignment_strategy": (assignor,), "auto_offset_reset": "earliest"}
        async with consumer_of(cluster, "t", **options) as one, consumer_of(cluster, "t", **options) as two:
            while not await one.getmany(timeout_ms=100):
                pass
            began = loop.time()
            while sorted([len(one.assignment()), len(two.assignment())]) != [1, 1]:
                waits = [asyncio.create_task(member.wait_assigned(timeout_ms=30_000)) for member in (one, two)]
                await asyncio.wait(waits)
                await asyncio.sleep(0.1)
                assert loop.time() < began + 20

    virtually(story)


def test_a_member_that_waits_there_is_not_removed_for_not_polling() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, "t", max_poll_interval_ms=10_000, session_timeout_ms=10_000) as consumer:
            trouble = cluster.intercept(JoinGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            waiting = asyncio.create_task(consumer.wait_assigned())
            await asyncio.sleep(40)
            trouble.cancel()
            assert await waiting == BOTH

    virtually(story)


def test_a_member_that_was_removed_joins_again_by_it() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, "t", max_poll_interval_ms=10_000, session_timeout_ms=10_000) as consumer:
            await consumer.wait_assigned()
            await asyncio.sleep(15)
            assert consumer.assignment() == frozenset()
            assert await consumer.wait_assigned(timeout_ms=10_000) == BOTH

    virtually(story)


# What it raises


@GROUPS
def test_it_ends_at_its_deadline_and_says_why(group_id: str | None) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, group_id=group_id) as consumer:
            if group_id is None:
                cluster.intercept(MetadataRequest, drop())
            else:
                cluster.intercept(JoinGroupRequest, ErrorCode.UNKNOWN_SERVER_ERROR)
            consumer.subscribe(["t"])
            began = asyncio.get_running_loop().time()
            with pytest.raises(RequestTimedOut, match="no partitions were assigned within 3 s") as caught:
                await consumer.wait_assigned(timeout_ms=3_000)
            assert asyncio.get_running_loop().time() - began == pytest.approx(3, abs=0.1)
            if group_id is not None:
                assert "UNKNOWN_SERVER_ERROR" in str(caught.value.__cause__)

    virtually(story)


def test_it_raises_what_the_group_refuses() -> None:
    async def story(cluster: Cluster) -> None:
        refusal = cluster.intercept(JoinGroupRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        async with consumer_of(cluster, "t") as consumer:
            with pytest.raises(AuthorizationFailed):
                await consumer.wait_assigned()
            refusal.cancel()
            assert await consumer.wait_assigned() == BOTH, "the next call is another attempt"

    virtually(story)


@GROUPS
def test_it_raises_what_the_listener_raised(group_id: str | None) -> None:
    class Broken(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            raise ZeroDivisionError("mine")

    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, "t", group_id=group_id, listener=Broken()) as consumer:
            with pytest.raises(ZeroDivisionError, match="mine"):
                await consumer.wait_assigned()
            assert await consumer.wait_assigned() == BOTH

    virtually(story)


def test_it_refuses_what_cannot_be() -> None:
    async def story(cluster: Cluster) -> None:
        consumer = consumer_of(cluster)
        with pytest.raises(ConsumerClosed):
            await consumer.wait_assigned()
        async with consumer:
            with pytest.raises(UsageError, match="nothing to read"):
                await consumer.wait_assigned()
        with pytest.raises(ConsumerClosed):
            await consumer.wait_assigned()

    virtually(story)


def test_it_is_refused_inside_the_listener() -> None:
    class PendingPositions(Slow):
        async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            assert self.consumer is not None
            await self.consumer.wait_assigned()

    async def story(cluster: Cluster) -> None:
        listener = PendingPositions()
        async with consumer_of(cluster, "t", listener=listener) as consumer:
            listener.consumer = consumer
            with pytest.raises(UsageError, match="inside a rebalance listener"):
                await consumer.wait_assigned()

    virtually(story)


CALLS: list[Callable[[Consumer[Any, Any]], Awaitable[object]]] = [
    lambda consumer: consumer.getmany(timeout_ms=1_000),
    lambda consumer: consumer.wait_assigned(timeout_ms=1_000),
]


@pytest.mark.parametrize("first", CALLS)
@pytest.mark.parametrize("second", CALLS)
def test_one_task_at_a_time_may_be_in_it(
    first: Callable[[Consumer[Any, Any]], Awaitable[object]], second: Callable[[Consumer[Any, Any]], Awaitable[object]]
) -> None:
    async def story(cluster: Cluster) -> None:
        trouble = cluster.intercept(JoinGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        async with consumer_of(cluster, "t") as consumer:
            waiting = asyncio.ensure_future(first(consumer))
            await asyncio.sleep(0.1)
            with pytest.raises(ConcurrentCall):
                await second(consumer)
            await asyncio.wait([waiting])
            waiting.exception()
            trouble.cancel()
            assert await consumer.wait_assigned() == BOTH

    virtually(story)


def test_a_cancelled_wait_loses_nothing_and_the_next_one_goes_on() -> None:
    async def story(cluster: Cluster) -> None:
        for pauses in range(30):
            async with consumer_of(cluster, "t") as consumer:
                waiting = asyncio.create_task(consumer.wait_assigned())
                for _ in range(pauses):
                    await asyncio.sleep(0.001)
                waiting.cancel()
                await asyncio.wait([waiting])
                assert await consumer.wait_assigned(timeout_ms=10_000) == BOTH

    virtually(story)


@GROUPS
def test_stop_in_another_task_ends_it(group_id: str | None) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, group_id=group_id) as consumer:
            may_be_unused(cluster.intercept(JoinGroupRequest, drop()))
            cluster.intercept(MetadataRequest, drop())
            consumer.subscribe(["t"])
            waiting = asyncio.create_task(consumer.wait_assigned())
            await asyncio.sleep(1)
            await consumer.stop()
            with pytest.raises(ConsumerClosed):
                await waiting

    virtually(story)


@pytest.mark.timeout(30)
async def test_repeated_calls_let_other_tasks_run() -> None:
    async with Cluster(topics={"t": 2}) as cluster, consumer_of(cluster, "t") as consumer:
        await consumer.wait_assigned()
        ran = asyncio.Event()
        asyncio.get_running_loop().call_soon(ran.set)
        while not ran.is_set():
            assert await consumer.wait_assigned() == BOTH
