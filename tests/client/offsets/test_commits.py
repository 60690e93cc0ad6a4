"""Commits by the application: a batch, offsets, or everything; waited for or not; and at the end of ``async with``."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokc import Consumer, ConsumerRecords, OffsetAndMetadata, TopicPartition
from aiokc.client.aio.signal import Signal
from aiokc.client.offsets.commit_order import CommitOrder
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthorizationFailed,
    CommitFailed,
    ConfigError,
    ConsumerClosed,
    KafkaError,
    RequestTimedOut,
    UsageError,
)
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold, drop
from aiokc.types import BatchEnd
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest
from aiokc.wire.messages.offsets import ListOffsetsRequest, OffsetCommitRequest
from tests.suite.unused_faults import may_be_unused

from ..virtually import virtually

pytestmark = pytest.mark.timeout(30)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Two partitions with ten records each."""
    async with Cluster(topics={"t": 2}) as cluster:
        for partition in (0, 1):
            cluster.append("t", *(b"%d" % number for number in range(10)), partition=partition)
        yield cluster


def consumer(cluster: Cluster, *topics: str, **options: Any) -> Consumer:
    return Consumer(
        *topics,
        bootstrap_servers=cluster.bootstrap,
        **{
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 100,
            "retry_backoff_ms": 10,
            **options,
        },
    )


