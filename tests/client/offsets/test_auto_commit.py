"""Auto-commit when the application gives up its partitions itself: unsubscribe(), and another assign()."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.client.cluster.metadata import Metadata
from aiokc.client.offsets.auto_commit import AutoCommit
from aiokc.client.offsets.group_offsets import Offsets
from aiokc.client.offsets.unknown_topics import UnknownTopics
from aiokc.config import ClientConfig
from aiokc.core.backoff import Backoff
from aiokc.core.subscription.state import Subscription
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, KafkaError, RebalanceInProgress
from aiokc.net.pool import Pool
from aiokc.testing import Cluster
from aiokc.testing.faults import Interception, delay, lose_answer, refuse_afterwards
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.types import OffsetAndMetadata, TopicPartition
from aiokc.wire.messages.group import LeaveGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest

from ..group.classic.scripted_group import ScriptedGroup, scripted_group
from ..group.group_member import GroupMember, soon
from ..listening import Noting, Polling, listening
from ..virtually import Asked, virtually

pytestmark = pytest.mark.timeout(30)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
SLOW = {"auto_commit_interval_ms": 60_000}
IDLE = SLOW | {"fetch_max_wait_ms": 25_000, "heartbeat_interval_ms": 20_000, "session_timeout_ms": 60_000}


def commits(brokers: ScriptedGroup) -> list[tuple[int, dict[int, int]]]:
    """Note each OffsetCommit: the generation that it named, and its offsets by partition."""
    return [
        (
            request.generation_id_or_member_epoch,
            {part.partition_index: part.committed_offset for topic in request.topics for part in topic.partitions},
        )
        for request in brokers.of(OffsetCommitRequest)
    ]


async def test_unsubscribe_commits_what_earlier_calls_returned_before_it_leaves_the_group() -> None:
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", "t", **SLOW) as member:
        await member.assigned(2)
        member.take(ZERO, 5)
        member.take(ONE, 3)
        member.poll()
        member.take(ZERO, 9)
        member.unsubscribe()
        assert not member.assignment
        await brokers.until(lambda: bool(brokers.of(LeaveGroupRequest)))
        assert commits(brokers) == [(1, {0: 5, 1: 3})], "as a member, and without what is in the user's hands"
        kinds = [type(asked.request) for asked in brokers.asked]
        assert kinds.index(OffsetCommitRequest) < kinds.index(LeaveGroupRequest)


async def test_unsubscribe_commits_nothing_twice() -> None:
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", "t", **SLOW) as member:
        await member.assigned(2)
        member.take(ZERO, 5)
        await member.membership.commit(member.subscription.consumed(), timeout=10)
        member.unsubscribe()
        await brokers.until(lambda: bool(brokers.of(LeaveGroupRequest)))
        assert commits(brokers) == [(1, {0: 5})]


async def test_unsubscribe_and_stop_at_once() -> None:
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", "t", **SLOW) as member:
        await member.assigned(2)
        member.take(ZERO, 5)
        member.poll()
        member.unsubscribe()
        await soon(member.leave())
        assert brokers.committed == {ZERO: 5}


async def test_another_subscription_right_after_unsubscribe_loses_no_commit() -> None:
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", "t", **SLOW) as member:
        await member.assigned(2)
        member.take(ZERO, 5)
        member.poll()
        member.unsubscribe()
        member.subscribe("t")
        await member.assigned(2)
        assert brokers.committed == {ZERO: 5}


async def test_another_assignment_by_hand_commits_the_former_one_at_once() -> None:
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", **SLOW) as member:
        member.assign(ZERO)
        member.take(ZERO, 5)
        member.poll()
        member.assign(ONE)
        await brokers.until(lambda: brokers.committed == {ZERO: 5})
        assert commits(brokers) == [(-1, {0: 5})], "outside of the group"
        member.take(ONE, 7)
        member.poll()
        member.unsubscribe()
        await brokers.until(lambda: brokers.committed == {ZERO: 5, ONE: 7})


@pytest.mark.parametrize("by_hand", [False, True], ids=["of the group", "by hand"])
async def test_a_partition_that_was_left_and_is_assigned_again_at_once_is_read_on(by_hand: bool) -> None:
    """Its newest offset is not stored yet: the committed one would bring the processed records again."""
    topics = () if by_hand else ("t",)
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", *topics, **SLOW) as member:
        if by_hand:
            member.assign(ZERO)
        else:
            await member.assigned(2)
        member.take(ZERO, 5)
        member.poll()
        member.take(ZERO, 9)
        if by_hand:
            member.assign(ONE)
        else:
            member.unsubscribe()
        member.assign(ZERO)
        assert member.subscription[ZERO].position == 5, "what it held comes again"
        await brokers.until(lambda: bool(brokers.committed))
        assert brokers.committed == {ZERO: 5}


@pytest.mark.parametrize("auto_commit", [False, True])
async def test_a_partition_of_which_nothing_is_to_be_stored_begins_where_the_group_has_committed(
    auto_commit: bool,
) -> None:
    options = SLOW | {"enable_auto_commit": auto_commit}
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", **options) as member:
        member.assign(ZERO)
        member.take(ZERO, 5)
        member.poll()
        if auto_commit:
            await member.membership.commit({ZERO: OffsetAndMetadata(5)}, timeout=10)
        member.unsubscribe()
        member.assign(ZERO)
        assert not member.subscription[ZERO].has_position


def test_no_processed_record_comes_again_after_another_way_to_assign_it() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1", partition=0)
        async with listening(cluster, "t", enable_auto_commit=True, auto_commit_interval_ms=60_000) as reader:
            assert len((await reader.getmany())[ZERO]) == 2
            await reader.getmany(timeout_ms=100)  # so these are processed
            reader.unsubscribe()
            reader.assign([ZERO])
            assert await reader.getmany(timeout_ms=60_000) == {}
            assert cluster.committed("g") == {ZERO: 2}

    virtually(story, topics={"t": 1}, brokers=1)


@pytest.mark.parametrize(("by_hand", "left_by"), [(False, "unsubscribe"), (True, "unsubscribe"), (True, "assign")])
def test_what_is_processed_while_an_auto_commit_is_under_way_is_stored_after_it(by_hand: bool, left_by: str) -> None:
    """The application comes back for more, and leaves, before the coordinator has stored less than that."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"v"] * 40)
        options: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 500, "max_poll_records": 10}
        async with listening(cluster, *(() if by_hand else ("t",)), **options) as reader:
            if by_hand:
                reader.assign([ZERO])
            under_way = cluster.intercept(OffsetCommitRequest, delay(0.2), times=1)
            for _ in range(2):  # 0 to 9 are processed
                assert len((await reader.getmany())[ZERO]) == 10
            await under_way.caught(1)
            assert len((await reader.getmany())[ZERO]) == 10  # 10 to 19 are processed, 20 to 29 held
            if left_by == "assign":
                reader.assign([ONE])
            else:
                reader.unsubscribe()
            await asyncio.sleep(1)
            assert cluster.committed("g")[ZERO] == 20

    virtually(story, topics={"t": 2}, brokers=1)


