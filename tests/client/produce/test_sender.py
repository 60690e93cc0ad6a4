"""The sender: versions of old brokers, requests in flight, memory that is wanted, leaders without hints, refusals."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Any

import pytest

from aiokc import Producer, ProducerObserver, ProducerRecord
from aiokc.client.produce import answers
from aiokc.client.produce.sender import Sender
from aiokc.core.backoff import Backoff
from aiokc.core.produce.failure import Cause, Failure
from aiokc.core.stopwatch import RequestCounter
from aiokc.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BufferFull,
    DeliveryTimedOut,
    KafkaError,
    ProduceError,
    RecordRefused,
    UnsupportedVersion,
)
from aiokc.net.connection import Connection
from aiokc.records.encoding.batch_builder import ClosedBatch, OpenBatch
from aiokc.testing import ApiKey, Cluster, ErrorCode
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold, drop, lose_answer
from aiokc.testing.security.jwt import unsecured_token
from aiokc.types import TopicPartition
from aiokc.wire.lone_batch import LoneBatch
from aiokc.wire.messages.produce import ProduceRequest
from tests.client.virtually import Asked, virtually

pytestmark = pytest.mark.timeout(30)

UNACKNOWLEDGED: Any = {"acks": 0, "enable_idempotence": False}


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(**{"bootstrap_servers": cluster.bootstrap, **options})


def sender_of(producer: Producer[Any, Any]) -> Sender:
    return producer._runtime.sender


def now() -> float:
    return asyncio.get_running_loop().time()


def values(cluster: Cluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.records("t", partition)]


@pytest.mark.parametrize(
    ("release", "version"), [("2.1", 7), ("2.3", 7), ("2.4", 8), ("2.8", 9), ("3.6", 9), ("3.7", 10), ("4.3", 13)]
)
def test_each_release_is_spoken_to_in_its_version(release: str, version: int) -> None:
    """By topic id from 13 on, and by name where no id is known, which is so before 2.8."""
    seen: list[int] = []

    async def story(cluster: Cluster) -> None:
        async def look(exchange: Exchange) -> None:
            seen.append(exchange.version)
            topic = exchange.request.topic_data[0]
            assert bool(topic.name) == (exchange.version < 13)

        cluster.intercept(ApiKey.PRODUCE, look)
        async with producing(cluster, compression_type="zstd" if release == "2.1" else "none") as producer:
            assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0

    virtually(story, brokers=1, as_version=release)
    assert set(seen) == {version}


def test_a_topic_whose_id_is_not_known_is_sent_to_by_its_name() -> None:
    """The metadata may come from a broker that knows no ids, while a newer one leads."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"v", partition=0)
            sender = sender_of(producer)
            (channel,) = sender._channels.values()
            queue = sender.accumulator.queue(TopicPartition("t", 0))
            assert channel.connection is not None
            assert sender._version(channel, channel.connection, [queue]) == 13
            queue.topic_id = None
            assert sender._version(channel, channel.connection, [queue]) == 12

    virtually(story, brokers=1)


def test_one_batch_is_sent_in_the_version_that_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was sent alone before had a later version: beside it may have been a partition without a topic id."""
    seen: list[int] = []

    async def story(cluster: Cluster) -> None:
        async def refused(exchange: Exchange) -> ErrorCode | None:
            seen.append(exchange.version)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if len(seen) == 2 else None

        cluster.intercept(ApiKey.PRODUCE, refused)
        async with producing(cluster, linger_ms=5) as producer:
            await producer.send_and_wait("t", b"v", partition=0)
            monkeypatch.setattr(Sender, "_version", lambda *_: 12)
            assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 1

    virtually(story, brokers=1)
    assert seen == [13, 12, 12]


def test_pauses_begin_anew_once_it_goes_on() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, retry_backoff_ms=100) as producer:
            await producer.send_and_wait("t", b"v", partition=0)
            sender = sender_of(producer)
            (channel,) = sender._channels.values()
            for pauses in (channel.backoff, sender._search_pauses):
                for _ in range(8):
                    pauses.next()
                assert pauses.next() > 0.5
            channel.connection = None
            await producer.send_and_wait("t", b"v", partition=0)
            for pauses in (channel.backoff, sender._search_pauses):
                assert pauses.next() < 0.2

    virtually(story, brokers=1)


def test_a_codec_that_a_broker_does_not_know_fails_the_record_and_says_so() -> None:
    """KIP-110: zstd needs version 7."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, compression_type="zstd") as producer:
            cluster._state.versions[ApiKey.PRODUCE] = (3, 6)  # type: ignore[index]
            with pytest.raises(UnsupportedVersion, match="compression_type"):
                await producer.send_and_wait("t", b"v", partition=0)

    virtually(story, brokers=1)


