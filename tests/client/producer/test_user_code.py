"""The application's code inside of a producer: serializers, partitioners, interceptors and callbacks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from numbers import Integral
from typing import Any

import pytest

from aiokc import AsyncSerializer, Producer, ProducerInterceptor, ProducerRecord, RecordMetadata
from aiokc.errors import (
    ConfigError,
    MetadataMissing,
    PartitioningFailed,
    ProduceError,
    ProducerClosed,
    RecordRefused,
    RequestTimedOut,
    SerializationFailed,
    UsageError,
)
from aiokc.testing import ApiKey, Cluster, ErrorCode, faults
from aiokc.testing.brokers.exchange import Exchange
from tests.client.virtually import virtually

pytestmark = pytest.mark.timeout(30)


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(**{"bootstrap_servers": cluster.bootstrap, **options})


def values(cluster: Cluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.records("t", partition)]


# Serializers


class WithTopic:
    def serialize(self, topic: str, headers: Any, data: str) -> bytes:
        return f"{topic} {dict(headers)} {data}".encode()


def test_serializers_make_the_bytes_and_never_see_none() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, key_serializer=str.encode, value_serializer=WithTopic()) as producer:
            await producer.send_and_wait("t", "value", "key", headers=[("a", b"b")], partition=0)
            await producer.send_and_wait("t", None, None, partition=0)
        first, second = cluster.records("t")
        assert (first.key, first.value) == (b"key", b"t {'a': b'b'} value")
        assert (second.key, second.value) == (None, None)

    virtually(story, brokers=1)


@pytest.mark.parametrize(
    "serializer",
    [
        lambda data: 1 / 0,
        lambda data: "text",
        lambda data: None,
        AsyncSerializer(lambda data: _text()),
        AsyncSerializer(lambda data: _cancelled()),
    ],
    ids=["raises", "text", "None", "async text", "cancelled"],
)
def test_a_serializer_that_fails_fails_the_call_and_nothing_is_appended(serializer: Any) -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, value_serializer=serializer) as producer:
            with pytest.raises(SerializationFailed) as failed:
                await producer.send("t", "a secret")
            assert failed.value.origin == "value"
            assert failed.value.topic == "t"
            assert "secret" not in str(failed.value)
        assert values(cluster) == []

    virtually(story, brokers=1)


def test_without_a_serializer_keys_and_values_are_bytes() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            with pytest.raises(
                SerializationFailed,
                match="t: value_serializer is missing: without one the value must be bytes, not str",
            ):
                await producer.send("t", "text")
            with pytest.raises(
                SerializationFailed, match="t: key_serializer is missing: without one the key must be bytes, not int"
            ):
                await producer.send("t", b"value", 17)
            with pytest.raises(
                SerializationFailed, match="value_serializer is missing: without one the value must be bytes, not int"
            ):
                await producer.send_many("t", [17])
        assert values(cluster) == []

    virtually(story, brokers=1)


async def _text() -> Any:
    return "text"


async def _cancelled() -> bytes:
    raise asyncio.CancelledError


def test_an_async_function_has_to_be_called_async() -> None:
    async def story(cluster: Cluster) -> None:
        async def serialize(data: str) -> bytes:
            return data.encode()

        async with producing(cluster, value_serializer=serialize) as producer:
            with pytest.raises(SerializationFailed, match="AsyncSerializer"):
                await producer.send("t", "value")
        async with producing(cluster, value_serializer=AsyncSerializer(serialize)) as producer:
            assert (await producer.send_and_wait("t", "value", partition=0)).offset == 0
            with pytest.raises(UsageError, match="send_soon"):
                producer.send_soon("t", "value")

    virtually(story, brokers=1)


def test_an_async_serializer_bounds_nobody_and_its_own_call_only() -> None:
    """The order is that of the appends, so a slow one does not hold up another task."""

    async def story(cluster: Cluster) -> None:
        async def serialize(seconds: float) -> bytes:
            await asyncio.sleep(seconds)
            return b"%d" % seconds

        async with producing(cluster, value_serializer=AsyncSerializer(serialize)) as producer:
            slow = asyncio.ensure_future(producer.send("t", 5, partition=0))
            await producer.send_and_wait("t", 1, partition=0)
            await (await slow)
            with pytest.raises(RequestTimedOut):
                await producer.send("t", 60, timeout_ms=1000)
        assert values(cluster) == [b"1", b"5"]

    virtually(story, brokers=1)


class Named:
    """Leaves its name in a header, as a registry's serializer does with the id of a schema (KIP-336)."""

    def __init__(self, name: str, content: Any = b"") -> None:
        self.header = (name, content)
        self.seen: list[Any] = []

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: str) -> Any:
        self.seen.append(list(headers))
        headers.append(self.header)
        return data.encode()


