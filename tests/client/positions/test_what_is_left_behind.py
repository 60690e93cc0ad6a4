"""State of partitions that were lost, of logs that were replaced, or of a leader's divergent log, and its removal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer, OffsetAndMetadata, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import LogTruncated
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.fetch import EpochEndOffset, FetchRequest
from aiokc.wire.messages.offsets import OffsetForLeaderEpochRequest
from tests.suite.unused_faults import may_be_unused

from ..listening import Noting, Polling, listening
from ..virtually import virtually

pytestmark = pytest.mark.timeout(30)

ZERO = TopicPartition("t", 0)
TEN = tuple(b"%d" % number for number in range(10))


def reading(cluster: Cluster, **options: Any) -> Consumer:
    consumer = Consumer(bootstrap_servers=cluster.bootstrap, **options)
    consumer.assign([ZERO])
    return consumer


# A lost partition


def test_what_was_committed_before_a_loss_is_committed_again_where_others_have_gone_back_since() -> None:
    """Auto-commit leaves out offsets that the group has already. Of a lost partition it does not know that any more."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN)
        listener = Noting()
        rarely: dict[str, Any] = {"heartbeat_interval_ms": 1_000, "auto_commit_interval_ms": 60_000}
        consumer = listening(cluster, "t", listener=listener, enable_auto_commit=True, **rarely)
        async with consumer:
            async with Polling(consumer) as user:
                await user.has(10)
            await consumer.getmany(timeout_ms=0)
            await asyncio.sleep(60)
            assert cluster.committed("g") == {ZERO: 10}
            async with reading(cluster, group_id="g", enable_auto_commit=False) as operator:
                await operator.committed(ZERO)  # it knows the coordinator
                cluster.expire_member("g")
                await operator.commit({ZERO: 4})
            assert cluster.committed("g") == {ZERO: 4}
            async with Polling(consumer) as user:
                await listener.until(lambda: listener.calls == ["assigned", "lost", "assigned"])
                await user.has(6)
            await consumer.getmany(timeout_ms=0)
            await asyncio.sleep(60)
            assert cluster.committed("g") == {ZERO: 10}

    virtually(story, topics={"t": 1}, brokers=1, group_initial_rebalance_delay_ms=0)


# A recreated topic


def test_nothing_of_the_old_topic_is_handed_out_once_it_is_known_to_be_recreated() -> None:
    """Also without a reset policy: records fetched ahead lie before the error, and are of no use to the application.

    To commit them would store, for the new topic, offsets that were never read there.
    """

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN)
        async with reading(cluster, auto_offset_reset="none") as consumer:
            consumer.seek(ZERO, 0)
            assert len(await consumer.getmany(max_records=2, timeout_ms=10_000)) == 1
            await asyncio.sleep(1)  # the rest is there, too
            cluster.recreate_topic("t")
            cluster.append("t", b"new")
            consumer._runtime.cluster_client.metadata.request_update()
            await asyncio.sleep(1)
            with pytest.raises(LogTruncated, match="created again") as caught:
                await consumer.getmany(timeout_ms=10_000)
            assert (caught.value.offsets, caught.value.safe_offsets) == ({ZERO: 2}, {ZERO: 0})
            consumer.seek(ZERO, 0)
            assert [record.value for record in (await consumer.getmany(timeout_ms=10_000))[ZERO]] == [b"new"]

    virtually(story, topics={"t": 1}, brokers=1)


# Another log


def answering(epoch: int, offset: int) -> Any:
    """Make the leader answer, whatever epoch it is asked about, that ``epoch`` is its log's and ends at ``offset``."""

    async def answer(exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        for topic in response.topics:
            for end in topic.partitions:
                end.error_code, end.leader_epoch, end.end_offset = ErrorCode.NONE, epoch, offset
        return response

    return answer


@pytest.mark.parametrize("reset", ["none", "earliest"])
def test_a_log_that_is_long_enough_but_of_another_epoch_is_another_log(reset: str) -> None:
    """KIP-320: the records of epoch 1 that were read are in no log any more. The leader's previous epoch, 0, goes on
    further than they did, so an end behind the position says nothing about them.
    """

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN[:2])
        cluster.move_leader("t")
        cluster.append("t", *TEN[2:4])
        async with reading(cluster, auto_offset_reset=reset) as consumer:
            consumer.seek(ZERO, 0)
            assert len((await consumer.getmany(timeout_ms=10_000))[ZERO]) == 4
            asked = cluster.intercept(OffsetForLeaderEpochRequest, answering(0, 6), times=1)
            cluster.move_leader("t")
            cluster.append("t", *TEN[4:])
            if reset == "none":
                with pytest.raises(LogTruncated) as caught:
                    await consumer.getmany(timeout_ms=10_000)
                assert (caught.value.offsets, caught.value.safe_offsets) == ({ZERO: 4}, {}), "where is not known"
            else:
                got = await consumer.getmany(timeout_ms=10_000)
                assert got[ZERO][0].offset == 0, "a repetition, and not a gap"
            assert asked.hits == 1

    virtually(story, topics={"t": 1})


