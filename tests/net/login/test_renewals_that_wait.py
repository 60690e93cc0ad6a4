"""Renewals of a SASL session that wait: the broker throttles the client (KIP-219), or says that it is too early."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from aiokc.core.backoff import Backoff
from aiokc.net.connection import Connection
from aiokc.net.login.endings import SessionEnded
from aiokc.wire import RequestHeader, Response
from aiokc.wire.messages.discovery import MetadataResponse

from ..scripted import ask_over, plain_answer, serving, ticks, topic_of
from .session_broker import Logins, SessionBroker, Verdict, logged_in, make_due

pytestmark = [pytest.mark.any_loop, pytest.mark.timeout(20)]


async def has_written_login(connection: Connection) -> None:
    """Return once SaslHandshake is in flight, behind the parked request."""
    while len(connection._pipeline) < 2:
        await ticks(1)


class Throttling(SessionBroker):
    """Throttles the client in its answer to the parked request, and reads on all the same."""

    def __init__(self, *verdicts: Verdict, throttle_ms: int) -> None:
        super().__init__(*verdicts, answer=self._throttled)
        self.throttle_ms = throttle_ms

    def _throttled(self, asked: RequestHeader) -> Response:
        response = plain_answer(asked)
        assert isinstance(response, MetadataResponse)
        if topic_of(asked) == "parked":
            response.throttle_time_ms = self.throttle_ms
        return response


async def test_the_time_of_the_handshake_begins_after_a_throttle() -> None:
    """KIP-219: the broker reads it only then. It was written before the answer came that tells of the throttle."""
    broker = Throttling(Verdict(), Verdict(handshake=None), throttle_ms=60_000)
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        parked = asyncio.ensure_future(ask_over(connection, "parked"))
        await broker.has_seen(3)
        make_due(connection, over=True)
        behind = asyncio.ensure_future(ask_over(connection, "behind"))
        await has_written_login(connection)
        broker.release.set()
        assert await parked == "parked"
        (handshake,) = connection._pipeline
        assert handshake.waiter.deadline == connection.muted_until + connection._patience
        assert connection.muted_until > asyncio.get_running_loop().time() + 50
        behind.cancel()


async def test_no_message_of_a_renewal_is_written_during_a_throttle() -> None:
    broker = Throttling(throttle_ms=200)
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        parked = asyncio.ensure_future(ask_over(connection, "parked"))
        await broker.has_seen(3)
        make_due(connection, over=True)
        behind = asyncio.ensure_future(ask_over(connection, "behind"))
        await has_written_login(connection)
        broker.release.set()
        await parked
        muted_until = connection.muted_until
        await broker.has_seen(5)
        assert broker.seen[0][-1] == "done"
        assert asyncio.get_running_loop().time() >= muted_until
        assert await behind == "behind"


async def test_too_early_is_no_failure_the_connection_goes_on() -> None:
    broker = SessionBroker(Verdict(), Verdict(handshake=34))
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        make_due(connection)
        assert await ask_over(connection, "a") == "a"
        assert connection._session is not None
        await connection._session._settled.wait()
        now = asyncio.get_running_loop().time()
        assert now < connection.admits_until < now + 2
        make_due(connection, over=True)
        assert await ask_over(connection, "b") == "b"
    assert broker.seen == [["login", "done", "a", "login", "login", "done", "b"]]


async def test_too_early_is_not_taken_for_a_longer_session() -> None:
    """A request that comes after the session makes the broker close the connection, with all that is in flight."""
    broker = SessionBroker(Verdict(), Verdict(handshake=34), Verdict(handshake=34))
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        assert connection._session is not None
        connection._session._later = Backoff(200.0, 200.0, Random(1))
        ends_at = connection._session._ends_at = asyncio.get_running_loop().time() + 100
        make_due(connection)
        await ask_over(connection, "a")
        await connection._session._settled.wait()
        assert connection.admits_until == ends_at
        make_due(connection, over=True)
        with pytest.raises(SessionEnded, match="connecting anew"):
            await ask_over(connection, "b")
