"""Logs that lose records that were read already (KIP-320), and topics that are recreated (KIP-516)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from aiokc import Consumer, OffsetAndMetadata, Producer, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, LogTruncated, OffsetOutOfRange
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold, Interception
from aiokc.testing.kafka import LocalKafka
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.offsets import OffsetForLeaderEpochRequest
from tests.client.virtually import virtually
from tests.producing import produce
from tests.suite.unused_faults import may_be_unused

pytestmark = pytest.mark.timeout(60)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)

# 4.4 finds divergence in Fetch responses too (version 12); 2.1 has only OffsetForLeaderEpoch, and no topic ids.
versions = pytest.mark.parametrize("version", ["4.4", "2.3"])


def reading(cluster: Cluster, *partitions: TopicPartition, **options: Any) -> ConsumerType:
    consumer = Consumer(
        **{
            "bootstrap_servers": cluster.bootstrap,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 50,
            "retry_backoff_ms": 10,
            **options,
        }
    )
    consumer.assign(partitions)
    return consumer


async def values(consumer: ConsumerType, count: int) -> list[bytes]:
    async with asyncio.timeout(20):
        return [(await consumer.getone()).value or b"" for _ in range(count)]


def write(cluster: Cluster, *values: bytes) -> None:
    """Append one batch for each value: a log is truncated between batches."""
    for value in values:
        cluster.append("t", value)


@versions
async def test_a_new_leader_with_the_same_log_is_read_on(version: str) -> None:
    async with Cluster(brokers=3, topics={"t": 1}, as_version=version) as cluster:
        write(cluster, b"0", b"1")
        asked = cluster.intercept(OffsetForLeaderEpochRequest, lambda exchange: None)
        async with reading(cluster, ZERO) as consumer:
            assert await values(consumer, 2) == [b"0", b"1"]
            cluster.move_leader("t")
            write(cluster, b"2")
            assert await values(consumer, 1) == [b"2"]
            assert asked.hits == 1, "before anything is fetched from the new leader"


@versions
async def test_truncation_resets_to_the_diverging_offset_where_a_policy_allows_it(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cluster(brokers=3, topics={"t": 1}, as_version=version) as cluster:
        write(cluster, b"0", b"1", b"2", b"3")
        async with reading(cluster, ZERO) as consumer:
            assert await values(consumer, 4) == [b"0", b"1", b"2", b"3"]
            with caplog.at_level(logging.WARNING, "aiokc.offsets"):
                cluster.truncate("t", to=2)
                write(cluster, b"x", b"y", b"z")
                assert await values(consumer, 3) == [b"x", b"y", b"z"], "the log is longer than it was, and another one"
            assert "under offset 4" in caplog.text
            assert "offset 2" in caplog.text


@versions
async def test_truncation_is_an_error_with_the_safe_offset_where_there_is_no_policy(version: str) -> None:
    async with Cluster(brokers=3, topics={"t": 1}, as_version=version) as cluster:
        write(cluster, b"0", b"1", b"2", b"3")
        async with reading(cluster, ZERO, auto_offset_reset="none") as consumer:
            consumer.seek(ZERO, 0)
            assert await values(consumer, 4) == [b"0", b"1", b"2", b"3"]
            cluster.truncate("t", to=2)
            write(cluster, b"x", b"y", b"z")
            for _ in range(2):
                with pytest.raises(LogTruncated, match="t-0 at 4") as caught:
                    await values(consumer, 1)
                assert (caught.value.offsets, caught.value.safe_offsets) == ({ZERO: 4}, {ZERO: 2})
                assert isinstance(caught.value, OffsetOutOfRange)
                assert caught.value.found == ""
            consumer.seek(ZERO, caught.value.safe_offsets[ZERO])
            assert await values(consumer, 3) == [b"x", b"y", b"z"]


async def test_what_was_only_fetched_ahead_is_fetched_again_without_an_error() -> None:
    async with Cluster(brokers=3, topics={"t": 1}) as cluster:
        write(cluster, b"0", b"1", b"2", b"3")
        async with reading(cluster, ZERO, auto_offset_reset="none") as consumer:
            consumer.seek(ZERO, 0)
            assert await values(consumer, 2) == [b"0", b"1"]
            async with asyncio.timeout(10):
                while consumer._runtime.fetcher._buffer.frontier(ZERO, consumer._runtime.subscription[ZERO])[0] < 4:
                    await consumer._runtime.fetcher.arrived.wait()
            cluster.truncate("t", to=2)
            write(cluster, b"x", b"y", b"z")
            asked = cluster.intercept(OffsetForLeaderEpochRequest, lambda exchange: None)
            consumer._runtime.cluster_client.metadata.request_update()
            async with asyncio.timeout(10):
                await asked.caught(2)
            assert await values(consumer, 3) == [b"x", b"y", b"z"]
            assert asked.hits == 2, "first for what was fetched ahead, then for the position"


@pytest.mark.parametrize("taken", [4, 2])
async def test_a_leader_whose_log_diverges_says_so_in_its_answer(taken: int, caplog: pytest.LogCaptureFixture) -> None:
    """Fetch v12 (KIP-595): the consumer still believes in the first leader, whose log is exchanged under it.

    What is only buffered is gone first. OffsetForLeaderEpoch confirms that, so nothing is to be warned of but a loss.
    """
    caplog.set_level("INFO", "aiokc")
    async with Cluster(brokers=1, topics={"t": 1}) as cluster:
        write(cluster, b"0", b"1")
        cluster.truncate("t", to=2)  # the epoch rises, nothing is lost
        write(cluster, b"2", b"3")
        async with reading(cluster, ZERO) as consumer:
            assert await values(consumer, taken) == [b"0", b"1", b"2", b"3"][:taken]
            partition = cluster._partition("t", 0)
            partition.log.truncate(3)
            partition.wake()
            async with asyncio.timeout(10):
                if taken == 4:
                    while await consumer.position(ZERO) != 3:
                        await consumer._runtime.fetcher.arrived.wait()
                else:
                    while "what was fetched ahead" not in caplog.text:  # noqa: ASYNC110 - a log line is no event
                        await asyncio.sleep(0.01)
                    assert await values(consumer, 1) == [b"2"]
            write(cluster, b"x")
            assert await values(consumer, 1) == [b"x"]
    assert "where they diverge" not in caplog.text


async def test_a_committed_epoch_is_compared_before_the_first_fetch() -> None:
    """Offset 3 was committed by a reader of epoch 0 up to there; today's log has other records below it."""
    async with Cluster(brokers=3, topics={"t": 1}) as cluster:
        write(cluster, b"0", b"1", b"2", b"3")
        cluster.truncate("t", to=2)
        write(cluster, b"x", b"y", b"z")
        async with reading(cluster, ZERO, auto_offset_reset="none") as consumer:
            consumer.seek(ZERO, OffsetAndMetadata(4, leader_epoch=0))
            with pytest.raises(LogTruncated) as caught:
                await values(consumer, 1)
            assert caught.value.safe_offsets == {ZERO: 2}
            consumer.seek(ZERO, OffsetAndMetadata(4, leader_epoch=1))
            assert await values(consumer, 1) == [b"z"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_the_epoch_of_a_committed_offset_is_compared_before_the_first_fetch(protocol: str) -> None:
    """Without it a member that starts again would read on in a log that was cut and has grown again."""
    async with Cluster(brokers=3, topics={"t": 1}) as cluster:
        write(cluster, b"0", b"1", b"2", b"3")
        member: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "group_id": "g", "group_protocol": protocol}
        async with Consumer("t", auto_offset_reset="earliest", enable_auto_commit=False, **member) as consumer:
            await values(consumer, 4)
            await consumer.commit()
        cluster.truncate("t", to=2)
        write(cluster, b"x", b"y", b"z")
        async with Consumer("t", auto_offset_reset="none", **member) as consumer:
            with pytest.raises(LogTruncated) as caught:
                await values(consumer, 1)
            assert caught.value.safe_offsets == {ZERO: 2}


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
async def test_minus_one_is_no_epoch_to_compare(reset: str) -> None:
    """Stored offsets of other clients say -1 where they know no leader epoch. The broker knows no such epoch either,
    and its answer would look like that of a truncated log.
    """
    async with Cluster(topics={"t": 1}) as cluster:
        write(cluster, b"0", b"1", b"2")
        asked = may_be_unused(cluster.intercept(OffsetForLeaderEpochRequest, lambda exchange: None))
        async with reading(cluster, ZERO, auto_offset_reset=reset) as consumer:
            consumer.seek(ZERO, OffsetAndMetadata(1, leader_epoch=-1))
            assert await values(consumer, 2) == [b"1", b"2"]
        assert asked.hits == 0