def test_a_commit_of_less_after_the_partition_was_left_stays() -> None:
    """The application takes the partition back, to have these records again: auto-commit does not undo that."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"v"] * 40)
        options: dict[str, Any] = {
            "enable_auto_commit": True,
            "auto_commit_interval_ms": 60_000,
            "max_poll_records": 10,
        }
        async with listening(cluster, **options) as reader:
            reader.assign([ZERO])
            for _ in range(3):
                assert len((await reader.getmany())[ZERO]) == 10
            reader.assign([ONE])
            await reader.commit({ZERO: 5})
            await asyncio.sleep(200)
        assert cluster.committed("g")[ZERO] == 5

    virtually(story, topics={"t": 2}, brokers=1)


@pytest.mark.parametrize("stored", [False, True])
def test_an_application_that_goes_from_partition_to_partition_gets_no_record_twice(stored: bool) -> None:
    """What it held when it left a partition is processed once it asks for more, though that is of another one.

    ``stored``: all that was processed by then is stored before it leaves, or before it asks.
    """

    async def story(cluster: Cluster) -> None:
        for partition in (0, 1):
            cluster.append("t", *[b"v"] * 40, partition=partition)
        options: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 1_000, "max_poll_records": 10}
        read: list[tuple[TopicPartition, int]] = []
        async with listening(cluster, **options) as reader:
            for _ in range(3):
                for tp in (ZERO, ONE):
                    reader.assign([tp])
                    await asyncio.sleep(2 if stored else 0)
                    read += [(tp, record.offset) for record in (await reader.getmany())[tp]]
                    await asyncio.sleep(2 if stored else 0)
        assert read == [(tp, 10 * turn + i) for turn in range(3) for tp in (ZERO, ONE) for i in range(10)]
        assert cluster.committed("g") == {ZERO: 30, ONE: 30}

    virtually(story, topics={"t": 2}, brokers=1)


def test_what_it_held_when_it_left_is_stored_as_soon_as_it_asks_for_more() -> None:
    """The partition may be given to another consumer by hand: what is stored later would undo that one's commits."""

    async def story(cluster: Cluster) -> None:
        for partition in (0, 1):
            cluster.append("t", *[b"v"] * 40, partition=partition)
        options: dict[str, Any] = SLOW | {"enable_auto_commit": True, "max_poll_records": 10}
        async with listening(cluster, **options) as reader:
            reader.assign([ZERO])
            await reader.getmany()
            reader.assign([ONE])
            await asyncio.sleep(1)
            assert cluster.committed("g")[ZERO] == 0
            await reader.getmany()
            await asyncio.sleep(1)
            assert cluster.committed("g")[ZERO] == 10

    virtually(story, topics={"t": 2}, brokers=1)