def test_a_request_says_how_long_the_broker_may_wait_for_its_replicas() -> None:
    """With all requests, those of one batch too."""
    seen: list[tuple[int, int]] = []

    async def story(cluster: Cluster) -> None:
        async def look(exchange: Exchange) -> None:
            seen.append((exchange.request.acks, exchange.request.timeout_ms))

        cluster.intercept(ApiKey.PRODUCE, look)
        async with producing(cluster, request_timeout_ms=4_567) as producer:
            for _ in range(2):
                sent = [await producer.send("t", b"", partition=partition) for partition in (0, 1)]
                for delivery in sent:
                    await delivery
                await producer.send_and_wait("t", b"", partition=0)
        assert len(seen) >= 4
        assert set(seen) == {(-1, 4_567)}

    virtually(story, brokers=1)


def test_a_leader_that_moves_is_found_where_no_answer_names_it() -> None:
    """Before KIP-951 the metadata say it: they are asked for at once."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            cluster.move_leader("t")
            began = now()
            await producer.send_and_wait("t", b"1", partition=0)
            assert now() - began < 1

    virtually(story, as_version="3.5")


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_requests_are_in_flight_than_the_option_says(most: int) -> None:
    async def story(cluster: Cluster) -> None:
        options = {"max_in_flight_requests_per_connection": most, "batch_size": 0, "linger_ms": 0}
        async with producing(cluster, **options) as producer:
            for partition in range(8):
                await producer.send_and_wait("t", b"", partition=partition)
            hold = asyncio.Event()

            async def stalled(exchange: Exchange) -> None:
                await hold.wait()

            cluster.intercept(ApiKey.PRODUCE, stalled)
            for number in range(20):
                for partition in range(8):
                    await producer.send("t", b"%d" % number, partition=partition)
                await asyncio.sleep(0.01)
            (channel,) = sender_of(producer)._channels.values()
            assert len(channel.in_flight) == most
            sizes = [len(one.asked.batches) for one in channel.in_flight]
            assert sizes == [1, 7, 8][:most], "the first record has met a producer at rest, and went by itself"
            hold.set()
        assert values(cluster, 7) == [b"", *(b"%d" % number for number in range(20))]

    virtually(story, brokers=1, topics={"t": 8})


def test_one_request_has_the_batches_of_all_partitions_of_its_broker() -> None:

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=10) as producer:
            await producer.partitions_for("t")
            asked = Asked(cluster, asyncio.get_running_loop())  # type: ignore[arg-type]
            for partition in range(12):
                await producer.send("t", b"", partition=partition)
            await producer.flush()
            sizes = [sum(len(topic.partition_data) for topic in one.topic_data) for _, one in asked.of(ProduceRequest)]
            assert sizes == [4, 4, 4]

    virtually(story, topics={"t": 12})


def test_memory_that_is_wanted_ends_linger() -> None:
    """For a call that waits, and for send_soon(), which does not."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=60_000, buffer_memory=16_384, delivery_timeout_ms=120_000) as producer:
            await producer.partitions_for("t")
            began = now()
            for _ in range(3):
                await producer.send("t", bytes(9000), partition=0)
            with pytest.raises(BufferFull):
                producer.send_soon("t", bytes(9000), partition=0)
            await asyncio.sleep(1)
            producer.send_soon("t", bytes(9000), partition=0)
            assert now() - began < 2

    virtually(story, brokers=1)


