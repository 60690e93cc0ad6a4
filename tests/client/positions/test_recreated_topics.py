"""Topics that are recreated while a group reads them: no record of the new topic is skipped, and no offset of the old
one is committed for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from aiokc import Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import BrokerError, CommitFailed, KafkaError, LogTruncated
from aiokc.testing import Cluster, NewRecord
from aiokc.testing.faults import Hold
from aiokc.testing.kafka import LocalKafka
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest, OffsetForLeaderEpochRequest
from tests.producing import produce

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)

ZERO = TopicPartition("ev", 0)
OTHER = TopicPartition("other", 0)
OLD = [b"old %d" % number for number in range(20)]
NEW = [b"new %d" % number for number in range(30)]
ASSIGNORS = ["range", "cooperative-sticky"]
#: The coordinator assigns by topic id (KIP-848).
BY_TOPIC_ID = {"group_protocol": "consumer"}
#: How long the topic does not exist, in seconds; None: it is created again at once.
AWAY = [None, 0.05, 0.3, 1.5]


def member(cluster: Cluster, **options: Any) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        **({} if "group_protocol" in options else {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 500}),
        **options,
    }
    consumer = Consumer(**settings)
    if settings["group_id"]:
        consumer.subscribe(["ev"])
    return consumer


async def recreate(
    cluster: Cluster, away: float | None, *, topic: str = "ev", write: Sequence[bytes | NewRecord] = NEW
) -> None:
    cluster.delete_topic(topic)
    if away is not None:
        await asyncio.sleep(away)
    if topic not in cluster._state.topics.by_name:  # else a member has asked for it, and so it exists again
        cluster.create_topic(topic, 1)
    if write:
        cluster.append(topic, *write)


async def read(consumer: Consumer, until: bytes, *, within: float = 30.0) -> list[bytes]:
    """Return the values up to ``until``, in calls of at most ten records, or those that come in time."""
    got: list[bytes] = []
    try:
        async with asyncio.timeout(within):
            while until not in got:
                for records in (await consumer.getmany(max_records=10, timeout_ms=1_000)).values():
                    got += [record.value or b"" for record in records]
    except TimeoutError:
        pass
    return got


async def heard_of_it(cluster: Cluster, consumer: Consumer, topic: str = "ev") -> None:
    """Wait until the metadata know the topic that exists now."""
    metadata = consumer._runtime.cluster_client.metadata
    there = cluster._state.topics.named(topic).topic_id
    async with asyncio.timeout(20):
        while metadata.cluster.topic_id(topic) != there:
            metadata.request_update()
            await metadata.changed.wait()


def with_old_records(story: Any, **options: Any) -> None:
    async def begin(cluster: Cluster) -> None:
        cluster.append("ev", *OLD)
        await story(cluster)

    virtually(begin, **{"brokers": 1, "topics": {"ev": 1}, **options})


@pytest.mark.parametrize("as_version", ["3.1", "4.0", "4.3"])
@pytest.mark.parametrize("away", AWAY)
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_consumer_that_polls_reads_all_of_the_new_topic(assignor: str, away: float | None, as_version: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with member(cluster, partition_assignment_strategy=[assignor], auto_commit_interval_ms=200) as consumer:
            assert await read(consumer, OLD[-1]) == OLD
            polling = asyncio.create_task(read(consumer, NEW[-1]))
            await asyncio.sleep(1)
            assert cluster.committed("g") == {ZERO: 20}
            await recreate(cluster, away)
            assert await polling == NEW
            await read(consumer, b"nothing", within=2)
            assert cluster.committed("g") == {ZERO: 30}

    with_old_records(story, as_version=as_version)


@pytest.mark.parametrize("away", AWAY)
@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("reset", ["earliest", "latest", "by_duration:PT1H"])
def test_a_consumer_with_a_held_batch_reads_all_of_the_new_topic(reset: str, assignor: str, away: float | None) -> None:
    """With each reset: the old topic was read, and the records of the new one were written since, whatever their
    timestamps say.
    """

    async def story(cluster: Cluster) -> None:
        options: dict[str, Any] = {"partition_assignment_strategy": [assignor], "auto_offset_reset": reset}
        consumer = member(cluster, auto_commit_interval_ms=200, **options)
        async with consumer:
            await consumer.getmany(timeout_ms=500)
            await consumer.seek_to_beginning()
            assert len((await consumer.getmany(timeout_ms=5_000))[ZERO]) == 20
            await recreate(cluster, away, write=[NewRecord(value, timestamp=1) for value in NEW])
            await asyncio.sleep(1)
            assert cluster.committed("g").get(ZERO, 0) == 0
            assert await read(consumer, NEW[-1]) == NEW

    with_old_records(story)


@pytest.mark.parametrize("reset", ["earliest", "latest", "by_duration:PT1H"])
def test_a_topic_that_was_away_for_long_is_read_from_its_beginning(reset: str) -> None:
    """The member has lost the partition meanwhile, and gets it again without a position."""

    async def story(cluster: Cluster) -> None:
        async with member(cluster, auto_offset_reset=reset, allow_auto_create_topics=False) as consumer:
            await consumer.getmany(timeout_ms=500)
            await consumer.seek_to_beginning()
            assert len((await consumer.getmany(timeout_ms=5_000))[ZERO]) == 20
            polling = asyncio.create_task(read(consumer, NEW[-1]))
            cluster.delete_topic("ev")
            await asyncio.sleep(10)
            assert consumer.assignment() == frozenset()
            cluster.create_topic("ev", 1)
            cluster.append("ev", *[NewRecord(value, timestamp=1) for value in NEW])
            assert await polling == NEW

    with_old_records(story)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("what", ["batch", "offsets", "everything", "its offsets"])
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_what_was_read_from_the_old_topic_is_not_committed_for_the_new_one(
    assignor: str, what: str, is_known: bool
) -> None:
    """This holds whether the member has heard of the new topic, or the coordinator is the first to say so."""

    async def story(cluster: Cluster) -> None:
        options: dict[str, Any] = {"partition_assignment_strategy": [assignor], "enable_auto_commit": False}
        async with member(cluster, **options) as consumer:
            batch = await consumer.getmany(timeout_ms=5_000)
            assert len(batch[ZERO]) == 20
            await recreate(cluster, None)
            if is_known:
                metadata = consumer._runtime.cluster_client.metadata
                metadata.request_update()
                await metadata.changed.wait()
            given: dict[str, Any] = {"batch": batch, "offsets": {ZERO: 20}, "its offsets": batch.next_offsets}
            with pytest.raises(CommitFailed, match=r"deleted and\s+created again"):
                await consumer.commit(given.get(what))
            assert cluster.committed("g") == {}
            assert await read(consumer, NEW[-1]) == NEW
            await consumer.commit()
            assert cluster.committed("g") == {ZERO: 30}
            with pytest.raises(CommitFailed):
                await consumer.commit(batch)
            assert cluster.committed("g") == {ZERO: 30}

    with_old_records(story)


def test_a_crash_after_a_refused_commit_loses_no_record_of_the_new_topic() -> None:
    async def story(cluster: Cluster) -> None:
        first = member(cluster, enable_auto_commit=False)
        async with first:
            batch = await first.getmany(timeout_ms=5_000)
            await recreate(cluster, None)
            with pytest.raises(CommitFailed):
                await first.commit(batch)
        async with member(cluster) as second:
            assert await read(second, NEW[-1]) == NEW

    with_old_records(story)


@pytest.mark.parametrize("reset_is_known", [False, True])
@pytest.mark.parametrize("protocol", [{}, BY_TOPIC_ID], ids=["classic", "consumer"])
@pytest.mark.parametrize("what", ["batch", "offsets", "everything"])
@pytest.mark.parametrize("call", ["commit", "commit_soon", "commit_soon without a callback"])
def test_what_is_of_the_old_topic_is_refused_and_the_rest_is_stored(
    call: str, what: str, protocol: dict[str, Any], reset_is_known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether only the metadata have told of the new topic, or the consumer is about to read it already."""

    async def story(cluster: Cluster) -> None:
        cluster.append("other", b"x")
        reports: list[KafkaError | None] = []
        consumer = member(cluster, enable_auto_commit=False, **protocol)
        consumer.subscribe(["ev", "other"])
        async with consumer:
            await consumer.wait_assigned()
            for partition in (ZERO, OTHER):
                await consumer.position(partition)
            await asyncio.sleep(1)  # both are fetched meanwhile
            batch = await consumer.getmany(timeout_ms=5_000)
            assert set(batch) == {ZERO, OTHER}
            await recreate(cluster, None)
            await heard_of_it(cluster, consumer)
            if reset_is_known:
                await asyncio.sleep(1)
            given: dict[str, Any] = {"batch": batch, "offsets": batch.next_offsets, "everything": None}
            if call == "commit":
                with pytest.raises(CommitFailed, match=r"UNKNOWN_TOPIC_ID.*, ev-0: the topic was deleted"):
                    await consumer.commit(given[what])
            else:
                has_callback = call == "commit_soon"
                on_done = (lambda offsets, error: reports.append(error)) if has_callback else None
                consumer.commit_soon(given[what], on_done)
                await asyncio.sleep(1)
                await consumer.getmany(timeout_ms=0)
                assert [type(error) for error in reports] == [CommitFailed] * has_callback
                assert ("commit_soon failed: UNKNOWN_TOPIC_ID" in caplog.text) is not has_callback
            assert cluster.committed("g") == {OTHER: 1}

    with_old_records(story, topics={"ev": 1, "other": 1})


