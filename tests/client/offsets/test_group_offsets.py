"""GroupOffsets: commits and committed offsets, their retries and order, and every version that a broker may speak."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import anyio
import pytest

from aiokc.client.cluster.metadata import Metadata
from aiokc.client.offsets.group_offsets import GroupOffsets
from aiokc.config import ClientConfig
from aiokc.core.group.events import MemberToken
from aiokc.core.offsets.messages import FetchedOffset
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, BrokerError, CommitFailed, MalformedResponse, RequestTimedOut
from aiokc.net.pool import Pool
from aiokc.types import OffsetAndMetadata, TopicPartition
from aiokc.wire import Request
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest
from aiokc.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tests.net.scripted import dead_port

from ..group.classic.scripted_group import TOPIC_ID, Cut, Park, ScriptedGroup, Silence, scripted_group
from ..virtually import on_a_virtual_clock

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER = MemberToken(4, "m-1")


def as_member(partitions: object) -> MemberToken:
    return MEMBER


def topic_id(topic: str) -> UUID | None:
    return TOPIC_ID if topic == "t" else None


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset)


@asynccontextmanager
async def offsets_of(script: ScriptedGroup, **options: Any) -> AsyncIterator[GroupOffsets]:
    """The offsets of group "g", through a pool that knows the cluster."""
    config = ClientConfig(
        bootstrap_servers=script.bootstrap,
        **{"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "reconnect_backoff_ms": 1, **options},
    )
    random = Random(7)
    pool = Pool(config, random=random)
    metadata = Metadata(config, pool, random)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.run)
        tasks.start_soon(metadata.run)
        await metadata.first(10.0)
        yield GroupOffsets(config, pool, "g", random, request_metadata=metadata.request_update)
        tasks.cancel_scope.cancel()
    await pool.aclose()


# The coordinator


async def test_one_lookup_serves_all_waiting_calls() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        found = await asyncio.gather(*(offsets.requests.lookup.coordinator(10.0) for _ in range(5)))
        assert found == [1] * 5
        assert len(script.of(FindCoordinatorRequest)) == 1


async def test_a_call_that_gives_up_waiting_does_not_end_the_lookup_for_others() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        await offsets.requests.lookup.coordinator(10.0)  # the connection is there from here on
        offsets.requests.lookup.forget(None)
        script.instead(FindCoordinatorRequest, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 10_000)
        with pytest.raises(RequestTimedOut, match="COORDINATOR_NOT_AVAILABLE"):
            await offsets.requests.lookup.coordinator(1.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(offsets.requests.lookup.coordinator, 10.0)
            with anyio.move_on_after(0.05):
                await offsets.requests.lookup.coordinator(10.0)
            script.as_usual(FindCoordinatorRequest)
        assert await offsets.requests.lookup.coordinator(0.0) == 1


def test_a_lookup_that_the_deadline_cuts_short_still_says_what_a_broker_answered() -> None:
    async def story() -> None:
        async with (
            scripted_group() as script,
            offsets_of(script, request_timeout_ms=700, fetch_max_wait_ms=50) as offsets,
        ):
            script.instead(FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE, *[Silence()] * 10)
            with pytest.raises(RequestTimedOut, match=r"no broker answered .*the last answer of a broker was: COORD"):
                await offsets.requests.lookup.coordinator(1.5)
            script.as_usual(FindCoordinatorRequest)

    on_a_virtual_clock(story)


async def test_a_coordinator_that_the_metadata_does_not_know_yet_is_asked_where_the_lookup_says_that_it_is() -> None:
    async with scripted_group() as script:
        script.hidden = {2}
        script.coordinator = 2
        async with offsets_of(script) as offsets:
            await offsets.commit({T0: at(5)}, timeout=10.0)
        assert script.committed == {T0: 5}
        assert len(script.of(MetadataRequest)) == 1
        assert [asked.node_id for asked in script.asked if isinstance(asked.request, OffsetCommitRequest)] == [2]


async def test_a_coordinator_that_is_not_where_the_metadata_has_it_makes_it_look_again() -> None:
    """The coordinator has moved. The address in the lookup counts only for a broker that the metadata does not name."""
    async with scripted_group() as script:
        script.coordinator = 2
        script.elsewhere = {2: dead_port()}
        async with offsets_of(script) as offsets:
            script.elsewhere = {}
            await offsets.commit({T0: at(5)}, timeout=10.0)
        assert script.committed == {T0: 5}
        # The lookup names another address, and nobody is at the former one: it may look once for each.
        assert len(script.of(MetadataRequest)) in (2, 3)


async def test_a_coordinator_at_another_address_is_found_where_another_broker_is_at_the_former_one() -> None:
    """That one answers, but NOT_COORDINATOR: no connection fails."""
    async with scripted_group() as script:
        script.coordinator = 2
        script.elsewhere = {2: script._ports[1]}
        async with offsets_of(script, metadata_max_age_ms=3_600_000) as offsets:
            script.elsewhere = {}
            await offsets.commit({T0: at(5)}, timeout=10.0)
        assert script.committed == {T0: 5}


async def test_offsets_that_are_asked_for_late_are_never_older_than_what_was_stored_before_them() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        processed = {T0: at(3)}

        async def by_hand() -> None:
            await offsets.commit({T0: at(5)}, timeout=10.0)
            processed[T0] = at(5)

        stored = await asyncio.gather(by_hand(), offsets.commit(lambda: dict(processed), timeout=10.0))
        assert stored[1] == {T0: at(5)}
        assert script.committed == {T0: 5}
        assert await offsets.commit(dict, timeout=10.0) == {}
        assert len(script.of(OffsetCommitRequest)) == 2


async def test_only_the_coordinator_in_question_is_forgotten() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        await offsets.requests.lookup.coordinator(10.0)
        offsets.requests.lookup.forget(2)
        await offsets.requests.lookup.coordinator(10.0)
        assert len(script.of(FindCoordinatorRequest)) == 1
        script.coordinator = 2
        offsets.requests.lookup.forget(1)
        assert await offsets.requests.lookup.coordinator(10.0) == 2


@pytest.mark.parametrize("versions", [(0, 0), (1, 3), (3, 6), (4, 6)])
async def test_every_version_of_find_coordinator(versions: tuple[int, int]) -> None:
    async with scripted_group({FindCoordinatorRequest: versions}) as script, offsets_of(script) as offsets:
        assert await offsets.requests.lookup.coordinator(10.0) == 1


# Commits


@pytest.mark.parametrize("version", range(2, 11))
async def test_every_version_of_a_commit(version: int) -> None:
    versions: dict[type[Request[Any]], tuple[int, int]] = {OffsetCommitRequest: (version, version)}
    async with scripted_group(versions) as script, offsets_of(script) as offsets:
        wanted = {T0: OffsetAndMetadata(5, "note", 3, topic_id=TOPIC_ID), T1: OffsetAndMetadata(7, topic_id=TOPIC_ID)}
        await offsets.commit(wanted, sender=as_member, timeout=10.0)
        [request] = script.of(OffsetCommitRequest)
        assert script.committed == {T0: 5, T1: 7}
        assert (request.generation_id_or_member_epoch, request.member_id) == (4, "m-1")
        [topic] = request.topics
        assert (topic.name, topic.topic_id) == (("", TOPIC_ID) if version >= 10 else ("t", UUID(int=0)))
        epochs = [partition.committed_leader_epoch for partition in topic.partitions]
        assert epochs == ([3, -1] if version >= 6 else [-1, -1])


async def test_a_commit_of_a_static_member_names_its_instance() -> None:
    """KIP-345: so that a member which was fenced, and does not know it yet, cannot commit."""
    async with scripted_group() as script, offsets_of(script) as offsets:
        await offsets.commit({T0: at(5)}, sender=lambda partitions: MemberToken(4, "m-1", "i"), timeout=10.0)
        [request] = script.of(OffsetCommitRequest)
        assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (4, "m-1", "i")


async def test_topics_without_a_known_id_are_named() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        await offsets.commit({T0: at(5)}, timeout=10.0)
        assert [asked.version for asked in script.asked if isinstance(asked.request, OffsetCommitRequest)] == [9]
        assert await offsets.fetch([T0], timeout=10.0) == {T0: at(5)}
        assert [asked.version for asked in script.asked if isinstance(asked.request, OffsetFetchRequest)] == [9]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
async def test_a_commit_is_repeated_where_that_can_help(code: ErrorCode) -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        script.instead(OffsetCommitRequest, code)
        await offsets.commit({T0: at(5)}, sender=as_member, timeout=10.0)
        assert script.committed == {T0: 5}
        moved = code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *_TOPIC_CODES)
        assert len(script.of(FindCoordinatorRequest)) == 1 + moved


_TOPIC_CODES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_a_commit_without_retry_fails_at_once() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        script.instead(OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await offsets.commit({T0: at(5)}, sender=as_member, timeout=10.0, retry=False)


async def test_a_broken_connection_repeats_the_commit_elsewhere() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        await offsets.requests.lookup.coordinator(10.0)
        script.coordinator = 2
        script.instead(OffsetCommitRequest, Cut())
        await offsets.commit({T0: at(5)}, sender=as_member, timeout=10.0)
        assert [a.node_id for a in script.asked if isinstance(a.request, OffsetCommitRequest)] == [1, 2]


def test_a_commit_that_is_refused_to_the_end_tells_the_last_reason_and_the_partition() -> None:
    async def story() -> None:
        async with scripted_group() as script, offsets_of(script) as offsets:
            script.instead(OffsetCommitRequest, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1000)
            with pytest.raises(RequestTimedOut, match=r"UNKNOWN_TOPIC_OR_PARTITION: group 'g', t-0"):
                await offsets.commit({T0: at(5)}, sender=as_member, timeout=1.0)
            script.as_usual(OffsetCommitRequest)  # the refusals never end

    on_a_virtual_clock(story)


def test_a_silent_coordinator_does_not_hold_a_commit_beyond_its_timeout() -> None:
    async def story() -> None:
        async with scripted_group() as script, offsets_of(script) as offsets:
            script.instead(OffsetCommitRequest, Silence())
            with pytest.raises(RequestTimedOut):
                await offsets.commit({T0: at(5)}, sender=as_member, timeout=0.1)

    on_a_virtual_clock(story)


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_a_commit_of_a_member_that_is_out_says_what_to_do(code: ErrorCode) -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        script.instead(OffsetCommitRequest, code)
        with pytest.raises(
            CommitFailed, match=r"t-0: the group has gone on without member 'm-1'.*max_poll_interval_ms"
        ):
            await offsets.commit({T0: at(5)}, sender=as_member, timeout=10.0)


async def test_what_may_not_be_committed_is_named() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        script.instead(OffsetCommitRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(AuthorizationFailed, match="t-0, t-1"):
            await offsets.commit({T0: at(5), T1: at(6)}, sender=as_member, timeout=10.0)


async def test_an_answer_that_forgets_a_partition_is_malformed() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        script.instead(OffsetCommitRequest, OffsetCommitResponse(topics=[]))
        with pytest.raises(MalformedResponse, match="says nothing about t-0"):
            await offsets.commit({T0: at(5)}, sender=as_member, timeout=10.0)


async def test_an_older_commit_never_overtakes_a_newer_one() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        parked = Park(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        script.instead(OffsetCommitRequest, parked)
        async with anyio.create_task_group() as tasks:
            for offset in (100, 200, 300):
                tasks.start_soon(partial(offsets.commit, {T0: at(offset)}, sender=as_member, timeout=10.0))
            await script.until(lambda: len(script.of(OffsetCommitRequest)) == 1)
            parked.until.set()
        sent = [request.topics[0].partitions[0].committed_offset for request in script.of(OffsetCommitRequest)]
        assert sent == [100, 100, 200, 300]
        assert script.committed == {T0: 300}


async def test_a_commit_behind_a_stuck_one_ends_at_its_own_deadline() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        parked = Park()
        script.instead(OffsetCommitRequest, parked)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(offsets.commit, {T0: at(1)}, sender=as_member, timeout=10.0))
            await script.until(lambda: len(script.of(OffsetCommitRequest)) == 1)
            with pytest.raises(RequestTimedOut, match="an earlier one"):
                await offsets.commit({T0: at(2)}, sender=as_member, timeout=0.05)
            parked.until.set()
        assert script.committed == {T0: 1}


async def test_a_check_before_each_attempt_ends_the_retries() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        script.instead(OffsetCommitRequest, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 9)

        def check(partitions: object) -> MemberToken:
            if len(script.of(OffsetCommitRequest)) == 3:
                raise CommitFailed(ErrorCode.ILLEGAL_GENERATION, "over")
            return MEMBER

        with pytest.raises(CommitFailed, match="over"):
            await offsets.commit({T0: at(1)}, sender=check, timeout=10.0)
        assert len(script.of(OffsetCommitRequest)) == 3
        script.as_usual(OffsetCommitRequest)


async def test_many_partitions_are_committed_in_portions_and_only_a_refused_one_again() -> None:
    """Neither writing a request nor reading its response holds the loop for long."""
    wanted = {TopicPartition("t", number): at(number) for number in range(2_500)}
    async with scripted_group() as script, offsets_of(script) as offsets:
        script.instead(OffsetCommitRequest, ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert await offsets.commit(wanted, sender=as_member, timeout=10.0) == wanted
        assert script.committed == {tp: tp.partition for tp in wanted}
        sent = [[part.partition_index for part in r.topics[0].partitions] for r in script.of(OffsetCommitRequest)]
        assert [len(numbers) for numbers in sent] == [1_000, 1_000, 1_000, 500]
        assert sent[1] == sent[2]


async def test_each_portion_is_looked_at_by_itself() -> None:
    """At all of it before any is stored, and at each portion before that is sent; never again at all that is left."""
    looked: list[int] = []

    def check(partitions: Collection[TopicPartition]) -> MemberToken:
        looked.append(len(partitions))
        return MEMBER

    wanted = {TopicPartition("t", number): at(number) for number in range(4_500)}
    async with scripted_group() as script, offsets_of(script) as offsets:
        await offsets.commit(wanted, sender=check, timeout=10.0)
    assert looked == [1_000, 1_000, 1_000, 1_000, 500] * 2


async def test_others_run_between_the_choice_of_many_offsets_and_the_first_request() -> None:
    """Both look at each partition; whether the partitions are still this member's is looked up behind that."""
    wanted = {TopicPartition("t", number): at(number) for number in range(1_500)}
    seen = list[str]()

    def choice() -> dict[TopicPartition, OffsetAndMetadata]:
        asyncio.get_running_loop().call_soon(seen.append, "others")
        return wanted

    def check(partitions: object) -> MemberToken:
        seen.append("check")
        raise CommitFailed(ErrorCode.ILLEGAL_GENERATION, "over")

    async with scripted_group() as script, offsets_of(script) as offsets:
        with pytest.raises(CommitFailed, match="over"):
            await offsets.commit(choice, sender=check, timeout=10.0)
        assert seen == ["others", "check"]
        assert not script.of(OffsetCommitRequest)
        assert await offsets.commit({T0: at(1)}, sender=as_member, timeout=10.0), "the slot is free again"


