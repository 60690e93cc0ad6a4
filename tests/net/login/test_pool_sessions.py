"""SASL sessions that end, seen from the pool: it makes a new connection only where it must, and no request fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from random import Random
from typing import Any

import pytest

from aiokc.client.cluster.coordinator_lookup import CoordinatorLookup
from aiokc.config import ClientConfig
from aiokc.errors import AuthenticationFailed, ConnectionFailed, NoBrokersAvailable
from aiokc.net.connection import Connection
from aiokc.net.login.endings import SessionEnded
from aiokc.net.pool import Pool, Purpose
from aiokc.wire.messages.discovery import MetadataRequest

from ..credentials.tokens.scripted import run_virtually
from ..scripted import WITH_SASL, Peer, Server, about, ask, running_pool, serving, ticks
from .session_broker import HOUR_MS, SessionBroker, Verdict, make_due

pytestmark = [pytest.mark.any_loop, pytest.mark.timeout(20)]

ALICE: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "allow_plaintext_credentials": True,
    "sasl_plain_username": "alice",
    "sasl_plain_password": "secret",
}


def provided(provider: Callable[[], Any]) -> dict[str, Any]:
    """Return the options with a credentials provider in place of a password."""
    options = {name: value for name, value in ALICE.items() if not name.startswith("sasl_plain")}
    return {**options, "sasl_credentials_provider": provider}


@asynccontextmanager
async def connected_pool(server: Server, **given: Any) -> AsyncIterator[tuple[Pool, Connection]]:
    credentials = {} if "sasl_credentials_provider" in given else ALICE
    async with running_pool(server, **credentials, **given) as pool:
        pool.set_brokers({1: server.broker(1)})
        yield pool, await pool.connection(1, timeout=10)


async def test_a_session_is_renewed_without_another_connection() -> None:
    broker = SessionBroker()
    async with serving(broker) as server, connected_pool(server) as (pool, connection):
        for round in range(5):
            make_due(connection, over=round % 2 == 0)
            assert await asyncio.gather(*(ask(pool, 1, topic) for topic in "abc")) == ["a", "b", "c"]
            assert connection._session is not None
            await connection._session._settled.wait()
        assert server.accepted == 1
    assert broker.seen[0].count("login") == 6
    assert set(broker.users) == {broker.users[0]}


async def test_after_a_refusal_at_the_renewal_the_next_request_logs_in_anew_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="aiokc.net")
    broker = SessionBroker(Verdict(), Verdict(authenticate=58))
    async with serving(broker) as server, connected_pool(server) as (pool, connection):
        caplog.clear()
        make_due(connection, over=True)
        assert await asyncio.gather(*(ask(pool, 1, topic) for topic in "abc")) == ["a", "b", "c"]
        assert server.accepted == 2
        assert pool.trouble(asyncio.get_running_loop().time()) is None
        assert pool.logins.refusal is None
    assert [record.levelname for record in caplog.records if "could not be renewed" in record.message] == ["INFO"]
    assert not [record for record in caplog.records if record.levelno > 20]


async def test_a_refusal_there_too_is_one() -> None:
    broker = SessionBroker(Verdict(), Verdict(authenticate=58), Verdict(authenticate=58))
    async with serving(broker) as server, connected_pool(server) as (pool, connection):
        make_due(connection, over=True)
        with pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
            await ask(pool, 1)
        assert server.accepted == 2


async def test_while_the_credentials_are_in_doubt_no_other_connection_renews_its_session() -> None:
    """A client may have hundreds of connections, and a directory locks the account after a few wrong passwords."""
    refused = Verdict(authenticate=58)
    purposes = (Purpose.DATA, Purpose.FETCH, Purpose.JOIN)
    broker = SessionBroker(*(Verdict() for _ in purposes), refused, refused)
    async with serving(broker) as server, connected_pool(server) as (pool, connection):
        connections = [await pool.connection(1, purpose, timeout=10) for purpose in purposes]
        for each in connections:
            make_due(each)
        make_due(connection, over=True)
        before = asyncio.get_running_loop().time()
        with pytest.raises(AuthenticationFailed):
            await ask(pool, 1)
        assert pool.logins.retry_at > before + 0.7
        pool.logins.retry_at = inf  # however long what follows may take
        assert [seen.count("login") for seen in broker.seen] == [2, 1, 1, 1]
        for _ in range(3):  # their sessions last
            assert await ask(pool, 1, purpose=Purpose.FETCH) == "t"
            make_due(connections[1])
        make_due(connections[2], over=True)
        with pytest.raises(AuthenticationFailed, match="not tried again yet"):
            await ask(pool, 1, purpose=Purpose.JOIN)
        assert [seen.count("login") for seen in broker.seen] == [2, 1, 1, 1]
        pool.logins.retry_at = asyncio.get_running_loop().time()
        assert await ask(pool, 1) == "t"
        make_due(connections[1], over=True)
        assert await ask(pool, 1, purpose=Purpose.FETCH) == "t"
        assert [seen.count("login") for seen in broker.seen] == [2, 2, 1, 1, 1]


async def test_a_refused_renewal_alone_lets_the_others_wait_for_the_next_login() -> None:
    broker = SessionBroker(Verdict(), Verdict(), Verdict(authenticate=58))
    async with serving(broker) as server, connected_pool(server) as (pool, connection):
        other = await pool.connection(1, Purpose.FETCH, timeout=10)
        make_due(connection)
        assert await ask(pool, 1) == "t"
        await connection.wait_closed()
        make_due(other)
        assert await ask(pool, 1, purpose=Purpose.FETCH) == "t"
        assert [seen.count("login") for seen in broker.seen] == [2, 1]
        assert await ask(pool, 1) == "t"  # over a new connection
        make_due(other, over=True)
        assert await ask(pool, 1, purpose=Purpose.FETCH) == "t"
        assert [seen.count("login") for seen in broker.seen] == [2, 2, 1]


async def test_after_the_pause_of_a_refusal_by_another_broker_sessions_are_renewed() -> None:
    """Nothing needs that broker any more, so no new connection shows that the credentials are good."""
    broker, refused = SessionBroker(), Verdict(authenticate=58)
    async with (
        serving(broker) as server,
        serving(SessionBroker(refused)) as another,
        connected_pool(server) as (pool, connection),
    ):
        other = await pool.connection(1, Purpose.FETCH, timeout=10)
        pool.set_brokers({1: server.broker(1), 2: another.broker(2)})
        with pytest.raises(AuthenticationFailed):
            await ask(pool, 2)
        pool.logins.retry_at = asyncio.get_running_loop().time()  # the end of the pause
        for each, purpose in ((connection, Purpose.DATA), (other, Purpose.FETCH)):
            make_due(each, over=True)
            assert await ask(pool, 1, purpose=purpose) == "t"
        assert [seen.count("login") for seen in broker.seen] == [2, 2]
        assert (server.accepted, another.accepted) == (2, 1)


async def test_after_the_pause_one_renewal_shows_that_the_credentials_are_bad() -> None:
    """All sessions have ended in the meantime: the account of a directory is locked after a few wrong passwords."""
    purposes, refused = (Purpose.DATA, Purpose.FETCH, Purpose.JOIN), Verdict(authenticate=58)
    broker = SessionBroker(Verdict(), Verdict(), Verdict(), *[refused] * 5)
    async with (
        serving(broker) as server,
        serving(SessionBroker(refused)) as another,
        connected_pool(server) as (pool, _),
    ):
        connections = [await pool.connection(1, purpose, timeout=10) for purpose in purposes]
        pool.set_brokers({1: server.broker(1), 2: another.broker(2)})
        with pytest.raises(AuthenticationFailed):
            await ask(pool, 2)
        pool.logins.retry_at = asyncio.get_running_loop().time()  # the end of the pause
        for each in connections:
            make_due(each, over=True)
        asked = [asyncio.ensure_future(ask(pool, 1, purpose=purpose)) for purpose in purposes]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [AuthenticationFailed] * 3
        assert sorted(seen.count("login") for seen in broker.seen[:3]) == [1, 1, 2]


async def test_a_rotated_user_gets_a_new_connection() -> None:
    users = iter(["alice", "bob", "bob"])

    async def provider() -> tuple[str, str]:
        return next(users), "secret"

    broker = SessionBroker()
    async with serving(broker) as server, connected_pool(server, **provided(provider)) as (pool, connection):
        make_due(connection, over=True)
        assert await ask(pool, 1, "a") == "a"
    assert [b"alice" in user for user in broker.users] == [True, False]
    assert broker.seen == [["login", "done"], ["login", "done", "a"]]


@pytest.mark.parametrize("node_id", [1, None])
async def test_a_close_at_the_end_of_the_session_is_no_failure(
    node_id: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="aiokc.net")

    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        await peer.log_in(session_ms=HOUR_MS)
        if peer.number > 0:
            await peer.serve_on()
        await peer.request()

    async with (
        serving(script) as server,
        connected_pool(server, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000) as (pool, connection),
    ):
        assert connection._session is not None
        connection._session._was_due_at = 0.0
        assert await ask(pool, node_id) == "t"
        assert server.accepted == 2
        assert pool.trouble(asyncio.get_running_loop().time()) is None
    levels = {record.levelname for record in caplog.records if "end of its SASL session" in record.message}
    assert levels == {"INFO"}


async def test_a_broker_that_closes_each_time_is_tried_twice_and_no_more() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        await peer.log_in(session_ms=HOUR_MS)
        await peer.request()

    async with serving(script) as server, connected_pool(server) as (pool, connection):
        assert connection._session is not None
        connection._session._was_due_at = 0.0
        with pytest.raises(ConnectionFailed):
            await ask(pool, 1)
        assert server.accepted == 2


async def test_what_may_have_been_handled_is_not_repeated_where_it_must_not_be() -> None:
    """A group's deletion, say: what was not sent yet is sent over a new connection all the same."""

    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        await peer.log_in(session_ms=HOUR_MS)
        await (peer.request() if peer.number == 0 else peer.serve_on())

    async def ask_once(pool: Pool) -> str | None:
        request = about("t")
        answer = await pool.request_made(1, MetadataRequest, lambda version: request, timeout=10, repeatable=False)
        return answer.cluster_id

    async with serving(script) as server, connected_pool(server) as (pool, connection):
        assert connection._session is not None
        connection._session._was_due_at = 0.0
        with pytest.raises(SessionEnded, match="in flight"):
            await ask_once(pool)
        assert server.accepted == 1
        connection = await pool.connection(1, timeout=10)
        connection.muted_until = inf
        asking = asyncio.ensure_future(ask_once(pool))
        await ticks(2)
        connection.end_session(SessionEnded("over"))
        assert await asking == "t"
        assert server.accepted == 3