class AwaitedNamed(Named):
    async def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: str) -> Any:
        await asyncio.sleep(0)
        return super().serialize(topic, headers, data)


@pytest.mark.parametrize("kind", [Named, AwaitedNamed])
def test_headers_that_serializers_add_are_sent(kind: type[Named]) -> None:
    of_key, of_value, log = kind("key"), Named("value"), list[Any]()
    given = [("given", b"1")]

    async def story(cluster: Cluster) -> None:
        options: dict[str, Any] = {
            "key_serializer": AsyncSerializer(of_key) if isinstance(of_key, AwaitedNamed) else of_key,
            "value_serializer": of_value,
        }
        async with producing(cluster, interceptors=[Noting("i", log)], **options) as producer:
            await producer.send_and_wait("t", "v", "k", headers=given, partition=0)
        async with producing(cluster, **options) as producer:
            records = [ProducerRecord("t", "v", "k", 0, None, given), ProducerRecord("t", "v", "k", 0)]
            await (await producer.send_many("t", records))
            if kind is Named:
                await producer.send_soon("t", "v", "k", headers=given, partition=0)
        names = [[name for name, _ in record.headers] for record in cluster.records("t")]
        assert names[:3] == [["given", "i", "key", "value"], ["given", "key", "value"], ["key", "value"]]
        assert names[3:] == ([["given", "key", "value"]] if kind is Named else [])

    virtually(story, brokers=1)
    assert of_value.seen[0] == [("given", b"1"), ("i", b""), ("key", b"")]
    assert given == [("given", b"1")], "what the application gave stays its own"
    assert log[0] == ("i", 0, 0, type(None), ["given", "i", "key", "value"])


def test_values_alone_get_the_headers_of_their_serializer() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, value_serializer=Named("value")) as producer:
            await (await producer.send_many("t", ["a", "b"]))
        assert [record.headers for record in cluster.records("t")] == [(("value", b""),)] * 2

    virtually(story, brokers=1)


def test_a_serializer_that_keeps_the_headers_changes_no_sent_record() -> None:
    kept: list[list[Any]] = []

    class Keeping(Named):
        def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: str) -> Any:
            kept.append(headers)
            return super().serialize(topic, headers, data)

    async def story(cluster: Cluster) -> None:
        log: list[Any] = []
        async with producing(cluster, value_serializer=Keeping("value"), interceptors=[Noting("i", log)]) as producer:
            delivery = await producer.send("t", "a", partition=0)
            kept[0].append("nonsense")
            await delivery
        assert log[0] == ("i", 0, 0, type(None), ["i", "value"])

    virtually(story, brokers=1)


