"""Coordinators that refuse a KIP-848 member: the application is told once, in the coordinator's words, and goes on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, BrokerError
from aiokc.testing import Acl, Cluster
from aiokc.testing.faults import drop
from aiokc.wire import Request
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest
from aiokc.wire.messages.offsets import OffsetFetchRequest

from ....virtually import virtually
from ..group_stories import BOTH, T0, Told, asked_of, consumer_of, heartbeats, of_client, polls, read, shared

ANYONE = "ANONYMOUS"
#: So that the anonymous user of a test may do what is granted, and no more.
NO_SUPER_USERS: dict[str, Any] = {"super_users": ()}


async def refused(consumer: Consumer[Any, Any], match: str) -> BrokerError:
    with pytest.raises(BrokerError, match=match) as error:
        await consumer.getmany(timeout_ms=30_000)
    return error.value


@pytest.mark.parametrize("protocol", ["consumer", "auto"])
def test_a_full_group_has_a_place_again_for_a_later_call(protocol: str) -> None:
    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        first = consumer_of(cluster)
        await first.start()
        await shared(first)
        async with consumer_of(cluster, client_id="late", group_protocol=protocol) as second:
            for _ in range(3):
                error = await refused(second, r"group\.consumer\.max\.size.*maximum capacity of 1 members")
                assert error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
            ours = first.group_metadata().member_id
            assert len([sent for _, sent in heartbeats(asked) if sent.member_id != ours]) == 3, "one for each call"
            assert isinstance(second.health().error, BrokerError)
            await polls(first, 30.0)
            assert first.assignment() == BOTH
            await first.stop()
            await shared(second)
            assert second.health().error is None

    virtually(story, group_consumer_max_size=1)


def test_an_assignor_that_the_brokers_do_not_have_is_named() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, group_remote_assignor="fair") as consumer:
            error = await refused(consumer, r"group_remote_assignor='fair' is not.*Supported assignors: uniform, range")
            assert error.code is ErrorCode.UNSUPPORTED_ASSIGNOR
            assert cluster.members("g") == []

    virtually(story)


def test_a_wish_for_an_assignor_is_heard() -> None:
    """With range the first member has the first partition of every topic; uniform evens the sums out."""

    async def story(cluster: Cluster) -> None:
        wish: dict[str, Any] = {"group_remote_assignor": "range", "topics": ("t", "u", "v")}
        async with consumer_of(cluster, **wish) as one, consumer_of(cluster, **wish) as two:
            while sorted(len(each.assignment()) for each in (one, two)) != [0, 3]:
                await asyncio.gather(polls(one, 0.2), polls(two, 0.2))

    virtually(story, topics={"t": 1, "u": 1, "v": 1})


def test_a_group_that_may_not_be_read_is_raised_once_for_each_call() -> None:
    async def story(cluster: Cluster) -> None:
        told = Told()
        cluster.append("t", b"one")
        cluster.revoke(ANYONE, group="g")
        async with consumer_of(cluster, told) as consumer:
            for _ in range(2):
                with pytest.raises(AuthorizationFailed, match="group 'g'"):
                    await consumer.getmany(timeout_ms=30_000)
            cluster.grant(Acl(ANYONE, "Read", group="g"))
            assert await read(consumer, 1) == [b"one"]
            cluster.revoke(ANYONE, group="g")
            with pytest.raises(AuthorizationFailed, match="group 'g'"):
                await polls(consumer, 30.0)
            assert told.events == [("assigned", BOTH), ("lost", BOTH)]
            cluster.grant(Acl(ANYONE, "Read", group="g"))
            assert await read(consumer, 1) == [b"one"], "it was not committed"
            assert consumer.health().error is None

    virtually(story, **NO_SUPER_USERS)


@pytest.mark.parametrize("protocol", ["consumer", "auto"])
@pytest.mark.parametrize("api", [FindCoordinatorRequest, ConsumerGroupHeartbeatRequest])
def test_an_application_that_does_not_give_up_asks_in_growing_intervals(api: type[Request[Any]], protocol: str) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"one")
        refusal = cluster.intercept(api, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        asked, loop = asked_of(cluster), asyncio.get_running_loop()
        async with consumer_of(cluster, group_protocol=protocol) as consumer:
            start = loop.time()
            while loop.time() < start + 30.0:
                with pytest.raises(AuthorizationFailed):
                    await consumer.getmany()
            counts = asked.requests_per_second(start)
            assert max(counts) < 20
            assert sum(counts[5:]) < 2 * len(counts)
            refused = loop.time()
            consumer.unsubscribe()
            consumer.subscribe(["t"])
            with pytest.raises(AuthorizationFailed):
                await consumer.getmany(timeout_ms=30_000)
            assert loop.time() < refused + 0.1, "another subscription is another attempt"
            refusal.cancel()
            assert await read(consumer, 1) == [b"one"]

    virtually(story)


def test_a_member_of_a_topic_alone_that_may_not_be_described_joins_once_it_may() -> None:
    """The coordinator refuses its heartbeats until then."""

    async def story(cluster: Cluster) -> None:
        told = Told()
        cluster.append("secret", b"one")
        cluster.revoke(ANYONE, "secret")
        # The metadata know of the permission before the next heartbeat: else it would leave the topic out once more.
        async with consumer_of(cluster, told, topics=["secret"], metadata_max_age_ms=100) as consumer:
            for _ in range(3):
                with pytest.raises(AuthorizationFailed, match="secret"):
                    await polls(consumer, 60.0)
                await asyncio.sleep(5.0)
            assert consumer.health().error is None, "it does not end the membership"
            error = consumer.health().last_error
            assert isinstance(error, AuthorizationFailed)
            assert "needs the DESCRIBE permission on all topics that it subscribes to" in str(error)
            assert cluster.members("g") == []
            cluster.grant(Acl(ANYONE, "Read", topic="secret"))
            values: list[bytes] = []
            while not values:
                try:
                    values = await read(consumer, 1)
                except AuthorizationFailed:  # the metadata are older than the permission
                    await asyncio.sleep(1.0)
            assert values == [b"one"]
            await polls(consumer, 10.0)
            assert consumer.health().last_error is None
            assert {what for what, _ in told.events} == {"assigned"}

    virtually(story, topics={"secret": 1}, **NO_SUPER_USERS)


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_what_passes_is_told_and_waited_for(code: ErrorCode) -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        refusal = cluster.intercept(ConsumerGroupHeartbeatRequest, code)
        async with consumer_of(cluster, told) as consumer:
            await polls(consumer, 20.0)
            assert refusal.hits == len(heartbeats(asked))
            assert 15 <= refusal.hits <= 40, "a second apart, after a short while"
            assert isinstance(consumer.health().last_error, BrokerError)
            assert consumer.health().error is None
            refusal.cancel()
            assert await read(consumer, 1) == [b"one"]
            assert consumer.health().last_error is None
            assert told.events == [("assigned", BOTH)]

    virtually(story)


def test_offsets_that_cannot_be_fetched_are_asked_for_at_a_calm_pace() -> None:
    """KAFKA-20765: an answer of a stale epoch was asked for again at once, for as long as it came."""

    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        cluster.append("t", b"one", b"two")
        async with consumer_of(cluster) as consumer:
            await read(consumer, 2)
            await consumer.commit({T0: 1})
        refusal = cluster.intercept(OffsetFetchRequest, ErrorCode.STALE_MEMBER_EPOCH)
        async with consumer_of(cluster, auto_offset_reset="latest") as consumer:
            began = asyncio.get_running_loop().time()
            assert await consumer.getmany(timeout_ms=60_000) == {}
            assert asyncio.get_running_loop().time() - began >= 60.0
            assert 30 <= refusal.hits <= 2 * 60
            assert len(heartbeats(asked)) <= 3 * 60, "each refusal is a reason to ask for the epoch"
            refusal.cancel()
            assert await read(consumer, 1) == [b"two"]

    virtually(story)


def test_a_silent_coordinator_costs_no_assignment_and_is_told() -> None:
    """Of the session's length the member knows nothing: it reads on, and asks again by other connections."""

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        async with consumer_of(cluster, told, client_id="a") as consumer:
            await shared(consumer)
            silent = cluster.intercept(ConsumerGroupHeartbeatRequest, drop(), where=of_client("a"))
            await polls(consumer, 300.0)
            assert consumer.assignment() == BOTH
            assert consumer.health().last_error is not None
            assert 300 / 15 <= silent.hits <= 300 / 5
            cluster.append("t", b"one")
            assert await read(consumer, 1) == [b"one"]
            silent.cancel()
            await polls(consumer, 30.0)
            assert consumer.health().last_error is None
            assert told.events[1:] == [("lost", BOTH), ("assigned", BOTH)], "its session had ended long since"
            joins = [sent for _, sent in heartbeats(asked) if sent.member_epoch == 0]
            assert len({sent.member_id for sent in joins}) == 1

    virtually(story)


