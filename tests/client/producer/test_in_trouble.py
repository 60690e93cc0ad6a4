"""A Producer whose brokers are in trouble: deadlines, order, throttling, leaders that move, topics that come again."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest

from aiokc import Delivery, Producer
from aiokc.client.aio.signal import Signal
from aiokc.client.producer.health import longest_trouble
from aiokc.client.producer.runtime import ProducerRuntime
from aiokc.errors import (
    AuthorizationFailed,
    BrokerError,
    BufferFull,
    DeliveryTimedOut,
    KafkaError,
    MetadataMissing,
    NoBrokersAvailable,
    ProduceError,
    ProducerClosed,
    RecordRefused,
    RequestTimedOut,
)
from aiokc.testing import ApiKey, Cluster, ErrorCode
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold, delay, disconnect, drop, lose_answer, throttle
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.produce import ProduceRequest
from tests.client.virtually import Asked, virtually

pytestmark = pytest.mark.timeout(30)


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(**{"bootstrap_servers": cluster.bootstrap, **options})


def values(cluster: Cluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.records("t", partition)]


def now() -> float:
    return asyncio.get_running_loop().time()


async def outcome(delivery: Delivery) -> object:
    try:
        return (await delivery).offset
    except ProduceError as error:
        return error.persisted


def test_no_broker_answers_and_each_call_keeps_its_own_deadline() -> None:
    """Start by its timeout, send by max_block, a delivery by delivery_timeout, stop by its own."""

    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, max_block_ms=2000, delivery_timeout_ms=8000, request_timeout_ms=1000)
        await producer.start()
        await producer.send_and_wait("t", b"0")
        for node in (1, 2, 3):
            cluster.take_down(node)
        began = now()
        sent = await producer.send("t", b"1")
        assert now() == began
        with pytest.raises(MetadataMissing):
            await producer.send("unknown", b"")
        assert 2 <= now() - began < 3.1
        with pytest.raises(DeliveryTimedOut, match="broker") as late:
            await sent
        assert 8 <= now() - began < 9.1
        assert late.value.persisted == "no"
        waits = await producer.send("t", b"2")
        began = now()
        await producer.stop(timeout_ms=500)
        assert now() - began < 1.6
        assert await outcome(waits) == "no"

    virtually(story)


def test_a_start_without_brokers_ends_in_time() -> None:
    async def story(cluster: Cluster) -> None:
        producer = producing(cluster)
        for node in (1, 2, 3):
            cluster.take_down(node)
        began = now()
        with pytest.raises(NoBrokersAvailable):
            await producer.start(timeout_ms=700)
        assert now() - began < 1
        with pytest.raises(ProducerClosed):
            await producer.send("t", b"")

    virtually(story)


def test_a_silent_broker_is_given_up_after_the_request_timeout() -> None:
    """The connection is closed, and the same bytes go over another one."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, request_timeout_ms=1000) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            began = now()
            cluster.intercept(ApiKey.PRODUCE, drop(), times=1)
            assert (await producer.send_and_wait("t", b"1", partition=0)).offset == 1
            assert 1 <= now() - began < 2
            assert values(cluster) == [b"0", b"1"]

    virtually(story)


@pytest.mark.parametrize("fault", [lose_answer, disconnect, drop], ids=lambda fault: str(fault.__name__))
@pytest.mark.parametrize("at", range(5))
def test_five_in_flight_and_a_connection_that_breaks_at_any_of_them(fault: Any, at: int) -> None:
    """Each record is stored once, in order, whatever the broker had handled."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=0, batch_size=0, request_timeout_ms=2000) as producer:
            await producer.send_and_wait("t", b"first", partition=0)
            seen = 0

            def is_it(exchange: Exchange) -> bool:
                nonlocal seen
                seen += 1
                return seen == at + 1

            cluster.intercept(ProduceRequest, fault(), where=is_it, times=1)
            sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(12)]
            await producer.flush()
            assert [await outcome(one) for one in sent] == list(range(1, 13))
            assert values(cluster) == [b"first", *(b"%d" % number for number in range(12))]

    virtually(story, brokers=1)


def test_a_throttled_producer_sends_nothing_meanwhile() -> None:
    """KIP-219."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            asked = Asked(cluster, asyncio.get_running_loop())  # type: ignore[arg-type]
            cluster.intercept(ApiKey.PRODUCE, throttle(3000), times=1)
            await producer.send_and_wait("t", b"1", partition=0)
            began = now()
            await producer.send_and_wait("t", b"2", partition=0)
            assert 2.9 <= now() - began < 3.5
            times = [when for when, _ in asked.of(ProduceRequest)]
            assert times[1] - times[0] >= 2.9

    virtually(story, brokers=1)


