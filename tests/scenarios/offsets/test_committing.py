"""Commits: which offset they store, their order, and what a crash between two commits repeats or loses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiokc import OffsetAndMetadata, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import KafkaError
from aiokc.testing import ApiKey

from ..stage import T0, Stage, scenario

TEN = tuple(b"%d" % number for number in range(10))


async def values_of_the_next(stage: Stage, count: int) -> list[bytes | None]:
    """Return the values of the first records that a new member of the group reads."""
    async with stage.member("next", max_poll_records=count).reads() as member:
        await member.has_read(count)
        return member.values[:count]


@scenario(topics={"t": 1})
async def test_a_commit_is_the_next_offset_to_read(stage: Stage) -> None:
    """Given records 0 to 9 returned and processed, when commit() is called, then 10 is stored, and the next owner
    reads none of them again.
    """
    stage.cluster.append("t", *TEN)
    async with stage.member("c1").reads(until=10) as c1:
        await c1.has_read(10)
        await c1.consumer.commit()
        assert stage.cluster.committed("g") == {T0: 10}
        assert await c1.consumer.position(T0) == 10
    stage.cluster.append("t", b"new")
    assert await values_of_the_next(stage, 1) == [b"new"]


@scenario(topics={"t": 1})
async def test_a_crash_before_the_next_auto_commit_repeats_what_came_since_the_last(stage: Stage) -> None:
    """Given a member that crashes before the auto-commit interval is over, then the next owner reads again from the
    last commit on: processing before committing may repeat records, and loses none.
    """
    stage.cluster.append("t", *TEN)
    member = stage.member("c1", enable_auto_commit=True, max_poll_records=4)
    await member.consumer.start()
    for _ in range(2):
        member.took(await member.consumer.getmany())
    assert len(member.read) == 8
    await asyncio.sleep(30)  # the first batch is committed, and not the one that the application holds
    assert stage.cluster.committed("g") == {T0: 4}
    crash = stage.cluster.intercept(ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_SERVER_ERROR)
    member.took(await member.consumer.getmany())  # the second batch is processed, and its auto-commit is not due
    await member.consumer.stop()  # what it commits in stop() does not count
    crash.cancel()
    assert crash.hits > 0
    assert stage.cluster.committed("g") == {T0: 4}
    assert await values_of_the_next(stage, 6) == list(TEN[4:])


@scenario(topics={"t": 1})
async def test_commits_before_processing_lose_what_a_crash_interrupts(stage: Stage) -> None:
    """Given an application that commits first and processes then, when it crashes in between, then those records are
    never read again: at most once.
    """
    stage.cluster.append("t", *TEN)
    async with stage.member("c1", max_poll_records=4) as c1:
        await c1.consumer.getmany()
        await c1.consumer.commit()
        # and here it crashes: the four records were not processed
    assert await values_of_the_next(stage, 6) == list(TEN[4:])


@scenario(topics={"t": 1})
async def test_an_unwaited_commit_that_failed_is_not_sent_again(stage: Stage) -> None:
    """Given commit_soon(100), which fails with an error that can be retried, and commit_soon(200), which succeeds, then
    100 is not sent again, its callback gets the error, and 200 stays; callbacks come in the order of the calls.
    """
    done: list[tuple[int, bool]] = []

    def note(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
        done.append((offsets[T0].offset, error is None))

    async with stage.member("c1") as c1:
        await c1.consumer.getmany(timeout_ms=5_000)
        before = len(stage.events)
        fault = stage.cluster.intercept(ApiKey.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
        c1.consumer.commit_soon({T0: 100}, note)
        await fault.caught()
        c1.consumer.commit_soon({T0: 200}, note)
        await c1.consumer.getmany(timeout_ms=60_000)
        assert done == [(100, False), (200, True)]
        sent = [
            request.topics[0].partitions[0].committed_offset for request in stage.of("c1", "OffsetCommit", since=before)
        ]
        assert sent == [100, 200]
        assert stage.cluster.committed("g") == {T0: 200}


@scenario(topics={"t": 1})
async def test_a_waited_commit_is_sent_until_it_is_stored(stage: Stage) -> None:
    """Given an error that can be retried, when commit() is awaited, then the commit is sent again until it is stored,
    and the callbacks of earlier commits have run.
    """
    order: list[str] = []
    async with stage.member("c1") as c1:
        await c1.consumer.getmany(timeout_ms=5_000)
        fault = stage.cluster.intercept(ApiKey.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=4)
        c1.consumer.commit_soon({T0: 1}, lambda *_: order.append("soon"))
        await c1.consumer.commit({T0: 2})
        order.append("waited")
        assert (fault.hits, order) == (4, ["soon", "waited"])
        assert stage.cluster.committed("g") == {T0: 2}
