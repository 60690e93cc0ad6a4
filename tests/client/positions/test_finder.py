"""Finding positions where some partitions or brokers give no answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from copy import copy
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from aiokc import EARLIEST, LATEST, Client, Consumer, GroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from aiokc.client.cluster import list_offsets
from aiokc.client.consumer.waiting_for_positions import wait_positions
from aiokc.core.cluster.by_leader import group_by_leader
from aiokc.core.subscription.state import Subscription
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthorizationFailed,
    BrokerError,
    MalformedResponse,
    NoOffsetForPartition,
    RequestTimedOut,
    UsageError,
)
from aiokc.testing import Acl, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import delay, drop
from aiokc.wire import Request
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest

from ..virtually import virtually

pytestmark = pytest.mark.timeout(30)

ZERO, ONE, MISSING = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("no-such-topic", 0)


def reading(cluster: Cluster, *partitions: TopicPartition, **options: Any) -> Consumer:
    consumer = Consumer(
        **{
            "bootstrap_servers": cluster.bootstrap,
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": False,
            **options,
        }
    )
    consumer.assign(partitions)
    return consumer


async def test_a_partition_without_leader_keeps_no_other_from_its_position() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with reading(cluster, MISSING, ZERO) as consumer, asyncio.timeout(10):
            assert (await consumer.getone()).value == b"0"
            with pytest.raises(RequestTimedOut, match="no-such-topic-0"):
                await consumer.position(MISSING, timeout_ms=100)


async def test_many_partitions_are_looked_up_in_portions() -> None:
    """Neither writing a request nor reading its response holds the loop for long."""
    partitions = [TopicPartition("t", number) for number in range(1_201)]
    async with Cluster(topics={"t": len(partitions)}) as cluster:
        cluster.append("t", b"0", partition=1_200)
        sent: list[ListOffsetsRequest] = []
        cluster.intercept(ListOffsetsRequest, lambda exchange: sent.append(exchange.request))
        async with reading(cluster, *partitions) as consumer, asyncio.timeout(20):
            assert (await consumer.getone()).value == b"0"
            for tp in partitions:  # the record may have come before the other portion was asked for
                assert await consumer.position(tp) == (1 if tp.partition == 1_200 else 0)
            await consumer.seek_to_beginning()
            assert await consumer.end_offsets(partitions) == dict.fromkeys(partitions, 0) | {partitions[-1]: 1}
        asked = [len(request.topics[0].partitions) for request in sent]
        assert max(asked) == 1_000
        assert sum(asked) == 3 * len(partitions)


def test_no_partition_is_looked_at_before_any_topic_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata of a topic of thousands of partitions take a while, and until then there is no one to ask."""
    left_alone: list[float] = []
    retry_later = Subscription.retry_later

    def counted(self: Subscription, partitions: Iterable[TopicPartition], at: float) -> None:
        partitions = list(partitions)
        left_alone.extend([asyncio.get_running_loop().time()] * len(partitions))
        retry_later(self, partitions, at)

    async def story(cluster: Cluster) -> None:
        monkeypatch.setattr(Subscription, "retry_later", counted)
        cluster.append("t", b"0")
        cluster.intercept(MetadataRequest, delay(0.7), where=lambda exchange: bool(exchange.request.topics))
        asked: list[float] = []
        cluster.intercept(MetadataRequest, lambda exchange: asked.append(asyncio.get_running_loop().time()))
        async with reading(cluster) as consumer:
            began = asyncio.get_running_loop().time()
            consumer.assign([ZERO, ONE])
            assert (await consumer.getone()).value == b"0"
            assert len(left_alone) == 2, "each until the answer with its offset"
            assert min(left_alone) >= began + 0.7
            assert len(asked) <= 3

    virtually(story, brokers=1, topics={"t": 2})


