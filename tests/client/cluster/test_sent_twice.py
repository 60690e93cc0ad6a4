"""Requests that are under way when the broker ends the SASL session: each may have been handled, and is sent again.

At once, where a second one does no harm. The others count as attempts that were not answered.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokc import Consumer, ErrorCode, Producer, TopicPartition
from aiokc.errors import BrokerError, ProducerFenced
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import disconnect
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from aiokc.wire.messages.group import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokc.wire.messages.group_admin import DeleteGroupsRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest
from aiokc.wire.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokc.wire.messages.sasl import SaslAuthenticateRequest
from aiokc.wire.messages.txn import EndTxnRequest

from ..admin.scene import client_of
from ..admin.test_attempts_in_doubt import CHANGES, assert_in_doubt, change
from ..virtually import Asked, virtually
from .test_refused_logins import ALICE

ZERO = TopicPartition("t", 0)
SESSION_MS = 1500


async def handled_as_the_session_ends(exchange: Exchange) -> None:
    """The broker handles the request, and closes the connection at the end of the session in the place of an answer."""
    await asyncio.sleep(SESSION_MS / 1e3)
    await exchange.handle()
    exchange.abort()


def member(cluster: Cluster, **options: Any) -> Consumer[Any, Any]:
    return Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=10_000,  # else a heartbeat renews the session of the connection meanwhile
        **{**ALICE, **options},
    )


def in_secured_cluster(story: Any, **options: Any) -> None:
    virtually(story, brokers=1, topics={"t": 1}, sasl={"alice": "secret"}, session_ms=SESSION_MS, **options)


def asked_of(cluster: Cluster) -> Asked:
    loop: Any = asyncio.get_running_loop()
    return Asked(cluster, loop)


def said(caplog: pytest.LogCaptureFixture) -> bool:
    return "closed the connection at the end of its SASL session" in caplog.text


def test_a_commit_is_stored_once_more_as_the_same_offset(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"1", b"2")
        asked = asked_of(cluster)
        async with member(cluster, enable_auto_commit=False) as consumer:
            await consumer.getmany()
            fault = cluster.intercept(OffsetCommitRequest, handled_as_the_session_ends, times=1)
            begun = asyncio.get_running_loop().time()
            await consumer.commit()
            assert asyncio.get_running_loop().time() - begun < SESSION_MS / 1e3 + 0.5
            commits = [request for _, request in asked.of(OffsetCommitRequest)]
            assert (fault.hits, len(commits)) == (1, 2)
            assert commits[0] == commits[1]
            assert (await consumer.committed(ZERO))[ZERO].offset == 2  # type: ignore[union-attr]
            assert len(asked.of(JoinGroupRequest)) == 2, "no rebalance: the member id, and then the member"

    with caplog.at_level(logging.INFO):
        in_secured_cluster(story)
    assert said(caplog)


def test_a_member_that_has_left_may_leave_once_more(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        other = member(cluster)
        async with other, member(cluster) as consumer:
            await other.getmany(timeout_ms=6000)
            await consumer.getmany(timeout_ms=1000)
            fault = cluster.intercept(LeaveGroupRequest, handled_as_the_session_ends, times=1)
            caplog.clear()
            await consumer.stop()
            assert fault.hits == 1
            assert len(asked.of(LeaveGroupRequest)) == 2
            assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
            cluster.append("t", b"1")
            assert (await other.getone()).value == b"1"

    with caplog.at_level(logging.INFO):
        in_secured_cluster(story)
    assert said(caplog)


@pytest.mark.parametrize("request_type", [JoinGroupRequest, SyncGroupRequest])
def test_a_join_or_sync_that_was_handled_is_sent_again_and_the_group_forms(
    caplog: pytest.LogCaptureFixture, request_type: Any
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"1")
        fault = cluster.intercept(request_type, handled_as_the_session_ends, times=1)
        async with member(cluster) as consumer:
            assert (await consumer.getone()).value == b"1"
            assert fault.hits == 1
            assert asyncio.get_running_loop().time() < 1000 + 15

    with caplog.at_level(logging.INFO):
        in_secured_cluster(story)
    assert said(caplog)


def test_a_record_is_stored_once_and_no_broker_is_blamed(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        async with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0, **ALICE) as producer:
            fault = cluster.intercept(ProduceRequest, handled_as_the_session_ends, times=1)
            delivery = await producer.send("t", b"1", partition=0)
            await fault.caught()
            begun = asyncio.get_running_loop().time()
            await delivery
            assert (fault.hits, len(asked.of(ProduceRequest))) == (1, 2)
            assert asked.since(begun)["MetadataRequest"] == 0, "the leader is the same"
        assert [record.value for record in cluster.records("t")] == [b"1"]

    with caplog.at_level(logging.INFO):
        in_secured_cluster(story)
    assert said(caplog)
    assert not [record for record in caplog.records if record.name == "aiokc.produce"]


def test_a_group_that_is_deleted_already_is_deleted() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster, **ALICE) as client:
            await client.commit("g", {ZERO: 1})
            fault = cluster.intercept(DeleteGroupsRequest, handled_as_the_session_ends, times=1)
            assert await client.delete_groups(["g"]) == {"g": None}
            assert fault.hits == 1

    in_secured_cluster(story)


def test_a_member_that_is_removed_already_is_removed() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster, **ALICE) as client, member(cluster) as consumer:
            await consumer.wait_assigned()
            (member_id,) = cluster.members("g")
            fault = cluster.intercept(LeaveGroupRequest, handled_as_the_session_ends, times=1)
            assert await client.remove_members("g", [member_id]) == {member_id: None}
            assert fault.hits == 1

    in_secured_cluster(story)


@pytest.mark.parametrize(("api", "refusal", "committed"), CHANGES)
def test_a_refusal_behind_it_does_not_tell_that_nothing_was_changed(
    api: Any, refusal: ErrorCode, committed: dict[TopicPartition, int]
) -> None:
    """The first request makes the change, then a member joins, and the second one is refused."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"v"] * 10, partition=0)
        async with client_of(cluster, **ALICE) as client:
            await client.commit("g", {ZERO: 4})
            cluster.intercept(api, handled_as_the_session_ends, times=1)
            cluster.intercept(api, refusal)
            (error,) = (await change(client, api)).values()
            assert cluster.committed("g") == committed
            assert_in_doubt(error, refusal)

    in_secured_cluster(story)