def test_the_new_leader_that_an_answer_names_is_used_at_once() -> None:
    """KIP-951: the metadata, which are held up, are not waited for."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            held = cluster.intercept(MetadataRequest, drop())
            cluster.move_leader("t")
            began = now()
            assert (await producer.send_and_wait("t", b"1", partition=0)).offset == 1
            assert now() - began < 1
            await held.caught(1)
            cluster.heal()

    virtually(story)


def test_a_leader_that_moves_with_five_in_flight_loses_and_doubles_nothing() -> None:

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=0, batch_size=0) as producer:
            sent = [await producer.send("t", b"first", partition=0)]
            await producer.flush()
            for number in range(40):
                sent.append(await producer.send("t", b"%d" % number, partition=0))
                if number in (7, 20, 30):
                    await asyncio.sleep(0.003)
                    cluster.move_leader("t")
            await producer.flush()
            assert [await outcome(one) for one in sent] == list(range(41))
            assert values(cluster) == [b"first", *(b"%d" % number for number in range(40))]

    virtually(story)


def test_a_topic_without_a_leader_is_waited_for() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            for node in (1, 2, 3):
                if node != cluster.leader("t", 0):
                    cluster.take_down(node)
            leader = cluster.leader("t", 0)
            assert leader is not None
            cluster.take_down(leader)
            sent = await producer.send("t", b"1", partition=0)
            await asyncio.sleep(5)
            assert not sent.done()
            cluster.heal()
            assert (await sent).offset == 1

    virtually(story)


def test_a_topic_that_cannot_be_or_may_not_be_seen_is_refused_at_once_and_harms_no_other() -> None:
    """No time would cure it. Once the topic may be seen, the next send is as any other."""

    async def forbid(exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        for topic in response.topics:
            if topic.name == "secret":
                topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
        return response

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            forbidden = cluster.intercept(MetadataRequest, forbid)
            began = now()
            with pytest.raises(BrokerError, match="topic 'a b': a topic's name has letters, digits, "):
                await producer.send("a b", b"")
            for _ in range(2):
                with pytest.raises(AuthorizationFailed, match="'secret'"):
                    await producer.send("secret", b"")
            with pytest.raises(AuthorizationFailed):
                await producer.partitions_for("secret")
            await producer.send_and_wait("t", b"1")
            assert now() - began < 2.0
            forbidden.cancel()
            await asyncio.sleep(5.0)
            assert (await producer.send_and_wait("secret", b"2")).offset == 0
            await producer.flush()

    virtually(story, brokers=1, topics={"t": 1, "secret": 1})


def test_records_of_a_topic_that_was_recreated_do_not_land_in_its_successor() -> None:

    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, linger_ms=5000, metadata_max_age_ms=1000, delivery_timeout_ms=60_000)
        await producer.start()
        waits = await producer.send("t", b"old", partition=0)
        cluster.recreate_topic("t")
        await asyncio.sleep(3)
        assert waits.done()
        with pytest.raises(RecordRefused) as refused:
            await waits
        assert (refused.value.code, refused.value.persisted) == (ErrorCode.UNKNOWN_TOPIC_ID, "no")
        new = await producer.send("t", b"new", partition=0)
        await producer.flush()
        assert (await new).offset == 0
        assert values(cluster) == [b"new"]
        await producer.stop()

    virtually(story)


@pytest.mark.parametrize("acks", [0, 1])
def test_other_acks(acks: Any) -> None:
    """With 0 no broker answers, so no offset is known."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, acks=acks, enable_idempotence=False) as producer:
            for number in range(20):
                found = await producer.send_and_wait("t", b"%d" % number, partition=0)
                assert found.offset == (number if acks else None)
        assert values(cluster) == [b"%d" % number for number in range(20)]

    virtually(story, brokers=1)