@pytest.mark.parametrize(
    "first",
    [
        "the pool",
        pytest.param(
            "the renewal", marks=pytest.mark.filterwarnings("ignore:coroutine 'SaslSession._run' was never awaited")
        ),
    ],
)
async def test_a_pool_that_has_ended_renews_nothing_and_serves_on(first: str) -> None:
    """Cancelled at each step of a renewal: no request is left waiting. asyncio.run() cancels all tasks there are, also
    one that has not begun.
    """
    served = 0
    for steps in range(12):
        broker = SessionBroker()
        async with serving(broker) as server:
            pool = Pool(ClientConfig(bootstrap_servers=server.bootstrap, **ALICE), random=Random(1))
            run = asyncio.ensure_future(pool.run())
            pool.set_brokers({1: server.broker(1)})
            connection = await pool.connection(1, timeout=10)
            make_due(connection, over=True)
            before = asyncio.all_tasks()
            asked = asyncio.ensure_future(ask(pool, 1, "a", timeout=5))
            await ticks(steps)
            for task in asyncio.all_tasks() - before - {asked} if first == "the renewal" else ():
                task.cancel()
            run.cancel()
            await asyncio.wait([run])
            try:
                assert await asked == "a"
            except ConnectionFailed:
                assert connection.closed, "the renewal was cancelled half way"
            else:
                logins = broker.seen[0].count("login")
                make_due(connection, over=True)
                assert await ask(pool, 1, "b", timeout=5) == "b"
                assert broker.seen[0].count("login") == logins
                served += 1
            await pool.aclose()
    assert 0 < served < 12


