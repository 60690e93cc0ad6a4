"""What each error code does to a commit and to committed()."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokc import Consumer, OffsetAndMetadata, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthorizationFailed,
    BrokerError,
    CommitFailed,
    KafkaError,
    MemberFenced,
    RebalanceInProgress,
    RequestTimedOut,
    broker_error,
)
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold, disconnect, drop, half_frame, lose_answer
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.group import JoinGroupRequest, SyncGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from tests.more_time import raised_by
from tests.suite.unused_faults import may_be_unused

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
E = ErrorCode


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, topics={"t": 2}) as cluster:
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
            "heartbeat_interval_ms": 50,
            "session_timeout_ms": 30_000,  # the loop may be held up: no member is expired here
            "fetch_max_wait_ms": 20,  # a lookup of the coordinator may wait behind a Fetch
            "retry_backoff_ms": 5,
            "retry_backoff_max_ms": 20,
            "reconnect_backoff_ms": 1,
            **options,
        },
    )


def counted(cluster: Cluster, *apis: Any) -> list[Any]:
    """Count the requests of each kind from here on, in ``hits``. It must be called after the faults are set."""
    return [may_be_unused(cluster.intercept(api, lambda exchange: None)) for api in apis]


# Codes that do not concern the membership, to a member


@pytest.mark.parametrize(
    ("code", "coordinator_is_looked_up", "metadata_is_refreshed"),
    [
        (E.COORDINATOR_LOAD_IN_PROGRESS, False, False),
        (E.COORDINATOR_NOT_AVAILABLE, True, False),
        (E.NOT_COORDINATOR, True, False),
        (E.REQUEST_TIMED_OUT, True, False),
        (E.UNKNOWN_SERVER_ERROR, False, False),
        (E.UNKNOWN_TOPIC_OR_PARTITION, False, True),
        (E.UNKNOWN_TOPIC_ID, False, True),
        (E.INCONSISTENT_TOPIC_ID, False, True),
    ],
)
async def test_a_commit_is_tried_again(
    cluster: Cluster, code: ErrorCode, coordinator_is_looked_up: bool, metadata_is_refreshed: bool
) -> None:
    async with consumer(cluster, "t") as member:
        await member.getmany()
        generation = member.health().generation
        cluster.intercept(OffsetCommitRequest, code, times=2)
        commits, lookups, refreshes = counted(cluster, OffsetCommitRequest, FindCoordinatorRequest, MetadataRequest)
        await member.commit({ZERO: 5})
        assert await member.committed(ZERO) == {ZERO: OffsetAndMetadata(5)}
        assert commits.hits == 1, "it was stored by the first attempt that was not refused"
        assert (lookups.hits > 0) == coordinator_is_looked_up
        if metadata_is_refreshed:
            await refreshes.caught()
        assert (member.health().generation, member.health().error) == (generation, None)


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (E.GROUP_AUTHORIZATION_FAILED, AuthorizationFailed, "group 'g'"),
        (E.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed, "t-0, t-1"),
        (E.OFFSET_METADATA_TOO_LARGE, BrokerError, "t-0, t-1"),
        (E.INVALID_COMMIT_OFFSET_SIZE, BrokerError, "t-0, t-1"),
        (E.INVALID_GROUP_ID, BrokerError, "group 'g'"),
        (E.UNSUPPORTED_VERSION, BrokerError, "group 'g'"),
        (E.GROUP_ID_NOT_FOUND, CommitFailed, "t-0, t-1"),
    ],
)
async def test_a_commit_fails_at_once_and_the_member_goes_on(
    cluster: Cluster, code: ErrorCode, error: type[KafkaError], says: str
) -> None:
    async with consumer(cluster, "t") as member:
        await member.getmany()
        generation = member.health().generation
        refusal = cluster.intercept(OffsetCommitRequest, code)
        with pytest.raises(error, match=f"{code.name}.*{says}"):
            await member.commit({ZERO: 5, ONE: 5})
        assert refusal.hits == 1
        refusal.cancel()
        await member.commit({ZERO: 5, ONE: 5})
        assert member.health().generation == generation


@pytest.mark.parametrize(
    ("code", "error"), [(E.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed), (E.UNKNOWN_TOPIC_ID, RequestTimedOut)]
)
def test_a_topic_that_is_refused_keeps_no_offset_of_another_from_being_stored(
    code: ErrorCode, error: type[KafkaError]
) -> None:
    """Offsets go out a thousand at a time. The last ones are stored although one of the first is refused."""
    others = [TopicPartition("t", number) for number in range(1_500)]

    async def refuse(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        for topic in answer.topics:
            if len(topic.partitions) == 1:
                topic.partitions[0].error_code = code
        return answer

    async def story(cluster: Cluster) -> None:
        refused = cluster.intercept(OffsetCommitRequest, refuse)
        async with consumer(cluster) as outsider:
            with pytest.raises(error, match="u-0"):
                await outsider.commit(dict.fromkeys([TopicPartition("u", 0), *others], 0), timeout_ms=1_000)
            assert cluster.committed("g").keys() >= set(others)
            assert (refused.hits == 2) == (code is E.TOPIC_AUTHORIZATION_FAILED)

    virtually(story, topics={"u": 1, "t": len(others)})


@pytest.mark.parametrize("code", [E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR, E.STALE_MEMBER_EPOCH])
@pytest.mark.parametrize("forbidden_is_first", [True, False])
def test_a_forbidden_topic_hides_no_error_after_which_the_others_are_tried_again(
    code: ErrorCode, forbidden_is_first: bool
) -> None:
    answers: list[dict[int, ErrorCode]] = []  # by the number of the partition: u-0 is forbidden, t-1 is not

    async def refuse(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        answers.append({0: E.TOPIC_AUTHORIZATION_FAILED, 1: E.NONE if answers else code})
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.error_code = answers[-1][partition.partition_index]
        return answer

    async def story(cluster: Cluster) -> None:
        cluster.intercept(OffsetCommitRequest, refuse)
        offsets = {TopicPartition("u", 0): 1, ONE: 1}
        async with consumer(cluster) as outsider:
            with pytest.raises(AuthorizationFailed, match="u-0"):
                await outsider.commit(offsets if forbidden_is_first else dict(reversed(offsets.items())))
        assert [answer[1] for answer in answers] == [code, E.NONE]

    virtually(story, topics={"u": 1, "t": 2})


# Codes that say that the group has gone on


async def test_a_commit_in_a_rebalance_joins_again_and_is_no_loss(cluster: Cluster) -> None:
    async with consumer(cluster, "t") as member:
        await member.getmany()
        refusal = cluster.intercept(OffsetCommitRequest, E.REBALANCE_IN_PROGRESS, times=1)
        (joins,) = counted(cluster, JoinGroupRequest)
        with pytest.raises(RebalanceInProgress):
            await member.commit()
        assert refusal.hits == 1, "not tried again: what is assigned afterwards may be something else"
        waiting = asyncio.ensure_future(member.getmany())
        await joins.caught()
        await joined(member, 2)
        waiting.cancel()
        await member.commit({ZERO: 7})


async def test_a_commit_outside_of_a_stable_generation_fails_locally(cluster: Cluster) -> None:
    """Eager: the member has given up everything, and the new assignment is not there yet. Nothing is sent."""
    options = {"partition_assignment_strategy": ["range"], "request_timeout_ms": 300}
    async with consumer(cluster, "t", **options) as member:
        batch = await member.getmany()
        loading = cluster.intercept(OffsetCommitRequest, E.COORDINATOR_LOAD_IN_PROGRESS)
        before = asyncio.create_task(member.commit({ZERO: 1}, timeout_ms=20_000))
        await loading.caught()
        hold = Hold()
        cluster.intercept(SyncGroupRequest, hold)  # each one: the client repeats it after its request_timeout_ms
        member.enforce_rebalance()
        assert await member.getmany(timeout_ms=0) == {}
        await hold.arrived()
        with pytest.raises(RebalanceInProgress):
            await before
        sent = loading.hits
        reports: list[tuple[set[TopicPartition], type]] = []
        nothing: dict[TopicPartition, int] = {}
        for what in (None, nothing, {ZERO: 2}, batch):
            member.commit_soon(what, lambda offsets, error: reports.append((set(offsets), type(error))))
        await member.commit()
        await member.commit(nothing)
        for not_held in ({ZERO: 2}, batch):
            with pytest.raises(CommitFailed, match="not assigned to this consumer any more"):
                await member.commit(not_held)
        well = type(None)
        assert reports == [(set(), well), (set(), well), ({ZERO}, CommitFailed), (set(batch), CommitFailed)]
        assert loading.hits == sent, "the coordinator was asked to store nothing"
        loading.cancel()
        hold.release()
        while not await member.getmany():
            pass
        await member.commit()


@pytest.mark.parametrize("code", [E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID])
async def test_a_commit_of_a_member_that_is_out_fails_loses_the_partitions_and_can_be_recovered_from(
    cluster: Cluster, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(exchange: Exchange) -> ErrorCode:
        if code is E.UNKNOWN_MEMBER_ID:
            # It joins as another member, and the group would wait for the end of this one's session.
            cluster.expire_member("g")
        return code

    async with consumer(cluster, "t") as member:
        await member.getmany()
        refusal = cluster.intercept(OffsetCommitRequest, refuse, times=1)
        with pytest.raises(CommitFailed, match="the group has gone on without member"):
            await member.commit()
        assert refusal.hits == 1
        with pytest.raises(CommitFailed):
            await member.commit()
        batch = await member.getmany()
        assert "lost t-0, t-1" in caplog.text, "lost, and not revoked: nothing may be committed for them any more"
        assert all(records[0].offset == 0 for records in batch.values()), "it joined again, and reads them again"
        await member.commit(batch)


async def test_a_commit_of_a_fenced_member_is_fatal(cluster: Cluster) -> None:
    async with consumer(cluster, "t", group_instance_id="i") as member:
        await member.getmany()
        cluster.intercept(OffsetCommitRequest, E.FENCED_INSTANCE_ID, times=1)
        with pytest.raises(MemberFenced, match="FENCED_INSTANCE_ID"):
            await member.commit()
        for call in (member.getmany(timeout_ms=0), member.commit()):
            with pytest.raises(MemberFenced):
                await call
        assert isinstance(member.health().error, MemberFenced)


async def test_a_fenced_member_learns_of_it_by_its_next_call_although_no_call_waited_for_the_commit(
    cluster: Cluster,
) -> None:
    async with consumer(cluster, "t", group_instance_id="i") as member:
        await member.getmany()
        cluster.intercept(OffsetCommitRequest, E.FENCED_INSTANCE_ID, times=1)
        errors: list[KafkaError | None] = []
        member.commit_soon(on_done=lambda offsets, error: errors.append(error))

        async def go_on() -> None:
            while True:
                await member.getmany()

        with pytest.raises(MemberFenced):
            await go_on()
        await member.stop()
        assert [type(error) for error in errors] == [MemberFenced]


async def joined(member: Consumer, generation: int) -> None:
    membership = member._runtime.membership
    assert membership is not None
    async with asyncio.timeout(20):
        while member.health().generation != generation or member.health().rebalancing:
            await membership.moved.wait()


# All codes that there are


async def test_every_code_leads_to_another_attempt_or_to_a_typed_error(cluster: Cluster) -> None:
    """Also those that Kafka never answers a commit with: none of them is taken for success, or tried for ever."""
    async with consumer(cluster) as reader:
        reader.assign([ZERO])
        for number, code in enumerate((code for code in ErrorCode if code is not E.NONE), 1):
            refusal = cluster.intercept(OffsetCommitRequest, code, times=1)
            if broker_error(code).retriable or code is E.STALE_MEMBER_EPOCH:
                await reader.commit({ZERO: number})
            else:
                with pytest.raises(BrokerError, match=f"^{code.name}: ") as raised:
                    await reader.commit({ZERO: number})
                assert raised.value.code is code
                await reader.commit({ZERO: number})
            assert refusal.hits == 1
            assert await reader.committed(ZERO) == {ZERO: OffsetAndMetadata(number)}, code


# committed()


@pytest.mark.parametrize(
    "code",
    [
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.UNSTABLE_OFFSET_COMMIT,
        E.UNKNOWN_SERVER_ERROR,
        E.UNKNOWN_TOPIC_ID,
    ],
)
async def test_committed_waits_for_a_stable_answer(cluster: Cluster, code: ErrorCode) -> None:
    async with consumer(cluster) as reader:
        await reader.commit({ZERO: 5})
        refusal = cluster.intercept(OffsetFetchRequest, code, times=2)
        assert await reader.committed(ZERO) == {ZERO: OffsetAndMetadata(5)}
        assert refusal.hits == 2
        cluster.intercept(OffsetFetchRequest, code)
        await raised_by(
            lambda timeout_ms: reader.committed(ZERO, timeout_ms=timeout_ms),
            RequestTimedOut,
            f"{code.name}|no coordinator",
            timeouts_ms=(1_000, 10_000),
        )


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (E.GROUP_AUTHORIZATION_FAILED, AuthorizationFailed),
        (E.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed),
        (E.UNSUPPORTED_VERSION, BrokerError),
    ],
)
async def test_committed_fails_at_once(cluster: Cluster, code: ErrorCode, error: type[KafkaError]) -> None:
    async with consumer(cluster) as reader:
        refusal = cluster.intercept(OffsetFetchRequest, code)
        with pytest.raises(error, match=f"{code.name}: .*group 'g'"):
            await reader.committed(ZERO)
        assert refusal.hits == 1


# The network


@pytest.mark.parametrize("fault", [disconnect(), lose_answer(), half_frame()], ids=["cut", "answer lost", "half"])
async def test_a_broken_connection_repeats_the_commit(cluster: Cluster, fault: Any) -> None:
    async with consumer(cluster) as reader:
        cluster.intercept(OffsetCommitRequest, fault, times=1)
        await reader.commit({ZERO: 5})
        assert await reader.committed(ZERO) == {ZERO: OffsetAndMetadata(5)}


async def test_commit_ends_at_its_deadline_whatever_is_refused(cluster: Cluster) -> None:
    """aiokafka tries for ever here."""
    async with consumer(cluster, retry_backoff_ms=20, retry_backoff_max_ms=20) as reader:
        for fault in (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_LOAD_IN_PROGRESS, drop()):
            refusal = cluster.intercept(OffsetCommitRequest, fault)
            for timeout_ms in (700, 10_000):  # the second one for a busy machine, which has not asked within the first
                with pytest.raises(RequestTimedOut):
                    await reader.commit({ZERO: 5}, timeout_ms=timeout_ms)
                if refusal.hits > 0:
                    break
            assert 1 <= refusal.hits <= timeout_ms // 14, "with pauses in between"
            refusal.cancel()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_commit_ends_at_its_deadline_with_every_protocol(assignor: str) -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        async with consumer(cluster, partition_assignment_strategy=[assignor]) as reader:
            await asyncio.sleep(60)
            silence = cluster.intercept(OffsetCommitRequest, drop())
            began = loop.time()
            with pytest.raises(RequestTimedOut):
                await reader.commit({ZERO: 5}, timeout_ms=2_000)
            assert loop.time() - began == pytest.approx(2, abs=0.1)
            silence.cancel()

    virtually(story, brokers=1)


async def test_a_lookup_of_the_coordinator_does_not_wait_behind_a_fetch(cluster: Cluster) -> None:
    """A broker answers the requests of a connection in order, and holds back a Fetch where there is nothing to read."""
    async with consumer(cluster, fetch_max_wait_ms=20_000) as reader:
        reader.assign([ZERO])
        await reader.getmany()
        fetch = cluster.intercept(FetchRequest, lambda exchange: None)
        await reader.commit()
        await fetch.caught()
        cluster.intercept(OffsetCommitRequest, E.NOT_COORDINATOR, times=1)
        async with asyncio.timeout(10):
            await reader.commit({ZERO: 5})


async def test_the_coordinator_moves_in_the_middle(cluster: Cluster) -> None:
    async with consumer(cluster, "t") as member:
        await member.getmany()
        await member.commit({ZERO: 1})
        cluster.move_coordinator("g")
        await member.commit({ZERO: 2})
        assert await member.committed(ZERO) == {ZERO: OffsetAndMetadata(2)}
        assert member.health().generation == 1, "a coordinator that moved ends no membership"