async def test_many_positions_are_set_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting a thousand positions in one step would hold the loop for milliseconds, as would a step of each answer."""
    partitions = [TopicPartition("t", number) for number in range(1_800)]
    set_in, read_in = [0], [0]
    seek, read_offsets = Subscription.seek, list_offsets.read_offsets

    def count(steps: list[int]) -> None:
        if steps[-1] == 0:
            asyncio.get_running_loop().call_soon(steps.append, 0)
        steps[-1] += 1

    def seeking(*args: Any, **options: Any) -> None:
        count(set_in)
        seek(*args, **options)

    def reading_offsets(response: ListOffsetsResponse) -> Iterator[Any]:
        for answer in read_offsets(response):
            count(read_in)
            yield answer

    async def together(_: Exchange) -> None:
        await everybody.wait()

    everybody = asyncio.Barrier(3)  # three leaders, each of which is asked twice
    monkeypatch.setattr(Subscription, "seek", seeking)
    monkeypatch.setattr(list_offsets, "read_offsets", reading_offsets)
    async with Cluster(brokers=3, topics={"t": len(partitions)}) as cluster:
        cluster.append("t", b"0", partition=1_799)
        cluster.intercept(ListOffsetsRequest, together)
        async with reading(cluster, *partitions) as consumer, asyncio.timeout(20):
            assert (await consumer.getone()).value == b"0"
            await wait_positions(consumer._runtime, partitions, timeout=20)
    assert max(set_in) <= 250
    assert max(read_in) <= 100
    assert sum(set_in) == sum(read_in) == len(partitions)


async def test_a_silent_broker_keeps_no_other_from_its_answer() -> None:
    async with Cluster(brokers=2, topics={"t": 2}) as cluster:
        silent = cluster.leader("t", 0)
        assert silent != cluster.leader("t", 1)
        cluster.append("t", b"0")
        cluster.append("t", b"1", partition=1)
        dropped = cluster.intercept(ListOffsetsRequest, drop(), where=lambda exchange: exchange.broker == silent)
        async with reading(cluster, ZERO, ONE) as consumer, asyncio.timeout(10):
            assert (await consumer.getone()).value == b"1"
            await consumer.seek_to_beginning(ONE)
            assert (await consumer.getone()).value == b"1"
            assert dropped.hits == 1, "the silent one is asked once at a time"


@pytest.mark.parametrize("silent_to", [ListOffsetsRequest, OffsetForLeaderEpochRequest])
def test_a_silent_leader_is_not_waited_for_once_the_metadata_name_another(silent_to: type[Request[Any]]) -> None:
    """It loses its partitions within seconds, and says nothing for request_timeout_ms (30 s)."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        silent = cluster.leader("t")
        dropped = cluster.intercept(silent_to, drop(), where=lambda exchange: exchange.broker == silent)
        consumer = reading(cluster, ZERO, ONE)
        async with consumer, asyncio.timeout(10):
            if silent_to is OffsetForLeaderEpochRequest:
                consumer.seek(ZERO, OffsetAndMetadata(0, leader_epoch=0))
            record = asyncio.create_task(consumer.getone())
            await dropped.caught(1)
            await consumer.position(ONE)  # so that another broker is asked for the metadata
            cluster.move_leader("t")
            consumer._runtime.cluster_client.metadata.request_update()
            assert (await record).value == b"0"
            assert dropped.hits == 1

    virtually(story, topics={"t": 2})


@pytest.mark.parametrize("kind", [ListOffsetsRequest, OffsetForLeaderEpochRequest])
def test_pauses_grow_although_some_refusals_come_after_a_seek(kind: type[Request[Any]]) -> None:
    """A refusal that is stale for its own partition is no success of the broker, which others wait for."""

    async def story(cluster: Cluster) -> None:
        asked_at: list[float] = []
        time = asyncio.get_running_loop().time
        consumer = reading(cluster, ZERO, ONE, retry_backoff_ms=100, retry_backoff_max_ms=1_000)

        def refuse(exchange: Exchange) -> ErrorCode:
            request: Any = exchange.request
            name = "partition_index" if kind is ListOffsetsRequest else "partition"
            numbers = [getattr(part, name) for topic in request.topics for part in topic.partitions]
            if 0 in numbers:
                asked_at.append(time())
            if 1 in numbers:
                consumer.seek(ONE, 0)
            return ErrorCode.OFFSET_NOT_AVAILABLE

        cluster.intercept(kind, refuse, times=None)
        validated = OffsetAndMetadata(0, leader_epoch=0)
        async with consumer:
            if kind is OffsetForLeaderEpochRequest:
                consumer.seek(ZERO, validated)
            for _ in range(30):
                await asyncio.sleep(0.3)
                if kind is OffsetForLeaderEpochRequest:
                    consumer.seek(ONE, validated)
                else:
                    consumer._runtime.subscribing.reset([ONE], EARLIEST)
        pauses = [after - before for before, after in pairwise(asked_at)]
        assert min(pauses[4:]) >= 0.8, pauses

    virtually(story, brokers=1)