def test_a_log_that_goes_on_under_a_higher_epoch_than_was_asked_about_is_the_same_one() -> None:
    """Kafka names the highest epoch up to the one that it is asked about. Others name one that is newer than that."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN[:4])
        async with reading(cluster, auto_offset_reset="latest") as consumer:
            consumer.seek(ZERO, 0)
            assert len((await consumer.getmany(timeout_ms=10_000))[ZERO]) == 4
            asked = cluster.intercept(OffsetForLeaderEpochRequest, answering(2, 6))
            cluster.move_leader("t")
            cluster.append("t", *TEN[4:6])
            assert (await consumer.getone()).offset == 4
            assert asked.hits == 1

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize("hidden", [True, False], ids=["hidden", "says that it is the same log"])
def test_a_leader_whose_fetch_says_that_its_log_diverges_and_that_takes_it_back_is_read(
    hidden: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It would say so of the next Fetch, too: such a partition would be validated for ever, and never read."""

    named = [-1]  # in the fetch session, which goes on with what an earlier request has named

    async def diverge(exchange: Exchange) -> Any:
        named.extend(one.last_fetched_epoch for topic in exchange.request.topics for one in topic.partitions)
        response: Any = await exchange.handle()
        for topic in response.responses:
            for one in topic.partitions:
                if named[-1] >= 0:
                    one.diverging_epoch, one.records = EpochEndOffset(epoch=0, end_offset=1), None
        return response

    async def story(cluster: Cluster) -> None:
        if hidden:
            del cluster._state.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH]  # type: ignore[attr-defined]
        cluster.intercept(FetchRequest, diverge)
        async with reading(cluster, auto_offset_reset="earliest") as consumer, asyncio.timeout(60):
            for offset, value in enumerate(TEN[:3]):
                cluster.append("t", value)
                assert (await consumer.getone()).offset == offset
        warnings = [one.getMessage() for one in caplog.records if "where they diverge" in one.getMessage()]
        assert len(warnings) == 1
        assert warnings[0].startswith("t-0 at offset ")
        assert "a Fetch response says that the log is not the one that was read up to" in warnings[0]

    virtually(story, topics={"t": 1}, brokers=1)


@pytest.mark.parametrize("hidden", [True, False], ids=["hidden", "says that it is the same log"])
def test_all_partitions_whose_logs_diverge_are_named_in_one_warning(
    hidden: bool, caplog: pytest.LogCaptureFixture
) -> None:
    partitions = [TopicPartition("t", number) for number in range(3)]
    named: dict[int, int] = {}  # in the fetch session, which goes on with what an earlier request has named

    async def diverge(exchange: Exchange) -> Any:
        named.update(
            (one.partition, one.last_fetched_epoch) for each in exchange.request.topics for one in each.partitions
        )
        response: Any = await exchange.handle()
        for topic in response.responses:
            for one in topic.partitions:
                if named[one.partition_index] >= 0:
                    one.diverging_epoch, one.records = EpochEndOffset(epoch=0, end_offset=1), None
        return response

    async def story(cluster: Cluster) -> None:
        if hidden:
            del cluster._state.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH]  # type: ignore[attr-defined]
        cluster.intercept(FetchRequest, diverge)
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        consumer.assign(partitions)
        async with consumer, asyncio.timeout(60):
            for offset in range(3):
                for tp in partitions:
                    cluster.append("t", b"%d" % offset, partition=tp.partition)
                assert [(await consumer.getone()).offset for _ in partitions] == [offset] * 3
        (warning,) = [text for text in caplog.messages if "where they diverge" in text]
        assert warning.startswith("t-0 at offset 1, t-1 at offset 1, t-2 at offset 1: ")

    virtually(story, topics={"t": 3}, brokers=1)