@pytest.mark.parametrize("wrong", ["text", 5, bytearray(b"")], ids=repr)
def test_a_header_of_a_serializer_that_cannot_be_sent_fails_the_call(wrong: Any) -> None:
    """It would stand in the way of all later records of its partition."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, key_serializer=Named("id", wrong), value_serializer=Named("value")) as producer:
            with pytest.raises(SerializationFailed, match="key_serializer has left a header that can't be sent") as no:
                await producer.send("t", "v", "k")
            assert no.value.origin == "key"
            with pytest.raises(SerializationFailed, match="key_serializer has left"):
                await producer.send_many("t", [ProducerRecord("t", "v", "k")])
            await producer.send_and_wait("t", "v", partition=0)
        assert values(cluster) == [b"v"]

    virtually(story, brokers=1)


@pytest.mark.parametrize("wrong", [WithTopic, 5, "text"])
def test_what_is_no_serializer(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        Producer(value_serializer=wrong)


# Partitioners


def test_a_partitioner_of_the_application_chooses() -> None:
    seen: list[Any] = []

    def choose(topic: str, key: Any, value: Any, partitions: Sequence[int], available: Sequence[int]) -> int | None:
        seen.append((topic, key, value, list(partitions), list(available)))
        return None if key is None else len(key)

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, partitioner=choose) as producer:
            assert (await producer.send_and_wait("t", b"v", b"kk")).partition == 2
            assert seen[0] == ("t", b"kk", b"v", [0, 1, 2], [0, 1, 2])
            await producer.send_and_wait("t", b"v", partition=1)
            assert len(seen) == 1, "who names a partition does not ask it"
            await producer.send_and_wait("t", b"v")
            assert len(seen) == 2
            with pytest.raises(MetadataMissing, match=r"partition 5 of .* the topic has 3 partitions"):
                await producer.send("t", b"v", b"xxxxx", timeout_ms=2000)
            with pytest.raises(MetadataMissing, match="the topic has 3 partitions"):
                producer.send_soon("t", b"v", b"xxxxx")
            waits = asyncio.ensure_future(producer.send_and_wait("t", b"v", b"xxxxx"))
            await asyncio.sleep(0.5)
            cluster.add_partitions("t", 6)
            assert (await waits).partition == 5

    virtually(story, brokers=1, topics={"t": 3})


def test_a_partitioner_changes_nothing_of_the_producer_s_and_may_return_any_whole_number() -> None:
    class Two:  # numpy's integers are no int either
        def __int__(self) -> int:
            return 2

        def __lt__(self, other: int) -> bool:
            return other > 2

    Integral.register(Two)

    def choose(topic: str, key: Any, value: Any, partitions: Sequence[int], available: Any) -> Any:
        return None if hasattr(available, "pop") or hasattr(partitions, "pop") else Two()

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, partitioner=choose) as producer:
            assert (await producer.send_and_wait("t", b"v", b"k")).partition == 2

    virtually(story, brokers=1, topics={"t": 3})


@pytest.mark.parametrize("result", [-1, True, "1", 1.0, ValueError()], ids=str)
def test_a_partitioner_that_fails_fails_the_call(result: Any) -> None:

    def choose(*arguments: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, partitioner=choose) as producer:
            with pytest.raises(PartitioningFailed):
                await producer.send("t", b"v", b"k")

    virtually(story, brokers=1)


def test_records_without_a_key_use_all_partitions_batch_by_batch() -> None:
    """And new partitions, too."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, batch_size=2000, metadata_max_age_ms=1000) as producer:
            for _ in range(6000):
                await producer.send("t", bytes(50))
            await producer.flush()
            counts = [cluster.end_offset("t", partition) for partition in range(4)]
            assert sum(counts) == 6000
            assert min(counts) > 500
            cluster.add_partitions("t", 8)
            await asyncio.sleep(3)
            for _ in range(6000):
                await producer.send("t", bytes(50))
            await producer.flush()
            assert all(cluster.end_offset("t", partition) > 0 for partition in range(8))

    virtually(story, brokers=1, topics={"t": 4})


def test_a_slow_broker_gets_less() -> None:
    """KIP-794: while its queue is long, most records go elsewhere."""

    async def story(cluster: Cluster) -> None:
        async def slow(exchange: Exchange) -> None:
            await asyncio.sleep(0.2)

        leaders = [cluster.leader("t", partition) for partition in range(3)]
        cluster.intercept(ApiKey.PRODUCE, slow, where=lambda exchange: exchange.broker == leaders[0])
        async with producing(
            cluster, batch_size=500, linger_ms=0, partitioner_availability_timeout_ms=1000
        ) as producer:
            for _ in range(100):
                for _ in range(30):
                    await producer.send("t", bytes(50))
                await asyncio.sleep(0.02)
        counts = [cluster.end_offset("t", partition) for partition in range(3)]
        assert counts[0] < min(counts[1:]) / 2

    virtually(story, topics={"t": 3})


# Interceptors


class Noting(ProducerInterceptor):
    def __init__(self, name: str, log: list[Any]) -> None:
        self.name, self.log = name, log

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        return record._replace(headers=(*record.headers, (self.name, b"")))

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Any, /) -> None:
        self.log.append((self.name, metadata.partition, metadata.offset, type(error), [name for name, _ in headers]))

    def close(self) -> None:
        self.log.append((self.name, "closed"))


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_stop_that_is_cancelled_again_and_again_calls_every_callback_and_closes_the_interceptors(steps: int) -> None:
    """A second signal, and then the end of a task group: ``Task.cancel()`` ends the await that it finds."""
    log: list[Any] = []

    def note(number: int, metadata: RecordMetadata, error: Exception | None) -> None:
        log.append(number)

    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, interceptors=[Noting("a", log)])
        await producer.start()
        await producer.partitions_for("t")
        cluster.take_down(1)
        for number in range(3):
            producer.send_soon("t", b"v", on_done=partial(note, number))
        stopping = asyncio.create_task(producer.stop())
        await asyncio.sleep(0.01)
        for _ in range(4):
            stopping.cancel()
            for _ in range(steps):
                await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert [one for one in log if isinstance(one, int)] == [0, 1, 2]
        assert log[-1] == ("a", "closed")
        assert [task for task in asyncio.all_tasks() if "aiokc" in task.get_name()] == []

    virtually(story, brokers=1, topics={"t": 1})