def test_a_call_for_offsets_does_not_wait_for_a_silent_leader_once_the_metadata_name_another() -> None:
    """A timeout_ms that is shorter than request_timeout_ms (30 s) would be over before that broker counts as silent."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        silent = cluster.leader("t")
        dropped = cluster.intercept(ListOffsetsRequest, drop(), where=lambda exchange: exchange.broker == silent)
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(10):
            ends = asyncio.create_task(client.list_offsets({ZERO: LATEST, ONE: LATEST}))
            await dropped.caught(1)
            cluster.move_leader("t")
            client._cluster.metadata.request_update()
            assert {tp: end.offset for tp, end in (await ends).items()} == {ZERO: 1, ONE: 0}
            assert dropped.hits == 1

    virtually(story, topics={"t": 2})


def test_a_call_for_offsets_sees_metadata_that_come_before_its_tasks_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has looked for the leaders, and its tasks run in the loop's next iteration: nobody waits for changes yet."""

    async def story(cluster: Cluster) -> None:
        silent = cluster.leader("t")
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(10):
            metadata, find = client._cluster.metadata, group_by_leader
            with client._followed.following({"t"}):  # so that the call itself asks for no metadata
                await client.list_offsets({ZERO: LATEST})
                cluster.intercept(ListOffsetsRequest, drop(), where=lambda exchange: exchange.broker == silent)
                cluster.move_leader("t")
                newer = await metadata.fetch(frozenset({"t"}), timeout=5)

                def come() -> None:
                    metadata.cluster = newer
                    metadata.changed.notify()

                def found(*args: Any) -> Any:
                    asyncio.get_running_loop().call_soon(come)
                    return find(*args)

                monkeypatch.setattr(list_offsets, "group_by_leader", found)
                assert await client.list_offsets({ZERO: LATEST})

    virtually(story, topics={"t": 1})


async def test_thousands_of_partitions_are_asked_for_by_several_requests_each_once() -> None:
    asked: list[int] = []

    def count(exchange: Exchange) -> None:
        assert isinstance(exchange.request, ListOffsetsRequest)
        asked.extend(part.partition_index for topic in exchange.request.topics for part in topic.partitions)

    async with Cluster(topics={"t": 1_100}) as cluster:
        seen = cluster.intercept(ListOffsetsRequest, count)
        wanted = [TopicPartition("t", number) for number in range(1_100)]
        async with reading(cluster, *wanted) as consumer, asyncio.timeout(10):
            assert await wait_positions(consumer._runtime, wanted, timeout=10) == dict.fromkeys(wanted, 0)
        assert seen.hits == 2
        assert sorted(asked) == list(range(1_100))


# Some of them Kafka does not send here; a broker that is not Kafka, or a proxy, does.
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_passes_is_tried_again_and_what_does_not_is_raised(code: ErrorCode) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        cluster.intercept(ListOffsetsRequest, code, times=2)
        refused = cluster.intercept(ListOffsetsRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=1)
        async with reading(cluster, ZERO) as consumer:
            with pytest.raises(AuthorizationFailed, match="t-0"):
                await consumer.getone()
            assert refused.hits == 1
            assert (await consumer.getone()).value == b"0"
            again = cluster.intercept(ListOffsetsRequest, code, times=2)
            assert await consumer.end_offsets([ZERO]) == {ZERO: 1}
            assert again.hits == 2

    virtually(story, brokers=1, topics={"t": 1})