def of_topics(exchange: Exchange) -> bool:
    """Not only of the cluster, as a connection asks that is made anew."""
    return bool(exchange.request.topics)


@pytest.mark.parametrize("metadata_come", [True, False])
def test_with_acks_0_a_refusal_closes_the_connection_and_the_next_records_go_on(metadata_come: bool) -> None:
    """The next record waits for what metadata say of its leader, but no longer than retry_backoff_max_ms."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, acks=0, enable_idempotence=False) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            await asyncio.sleep(1)
            cluster.intercept(ApiKey.PRODUCE, disconnect(), times=1)
            await producer.send_and_wait("t", b"lost", partition=0)
            await asyncio.sleep(1)
            if not metadata_come:
                cluster.intercept(ApiKey.METADATA, drop(), where=of_topics)
            began = now()
            await producer.send_and_wait("t", b"2", partition=0)
            assert now() - began < (0.2 if metadata_come else 1.2)
            await asyncio.sleep(1)
        assert values(cluster) == [b"0", b"2"]

    virtually(story, brokers=1)


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_with_acks_0_a_leader_that_moves_is_found_though_the_one_before_stays_up(linger_ms: int) -> None:
    """It refuses the records by closing the connection, and takes the next one. What it was sent is lost, no more."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, acks=0, enable_idempotence=False, linger_ms=linger_ms) as producer:
            await producer.send_and_wait("t", b"before", partition=0)
            await asyncio.sleep(1)
            cluster.move_leader("t")
            metadata = cluster.intercept(ApiKey.METADATA, delay(0), where=of_topics)
            for number in range(50):
                await producer.send_and_wait("t", b"%d" % number, partition=0)
                await asyncio.sleep(0.1)
            assert values(cluster) == [b"before", *(b"%d" % number for number in range(1, 50))]
            assert metadata.hits == 1

    virtually(story, brokers=2)


def test_with_acks_0_a_broker_that_reads_no_more_is_connected_to_anew() -> None:
    """No request waits for an answer whose deadline would end the connection. What the socket still has is lost."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        async with producing(
            cluster, acks=0, enable_idempotence=False, request_timeout_ms=1_000, delivery_timeout_ms=10_000
        ) as producer:
            silent = cluster.intercept(ApiKey.PRODUCE, Hold(), times=1)
            began = loop.time()
            for number in range(80):
                await producer.send("t", b"%2d" % number + bytes(20_000), partition=0)
            await producer.flush()
            assert 1 < loop.time() - began < 2
            assert silent.hits == 1
        stored = [int((value or b"")[:2]) for value in values(cluster)]
        assert stored == list(range(80 - len(stored), 80))
        assert 30 < len(stored) < 80

    virtually(story, brokers=1)


def test_with_acks_0_stop_waits_until_the_fullest_socket_is_empty() -> None:
    """A broker is busy for 3 s: more was written to its connection than may be, and nothing more may be for now."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        async with producing(cluster, acks=0, enable_idempotence=False, linger_ms=0) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            connection = producer._runtime.sender._channels[1].connection
            assert connection is not None
            cluster.intercept(ApiKey.PRODUCE, delay(3), times=1)
            began, sent = loop.time(), 1
            while connection.can_write:
                await producer.send_and_wait("t", bytes(20_000), partition=0)
                sent += 1
            assert loop.time() - began < 1
            await producer.stop()
            assert 3 <= loop.time() - began < 4
        assert len(values(cluster)) == sent

    virtually(story, brokers=1)