def test_credentials_that_cannot_be_had_are_waited_for_until_the_deadline_and_named() -> None:
    async def story() -> None:
        async def provider() -> tuple[str, str]:
            raise OSError("the vault is sealed")

        async with serving(SessionBroker()) as server, running_pool(server, **provided(provider)) as pool:
            for node_id in (None, 1):
                pool.set_brokers({1: server.broker(1)})
                with pytest.raises(
                    AuthenticationFailed, match=r"the credentials provider .*the vault is sealed"
                ) as raised:
                    await ask(pool, node_id, timeout=1.5)
                assert raised.value.retriable
            assert server.accepted == 0

    run_virtually(story)


def test_a_listener_that_has_served_a_client_without_sasl_does_not_want_it(caplog: pytest.LogCaptureFixture) -> None:
    """The second connection breaks at its first request, by chance. If the third does, too, it may want one now."""

    async def story() -> None:
        async def script(peer: Peer) -> None:
            if peer.number > 0:
                await peer.greet()
                await peer.request()
            else:
                await peer.serve()

        async with serving(script) as server, running_pool(server) as pool:
            pool.set_brokers({1: server.broker(1)})
            assert await ask(pool, 1) == "t"
            with pytest.raises(ConnectionFailed) as raised:
                await ask(pool, 1, purpose=Purpose.JOIN)
            assert "SASL" not in str(raised.value)
            assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
            with pytest.raises(ConnectionFailed, match="wants SASL"):
                await ask(pool, 1, purpose=Purpose.JOIN)

    run_virtually(story)