def test_a_damaged_log_is_told_of_and_not_looked_at_again() -> None:
    """CORRUPT_MESSAGE is retriable for who sends a batch."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        damaged = cluster.intercept(ListOffsetsRequest, ErrorCode.CORRUPT_MESSAGE, times=1)
        async with reading(cluster, ZERO) as consumer:
            with pytest.raises(BrokerError, match="CORRUPT_MESSAGE"):
                await consumer.getone()
            assert damaged.hits == 1

    virtually(story, brokers=1, topics={"t": 1})


def test_a_forbidden_topic_keeps_no_partition_of_another_from_its_position() -> None:
    """The coordinator's answer has an error for the one, and the committed offset of the other."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1")
        cluster.append("t", b"2", partition=1)
        cluster.append("u", b"3")
        cluster.revoke("ANONYMOUS", "u")
        other = TopicPartition("u", 0)
        async with reading(cluster, group_id="g") as consumer:
            await consumer.commit({ZERO: 1})
            consumer.assign([ZERO, other])
            assert await values(consumer, 10.0) == [b"1"]
            consumer.assign([ZERO, ONE, other])
            assert await values(consumer, 10.0) == [b"2"]
            with pytest.raises(AuthorizationFailed, match=r"'g', u-0: .*DESCRIBE"):
                await consumer.committed(ZERO, other)
            cluster.grant(Acl("ANONYMOUS", "Read", topic="u"))
            assert await values(consumer, 10.0) == [b"3"]

    virtually(story, brokers=1, topics={"t": 2, "u": 1}, super_users=())


async def values(consumer: Consumer, seconds: float) -> list[bytes]:
    """Read for so long, whatever is forbidden."""
    loop = asyncio.get_running_loop()
    until, found = loop.time() + seconds, list[bytes]()
    while loop.time() < until:
        try:
            batches = await consumer.getmany(timeout_ms=500)
            found += [bytes(record.value or b"") for batch in batches.values() for record in batch]
        except AuthorizationFailed:
            await asyncio.sleep(0.2)
    return found