class Broken(ProducerInterceptor):
    def on_send(self, record: ProducerRecord[Any, Any]) -> Any:
        raise ValueError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Any, /) -> None:
        raise ValueError("on_acknowledgement")

    def close(self) -> None:
        raise ValueError("close")


def test_interceptors_see_each_record_and_its_fate_before_the_application(caplog: pytest.LogCaptureFixture) -> None:
    log: list[Any] = []

    async def story(cluster: Cluster) -> None:
        chain = [Noting("a", log), Broken(), Noting("b", log)]
        async with producing(cluster, interceptors=chain, max_request_size=1000) as producer:
            await producer.partitions_for("t")
            producer.send_soon("t", b"v", partition=0, on_done=lambda metadata, error: log.append("the application"))
            await producer.flush()
            await asyncio.sleep(0)
            headers = ["a", "b"]
            assert log == [("a", 0, 0, type(None), headers), ("b", 0, 0, type(None), headers), "the application"]
            log.clear()
            with pytest.raises(Exception, match="max_request_size"):
                await producer.send("t", bytes(2000))
            await asyncio.sleep(0.1)
            assert [one[:3] for one in log] == [("a", -1, None), ("b", -1, None)]
            log.clear()
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
            await producer.send("t", b"v", partition=0)
            with pytest.raises(RecordRefused):
                await producer.flush()  # an interceptor is no observer
            await asyncio.sleep(0.1)
            assert [one[3] for one in log] == [RecordRefused, RecordRefused]
        assert log[-2:] == [("a", "closed"), ("b", "closed")]
        assert cluster.records("t")[0].headers == (("a", b""), ("b", b""))

    virtually(story, brokers=1)
    for method in ("on_send", "on_acknowledgement", "close"):
        assert f"Broken.{method}()" in caplog.text


@pytest.mark.parametrize("options", [{}, {"transactional_id": "x"}], ids=["plain", "transactional"])
def test_interceptors_are_told_of_a_send_that_is_cancelled_before_its_append(options: dict[str, Any]) -> None:
    log: list[Any] = []

    async def slow(data: bytes) -> bytes:
        await asyncio.sleep(0 if data == b"v" else 60)
        return data

    async def story(cluster: Cluster) -> None:
        chain = [Noting("a", log)]
        async with producing(
            cluster, value_serializer=AsyncSerializer(slow), interceptors=chain, **options
        ) as producer:
            async with producer.transaction() if options else nullcontext():
                sending = asyncio.ensure_future(producer.send("t", b"slow", partition=1))
                await asyncio.sleep(1)
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending
                await asyncio.sleep(0.1)
                assert log == [("a", 1, None, ProduceError, ["a"])]
                log.clear()
                await producer.send_and_wait("t", b"v", partition=0)
            await asyncio.sleep(0.1)
            assert [one[1] for one in log] == [0]
        assert values(cluster)[:1] == [b"v"]

    virtually(story, brokers=1)