@pytest.mark.parametrize("call", ["commit", "commit_soon", "commit_soon without a callback"])
def test_a_topic_that_is_recreated_while_a_commit_is_under_way_is_named_beside_those_before(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit of everything that leaves one topic out waits for an earlier commit meanwhile."""

    async def story(cluster: Cluster) -> None:
        for topic in ("two", "other"):
            cluster.append(topic, b"x")
        consumer = member(cluster, enable_auto_commit=False)
        consumer.subscribe(["ev", "two", "other"])
        async with consumer:
            await consumer.wait_assigned()
            for topic in ("ev", "two", "other"):
                await consumer.position(TopicPartition(topic, 0))
            await asyncio.sleep(1)  # all are fetched meanwhile
            assert len(await consumer.getmany(timeout_ms=5_000)) == 3
            await recreate(cluster, None)
            await heard_of_it(cluster, consumer)
            cluster.intercept(OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
            earlier = asyncio.create_task(consumer.commit({OTHER: 0}))
            await asyncio.sleep(0)
            reports: list[KafkaError | None] = []
            if call == "commit":
                commit = asyncio.create_task(consumer.commit())
            else:
                consumer.commit_soon(None, None if "without" in call else lambda offsets, error: reports.append(error))
                commit = asyncio.create_task(consumer.commit({OTHER: 1}))  # returns after the report
            await asyncio.sleep(0.03)
            await recreate(cluster, None, topic="two")
            await heard_of_it(cluster, consumer, "two")
            cluster.heal()
            await earlier
            await asyncio.wait([commit])
            if call == "commit":
                reports.append(commit.exception())  # type: ignore[arg-type]
            if "without" in call:
                assert "commit_soon failed: UNKNOWN_TOPIC_ID: group 'g', ev-0, two-0" in caplog.text
            else:
                [error] = reports
                assert isinstance(error, CommitFailed)
                assert error.partitions == {ZERO, TopicPartition("two", 0)}
                assert "ev-0, two-0: the topic was deleted" in str(error)
            assert cluster.committed("g") == {OTHER: 1}

    with_old_records(story, topics={"ev": 1, "two": 1, "other": 1})


@pytest.mark.parametrize("protocol", [{}, BY_TOPIC_ID], ids=["classic", "consumer"])
def test_old_offsets_are_refused_and_the_rest_is_stored_though_the_group_has_assigned_the_new_topic(
    protocol: dict[str, Any],
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("other", b"x")
        consumer = member(cluster, enable_auto_commit=False, **protocol)
        consumer.subscribe(["ev", "other"])
        async with consumer:
            offsets: dict[TopicPartition, OffsetAndMetadata] = {}
            while offsets.keys() != {ZERO, OTHER}:
                offsets |= (await consumer.getmany(timeout_ms=5_000)).next_offsets
            await recreate(cluster, None)
            assert await read(consumer, NEW[-1]) == NEW
            with pytest.raises(CommitFailed, match=r"UNKNOWN_TOPIC_ID.*, ev-0: the topic was deleted"):
                await consumer.commit(offsets)
            assert cluster.committed("g") == {OTHER: 1}

    with_old_records(story, topics={"ev": 1, "other": 1})


def test_offsets_of_a_topic_that_the_group_has_yet_to_assign_are_refused_and_the_rest_is_stored() -> None:
    async def story(cluster: Cluster) -> None:
        consumer = member(cluster, enable_auto_commit=False, **BY_TOPIC_ID)
        consumer.subscribe(["ev", "other"])
        async with consumer:
            await consumer.wait_assigned()
            unheard = Hold()
            cluster.intercept(ConsumerGroupHeartbeatRequest, unheard, times=None)
            await recreate(cluster, None)
            await heard_of_it(cluster, consumer)
            new = OffsetAndMetadata(3, topic_id=cluster._state.topics.named("ev").topic_id)
            with pytest.raises(CommitFailed, match=r"UNKNOWN_TOPIC_ID.*, ev-0: .* not assigned the new one"):
                await consumer.commit({ZERO: new, OTHER: 1})
            assert cluster.committed("g") == {OTHER: 1}
            cluster.heal()
            unheard.release()

    with_old_records(story, topics={"ev": 1, "other": 1})


@pytest.mark.parametrize("as_version", ["4.0", "4.3"])
def test_a_commit_that_is_tried_until_the_name_exists_again_is_not_stored(as_version: str) -> None:
    """The offsets belong to the topic that exists when the caller commits, not to the one at the last attempt."""

    async def story(cluster: Cluster) -> None:
        async with member(cluster, enable_auto_commit=False, allow_auto_create_topics=False) as consumer:
            await read(consumer, OLD[-1])
            cluster.delete_topic("ev")
            cluster.intercept(OffsetCommitRequest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=None)
            commit = asyncio.create_task(consumer.commit({ZERO: 20}))
            await asyncio.sleep(0.03)
            assert not commit.done()
            cluster.create_topic("ev", 1)
            cluster.append("ev", *NEW)
            if as_version == "4.0":  # by name, and the coordinator can't tell: only the metadata can
                await heard_of_it(cluster, consumer)
                await asyncio.sleep(2)  # an attempt that was already on its way then is still refused
            cluster.heal()
            with pytest.raises(CommitFailed, match="deleted and created again"):
                await commit
            assert cluster.committed("g") == {}

    with_old_records(story, as_version=as_version, brokers=1)


class Losses(RebalanceListener):
    def __init__(self) -> None:
        self.lost: set[TopicPartition] = set()

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.lost |= partitions


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_commit_that_the_client_itself_refuses_does_not_cost_the_membership(assignor: str) -> None:
    """It raises what a coordinator's answer to a member that is gone raises. But no coordinator has said so:

    1. A commit() is tried again and again, and another one, of all that was returned, waits behind it.
    2. One of the topics is recreated while the application holds its records.
    3. The first one ends. The second one is refused now that its turn has come. The member keeps the other topic.
    """

    async def story(cluster: Cluster) -> None:
        cluster.append("other", *OLD)
        listener = Losses()
        options: dict[str, Any] = {"partition_assignment_strategy": [assignor], "enable_auto_commit": False}
        async with member(cluster, **options) as consumer:
            consumer.subscribe(["ev", "other"], listener=listener)
            while ZERO not in await consumer.getmany(timeout_ms=10_000):
                pass
            before = consumer.health().generation
            cluster.intercept(OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
            commits = [asyncio.create_task(consumer.commit({OTHER: 5})), asyncio.create_task(consumer.commit())]
            await asyncio.sleep(0.03)
            await recreate(cluster, None)
            await heard_of_it(cluster, consumer)
            cluster.heal()
            first, second = await asyncio.gather(*commits, return_exceptions=True)
            assert first is None
            assert isinstance(second, CommitFailed)
            await consumer.commit({OTHER: 7})
            assert cluster.committed("g") == {OTHER: 7}
            assert consumer.health().generation == before
            assert listener.lost == set()

    with_old_records(story, topics={"ev": 1, "other": 1})


@pytest.mark.parametrize("away", AWAY)
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_the_last_commit_of_a_revocation_is_not_stored_for_the_new_topic(assignor: str, away: float | None) -> None:
    """A member joins just then: what was read of the old topic is to be committed before the partition is given up."""

    async def story(cluster: Cluster) -> None:
        options: dict[str, Any] = {"partition_assignment_strategy": [assignor]}
        async with member(cluster, auto_commit_interval_ms=600_000, **options) as first:
            assert await read(first, OLD[-1]) == OLD
            async with member(cluster, **options) as second:
                both = [asyncio.create_task(read(one, b"nothing", within=20)) for one in (first, second)]
                await recreate(cluster, away)
                got = [value for task in both for value in await task]
                assert sorted(got) == sorted(NEW)

    with_old_records(story)


@pytest.mark.parametrize("away", [None, 5.0])
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_seek_made_in_the_old_topic_does_not_hold_in_the_new_one(by_hand: bool, away: float | None) -> None:
    """Also where nothing has been fetched since, because the partition is paused."""

    async def story(cluster: Cluster) -> None:
        consumer = member(cluster, enable_auto_commit=False, group_id=None if by_hand else "g")
        if by_hand:
            consumer.assign([ZERO])
        async with consumer:
            assert await read(consumer, OLD[-1]) == OLD
            consumer.pause(ZERO)
            consumer.seek(ZERO, 10)
            await recreate(cluster, away)
            if away is None:
                await heard_of_it(cluster, consumer)
            await consumer.getmany(timeout_ms=2_000)
            consumer.resume(ZERO)
            assert await read(consumer, NEW[-1]) == NEW

    with_old_records(story)


def test_without_a_policy_a_topic_is_known_to_be_recreated_while_its_position_is_validated() -> None:
    """No leader is waited for that knows the epoch of what was read: in the new topic there may never be one."""

    async def story(cluster: Cluster) -> None:
        cluster.move_leader("ev")
        cluster.append("ev", *OLD)
        consumer = member(cluster, group_id=None, auto_offset_reset="none")
        consumer.assign([ZERO])
        consumer.seek(ZERO, 0)
        async with consumer:
            assert await read(consumer, OLD[-1]) == OLD
            refused = cluster.intercept(OffsetForLeaderEpochRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None)
            cluster.move_leader("ev")
            consumer._runtime.cluster_client.metadata.request_update()
            await refused.caught(1)
            cluster.recreate_topic("ev")
            with pytest.raises(LogTruncated, match="deleted and created again"):
                async with asyncio.timeout(2):
                    await consumer.getone()

    virtually(story, topics={"ev": 1})


def test_an_offset_of_the_new_topic_is_committed_although_it_is_the_same_number() -> None:
    async def story(cluster: Cluster) -> None:
        async with member(cluster, auto_commit_interval_ms=200) as consumer:
            assert await read(consumer, OLD[-1]) == OLD
            await read(consumer, b"nothing", within=2)
            assert cluster.committed("g") == {ZERO: 20}
            await recreate(cluster, None, write=NEW[:20])
            assert await read(consumer, NEW[19]) == NEW[:20]
            await read(consumer, b"nothing", within=2)
            assert cluster.committed("g") == {ZERO: 20}

    with_old_records(story)


def test_commit_fails_while_records_of_the_old_topic_are_held() -> None:
    """Also after the fetcher has begun anew: commit() must not return as if those were stored. After a poll it
    succeeds.
    """

    async def story(cluster: Cluster) -> None:
        async with member(cluster, enable_auto_commit=False) as consumer:
            assert len((await consumer.getmany(timeout_ms=5_000))[ZERO]) == 20
            await recreate(cluster, None, write=())
            await heard_of_it(cluster, consumer)
            await asyncio.sleep(2)
            with pytest.raises(CommitFailed):
                await consumer.commit()
            assert cluster.committed("g") == {}
            assert await consumer.getmany(timeout_ms=0) == {}
            await consumer.commit()
            assert cluster.committed("g") == {ZERO: 0}

    with_old_records(story)


def test_commit_fails_while_records_of_the_old_topic_are_held_that_was_left() -> None:
    """Each time: a commit() that returns says that the offsets of what is held are stored."""

    async def story(cluster: Cluster) -> None:
        async with member(cluster, group_id="g", enable_auto_commit=False) as consumer:
            consumer.unsubscribe()
            consumer.assign([ZERO])
            assert await consumer.getmany(timeout_ms=10_000)
            consumer.unsubscribe()
            await recreate(cluster, None)
            for _ in range(3):
                with pytest.raises(CommitFailed):
                    await consumer.commit()
            consumer.assign([ZERO])
            assert await read(consumer, NEW[-1]) == NEW

    with_old_records(story)


def test_with_brokers_that_know_offsets_by_name_a_wrong_one_is_mended_as_soon_as_it_is_known() -> None:
    """The metadata are older than the topic, and such a commit carries nothing but the name."""

    async def story(cluster: Cluster) -> None:
        async with member(cluster, auto_commit_interval_ms=200) as consumer:
            assert len((await consumer.getmany(timeout_ms=5_000))[ZERO]) == 20
            unheard = Hold()
            cluster.intercept(MetadataRequest, unheard, times=1)
            consumer._runtime.cluster_client.metadata.request_update()
            await unheard.arrived()
            await recreate(cluster, None, write=())
            assert await consumer.getmany(timeout_ms=1_000) == {}
            assert cluster.committed("g") == {ZERO: 20}
            unheard.release()
            assert await consumer.getmany(timeout_ms=2_000) == {}
            assert cluster.committed("g") == {ZERO: 0}

    with_old_records(story, as_version="4.0")


def test_a_commit_names_the_id_of_each_offset_and_no_other() -> None:
    async def story(cluster: Cluster) -> None:
        named: list[Any] = []
        cluster.intercept(OffsetCommitRequest, lambda exchange: named.extend(exchange.request.topics))
        old = cluster._state.topics.named("ev").topic_id
        async with member(cluster, enable_auto_commit=False) as consumer:
            batch = await consumer.getmany(timeout_ms=5_000)
            assert batch.next_offsets == {ZERO: OffsetAndMetadata(20, "", 0)}
            assert batch.next_offsets[ZERO].topic_id == old
            await consumer.commit(batch)
            committed = (await consumer.committed(ZERO))[ZERO]
            assert committed is not None
            assert committed.topic_id == old
            await recreate(cluster, None)
            with pytest.raises(CommitFailed):
                await consumer.commit({ZERO: committed})
        assert {topic.topic_id for topic in named} == {old}

    with_old_records(story)


@pytest.mark.kafka
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("group", "away"),
    [
        *product([{"partition_assignment_strategy": [one]} for one in ASSIGNORS], [0.05, 0.6, 1.5]),
        (BY_TOPIC_ID, 0.05),
        pytest.param(BY_TOPIC_ID, 0.6, marks=pytest.mark.long),
        pytest.param(BY_TOPIC_ID, 1.5, marks=pytest.mark.long),
    ],
)
async def test_no_record_of_a_new_topic_is_passed_over_with_kafka(
    kafka: LocalKafka, topic_name: str, group: dict[str, Any], away: float
) -> None:
    """A member polls, or holds a batch and commits it, while the topic is recreated three times."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    tp = TopicPartition(topic_name, 0)
    kafka.create_topic(topic_name)
    await asyncio.to_thread(produce, kafka.bootstrap, topic_name, [b"0 %d" % number for number in range(20)])
    consumer = Consumer(
        bootstrap_servers=kafka.bootstrap,
        group_id=topic_name,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        allow_auto_create_topics=False,
        **group,
    )
    consumer.subscribe([topic_name])
    async with consumer, asyncio.timeout(200):
        assert len(await read(consumer, b"0 19")) == 20
        for number in range(1, 4):
            polls = number != 2  # else it holds what was returned last
            polling = asyncio.create_task(read(consumer, b"%d 29" % number, within=60)) if polls else None
            await asyncio.to_thread(admin.delete_topics([topic_name])[topic_name].result, 30)
            await asyncio.sleep(away)
            await created(kafka, topic_name)
            new = [b"%d %d" % (number, index) for index in range(30)]
            await asyncio.to_thread(produce, kafka.bootstrap, topic_name, new)
            got = await (polling or read(consumer, new[-1], within=60))
            assert got == new
        await read(consumer, b"nothing", within=1)
        async with asyncio.timeout(30):
            while (committed := (await consumer.committed(tp))[tp]) is None or committed.offset != 30:
                assert committed is None or committed.offset <= 30
                await consumer.getmany(timeout_ms=100)  # its auto-commit is still under way


async def created(kafka: LocalKafka, name: str) -> None:
    """A broker still refuses the name for a moment after the topic is deleted."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await asyncio.to_thread(kafka.create_topic, name)
            except BrokerError:
                await asyncio.sleep(0.05)