def test_a_forbidden_topic_is_no_error_of_a_call_about_another() -> None:
    """Else a listener that looks at its partitions one by one would get no further than the first."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1")
        cluster.revoke("ANONYMOUS", "u")
        other = TopicPartition("u", 0)
        async with reading(cluster, ZERO, other, group_id="g") as consumer:
            for _ in range(30):
                assert await consumer.position(ZERO) == 0
                await consumer.seek_to_end(ZERO)
                assert await consumer.position(ZERO) == 2
                await consumer.seek_to_beginning(ZERO)
                with pytest.raises(AuthorizationFailed, match=r"'u'|u-0"):
                    await consumer.position(other)
                await asyncio.sleep(0.1)
            assert len((await consumer.getmany(timeout_ms=5_000))[ZERO]) == 2
            with pytest.raises(AuthorizationFailed, match=r"'u'|u-0"):
                await consumer.getmany(timeout_ms=5_000)

    virtually(story, brokers=1, topics={"t": 1, "u": 1}, super_users=())


def test_a_forbidden_topic_is_no_error_of_a_call_about_an_offset_that_a_transaction_is_about_to_replace() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1")
        cluster.revoke("ANONYMOUS", "u")
        other = TopicPartition("u", 0)
        async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="x") as producer:
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({ZERO: 1}, GroupMetadata("g"))
            async with reading(cluster, ZERO, other, group_id="g") as consumer:
                position = asyncio.create_task(consumer.position(ZERO))
                for _ in range(30):
                    with pytest.raises(AuthorizationFailed, match=r"'u'|u-0"):
                        await consumer.position(other)
                    await asyncio.sleep(0.1)
                assert not position.done()
                await producer.commit_transaction()
                assert await position == 1

    virtually(story, brokers=1, topics={"t": 1, "u": 1}, super_users=())


def test_what_a_leader_refuses_for_good_is_no_error_of_a_call_about_another_partition() -> None:
    """Two of its partitions are refused, for different reasons; the third one for a while."""
    codes = {0: ErrorCode.LEADER_NOT_AVAILABLE, 1: ErrorCode.TOPIC_AUTHORIZATION_FAILED, 2: ErrorCode.INVALID_REQUEST}

    async def refuse(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        for partition in answer.topics[0].partitions:
            if (code := codes.get(partition.partition_index)) is not None:
                partition.error_code, partition.offset = code, -1
        return answer

    async def story(cluster: Cluster) -> None:
        cluster.intercept(ListOffsetsRequest, refuse)
        async with reading(cluster, ZERO, ONE, TopicPartition("t", 2)) as consumer:
            position = asyncio.create_task(consumer.position(ZERO))
            for _ in range(10):
                with pytest.raises(AuthorizationFailed, match="t-1"):
                    await consumer.position(ONE)
                with pytest.raises(BrokerError, match=r"INVALID_REQUEST: .*t-2"):
                    await consumer.position(TopicPartition("t", 2))
                await asyncio.sleep(0.1)
            assert not position.done()
            del codes[0]
            assert await position == 0

    virtually(story, brokers=1, topics={"t": 3})


async def leave_out(exchange: Exchange) -> Any:
    answer: Any = await exchange.handle()
    for topic in answer.topics:
        topic.partitions = [one for one in topic.partitions if one.partition_index != 0]
    return answer


async def leave_out_the_offset(exchange: Exchange) -> Any:
    answer: Any = await exchange.handle()
    for topic in answer.topics:
        for one in topic.partitions:
            if one.partition_index == 0:
                one.offset = -1
    return answer


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("left_out_by", [leave_out, leave_out_the_offset])
def test_a_leader_that_leaves_a_partition_out_of_its_answer_is_named(
    left_out_by: Any, reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked again, and would be for ever without a word. Each log has a beginning and an end: -1 is neither."""

    async def story(cluster: Cluster) -> None:
        left_out = cluster.intercept(ListOffsetsRequest, left_out_by)
        async with reading(cluster, ZERO, ONE, auto_offset_reset=reset) as consumer:
            metadata = consumer._runtime.cluster_client.metadata
            with patch.object(metadata, "disprove_leader") as disproved:
                assert await consumer.position(ONE) == 0
            disproved.assert_called_with(1, {ZERO})
            says = "broker 1: the answer to ListOffsets has neither an offset nor an error for t-0"
            for call in (consumer.position(ZERO, timeout_ms=2_000), consumer.end_offsets([ZERO], timeout_ms=2_000)):
                with pytest.raises(RequestTimedOut, match=says) as late:
                    await call
                assert isinstance(late.value.__cause__, MalformedResponse)
            left_out.cancel()
            loading = cluster.intercept(ListOffsetsRequest, ErrorCode.OFFSET_NOT_AVAILABLE)
            with pytest.raises(RequestTimedOut, match="OFFSET_NOT_AVAILABLE"):
                await consumer.position(ZERO, timeout_ms=2_000)
            loading.cancel()
            assert await consumer.position(ZERO) == 0
        warnings = [record.getMessage() for record in caplog.records if record.name == "aiokc.offsets"]
        assert warnings[0] == f"no position yet for t-0: {says}"

    virtually(story, brokers=1)


def test_what_a_leader_answers_of_a_partition_that_was_not_asked_for_is_passed_over() -> None:
    async def say_more(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        for topic in answer.topics:
            unasked = copy(topic.partitions[0])
            unasked.partition_index = 7
            topic.partitions = [*topic.partitions, unasked]
        return answer

    async def story(cluster: Cluster) -> None:
        cluster.intercept(ListOffsetsRequest, say_more)
        async with reading(cluster, ZERO, auto_offset_reset="by_duration:PT1H") as consumer:
            assert await consumer.position(ZERO) == 0
            assert await consumer.end_offsets([ZERO]) == {ZERO: 0}

    virtually(story, brokers=1)


def test_a_missing_offset_is_no_error_of_a_call_about_another_partition() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster, ZERO, ONE, group_id="g", auto_offset_reset="none") as consumer:
            with pytest.raises(NoOffsetForPartition) as missing:
                await consumer.position(ONE)
            assert missing.value.partitions == {ONE}
            await consumer.seek_to_beginning(ONE)
            assert await consumer.position(ONE) == 0
            with pytest.raises(NoOffsetForPartition) as missing:
                await consumer.getmany(timeout_ms=5_000)
            assert missing.value.partitions == {ZERO}

    virtually(story, brokers=1, topics={"t": 2})