@pytest.mark.parametrize("fails", [False, True], ids=["well", "by an exception"])
@pytest.mark.parametrize(("by_hand", "left_by"), [(False, "unsubscribe"), (True, "unsubscribe"), (True, "assign")])
def test_the_last_batch_of_a_block_is_stored_though_its_partition_was_left(
    by_hand: bool, left_by: str, fails: bool
) -> None:
    """A block that ends by an exception has not processed it."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"v"] * 40)
        options: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 9_000, "max_poll_records": 10}
        with pytest.raises(ZeroDivisionError) if fails else nullcontext():
            async with listening(cluster, *(() if by_hand else ("t",)), **options) as reader:
                if by_hand:
                    reader.assign([ZERO])
                for _ in range(2):
                    assert len((await reader.getmany())[ZERO]) == 10
                if left_by == "assign":
                    reader.assign([ONE])
                else:
                    reader.unsubscribe()
                assert 1 / (not fails)
        assert cluster.committed("g")[ZERO] == (10 if fails else 20)

    virtually(story, topics={"t": 2}, brokers=1)


# The group has other members by then


def options_of(cluster: Cluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 500,
    }


async def read_by_hand(cluster: Cluster) -> Consumer:
    """A consumer that has processed ten records of t-0, of which nothing is stored yet."""
    consumer = Consumer(**options_of(cluster) | {"auto_commit_interval_ms": 20_000})
    await consumer.start()
    consumer.assign([ZERO])
    assert len((await consumer.getmany(timeout_ms=5_000, max_records=10))[ZERO]) == 10
    await consumer.getmany(timeout_ms=0, max_records=1)
    return consumer


async def go_on(consumer: Consumer, seconds: float, *, call: float = 0.5) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        await consumer.getmany(timeout_ms=round(call * 1_000))


@pytest.mark.parametrize("pause", [0.0, 1.0])
@pytest.mark.parametrize(
    "protocol", [{"partition_assignment_strategy": ["cooperative-sticky"]}, {"group_protocol": "consumer"}]
)
def test_a_member_does_not_store_what_it_had_read_by_hand(protocol: dict[str, Any], pause: float) -> None:
    """The group takes the commits of its members for any partition, also for those of another member."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"x"] * 100)
        consumer = await read_by_hand(cluster)
        async with consumer, Consumer("t", "u", **options_of(cluster), **protocol) as owner:
            await go_on(owner, 5)
            assert cluster.committed("g")[ZERO] == 100
            consumer.unsubscribe()
            await asyncio.sleep(pause)
            consumer.subscribe(["u"])
            await asyncio.gather(go_on(consumer, 25), go_on(owner, 25))
            assert (len(consumer.assignment()), ZERO in owner.assignment()) == (1, True)
            assert cluster.committed("g")[ZERO] == 100

    virtually(story, topics={"t": 1, "u": 2}, brokers=1)


