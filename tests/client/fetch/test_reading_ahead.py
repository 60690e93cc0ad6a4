"""When the next Fetch is sent: before the records of a long answer are handed out, and behind those of a short one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.client.aio.time_slice import let_others_run
from aiokc.errors import DeserializationFailed
from aiokc.net.transport import FrameTransport
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.fetch import FetchRequest

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)

KIB = 1 << 10
BUDGET = 512 * KIB
VALUE = bytes(4 * KIB)
TOTAL = 5 * BUDGET // len(VALUE)


@pytest.mark.parametrize("brokers", [3, 8])
async def test_idle_brokers_take_nothing_from_a_busy_one(brokers: int) -> None:
    """One broker has five times what the buffer holds, all others have nothing, and their Fetch requests are parked."""
    names = [TopicPartition("t", number) for number in range(brokers)]
    async with Cluster(brokers=brokers, topics={"t": len(names)}) as cluster:
        busy = cluster.leader("t", 0)
        backlog = names[0]
        parked: Counter[int] = Counter()
        cluster.intercept(FetchRequest, lambda exchange: parked.update([exchange.broker]))
        options: dict[str, Any] = {"fetch_buffer_bytes": BUDGET, "max_partition_fetch_bytes": BUDGET // brokers}
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)
        consumer.assign(names)
        most = taken = without = 0
        async with consumer, asyncio.timeout(20):
            while min(parked.values(), default=0) < 3 or len(parked) < brokers:
                await consumer.getmany(timeout_ms=20)
            for _ in range(TOTAL):
                cluster.append("t", NewRecord(VALUE), partition=backlog.partition)
            fetcher, subscription = consumer._runtime.fetcher, consumer._runtime.subscription

            def starves() -> bool:
                is_fetched = fetcher._buffer.frontier(backlog, subscription[backlog])[0] == TOTAL
                return busy not in fetcher._busy and fetcher._buffer.bytes < BUDGET // 2 and not is_fetched

            while taken < TOTAL:
                taken += sum(map(len, (await consumer.getmany(max_records=4)).values()))
                most = max(most, fetcher._buffer.bytes + sum(fetcher._busy.values()))
                if starves():
                    await let_others_run()  # the fetcher itself may have given way, and has not looked yet
                    without += starves()
        assert without == 0, "calls returned records while no Fetch to the busy broker was on its way"
        assert most <= BUDGET + 4 * len(VALUE), "and what of a batch, or of an answer, is no record"


def test_the_buffer_is_filled_again_while_the_application_works_on_what_it_took_from_it() -> None:
    """The fetcher does not wait until the application comes back for more: what the application took has made room."""

    async def story(cluster: Cluster) -> None:
        for _ in range(TOTAL):
            cluster.append("t", NewRecord(VALUE))
        fetches = cluster.intercept(FetchRequest, lambda exchange: None)
        options: dict[str, Any] = {"fetch_buffer_bytes": BUDGET, "max_partition_fetch_bytes": BUDGET // 8}
        consumer = Consumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)
        async with consumer:
            await consumer.getmany(max_records=1)
            await asyncio.sleep(5)
            before = fetches.hits
            await asyncio.sleep(5)
            assert fetches.hits == before, "the buffer is full"
            assert consumer._runtime.fetcher._buffer.bytes > BUDGET // 2
            taken = await consumer.getmany(max_records=TOTAL)
            assert 1 < sum(map(len, taken.values())) < TOTAL
            await asyncio.sleep(0.1)
            assert fetches.hits > before

    virtually(story, brokers=1, topics={"t": 1})


def test_a_broker_whose_log_has_been_read_is_asked_for_no_more_than_an_idle_one() -> None:
    """Its answer held all that there is. Room in the buffer kept for its next one would be taken from the others."""

    async def story(cluster: Cluster) -> None:
        asked: list[int] = []

        def note(exchange: Exchange) -> None:
            assert isinstance(exchange.request, FetchRequest)
            asked.append(exchange.request.max_bytes)

        cluster.intercept(FetchRequest, note)
        options: dict[str, Any] = {"fetch_buffer_bytes": BUDGET, "max_partition_fetch_bytes": BUDGET}
        consumer = Consumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)
        async with consumer:
            for number in range(5):
                cluster.append("t", b"%d" % number)
                await consumer.getmany()
                await asyncio.sleep(1)
            idle = asked[0]
            assert asked == [idle] * len(asked)
            for _ in range(TOTAL):
                cluster.append("t", NewRecord(VALUE))
            await consumer.getmany()
            await asyncio.sleep(1)
            assert max(asked) > idle, "it has more now"

    virtually(story, brokers=1, topics={"t": 1})


def refuse_bad(data: bytes) -> bytes:
    if data.startswith(b"bad"):
        raise ValueError("bad")
    return data


@pytest.mark.parametrize("got_nothing", ["its time was over", "it raised", "what filled the buffer was paused"])
def test_after_a_call_that_got_nothing_the_buffer_stays_within_its_limit(got_nothing: str) -> None:
    """The call still counts as one that waits, while the application is at work on something else. Then records come in
    far more partitions than the buffer has room for.
    """
    bad, many = TopicPartition("bad", 0), [TopicPartition("many", number) for number in range(100)]
    fills = got_nothing != "its time was over"

    async def story(cluster: Cluster) -> None:
        for _ in range(TOTAL if fills else 0):
            cluster.append("bad", b"bad" + VALUE)
        options: dict[str, Any] = {"fetch_buffer_bytes": BUDGET, "max_partition_fetch_bytes": 2 * len(VALUE)}
        if got_nothing == "it raised":
            options["value_deserializer"] = refuse_bad
        async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options) as consumer:
            consumer.assign([bad, *many])
            await asyncio.sleep(5)
            assert (consumer.metrics().buffered_bytes > BUDGET // 2) == fills
            if got_nothing == "what filled the buffer was paused":
                consumer.pause(bad)
            with pytest.raises(DeserializationFailed) if got_nothing == "it raised" else nullcontext():
                assert await consumer.getmany(timeout_ms=0) == {}
            for tp in many:
                cluster.append("many", *[VALUE] * 3, partition=tp.partition)
            await asyncio.sleep(30)
            assert consumer.metrics().buffered_bytes <= BUDGET * 5 // 4
            consumer.pause(bad)
            taken = 0
            while taken < 3 * len(many):
                batch = await consumer.getmany(timeout_ms=5_000)
                assert batch, "each partition is fetched in the end"
                taken += sum(map(len, batch.values()))

    virtually(story, brokers=1, topics={"bad": 1, "many": len(many)})


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the transports of all clients do: "read" and "has read" around a callback, "write" for each request."""
    noted: list[str] = []
    read: Callable[..., None] = FrameTransport.buffer_updated
    write: Callable[..., None] = FrameTransport.write

    def buffer_updated(self: FrameTransport, nbytes: int) -> None:
        noted.append("read")
        read(self, nbytes)
        noted.append("has read")

    def written(self: FrameTransport, frame: Any) -> None:
        noted.append("write")
        write(self, frame)

    monkeypatch.setattr(FrameTransport, "buffer_updated", buffer_updated)
    monkeypatch.setattr(FrameTransport, "write", written)
    return noted


