"""The order of commits: the newest call wins, and each commit names the member that its caller was."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from aiokc import Consumer, ConsumerRecords, TopicPartition
from aiokc.client.offsets.async_commits import AsyncCommits
from aiokc.client.offsets.commit import of_former_topics
from aiokc.client.offsets.commit_order import CommitOrder, CommitSlot
from aiokc.client.offsets.group_offsets import AsOfItsSlot, GroupOffsets, Offsets
from aiokc.core.group.events import MemberToken
from aiokc.error_codes import ErrorCode
from aiokc.errors import BrokerError, CommitFailed, ConnectionFailed, KafkaError, RebalanceInProgress
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold
from aiokc.types import OffsetAndMetadata
from aiokc.wire.messages.group import SyncGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest

from ..group.classic.scripted_group import Cut, scripted_group
from ..listening import Noting, Polling, listening
from ..virtually import virtually
from .test_group_offsets import T0, T1, at, offsets_of

pytestmark = pytest.mark.timeout(30)


# An older one comes late


def begun(offsets: GroupOffsets) -> int:
    """Return the order of a call whose first attempt was refused: it waits for the second one, without a slot."""
    order = offsets.commit_order.begin_call()
    offsets.commit_order.take(order).end()
    return order


async def test_an_older_commit_does_not_overwrite_a_newer_and_lower_one() -> None:
    """The application has gone back: what it commits last is what it means, and not the greatest offset."""
    async with scripted_group() as script, offsets_of(script) as offsets:
        older = begun(offsets)
        await offsets.commit({T0: at(3)}, timeout=10.0)
        again = offsets.commit_order.take(older)
        stored = await offsets.commit({T0: at(8), T1: at(8)}, timeout=10.0, slot=again)
        assert stored == {T1: at(8)}
        assert script.committed == {T0: 3, T1: 8}


async def test_offsets_decided_in_the_slot_are_overwritten_by_higher_ones_only() -> None:
    """In its slot, auto-commit told what the application had processed. A commit behind it may know more or less."""
    async with scripted_group() as script, offsets_of(script) as offsets:
        auto, behind = offsets.commit_order.take(), offsets.commit_order.take()
        told = AsOfItsSlot(lambda: {T0: at(5), T1: at(5)})
        await offsets.commit(told, timeout=10.0, slot=auto)
        stored = await offsets.commit({T0: at(4), T1: at(7)}, timeout=10.0, slot=behind)
        assert stored == {T1: at(7)}
        assert script.committed == {T0: 5, T1: 7}


async def test_an_auto_commit_whose_answer_is_lost_is_not_undone_by_older_ones() -> None:
    """The group has its offset, which nobody knows. The answer to the next commit, which sends it again, is lost, too.

    A commit that goes back is sent for its own sake.
    """
    async with scripted_group() as script, offsets_of(script) as offsets:
        auto, *behind = (offsets.commit_order.take() for _ in range(4))
        script.instead(OffsetCommitRequest, Cut(), Cut())
        told = AsOfItsSlot(lambda: {T0: at(5), T1: at(5)})
        with pytest.raises(ConnectionFailed):
            await offsets.commit(told, timeout=10.0, slot=auto, retry=False)
        with pytest.raises(ConnectionFailed):
            await offsets.commit({T0: at(3), T1: at(7)}, timeout=10.0, slot=behind[0], retry=False)
        assert await offsets.commit({T0: at(4)}, timeout=10.0, slot=behind[1]) == {T0: at(5)}
        assert script.committed == {T0: 5}
        stored = await offsets.commit({T0: at(4), T1: at(2)}, timeout=10.0, slot=behind[2], rewinds=[T1])
        assert stored == {T1: at(2)}


async def test_offsets_decided_in_the_slot_never_stand_for_a_commit_that_goes_back() -> None:
    """The application had processed these records when it called for the lower offset: it wants them again."""
    async with scripted_group() as script, offsets_of(script) as offsets:
        auto, behind = offsets.commit_order.take(), offsets.commit_order.take()
        await offsets.commit(AsOfItsSlot(lambda: {T0: at(5), T1: at(5)}), timeout=10.0, slot=auto)
        stored = await offsets.commit({T0: at(4), T1: at(4)}, timeout=10.0, slot=behind, rewinds=[T0])
        assert stored == {T0: at(4)}
        assert script.committed == {T0: 4, T1: 5}


async def test_a_commit_that_goes_back_does_not_undo_a_newer_one() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        back = begun(offsets)
        await offsets.commit({T0: at(8)}, timeout=10.0)
        again = offsets.commit_order.take(back)
        assert await offsets.commit({T0: at(4)}, timeout=10.0, slot=again, rewinds=[T0]) == {}
        assert script.committed == {T0: 8}


async def test_offsets_decided_in_the_slot_never_stand_for_higher_ones_that_waited() -> None:
    """Auto-commit was called for after the commit that waits, and goes first: it left out what the application held."""
    async with scripted_group() as script, offsets_of(script) as offsets:
        waiting = begun(offsets)
        await offsets.commit(AsOfItsSlot(lambda: {T0: at(5), T1: at(5)}), timeout=10.0)
        again = offsets.commit_order.take(waiting)
        stored = await offsets.commit({T0: at(8), T1: at(4)}, timeout=10.0, slot=again)
        assert stored == {T0: at(8)}
        assert script.committed == {T0: 8, T1: 5}


async def test_a_commit_that_waited_does_not_undo_a_newer_one_though_an_auto_commit_came_in_between() -> None:
    """The application has gone back, and has read a little again."""
    async with scripted_group() as script, offsets_of(script) as offsets:
        waiting = begun(offsets)
        await offsets.commit({T0: at(3)}, timeout=10.0)
        await offsets.commit(AsOfItsSlot(lambda: {T0: at(4)}), timeout=10.0)
        again = offsets.commit_order.take(waiting)
        assert await offsets.commit({T0: at(8)}, timeout=10.0, slot=again) == {}
        assert script.committed == {T0: 4}


async def test_a_commit_of_a_recreated_topic_is_not_taken_for_an_old_one_because_of_the_former_topic() -> None:
    former, new = (OffsetAndMetadata(9, topic_id=UUID(int=number)) for number in (1, 2))
    async with scripted_group() as script, offsets_of(script) as offsets:
        waiting = begun(offsets)
        await offsets.commit({T0: former}, timeout=10.0)
        await offsets.commit(AsOfItsSlot(lambda: {T0: replace(new, offset=2)}), timeout=10.0)
        again = offsets.commit_order.take(waiting)
        wanted = {T0: replace(new, offset=3)}
        assert await offsets.commit(wanted, timeout=10.0, slot=again) == wanted


async def test_offsets_decided_in_the_slot_are_as_new_as_that_at_a_second_attempt_too() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        auto = begun(offsets)
        await offsets.commit({T0: at(9)}, timeout=10.0)
        again = offsets.commit_order.take(auto)
        await offsets.commit(AsOfItsSlot(lambda: {T0: at(3)}), timeout=10.0, slot=again)  # the application went back
        assert script.committed == {T0: 3}


@pytest.mark.parametrize("is_late", [False, True], ids=["named", "told in its slot"])
@pytest.mark.parametrize("waits", [False, True], ids=["one at a time", "the next one waits already"])
async def test_what_is_stored_is_noted_only_for_commits_that_are_under_way(
    waits: bool, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics come and go: a table of all partitions that were ever committed would grow for ever."""
    many, noted = 10_000, 0

    async def answers_at_once(portion: Mapping[TopicPartition, OffsetAndMetadata], *_: object) -> dict[Any, int]:
        return dict.fromkeys(portion, 0)

    async with scripted_group() as script, offsets_of(script) as offsets:
        monkeypatch.setattr(offsets.requests, "commit", answers_at_once)
        table = offsets._stored._stored
        slot = offsets.commit_order.take()
        for number in range(0, many, 10):
            following = offsets.commit_order.take() if waits else None
            one = {TopicPartition("t", number + index): at(1) for index in range(10)}
            await offsets.commit(AsOfItsSlot(partial(dict, one)) if is_late else one, timeout=10.0, slot=slot)
            noted = max(noted, len(table))
            slot = following or offsets.commit_order.take()
        slot.end()
        assert noted <= 20
        with offsets.commit_order.call():
            await offsets.commit({TopicPartition("u", number): at(1) for number in range(many)}, timeout=10.0)
            assert len(table) == many, "an older call has a second attempt yet"
    assert not table