def test_an_answer_that_comes_after_the_delivery_has_expired_changes_nothing() -> None:
    """The record is "maybe", and is stored; the next one is stored behind it."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, delivery_timeout_ms=3000, request_timeout_ms=2000, linger_ms=0) as producer:
            await producer.send_and_wait("t", b"0", partition=0)

            async def slow(exchange: Exchange) -> Any:
                response = await exchange.handle()
                await asyncio.sleep(1.9)
                return response

            fault = cluster.intercept(ApiKey.PRODUCE, drop(), times=1)
            late = await producer.send("t", b"1", partition=0)
            await fault.caught(1)
            cluster.intercept(ApiKey.PRODUCE, slow, times=1)
            assert await outcome(late) == "maybe"
            assert (await producer.send_and_wait("t", b"2", partition=0)).offset == 2
            assert values(cluster) == [b"0", b"1", b"2"]

    virtually(story, brokers=1)


def test_a_flush_that_takes_too_long_says_so_and_its_records_stay() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            cluster.intercept(ApiKey.PRODUCE, drop(), times=1)
            sent = await producer.send("t", b"1", partition=0)
            with pytest.raises(RequestTimedOut):
                await producer.flush(timeout_ms=100)
            assert (await sent).offset == 1

    virtually(story, brokers=1)


def test_a_flush_that_is_cancelled_leaves_the_records_and_another_flush_alone() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=1000) as producer:
            sent = await producer.send("t", b"1", partition=0)
            one, two = asyncio.ensure_future(producer.flush()), asyncio.ensure_future(producer.flush())
            await asyncio.sleep(0)
            one.cancel()
            await two
            assert one.cancelled()
            assert sent.done()

    virtually(story, brokers=1)


def test_a_send_that_is_cancelled_while_it_waits_for_metadata_has_appended_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            cluster.intercept(MetadataRequest, drop(), times=1)
            waits = asyncio.ensure_future(producer.send("t", b"1", partition=0))
            await asyncio.sleep(0.01)
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
            assert waits.cancelled()
            await asyncio.sleep(60)
            await producer.flush()
        assert values(cluster) == []

    virtually(story, brokers=1)


def test_a_send_and_wait_that_is_cancelled_is_sent_all_the_same() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=100) as producer:
            await producer.partitions_for("t")
            waits = asyncio.ensure_future(producer.send_and_wait("t", b"1", partition=0))
            await asyncio.sleep(0.01)
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
            await producer.flush()
        assert values(cluster) == [b"1"]

    virtually(story, brokers=1)


def test_no_cancelled_call_takes_records_of_others_with_it() -> None:
    """Of sixty concurrent calls the one that is cancelled, whichever it is, harms no other."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=10, batch_size=200) as producer:
            await producer.partitions_for("t")
            calls = [asyncio.ensure_future(producer.send_and_wait("t", b"%d" % n, partition=0)) for n in range(60)]
            await asyncio.sleep(0)
            for number in range(0, 60, 7):
                calls[number].cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await producer.flush()
        assert values(cluster) == [b"%d" % number for number in range(60)]

    virtually(story, brokers=1)


