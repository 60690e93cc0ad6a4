"""The watchdog's connection over SASL: it ends with its session, and goes out with valid credentials only."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from aiokc.client.group.watchdog import Watchdog
from aiokc.core.group.classic.keepalive import ClassicKeepalive
from aiokc.core.group.classic.messages import ClassicGroup
from aiokc.core.group.events import MemberToken, PollClock
from aiokc.core.group.loop_watch import HeartbeatPlan, by_the_thread
from aiokc.net.options import ConnectionOptions, Route

from ...net.login.session_broker import Logins, SessionBroker, Token, Verdict
from ...net.scripted import serving

pytestmark = pytest.mark.timeout(20)


def watchdog_with(logins: Logins) -> Watchdog:
    group = ClassicGroup(group_id="g", session_timeout_ms=1_000, rebalance_timeout_ms=1_000, assignors=())
    given: Any = logins
    options = ConnectionOptions(client_id="test", max_response_bytes=1_000, credentials=given)
    return Watchdog(ClassicKeepalive(group), PollClock(), options, 1.0)


def route_to(port: int) -> Route:
    return Route("broker 1", ("127.0.0.1", port), "localhost")


async def test_past_its_session_it_connects_anew() -> None:
    broker = SessionBroker(Verdict(session_ms=10_000))
    async with serving(broker) as server:
        watchdog, route = watchdog_with(Logins()), route_to(server.port)
        before = time.monotonic()
        first = await asyncio.to_thread(watchdog._connect, route, 60.0)
        assert before + 8.5 <= first._over_at <= time.monotonic() + 8.5
        first._over_at += 1_000.0
        assert await asyncio.to_thread(watchdog._connect, route, 60.0) is first
        first._over_at = time.monotonic()
        second = await asyncio.to_thread(watchdog._connect, route, 60.0)
        assert second is not first
        watchdog._disconnect()
        assert broker.seen == [["login", "done"], ["login", "done"]]  # never a second login on one connection


async def test_past_its_token_it_connects_anew() -> None:
    broker = SessionBroker(Verdict(session_ms=0), Verdict(session_ms=0))
    async with serving(broker) as server:
        watchdog, route = watchdog_with(Logins(lambda: Token(time.time() + 100))), route_to(server.port)
        first = await asyncio.to_thread(watchdog._connect, route, 5.0)
        assert not first.is_over
        first._expires_at = time.time()
        assert await asyncio.to_thread(watchdog._connect, route, 5.0) is not first
        watchdog._disconnect()


async def test_without_valid_credentials_it_is_silent_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class Expired(Logins):
        def current(self, host: str = "") -> None:
            return None

    caplog.set_level(logging.DEBUG, logger="aiokc.group")
    async with serving(SessionBroker()) as server:
        watchdog = watchdog_with(Expired())
        plan = HeartbeatPlan(
            by_the_thread(MemberToken(1, "m")), due=0.0, grace=0.02, interval=0.01, max_poll_interval=1e9
        )
        for _ in range(3):
            await asyncio.to_thread(watchdog._beat, (plan, route_to(server.port)))
        assert server.accepted == 0
    told = [record.levelname for record in caplog.records if "no valid credentials" in record.message]
    assert told == ["WARNING", "DEBUG", "DEBUG"]
