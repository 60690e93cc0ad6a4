"""Passwords that change while consumers and producers run, in virtual time: what calls raise, how often brokers are
asked, and which members survive.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest

from aiokc import Client, Consumer, Producer
from aiokc.errors import AuthenticationFailed, KafkaError
from aiokc.testing import Cluster
from aiokc.wire.messages.group import JoinGroupRequest
from aiokc.wire.messages.sasl import SaslAuthenticateRequest

from ..virtually import Asked, virtually

ALICE: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "secret",
}


def asked_of(cluster: Cluster) -> Asked:
    loop: Any = asyncio.get_running_loop()
    return Asked(cluster, loop)


def logins_since(asked: Asked, start: float) -> int:
    """Return how many authentications began. A broker refuses SCRAM at its first or second message."""
    return sum(1 for when, kind, _ in asked.log if kind == "SaslHandshakeRequest" and when >= start)


async def polled(consumer: Consumer[Any, Any], seconds: float) -> tuple[list[bytes | None], Counter[str]]:
    """Poll for ``seconds``. Return the values that came, and a count of each error."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    values: list[bytes | None] = []
    errors = Counter[str]()
    while loop.time() < until:
        try:
            batches = await consumer.getmany(timeout_ms=1000)
        except Exception as error:
            errors[type(error).__name__] += 1
        else:
            values += [record.value for records in batches.values() for record in records]
    return values, errors


@pytest.mark.parametrize("bootstrap", ["one", "all"])
def test_a_wrong_password_is_raised_by_start_at_once(bootstrap: str) -> None:
    async def story(cluster: Cluster) -> None:
        asked, loop = asked_of(cluster), asyncio.get_running_loop()
        servers = cluster.bootstrap if bootstrap == "all" else cluster.bootstrap.split(",")[0]
        for user in (Client, Consumer):
            begin = loop.time()
            asked.log.clear()
            given = {**ALICE, "sasl_plain_password": "wrong"}
            topics = () if user is Client else ("t",)
            with pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
                async with user(*topics, bootstrap_servers=servers, **given):
                    pass
            assert loop.time() - begin < 5
            assert logins_since(asked, 0.0) == 1

    virtually(story, sasl={"alice": "secret"})