def test_a_client_without_sasl_is_told_that_the_listener_wants_it(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async def script(peer: Peer) -> None:
            await peer.greet(*WITH_SASL)
            await peer.request()

        async with serving(script) as server, running_pool(server) as pool:
            with pytest.raises(NoBrokersAvailable, match="at the first request: this listener probably wants SASL"):
                await ask(pool, None, timeout=2.0)
            assert server.accepted > 1
            warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            assert len(warned) == 1, "one warning, though each connection was made, and closed at its first request"
            assert "this listener probably wants SASL" in warned[0]
            pool.set_brokers({1: server.broker(1)})
            with pytest.raises(ConnectionFailed, match="this listener probably wants SASL"):
                await ask(pool, 1, purpose=Purpose.JOIN)

    run_virtually(story)


async def test_a_join_that_is_cancelled_is_dropped_also_where_it_was_sent_over_another_connection() -> None:
    """The SASL session had ended, so the pool sent the request again over a new connection: there it is parked."""
    broker = SessionBroker(Verdict(), Verdict(), Verdict(authenticate=58))
    async with serving(broker) as server, connected_pool(server) as (pool, _):
        make_due(await pool.connection(1, Purpose.JOIN, timeout=10), over=True)
        lookup = CoordinatorLookup(ClientConfig(bootstrap_servers=server.bootstrap), pool, "g", Random(1), lambda: None)
        lookup._node_id = 1
        asking = asyncio.ensure_future(
            lookup.ask(MetadataRequest, lambda version: about("parked"), timeout=10, purpose=Purpose.JOIN)
        )
        assert await broker.has_seen(3, connection=2) == ["login", "done", "parked"]
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await ask(pool, 1, purpose=Purpose.JOIN, timeout=5) == "t"
        assert server.accepted == 4
        broker.release.set()