def reading(steps: list[str], value: bytes, call: Callable[[Any], Any]) -> list[str]:
    """Return what happens from the answer to a parked Fetch on, which brings one record to a call that waits."""
    found: list[str] = []

    async def story(cluster: Cluster) -> None:
        fetches = cluster.intercept(FetchRequest, lambda exchange: None)
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("t", 0)])
        async with consumer, asyncio.timeout(30):

            async def application() -> None:
                while not found:
                    await call(consumer)
                    steps.append("in hand")
                    asyncio.get_running_loop().call_later(1e-6, lambda: found.extend(steps))
                    await asyncio.sleep(1)

            task = asyncio.create_task(application())
            await asyncio.sleep(10)  # by now a Fetch is parked
            assert fetches.hits
            steps.clear()
            cluster.append("t", value)
            await task

    virtually(story, brokers=1, topics={"t": 1})
    return found


CALLS: dict[str, Callable[[Any], Any]] = {
    "getmany": lambda consumer: consumer.getmany(),
    "getone": lambda consumer: consumer.getone(),
    "iterator": anext,
    "getmany_columns": lambda consumer: consumer.getmany_columns(),
}


@pytest.mark.parametrize("call", CALLS)
def test_little_is_in_hand_before_the_next_fetch_is_sent_in_the_same_callback(steps: list[str], call: str) -> None:
    assert reading(steps, b"value", CALLS[call])[:4] == ["read", "in hand", "write", "has read"]


@pytest.mark.parametrize("call", CALLS)
def test_much_is_in_hand_behind_the_next_fetch_in_the_same_callback(steps: list[str], call: str) -> None:
    found = reading(steps, bytes(24 * KIB), CALLS[call])
    at = found.index("write")
    assert found[at : at + 3] == ["write", "in hand", "has read"]
