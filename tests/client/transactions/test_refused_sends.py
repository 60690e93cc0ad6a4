"""A send() that raises has appended nothing: its transaction lacks the record, and is not committed without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final
from unittest.mock import Mock, patch

import pytest

from aiokc import GroupMetadata, Producer, ProducerRecord
from aiokc.core.produce.accumulator import RecordAccumulator
from aiokc.errors import (
    AuthenticationFailed,
    ConfigError,
    KafkaError,
    RequestTimedOut,
    SerializationFailed,
    TransactionAbortable,
    UsageError,
)
from aiokc.native import NATIVE
from aiokc.serialization.serializer import AsyncSerializer
from aiokc.testing import ApiKey, ErrorCode
from aiokc.testing.faults import Hold

from .on_stage import IN0, Stage, scenario
from .test_calls_of_ended_blocks import Registry

LOGIN: Final[dict[str, Any]] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": "u",
    "sasl_plain_password": "pw",
}


def sends(producer: Producer[bytes, bytes]) -> list[Callable[[bytes], Awaitable[object]]]:
    """Each call that sends a record to the first partition of "out"."""

    async def send_soon(value: bytes) -> None:
        producer.send_soon("out", value, partition=0)

    return [
        lambda value: producer.send("out", value, partition=0),
        lambda value: producer.send_and_wait("out", value, partition=0),
        send_soon,
        lambda value: producer.send_many("out", [value]),
    ]


@scenario(2)
async def test_a_wrong_argument_of_a_record_prevents_the_commit(stage: Stage) -> None:
    wrong: list[dict[str, Any]] = [{"partition": "0"}, {"timestamp_ms": -5}, {"headers": [("name", 1)]}]
    for serializer in (None, bytes):
        async with stage.producer(value_serializer=serializer) as producer:

            async def send_soon(*given: Any, producer: Producer[bytes, bytes] = producer, **more: Any) -> None:
                producer.send_soon(*given, **more)

            async def send_many(*given: Any, producer: Producer[bytes, bytes] = producer, **more: Any) -> None:
                await producer.send_many("out", [b"2", ProducerRecord(*given, **more)])

            for send in (producer.send, producer.send_and_wait, send_soon, send_many):
                for argument in wrong:
                    with pytest.raises(ConfigError):
                        async with producer.transaction():
                            await producer.send("out", b"1", partition=0)
                            with pytest.raises(ConfigError):
                                await send("out", b"3", **argument)
            async with producer.transaction():
                await producer.send("out", b"4", partition=0)
    assert await stage.read() == [b"4", b"4"]


class Unsure:
    """Headers of the application's own that raise when they are looked at, as an array of numpy's does."""

    def __bool__(self) -> bool:
        raise ZeroDivisionError

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        raise ZeroDivisionError


@scenario(2)
async def test_whatever_a_call_that_sends_raises_for_its_arguments_prevents_the_commit(stage: Stage) -> None:
    async with stage.producer() as producer:

        async def send_soon(**given: Any) -> None:
            producer.send_soon("out", b"3", **given)

        async def not_awaited(*outcome: Any) -> None: ...

        def failing() -> Iterator[tuple[str, bytes]]:
            yield "name", b""
            raise ZeroDivisionError

        def cancelled() -> Iterator[tuple[str, bytes]]:
            yield "name", b""
            raise asyncio.CancelledError  # of a job that somebody has cancelled

        cases: list[tuple[type[Exception], Callable[[], Awaitable[object]]]] = [
            (ConfigError, lambda: producer.send("out", b"3", on_done=not_awaited)),
            (ConfigError, lambda: send_soon(on_done=not_awaited)),
            (ConfigError, lambda: send_soon(on_done=5)),
            (ConfigError, lambda: producer.send("out", b"3", timeout_ms=-1)),
            (ConfigError, lambda: producer.send_and_wait("out", b"3", timeout_ms=-1)),
            (ConfigError, lambda: producer.send_many("out", [b"3"], timeout_ms=-1)),
            (ConfigError, lambda: producer.send_many("out", b"3")),  # type: ignore[arg-type]
            (ConfigError, lambda: producer.send_many("out", 5)),  # type: ignore[arg-type]
            (ConfigError, lambda: producer.send_many("", [b"3"])),
            (ZeroDivisionError, lambda: producer.send("out", b"3", headers=failing())),
            (ZeroDivisionError, lambda: producer.send_and_wait("out", b"3", headers=Unsure())),
            (ZeroDivisionError, lambda: send_soon(headers=failing())),
            (ZeroDivisionError, lambda: send_soon(headers=Unsure())),
            (ZeroDivisionError, lambda: producer.send_many("out", [ProducerRecord("out", headers=Unsure())])),
            (UsageError, lambda: producer.send("out", b"3", headers=cancelled())),
            (UsageError, lambda: send_soon(headers=cancelled())),
            (UsageError, lambda: producer.send_many("out", [ProducerRecord("out", headers=cancelled())])),
        ]
        for error, send in cases:
            with pytest.raises(error):
                async with producer.transaction():
                    await producer.send("out", b"1", partition=0)
                    with pytest.raises(error):
                        await send()
        async with producer.transaction():
            await producer.send("out", b"4", partition=0)
    assert await stage.read() == [b"4"]


@pytest.mark.skipif(not NATIVE, reason="without the extension every record goes the ordinary way")
@scenario(2)
async def test_whatever_a_send_raises_on_the_quick_way_prevents_the_commit(stage: Stage) -> None:
    no_memory = Mock(appended=0)
    no_memory.append.side_effect = MemoryError("no room")
    async with stage.producer(linger_ms=30_000) as producer:
        for send in sends(producer)[:3]:
            with pytest.raises(MemoryError, match="no room"):
                async with producer.transaction():
                    await producer.send("out", b"1", partition=0)
                    route = producer._runtime.appending.quick.topics["out"]
                    with patch.object(route, "quick", no_memory), pytest.raises(MemoryError):
                        await send(b"2")
        assert no_memory.append.call_count == 3
        async with producer.transaction():
            await producer.send("out", b"3", partition=0)
    assert await stage.read() == [b"3"]


@pytest.mark.skipif(not NATIVE, reason="without the extension every record goes the ordinary way")
@scenario(2)
async def test_a_batch_that_the_quick_way_cannot_begin_prevents_the_commit(stage: Stage) -> None:
    async with stage.producer(linger_ms=30_000, batch_size=100) as producer:
        for send in sends(producer)[:3]:
            with pytest.raises(MemoryError, match="no room"):
                async with producer.transaction():
                    await producer.send("out", b"1", partition=0)
                    with (
                        patch.object(RecordAccumulator, "opened", side_effect=MemoryError("no room")) as opened,
                        pytest.raises(MemoryError),
                    ):
                        await send(bytes(100))
                    assert opened.call_count == 1
    assert await stage.read() == []


@scenario(2)
async def test_offsets_that_are_refused_for_their_arguments_prevent_the_commit(stage: Stage) -> None:
    """A block that went on without them would commit results, and read their records again."""
    good, group = {IN0: 5}, GroupMetadata("g")
    wrong_fields: list[tuple[Any, ...]] = [
        *((group_id,) for group_id in (None, b"g", "", "\ud800", "g" * 32_768)),
        *(("g", generation) for generation in (1 << 31, -2, "1", None, True)),
        *(("g", 1, member_id) for member_id in (None, "\ud800", "m" * 32_768)),
        *(("g", 1, "m", instance_id) for instance_id in (5, "\ud800", "i" * 32_768)),
    ]
    wrong: list[tuple[Any, Any, dict[str, Any]]] = [
        ({IN0: -5}, group, {}),
        ([IN0], group, {}),
        (good, "g", {}),
        *((good, GroupMetadata(*fields), {}) for fields in wrong_fields),
        (good, group, {"timeout_ms": -1}),
    ]
    async with stage.producer() as producer:
        for offsets, metadata, more in wrong:
            for by_hand in (False, True):
                with pytest.raises(ConfigError):
                    async with producer.transaction() as transaction:
                        await producer.send("out", b"1", partition=0)
                        send = producer.send_offsets_to_transaction if by_hand else transaction.send_offsets
                        with pytest.raises(ConfigError):
                            await send(offsets, metadata, **more)
        async with producer.transaction() as transaction:
            await producer.send("out", b"4", partition=0)
            await transaction.send_offsets(good, group)
    assert await stage.read() == [b"4"]
    assert await stage.committed() == {IN0: 5}


@scenario(2)
async def test_whatever_send_many_raises_prevents_the_commit(stage: Stage) -> None:
    def failing() -> Iterator[bytes]:
        yield b"2"
        raise ZeroDivisionError

    def cancelled() -> Iterator[bytes]:
        yield b"2"
        raise asyncio.CancelledError  # of a job that somebody has cancelled

    cases: list[tuple[type[Exception], Callable[[], Any]]] = [
        (ZeroDivisionError, failing),
        (UsageError, cancelled),
        (ConfigError, lambda: [b"2", ProducerRecord("in", b"3")]),
        (SerializationFailed, lambda: [b"2", 3]),
    ]
    for error, records in cases:
        for serializer in (None, bytes_only):
            async with stage.producer(value_serializer=serializer) as producer:
                with pytest.raises(error):
                    async with producer.transaction():
                        await producer.send("out", b"1", partition=0)
                        with pytest.raises(error) as raised:
                            await producer.send_many("out", records())
                        assert raised.value.__notes__ == [
                            "aiokc: 1 records of this send_many() were appended before this one"
                        ]
    assert await stage.read() == []


def bytes_only(value: bytes) -> bytes:
    assert isinstance(value, bytes)
    return value


# While another task commits


@scenario()
async def test_a_call_that_still_waits_when_the_commit_is_called_prevents_it(stage: Stage) -> None:
    """Its record is appended no more. Those before it are not acknowledged yet, so nothing is committed either."""
    calls: list[Callable[[Producer[bytes, bytes]], Coroutine[Any, Any, object]]] = [
        lambda producer: producer.send("out", b"2", partition=0),
        lambda producer: producer.send_many("out", [b"2"]),
    ]
    for call in calls:
        registry, hold = Registry(), Hold()
        async with stage.producer(value_serializer=AsyncSerializer(registry.serialize), linger_ms=60_000) as producer:
            stage.cluster.intercept(ApiKey.PRODUCE, hold, times=1)
            await producer.begin_transaction()
            await producer.send("out", b"1", partition=0)
            registry.held = b"2"
            waiting = asyncio.create_task(call(producer))
            await registry.asked.wait()
            commit = asyncio.create_task(producer.commit_transaction())
            await hold.arrived()
            registry.let_go()
            with pytest.raises(UsageError, match="being committed") as raised:
                await waiting
            assert not raised.value.may_be_committed
            with pytest.raises(TransactionAbortable, match="a record is missing"):
                await commit
            hold.release()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("out", b"3", partition=0)
    assert await stage.read() == [b"3", b"3"]


@scenario()
async def test_stop_aborts_the_transaction_whose_commit_a_waiting_call_prevents(stage: Stage) -> None:
    """The call raises because the producer stops. Readers must not have to wait for transaction_timeout_ms."""
    registry, hold = Registry(), Hold()
    producer = stage.producer(value_serializer=AsyncSerializer(registry.serialize), linger_ms=60_000)
    await producer.start()
    stage.cluster.intercept(ApiKey.PRODUCE, hold, times=1)
    await producer.begin_transaction()
    await producer.send("out", b"1", partition=0)
    registry.held = b"2"
    waiting = asyncio.create_task(producer.send("out", b"2", partition=0))
    await registry.asked.wait()
    commit = asyncio.create_task(producer.commit_transaction())
    await hold.arrived()
    stop = asyncio.create_task(producer.stop())
    registry.let_go()
    with pytest.raises(KafkaError):
        await waiting
    hold.release()
    await stop
    with pytest.raises(TransactionAbortable, match="a record is missing"):
        await commit
    async with stage.producer("other") as other, other.transaction():
        await other.send("out", b"3", partition=0)
    assert await stage.read() == [b"3"]


@scenario()
async def test_stop_waits_for_the_abort_of_a_block_whose_commit_a_waiting_call_prevents(stage: Stage) -> None:
    """The block is told first that its commit has failed, and has begun to abort when stop() looks again."""
    registry, hold, loading = Registry(), Hold(), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    producer = stage.producer(value_serializer=AsyncSerializer(registry.serialize), linger_ms=60_000)
    await producer.start()
    stage.cluster.intercept(ApiKey.PRODUCE, hold, times=1)
    waiting: list[asyncio.Task[Any]] = []

    async def block() -> None:
        async with producer.transaction():
            await producer.send("out", b"1", partition=0)
            registry.held = b"2"
            waiting.append(asyncio.create_task(producer.send("out", b"2", partition=0)))
            await registry.asked.wait()

    ends = asyncio.create_task(block())
    await hold.arrived()
    stage.cluster.intercept(ApiKey.END_TXN, loading, times=2)
    stop = asyncio.create_task(producer.stop())
    registry.let_go()
    with pytest.raises(KafkaError):
        await waiting[0]
    hold.release()
    await stop
    with pytest.raises(TransactionAbortable, match="a record is missing"):
        await ends
    async with stage.producer("other") as other, other.transaction():
        await other.send("out", b"3", partition=0)
    assert await stage.read() == [b"3"]


@scenario(2)
async def test_a_serializer_that_takes_too_long_prevents_the_commit(stage: Stage) -> None:
    """By another error than it raises: RequestTimedOut from a commit says that nobody knows the outcome."""
    registry = Registry()
    async with stage.producer(value_serializer=AsyncSerializer(registry.serialize)) as producer:
        registry.held = b"2"
        with pytest.raises(TransactionAbortable, match="took longer than"):
            async with producer.transaction():
                await producer.send("out", b"1", partition=0)
                with pytest.raises(RequestTimedOut):
                    await producer.send("out", b"2", partition=0, timeout_ms=100)
    assert await stage.read() == []


@scenario()
async def test_a_call_that_raises_once_the_coordinator_was_asked_to_commit_changes_nothing(stage: Stage) -> None:
    registry, hold = Registry(), Hold()
    async with stage.producer(value_serializer=AsyncSerializer(registry.serialize)) as producer:
        stage.cluster.intercept(ApiKey.END_TXN, hold, times=1)
        await producer.begin_transaction()
        await producer.send("out", b"1", partition=0)
        registry.held = b"2"
        waiting = asyncio.create_task(producer.send("out", b"2", partition=0))
        await registry.asked.wait()
        commit = asyncio.create_task(producer.commit_transaction())
        await hold.arrived()
        registry.let_go()
        with pytest.raises(UsageError, match="being committed"):
            await waiting
        hold.release()
        await commit
    assert await stage.read() == [b"1"]


@scenario()
async def test_a_send_that_lets_the_commit_begin_prevents_it(stage: Stage) -> None:
    """A task that calls again and again, and never has to wait, gives way before one of its sends."""
    async with stage.producer(linger_ms=60_000) as producer:

        async def send() -> None:
            for _ in range(1_000):
                await producer.send("out", b"x", partition=0)

        await producer.partitions_for("out")
        await producer.begin_transaction()
        sending, commit = asyncio.create_task(send()), asyncio.create_task(producer.commit_transaction())
        with pytest.raises(UsageError, match="being committed"):
            await sending
        with pytest.raises(TransactionAbortable, match="a record is missing"):
            await commit
        await producer.abort_transaction()
    assert await stage.read() == []


@scenario(2)
async def test_a_call_that_begins_during_the_commit_does_not_prevent_it(stage: Stage) -> None:
    """It has no part in the transaction, whatever is wrong with it."""
    async with stage.producer(linger_ms=60_000) as producer:
        hold = Hold()
        stage.cluster.intercept(ApiKey.PRODUCE, hold, times=1)
        await producer.begin_transaction()
        await producer.send("out", b"1", partition=0)
        commit = asyncio.create_task(producer.commit_transaction())
        await hold.arrived()
        for send in sends(producer):
            with pytest.raises(UsageError, match="being committed"):
                await send(b"2")
        wrong: Any = 5
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: producer.send("out", b"2", on_done=wrong),
            lambda: producer.send("out", b"2", timeout_ms=-1),
            lambda: producer.send_many("out", [b"2"], timeout_ms=-1),
            lambda: producer.send_offsets_to_transaction({IN0: -5}, GroupMetadata("g")),
        ]
        for call in calls:
            with pytest.raises(ConfigError):
                await call()
        hold.release()
        await commit
    assert await stage.read() == [b"1"]


@scenario(2, sasl={"u": "pw"})
async def test_a_refused_login_that_a_send_raises_prevents_the_commit(stage: Stage) -> None:
    """Not its own: a broker refuses a new connection, and the next call of the application is told."""
    async with stage.producer(**LOGIN) as producer:
        for send in sends(producer):
            with pytest.raises(AuthenticationFailed, match="refused user 'u'"):
                async with producer.transaction():
                    await producer.send_and_wait("out", b"1", partition=0)
                    refused = stage.cluster.refuse_login(times=1)
                    leader = stage.cluster.leader("out", 0)
                    assert leader is not None
                    stage.cluster.disconnect(leader)
                    await producer.send("out", b"2", partition=0)
                    await asyncio.sleep(1)
                    assert refused.hits == 1
                    with pytest.raises(AuthenticationFailed):
                        await send(b"3")
        async with producer.transaction():
            await producer.send("out", b"4", partition=0)
    assert await stage.read(**LOGIN) == [b"4"]