def test_a_refusal_that_start_raises_is_not_logged_by_the_member_too(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        given = {**ALICE, "sasl_plain_password": "wrong"}
        with pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
            await Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g", **given).start()
        assert [record.name for record in caplog.records if "refused" in record.getMessage()] == []
        async with Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g", **ALICE) as consumer:
            await polled(consumer, 10.0)
            cluster.set_password("alice", "another")
            for broker in (1, 2, 3):
                cluster.disconnect(broker)
            await polled(consumer, 1.0)
            said = [record.name for record in caplog.records if "refused user" in record.getMessage()]
            assert said, "a refusal while the consumer runs is logged"
            assert set(said) == {"aiokc.net"}, "once, by the pool"

    with caplog.at_level(logging.WARNING):
        virtually(story, sasl={"alice": "secret"})


def test_ten_minutes_with_a_wrong_password() -> None:
    """The password changes and all connections are lost: at most 40 attempts follow, and the member then lives on."""

    async def story(cluster: Cluster) -> None:
        asked, loop = asked_of(cluster), asyncio.get_running_loop()
        async with Consumer(
            "t", bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest", **ALICE
        ) as consumer:
            cluster.append("t", b"1", b"2")
            assert (await polled(consumer, 10.0))[0] == [b"1", b"2"]
            await consumer.commit()
            cluster.set_password("alice", "another")
            for broker in (1, 2, 3):
                cluster.disconnect(broker)
            begin = loop.time()
            cluster.append("t", b"3", b"4")
            values, errors = await polled(consumer, 600.0)
            assert values == []
            assert set(errors) == {"AuthenticationFailed"}
            assert 15 <= logins_since(asked, begin) <= 40
            assert errors["AuthenticationFailed"] <= 40  # each attempt is logged once
            with pytest.raises(AuthenticationFailed, match="not tried again yet: the next attempt is in"):
                await consumer.commit()
            cluster.set_password("alice", "secret")
            # One login more is possible: the group removed the member, which learns of it after the first records.
            assert set((await polled(consumer, 60.0))[0]) == {b"3", b"4"}

    virtually(story, sasl={"alice": "secret"})


def test_ten_minutes_with_a_wrong_password_of_a_producer() -> None:
    """It too makes at most 40 attempts, however often the application sends; afterwards it goes on."""

    async def story(cluster: Cluster) -> None:
        asked, loop = asked_of(cluster), asyncio.get_running_loop()
        async with Producer(bootstrap_servers=cluster.bootstrap, **ALICE) as producer:
            await (await producer.send("t", b"1"))
            cluster.set_password("alice", "another")
            for broker in (1, 2, 3):
                cluster.disconnect(broker)
            begin, told = loop.time(), list[str]()

            async def sent() -> bool:
                try:
                    await (await producer.send("t", b"2"))
                except KafkaError as error:
                    told.append(str(error))
                    return False
                return True

            while loop.time() < begin + 600.0:
                assert not await sent()
                await asyncio.sleep(1.0)
            assert 15 <= logins_since(asked, begin) <= 40
            assert any("refused user 'alice'" in text for text in told), told
            cluster.set_password("alice", "secret")
            for _ in range(60):  # the last refusal is told once more
                if await sent():
                    return
                await asyncio.sleep(1.0)
            raise AssertionError(told[-1])

    virtually(story, sasl={"alice": "secret"})


def test_ten_minutes_with_a_wrong_password_of_a_client_for_administration() -> None:
    """It too makes at most 40 attempts, however many calls the application makes; afterwards it goes on."""

    async def story(cluster: Cluster) -> None:
        asked, loop = asked_of(cluster), asyncio.get_running_loop()
        async with Client(bootstrap_servers=cluster.bootstrap, **ALICE) as client:
            assert await client.list_topics()
            cluster.set_password("alice", "another")
            for broker in (1, 2, 3):
                cluster.disconnect(broker)
            begin, told = loop.time(), list[str]()
            while loop.time() < begin + 600.0:
                for outcome in await asyncio.gather(*(client.list_topics() for _ in range(5)), return_exceptions=True):
                    assert isinstance(outcome, KafkaError)
                    told.append(str(outcome))
                await asyncio.sleep(1.0)
            assert 15 <= logins_since(asked, begin) <= 40
            assert any("refused user 'alice'" in text for text in told), told
            cluster.set_password("alice", "secret")
            for _ in range(60):  # the last refusal is told once more
                try:
                    assert await client.list_topics()
                except AuthenticationFailed:
                    await asyncio.sleep(1.0)
                else:
                    return
            raise AssertionError("it is never asked again")

    virtually(story, sasl={"alice": "secret"})


def test_a_login_that_is_refused_for_a_while_costs_a_member_nothing() -> None:
    """Within its session timeout it stays a member: there is no rebalance, and no record comes twice."""

    async def story(cluster: Cluster) -> None:
        asked, loop = asked_of(cluster), asyncio.get_running_loop()
        async with Consumer(
            "t", bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest", **ALICE
        ) as consumer:
            cluster.append("t", b"1", b"2")
            assert (await polled(consumer, 10.0))[0] == [b"1", b"2"]
            cluster.set_password("alice", "another")
            for broker in (1, 2, 3):
                cluster.disconnect(broker)
            begin = loop.time()
            _, errors = await polled(consumer, 5.0)
            assert errors
            cluster.set_password("alice", "secret")
            cluster.append("t", b"3", b"4")
            assert (await polled(consumer, 20.0))[0] == [b"3", b"4"]
            assert [when for when, _ in asked.of(JoinGroupRequest) if when > begin] == []

    virtually(story, sasl={"alice": "secret"})


def test_a_hundred_sessions() -> None:
    """Records are read in each session: no reconnect, no rebalance, no record lost or read twice."""

    async def story(cluster: Cluster) -> None:
        asked, loop = asked_of(cluster), asyncio.get_running_loop()
        async with Consumer(
            "t", bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest", **ALICE
        ) as consumer:
            await polled(consumer, 10.0)
            begin = loop.time()
            read: list[bytes | None] = []
            for number in range(200):
                cluster.append("t", str(number).encode(), partition=number % 2)
                read += (await polled(consumer, 2.0))[0]
            counts = asked.since(begin)
            assert read == [str(number).encode() for number in range(200)]
            assert counts["connect"] <= 1  # the connection for metadata, which was closed when idle
            assert (counts["JoinGroupRequest"], counts["ApiVersionsRequest"]) == (0, counts["connect"])
            assert len(asked.of(SaslAuthenticateRequest)) > 200

    virtually(story, sasl={"alice": "secret"}, session_ms=4000)


def test_a_renewal_may_take_as_long_as_a_login_where_the_name_has_many_addresses() -> None:
    """Each address had its share of the time to connect in: a tenth. The session lives on after that."""

    async def story(cluster: Cluster) -> None:
        async def resolve(host: str, port: int) -> list[tuple[str, int]]:
            return [(host, port), *((f"127.0.0.{number}", port) for number in range(2, 11))]

        asked, loop = asked_of(cluster), asyncio.get_running_loop()
        async with Client(bootstrap_servers=cluster.bootstrap, resolve=resolve, **ALICE) as client:
            await client.list_topics()
            begin, slow = loop.time(), cluster.slow_login(1.5, times=1)
            await asyncio.sleep(9.9)
            await client.list_topics()
            assert slow.hits == 1
            assert asked.since(begin)["connect"] == 0

    virtually(story, brokers=1, sasl={"alice": "secret"}, session_ms=10_000)


@pytest.mark.parametrize("trouble", ["the source of credentials is down", "a renewal is refused"])
def test_trouble_at_the_end_of_a_session_costs_time_and_nothing_else(trouble: str) -> None:
    """The source is down for longer than a session lasts. A refused renewal ends a connection, and is the only one."""

    async def story(cluster: Cluster) -> None:
        loop, down_until = asyncio.get_running_loop(), 0.0

        async def credentials() -> tuple[str, str]:
            if loop.time() < down_until:
                raise OSError("the vault is down")
            return "alice", "secret"

        sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap,
            "sasl_credentials_provider": credentials,
            **sasl,
        }
        async with (
            Producer(**options) as producer,
            Consumer("t", group_id="g", auto_offset_reset="earliest", **options) as consumer,
        ):
            await producer.send_and_wait("t", b"", partition=0)
            await polled(consumer, 10.0)
            asked, begin = asked_of(cluster), loop.time()
            if trouble == "a renewal is refused":
                refused = cluster.refuse_login(times=1)
            else:
                down_until = begin + 14.0
            reading = asyncio.ensure_future(polled(consumer, 40.0))
            sent = []
            for number in range(300):
                sent.append(await producer.send("t", b"%d" % number, partition=0))
                await asyncio.sleep(0.1)
            assert [(await one).offset for one in sent] == list(range(1, 301))
            assert await reading == ([b"%d" % number for number in range(300)], Counter())
            assert asked.of(JoinGroupRequest) == []
            if trouble == "a renewal is refused":
                assert refused.hits == 1
                assert asked.since(begin + 10.0)["connect"] == 0, "sessions are renewed again"

    virtually(story, brokers=1, sasl={"alice": "secret"}, session_ms=4000)
