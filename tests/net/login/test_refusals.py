"""Refused credentials: which calls raise, which connections try again, and how seldom; and refused certificates."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthenticationFailed
from aiokc.net.blocking import BlockingConnection
from aiokc.net.options import Route
from aiokc.net.pool import Pool, Purpose

from ..scripted import ask, options, running_pool, serving, ticks
from .session_broker import Logins, SessionBroker, Verdict, alice, make_due
from .test_pool_sessions import ALICE

pytestmark = [pytest.mark.any_loop, pytest.mark.timeout(20)]

REFUSED = Verdict(authenticate=58)


def may_try_again(pool: Pool) -> None:
    """End the pause after a refusal."""
    pool.logins.retry_at = asyncio.get_running_loop().time()


async def test_the_first_refusal_is_raised_at_once_and_no_other_server_is_tried() -> None:
    async with (
        serving(SessionBroker(REFUSED, REFUSED)) as one,
        serving(SessionBroker(REFUSED, REFUSED)) as two,
        running_pool(one, two, **ALICE) as pool,
    ):
        with pytest.raises(AuthenticationFailed, match="refused user 'alice'") as raised:
            await ask(pool, None, timeout=10)
        assert (raised.value.code, raised.value.mechanism, raised.value.retriable) == (58, "PLAIN", False)
        assert one.accepted + two.accepted == 1


async def test_after_a_refusal_no_connection_is_tried_and_existing_ones_go_on() -> None:
    told = []
    async with (
        serving(SessionBroker(Verdict(), REFUSED)) as one,
        serving(SessionBroker()) as two,
        running_pool(one, **ALICE) as pool,
    ):
        pool.on_refused = lambda: told.append(1)
        pool.set_brokers({1: one.broker(1), 2: two.broker(2)})
        assert await ask(pool, 1, "before") == "before"
        with pytest.raises(AuthenticationFailed):
            await ask(pool, 1, purpose=Purpose.COORDINATOR)
        for node_id in (1, 2):
            for purpose in (Purpose.COORDINATOR, Purpose.JOIN, Purpose.FETCH):
                with pytest.raises(AuthenticationFailed, match="not tried again yet: the next attempt is in"):
                    await ask(pool, node_id, purpose=purpose)
        assert await ask(pool, 1, "after") == "after"
        assert await ask(pool, None, "any") == "any"
        assert (one.accepted, two.accepted) == (2, 0)
        assert told == [1]
        assert isinstance(pool.logins.take(), AuthenticationFailed)
        assert pool.logins.take() is None


async def test_after_the_pause_one_attempt_shows_whether_the_credentials_are_good_again() -> None:
    one_broker = SessionBroker(Verdict(), REFUSED, REFUSED)
    async with (
        serving(one_broker) as one,
        serving(SessionBroker()) as two,
        running_pool(one, **ALICE) as pool,
    ):
        pool.set_brokers({1: one.broker(1), 2: two.broker(2)})
        assert await ask(pool, 1) == "t"
        with pytest.raises(AuthenticationFailed):
            await ask(pool, 1, purpose=Purpose.JOIN)
        may_try_again(pool)
        asked = [
            asyncio.ensure_future(ask(pool, node_id, purpose=purpose))
            for node_id, purpose in [(1, Purpose.JOIN), (1, Purpose.FETCH), (2, Purpose.DATA), (2, Purpose.JOIN)]
        ]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [AuthenticationFailed] * 4
        assert (one.accepted, two.accepted) == (3, 0)
        may_try_again(pool)
        asked = [
            asyncio.ensure_future(ask(pool, node_id, purpose=purpose))
            for node_id, purpose in [(1, Purpose.JOIN), (1, Purpose.FETCH), (2, Purpose.DATA)]
        ]
        assert await asyncio.gather(*asked) == ["t"] * 3
        assert pool.logins.refusal is None


async def test_a_refusal_ends_the_other_attempts_that_are_under_way() -> None:
    async with (
        serving(SessionBroker(REFUSED)) as one,
        serving(SessionBroker(Verdict(handshake=None))) as slow,
        running_pool(one, **ALICE) as pool,
    ):
        pool.set_brokers({1: slow.broker(1), 2: one.broker(2)})
        waiting = asyncio.ensure_future(ask(pool, 1))
        while not slow.accepted:
            await ticks(1)
        with pytest.raises(AuthenticationFailed):
            await ask(pool, 2)
        with pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
            await waiting
        async with asyncio.timeout(5):  # half of what an attempt may take
            await slow.all_closed()


# The watchdog's thread


def open_blocking(port: int, logins: Logins, pool: Pool | None = None) -> None:
    given: Any = logins
    policy = None if pool is None else pool.logins
    route = Route("broker 1", ("127.0.0.1", port), "localhost")
    BlockingConnection.open(route, options(credentials=given, logins=policy), timeout=5).close()


async def test_the_thread_makes_no_attempt_while_a_refusal_counts() -> None:
    async with serving(SessionBroker(Verdict(), REFUSED)) as server, running_pool(server, **ALICE) as pool:
        await asyncio.to_thread(open_blocking, server.port, Logins(), pool)
        pool.set_brokers({1: server.broker(1)})
        with pytest.raises(AuthenticationFailed):
            await ask(pool, 1)
        pool.logins.retry_at = inf  # however long what follows may take
        with pytest.raises(AuthenticationFailed, match="not connecting, since a broker has refused"):
            await asyncio.to_thread(open_blocking, server.port, Logins(), pool)
        assert server.accepted == 2


async def test_a_refusal_that_the_thread_gets_is_its_last() -> None:
    may_pass = Verdict(authenticate=ErrorCode.REQUEST_TIMED_OUT)
    async with serving(SessionBroker(may_pass, REFUSED)) as server, running_pool(server, **ALICE) as pool:
        with pytest.raises(AuthenticationFailed, match="REQUEST_TIMED_OUT") as raised:
            await asyncio.to_thread(open_blocking, server.port, Logins(), pool)
        assert raised.value.retriable
        with pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
            await asyncio.to_thread(open_blocking, server.port, Logins(), pool)
        with pytest.raises(AuthenticationFailed, match="not connecting"):
            await asyncio.to_thread(open_blocking, server.port, Logins(), pool)
        assert server.accepted == 2
        pool.set_brokers({1: server.broker(1)})
        assert await ask(pool, 1) == "t"  # the loop has found that the credentials are good again
        await asyncio.to_thread(open_blocking, server.port, Logins(), pool)


async def test_a_session_that_is_renewed_lets_the_thread_connect_again() -> None:
    """A password is rotated: the thread offers the one that the loop had last, and the loop renews with the new one."""
    async with serving(SessionBroker(Verdict(), REFUSED)) as server, running_pool(server, **ALICE) as pool:
        pool.set_brokers({1: server.broker(1)})
        connection = await pool.connection(1, timeout=10)
        with pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
            await asyncio.to_thread(open_blocking, server.port, Logins(), pool)
        make_due(connection, over=True)
        assert await ask(pool, 1) == "t"
        await asyncio.to_thread(open_blocking, server.port, Logins(), pool)
        assert server.accepted == 3
        assert not connection.closed


async def test_after_the_pause_the_thread_makes_one_attempt() -> None:
    """The loop may need nothing of the broker that refused, while the coordinator accepts the same all the time."""
    async with (
        serving(SessionBroker(REFUSED)) as one,
        serving(SessionBroker(Verdict(), REFUSED)) as two,
        running_pool(one, **ALICE) as pool,
    ):
        pool.set_brokers({1: one.broker(1)})
        with pytest.raises(AuthenticationFailed):
            await ask(pool, 1)
        pool.logins.retry_at = inf  # however long what follows may take
        with pytest.raises(AuthenticationFailed, match="not connecting"):
            await asyncio.to_thread(open_blocking, two.port, Logins(), pool)
        may_try_again(pool)
        await asyncio.to_thread(open_blocking, two.port, Logins(), pool)
        with pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
            await asyncio.to_thread(open_blocking, two.port, Logins(), pool)
        with pytest.raises(AuthenticationFailed, match="not connecting"):
            await asyncio.to_thread(open_blocking, two.port, Logins(), pool)
        assert two.accepted == 2


async def test_the_thread_is_silent_without_a_valid_token() -> None:
    class Expired(Logins):
        def current(self, host: str = "") -> None:
            return None

    async with serving(SessionBroker()) as server:
        with pytest.raises(AuthenticationFailed, match="fetched no valid credentials"):
            await asyncio.to_thread(open_blocking, server.port, Expired(alice))
        assert server.accepted == 0