def test_interceptors_are_told_of_a_send_that_is_cancelled_while_it_waits_for_memory() -> None:
    log: list[Any] = []

    async def story(cluster: Cluster) -> None:
        cluster.intercept(ApiKey.PRODUCE, faults.delay(1.0), times=1)
        async with producing(cluster, buffer_memory=20_000, interceptors=[Noting("a", log)]) as producer:
            first = await producer.send("t", bytes(15_000), partition=0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await producer.send("t", bytes(15_000), partition=1)
            await first
            await producer.flush()
            await asyncio.sleep(0.1)
        assert log[:2] == [("a", 1, None, ProduceError, ["a"]), ("a", 0, 0, type(None), ["a"])]

    virtually(story, brokers=1)


# Callbacks


@pytest.mark.parametrize(
    "change",
    [{"topic": None}, {"partition": -1}, {"timestamp_ms": 1 << 70}, {"headers": (("a", "text"),)}],
    ids=lambda change: next(iter(change)),
)
def test_a_record_of_an_interceptor_that_cannot_be_sent_is_not(change: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It would end the producer, or stand in the way of all later records of its partition."""

    class Changing(ProducerInterceptor):
        def on_send(self, record: Any) -> Any:
            return record._replace(**change)

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, interceptors=[Changing()]) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            assert (await producer.send_and_wait("t", b"1", partition=0)).offset == 1

    virtually(story)
    assert "Changing.on_send() failed, and the record that it was given goes on" in caplog.text


def test_callbacks_come_in_the_order_of_the_sends_never_within_one() -> None:
    order: list[int] = []

    def note(number: int, metadata: RecordMetadata, error: Exception | None) -> None:
        order.append(number)

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=0, batch_size=500) as producer:
            await producer.partitions_for("t")
            for number in range(500):
                before = len(order)
                producer.send_soon("t", b"%d" % number, partition=0, on_done=partial(note, number))
                assert len(order) == before
                if number % 50 == 0:
                    await asyncio.sleep(0)
        assert order == list(range(500))

    virtually(story, brokers=1)


def test_the_callbacks_of_a_batch_that_fails_first_wait_for_those_before_it() -> None:
    order: list[Any] = []

    def note(value: bytes, metadata: RecordMetadata, error: Exception | None) -> None:
        order.append((value, type(error)))

    async def story(cluster: Cluster) -> None:
        options = {"enable_idempotence": False, "linger_ms": 0, "batch_size": 0}
        async with producing(cluster, **options) as producer:
            await producer.send_and_wait("t", b"", partition=0)
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, times=1)
            cluster.intercept(
                ApiKey.PRODUCE,
                ErrorCode.INVALID_TIMESTAMP,
                where=lambda exchange: b"second" in bytes(exchange.request.topic_data[0].partition_data[0].records),
            )
            for value in (b"first", b"second", b"third"):
                producer.send_soon("t", value, partition=0, on_done=partial(note, value))
            await producer.flush()
        assert order == [(b"first", type(None)), (b"second", RecordRefused), (b"third", type(None))]

    virtually(story, brokers=1)


def test_a_callback_that_raises_is_logged_and_the_next_one_called(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.partitions_for("t")
            producer.send_soon("t", b"", partition=0, on_done=lambda metadata, error: 1 / 0)
            producer.send_soon("t", b"", partition=0, on_done=lambda metadata, error: done.append(1))
        assert done == [1]

    virtually(story, brokers=1)
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_may_send_and_may_not_stop() -> None:
    found: list[Any] = []

    async def story(cluster: Cluster) -> None:
        producer = producing(cluster)
        await producer.start()
        await producer.partitions_for("t")

        def on_done(metadata: RecordMetadata, error: Exception | None) -> None:
            found.append(producer.send_soon("t", b"from the callback", partition=0))
            stopping = producer.stop()
            with pytest.raises(UsageError, match="callback"):
                stopping.send(None)

        producer.send_soon("t", b"first", partition=0, on_done=on_done)
        await producer.flush()
        await asyncio.sleep(0.1)
        await producer.flush()
        assert found[0].result().offset == 1
        await producer.stop()

    virtually(story, brokers=1)


async def test_callbacks_that_take_long_have_all_run_when_stop_returns() -> None:
    """Also those whose turns, of a millisecond each, would come later."""
    seen: list[Exception | None] = []

    def slow(metadata: RecordMetadata, error: Exception | None) -> None:
        time.sleep(0.002)
        seen.append(error)

    async with Cluster(brokers=1, topics={"t": 1}) as cluster:
        producer = producing(cluster)
        await producer.start()
        await producer.partitions_for("t")
        for _ in range(50):
            producer.send_soon("t", b"", partition=0, on_done=slow)
        await producer.stop()
    assert seen == [None] * 50


def test_callbacks_have_all_run_when_stop_returns() -> None:
    seen: list[Any] = []

    async def story(cluster: Cluster) -> None:
        producer = producing(cluster)
        await producer.start()
        await producer.partitions_for("t")
        for _ in range(100):
            producer.send_soon("t", b"", partition=0, on_done=lambda metadata, error: seen.append(error))
        await producer.stop()
        assert seen == [None] * 100
        with pytest.raises(ProducerClosed):
            producer.send_soon("t", b"")

    virtually(story, brokers=1)


async def test_stop_ends_the_wait_for_a_serializer() -> None:
    is_asked = asyncio.Event()

    async def never(value: object) -> bytes:
        is_asked.set()
        await asyncio.Event().wait()
        return b""

    async with Cluster(topics={"t": 1}) as cluster:
        producer = producing(cluster, value_serializer=AsyncSerializer(never))
        await producer.start()
        sending = asyncio.ensure_future(producer.send("t", "v"))
        await is_asked.wait()
        await producer.stop()
        with pytest.raises(ProducerClosed):
            async with asyncio.timeout(20):  # less than any timeout of the producer
                await sending