@versions
@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
async def test_the_epoch_of_a_leader_that_wrote_nothing_is_no_truncation(reset: str, version: str) -> None:
    """ListOffsets returns the epoch of the leader that it asks. No record has that epoch, so the next leader's log does
    not know it. This happens in a rolling restart, when a quiet partition has two leaders one after the other.
    """
    async with Cluster(brokers=3, topics={"t": 1}, as_version=version) as cluster:
        write(cluster, b"0", b"1")
        cluster.move_leader("t")
        async with reading(cluster, ZERO, auto_offset_reset=reset) as consumer:
            await consumer.seek_to_end()
            compared = cluster.intercept(OffsetForLeaderEpochRequest, lambda exchange: None)
            cluster.move_leader("t")
            write(cluster, b"2")
            assert await values(consumer, 1) == [b"2"]
            assert compared.hits >= 1
            cluster.move_leader("t")
            write(cluster, b"3")
            assert await values(consumer, 1) == [b"3"]


async def test_a_commit_under_a_leader_that_wrote_nothing_is_read_on_from() -> None:
    """It carries the epoch that ListOffsets gave, whichever client made it."""
    async with Cluster(brokers=3, topics={"t": 1}) as cluster:
        write(cluster, b"0", b"1")
        for _ in range(2):
            cluster.move_leader("t")
        write(cluster, b"2")
        async with reading(cluster, ZERO, auto_offset_reset="none") as consumer:
            consumer.seek(ZERO, OffsetAndMetadata(2, leader_epoch=1))
            assert await values(consumer, 1) == [b"2"]