def test_if_the_producer_is_refused_what_waits_fails_too() -> None:
    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, linger_ms=60_000, delivery_timeout_ms=120_000)
        await producer.start()
        await producer.partitions_for("t")
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        waits = await producer.send("t", b"waits", partition=1)
        refused = await producer.send("t", b"refused", partition=0)
        producer._runtime.accumulator.queue(("t", 0)).waiting[0].urgent = True  # type: ignore[arg-type]
        sender_of(producer).wake.notify()
        for one in (refused, waits):
            with pytest.raises(RecordRefused) as failed:
                await one
            assert failed.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(AuthorizationFailed):
            await producer.send("t", b"")
        await producer.stop()

    virtually(story, brokers=1)


def test_an_await_that_is_cancelled_just_before_the_outcome_keeps_it_from_nobody() -> None:
    """Its future is cancelled by then, and its task has not heard of that yet."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.partitions_for("t")
            cluster.intercept(ApiKey.PRODUCE, drop())
            delivery = await producer.send("t", b"v", partition=0)

            async def told() -> None:
                await delivery

            cancelled, waits = asyncio.create_task(told()), asyncio.create_task(told())
            await asyncio.sleep(1.0)
            cancelled.cancel()
            sender_of(producer).end(Failure(Cause.CLOSED))
            with pytest.raises(ProduceError, match="stopped"):
                await waits
            assert (await asyncio.wait([cancelled]))[0] == {cancelled}
            assert cancelled.cancelled()

    virtually(story, brokers=1)


def test_an_idle_sender_sleeps() -> None:
    """It is not woken by each record, nor by time, but where something is to be done."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=1000, metadata_max_age_ms=3_600_000) as producer:
            await producer.send_and_wait("t", b"", partition=0)
            await asyncio.sleep(1)
            looks = _Looks(producer)
            await asyncio.sleep(100)
            assert looks.count == 0
            for _ in range(100):
                await producer.send("t", b"", partition=0)
            await asyncio.sleep(0.5)
            assert looks.count <= 2
            await producer.flush()
            looks.count = 0
            cluster.intercept(ApiKey.PRODUCE, drop(), times=1)
            await producer.send("t", b"", partition=0)
            await asyncio.sleep(20)
            assert looks.count <= 4, "it waits for the answer"

    virtually(story, brokers=1)


class _Looks:
    """Counts how often the sender looks at its batches."""

    def __init__(self, producer: Producer[Any, Any]) -> None:
        self.count = 0
        accumulator = producer._runtime.accumulator
        ready = accumulator.ready

        def counted(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            return ready(*arguments, **named)

        accumulator.ready = counted  # type: ignore[method-assign]


def test_a_broker_that_takes_nothing_is_known_as_slow() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, max_in_flight_requests_per_connection=1, linger_ms=0) as producer:
            await producer.send_and_wait("t", b"", partition=0)
            assert sender_of(producer).slow_nodes(0.5) == set()
            cluster.intercept(ApiKey.PRODUCE, drop(), times=1)
            await producer.send("t", b"", partition=0)
            await asyncio.sleep(1)
            assert sender_of(producer).slow_nodes(0.5) == {1}
            assert sender_of(producer).slow_nodes(2.0) == set()
            waits = await producer.send("t", b"", partition=1)
            await asyncio.sleep(1)
            assert sender_of(producer).slow_nodes(0.5) == {1}
            await waits
            assert sender_of(producer).slow_nodes(0.5) == set()

    virtually(story, brokers=1)


def test_what_is_in_flight_is_waited_for_and_not_for_ever() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"", partition=0)
            sender = sender_of(producer)
            assert await sender.answered()
            cluster.intercept(ApiKey.PRODUCE, drop(), times=1)
            sent = await producer.send("t", b"", partition=0)
            await asyncio.sleep(1)
            began = now()
            assert not await sender.answered(2.0)
            assert now() - began == pytest.approx(2.0)
            assert sender.accumulator.queues.unanswered == 1
            assert await sender.answered()
            await sent

    virtually(story, brokers=1)


def test_an_idle_topic_is_forgotten_and_its_sequences_are_not() -> None:
    """KIP-526: the metadata no longer ask for it; a later record has the next sequence."""

    async def story(cluster: Cluster) -> None:
        options = {"metadata_max_idle_ms": 5000, "metadata_max_age_ms": 2000}
        async with producing(cluster, **options) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            metadata = producer._runtime.cluster_client.metadata
            assert metadata.followed == frozenset({"t"})
            await asyncio.sleep(4)
            await producer.send_and_wait("t", b"1", partition=0)
            await asyncio.sleep(4)
            assert metadata.followed == frozenset({"t"})
            await asyncio.sleep(4)
            assert metadata.followed == frozenset()
            assert (await producer.send_and_wait("t", b"2", partition=0)).offset == 2
            assert producer.metrics().retries == 0

    virtually(story, brokers=1)


