"""A consumer's life: start() and stop() in every order, in one loop or another, and what other calls raise then."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokc import Client, Consumer, Delivery, Producer, TopicPartition
from aiokc.errors import ClientClosed, ConsumerClosed, NoBrokersAvailable, ProduceError, UsageError
from aiokc.testing import Cluster
from aiokc.testing.faults import drop
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.group import LeaveGroupRequest
from tests.net.scripted import dead_port
from tests.suite.unused_faults import may_be_unused

pytestmark = pytest.mark.timeout(30)

ZERO = TopicPartition("t", 0)


def test_another_event_loop_is_an_error_and_no_hang() -> None:
    with Cluster(topics={"t": 1}).in_thread() as cluster:
        consumer = Consumer("t", bootstrap_servers=cluster.bootstrap)

        async def read() -> None:
            with pytest.raises(UsageError, match="another event loop"):
                await consumer.getmany(timeout_ms=5000)
            await consumer.stop()
            with pytest.raises(ConsumerClosed, match="stopped"):
                await consumer.getone()

        asyncio.run(consumer.start())
        asyncio.run(read())


@pytest.mark.parametrize("kind", [Consumer, Client])
async def test_stop_belongs_to_the_loop_of_start(kind: type[Consumer | Client]) -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        client = kind(bootstrap_servers=cluster.bootstrap)
        await client.start()
        with pytest.raises(UsageError, match="another event loop: stop it there"):
            await asyncio.to_thread(asyncio.run, client.stop())
        await client.list_topics()
        await client.stop()
        await asyncio.to_thread(asyncio.run, client.stop())  # nothing is left to do


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # asyncio's own, of its transports
@pytest.mark.parametrize("transactional_id", [None, "x"])
@pytest.mark.parametrize("kind", [Consumer, Producer, Client])
def test_stop_after_the_loop_was_closed_with_the_background_in_it(
    kind: type[Consumer | Producer | Client], transactional_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A bare close() cancels no task: nothing can end the background any more, and stop() has nothing to wait for."""
    with Cluster(topics={"t": 1}).in_thread() as cluster:
        of_producers = {"linger_ms": 60_000, "transactional_id": transactional_id}
        of_kind: dict[type, dict[str, Any]] = {Consumer: {"group_id": "g"}, Producer: of_producers}
        options = of_kind.get(kind, {})
        client = kind(bootstrap_servers=cluster.bootstrap, **options)
        loop = asyncio.SelectorEventLoop()
        if isinstance(client, Consumer):
            client.subscribe(["t"])
        loop.run_until_complete(client.start())
        if isinstance(client, Consumer):
            loop.run_until_complete(client.wait_assigned())
        delivery: Delivery | None = None
        if isinstance(client, Producer):
            if transactional_id is not None:
                loop.run_until_complete(client.begin_transaction())
            delivery = loop.run_until_complete(client.send("t", b"x"))
        loop.close()
        for _ in range(2):
            asyncio.run(client.stop())
        assert caplog.text.count("its event loop was closed before stop()") == (1 if kind is Consumer else 0)
        if delivery is not None:
            assert "1 batches were not sent" in caplog.text
            with pytest.raises(ProduceError) as failed:
                delivery.result()
            assert failed.value.persisted == "no"
        with pytest.raises(ClientClosed, match="stopped"):
            asyncio.run(client.start())
        del client, delivery, loop
        gc.collect()  # here, not in the middle of another test


async def test_a_call_in_a_thread_without_a_loop_says_how_to_call() -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g", enable_auto_commit=False) as consumer,
    ):
        await consumer.wait_assigned()
        for call in (consumer.commit_soon, consumer.group_metadata):
            with pytest.raises(UsageError, match="run_coroutine_threadsafe"):
                await asyncio.to_thread(call)


async def test_a_cancelled_background_task_is_an_error_and_no_hang() -> None:
    async with Cluster(topics={"t": 1}) as cluster, Consumer("t", bootstrap_servers=cluster.bootstrap) as consumer:
        waiting = asyncio.ensure_future(consumer.getone())
        await asyncio.sleep(0)
        background = consumer._runtime.cluster_client.background._task
        assert background is not None
        background.cancel()
        with pytest.raises(ConsumerClosed, match="cancelled"):
            async with asyncio.timeout(20):
                await waiting


async def test_stop_ends_a_start_under_way() -> None:
    async with Cluster() as cluster:
        silence = cluster.intercept(MetadataRequest, drop())
        consumer = Consumer("t", bootstrap_servers=cluster.bootstrap)
        starting = asyncio.ensure_future(consumer.start())
        await silence.caught()
        async with asyncio.timeout(20):
            await consumer.stop()
            with pytest.raises(ConsumerClosed, match="stopped before"):
                await starting


async def test_stop_right_after_start_was_called_and_before_it_ran() -> None:
    async with Cluster() as cluster:
        consumer = Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g")
        starting = asyncio.ensure_future(consumer.start())
        await consumer.stop()
        with pytest.raises(ConsumerClosed, match="stopped"):
            async with asyncio.timeout(20):
                await starting


