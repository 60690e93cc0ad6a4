"""Concurrent by key, as in docs/guide/recipes.md: a crash, a failure, a rebalance and a lost partition lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer, Producer, TopicPartition
from aiokc.testing import ApiKey, Cluster, ErrorCode

from .programs import program, until

EVENTS = TopicPartition("events", 0)
KEYS = [b"ann", b"bob", b"cid"]


class Handling:
    """The handler of a test: a record is done once the test says so."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.done: list[bytes] = []
        self._may_end: dict[bytes, asyncio.Event] = {}
        self._changed = asyncio.Condition()

    async def __call__(self, record: Any) -> None:
        self.begun.append(record.value)
        await self._tell()
        await self._event(record.value).wait()
        self.done.append(record.value)
        await self._tell()

    def finish(self, *values: bytes) -> None:
        for value in values:
            self._event(value).set()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(true)

    def _event(self, value: bytes) -> asyncio.Event:
        return self._may_end.setdefault(value, asyncio.Event())

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class Member:
    """One process of the program that is concurrent by key."""

    def __init__(self, cluster: Cluster) -> None:
        self._names = program("class Progress")
        self._cluster = cluster
        self.handling = self._names.globals["handle"] = Handling()
        # Each key in a lane of its own. Python's hash() of bytes is another one in each process.
        self._names.globals["hash"] = lambda place: KEYS.index(place[2])
        self.told_to_end = asyncio.Event()
        self.ends = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with Consumer(
            bootstrap_servers=self._cluster.bootstrap,
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=50,
        ) as consumer:
            work = self._names.Work(consumer)
            consumer.subscribe(["events"], listener=work)
            await work.run(self.told_to_end)

    async def begins(self, *values: bytes) -> None:
        await self.handling.until(lambda: sorted(self.handling.begun) == sorted(values))

    async def has_done(self, *values: bytes) -> None:
        await self.handling.until(lambda: sorted(self.handling.done) == sorted(values))

    async def end(self) -> None:
        self.told_to_end.set()
        async with asyncio.timeout(20):
            await self.ends


async def write(cluster: Cluster, **keys: list[bytes]) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for key, values in keys.items():
            for value in values:
                await producer.send("events", value, key=key.encode(), partition=0)


async def test_a_process_that_dies_has_committed_nothing_above_a_record_that_is_not_done() -> None:
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        await write(cluster, ann=[b"ann-0"], bob=[b"bob-1", b"bob-2"], cid=[b"cid-3"])
        first = Member(cluster)
        first.handling.finish(b"ann-0", b"cid-3")
        await first.has_done(b"ann-0", b"cid-3")
        await first.begins(b"ann-0", b"bob-1", b"cid-3")  # bob-2 waits for bob-1
        first.ends.cancel()
        await asyncio.wait([first.ends])
        assert cluster.committed("billing") == {EVENTS: 1}

        second = Member(cluster)
        second.handling.finish(b"bob-1", b"bob-2", b"cid-3")
        await second.has_done(b"bob-1", b"bob-2", b"cid-3")
        await second.end()
        assert [value for value in second.handling.done if value.startswith(b"bob")] == [b"bob-1", b"bob-2"]
        assert cluster.committed("billing") == {EVENTS: 4}


async def test_a_handler_that_fails_ends_the_program_and_its_record_is_not_committed() -> None:
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        await write(cluster, ann=[b"ann-0"], bob=[b"bob-1"])
        member = Member(cluster)

        async def fail(record: Any) -> None:
            if record.value == b"ann-0":
                raise ConnectionError("no answer")

        member._names.globals["handle"] = fail
        async with asyncio.timeout(20):
            with pytest.raises(ExceptionGroup, match="unhandled errors"):
                await member.ends
        assert cluster.committed("billing") == {}