async def test_what_is_called_for_after_an_auto_commit_told_its_offsets_shares_no_older_slot() -> None:
    """In a slot that was taken before, the application's newest and lower offset would look older than auto-commit's.

    It would be reported as stored, and never be sent.
    """
    done: list[KafkaError | None] = []
    async with scripted_group() as script, offsets_of(script) as group:

        async def commit_as(member: MemberToken | None, offsets: Offsets, *, held: object, **options: Any) -> None:
            await group.commit(offsets, **options)

        commits = AsyncCommits("g", group.commit_order, commit_as, 10.0)
        auto = group.commit_order.take()

        def tell() -> Mapping[TopicPartition, OffsetAndMetadata]:
            commits.add(None, {T0: at(4)}, lambda stored, error: done.append(error))  # it has just gone back
            return {T0: at(5)}

        commits.add(None, {T1: at(1)}, None)
        running = asyncio.ensure_future(commits.run())
        try:
            await group.commit(AsOfItsSlot(tell), timeout=10.0, slot=auto)
            assert await commits.settled(asyncio.get_running_loop().time() + 10.0)
        finally:
            running.cancel()
            await asyncio.wait([running])
        commits.run_callbacks()
        assert done == [None]
        assert script.committed == {T0: 4, T1: 1}


# Of two generations