def test_room_that_a_cancelled_call_was_given_goes_to_the_next() -> None:
    """The call is cancelled in the very step in which it was given its room."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, buffer_memory=16_384, batch_size=0) as producer:
            await producer.partitions_for("t")
            hold = asyncio.Event()

            async def stalled(exchange: Exchange) -> None:
                await hold.wait()

            cluster.intercept(ApiKey.PRODUCE, stalled, times=1)
            first = await producer.send("t", bytes(14_000), partition=0)
            calls = [asyncio.ensure_future(producer.send("t", bytes(14_000), partition=0)) for _ in range(3)]
            await asyncio.sleep(0.1)
            producer._runtime.sender.progress.followed_by(_Cancels(calls[0], producer))
            hold.set()
            await first
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(one, asyncio.CancelledError) for one in found] == [True, False, False]
            await producer.flush()
            assert producer._runtime.accumulator.used == 0
        assert len(values(cluster)) == 3

    virtually(story, brokers=1)


class _Cancels(Signal):
    """Cancels a call once it has been granted memory, and has not resumed yet."""

    def __init__(self, call: asyncio.Future[Any], producer: Producer[Any, Any]) -> None:
        super().__init__()
        self._call, self._memory = call, producer._runtime.memory

    def notify(self) -> None:
        if self._memory._granted:
            self._call.cancel()


def test_stop_ends_calls_that_wait_for_memory_and_for_metadata() -> None:

    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, buffer_memory=16_384, batch_size=0)
        await producer.start()
        await producer.partitions_for("t")
        cluster.intercept(ApiKey.PRODUCE, drop())
        sent = await producer.send("t", bytes(14_000), partition=0)
        memory = asyncio.ensure_future(producer.send("t", bytes(14_000), partition=0))
        cluster.intercept(MetadataRequest, drop())
        metadata = asyncio.ensure_future(producer.send("unknown", b""))
        await asyncio.sleep(1)
        began = now()
        stopping = asyncio.ensure_future(producer.stop(timeout_ms=2000))
        await asyncio.sleep(0.1)
        for call in (memory, metadata):
            assert call.done()
            assert isinstance(call.exception(), ProducerClosed)
        await stopping
        assert now() - began < 3.5
        assert await outcome(sent) == "maybe"
        cluster.heal()

    virtually(story, brokers=1)


def test_a_second_stop_ends_the_wait_of_the_first() -> None:
    async def story(cluster: Cluster) -> None:
        producer = producing(cluster)
        await producer.start()
        await producer.partitions_for("t")
        cluster.intercept(ApiKey.PRODUCE, drop())
        sent = await producer.send("t", b"1", partition=0)
        first = asyncio.ensure_future(producer.stop(timeout_ms=20_000))
        await asyncio.sleep(1)
        began = now()
        await producer.stop()
        await first
        assert now() - began < 1.5
        assert await outcome(sent) == "maybe"
        cluster.heal()

    virtually(story, brokers=1)


def test_if_the_background_dies_every_call_gets_its_error() -> None:
    """What waits for memory, metadata or an acknowledgement, and what is called later."""

    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, buffer_memory=16_384, batch_size=0)
        await producer.start()
        await producer.partitions_for("t")
        cluster.intercept(ApiKey.PRODUCE, drop())
        sent = await producer.send("t", bytes(14_000), partition=0)
        memory = asyncio.ensure_future(producer.send("t", bytes(14_000), partition=0))
        flush = asyncio.ensure_future(producer.flush())
        cluster.intercept(MetadataRequest, drop())
        metadata = asyncio.ensure_future(producer.send("unknown", b""))
        await asyncio.sleep(0.1)

        def broken(*arguments: Any, **named: Any) -> Any:
            raise ZeroDivisionError("a bug of ours")

        producer._runtime.accumulator.ready = broken  # type: ignore[method-assign]
        producer._runtime.sender.wake.notify()
        await asyncio.sleep(0.1)
        for call in (memory, metadata, flush):
            assert call.done()
            assert isinstance(call.exception(), ZeroDivisionError)
        with pytest.raises(ZeroDivisionError):
            await sent
        with pytest.raises(ZeroDivisionError):
            await producer.send("t", b"")
        await producer.stop()
        cluster.heal()

    virtually(story, brokers=1)


def test_a_full_buffer_names_the_trouble() -> None:
    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, buffer_memory=16_384, batch_size=0, request_timeout_ms=1000)
        await producer.start()
        await producer.partitions_for("t")
        cluster.take_down(1)
        await producer.send("t", bytes(14_000), partition=0)
        with pytest.raises(BufferFull, match="broker 1"):
            await producer.send("t", bytes(14_000), partition=0, timeout_ms=3000)
        with pytest.raises(KafkaError):
            await producer.flush(timeout_ms=10)
        await producer.stop(timeout_ms=10)

    virtually(story, brokers=1)


def test_a_full_buffer_tells_why_the_oldest_records_are_refused() -> None:
    """All brokers answer: the pool and the metadata know of no trouble."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, buffer_memory=16_384, batch_size=0) as producer:
            await producer.partitions_for("t")
            refusing = cluster.intercept(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS)
            sent = await producer.send("t", bytes(14_000), partition=0)
            with pytest.raises(BufferFull, match="; t-0: NOT_ENOUGH_REPLICAS"):
                await producer.send("t", bytes(14_000), partition=0, timeout_ms=1000)
            refusing.cancel()
            await sent

    virtually(story, brokers=1)