def test_a_join_that_waits_for_the_end_of_the_former_session_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Brokers before 4.3 fence a member that they know, and that joins again: they did not hear that it had left."""
    caplog.set_level(logging.INFO, logger="aiokc.group")

    def levels() -> list[int]:
        return [one.levelno for one in caplog.records if "a former membership under this member id" in one.message]

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"one")
        async with consumer_of(cluster) as consumer:
            await shared(consumer)
            consumer.subscribe(["t", "u"])
            await polls(consumer, 10.0)  # its second epoch: only a member of the first one may join again
            cluster.intercept(
                ConsumerGroupHeartbeatRequest,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                times=1,
                where=lambda exchange: exchange.request.member_epoch == -1,
            )
            consumer.unsubscribe()
            await asyncio.sleep(1.0)
            consumer.subscribe(["t"])
            await polls(consumer, 10.0)
            error = consumer.health().last_error
            assert isinstance(error, BrokerError)
            assert error.code == ErrorCode.FENCED_MEMBER_EPOCH
            assert levels() == [logging.INFO]
            await polls(consumer, 30.0)
            assert levels() == [logging.INFO, logging.WARNING], "it takes long"
            assert await read(consumer, 1) == [b"one"]
            assert consumer.health().last_error is None

    virtually(story, as_version="4.2", topics={"t": 2, "u": 1})


def test_a_consumer_with_a_group_and_partitions_of_its_own_choice_is_no_member() -> None:
    """KAFKA-20426: a consumer with a group id and assign() kept a thread busy."""

    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        cluster.append("t", b"one")
        consumer = consumer_of(cluster)
        consumer.unsubscribe()
        consumer.assign([T0])
        async with consumer:
            assert await read(consumer, 1) == [b"one"]
            began = asyncio.get_running_loop().time()
            await polls(consumer, 60.0)
            assert heartbeats(asked) == []
            assert len([when for when, _ in asked.of(MetadataRequest) if when > began]) <= 2
            await consumer.commit()
            assert cluster.committed("g") == {T0: 1}

    virtually(story)