@pytest.mark.parametrize(("kind", "closed"), [(Consumer, ConsumerClosed), (Client, ClientClosed)])
async def test_what_was_stopped_before_it_started_does_not_start(
    kind: type[Consumer | Client], closed: type[ClientClosed]
) -> None:
    async with Cluster() as cluster:
        asked = may_be_unused(cluster.intercept(MetadataRequest, lambda exchange: None))
        client = kind(bootstrap_servers=cluster.bootstrap)
        await client.stop()
        with pytest.raises(ClientClosed, match="stopped: make a new one") as raised:
            await client.start()
        assert raised.type is closed
        await client.stop()
        assert asked.hits == 0


async def test_a_failed_start_is_final_and_says_so() -> None:
    consumer = Consumer("t", bootstrap_servers=f"127.0.0.1:{dead_port()}")
    with pytest.raises(NoBrokersAvailable):
        await consumer.start(timeout_ms=100)
    with pytest.raises(ConsumerClosed, match="make a new one"):
        await consumer.start(timeout_ms=100)
    await consumer.stop()


async def test_the_iterator_raises_before_start() -> None:
    consumer = Consumer("t")
    with pytest.raises(ConsumerClosed, match="not started"):
        [record async for record in consumer]
    await consumer.stop()
    assert [record async for record in consumer] == []


async def test_waiting_for_a_partition_ends_when_it_is_taken_away() -> None:
    async with Cluster(topics={"t": 1}) as cluster, Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([ZERO])
        waiting = asyncio.ensure_future(consumer.getone(ZERO))
        await asyncio.sleep(0)
        consumer.assign([TopicPartition("t", 1)])
        with pytest.raises(UsageError, match="t-0 is not assigned"):
            async with asyncio.timeout(20):
                await waiting


async def test_what_is_assigned_right_after_unsubscribing_is_read_while_the_group_is_left() -> None:
    """The group takes back the very partitions that the application assigns. Nothing would mark them as given up."""
    async with (
        Cluster(topics={"t": 1}) as cluster,
        Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        cluster.append("t", b"0")
        assert (await consumer.getone()).offset == 0
        consumer.unsubscribe()
        consumer.assign([ZERO])
        goodbye = cluster.intercept(LeaveGroupRequest, lambda exchange: None)
        async with asyncio.timeout(20):
            assert (await consumer.getone()).offset == 0
            await goodbye.caught()
            cluster.append("t", b"1")
            assert (await consumer.getone()).offset == 1


async def test_after_stop_every_call_of_a_client_says_that_it_is_stopped() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            assert list(await client.list_topics()) == ["t"]
        async with asyncio.timeout(20):
            for call in (
                lambda: client.list_topics(),
                lambda: client.list_topics(["t"]),
                lambda: client.list_offsets({ZERO: -1}),
                lambda: client.committed("g", [ZERO]),
                lambda: client.commit("g", {ZERO: 1}),
            ):
                with pytest.raises(ClientClosed, match="stopped: make a new one") as raised:
                    await call()
                assert raised.type is ClientClosed


PARTITION_CALLS: dict[str, Callable[[Consumer], Coroutine[Any, Any, object]]] = {
    "getmany": lambda consumer: consumer.getmany(ZERO),
    "getone": lambda consumer: consumer.getone(ZERO),
    "getmany_columns": lambda consumer: consumer.getmany_columns(ZERO),
    "position": lambda consumer: consumer.position(ZERO),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(ZERO),
    "seek_to_beginning of all": lambda consumer: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer: consumer.seek_to_end(ZERO),
    "seek_to_end of all": lambda consumer: consumer.seek_to_end(),
    "seek_to_committed": lambda consumer: consumer.seek_to_committed(ZERO),
    "committed": lambda consumer: consumer.committed(ZERO),
    "commit": lambda consumer: consumer.commit({ZERO: 1}),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([ZERO]),
    "end_offsets": lambda consumer: consumer.end_offsets([ZERO]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({ZERO: 0}),
}


@pytest.mark.parametrize("call", PARTITION_CALLS.values(), ids=PARTITION_CALLS)
async def test_a_call_for_a_partition_is_refused_before_start_in_another_loop_and_after_stop_and_moves_nothing(
    call: Callable[[Consumer], Coroutine[Any, Any, object]],
) -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1", b"2")
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, group_id="g", enable_auto_commit=False)
        consumer.assign([ZERO])
        consumer.seek(ZERO, 1)
        with pytest.raises(ConsumerClosed, match="not started"):
            await call(consumer)
        async with consumer:
            assert await consumer.position(ZERO) == 1
            with pytest.raises(UsageError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, call(consumer))
            assert await consumer.position(ZERO) == 1
            assert (await consumer.getone()).offset == 1
        with pytest.raises(ConsumerClosed, match="stopped: make a new one"):
            await call(consumer)


async def test_a_refused_poll_does_not_mark_held_records_as_processed() -> None:
    """The application asks for a partition that is not assigned, gets an error, and still works on its batch."""
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1")
        async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([ZERO])
            assert len(await consumer.getmany(timeout_ms=10_000)) == 1
            for call in (consumer.getmany, consumer.getone, consumer.getmany_columns):
                with pytest.raises(UsageError, match="t-7 is not assigned"):
                    await call(TopicPartition("t", 7))
                assert consumer._runtime.subscription.holds_records()
