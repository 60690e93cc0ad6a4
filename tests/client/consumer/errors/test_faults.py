"""Wrong addresses, foreign servers on the port, brokers that go away: a clear error or a recovery, and never a hang."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from aiokc import EARLIEST, Client, Consumer, OffsetAndMetadata, TopicPartition
from aiokc.errors import (
    ConfigError,
    KafkaError,
    MalformedResponse,
    NoBrokersAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopic,
)
from aiokc.testing.kafka import LocalKafka
from tests.more_time import raised_by
from tests.net.scripted import ticks
from tests.producing import Message, produce, produce_in_transaction

pytestmark = [pytest.mark.any_loop, pytest.mark.every_kafka, pytest.mark.timeout(120)]


@asynccontextmanager
async def listener(answer: bytes | None) -> AsyncIterator[str]:
    """A server that is not a broker. It answers with these bytes; with None it reads and answers nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(4096):
                if answer is not None:
                    writer.write(answer)
        except ConnectionError:
            return  # the client has seen enough
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await ticks(5)  # the connection accepted last has not begun to be served, and is not closed if it never does
        server.close()


async def start_fails(bootstrap: str, timeout_ms: int, text: str, error: type[KafkaError] = KafkaError) -> KafkaError:
    """Return what start() raises, in time: an ``error`` whose message matches ``text``."""

    async def start(timeout_ms: int) -> None:
        await Consumer("topic", bootstrap_servers=bootstrap).start(timeout_ms=timeout_ms)

    return await raised_by(start, error, text, timeouts_ms=(timeout_ms, 15_000))


async def test_no_server_listens() -> None:
    async with listener(None) as free:
        pass  # closed again: nothing listens there any more
    error = await start_fails(free, 2_000, "cannot connect", NoBrokersAvailable)
    assert free in str(error)


async def test_a_name_that_does_not_exist() -> None:
    await start_fails("no-such-host.invalid:9092", 1_000, r"no-such-host\.invalid", NoBrokersAvailable)


async def test_an_http_server_listens() -> None:
    async with listener(b"HTTP/1.1 400 Bad Request\r\n\r\n") as bootstrap:
        error = await start_fails(bootstrap, 5_000, "HTTP server")
    assert isinstance(error, MalformedResponse | NoBrokersAvailable)


async def test_a_server_that_never_answers() -> None:
    async with listener(None) as bootstrap:
        await start_fails(bootstrap, 1_000, "", NoBrokersAvailable)


async def test_calls_on_topics_that_do_not_exist_end_in_time(kafka: LocalKafka, topic_name: str) -> None:
    tp = TopicPartition(topic_name, 0)
    options = {"bootstrap_servers": kafka.bootstrap, "allow_auto_create_topics": False}
    async with Consumer(**options) as consumer:  # type: ignore[arg-type]
        await raised_by(
            lambda timeout_ms: consumer.partitions_for_topic(topic_name, timeout_ms=timeout_ms),
            UnknownTopic,
            topic_name,
            timeouts_ms=(1_500, 15_000),
        )
        await raised_by(
            lambda timeout_ms: consumer.end_offsets([tp], timeout_ms=timeout_ms),
            UnknownTopic,
            topic_name,
            timeouts_ms=(1_500, 15_000),
        )
        consumer.assign([tp])
        with pytest.raises(RequestTimedOut, match=topic_name):
            await consumer.position(tp, timeout_ms=1000)
        assert await consumer.getmany(timeout_ms=300) == {}


async def test_a_partition_that_does_not_exist(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=2)
    async with Client(bootstrap_servers=kafka.bootstrap) as client:
        await raised_by(
            lambda timeout_ms: client.list_offsets({TopicPartition(topic_name, 7): EARLIEST}, timeout_ms=timeout_ms),
            UnknownTopic,
            f"{topic_name}-7 does not exist: the topic has 2 partitions",
            timeouts_ms=(1_500, 15_000),
        )