async def test_a_handler_that_fails_while_its_partition_moves_ends_the_program_at_once() -> None:
    """The callback waits for records that nobody works on any more."""
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        await write(cluster, ann=[b"ann-0"], bob=[b"bob-1"])
        first = Member(cluster)
        may_fail, waits = asyncio.Event(), asyncio.Event()

        async def fail(record: Any) -> None:
            await may_fail.wait()
            raise ConnectionError("no answer")

        revoked = first._names.Work.on_partitions_revoked

        async def on_partitions_revoked(work: Any, partitions: Any) -> None:
            waits.set()
            await revoked(work, partitions)

        first._names.globals["handle"] = fail
        first._names.Work.on_partitions_revoked = on_partitions_revoked
        await until(lambda: cluster.members("billing") != [])
        second = Member(cluster)
        second.handling.finish(b"ann-0", b"bob-1")
        async with asyncio.timeout(20):
            await waits.wait()
        may_fail.set()
        async with asyncio.timeout(12):  # without what run() does at its end: 25 s, and the same for the other member
            with pytest.raises(ExceptionGroup, match="unhandled errors"):
                await first.ends
        await second.has_done(b"ann-0", b"bob-1")
        await second.end()
        assert cluster.committed("billing") == {EVENTS: 2}


async def test_a_partition_that_moves_is_done_with_before_its_next_member_reads_it() -> None:
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        await write(cluster, ann=[b"ann-0"], bob=[b"bob-1"])
        first = Member(cluster)
        first.handling.finish(b"bob-1")
        await first.has_done(b"bob-1")
        second = Member(cluster)
        await until(lambda: len(cluster.members("billing")) == 2)  # it has joined, and waits for the first one
        assert cluster.committed("billing") == {}
        first.handling.finish(b"ann-0")
        await first.has_done(b"ann-0", b"bob-1")
        await write(cluster, cid=[b"cid-2"])  # it goes to whichever of the two has the partition now
        for member in (first, second):
            member.handling.finish(b"cid-2")
        await first.end()
        await until(lambda: cluster.committed("billing") == {EVENTS: 3})
        await second.end()
        assert sorted(first.handling.done + second.handling.done) == [b"ann-0", b"bob-1", b"cid-2"]


@pytest.mark.parametrize("moves", [True, False], ids=["a rebalance", "the end"])
async def test_a_last_commit_that_failed_is_made_up_for(moves: bool) -> None:
    """commit_soon() is sent once, and no record comes any more."""
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        await write(cluster, ann=[b"ann-0"])
        refusal = cluster.intercept(ApiKey.OFFSET_COMMIT, ErrorCode.NOT_COORDINATOR, times=1)
        first = Member(cluster)
        first.handling.finish(b"ann-0")
        await first.has_done(b"ann-0")
        async with asyncio.timeout(20):
            await refusal.caught()
        assert cluster.committed("billing") == {}
        if moves:
            second = Member(cluster)
            await until(lambda: cluster.committed("billing") == {EVENTS: 1})
            await second.end()
            assert second.handling.begun == []
        await first.end()
        assert first.handling.begun == [b"ann-0"], "whoever has the partition next begins behind it"
        assert cluster.committed("billing") == {EVENTS: 1}


async def test_what_a_member_does_of_a_lost_partition_is_not_committed() -> None:
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        await write(cluster, ann=[b"ann-0", b"ann-1"], bob=[b"bob-2"])
        member = Member(cluster)
        member.handling.finish(b"bob-2", b"ann-1")
        await member.has_done(b"bob-2")
        (lost,) = cluster.members("billing")
        cluster.expire_member("billing")
        await until(lambda: cluster.members("billing") not in ([], [lost]))
        await member.handling.until(lambda: member.handling.begun.count(b"bob-2") == 2)  # it has it again, from 0 on
        assert cluster.committed("billing") == {}
        member.handling.finish(b"ann-0")
        # Of the first time only what had begun: ann-1 was left out of its lane.
        await member.has_done(b"ann-0", b"ann-0", b"ann-1", b"bob-2", b"bob-2")
        await member.end()
        assert member.handling.begun.count(b"ann-1") == 1
        assert cluster.committed("billing") == {EVENTS: 3}