async def test_a_membership_that_ends_between_two_portions_ends_the_commit() -> None:
    wanted = {TopicPartition("t", number): at(number) for number in range(2_500)}
    async with scripted_group() as script, offsets_of(script) as offsets:

        def check(partitions: object) -> MemberToken:
            if script.of(OffsetCommitRequest):
                raise CommitFailed(ErrorCode.ILLEGAL_GENERATION, "over")
            return MEMBER

        with pytest.raises(CommitFailed, match="over"):
            await offsets.commit(wanted, sender=check, timeout=10.0)
        assert len(script.of(OffsetCommitRequest)) == 1


# Fetching


async def test_many_partitions_are_asked_about_in_portions() -> None:
    partitions = [TopicPartition("t", number) for number in range(1_001)]
    async with scripted_group() as script, offsets_of(script) as offsets:
        script.committed[partitions[0]] = 5
        script.committed[partitions[-1]] = 6
        found = await offsets.fetch(partitions, timeout=10.0, topic_ids=topic_id)
        assert list(found) == partitions
        assert {tp: offset for tp, offset in found.items() if offset} == {partitions[0]: at(5), partitions[-1]: at(6)}
        assert len(script.of(OffsetFetchRequest)) == 2


@pytest.mark.parametrize("version", range(1, 11))
async def test_every_version_of_a_fetch(version: int) -> None:
    versions: dict[type[Request[Any]], tuple[int, int]] = {OffsetFetchRequest: (version, version)}
    async with scripted_group(versions) as script, offsets_of(script) as offsets:
        script.committed[T0] = 5
        assert await offsets.fetch([T1, T0, T0], timeout=10.0, topic_ids=topic_id) == {T0: at(5), T1: None}
        [request] = script.of(OffsetFetchRequest)
        assert request.require_stable == (version >= 7)