def test_a_topic_that_a_call_waits_for_is_not_idle() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, metadata_max_idle_ms=10_000) as producer:
            waits = asyncio.create_task(producer.send_and_wait("new", b"1"))
            await asyncio.sleep(30)
            cluster.create_topic("new", 1)
            began = now()
            assert (await waits).offset == 0
            assert now() - began < 5

    virtually(story, brokers=1, auto_create_topics_enable=False)


def test_a_broker_that_offers_no_version_for_the_producer_id_ends_it_at_once() -> None:
    async def without_it(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        answer.api_keys = [one for one in answer.api_keys if one.api_key != ApiKey.INIT_PRODUCER_ID]
        return answer

    async def story(cluster: Cluster) -> None:
        cluster.intercept(ApiKey.API_VERSIONS, without_it)
        async with producing(cluster) as producer:
            await asyncio.sleep(1)
            with pytest.raises(UnsupportedVersion, match=r"InitProducerId.*enable_idempotence=False"):
                await producer.send("t", b"")
        async with producing(cluster, enable_idempotence=False) as producer:
            assert (await producer.send_and_wait("t", b"")).offset == 0

    virtually(story, brokers=1)


def test_a_login_that_is_refused_while_the_producer_id_is_asked_for_may_pass_later() -> None:
    """A directory that is away for a while: calls hear of it, what waits goes on, and what waits too long says why."""

    async def story(cluster: Cluster) -> None:
        cluster.intercept(ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "alice", "sasl_plain_password": "secret"}
        waits = {"linger_ms": 0, "delivery_timeout_ms": 60_000, "request_timeout_ms": 10_000}
        async with producing(cluster, security_protocol="SASL_PLAINTEXT", **login, **waits) as producer:
            await producer.partitions_for("t")
            refused = cluster.refuse_login()
            cluster.disconnect(1)
            await asyncio.sleep(1)
            with pytest.raises(AuthenticationFailed):
                await producer.send("t", b"", partition=0)
            early = await producer.send("t", b"early", partition=0)
            with pytest.raises(DeliveryTimedOut, match=r"no producer id yet: .* refused user 'alice'"):
                await early
            with pytest.raises(AuthenticationFailed):
                await producer.send("t", b"", partition=0)
            late = await producer.send("t", b"late", partition=0)
            cluster.heal()
            began = now()
            assert (await late).offset == 0
            assert now() - began < 35  # the longest pause between two logins
        assert 5 < refused.hits < 10

    virtually(story, brokers=1, sasl={"alice": "secret"})


def test_what_may_be_stored_twice_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """An attempt ended without an answer, and then the broker has forgotten the producer."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            cluster.intercept(ApiKey.PRODUCE, lose_answer(), times=1)
            sent = await producer.send("t", b"1", partition=0)
            await asyncio.sleep(0.01)
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, times=1)
            assert (await sent).offset == 2
            assert values(cluster) == [b"0", b"1", b"1"]
            assert producer.metrics().renumbered == producer.metrics().epoch_bumps == 1

    virtually(story, brokers=1)
    assert "t-0: records are sent again in another epoch" in caplog.text


def test_what_may_be_stored_is_not_sent_again_where_that_is_not_wanted() -> None:
    """The same story, with enable_renumbering=False."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, enable_renumbering=False) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            cluster.intercept(ApiKey.PRODUCE, lose_answer(), times=1)
            sent = await producer.send("t", b"1", partition=0)
            await asyncio.sleep(0.01)
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, times=1)
            with pytest.raises(ProduceError, match="enable_renumbering=False") as failed:
                await sent
            assert failed.value.persisted == "maybe"
            await producer.send_and_wait("t", b"2", partition=0)
            assert values(cluster) == [b"0", b"1", b"2"]
            assert (producer.metrics().renumbered, producer.metrics().epoch_bumps) == (0, 1)

    virtually(story, brokers=1)


