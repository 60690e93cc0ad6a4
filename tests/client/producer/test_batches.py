"""Batches on their way: codecs and releases, sizes that were misjudged, links that break within a frame, splits."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from aiokc import Producer
from aiokc.core.produce.accumulator import RecordAccumulator
from aiokc.core.produce.settling import split_further
from aiokc.errors import MessageTooLarge
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.faults import delay
from tests.client.virtually import virtually

pytestmark = pytest.mark.timeout(30)


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(**{"bootstrap_servers": cluster.bootstrap, **options})


def values(cluster: Cluster, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_codec_in_each_generation_of_produce(release: str, codec: Any) -> None:

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, compression_type=codec) as producer:
            for number in range(200):
                await producer.send("t", b"value %d" % number, b"key")
        assert values(cluster) == [b"value %d" % number for number in range(200)]

    virtually(story, brokers=1, topics={"t": 1}, as_version=release)


def test_a_topic_that_stops_compressing_is_split_until_the_estimate_follows() -> None:
    """Batches were filled for a ratio that the new records do not reach."""

    async def story(cluster: Cluster) -> None:
        cluster.create_topic("small", config={"max.message.bytes": "2000"})
        async with producing(cluster, compression_type="gzip", batch_size=1500, linger_ms=50) as producer:
            expected: list[bytes] = []
            random = Random(1)
            for value in [b"a" * 100] * 6000 + [random.randbytes(100) for _ in range(300)]:
                expected.append(value)
                await producer.send("small", value)
                if len(expected) % 50 == 0:
                    await producer.flush()
            assert values(cluster, "small") == expected
            metrics = producer.metrics()
            assert 0 < metrics.splits < 20
            assert metrics.acknowledged == 6300
            assert metrics.retries == 0, "to split is no retry"

    virtually(story, brokers=1)


def test_the_loop_has_its_turn_between_the_steps_of_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, a batch of 1 MiB would hold it for ten milliseconds and more."""
    turns = 0
    steps: list[int] = []

    def count_turn() -> None:
        nonlocal turns
        turns += 1

    def split_and_note(accumulator: RecordAccumulator) -> bool:
        if accumulator.splits:
            steps.append(turns)
            asyncio.get_running_loop().call_soon(count_turn)
        return split_further(accumulator)

    async def story(cluster: Cluster) -> None:
        cluster.create_topic("small", config={"max.message.bytes": "30000"})
        async with producing(cluster, batch_size=60_000, linger_ms=50) as producer:
            values_sent = [b"%04d" % number for number in range(4_000)]
            monkeypatch.setattr("aiokc.client.produce.sender.split_further", split_and_note)
            await producer.send_many("small", values_sent)
            await producer.flush()
            assert values(cluster, "small") == values_sent

    virtually(story, brokers=1)
    assert len(steps) >= 4_000 // 128
    assert len(set(steps)) == len(steps)


def test_no_batch_is_longer_than_a_request_may_be() -> None:
    """Else the broker refuses each of them: all is sent again in halves, and in halves of these."""

    async def story(cluster: Cluster) -> None:
        cluster.create_topic("small", config={"max.message.bytes": "100000"})
        options: dict[str, Any] = {"batch_size": 1 << 20, "max_request_size": 100_000}
        async with producing(cluster, **options) as producer:
            await producer.send_many("small", [bytes(500)] * 2_000)
            await producer.flush()
            metrics = producer.metrics()
            assert metrics.splits == 0
            assert metrics.batch_fill is not None
            assert metrics.batch_fill > 0.9
            assert metrics.acknowledged == 2_000

    virtually(story, brokers=1)


def test_a_lone_record_that_is_too_large_fails_and_those_around_it_are_stored() -> None:
    """In one batch with others, which are sent in ever smaller parts."""

    async def story(cluster: Cluster) -> None:
        cluster.create_topic("small", config={"max.message.bytes": "1000"})
        async with producing(cluster, batch_size=20_000, linger_ms=50) as producer:
            sent = [await producer.send("small", bytes(2000 if number == 5 else 10)) for number in range(12)]
            found = await asyncio.gather(*map(outcome, sent))
            assert [number for number, one in enumerate(found) if one == "too large"] == [5]
            assert sorted(str(one) for one in found if one != "too large") == sorted(map(str, range(11)))
            assert (await producer.send_and_wait("small", b"next")).offset == 11
        assert len(values(cluster, "small")) == 12

    virtually(story, brokers=1)


async def outcome(delivery: Any) -> object:
    try:
        return (await delivery).offset
    except MessageTooLarge as error:
        return "too large" if error.persisted == "no" else error


@pytest.mark.parametrize("compressed", [False, True])
def test_a_link_that_breaks_within_frames_sends_no_byte_of_another_batch(compressed: bool) -> None:
    """Most frames are in the socket's buffer when their connection ends, and are written again."""

    async def story(cluster: Cluster) -> None:
        options: dict[str, Any] = {"compression_type": "gzip"} if compressed else {}
        random = Random(2)
        expected = [random.randbytes(3000) for _ in range(60)]
        async with producing(
            cluster, batch_size=16_000, linger_ms=0, request_timeout_ms=1000, delivery_timeout_ms=120_000, **options
        ) as producer:
            await producer.partitions_for("t")
            cluster.intercept(ApiKey.PRODUCE, delay(1.5), times=6)  # the broker reads nothing else meanwhile
            sent = []
            for value in expected:
                sent.append(await producer.send("t", value))
                await asyncio.sleep(0.02)
            await producer.flush()
            assert [(await one).offset for one in sent] == list(range(60))
            assert producer.metrics().failed_requests > 0
        assert values(cluster) == expected

    virtually(story, brokers=1, topics={"t": 1})


def test_a_batch_that_a_thread_compresses_keeps_its_place() -> None:
    """More than 256 KiB is left to a thread; what is sent meanwhile goes to other partitions."""

    async def story(cluster: Cluster) -> None:
        options: dict[str, Any] = {"compression_type": "gzip", "batch_size": 1 << 20, "max_request_size": 4 << 20}
        async with producing(cluster, linger_ms=5, **options) as producer:
            sent = [await producer.send("t", bytes(300_000)), await producer.send("t", b"small")]
            await producer.flush()
            sent.append(await producer.send("t", b"next"))
            await producer.flush()
            assert [(await one).offset for one in sent] == [0, 1, 2]

    async def run() -> None:
        async with Cluster(topics={"t": 1}) as cluster:
            await story(cluster)

    asyncio.run(run())
