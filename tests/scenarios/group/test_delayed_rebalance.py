"""An application's assignor delays the reassignment of a lost member's partitions, as Connect does (KIP-415).

Kafka's consumer protocol has no such delay: all of it is in delayed_assignor.py, which uses public names only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokc.types import TopicPartition

from ..stage import Stage, scenario
from .delayed_assignor import DelayedAssignor

DELAY = 120  # seconds. Connect waits for 300 by default; half a minute more or less changes nothing but the work
SESSION = 45  # the default of session_timeout_ms
HEARTBEAT = 3  # the default of heartbeat_interval_ms: a member may hear of a rebalance this late


class Worker:
    """A member on a host of its own, which can crash; the assignor knows it as ``known_as``, by default its name."""

    def __init__(self, stage: Stage, name: str, *, known_as: str = "") -> None:
        self.name = name
        self.assignor = DelayedAssignor(known_as or name, DELAY)
        self.member = stage.member(name, partition_assignment_strategy=(self.assignor,))
        self.assignor.rejoin = self.member.consumer.enforce_rebalance
        self._stage = stage
        self._host = f"{name}, hired at {stage.loop.time()}"
        self._may_end = asyncio.Event()
        self._has_crashed = False
        self._living = stage.loop.spawn_on(self._host, self._live())

    async def _live(self) -> None:
        async with self.member.reads():
            await self._may_end.wait()
        self.assignor.close()

    async def end(self) -> None:
        self._may_end.set()
        if not self._has_crashed:
            await self._living

    def crash(self) -> None:
        """Let it stop running silently: it sends no LeaveGroup, and its connections stay open."""
        self._has_crashed = True
        self._stage.loop.freeze(self._host)
        self._stage.loop.network.forsake(self._host, silently=True)
        for tp in self.owned:
            del self._stage.owners[tp]

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.member.owned

    @property
    def until(self) -> float:
        """When the delay is over, according to its assignor."""
        assert self.assignor.until is not None
        return self.assignor.until

    def told(self, *whats: str, since: int) -> list[frozenset[TopicPartition]]:
        """Return the partitions of its callbacks, without the empty ones."""
        return [partitions for partitions in self._stage.of(self.name, *whats, since=since) if partitions]

    def joins(self, since: int) -> int:
        return len(self._stage.names(self.name, "JoinGroup", since=since))


class Crew:
    """The workers of a group. Each partition of t gets one record in each second in which they work."""

    def __init__(self, stage: Stage, partitions: int) -> None:
        self.stage = stage
        self.partitions = {TopicPartition("t", number) for number in range(partitions)}
        self.workers: list[Worker] = []

    def hire(self, name: str, *, known_as: str = "") -> Worker:
        self.workers.append(Worker(self.stage, name, known_as=known_as))
        return self.workers[-1]

    def leader(self) -> Worker:
        """The worker that has computed the newest assignment."""
        name = [event.who for event in self.stage.events if event.what == "SyncGroup" and event.content.assignments][-1]
        return next(worker for worker in self.workers if worker.name == name)

    def unowned(self) -> set[TopicPartition]:
        return self.partitions - self.stage.owners.keys()

    async def works(self, seconds: float, *workers: Worker) -> None:
        """Check that for so long these workers get each record of their partitions within a second, and keep these."""
        owned = [worker.owned for worker in workers]
        for _ in range(round(seconds)):
            read_before = [len(worker.member.read) for worker in workers]
            for tp in self.partitions:
                self.stage.cluster.append(tp.topic, b"", partition=tp.partition)
            await asyncio.sleep(1)
            assert [worker.owned for worker in workers] == owned
            for worker, count in zip(workers, read_before, strict=True):
                newest = {(tp, self.stage.cluster.end_offset(tp.topic, tp.partition) - 1) for tp in worker.owned}
                assert newest <= set(worker.member.read[count:])

    async def works_until(self, when: float, *workers: Worker) -> None:
        """Check the same until the last second before that time."""
        await self.works(when - self.stage.loop.time() - 1.5, *workers)


@asynccontextmanager
async def crew(stage: Stage, *names: str) -> AsyncIterator[Crew]:
    """Run a group of these workers, with two partitions for each."""
    group = Crew(stage, 2 * len(names))
    workers = [group.hire(name) for name in names]
    try:
        await stage.until(lambda: all(len(worker.owned) == 2 for worker in workers))
        await group.works(10, *workers)
        assert not any(worker.assignor.until for worker in workers)
        yield group
    finally:
        for worker in group.workers:
            await worker.end()


@scenario(topics={"t": 6})
async def test_what_a_lost_member_read_waits_for_the_end_of_the_delay(stage: Stage) -> None:
    """KIP-415. Given a member that crashes, when its session is over, then no member gets its partitions until the
    delay is over, and the others go on reading their own; then all of them join again, once, and get the rest.
    """
    async with crew(stage, "c1", "c2", "c3") as group:
        lost, *survivors = sorted(group.workers, key=lambda worker: worker is group.leader())
        had, kept = lost.owned, [worker.owned for worker in survivors]
        before, crashed = len(stage.events), stage.loop.time()
        lost.crash()
        await group.works(SESSION + HEARTBEAT + 1, *survivors)
        ends = [worker.until for worker in survivors]
        assert ends == pytest.approx([crashed + SESSION + DELAY] * 2, abs=HEARTBEAT + 1)
        await group.works_until(min(ends), *survivors)
        assert group.unowned() == had
        assert [worker.told("assigned", "revoked", "lost", since=before) for worker in survivors] == [[], []]
        assert [worker.joins(before) for worker in survivors] == [1, 1]
        await stage.until(lambda: not group.unowned())
        assert stage.loop.time() == pytest.approx(min(ends), abs=HEARTBEAT + 1)
        await group.works(DELAY + 10, *survivors)
        assert [worker.joins(before) for worker in survivors] == [2, 2]
        for worker, first in zip(survivors, kept, strict=True):
            assert len(worker.owned - first) == 1
            assert worker.told("assigned", "revoked", "lost", since=before) == [worker.owned - first]
            assert worker.assignor.until is None
            ends_now = {tp: stage.cluster.end_offset(tp.topic, tp.partition) for tp in worker.owned}
            for tp, end in ends_now.items():  # from the beginning: nothing was committed
                assert [offset for read, offset in worker.member.read if read == tp] == list(range(end))


@scenario(topics={"t": 6})
async def test_a_lost_member_that_comes_back_in_time_has_its_old_partitions(stage: Stage) -> None:
    """KIP-415. Given a member that crashes and is started again before the delay is over, under its old name, then
    it gets its old partitions, the others keep theirs, and at the end of the delay nothing happens.
    """
    async with crew(stage, "c1", "c2", "c3") as group:
        lost, *survivors = sorted(group.workers, key=lambda worker: worker is group.leader())
        had, before = lost.owned, len(stage.events)
        lost.crash()
        await group.works(SESSION + DELAY // 3, *survivors)
        again = group.hire(lost.name)
        await group.works(HEARTBEAT + 1, *survivors)
        assert again.owned == had
        assert again.member.member_id not in ("", lost.member.member_id)
        all_workers = [*survivors, again]
        assert [worker.assignor.until for worker in all_workers] == [None, None, None]
        assert [worker.joins(before) for worker in survivors] == [2, 2]
        back = len(stage.events)
        await group.works(DELAY + 10, *all_workers)
        assert [worker.joins(back) for worker in all_workers] == [0, 0, 0]
        assert [worker.told("assigned", "revoked", "lost", since=before) for worker in survivors] == [[], []]


@scenario(topics={"t": 6})
async def test_a_member_with_another_name_has_what_was_lost_at_the_end_of_the_delay(stage: Stage) -> None:
    """KIP-415, to the letter: Connect's workers have no names. Given a member that crashes and comes back under
    another name before the delay is over, then that rebalance changes no assignment, and the delay goes on for the rest
    of its time; at its end all join again, and the member gets its old partitions.
    """
    async with crew(stage, "c1", "c2", "c3") as group:
        lost, *survivors = sorted(group.workers, key=lambda worker: worker is group.leader())
        had, before = lost.owned, len(stage.events)
        lost.crash()
        await group.works(SESSION + DELAY // 3, *survivors)
        end = group.leader().until
        again = group.hire(lost.name, known_as="nobody that the others know")
        all_workers = [*survivors, again]
        await group.works(HEARTBEAT + 1, *survivors)
        assert [worker.until for worker in all_workers] == pytest.approx([end] * 3, abs=0.1)
        assert [worker.joins(before) for worker in survivors] == [2, 2]
        waits = len(stage.events)
        await group.works_until(end, *all_workers)
        assert group.unowned() == had
        assert not again.owned
        await stage.until(lambda: not group.unowned())
        assert stage.loop.time() == pytest.approx(end, abs=HEARTBEAT + 1)
        assert again.owned == had
        await group.works(DELAY + 10, *all_workers)
        assert [worker.joins(waits) for worker in all_workers] == [1, 1, 1]
        assert [worker.told("assigned", "revoked", "lost", since=before) for worker in survivors] == [[], []]


@scenario(topics={"t": 8})
async def test_the_delay_outlives_the_leaders(stage: Stage) -> None:
    """KIP-415. Given a leader that crashes, and later its successor too, then the next leader knows the lost
    partitions and the rest of the first delay: also where its rebalance had to wait until the session of the second one
    was over, because a member joined meanwhile.
    """
    async with crew(stage, "c1", "c2", "c3", "c4") as group:
        first = group.leader()
        had = first.owned
        first.crash()
        others = [worker for worker in group.workers if worker is not first]
        await group.works(SESSION + DELAY // 3, *others)
        second = group.leader()
        assert second in others
        assert group.unowned() == had
        end = second.until
        had |= second.owned
        second.crash()
        others.remove(second)
        before = len(stage.events)
        await group.works(10, *others)
        newcomer = group.hire("c5")
        await group.works(SESSION, *others)
        assert group.leader() in others
        all_workers = [*others, newcomer]
        assert [worker.until for worker in all_workers] == pytest.approx([end] * 3, abs=0.1)
        await group.works_until(end, *all_workers)
        assert group.unowned() == had
        assert not newcomer.owned
        await stage.until(lambda: not group.unowned())
        assert stage.loop.time() == pytest.approx(end, abs=HEARTBEAT + 1)
        assert sorted(len(worker.owned) for worker in all_workers) == [2, 3, 3]
        await group.works(DELAY + 10, *all_workers)
        assert [worker.joins(before) for worker in others] == [2, 2]
        assert [worker.told("revoked", "lost", since=before) for worker in others] == [[], []]


@scenario(topics={"t": 6})
async def test_a_new_leader_learns_of_the_delay_from_the_others(stage: Stage) -> None:
    """KIP-415. Given a delay, a leader that crashes, and a newcomer that leads from its first generation on, then
    it knows the lost partitions and the rest of the delay: it has no past, but the members' user data has both.
    """
    async with crew(stage, "c1", "c2", "c3") as group:
        first = group.leader()
        lost, other = (worker for worker in group.workers if worker is not first)
        had, kept = lost.owned | first.owned, other.owned
        lost.crash()
        await group.works(SESSION + DELAY // 3, first, other)
        end = first.until
        first.crash()
        await group.works(10, other)
        newcomer = group.hire("c4")
        await asyncio.sleep(SESSION - HEARTBEAT - 12)  # its rebalance waits for the end of the first leader's session
        stage.cluster.expire_member("g", other.member.member_id)  # it joins again last, and so does not lead
        await asyncio.sleep(2 * HEARTBEAT)
        assert group.leader() is newcomer
        assert [newcomer.until, other.until] == pytest.approx([end] * 2, abs=2 * HEARTBEAT)
        assert other.owned == kept
        assert group.unowned() == had
        await group.works_until(newcomer.until, other, newcomer)
        await stage.until(lambda: not group.unowned())
        assert stage.loop.time() == pytest.approx(end, abs=3 * HEARTBEAT)
        assert (len(other.owned), len(newcomer.owned)) == (3, 3)