def test_records_go_on_while_sasl_sessions_are_renewed() -> None:
    """KIP-368: the connection authenticates again between two requests; none is lost, and none is stored twice."""

    async def story(cluster: Cluster) -> None:
        options = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "allow_plaintext_credentials": True,
        }
        login = {"sasl_plain_username": "alice", "sasl_plain_password": "secret"}
        async with producing(cluster, **options, **login, linger_ms=0) as producer:
            sent = []
            for number in range(300):
                sent.append(await producer.send("t", b"%d" % number, partition=0))
                await asyncio.sleep(0.05)
            await producer.flush()
            assert [(await one).offset for one in sent] == list(range(300))
            assert producer.metrics().failed_requests <= producer.metrics().nodes[1].connects
        assert values(cluster) == [b"%d" % number for number in range(300)]

    virtually(story, brokers=1, sasl={"alice": "secret"}, session_ms=2000)


def test_the_end_of_a_token_costs_no_time_where_the_broker_names_no_end_of_the_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As with a broker before 2.2: another connection takes the place of the one whose token is about to end."""

    class Tokens:
        async def token(self) -> str:
            return unsecured_token("alice", 20.0)

    async def names_no_end(exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        response.session_lifetime_ms = 0
        return response

    async def story(cluster: Cluster) -> None:
        options = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Tokens(),
            "allow_plaintext_credentials": True,
        }
        cluster.intercept(ApiKey.SASL_AUTHENTICATE, names_no_end)
        async with producing(cluster, **options, linger_ms=0) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            before = producer.metrics().nodes[1].connects
            asked = Asked(cluster, asyncio.get_running_loop())  # type: ignore[arg-type]
            caplog.clear()
            longest = 0.0
            for number in range(1, 120):
                begun = now()
                await producer.send_and_wait("t", b"%d" % number, partition=0)
                longest = max(longest, now() - begun)
                await asyncio.sleep(0.5)
            assert longest < 0.05, "retry_backoff_ms is 100"
            assert producer.metrics().nodes[1].connects >= before + 3
            assert asked.since(0.0)["MetadataRequest"] == 0, "the leader is the same"
        assert values(cluster) == [b"%d" % number for number in range(120)]
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []

    virtually(story, brokers=1, mechanisms=("OAUTHBEARER",))


def test_nothing_is_sent_over_a_new_connection_before_all_is_answered_over_the_former_one() -> None:
    """A broker reads two connections in any order: of a partition, what was sent last might be stored first."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, enable_idempotence=False, linger_ms=0) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            hold = Hold()
            cluster.intercept(ApiKey.PRODUCE, hold, times=1)
            await producer.send("t", b"1", partition=0)
            await hold.arrived()
            former = sender_of(producer)._channels[1].connection
            assert former is not None
            former.retire()
            await producer.send("t", b"2", partition=0)
            await asyncio.sleep(1)
            assert values(cluster) == [b"0"]
            hold.release()
            await producer.flush()
            assert sender_of(producer)._channels[1].connection is not former
        assert values(cluster) == [b"0", b"1", b"2"]

    virtually(story, brokers=1)


class Reading:
    """Whether a callback is reading an answer from the socket at this moment."""

    now = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        receive = Connection._receive

        def watched(connection: Connection, frame: memoryview) -> None:
            self.now = True
            receive(connection, frame)
            self.now = False

        monkeypatch.setattr(Connection, "_receive", watched)