async def test_a_leader_from_before_a_commit_is_not_asked_about_it() -> None:
    """That broker has not heard yet that it was deposed, nor has the one that the metadata come from. It would call the
    epoch of the commit unknown; from a leader that means that the log was truncated.
    """
    async with Cluster(brokers=3, topics={"t": 1}) as cluster:
        write(cluster, b"0", b"1")
        partition = cluster._partition("t", 0)
        leader, epoch = partition.leader, partition.leader_epoch
        cluster.move_leader("t")
        write(cluster, b"2", b"3")

        async def yesterday(exchange: Exchange) -> Any:
            response: Any = await exchange.handle()
            for topic in response.topics:
                topic.partitions[0].leader_id, topic.partitions[0].leader_epoch = leader, epoch
            return response

        async def deposed(exchange: Exchange) -> Any:
            response: Any = await exchange.handle()
            for topic in response.topics:
                for end in topic.partitions:
                    end.error_code, end.leader_epoch, end.end_offset = ErrorCode.NONE, -1, -1
            return response

        old = cluster.intercept(MetadataRequest, yesterday)
        trap = cluster.intercept(OffsetForLeaderEpochRequest, deposed, where=lambda exchange: exchange.broker == leader)
        may_be_unused(trap)  # the consumer waits for newer metadata before it asks
        async with reading(cluster, ZERO, auto_offset_reset="none") as consumer:
            consumer.seek(ZERO, OffsetAndMetadata(3, leader_epoch=1))
            waiting = asyncio.create_task(values(consumer, 1))
            async with asyncio.timeout(10):
                await old.caught(3)
            old.cancel()
            assert await waiting == [b"3"]
        assert trap.hits == 0