class _Sent:
    """Notes each commit and the member that it names."""

    def __init__(self) -> None:
        self.all: list[tuple[MemberToken | None, dict[TopicPartition, OffsetAndMetadata]]] = []

    async def commit_as(
        self,
        member: MemberToken | None,
        offsets: Offsets,
        *,
        timeout: float,
        retry: bool,
        slot: CommitSlot | None,
        held: object,
        rewinds: object,
    ) -> None:
        assert callable(offsets)
        assert slot is not None
        self.all.append((member, dict(offsets())))
        slot.end()


async def test_unwaited_commits_of_two_generations_are_two_requests() -> None:
    """The second commit was called after the member had joined again. In the name of the first generation it would be
    refused, or it would store offsets of what are now another member's partitions.
    """
    turns, sent = CommitOrder(), _Sent()
    commits = AsyncCommits("g", turns, sent.commit_as, 10.0)
    first, second = MemberToken(1, "m"), MemberToken(2, "m")
    before = turns.take()  # both wait for this one
    done: list[tuple[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None]] = []
    for member, offset in ((first, 1), (first, 2), (second, 3)):
        commits.add(member, {T0: at(offset)}, lambda offsets, error: done.append((offsets, error)))
    running = asyncio.ensure_future(commits.run())
    try:
        before.end()
        assert await commits.settled(asyncio.get_running_loop().time() + 10.0)
    finally:
        running.cancel()
        await asyncio.wait([running])
    commits.run_callbacks()
    assert sent.all == [(first, {T0: at(2)}), (second, {T0: at(3)})]
    assert done == [({T0: at(1)}, None), ({T0: at(2)}, None), ({T0: at(3)}, None)]


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (None, "UNKNOWN_TOPIC_ID: group 'g', t-1: the topic"),
        (BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "no"), "UNKNOWN_SERVER_ERROR: no"),
        (of_former_topics("g", {T0}), "UNKNOWN_TOPIC_ID: group 'g', t-0, t-1: the topic"),
    ],
)
async def test_what_is_logged_of_a_call_without_a_callback_that_shares_a_request_is_its_own_outcome(
    error: KafkaError | None, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The call is of a recreated topic, too. Only if the request succeeds, all others are stored."""

    async def commit_as(member: MemberToken | None, offsets: Offsets, *, slot: CommitSlot | None, **_: object) -> None:
        assert slot is not None
        slot.end()
        if error is not None:
            raise error

    turns = CommitOrder()
    commits = AsyncCommits("g", turns, commit_as, 10.0)
    before = turns.take()
    done: list[KafkaError | None] = []
    commits.add(None, {T0: at(1)}, None, former={T1})
    commits.add(None, {T0: at(2)}, lambda offsets, error: done.append(error))
    running = asyncio.ensure_future(commits.run())
    try:
        before.end()
        assert await commits.settled(asyncio.get_running_loop().time() + 10.0)
    finally:
        running.cancel()
        await asyncio.wait([running])
    commits.run_callbacks()
    assert [str(reported) for reported in done] == [str(error)]
    assert [record.getMessage().partition(" failed: ")[2][: len(logged)] for record in caplog.records] == [logged]


# Of a cooperative member


def test_a_refused_commit_of_a_cooperative_member_is_not_repeated_for_what_went_to_another() -> None:
    """The commit is refused because of the rebalance that takes its partition away: the next owner has it by then."""

    async def story(cluster: Cluster) -> None:
        options: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}
        first_hears, second_hears = Noting(), Noting()
        async with listening(cluster, "t", listener=first_hears, **options) as first, Polling(first):
            await first_hears.until(lambda: len(first_hears.holds) == 2)
            second = listening(cluster, "t", listener=second_hears, **options)
            async with second, Polling(second):
                refused = cluster.intercept(OffsetCommitRequest, ErrorCode.REBALANCE_IN_PROGRESS)
                partitions = frozenset(first_hears.holds)
                commits = {tp: asyncio.ensure_future(first.commit({tp: 1}, timeout_ms=60_000)) for tp in partitions}
                await second_hears.until(lambda: bool(second_hears.holds))
                refused.cancel()
                await asyncio.wait(commits.values())
                [gone], [kept] = second_hears.holds, first_hears.holds
                assert isinstance(commits[gone].exception(), RebalanceInProgress | CommitFailed)
                assert commits[kept].exception() is None
                assert cluster.committed("g") == {kept: 1}, "what the other one commits must not be overwritten"

    virtually(story, topics={"t": 2}, brokers=1)


class _Rebalance:
    """A cooperative member reads "t" while its group rebalances: until ``over()``, the coordinator takes no commit."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        cluster.append("t", *(b"%d" % number for number in range(20)), partition=0)
        self.sent: list[int] = []
        self.reader = listening(cluster, "t", partition_assignment_strategy=["cooperative-sticky"], **options)
        self._cluster = cluster
        self._hold = Hold()

    async def begin(self) -> ConsumerRecords[Any, Any]:
        """Return when the member waits for its assignment, with ten records in the application's hands."""
        batch = await self.reader.getmany(max_records=10)
        self._cluster.intercept(SyncGroupRequest, self._hold)
        self._cluster.intercept(OffsetCommitRequest, self._note)
        self.reader.enforce_rebalance()
        await self._hold.arrived()
        return batch

    def _note(self, exchange: Exchange) -> None:
        self.sent += [part.committed_offset for topic in exchange.request.topics for part in topic.partitions]

    def over(self) -> None:
        self._hold.release()


@pytest.mark.parametrize("seconds", [0, 1], ids=["the commit was called for first", "auto-commit was called for first"])
def test_a_batch_is_stored_though_an_auto_commit_goes_first_after_the_rebalance(seconds: int) -> None:
    """Auto-commit leaves out what the application holds: the very records that its commit(batch) names."""

    async def story(cluster: Cluster) -> None:
        rebalance = _Rebalance(cluster, enable_auto_commit=True, auto_commit_interval_ms=500)
        async with rebalance.reader as reader:
            await rebalance.begin()
            batch = await reader.getmany(max_records=10)  # so the first ten are processed
            await asyncio.sleep(seconds)  # virtual: auto-commit's turn comes
            commit = asyncio.ensure_future(reader.commit(batch))
            await asyncio.sleep(1)
            rebalance.over()
            await commit
            assert cluster.committed("g") == {T0: 20}, "stored when commit() returns"
            await asyncio.sleep(5)
            assert cluster.committed("g") == {T0: 20}

    virtually(story, topics={"t": 1}, brokers=1)


def test_a_commit_of_all_that_was_returned_never_stands_for_a_newer_commit_that_waited_with_it() -> None:
    async def story(cluster: Cluster) -> None:
        rebalance = _Rebalance(cluster)
        async with rebalance.reader as reader:
            await rebalance.begin()
            older = asyncio.ensure_future(reader.commit())
            await asyncio.sleep(0)
            newer = asyncio.ensure_future(reader.commit(await reader.getmany(max_records=10)))
            await asyncio.sleep(0)
            rebalance.over()
            await asyncio.gather(older, newer)
            assert rebalance.sent == [10, 20]
            assert cluster.committed("g") == {T0: 20}

    virtually(story, topics={"t": 1}, brokers=1)


@pytest.mark.parametrize("waits", [True, False], ids=["commit", "commit_soon"])
@pytest.mark.parametrize("offsets", [{T0: 5}, None], ids=["an offset", "all that was returned"])
def test_a_commit_that_goes_back_is_sent_behind_an_auto_commit_that_waited_before_it(
    offsets: dict[TopicPartition, int] | None, waits: bool
) -> None:
    """The application holds records, seeks back, and tells the group so, while a slow commit is under way."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"x"] * 30)
        reader = Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
        )
        await reader.start()
        await reader.getmany(max_records=10)
        hold = Hold()
        cluster.intercept(OffsetCommitRequest, hold, times=1)
        reader.commit_soon({T0: 4})
        await hold.arrived()
        await reader.getmany(max_records=10)  # so ten are processed, and ten are held
        await asyncio.sleep(0.7)  # virtual: auto-commit's turn comes, and it waits
        reader.seek(T0, 5)
        if waits:
            commit = asyncio.ensure_future(reader.commit(offsets))
            await asyncio.sleep(0)
        else:
            reader.commit_soon(offsets)
        hold.release()
        if waits:
            await commit
            assert cluster.committed("g") == {T0: 5}
        await reader.stop()
        assert cluster.committed("g") == {T0: 5}

    virtually(story, topics={"t": 1}, brokers=1)