def test_after_a_truncation_the_position_is_of_the_epoch_that_the_leader_named() -> None:
    """A commit of the position then carries that epoch, so the next reader asks its leader about the right one."""

    async def story(cluster: Cluster) -> None:
        for value in TEN[:4]:
            cluster.append("t", value)  # one batch each: a log is truncated between batches
        async with reading(cluster, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            async with asyncio.timeout(60):
                while await consumer.position(ZERO) < 4:
                    await consumer.getmany(timeout_ms=10_000)
            cluster.truncate("t", to=2)
            cluster.append("t", b"x")
            async with asyncio.timeout(60):
                while await consumer.position(ZERO) == 4:
                    consumer._runtime.cluster_client.metadata.request_update()
                    await asyncio.sleep(0.1)
            await consumer.commit()
            assert await consumer.committed(ZERO) == {ZERO: OffsetAndMetadata(2, "", 0)}

    virtually(story, topics={"t": 1})


async def test_many_partitions_are_asked_about_in_portions() -> None:
    """Neither writing a request nor comparing what its response says holds the loop for long."""
    partitions = [TopicPartition("t", number) for number in range(1_201)]
    async with Cluster(brokers=1, topics={"t": len(partitions)}) as cluster:
        cluster.append("t", b"0", partition=1_200)
        asked: list[int] = []

        def note(exchange: Exchange) -> None:
            asked.append(len(exchange.request.topics[0].partitions))

        cluster.intercept(OffsetForLeaderEpochRequest, note)
        consumer = Consumer(bootstrap_servers=cluster.bootstrap)
        consumer.assign(partitions)
        async with consumer, asyncio.timeout(20):
            for tp in partitions:
                consumer.seek(tp, OffsetAndMetadata(0, leader_epoch=0))
            assert (await consumer.getone()).value == b"0"
            assert await consumer.position(partitions[-1]) == 1
        assert max(asked) <= 1_000
        assert sum(asked) == len(partitions)


# Metadata that are older than what was read


def test_metadata_that_are_out_of_date_twice_are_waited_for_twice() -> None:
    """A deposed leader that does not know of it yet calls a later epoch unknown. To believe it would skip records."""

    async def story(cluster: Cluster) -> None:
        partition = cluster._partition("t", 0)
        before = partition.leader, partition.leader_epoch

        async def out_of_date(exchange: Exchange) -> Any:
            response: Any = await exchange.handle()
            for topic in response.topics:
                topic.partitions[0].leader_id, topic.partitions[0].leader_epoch = before
            return response

        async def not_there(exchange: Exchange) -> Any:
            response: Any = await exchange.handle()
            for topic in response.topics:
                topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
            return response

        def elect(*values: bytes) -> None:
            nonlocal before
            before = partition.leader, partition.leader_epoch
            cluster.move_leader("t")
            cluster.append("t", *values)

        elect(b"0")
        stale = cluster.intercept(MetadataRequest, out_of_date)
        async with reading(cluster, auto_offset_reset="latest", metadata_max_age_ms=5_000) as consumer:
            consumer.seek(ZERO, OffsetAndMetadata(0, leader_epoch=1))
            first = asyncio.create_task(consumer.getone())
            await stale.caught(3)
            stale.cancel()
            assert (await first).value == b"0"
            await asyncio.sleep(60)

            elect(b"1")
            assert (await consumer.getone()).value == b"1"
            asked = may_be_unused(
                cluster.intercept(OffsetForLeaderEpochRequest, answering(-1, -1), where=lambda e: e.broker == before[0])
            )
            gone = cluster.intercept(MetadataRequest, not_there, times=1)  # a broker that has just started
            await gone.caught(1)
            stale = cluster.intercept(MetadataRequest, out_of_date)
            second = asyncio.create_task(consumer.getone())
            await stale.caught(3)
            cluster.append("t", b"2")
            stale.cancel()
            async with asyncio.timeout(60):
                assert ((await second).value, asked.hits) == (b"2", 0)

    virtually(story, topics={"t": 1})