def test_of_a_partition_that_is_lost_while_it_waits_for_newer_metadata_nothing_is_kept() -> None:
    async def story(cluster: Cluster) -> None:
        write(cluster, b"0", b"1")
        async with reading(cluster, ZERO, auto_offset_reset="none") as consumer:
            consumer.seek(ZERO, OffsetAndMetadata(1, leader_epoch=7))
            await asyncio.sleep(1)
            behind = consumer._runtime.fetcher._validator._behind
            assert set(behind) == {ZERO}
            consumer.assign([ONE])
            await asyncio.sleep(5)
            assert not behind

    virtually(story, topics={"t": 2})


def test_an_epoch_that_no_leader_ever_had_holds_nothing_up_for_ever() -> None:
    """For example, the log was restored from elsewhere and its epochs began anew, while the commits were kept."""

    async def story(cluster: Cluster) -> None:
        write(cluster, b"0", b"1")
        async with reading(cluster, ZERO, auto_offset_reset="none", request_timeout_ms=200) as consumer:
            consumer.seek(ZERO, OffsetAndMetadata(1, leader_epoch=7))
            with pytest.raises(LogTruncated):
                await values(consumer, 1)

    virtually(story, topics={"t": 1})


def test_a_cluster_that_is_restored_from_older_disks_is_read_and_written_on() -> None:
    """The leader epochs go back, and the topic has its id still. Who kept the highest one would stand still."""

    async def story(cluster: Cluster) -> None:
        write(cluster, b"0")
        for _ in range(4):
            cluster.move_leader("t")
        write(cluster, b"1")
        loop = asyncio.get_running_loop()
        producer = Producer(bootstrap_servers=cluster.bootstrap)
        async with reading(cluster, ZERO, request_timeout_ms=5_000) as consumer, producer:
            assert await values(consumer, 2) == [b"0", b"1"]
            await producer.send_and_wait("t", b"2", partition=0)
            assert await values(consumer, 1) == [b"2"]
            cluster.truncate("t", to=1)
            partition = cluster._state.topics.named("t").partitions[0]
            partition.leader_epoch = -1
            partition.lead(next(node for node in partition.replicas if node != partition.leader))
            began = loop.time()
            await producer.send_and_wait("t", b"3", partition=0)
            assert await values(consumer, 2) == [b"0", b"3"], "as auto_offset_reset says"
            assert loop.time() - began < 20

    virtually(story, topics={"t": 1})