def test_refusals_that_go_on_are_logged_and_then_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="aiokc.produce")

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            for seconds in (0.05, 20, 20):
                refusing = cluster.intercept(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS)
                sent = [await producer.send("t", b"", partition=number) for number in (0, 1)]
                await asyncio.sleep(seconds)
                refusing.cancel()
                for delivery in sent:
                    await delivery

    virtually(story, brokers=1, topics={"t": 2})
    told = [record for record in caplog.records if "records are refused by NOT_ENOUGH_REPLICAS" in record.getMessage()]
    assert [(record.levelname, "more since" in record.getMessage()) for record in told] == [
        ("INFO", False),
        ("WARNING", False),
        ("WARNING", True),
    ]


def test_a_refusal_that_takes_long_is_warned_of_and_told_while_its_batch_is_under_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With acks=all a broker waits for followers that are slow, and refuses only then."""

    async def slowly(exchange: Exchange) -> Any:
        await asyncio.sleep(20)
        return exchange.refusal(ErrorCode.REQUEST_TIMED_OUT)

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, buffer_memory=16_384, batch_size=0) as producer:
            await producer.partitions_for("t")
            refusing = cluster.intercept(ApiKey.PRODUCE, slowly)
            sent = await producer.send("t", bytes(14_000), partition=0)
            await asyncio.sleep(30)
            assert [one.error[:17] for one in producer.health().troubled.values()] == ["REQUEST_TIMED_OUT"]
            looks = 0
            trouble = longest_trouble

            def counted(*arguments: Any) -> str:
                nonlocal looks
                looks += 1
                return trouble(*arguments)

            with patch("aiokc.client.producer.appending.longest_trouble", counted):
                for _ in range(50):
                    with pytest.raises(BufferFull, match="; t-0: REQUEST_TIMED_OUT"):
                        producer.send_soon("t", bytes(14_000), partition=0)
            assert looks == 1, "thousands of calls may be refused while all partitions are looked at once"
            refusing.cancel()
            await sent

    virtually(story, brokers=1)
    told = [record.levelname for record in caplog.records if "refused by REQUEST_TIMED_OUT" in record.getMessage()]
    assert told[:1] == ["WARNING"]


def test_the_markers_of_the_transaction_before_are_no_refusal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="aiokc.produce")

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.CONCURRENT_TRANSACTIONS, times=2)
            await producer.send_and_wait("t", b"")

    virtually(story, brokers=1)
    assert [text for text in caplog.messages if "are refused" in text] == []


@pytest.mark.parametrize("step", [0, -3_600], ids=["stands still", "goes back"])
def test_a_wall_clock_that_is_wrong_changes_no_deadline(step: int) -> None:
    """Only the timestamps of records come from it."""
    told = count(1_700_000_000, step)

    def wall() -> float:
        return float(next(told))

    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, delivery_timeout_ms=5_000, request_timeout_ms=1_000)
        await producer.start()
        await producer.send_and_wait("t", b"0")
        cluster.intercept(ApiKey.PRODUCE, drop())
        began = now()
        with pytest.raises(DeliveryTimedOut):
            await producer.send_and_wait("t", b"1")
        assert 5.0 <= now() - began < 6.5
        sent = await producer.send("t", b"2")
        await producer.stop(timeout_ms=2_000)
        assert sent.done()
        assert now() - began < 9.0

    with patch("aiokc.client.producer.producer.ProducerRuntime", partial(ProducerRuntime, clock=wall)):
        virtually(story, brokers=1, topics={"t": 1})
