"""The order of commits: the newest call wins, and each commit names the member that its caller was."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from aiokc import TopicPartition
from aiokc.client.offsets.async_commits import AsyncCommits
from aiokc.client.offsets.commit_order import CommitOrder, CommitSlot
from aiokc.client.offsets.group_offsets import AsOfItsSlot, Offsets
from aiokc.core.group.events import MemberToken
from aiokc.error_codes import ErrorCode
from aiokc.errors import CommitFailed, KafkaError, RebalanceInProgress
from aiokc.testing import Cluster
from aiokc.types import OffsetAndMetadata
from aiokc.wire.messages.offsets import OffsetCommitRequest

from ..group.classic.scripted_group import scripted_group
from ..listening import Noting, Polling, listening
from ..virtually import virtually
from .test_group_offsets import T0, T1, at, offsets_of

pytestmark = pytest.mark.timeout(30)


# An older one comes late


async def test_an_older_commit_does_not_overwrite_a_newer_and_lower_one() -> None:
    """The application has gone back: what it commits last is what it means, and not the greatest offset."""
    async with scripted_group() as script, offsets_of(script) as offsets:
        older = offsets.commit_order.take()
        older.end()  # refused once, for example: it asks for another slot, in the order of the first one
        await offsets.commit({T0: at(3)}, timeout=10.0)
        again = offsets.commit_order.take(older.order)
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