@pytest.mark.parametrize("leave", ["unsubscribe", "assign"])
def test_what_the_group_has_refused_is_not_stored_when_its_members_have_gone(leave: str) -> None:
    """They may have committed more since."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"x"] * 100)
        async with await read_by_hand(cluster) as consumer:
            async with Consumer("t", **options_of(cluster)) as owner:
                await go_on(owner, 5)
                if leave == "unsubscribe":
                    consumer.unsubscribe()
                else:
                    consumer.assign([TopicPartition("u", 0)])
                await asyncio.sleep(1)
            assert cluster.committed("g")[ZERO] == 100
            await asyncio.sleep(25)
            assert cluster.committed("g")[ZERO] == 100

    virtually(story, topics={"t": 1, "u": 1}, brokers=1)


@pytest.mark.parametrize("unsubscribes", [False, True])
@pytest.mark.parametrize(
    "options", [{"group_id": None}, {"enable_auto_commit": False}, {}], ids=["no group", "by hand", "auto-commit"]
)
def test_nothing_is_kept_of_partitions_that_were_read_and_left_long_ago(
    options: dict[str, Any], unsubscribes: bool
) -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(40):
            cluster.append("t", b"x", partition=number)
        async with Consumer(**options_of(cluster) | options) as consumer:
            for number in range(39):
                consumer.assign([TopicPartition("t", number)])
                await go_on(consumer, 0.2)
                if unsubscribes:
                    consumer.unsubscribe()
            for number in range(1_000):  # these are left before they have a position
                consumer.assign([TopicPartition("u", number)])
                if unsubscribes:
                    consumer.unsubscribe()
            consumer.assign([TopicPartition("t", 39)])
            await go_on(consumer, 3)
            left = consumer._runtime.subscription.left
            assert not any((left.processed, left.consumed, left.held, left.positions, left.by_hand))
            if not options:
                assert len(cluster.committed("g")) == 40

    virtually(story, topics={"t": 40, "u": 1000}, brokers=1)


# Another client commits, or Kafka forgets


@pytest.mark.parametrize("how", ["seek_to_committed", "unsubscribe"])
def test_what_is_processed_again_is_stored_again(how: str) -> None:
    """Another client has set the group back since, and the consumer has followed it."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"x"] * 100)
        async with Consumer(**options_of(cluster)) as consumer:
            consumer.assign([ZERO])
            await go_on(consumer, 3)
            if how == "unsubscribe":
                consumer.unsubscribe()
                await asyncio.sleep(1)
            async with Consumer(**options_of(cluster) | {"enable_auto_commit": False}) as operator:
                operator.assign([ZERO])
                await operator.commit({ZERO: 50})
            if how == "unsubscribe":
                consumer.assign([ZERO])
            else:
                await consumer.seek_to_committed()
            assert [len(batch) for batch in (await consumer.getmany(timeout_ms=5_000)).values()] == [50]
            assert cluster.committed("g") == {ZERO: 50}
            await go_on(consumer, 3)
            assert cluster.committed("g") == {ZERO: 100}

    virtually(story, topics={"t": 1}, brokers=1)