def test_an_offset_of_an_open_transaction_keeps_no_other_partition_from_its_position(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: Cluster) -> None:
        for partition in (0, 1, 2):
            cluster.append("t", b"%d" % partition, partition=partition)
        async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="x") as producer:
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({ZERO: 1}, GroupMetadata("g"))
            async with reading(cluster, ZERO, ONE, group_id="g") as consumer:
                assert await values(consumer, 5.0) == [b"1"]
                consumer.assign([ZERO, ONE, TopicPartition("t", 2)])
                assert await values(consumer, 5.0) == [b"2"]
                assert caplog.messages == []
                assert await values(consumer, 30.0) == []
                assert "no position yet for t-0: " in caplog.text
                await producer.abort_transaction()
                assert await values(consumer, 5.0) == [b"0"]

    virtually(story, brokers=1, topics={"t": 3})


def test_a_topic_that_does_not_exist_is_no_storm() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster, MISSING, ZERO) as consumer:
            asked = cluster.intercept(MetadataRequest, lambda exchange: None)
            await consumer.getmany(timeout_ms=2_000)
            before = asked.hits
            await consumer.getmany(timeout_ms=20_000)
            assert 10 <= asked.hits - before <= 40, "after a while each retry_backoff_max_ms (1 s)"

    virtually(story, brokers=1, topics={"t": 1})


async def test_a_seek_of_several_moves_none_where_one_is_not_assigned() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0")
        async with reading(cluster, ZERO) as consumer:
            await consumer.getone()
            with pytest.raises(UsageError, match="t-1 is not assigned"):
                await consumer.seek_to_beginning(ZERO, ONE)
            assert await consumer.position(ZERO) == 1


def test_a_partition_that_its_topic_does_not_have_is_waited_for_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise a typing error in a number would look like a topic in which nothing happens."""

    async def story(cluster: Cluster) -> None:
        async with reading(cluster, ZERO, ONE) as consumer:
            assert await consumer.getmany(timeout_ms=40_000) == {}
            cluster.add_partitions("t", 2)
            cluster.append("t", b"1", partition=1)
            assert (await consumer.getone()).value == b"1"

    virtually(story, brokers=1, topics={"t": 1})
    warnings = [record.getMessage() for record in caplog.records if record.name == "aiokc.offsets"]
    text = "t-1 does not exist: its topic has 1 partitions; looking again until it does"
    assert len(warnings) == 2
    assert warnings[0] == text
    assert re.fullmatch(rf"{text} \(\d+ more since the last such message\)", warnings[1])


async def test_offsets_of_a_topic_that_cannot_be_are_no_question_of_time() -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        Client(bootstrap_servers=cluster.bootstrap) as client,
        reading(cluster, ZERO) as consumer,
        asyncio.timeout(20),
    ):
        with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION: topic 'a b'"):
            await consumer.end_offsets([TopicPartition("a b", 0)])
        with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION: topic 'a b'"):
            await client.list_offsets({TopicPartition("a b", 0): LATEST})


async def test_offsets_of_a_topic_that_may_not_be_seen_are_asked_for_once_more_by_the_next_call() -> None:
    async def forbid(exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        for topic in response.topics:
            topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
        return response

    async with Cluster(topics={"t": 1}) as cluster, Client(bootstrap_servers=cluster.bootstrap) as client:
        forbidden = cluster.intercept(MetadataRequest, forbid)
        async with asyncio.timeout(20):
            with pytest.raises(AuthorizationFailed, match="topic 't'"):
                await client.list_offsets({ZERO: LATEST})
            forbidden.cancel()
            found = (await client.list_offsets({ZERO: LATEST}))[ZERO]
        assert found is not None
        assert found.offset == 0


async def test_without_a_backoff_a_topic_that_is_missing_holds_up_nothing() -> None:
    """The look for its leader has pauses all the same: without any, it would hold the event loop for ever."""
    async with Cluster() as cluster, reading(cluster, MISSING, retry_backoff_ms=0) as consumer:
        assert await consumer.getmany(timeout_ms=100) == {}
        cluster.create_topic(MISSING.topic)
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send(MISSING.topic, b"v")
        assert [record.value for record in (await consumer.getmany())[MISSING]] == [b"v"]
