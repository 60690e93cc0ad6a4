"""Calls that wait for brokers in another task when the client stops: commits are finished, everything else ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from aiokc import Client, Consumer, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import ClientClosed, ConsumerClosed
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Verdict
from aiokc.wire import Request
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.group_admin import ListGroupsRequest
from aiokc.wire.messages.offsets import ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest

from .virtually import virtually

ZERO = TopicPartition("t", 0)
NOWHERE = TopicPartition("nowhere", 0)

Call: TypeAlias = Callable[[], Awaitable[object]]
Trouble: TypeAlias = Callable[[Exchange], Verdict | Awaitable[Verdict]]

CONSUMER_CALLS: dict[str, tuple[type[Request[Any]], Callable[[Any], Awaitable[object]]]] = {
    "commit": (OffsetCommitRequest, lambda consumer: consumer.commit({ZERO: 5})),
    "committed": (OffsetFetchRequest, lambda consumer: consumer.committed(ZERO)),
    "seek_to_committed": (OffsetFetchRequest, lambda consumer: consumer.seek_to_committed(ZERO)),
    "beginning_offsets": (ListOffsetsRequest, lambda consumer: consumer.beginning_offsets([ZERO])),
    "end_offsets": (ListOffsetsRequest, lambda consumer: consumer.end_offsets([ZERO])),
    "offsets_for_times": (ListOffsetsRequest, lambda consumer: consumer.offsets_for_times({ZERO: 0})),
    "end_offsets of no topic": (MetadataRequest, lambda consumer: consumer.end_offsets([NOWHERE])),
    "seek_to_end": (ListOffsetsRequest, lambda consumer: consumer.seek_to_end(ZERO)),
    "list_topics": (MetadataRequest, lambda consumer: consumer.list_topics()),
    "partitions_for_topic": (MetadataRequest, lambda consumer: consumer.partitions_for_topic("t")),
}
CLIENT_CALLS: dict[str, tuple[type[Request[Any]], Callable[[Any], Awaitable[object]]]] = {
    "commit": (OffsetCommitRequest, lambda client: client.commit("g", {ZERO: 1})),
    "committed": (OffsetFetchRequest, lambda client: client.committed("g", [ZERO])),
    "list_offsets": (ListOffsetsRequest, lambda client: client.list_offsets({ZERO: -1})),
    "list_topics": (MetadataRequest, lambda client: client.list_topics()),
    "list_groups": (ListGroupsRequest, lambda client: client.list_groups()),
    "group_offsets": (OffsetFetchRequest, lambda client: client.group_offsets("g")),
}
#: What the broker does with the call's requests, until the end: the call waits for an answer, or between two attempts.
TROUBLES: dict[str, Trouble] = {
    "no answer": Exchange.never,
    "refused": lambda exchange: ErrorCode.UNKNOWN_SERVER_ERROR,
}


async def reading(cluster: Cluster, *, by_hand: bool, **options: Any) -> Consumer:
    cluster.append("t", b"0", b"1")
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap,
        **{"group_id": "g", "auto_offset_reset": "earliest", "auto_commit_interval_ms": 60_000, **options},
    )
    if by_hand:
        consumer.assign([ZERO])
    else:
        consumer.subscribe(["t"])
    await consumer.start()
    await consumer.getmany(timeout_ms=20_000)
    return consumer


async def waiting(
    cluster: Cluster, request: type[Request[Any]], trouble: Trouble, call: Call, times: int | None = None
) -> asyncio.Task[object]:
    """A task in ``call``, whose first request has met the trouble."""
    arrived = asyncio.Event()

    def fault(exchange: Exchange) -> Verdict | Awaitable[Verdict]:
        arrived.set()
        return trouble(exchange)

    cluster.intercept(request, fault, times=times)
    task = asyncio.ensure_future(call())
    await arrived.wait()
    return task


async def end_of(task: asyncio.Task[object]) -> Exception | None:
    """What the call raises. It must end within a second of virtual time."""
    async with asyncio.timeout(1):
        await asyncio.wait([task])
    error = task.exception()
    assert error is None or isinstance(error, Exception)
    return error


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("by_hand", [False, True], ids=["member", "assigned"])
@pytest.mark.parametrize("name", CONSUMER_CALLS)
def test_a_call_in_another_task_ends_with_its_consumer(name: str, by_hand: bool, trouble: str) -> None:
    request, make = CONSUMER_CALLS[name]

    async def story(cluster: Cluster) -> None:
        consumer = await reading(cluster, by_hand=by_hand)
        task = await waiting(cluster, request, TROUBLES[trouble], lambda: make(consumer))
        await consumer.stop(timeout_ms=5000)
        assert isinstance(await end_of(task), ConsumerClosed)

    virtually(story)


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("name", CLIENT_CALLS)
def test_a_call_in_another_task_ends_with_its_client(name: str, trouble: str) -> None:
    request, make = CLIENT_CALLS[name]

    async def story(cluster: Cluster) -> None:
        client = Client(bootstrap_servers=cluster.bootstrap)
        await client.start()
        task = await waiting(cluster, request, TROUBLES[trouble], lambda: make(client))
        await client.stop()
        assert type(await end_of(task)) is ClientClosed

    virtually(story)


def test_a_call_raises_the_error_that_ends_the_background() -> None:
    """It raises what the next call raises, and does not wait for its own deadline."""

    async def story(cluster: Cluster) -> None:
        breaks = asyncio.Event()

        async def fails() -> None:
            await breaks.wait()
            raise ZeroDivisionError("odd")

        consumer = Consumer(bootstrap_servers=cluster.bootstrap, group_id="g")
        consumer._runtime.finder.run = fails  # type: ignore[method-assign]
        await consumer.start()
        task = await waiting(cluster, OffsetFetchRequest, Exchange.never, lambda: consumer.committed(ZERO))
        breaks.set()
        assert isinstance(await end_of(task), ZeroDivisionError)
        with pytest.raises(ZeroDivisionError):
            await consumer.committed(ZERO)
        await consumer.stop()

    virtually(story)


def test_a_cancelled_call_is_cancelled_also_when_the_client_stops() -> None:
    async def story(cluster: Cluster) -> None:
        consumer = await reading(cluster, by_hand=True)
        task = await waiting(cluster, OffsetFetchRequest, Exchange.never, lambda: consumer.committed(ZERO))
        stopping = asyncio.ensure_future(consumer.stop())
        consumer._runtime.cluster_client.background.ended.notify()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stopping

    virtually(story)


# Commits that are under way


async def slow(exchange: Exchange) -> None:
    await asyncio.sleep(1)


COMMIT_TROUBLES: dict[str, tuple[Trouble, int]] = {
    "slow answer": (slow, 1),
    "retried": (lambda exchange: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 3),
}


@pytest.mark.parametrize("trouble", COMMIT_TROUBLES)
@pytest.mark.parametrize("auto_commit", [False, True], ids=["by itself", "auto-commit"])
@pytest.mark.parametrize("by_hand", [False, True], ids=["member", "assigned"])
def test_stop_finishes_a_commit_of_another_task(by_hand: bool, auto_commit: bool, trouble: str) -> None:
    async def story(cluster: Cluster) -> None:
        consumer = await reading(cluster, by_hand=by_hand, enable_auto_commit=auto_commit)
        await consumer.commit({ZERO: 0})  # so auto-commit has nothing of its own to wait with
        fault, times = COMMIT_TROUBLES[trouble]
        task = await waiting(cluster, OffsetCommitRequest, fault, lambda: consumer.commit({ZERO: 2}), times)
        await consumer.stop()
        assert await end_of(task) is None
        assert cluster.committed("g")[ZERO] == 2

    virtually(story)


@pytest.mark.parametrize("by_hand", [False, True], ids=["member", "assigned"])
def test_stop_gives_up_a_commit_in_time(by_hand: bool) -> None:
    async def story(cluster: Cluster) -> None:
        consumer = await reading(cluster, by_hand=by_hand, enable_auto_commit=False)
        task = await waiting(cluster, OffsetCommitRequest, Exchange.never, lambda: consumer.commit({ZERO: 2}))
        async with asyncio.timeout(5.1):
            await consumer.stop(timeout_ms=5000)
        assert isinstance(await end_of(task), ClientClosed)

    virtually(story)