async def test_a_seek_while_the_leader_is_asked_wins() -> None:
    async with Cluster(brokers=3, topics={"t": 1}) as cluster:
        write(cluster, b"0", b"1", b"2", b"3")
        async with reading(cluster, ZERO, auto_offset_reset="none") as consumer:
            consumer.seek(ZERO, 0)
            assert await values(consumer, 4) == [b"0", b"1", b"2", b"3"]
            hold = Hold()
            cluster.intercept(OffsetForLeaderEpochRequest, hold, times=1)
            cluster.truncate("t", to=2)
            write(cluster, b"x")
            waiting = asyncio.create_task(values(consumer, 1))
            async with asyncio.timeout(10):
                await hold.arrived()
            consumer.seek(ZERO, 1)
            hold.release()
            assert await waiting == [b"1"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_what_passes_is_asked_again(code: ErrorCode) -> None:
    async with Cluster(brokers=3, topics={"t": 1}) as cluster:
        write(cluster, b"0")
        async with reading(cluster, ZERO) as consumer:
            assert await values(consumer, 1) == [b"0"]
            refused = cluster.intercept(OffsetForLeaderEpochRequest, code, times=2)
            cluster.move_leader("t")
            write(cluster, b"1")
            assert await values(consumer, 1) == [b"1"]
            assert refused.hits == 2


async def test_a_leader_that_leaves_a_partition_out_of_its_answer_is_named_and_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def leave_out(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        answer.topics = []
        return answer

    async with Cluster(brokers=3, topics={"t": 1}) as cluster:
        write(cluster, b"0")
        async with reading(cluster, ZERO) as consumer:
            assert await values(consumer, 1) == [b"0"]
            left_out = cluster.intercept(OffsetForLeaderEpochRequest, leave_out, times=2)
            leader = cluster.move_leader("t")
            write(cluster, b"1")
            assert await values(consumer, 1) == [b"1"]
            assert left_out.hits == 2
    warnings = [one.getMessage() for one in caplog.records if one.name == "aiokc.offsets"]
    says = f"broker {leader}: the answer to OffsetForLeaderEpoch says nothing about t-0"
    assert warnings == [f"{says}; trying again"]


async def test_a_topic_that_may_not_be_described_is_an_error_of_that_partition() -> None:
    async with Cluster(brokers=3, topics={"t": 2}) as cluster:
        write(cluster, b"0")
        async with reading(cluster, ZERO, ONE) as consumer:
            assert await values(consumer, 1) == [b"0"]
            cluster.intercept(OffsetForLeaderEpochRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=1)
            cluster.move_leader("t")
            cluster.append("t", b"other", partition=1)
            write(cluster, b"1")
            got: list[bytes] = []
            errors = 0
            while len(got) < 2:
                try:
                    got += await values(consumer, 1)
                except AuthorizationFailed:
                    errors += 1
            assert (sorted(got), errors) == ([b"1", b"other"], 1)


@pytest.mark.parametrize("longer", [False, True], ids=["shorter", "longer"])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
async def test_a_recreated_topic_is_read_from_its_beginning(
    reset: str, longer: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """This holds for assign() too, and where the position exists in the new log."""
    async with Cluster(topics={"t": 1}) as cluster:
        write(cluster, b"0", b"1")
        async with reading(cluster, ZERO, auto_offset_reset=reset) as consumer:
            consumer.seek(ZERO, 0)
            assert await values(consumer, 2) == [b"0", b"1"]
            cluster.recreate_topic("t")
            expected = [b"a", b"b", b"c", b"d"] if longer else [b"a"]
            write(cluster, *expected)
            assert await values(consumer, len(expected)) == expected
    warning = "t-0: the topic was deleted and created again: leaving offset 2 for the beginning of the new log"
    assert [one.message for one in caplog.records if "created again" in one.message] == [warning]


async def test_a_recreated_topic_is_an_error_where_there_is_no_policy() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        write(cluster, b"0", b"1")
        async with reading(cluster, ZERO, auto_offset_reset="none") as consumer:
            consumer.seek(ZERO, 0)
            assert await values(consumer, 2) == [b"0", b"1"]
            cluster.recreate_topic("t")
            write(cluster, b"a", b"b", b"c")
            for _ in range(2):
                with pytest.raises(LogTruncated, match="deleted and created again") as caught:
                    await values(consumer, 1)
            assert caught.value.safe_offsets == {ZERO: 0}
            consumer.seek(ZERO, 0)
            assert await values(consumer, 3) == [b"a", b"b", b"c"]


class OldIds:
    """The brokers' next ``times`` Metadata responses name the topic by the id that it had when this object was made."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._id = cluster._state.topics.named("t").topic_id

    def answer(self, times: int | None = 1) -> Interception:
        return self._cluster.intercept(MetadataRequest, self._say, times=times)

    async def _say(self, exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        for topic in response.topics:
            topic.topic_id = self._id
        return response


async def refreshed(consumer: ConsumerType, count: int = 1) -> None:
    """Wait until the metadata have been refreshed ``count`` times."""
    metadata = consumer._runtime.cluster_client.metadata
    until = metadata.cluster.version + count
    async with asyncio.timeout(20):
        while metadata.cluster.version < until:
            metadata.request_update()
            await metadata.changed.wait()


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
async def test_a_broker_that_still_knows_the_old_topic_repeats_nothing(reset: str) -> None:
    """The client has heard of the new one from another broker, and reads it."""
    async with Cluster(topics={"t": 1}) as cluster:
        write(cluster, b"0", b"1")
        old = OldIds(cluster)
        async with reading(cluster, ZERO, auto_offset_reset=reset) as consumer:
            consumer.seek(ZERO, 0)
            assert await values(consumer, 2) == [b"0", b"1"]
            cluster.recreate_topic("t")
            write(cluster, b"a", b"b")
            if reset == "none":
                with pytest.raises(LogTruncated):
                    await values(consumer, 1)
                consumer.seek(ZERO, 0)
            assert await values(consumer, 2) == [b"a", b"b"]
            for _ in range(3):
                lagging = old.answer(times=2)
                await refreshed(consumer, 3)
                assert lagging.hits == 2
            write(cluster, b"c")
            assert await values(consumer, 1) == [b"c"]


async def test_a_consumer_that_began_with_the_new_topic_and_took_the_old_one_for_newer_reads_on() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        old = OldIds(cluster)
        cluster.recreate_topic("t")
        write(cluster, b"a", b"b")
        async with reading(cluster, ZERO) as consumer:
            assert await values(consumer, 2) == [b"a", b"b"]
            lagging = old.answer(times=1)
            await refreshed(consumer)
            assert lagging.hits == 1
            write(cluster, b"c")
            got = await values(consumer, 1)
            while got[-1] != b"c":
                got += await values(consumer, 1)
            assert got in ([b"c"], [b"a", b"b", b"c"])


@pytest.mark.parametrize("reset", ["latest", "none"])
async def test_a_recreated_topic_with_kafka(kafka: LocalKafka, topic_name: str, reset: str) -> None:
    """The new log is longer than the position: nothing but the id of the topic says that it is another one."""
    tp, new = TopicPartition(topic_name, 0), [b"new %d" % number for number in range(9)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    kafka.create_topic(topic_name)
    await asyncio.to_thread(produce, kafka.bootstrap, topic_name, [b"0", b"1", b"2"])
    consumer = Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset=reset, retry_backoff_ms=20)
    consumer.assign([tp])
    async with consumer:
        consumer.seek(tp, 0)
        assert await values(consumer, 3) == [b"0", b"1", b"2"]
        await asyncio.to_thread(admin.delete_topics([topic_name])[topic_name].result, 30)
        await asyncio.to_thread(kafka.create_topic, topic_name)
        await asyncio.to_thread(produce, kafka.bootstrap, topic_name, new)
        if reset == "none":
            with pytest.raises(LogTruncated, match="deleted and created again") as caught:
                await values(consumer, 1)
            assert (caught.value.offsets, caught.value.safe_offsets) == ({tp: 3}, {tp: 0})
            consumer.seek(tp, 0)
        assert await values(consumer, len(new)) == new
        assert await consumer.getmany(timeout_ms=0) == {}


@pytest.mark.parametrize("when", ["while the new leader is asked", "once the new leader is read"])
async def test_an_answer_of_a_deposed_leader_is_not_believed(when: str) -> None:
    """It was under way when the new leader became known, and holds a record that no other replica has."""
    compared, read = Hold(), Hold()
    caught, released = asyncio.Event(), asyncio.Event()
    is_deposed = False

    async def late(exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        if is_deposed and any(partition.records for topic in response.responses for partition in topic.partitions):
            caught.set()
            await released.wait()
        return response

    async with Cluster(brokers=2, topics={"t": 1}) as cluster:
        write(cluster, b"0")
        old = cluster.leader("t")
        cluster.intercept(FetchRequest, late, where=lambda exchange: exchange.broker == old)  # a parked one too
        async with reading(cluster, ZERO) as consumer, asyncio.timeout(20):
            assert await values(consumer, 1) == [b"0"]
            fetcher = consumer._runtime.fetcher
            cluster.intercept(FetchRequest, read, where=lambda exchange: exchange.broker != old)
            if when == "while the new leader is asked":
                cluster.intercept(OffsetForLeaderEpochRequest, compared)
            is_deposed = True
            write(cluster, b"only the old leader has it")
            await caught.wait()
            cluster.truncate("t", to=1)
            assert cluster.leader("t") != old
            write(cluster, b"1")
            consumer._runtime.cluster_client.metadata.request_update()
            await (compared if when == "while the new leader is asked" else read).arrived()

            released.set()
            while old in fetcher._busy:
                await fetcher.arrived.wait()
            compared.release()
            read.release()
            assert await values(consumer, 1) == [b"1"]
            assert await consumer.position(ZERO) == 2