def test_a_change_that_waited_for_a_renewal_in_vain_is_in_no_doubt() -> None:
    """The session is over, and its renewal ends the connection: the request was not sent before, so it counts once."""

    async def answer_at_the_end(exchange: Exchange) -> Any:
        await asyncio.sleep(0.97 * SESSION_MS / 1e3)
        return await exchange.handle()

    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        async with client_of(cluster, **ALICE) as client:
            cluster.intercept(FindCoordinatorRequest, answer_at_the_end, times=1)
            fault = cluster.intercept(SaslAuthenticateRequest, disconnect(), times=1)
            error = (await client.delete_groups(["missing"]))["missing"]
            assert isinstance(error, BrokerError)
            assert error.code == ErrorCode.GROUP_ID_NOT_FOUND
            assert (fault.hits, len(asked.of(DeleteGroupsRequest))) == (1, 1)

    in_secured_cluster(story)


def test_a_commit_behind_which_the_producer_is_fenced_may_be_done() -> None:
    async def story(cluster: Cluster) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="id", **ALICE) as producer:
            await producer.begin_transaction()
            await producer.send("t", b"1", partition=0)
            cluster.intercept(EndTxnRequest, handled_as_the_session_ends, times=1)
            cluster.intercept(EndTxnRequest, ErrorCode.PRODUCER_FENCED)
            with pytest.raises(ProducerFenced) as raised:
                await producer.commit_transaction()
            assert raised.value.may_be_committed

    in_secured_cluster(story)


@pytest.mark.parametrize(("level", "identities"), [(1, 2), (2, 1)], ids=["before KIP-890", "KIP-890"])
def test_a_commit_that_is_asked_for_once_more_is_no_trouble(
    caplog: pytest.LogCaptureFixture, level: int, identities: int
) -> None:
    """Before KIP-890 a late commit could hit the next transaction, so that one begins with an epoch of its own."""
    told: list[Exception | None] = []

    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)

        def note(exchange: Exchange) -> None:
            told.append(producer.health().last_error)

        async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="id", **ALICE) as producer:
            fault = cluster.intercept(EndTxnRequest, handled_as_the_session_ends, times=1)
            again = cluster.intercept(EndTxnRequest, note, times=1)
            async with producer.transaction():
                await producer.send("t", b"1", partition=0)
            async with producer.transaction():
                await producer.send("t", b"2", partition=0)
            assert (fault.hits, again.hits) == (1, 1)
            assert len(asked.of(InitProducerIdRequest)) == identities
        assert [record.value for record in cluster.records("t")] == [b"1", b"2"]

    with caplog.at_level(logging.INFO):
        in_secured_cluster(story, features={"transaction.version": level})
    assert said(caplog)
    assert told == [None]
    told_of = [record for record in caplog.records if record.name == "aiokc.transactions"]
    assert not [record for record in told_of if record.levelno >= logging.WARNING]