@pytest.mark.usefixtures("endless_slices")
async def test_who_waits_for_a_record_goes_on_in_the_callback_that_reads_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One iteration of the loop later, it would wait behind all that others have to do."""
    reading, seen = Reading(monkeypatch), list[bool]()
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        for number in range(3):
            await producer.send_and_wait("t", b"%d" % number)
            seen.append(reading.now)
        producer.send_soon("t", b"3", on_done=lambda *_: seen.append(reading.now))
        await producer.flush()
    assert seen == [True] * 4


async def test_a_record_that_meets_a_producer_at_rest_is_written_in_the_same_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without linger. The next ones go together, behind it; and callbacks are never called within a send."""
    written: list[int] = []
    write, write_lone = Connection.write, Connection.write_lone

    def watched(connection: Connection, request: Any, *rest: Any) -> Any:
        written.append(sum(len(topic.partition_data) for topic in request.topic_data))
        return write(connection, request, *rest)

    def watched_lone(connection: Connection, *rest: Any) -> Any:
        written.append(1)
        return write_lone(connection, *rest)

    async with Cluster(topics={"t": 3}) as cluster, producing(cluster, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"", partition=0)
        monkeypatch.setattr(Connection, "write", watched)
        monkeypatch.setattr(Connection, "write_lone", watched_lone)
        done: list[int] = []
        producer.send_soon("t", b"", partition=0, on_done=lambda *_: done.append(0))
        assert (written, done) == ([1], [])
        producer.send_soon("t", b"", partition=1, on_done=lambda *_: done.append(1))
        producer.send_soon("t", b"", partition=2, on_done=lambda *_: done.append(2))
        assert written == [1]
        await asyncio.sleep(0)
        assert written == [1, 2]
        await producer.flush()
        assert sorted(done) == [0, 1, 2]


async def test_after_new_metadata_a_record_at_rest_waits_for_the_sender_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may name another leader. The records behind it are written within their sends again."""
    written: list[bool] = []
    write_lone = Connection.write_lone

    def watched(*arguments: Any) -> None:
        written.append(True)
        write_lone(*arguments)

    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"")
        monkeypatch.setattr(Connection, "write_lone", watched)
        at_once = []
        for _ in range(2):
            metadata = producer._runtime.cluster_client.metadata
            metadata.request_update()
            await metadata.changed.wait(10)
            for _ in range(3):
                written.clear()
                delivery = await producer.send("t", b"")
                at_once.append(bool(written))
                await delivery
        await producer.send_many("t", [b""])
        assert len(written) == 2
        assert at_once == [False, True, True] * 2


async def test_without_acknowledgements_a_callback_is_called_after_the_send() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, linger_ms=0, **UNACKNOWLEDGED) as producer:
        await producer.partitions_for("t")
        done: list[object] = []
        for _ in range(3):
            producer.send_soon("t", b"", on_done=lambda *told: done.append(told))
            assert done == []
        await producer.flush()
        await asyncio.sleep(0)
        assert len(done) == 3


async def test_a_record_that_fails_within_its_send_has_its_callback_called_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_memory(_: OpenBatch) -> ClosedBatch:
        raise MemoryError

    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"")
        monkeypatch.setattr(OpenBatch, "close", no_memory)
        told = asyncio.get_running_loop().create_future()
        delivery = producer.send_soon("t", b"", on_done=lambda _, error: told.set_result(error))
        assert (delivery.done(), told.done()) == (True, False)
        assert type((await told).__cause__) is MemoryError
        monkeypatch.undo()
        assert (await producer.send_and_wait("t", b"")).offset == 1


async def test_a_batch_that_there_is_no_memory_to_split_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> bytes:
        raise MemoryError

    async with Cluster(topics={"t": 2}) as cluster, producing(cluster, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"", partition=0)
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE, times=1)
        monkeypatch.setattr("aiokc.records.encoding.batch_builder.decompress", no_memory)
        records = [ProducerRecord("t", b"%d" % number, partition=0) for number in range(10)]
        with pytest.raises(ProduceError, match="it could not be split: MemoryError") as failed:
            await (await producer.send_many("t", records))
        assert failed.value.persisted == "no"
        monkeypatch.undo()
        assert (await producer.send_and_wait("t", b"", partition=0)).offset == 1
        assert (await producer.send_and_wait("t", b"", partition=1)).offset == 0


async def test_a_mistake_in_taking_in_an_answer_ends_the_producer_and_leaves_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(*_: object) -> None:
        raise ZeroDivisionError

    async with Cluster(topics={"t": 1}) as cluster:
        producer = producing(cluster, linger_ms=0)
        await producer.start()
        await producer.send_and_wait("t", b"")
        monkeypatch.setattr(answers, "settle_stored", mistaken)
        with pytest.raises((ZeroDivisionError, KafkaError)):
            await producer.send_and_wait("t", b"")
        with pytest.raises(ZeroDivisionError):
            await producer.send("t", b"")
        await producer.stop()


async def test_an_answer_that_takes_time_is_awaited_and_those_after_it_wait_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long one, for instance."""
    monkeypatch.setattr(LoneBatch, "stored_at", lambda *_: None)
    monkeypatch.setattr(Connection, "answer_at_once", lambda *_: None)
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, linger_ms=0) as producer:
        deliveries = []
        for number in range(30):
            deliveries.append(await producer.send("t", b"%d" % number))
            await asyncio.sleep(0)
        assert [(await delivery).offset for delivery in deliveries] == list(range(30))