def test_what_was_stored_before_another_member_had_the_partition_is_not_relied_on_afterwards() -> None:
    """The other one has set the group back. The listener seeks to the very offset that auto-commit had stored."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"x"] * 20)
        range_only: dict[str, Any] = {"partition_assignment_strategy": ["range"], "auto_commit_interval_ms": 100}
        hears = Noting()
        member = listening(cluster, "t", listener=hears, client_id="z", enable_auto_commit=True, **range_only)
        async with member, Polling(member):
            await hears.until(lambda: hears.count("assigned") == 1)
            await asyncio.sleep(1)
            assert cluster.committed("g") == {ZERO: 20}

            async def seek(partitions: frozenset[TopicPartition]) -> None:
                for tp in partitions:
                    member.seek(tp, 20)

            hears.on["assigned"] = seek
            other_hears = Noting()
            other = listening(cluster, "t", listener=other_hears, client_id="a", **range_only)
            async with other, Polling(other):
                await other_hears.until(lambda: bool(other_hears.holds))
                await other.commit({ZERO: 5})
            assert cluster.committed("g") == {ZERO: 5}
            await hears.until(lambda: bool(hears.holds))
            await asyncio.sleep(1)
            assert cluster.committed("g") == {ZERO: 20}

    virtually(story, topics={"t": 1}, brokers=1)


@pytest.mark.parametrize("stored", ["before it was left", "after it was left"])
def test_what_was_stored_before_it_was_left_is_not_relied_on_afterwards(stored: str) -> None:
    """Others may have committed since; the application seeks to the very offset that auto-commit had stored."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"x"] * 20)
        is_before = stored == "before it was left"
        async with Consumer(**options_of(cluster) | ({} if is_before else SLOW)) as consumer:
            consumer.assign([ZERO])
            await go_on(consumer, 3)
            assert cluster.committed("g") == ({ZERO: 20} if is_before else {})
            consumer.unsubscribe()
            await asyncio.sleep(1)
            assert cluster.committed("g") == {ZERO: 20}
            async with Consumer(**options_of(cluster) | {"enable_auto_commit": False}) as operator:
                operator.assign([ZERO])
                await operator.commit({ZERO: 5})
            consumer.assign([ZERO])
            consumer.seek(ZERO, 20)
            await go_on(consumer, 3)
        assert cluster.committed("g") == {ZERO: 20}

    virtually(story, topics={"t": 1}, brokers=1)


@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "as a member"])
def test_by_hand_what_is_stored_is_stored_again_each_hour(by_hand: bool) -> None:
    """Kafka forgets it otherwise: for a group without members, the time since the last commit is what counts."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        asked = Asked(cluster, loop)
        cluster.append("t", b"x")
        async with Consumer(**options_of(cluster) | IDLE) as consumer:
            if by_hand:
                consumer.assign([ZERO])
            else:
                consumer.subscribe(["t"])
            await go_on(consumer, (125 if by_hand else 65) * 60, call=30.0)
            stored = [when for when, _ in asked.of(OffsetCommitRequest)]
            assert len(stored) == (3 if by_hand else 1)
            assert all(later - when <= 3_660 for when, later in pairwise(stored))

    virtually(story, topics={"t": 1}, brokers=1)


@pytest.mark.parametrize("what", ["an hour is over", "it is asked for"])
def test_what_was_stored_before_it_was_left_is_not_stored_again(what: str) -> None:
    """It is another consumer's by now."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"x"] * 100)
        async with Consumer(**options_of(cluster) | IDLE) as consumer, Consumer(**options_of(cluster)) as other:
            consumer.assign([ZERO])
            assert len((await consumer.getmany(timeout_ms=5_000, max_records=10))[ZERO]) == 10
            consumer.pause(ZERO)
            assert await consumer.getmany(timeout_ms=0) == {}
            await asyncio.sleep(61)
            assert cluster.committed("g") == {ZERO: 10}
            consumer.assign([TopicPartition("u", 0)])
            other.assign([ZERO])
            await go_on(other, 2)
            assert cluster.committed("g")[ZERO] == 100
            await other.stop()
            if what == "it is asked for":
                await consumer.committed(ZERO)
                await asyncio.sleep(61)
            else:
                await go_on(consumer, 70 * 60, call=30.0)
            assert cluster.committed("g")[ZERO] == 100

    virtually(story, topics={"t": 1, "u": 1}, brokers=1)


async def test_where_there_is_nothing_to_store_nothing_is_asked_for() -> None:
    """It does not even ask whether this member may commit: the refusal would be a warning every few seconds, and a
    rebalance would wait for it.
    """
    calls: list[Offsets] = []

    async def refuse(offsets: Offsets, *, timeout: float, retry: bool, unknown: UnknownTopics) -> None:
        calls.append(offsets)
        raise RebalanceInProgress(ErrorCode.REBALANCE_IN_PROGRESS, "the group assigns")

    subscription = Subscription()
    backoff = Backoff(0.1, 1.0, Random(1))
    config = ClientConfig(bootstrap_servers="a:1")
    unknown = UnknownTopics(Metadata(config, Pool(config, random=Random(1)), Random(1)))
    commits = AutoCommit("g", subscription, refuse, 5.0, 5.0, backoff, unknown, lambda tp, offset: False)
    await commits.hand_over(5.0)
    subscription.assign([ZERO])
    await commits.hand_over(5.0)
    subscription.seek(ZERO, 5)
    commits.stored({ZERO: OffsetAndMetadata(5)})
    await commits.hand_over(5.0)
    assert calls == []
    assert commits.error is None