async def committed(cluster: Cluster, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
    async with consumer(cluster) as reader:
        found = await reader.committed(*partitions)
    return {tp: None if offset is None else offset.offset for tp, offset in found.items()}


def sent_commits(cluster: Cluster) -> list[dict[int, int]]:
    """Note the offsets by partition of each OffsetCommit from here on."""
    commits: list[dict[int, int]] = []

    def note(exchange: Exchange) -> None:
        parts = [part for topic in exchange.request.topics for part in topic.partitions]
        commits.append({part.partition_index: part.committed_offset for part in parts})

    may_be_unused(cluster.intercept(OffsetCommitRequest, note))
    return commits


class Outcomes:
    """Callbacks of commit_soon, and the outcome of each, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, type[KafkaError] | None]] = []

    def named(self, name: str) -> Any:
        return lambda offsets, error: self.seen.append((name, type(error) if error else None))


# A batch


async def test_a_batch_is_committed_exactly_whatever_was_returned_since(cluster: Cluster) -> None:
    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        first = await reader.getmany(max_records=3)
        assert [record.offset for record in first[ZERO]] == [0, 1, 2]
        await reader.getmany(max_records=4)
        await reader.commit(first)
        assert await reader.committed(ZERO) == {ZERO: OffsetAndMetadata(3, "", 0)}
        await reader.commit()
        assert await reader.committed(ZERO) == {ZERO: OffsetAndMetadata(7, "", 0)}


async def test_a_partition_that_was_deleted_from_the_batch_is_not_committed(cluster: Cluster) -> None:
    async with consumer(cluster) as reader:
        reader.assign([ZERO, ONE])
        batch = await reader.getmany()
        while len(batch) < 2:
            reader.seek(ZERO, 0)
            reader.seek(ONE, 0)
            batch = await reader.getmany()
        del batch[ONE]
        assert batch.next_offsets == {ZERO: OffsetAndMetadata(10, "", 0)}
        await reader.commit(batch)
        assert await reader.committed(ZERO, ONE) == {ZERO: OffsetAndMetadata(10, "", 0), ONE: None}


async def test_an_empty_batch_commits_nothing(cluster: Cluster) -> None:
    commits = sent_commits(cluster)
    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        await reader.getmany()
        empty = await reader.getmany(timeout_ms=0)
        assert empty == {}
        assert isinstance(empty, ConsumerRecords)
        await reader.commit(empty)
        assert commits == []


async def test_offsets_with_metadata_and_leader_epoch_are_stored_as_given(cluster: Cluster) -> None:
    async with consumer(cluster) as reader:
        reader.assign([ZERO, ONE])
        await reader.commit({ZERO: OffsetAndMetadata(4, "half-way", 0), ONE: 6})
        assert await reader.committed() == {ZERO: OffsetAndMetadata(4, "half-way", 0), ONE: OffsetAndMetadata(6)}


@pytest.mark.parametrize("wrong", [[], True, "7", None, 1.5])
async def test_what_is_no_offset_is_refused(cluster: Cluster, wrong: Any) -> None:
    async with consumer(cluster) as reader:
        with pytest.raises(ConfigError, match=r"t-0: give the next offset.*getmany"):
            await reader.commit({ZERO: wrong})
        with pytest.raises(ConfigError, match="t-0"):
            reader.commit_soon({ZERO: wrong})
        with pytest.raises(ConfigError, match="negative"):
            await reader.commit({ZERO: -1})


async def test_without_a_group_there_is_nothing_to_commit_to(cluster: Cluster) -> None:
    async with consumer(cluster, "t", group_id=None) as reader:
        with pytest.raises(UsageError, match=r"commit_soon\(\) needs a group"):
            reader.commit_soon()


async def test_a_batch_of_an_earlier_assignment_is_refused_though_its_partitions_came_back(cluster: Cluster) -> None:
    """In between, another member may have read on and committed more: this commit would set the group back."""
    async with consumer(cluster, "t") as reader:
        held = await reader.getmany()
        old = {tp: position.assignment_token for tp, position in reader._runtime.subscription.assigned.items()}
        cluster.intercept(HeartbeatRequest, ErrorCode.ILLEGAL_GENERATION, times=1)
        async with asyncio.timeout(20):
            while reader._runtime.subscription.given_up(old) != old.keys() or len(reader.assignment()) < 2:
                await reader._runtime.changed.wait()
        commits = sent_commits(cluster)
        for call in (held, None):
            with pytest.raises(CommitFailed, match="t-"):
                await reader.commit(call)
        again = await reader.getmany()
        with pytest.raises(CommitFailed, match="nothing was committed"):
            await reader.commit(held)
        assert commits == []
        await reader.commit(again)
        assert len(commits) == 1, "a failed commit is nothing that lasts"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_after_unsubscribe_nothing_is_committed_that_the_group_has_taken_over(protocol: str) -> None:
    """Another member has read on, committed and left: the group has no member, and takes a commit from anyone."""

    async def story(cluster: Cluster) -> None:
        def member() -> Consumer:
            options: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "group_protocol": protocol}
            return Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g", **options)

        cluster.append("t", *(b"%d" % number for number in range(10)))
        async with member() as first:
            batch = await first.getmany(max_records=3)
            first.unsubscribe()
            assert first._runtime.membership is not None
            await first.commit(batch)  # until then they count as assigned
            while first._runtime.subscription.hold(ZERO) is not None or cluster.members("g"):
                await first._runtime.membership.moved.wait(1)
            async with member() as second:
                read = 3
                while read < 10:
                    read += sum(map(len, (await second.getmany()).values()))
                await second.commit()
            refused: list[KafkaError | None] = []
            for what in (batch, {ZERO: 3}):
                with pytest.raises(CommitFailed, match="t-0: not assigned"):
                    await first.commit(what)
                first.commit_soon(what, lambda offsets, error: refused.append(error))
            await first.commit()
            assert [type(error) for error in refused] == [CommitFailed, CommitFailed]
            assert cluster.committed("g")[ZERO] == 10
            first.assign([ONE])
            await first.commit({ZERO: 4})  # assigned by hand, the application knows what it does
            assert cluster.committed("g")[ZERO] == 4

    virtually(story, topics={"t": 1})


async def test_a_batch_of_a_manual_assignment_can_be_committed_after_another_one(cluster: Cluster) -> None:
    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        batch = await reader.getmany()
        reader.assign([ONE])
        await reader.commit(batch)
        assert await reader.committed(ZERO) == {ZERO: OffsetAndMetadata(10, "", 0)}


@pytest.mark.parametrize("of", [{ZERO: 10, ONE: 10}, None], ids=["offsets", "all that was returned"])
async def test_a_commit_that_waits_for_the_next_generation_does_not_undo_a_newer_one(cluster: Cluster, of: Any) -> None:
    """A cooperative member: the older commit is refused and waits, the newer one is accepted in the old generation."""
    async with consumer(cluster, "t", partition_assignment_strategy=["cooperative-sticky"]) as reader:
        count = 0
        while count < 20:
            count += sum(map(len, (await reader.getmany()).values()))
        hold = Hold()
        cluster.intercept(JoinGroupRequest, hold)
        refusal = cluster.intercept(OffsetCommitRequest, ErrorCode.REBALANCE_IN_PROGRESS, times=1)
        older = asyncio.ensure_future(reader.commit(of))
        await refusal.caught()
        await hold.arrived()
        await reader.commit({ZERO: 5})
        assert not older.done()
        hold.release()
        await older
    assert await committed(cluster, ZERO, ONE) == {ZERO: 5, ONE: 10}


async def test_auto_commit_does_not_undo_what_a_commit_has_stored_before_it_failed(cluster: Cluster) -> None:
    """Of two partitions, one is refused. What is stored of the other is more than what counts as processed."""

    async def refuse(exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.partition_index == 1:
                    partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return response

    reader = consumer(cluster, enable_auto_commit=True, auto_commit_interval_ms=60_000)
    async with reader:
        reader.assign([ZERO, ONE])
        for _ in range(2):
            assert len((await reader.getmany(ZERO, max_records=3))[ZERO]) == 3
        cluster.intercept(OffsetCommitRequest, refuse, times=1)
        with pytest.raises(AuthorizationFailed):
            await reader.commit({ZERO: 6, ONE: 1})
        await reader.stop()
    assert (await committed(cluster, ZERO)) == {ZERO: 6}


async def test_a_cancelled_commit_frees_its_slot_for_the_next_one(cluster: Cluster) -> None:
    async with consumer(cluster) as reader:
        hold = Hold()
        cluster.intercept(OffsetCommitRequest, hold, times=1)
        under_way = asyncio.ensure_future(reader.commit({ZERO: 1}))
        await hold.arrived()
        queued = asyncio.ensure_future(reader.commit({ZERO: 2}))
        await asyncio.sleep(0)
        for cancelled in (queued, under_way):
            cancelled.cancel()
        await asyncio.wait([queued, under_way])
        hold.release()
        await reader.commit({ZERO: 3})
        assert await reader.committed(ZERO) == {ZERO: OffsetAndMetadata(3)}


async def test_a_partition_without_a_position_is_passed_over(cluster: Cluster) -> None:
    async with consumer(cluster) as reader:
        cluster.intercept(ListOffsetsRequest, drop(), where=lambda exchange: _asks_for(exchange, 1))
        reader.assign([ZERO])
        await reader.getmany()
        reader.assign([ZERO, ONE])
        await reader.commit()
        assert await reader.committed() == {ZERO: OffsetAndMetadata(10, "", 0), ONE: None}


@pytest.mark.parametrize("comes_back", [False, True], ids=["held", "processed"])
@pytest.mark.parametrize("how", ["commit", "commit_soon", "auto-commit"])
async def test_what_was_returned_before_a_reset_that_gets_no_answer_is_committed(
    cluster: Cluster, how: str, comes_back: bool
) -> None:
    async with consumer(cluster, enable_auto_commit=how == "auto-commit") as reader:
        reader.assign([ZERO])
        assert len((await reader.getmany())[ZERO]) == 10
        cluster.intercept(ListOffsetsRequest, drop())
        with pytest.raises(RequestTimedOut):
            await reader.seek_to_end(timeout_ms=50)
        if comes_back:
            assert not await reader.getmany(timeout_ms=0)
        if how == "commit":
            await reader.commit()
        elif how == "commit_soon":
            reader.commit_soon()
    assert await committed(cluster, ZERO) == {ZERO: 10}


async def test_a_commit_stores_the_end_that_a_seek_has_found(cluster: Cluster) -> None:
    """A seek means that the application goes on there, and so do commits, from when it is known where that is."""
    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        await reader.getmany(max_records=3)
        await reader.seek_to_end()
        await reader.commit()
    assert await committed(cluster, ZERO) == {ZERO: 10}


def _asks_for(exchange: Exchange, partition: int) -> bool:
    return any(part.partition_index == partition for topic in exchange.request.topics for part in topic.partitions)


async def test_what_a_crash_repeats_and_what_it_loses(cluster: Cluster) -> None:
    """At least once: process, then commit. At most once: commit, then process."""

    async def crashed(reader: Consumer) -> None:
        await reader._runtime.cluster_client.stop()  # without another request

    for commits_first, restarts_at in ((False, 0), (True, 10)):
        reader = consumer(cluster, group_id=f"{commits_first}", enable_auto_commit=True)
        await reader.start()
        reader.assign([ZERO])
        batch = await reader.getmany()
        assert [record.offset for record in batch[ZERO]] == list(range(10))
        if commits_first:
            await reader.commit()
        await crashed(reader)
        async with consumer(cluster, group_id=f"{commits_first}") as after:
            after.assign([ZERO])
            assert await after.position(ZERO) == restarts_at


async def test_an_auto_commit_that_fails_does_not_stop_the_rebalance(cluster: Cluster) -> None:
    async with consumer(cluster, "t", enable_auto_commit=True, auto_commit_interval_ms=60_000) as reader:
        await reader.getmany()
        await reader.getmany(timeout_ms=0)
        refusal = cluster.intercept(OffsetCommitRequest, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        cluster.intercept(HeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS, times=1)
        waiting = asyncio.ensure_future(reader.getmany())
        membership = reader._runtime.membership
        assert membership is not None
        async with asyncio.timeout(20):
            while reader.metrics().rebalances.count < 2:
                await membership.moved.wait()
        assert refusal.hits == 1, "it was tried before the partitions were given up"
        waiting.cancel()


def test_a_batch_can_be_pickled_and_an_empty_one_made() -> None:
    assert ConsumerRecords().next_offsets == {}
    batch: ConsumerRecords[bytes, bytes] = ConsumerRecords()
    batch[ZERO] = []
    batch.end_at({ZERO: BatchEnd(5, 1, 7), ONE: BatchEnd(6, None, 8)})
    again = pickle.loads(pickle.dumps(batch))
    assert again == {ZERO: []}
    assert again.next_offsets == {ZERO: OffsetAndMetadata(5, "", 1)}
    assert again.assignment_tokens == {ZERO: 7}


# Commits without a waiting caller


async def test_unwaited_commits_are_sent_in_order_and_reported_before_a_later_commit_returns(cluster: Cluster) -> None:
    commits, outcomes = sent_commits(cluster), Outcomes()
    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        for offset in (1, 2, 3):
            reader.commit_soon({ZERO: offset}, outcomes.named(str(offset)))
        assert outcomes.seen == [], "nothing is called before this task comes back"
        await reader.commit({ZERO: 4})
        assert outcomes.seen == [("1", None), ("2", None), ("3", None)]
        assert [commit[0] for commit in commits] == [3, 4], "what waits together is sent together"


async def test_an_unwaited_commit_is_never_moved_before_a_commit_that_came_first(cluster: Cluster) -> None:
    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        await reader.committed()
        hold = Hold()
        cluster.intercept(OffsetCommitRequest, hold, times=1)
        reader.commit_soon({ZERO: 100})
        await hold.arrived()
        commits = sent_commits(cluster)
        reader.commit_soon({ZERO: 200})
        waited = asyncio.ensure_future(reader.commit({ZERO: 150}))
        await asyncio.sleep(0)
        reader.commit_soon({ZERO: 300})
        reader.commit_soon({ZERO: 400})
        hold.release()
        await waited
        await reader.commit({})
        assert [commit[0] for commit in commits] == [200, 150, 400]


async def queue_an_auto_commit(reader: Consumer) -> None:
    """It waits for its slot, behind the commit that is held."""
    group = reader._runtime.membership
    assert group is not None
    assert group._auto_commit is not None
    before = len(group.offsets.commit_order.queue)
    group._auto_commit.hurry()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(group.offsets.commit_order.queue) == before + 1


async def test_an_unwaited_commit_does_not_undo_an_auto_commit_before_it_that_knew_more(cluster: Cluster) -> None:
    """Auto-commit decides in its slot what to store; the application has polled since it made the commit behind it."""
    async with consumer(cluster, enable_auto_commit=True, auto_commit_interval_ms=60_000) as reader:
        reader.assign([ZERO])
        await reader.committed()
        hold = Hold()
        cluster.intercept(OffsetCommitRequest, hold, times=1)
        reader.commit_soon({ZERO: 0})
        await hold.arrived()
        commits = sent_commits(cluster)
        for _ in range(2):
            assert len((await reader.getmany(max_records=3))[ZERO]) == 3
        await queue_an_auto_commit(reader)
        reader.commit_soon({ZERO: 3})
        assert len((await reader.getmany(max_records=3))[ZERO]) == 3
        hold.release()
        await reader.commit({})
        assert [commit[0] for commit in commits] == [6]


async def test_a_commit_of_held_records_is_sent_behind_an_auto_commit_that_left_them_out(cluster: Cluster) -> None:
    """Auto-commit covers what the application has processed; commit() also covers what it holds."""
    async with consumer(cluster, enable_auto_commit=True, auto_commit_interval_ms=60_000) as reader:
        reader.assign([ZERO, ONE])
        await reader.committed()
        hold = Hold()
        cluster.intercept(OffsetCommitRequest, hold, times=1)
        reader.commit_soon({ONE: 0})
        await hold.arrived()
        commits = sent_commits(cluster)
        for _ in range(2):
            assert len((await reader.getmany(ZERO, max_records=3))[ZERO]) == 3
        await queue_an_auto_commit(reader)
        waited = asyncio.ensure_future(reader.commit())
        for _ in range(10):
            await asyncio.sleep(0)
        hold.release()
        await waited
        assert [commit[0] for commit in commits] == [3, 6]
    assert await committed(cluster, ZERO) == {ZERO: 6}


async def test_an_unwaited_commit_that_fails_is_not_sent_again_over_a_newer_one(cluster: Cluster) -> None:
    """The ABA hazard: repeating 100 after 200 was stored would set the group back."""
    outcomes = Outcomes()
    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        refusal = cluster.intercept(OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
        reader.commit_soon({ZERO: 100}, outcomes.named("100"))
        await refusal.caught()
        commits = sent_commits(cluster)
        reader.commit_soon({ZERO: 200}, outcomes.named("200"))
        await reader.commit({})
        assert [(name, error and error.__name__) for name, error in outcomes.seen] == [
            ("100", "BrokerError"),
            ("200", None),
        ]
        assert [commit[0] for commit in commits] == [200]


async def test_getmany_runs_callbacks_also_while_it_waits(cluster: Cluster) -> None:
    done = Signal()
    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        await reader.getmany()
        task = asyncio.current_task()

        def on_done(offsets: Any, error: KafkaError | None) -> None:
            assert asyncio.current_task() is waiting
            assert waiting is not task
            assert (offsets, error) == ({ZERO: OffsetAndMetadata(10, "", 0)}, None)
            done.notify()

        reader.commit_soon(on_done=on_done)
        waiting = asyncio.ensure_future(reader.getmany())
        assert await done.wait(20)
        waiting.cancel()


async def test_what_a_callback_raises_is_raised_by_the_call_that_runs_it_and_loses_nothing(cluster: Cluster) -> None:
    outcomes = Outcomes()

    def fail(offsets: Any, error: KafkaError | None) -> None:
        raise LookupError("the user's own")

    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        reader.commit_soon({ZERO: 1}, fail)
        reader.commit_soon({ZERO: 2}, outcomes.named("2"))
        with pytest.raises(LookupError, match="own"):
            await reader.commit({})
        assert (await reader.getone()).offset == 0
        assert outcomes.seen == [("2", None)]


@pytest.mark.parametrize("how", ["an error", "a timeout"])
async def test_what_a_callback_raises_at_the_end_of_a_block_does_not_replace_the_blocks_own_exception(
    cluster: Cluster, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = Outcomes()

    def fail(offsets: Any, error: KafkaError | None) -> None:
        raise LookupError("the callback's")

    async def read() -> None:
        async with consumer(cluster) as reader:
            reader.assign([ZERO])
            reader.commit_soon({ZERO: 1}, fail)
            reader.commit_soon({ZERO: 2}, outcomes.named("2"))
            if how == "an error":
                raise ValueError("the block's")
            async with asyncio.timeout(0):
                await asyncio.sleep(10)

    with pytest.raises(ValueError if how == "an error" else TimeoutError):
        await read()
    assert outcomes.seen == [("2", None)]
    assert "the callback's" in caplog.text


async def test_what_a_callback_raises_at_the_end_of_a_block_is_raised_where_the_block_has_no_exception(
    cluster: Cluster,
) -> None:
    def fail(offsets: Any, error: KafkaError | None) -> None:
        raise LookupError("the callback's")

    with pytest.raises(LookupError):
        async with consumer(cluster) as reader:
            reader.commit_soon({ZERO: 1}, fail)


@pytest.mark.parametrize("how", ["stop()", "a block", "cancelled"])
async def test_every_callback_is_called_at_the_end_whatever_another_one_raises(
    cluster: Cluster, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No later call would call the rest. The first error is raised, and the others are logged."""
    outcomes = Outcomes()

    def failing(name: str) -> Callable[[Any, Any], None]:
        def fail(offsets: Any, error: KafkaError | None) -> None:
            outcomes.seen.append((name, type(error) if error else None))
            raise LookupError(name)

        return fail

    async def ends() -> None:
        reader = consumer(cluster)
        await reader.start()
        reader.assign([ZERO])
        reader.commit_soon({ZERO: 1}, failing("first"))
        reader.commit_soon({ZERO: 2}, outcomes.named("second"))
        reader.commit_soon({ZERO: 3}, failing("third"))
        if how == "a block":
            return await reader.__aexit__(None, None, None)
        stopping = asyncio.ensure_future(reader.stop())
        if how == "cancelled":
            await asyncio.sleep(0)
            stopping.cancel()
        await stopping

    with pytest.raises(asyncio.CancelledError if how == "cancelled" else LookupError):
        await ends()
    assert [name for name, _ in outcomes.seen] == ["first", "second", "third"]
    assert "third" in caplog.text
    assert ("first" in caplog.text) == (how == "cancelled")


@pytest.mark.parametrize("raised", [StopAsyncIteration(), StopIteration(), GeneratorExit(), asyncio.CancelledError()])
async def test_what_would_end_an_iteration_in_silence_is_an_error_of_the_callback(
    cluster: Cluster, raised: BaseException
) -> None:
    def fail(offsets: Any, error: KafkaError | None) -> None:
        raise raised

    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        reader.commit_soon({ZERO: 1}, fail)
        with pytest.raises(UsageError, match=r"on_done of commit_soon\(\) .*" + type(raised).__name__):
            await read_all(reader)
        assert reader.health().running


async def read_all(reader: Consumer) -> None:
    async for _ in reader:
        pass


async def test_a_callback_may_call_for_the_next_commit(cluster: Cluster) -> None:
    outcomes = Outcomes()

    async with consumer(cluster) as reader:
        reader.assign([ZERO])

        def again(offsets: Any, error: KafkaError | None) -> None:
            reader.commit_soon({ZERO: 2}, outcomes.named("2"))
            outcomes.named("1")(offsets, error)

        reader.commit_soon({ZERO: 1}, again)
        await reader.commit({})
        await reader.commit({})
        assert outcomes.seen == [("1", None), ("2", None)]


async def test_a_coroutine_function_is_no_callback(cluster: Cluster) -> None:
    async def on_done(offsets: Any, error: KafkaError | None) -> None: ...

    async with consumer(cluster) as reader:
        with pytest.raises(ConfigError, match="plain function"):
            reader.commit_soon({ZERO: 1}, on_done)


async def test_the_callback_gets_a_lost_partition_in_the_order_of_the_commits(cluster: Cluster) -> None:
    outcomes = Outcomes()
    async with consumer(cluster, "t") as reader:
        batch = await reader.getmany()
        hold = Hold()
        cluster.intercept(OffsetCommitRequest, hold, times=1)
        reader.commit_soon(batch, outcomes.named("mine"))
        await hold.arrived()
        reader.commit_soon({TopicPartition("u", 0): 1}, outcomes.named("not mine"))
        assert outcomes.seen == [], "its turn is after the one that is under way"
        hold.release()
        with pytest.raises(CommitFailed):
            await reader.commit({TopicPartition("u", 0): 1})
        assert outcomes.seen == [("mine", None), ("not mine", CommitFailed)], "before a commit that fails, too"
        reader.commit_soon({TopicPartition("u", 0): 1}, outcomes.named("at once"))
        reader.commit_soon({ZERO: 1})
        assert outcomes.seen[2:] == [("at once", CommitFailed)]


async def test_without_a_callback_an_error_is_logged(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        cluster.intercept(OffsetCommitRequest, ErrorCode.OFFSET_METADATA_TOO_LARGE, times=1)
        reader.commit_soon({ZERO: 1})
        await reader.commit({})
        assert "commit_soon failed: OFFSET_METADATA_TOO_LARGE: group 'g', t-0" in caplog.text


async def test_stop_finishes_unwaited_commits_and_reports_them(cluster: Cluster) -> None:
    outcomes = Outcomes()
    reader = consumer(cluster)
    await reader.start()
    reader.assign([ZERO])
    reader.commit_soon({ZERO: 5}, outcomes.named("5"))
    await reader.stop()
    assert outcomes.seen == [("5", None)]
    assert await committed(cluster, ZERO) == {ZERO: 5}
    with pytest.raises(ConsumerClosed):
        reader.commit_soon({ZERO: 6})


async def test_stop_reports_what_could_not_be_committed_in_its_time(cluster: Cluster) -> None:
    outcomes = Outcomes()
    reader = consumer(cluster)
    await reader.start()
    reader.assign([ZERO])
    silence = cluster.intercept(OffsetCommitRequest, drop())
    reader.commit_soon({ZERO: 5}, outcomes.named("5"))
    await silence.caught()
    reader.commit_soon({ZERO: 6}, outcomes.named("6"))
    await reader.stop(timeout_ms=200)
    assert outcomes.seen == [("5", RequestTimedOut), ("6", RequestTimedOut)]


# The end of ``async with``


async def test_leaving_the_block_cleanly_counts_the_last_batch_as_processed(cluster: Cluster) -> None:
    async with consumer(cluster, enable_auto_commit=True) as reader:
        reader.assign([ZERO])
        await reader.getmany(max_records=3)
        await reader.getmany(max_records=4)
    assert await committed(cluster, ZERO) == {ZERO: 7}


async def test_leaving_the_block_cleanly_as_a_member_commits_before_it_leaves_the_group(cluster: Cluster) -> None:
    async with consumer(cluster, "t", enable_auto_commit=True) as reader:
        async for record in reader:
            last = record
            break
    tp = TopicPartition("t", last.partition)
    assert await committed(cluster, tp) == {tp: 1}


async def test_leaving_the_block_by_an_exception_does_not_commit_the_last_batch(cluster: Cluster) -> None:
    async def fail() -> None:
        async with consumer(cluster, enable_auto_commit=True) as reader:
            reader.assign([ZERO])
            await reader.getmany(max_records=3)
            await reader.getmany(max_records=4)
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert await committed(cluster, ZERO) == {ZERO: 3}, "what the first call returned was processed"


async def test_a_cancelled_block_does_not_commit_the_last_batch(cluster: Cluster) -> None:
    async def give_up() -> None:
        async with consumer(cluster, enable_auto_commit=True) as reader:
            reader.assign([ZERO])
            await reader.getmany(max_records=3)
            async with asyncio.timeout(0):
                await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        await give_up()
    assert await committed(cluster, ZERO) == {ZERO: 0}


async def test_without_auto_commit_leaving_the_block_commits_nothing(cluster: Cluster) -> None:
    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        await reader.getmany()
    assert await committed(cluster, ZERO) == {ZERO: None}


async def test_a_batch_in_the_hands_of_another_task_is_not_committed_by_leaving_the_block(cluster: Cluster) -> None:
    """The block ends when the service shuts down, while its worker is still at its batch."""
    async with consumer(cluster, enable_auto_commit=True) as reader:
        reader.assign([ZERO])
        worker = asyncio.ensure_future(reader.getmany(max_records=3))
        await worker
    assert await committed(cluster, ZERO) == {ZERO: 0}


async def test_stop_by_hand_does_not_commit_the_last_batch(cluster: Cluster) -> None:
    reader = consumer(cluster, enable_auto_commit=True)
    await reader.start()
    reader.assign([ZERO])
    await reader.getmany(max_records=3)
    await reader.getmany(max_records=4)
    await reader.stop()
    assert await committed(cluster, ZERO) == {ZERO: 3}


# Slots


async def test_slots_come_in_order_and_skip_commits_that_have_given_up() -> None:
    turns = CommitOrder()
    first, second, third = turns.take(), turns.take(), turns.take()
    await first.wait()
    assert (second.is_last, third.is_last) == (False, True)
    with pytest.raises(TimeoutError):
        await second.wait(asyncio.get_running_loop().time())
    second.end()
    waiting = asyncio.ensure_future(third.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    first.end()
    first.end()
    await third.wait()
    assert third.is_last
    third.end()
    assert not third.is_last