def test_a_record_that_meets_a_producer_at_rest_waits_as_long_as_the_broker_throttles_it() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=0) as producer:
            for _ in range(2):
                await producer.send_and_wait("t", b"v", partition=0)
            (channel,) = sender_of(producer)._channels.values()
            assert channel.connection is not None
            began = now()
            channel.connection.muted_until = began + 5.0
            await producer.send_and_wait("t", b"v", partition=0)
            assert 5.0 <= now() - began < 6.0

    virtually(story, brokers=1)


def test_a_record_is_sent_at_once_however_long_the_producer_was_at_rest() -> None:
    """What is sent within the call must not leave behind a time to look again at, which nothing wakes for."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=0, metadata_max_age_ms=3_600_000) as producer:
            for pause in (0.0, 0.0, 1.0, 200.0, 200.0):
                await asyncio.sleep(pause)
                began = now()
                await producer.send_and_wait("t", b"v", partition=0)
                assert now() - began < 1.0
        assert len(values(cluster)) == 5

    virtually(story, brokers=1)


@pytest.mark.parametrize("acks", [0, 1])
def test_what_an_observer_sends_is_not_left_lying(acks: int) -> None:
    """With acks=0 it is told of a batch within the step that has written it, after the look at what is ready."""

    async def story(cluster: Cluster) -> None:
        audits: list[Any] = []

        class Audit(ProducerObserver):
            def batch(self, partition: TopicPartition, *_: Any) -> None:
                if partition.topic == "t":
                    audits.append(producer.send_soon("audit", b"stored", partition=0))

        producer = producing(cluster, acks=acks, enable_idempotence=False, observer=Audit())
        async with producer:
            await producer.send_and_wait("audit", b"first", partition=0)
            for _ in range(3):
                await producer.send_and_wait("t", b"x", partition=0)
                await asyncio.sleep(1)
                assert audits.pop().done()

    virtually(story, brokers=1, topics={"t": 1, "audit": 1})


@pytest.mark.parametrize("options", [{}, UNACKNOWLEDGED], ids=["acks", "no acks"])
def test_brokers_that_are_gone_leave_nothing_behind(options: Any) -> None:
    """Machines are replaced for months, each by one with a new id. Closed connections have large buffers."""
    brokers = 10

    async def replaced(exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        for broker in response.brokers:
            broker.node_id += brokers
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_id += brokers
        return response

    async def story(cluster: Cluster) -> None:
        nonlocal brokers
        cluster.intercept(ApiKey.METADATA, replaced)
        async with producing(cluster, metadata_max_age_ms=1_000, **options) as producer:
            channels = sender_of(producer)._channels
            for _ in range(10):
                for partition in range(2):
                    await producer.send_and_wait("t", b"v", partition=partition)
                assert 1 <= len(channels) <= 2
                assert all(node_id > brokers for node_id in channels)
                brokers += 10
                await asyncio.sleep(3)
            assert not channels, "also where nothing is sent any more"

    virtually(story, brokers=3)


@pytest.mark.parametrize(("state", "under_way"), [("preparing", True), ("reading", True), ("in_flight", ["a request"])])
def test_what_is_under_way_to_a_broker_that_is_gone_is_not_forgotten(state: str, under_way: object) -> None:
    """Its id may come back: a second channel would connect beside the first, and send before what is in flight."""
    channels = answers.Channels(lambda: Backoff(0.1, 1.0, Random(1)), RequestCounter())
    channel = channels[1]
    idle = getattr(channel, state)
    setattr(channel, state, under_way)
    assert channels.leave({2}) == []
    assert channels[1] is channel
    setattr(channel, state, idle)
    assert channels.leave({2}) == [1]
    assert not channels