async def test_ranges(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=2)
    produce(kafka.bootstrap, topic_name, [Message(b"%d" % number, partition=number % 2) for number in range(40)])
    zero, one = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    async with Client(bootstrap_servers=kafka.bootstrap) as client:
        seen = [
            (part.partition, record.offset)
            async for part in client.read({zero: (5, 12), one: (0, 3)})
            for record in part.records
        ]
        assert sorted(seen) == [(zero, offset) for offset in range(5, 12)] + [(one, offset) for offset in range(3)]
        assert [part async for part in client.read({zero: (5, 5)})] == []

        async def read_all(timeout_ms: int) -> None:
            _ = [part async for part in client.read({zero: (18, 99)}, timeout_ms=timeout_ms)]

        text = f"{topic_name}-0 at offset 20 of the range's end 99"
        await raised_by(read_all, RequestTimedOut, text, timeouts_ms=(1_500, 15_000))
        with pytest.raises(OffsetOutOfRange, match=f"{topic_name}-0 at 500"):
            _ = [part async for part in client.read({zero: (500, 510)}, timeout_ms=30_000)]
        with pytest.raises(ConfigError, match="no range of offsets"):
            _ = [part async for part in client.read({zero: (5, 4)})]


async def test_a_range_that_holds_control_records_only(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce_in_transaction(kafka.bootstrap, topic_name, [b"0", b"1"])  # and a commit marker at offset 2
    tp = TopicPartition(topic_name, 0)
    async with Client(bootstrap_servers=kafka.bootstrap) as client:
        assert [part async for part in client.read({tp: (2, 3)}, timeout_ms=30_000)] == []
        parts = [part async for part in client.read({tp: (1, 3)}, timeout_ms=30_000)]
        assert [record.offset for part in parts for record in part.records] == [1]


async def test_a_range_left_half_way_leaves_nothing_behind(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [bytes(1000) for _ in range(3000)])
    async with Client(bootstrap_servers=kafka.bootstrap, max_partition_fetch_bytes=50_000) as client:
        before = len(asyncio.all_tasks())
        reading = client.read({TopicPartition(topic_name, 0): (0, 3000)})
        assert (await anext(reading)).records
        await reading.aclose()
        assert len(asyncio.all_tasks()) == before


async def test_offsets_of_a_group_from_outside(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=2)
    zero, one = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    async with Client(bootstrap_servers=kafka.bootstrap) as client:
        await client.commit(topic_name, {zero: 5})
        found = await client.committed(topic_name, [zero, one])
        assert found == {zero: OffsetAndMetadata(5), one: None}


async def test_random_cancellations_lose_and_repeat_nothing(kafka: LocalKafka, topic_name: str) -> None:
    """A cancelled getmany or getone has either returned its records or taken none."""
    kafka.create_topic(topic_name, partitions=3)
    total = 6000
    messages = [Message(b"%d" % n, partition=n % 3) for n in range(total)]
    produce(kafka.bootstrap, topic_name, messages, batch_num_messages=20)  # many fetches, to be cancelled in
    chance = random.Random(7)
    seen: list[tuple[int, int]] = []
    cancelled = 0
    async with Consumer(
        topic_name, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=600
    ) as consumer:
        while len(seen) < total:
            try:
                async with asyncio.timeout(chance.choice([0, 0, 0.0001, 0.0003, 0.001])):
                    if chance.random() < 0.3:
                        one = await consumer.getone()
                        seen.append((one.partition, one.offset))
                        continue
                    batch = await consumer.getmany(max_records=chance.randint(1, 60))
                    seen += [(record.partition, record.offset) for part in batch.values() for record in part]
            except TimeoutError:
                cancelled += 1
                await asyncio.sleep(0)
    assert cancelled > 20, "the test must have tested something"
    assert sorted(seen) == sorted((n % 3, n // 3) for n in range(total))


@pytest.fixture(scope="module")
def one_node() -> Iterator[LocalKafka]:
    """A broker that a test may pause and kill. Its next incarnation is admitted when the dead one's session is over."""
    with LocalKafka(config={"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}) as running:
        yield running


@pytest.fixture
def own(one_node: LocalKafka) -> Iterator[LocalKafka]:
    yield one_node
    one_node.heal()


async def test_stop_ends_in_time_with_a_dead_broker(own: LocalKafka, topic_name: str) -> None:
    own.create_topic(topic_name)
    consumer = Consumer(topic_name, bootstrap_servers=own.bootstrap, group_id=topic_name, auto_offset_reset="earliest")
    await consumer.start()
    produce(own.bootstrap, topic_name, [b"x"])
    assert await consumer.getmany(timeout_ms=30_000)
    own.node(1).pause()
    begin = time.monotonic()
    await consumer.stop(timeout_ms=1500)
    assert time.monotonic() - begin < 25


@pytest.mark.any_loop(uvloop="long")
async def test_a_broker_that_comes_back(own: LocalKafka, topic_name: str) -> None:
    """The only broker is killed while records flow: reading goes on where it stopped, with nothing lost or repeated."""
    own.create_topic(topic_name)
    produce(own.bootstrap, topic_name, [b"%d" % n for n in range(100)])
    async with Consumer(
        topic_name, bootstrap_servers=own.bootstrap, group_id=topic_name, auto_offset_reset="earliest"
    ) as consumer:
        tp = TopicPartition(topic_name, 0)
        seen = [record.offset for record in (await consumer.getmany(max_records=60))[tp]]
        await consumer.commit()
        await asyncio.to_thread(own.node(1).kill)
        assert await consumer.getmany(timeout_ms=500, max_records=1) is not None
        await asyncio.to_thread(own.node(1).start)
        await asyncio.to_thread(produce, own.bootstrap, topic_name, [b"%d" % n for n in range(100, 200)])
        consumer.seek(tp, 60)
        while len(seen) < 200:
            batch = await consumer.getmany(timeout_ms=30_000)
            assert batch, "no records within 30 s of the broker's return"
            seen += [record.offset for record in batch[tp]]
        assert seen == list(range(200))
        await consumer.commit()
        committed = (await consumer.committed(tp))[tp]
        assert committed is not None
        assert committed.offset == 200


@pytest.mark.any_loop(uvloop="long")
async def test_a_leader_that_is_the_coordinator_too_is_killed_while_records_flow_and_started_again(
    three_nodes: LocalKafka, topic_name: str
) -> None:
    """Nothing is lost, repeated or out of order, and the member keeps its generation and commits on."""
    three_nodes.create_topic(topic_name, partitions=3, replication_factor=3)
    produce(three_nodes.bootstrap, topic_name, [Message(b"%d" % n, partition=n % 3) for n in range(300)])
    async with Consumer(
        topic_name,
        bootstrap_servers=three_nodes.bootstrap,
        group_id=topic_name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=50,
    ) as consumer:
        seen: list[tuple[int, int]] = []

        async def read_until(count: int) -> None:
            while len(seen) < count:
                batch = await consumer.getmany(timeout_ms=40_000)
                assert batch, f"no records for 40 s, at {len(seen)} of {count}"
                seen.extend((record.partition, record.offset) for part in batch.values() for record in part)

        await read_until(100)
        await consumer.commit()
        generation, membership = consumer.health().generation, consumer._runtime.membership
        assert membership is not None
        node_id = membership.offsets.requests.lookup._node_id  # each of the nodes leads one of the three partitions
        assert node_id is not None
        await asyncio.to_thread(three_nodes.node(node_id).kill)
        more = [Message(b"%d" % n, partition=n % 3) for n in range(300, 600)]
        await asyncio.to_thread(produce, three_nodes.bootstrap, topic_name, more)
        await read_until(600)
        assert sorted(seen) == sorted((n % 3, n // 3) for n in range(600))
        for partition in range(3):
            assert [offset for number, offset in seen if number == partition] == list(range(200)), "out of order"
        await consumer.commit()
        await asyncio.to_thread(three_nodes.heal)
        await asyncio.to_thread(produce, three_nodes.bootstrap, topic_name, [Message(b"again", partition=0)])
        await read_until(601)
        await consumer.commit()
        assert consumer.health().generation == generation
        committed = await consumer.committed(*consumer.assignment())
        assert {tp.partition: at.offset for tp, at in committed.items() if at is not None} == {0: 201, 1: 200, 2: 200}