async def test_nothing_asked_is_nothing_sent() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        assert await offsets.fetch([], timeout=10.0) == {}
        assert script.of(FindCoordinatorRequest) == []


@pytest.mark.parametrize("code", [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_ID])
async def test_an_offset_that_is_not_settled_is_waited_for(code: ErrorCode) -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        script.committed[T0] = 5
        script.instead(OffsetFetchRequest, code, code)
        assert await offsets.fetch([T0], timeout=10.0, topic_ids=topic_id) == {T0: at(5)}


@pytest.mark.parametrize(
    "code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
)
async def test_an_error_of_the_group_is_never_taken_for_no_offset(code: ErrorCode) -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        script.committed[T0] = 5
        refused = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=code)])
        script.instead(OffsetFetchRequest, refused)
        assert await offsets.fetch([T0], timeout=10.0) == {T0: at(5)}
        assert len(script.of(OffsetFetchRequest)) == 2


async def test_offsets_that_may_not_be_read_are_named() -> None:
    async with scripted_group() as script, offsets_of(script) as offsets:
        script.instead(OffsetFetchRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(AuthorizationFailed, match="t-0"):
            await offsets.fetch([T0], timeout=10.0)


# Thousands of partitions


@pytest.mark.parametrize("commits", [True, False])
async def test_other_tasks_run_between_portions_that_are_answered_at_once(
    commits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer and the next request, in one step, would hold the loop for both."""
    at_portion: list[int] = []
    steps = 0

    async def answers_at_once(portion: Iterable[TopicPartition], *_: object) -> dict[TopicPartition, Any]:
        at_portion.append(steps)
        return {tp: 0 if commits else FetchedOffset(None, 0) for tp in portion}

    async def others() -> None:
        nonlocal steps
        while True:
            await asyncio.sleep(0)
            steps += 1

    partitions = [TopicPartition("t", number) for number in range(2500)]
    async with scripted_group() as script, offsets_of(script) as offsets:
        monkeypatch.setattr(offsets.requests, "commit" if commits else "fetch", answers_at_once)
        task = asyncio.create_task(others())
        await asyncio.sleep(0)
        if commits:
            await offsets.commit({tp: at(1) for tp in partitions}, timeout=5.0)
        else:
            await offsets.fetch(partitions, timeout=5.0)
        task.cancel()
    assert len(at_portion) == 3
    assert at_portion[0] < at_portion[1] < at_portion[2]
