"""An error that persists: every call raises an equal one, and it keeps nothing of earlier calls alive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import ref

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.client.aio.supervisor import Supervisor
from aiokc.core.connection.in_flight import InFlightRequests
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, BrokerError, KafkaError, MalformedResponse, MemberFenced, UsageError
from aiokc.testing import Cluster
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.group import JoinGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest
from tests.equal_errors import assert_equal_errors, depth

from ...virtually import virtually
from .forbidden_topic import forbid_u

pytestmark = pytest.mark.timeout(60)

Call = Callable[[], Any]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TIMES = 2_000


class Local:
    """A local variable that a caller has while it calls."""


async def raised_by(call: Call) -> tuple[Exception, ref[Local]]:
    """Return what a call raises, and a weak reference to a local variable of its caller."""
    local = Local()
    try:
        result = call()
        if isinstance(result, Awaitable):
            await result
    except Exception as error:
        return error, ref(local)
    raise AssertionError("it raised nothing")


async def same_each_time(call: Call, *, times: int = TIMES) -> Exception:
    """Make ``call`` raise many times; return what it raised at first."""
    first, _ = await raised_by(call)
    deepest, alive = depth(first), []
    for _ in range(times):
        error, local = await raised_by(call)
        assert error is not first
        assert_equal_errors(error, first)
        assert depth(error) <= deepest + 1
        del error
        alive.append(local)
    assert [local for local in alive if local() is not None] == [], "the frames of earlier calls are held"
    return first


def consumer(cluster: Cluster, **options: Any) -> Consumer:
    return Consumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)


def test_what_has_ended_the_membership() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        async with consumer(cluster, group_id="g", group_instance_id="i") as member:
            await member.getmany()
            cluster.intercept(OffsetCommitRequest, ErrorCode.FENCED_INSTANCE_ID, times=1)
            with pytest.raises(MemberFenced):
                await member.commit()
            told = await same_each_time(member.commit)
            assert isinstance(told, MemberFenced)
            assert_equal_errors(member.health().error, told)
            assert_equal_errors(await same_each_time(lambda: member.commit({T0: 1})), told)
            assert_equal_errors(await same_each_time(lambda: _raise(member.health().error)), told)

    virtually(story)


def test_what_the_group_refuses() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(JoinGroupRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        async with consumer(cluster, group_id="g") as member:
            assert isinstance(await same_each_time(member.getmany, times=20), AuthorizationFailed)
            await same_each_time(member.commit)

    virtually(story)


def test_what_topics_refuse() -> None:
    async def story(cluster: Cluster) -> None:
        async with Consumer("no/topic", bootstrap_servers=cluster.bootstrap) as reader:
            refused = await same_each_time(reader.getmany, times=50)
            assert isinstance(refused, BrokerError)
            assert refused.code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert "pattern" not in str(refused)
            assert isinstance(await same_each_time(lambda: reader.position(T0), times=50), UsageError)

    virtually(story)


@pytest.mark.parametrize("text", ["^ev.*", "ev.*"])
def test_the_text_of_a_pattern_is_refused_with_what_to_give(text: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with Consumer(text, bootstrap_servers=cluster.bootstrap) as reader:
            with pytest.raises(BrokerError, match=r"to subscribe to a pattern give re\.compile"):
                await reader.getmany()

    virtually(story)


@pytest.mark.parametrize("cause", [None, ValueError("the cause")])
@pytest.mark.parametrize("kind", [MalformedResponse, ZeroDivisionError])
def test_what_has_ended_the_background(kind: type[Exception], cause: Exception | None) -> None:
    async def story(cluster: Cluster) -> None:
        reader = consumer(cluster)
        error, has_started = kind("odd"), asyncio.Event()

        async def fails() -> None:
            await has_started.wait()
            raise error from cause

        reader._runtime.finder.run = fails  # type: ignore[method-assign]
        await reader.start()
        has_started.set()
        assert await reader._runtime.cluster_client.background.ended.wait(20)
        for call in (reader.getmany, lambda: reader.position(T0), reader.list_topics, lambda: anext(aiter(reader))):
            assert_equal_errors(await same_each_time(call), error)
        assert (await same_each_time(reader.getmany)).__cause__ is cause
        await reader.stop()

    virtually(story)


async def test_a_supervisor() -> None:
    async def fails() -> None:
        raise KafkaError("odd")

    supervisor = Supervisor("test")
    supervisor.start([fails])
    assert await supervisor.ended.wait(20)
    told = await same_each_time(supervisor.check)
    assert depth(told) <= 10
    assert any("fails" in str(frame) for frame in _frames(told)), "it says where it comes from"


async def test_a_connection_that_is_poisoned() -> None:
    line: InFlightRequests[str] = InFlightRequests("broker 1", "client")
    assert isinstance(await same_each_time(lambda: line.receive(memoryview(b"odd"))), MalformedResponse)


async def test_commits_that_share_a_request_have_an_error_each() -> None:
    """Each callback may raise the error that it is given, and so may all of them."""
    errors: list[KafkaError] = []

    def told(offsets: object, error: KafkaError | None) -> None:
        assert error is not None
        errors.append(error)

    async with Cluster(topics={"t": 1}) as cluster, consumer(cluster, group_id="g") as member:
        cluster.append("t", b"0")
        await member.getmany()
        cluster.intercept(OffsetCommitRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for _ in range(3):
            member.commit_soon({T0: 1}, told)
        while len(errors) < 3:
            await member.getmany(timeout_ms=10)
    assert len({id(error) for error in errors}) == 3
    for error in errors[1:]:
        assert_equal_errors(error, errors[0])


def _raise(error: Exception | None) -> None:
    assert error is not None
    try:
        raise error
    finally:
        del error  # or this frame and the exception would keep each other alive


def _frames(error: Exception) -> list[object]:
    frames: list[object] = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames


def test_a_full_buffer_keeps_no_partition_from_being_fetched_while_each_call_raises() -> None:
    """The buffer is full of a paused partition; no call waits for the others, since all raise before."""

    async def story(cluster: Cluster) -> None:
        for _ in range(100):
            cluster.append("t", bytes(4000))
        cluster.intercept(MetadataRequest, forbid_u)
        options: dict[str, Any] = {"fetch_buffer_bytes": 128 << 10, "auto_offset_reset": "earliest"}
        async with Consumer(bootstrap_servers=cluster.bootstrap, **options) as consumer:
            consumer.assign([T0, T1, TopicPartition("u", 0)])
            raised, taken = 0, 0
            for _ in range(20):
                try:
                    batch = await consumer.getmany(timeout_ms=1000, max_records=1)
                    taken += len(batch.get(T1, ()))
                    if T0 in batch:
                        consumer.pause(T0)
                except AuthorizationFailed:
                    raised += 1
                await asyncio.sleep(1)
                if raised == 5 and not cluster.records("t", 1):
                    cluster.append("t", b"x", partition=1)
            assert taken == 1
            assert raised >= 17, "all calls but two"

    virtually(story, brokers=1, topics={"t": 2, "u": 1})