def test_an_error_is_told_until_what_it_was_about_is_stored() -> None:
    """By the application itself, too: then auto-commit has nothing to store that could show that it works again."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"x"] * 20)
        refused = cluster.intercept(OffsetCommitRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        async with Consumer("t", **options_of(cluster)) as consumer:
            batch = await consumer.getmany(timeout_ms=5_000)
            await asyncio.sleep(1)
            error = consumer.health().last_error
            assert isinstance(error, AuthorizationFailed)
            refused.cancel()
            await consumer.commit(batch)
            await asyncio.sleep(1)
            assert consumer.health().last_error is None

    virtually(story, topics={"t": 1}, brokers=1)


# A commit of the application got no answer: the group may have its offset, or the one before


async def cancelled(consumer: Consumer, under_way: Interception) -> None:
    commit = asyncio.create_task(consumer.commit())
    await under_way.caught(1)
    commit.cancel()
    assert isinstance((await asyncio.gather(commit, return_exceptions=True))[0], asyncio.CancelledError)


async def unanswered(consumer: Consumer, under_way: Interception) -> None:
    """commit_soon() sends once."""
    told: list[KafkaError | None] = []
    consumer.commit_soon(on_done=lambda offsets, error: told.append(error))
    await under_way.caught(1)
    await consumer.commit({})
    assert [error is None for error in told] == [False]


IN_DOUBT = pytest.mark.parametrize(
    ("end", "fault"),
    [
        (cancelled, delay(0.2)),
        (unanswered, lose_answer()),
        (unanswered, refuse_afterwards(ErrorCode.COORDINATOR_NOT_AVAILABLE)),
    ],
    ids=["cancelled", "connection lost", "not replicated in time"],
)
WAYS = pytest.mark.parametrize("way", ["by hand", "classic", "consumer"])


@asynccontextmanager
async def reading(cluster: Cluster, way: str) -> AsyncIterator[Consumer]:
    options = options_of(cluster) | ({} if way == "by hand" else {"group_protocol": way})
    async with Consumer(**options) as consumer:
        if way == "by hand":
            consumer.assign([ZERO])
        else:
            consumer.subscribe(["t"])
        yield consumer


@WAYS
@IN_DOUBT
def test_what_is_processed_again_is_stored_again_after_a_commit_that_went_back(way: str, end: Any, fault: Any) -> None:
    """The group may have been taken back, though the application has no answer that says so."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"x"] * 20)
        async with reading(cluster, way) as consumer:
            await go_on(consumer, 5)
            assert cluster.committed("g") == {ZERO: 20}
            under_way = cluster.intercept(OffsetCommitRequest, fault, times=1)
            consumer.seek(ZERO, 5)
            await end(consumer, under_way)
            await go_on(consumer, 5)
            assert cluster.committed("g") == {ZERO: 20}

    virtually(story, topics={"t": 1}, brokers=1)


@WAYS
@IN_DOUBT
def test_records_that_are_read_again_are_not_skipped_after_a_commit_of_them(way: str, end: Any, fault: Any) -> None:
    """The application gives its commit up, and does the records again: should it crash then, they must come again."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"x"] * 20)
        async with reading(cluster, way) as consumer:
            assert len((await consumer.getmany(timeout_ms=10_000))[ZERO]) == 20
            await asyncio.sleep(1)
            assert cluster.committed("g") == {ZERO: 0}
            under_way = cluster.intercept(OffsetCommitRequest, fault, times=1)
            await end(consumer, under_way)
            consumer.seek(ZERO, 0)
            assert len((await consumer.getmany(timeout_ms=10_000))[ZERO]) == 20
            await asyncio.sleep(1)
            assert cluster.committed("g") == {ZERO: 0}

    virtually(story, topics={"t": 1}, brokers=1)
