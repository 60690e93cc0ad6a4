"""The first message of a renewal, for which Kerberos asks its KDC: the session goes on meanwhile, and if that fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from aiokc.core.sasl.mechanism import Conversation, Work
from aiokc.errors import AuthenticationFailed, ConnectionFailed
from aiokc.net.connection import Connection
from aiokc.net.credentials.kerberos_tickets import KerberosLogin
from aiokc.net.login.endings import SessionEnded

from ..scripted import ask, ask_over, running_pool, serving
from .session_broker import Logins, SessionBroker, Verdict, logged_in, make_due

pytestmark = [pytest.mark.any_loop, pytest.mark.timeout(20)]

SECONDS = 10.0


class Tickets:
    """A mechanism that needs a ticket of a KDC for its first message."""

    name = "GSSAPI"
    identity = "alice@EXAMPLE.COM"
    expires_at = None
    secrets = ()

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)  # once for each time that the KDC is asked
        self.answers = threading.Event()
        self.answers.set()
        self.failure: str | None = None

    def conversation(self) -> Conversation:
        failure = yield Work(self._ask)
        if failure is not None:
            raise AuthenticationFailed(failure, retriable=True)
        yield b"ticket"

    def advice(self) -> str:
        return ""

    def _ask(self) -> str | None:
        self.asked.release()
        assert self.answers.wait(SECONDS)
        return self.failure

    async def until_asked(self) -> None:
        """Return when the KDC has been asked once more."""
        assert await asyncio.to_thread(self.asked.acquire, timeout=SECONDS)


@pytest.fixture
def tickets() -> Iterator[Tickets]:
    found = Tickets()
    yield found
    found.answers.set()


async def renewing(connection: Connection, tickets: Tickets, *, over: bool = False) -> asyncio.Task[str | None]:
    """Begin to renew the session with the request "a"; return that when the KDC was asked, which does not answer."""
    await tickets.until_asked()  # by the login
    tickets.answers.clear()
    make_due(connection, over=over)
    asked = asyncio.ensure_future(ask_over(connection, "a"))
    await tickets.until_asked()
    return asked


async def settled(connection: Connection) -> None:
    """Return when no renewal is under way."""
    assert connection._session is not None
    await connection._session._settled.wait()


async def test_a_login_ends_in_time_where_the_kdc_is_silent(tickets: Tickets) -> None:
    tickets.answers.clear()
    async with serving(SessionBroker()) as server:
        for timeout in (0.05, 5.0):  # a busy machine may have made no connection within the first one
            with pytest.raises(ConnectionFailed) as raised:
                async with logged_in(server, Logins(lambda: tickets), timeout=timeout):
                    pass
            if "handshake (is it a Kafka listener, and does the KDC answer?)" in str(raised.value):
                return
    raise AssertionError("the error does not name the KDC") from raised.value


async def test_a_client_stops_while_the_kdc_is_silent(tickets: Tickets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KerberosLogin, "login", Logins(lambda: tickets).login)
    tickets.answers.clear()
    async with serving(SessionBroker()) as server:
        async with running_pool(server, security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI") as pool:
            asked = asyncio.ensure_future(ask(pool, None))
            await tickets.until_asked()
        with pytest.raises(ConnectionFailed, match="the client is closed"):
            await asked
        assert not tickets.answers.is_set()


async def test_requests_go_on_while_the_kdc_is_silent_and_the_session_lasts(tickets: Tickets) -> None:
    broker = SessionBroker()
    async with serving(broker) as server, logged_in(server, Logins(lambda: tickets)) as connection:
        assert await (await renewing(connection, tickets)) == "a"
        assert await ask_over(connection, "b") == "b"
        tickets.answers.set()
        await settled(connection)
        assert await ask_over(connection, "c") == "c"
    assert broker.seen == [["login", "done", "a", "b", "login", "done", "c"]]


async def test_a_request_in_flight_then_is_answered_before_the_login(tickets: Tickets) -> None:
    broker = SessionBroker()
    async with serving(broker) as server, logged_in(server, Logins(lambda: tickets)) as connection:
        assert await (await renewing(connection, tickets)) == "a"
        parked = asyncio.ensure_future(ask_over(connection, "parked"))
        await broker.has_seen(4)
        tickets.answers.set()
        while connection.in_flight < 2:  # noqa: ASYNC110 - SaslHandshake is written by the session's own task
            await asyncio.sleep(0)
        behind = asyncio.ensure_future(ask_over(connection, "behind"))
        broker.release.set()
        assert [*await asyncio.gather(parked, behind)] == ["parked", "behind"]
    assert broker.seen == [["login", "done", "a", "parked", "login", "done", "behind"]]


async def test_a_kdc_that_fails_while_the_session_lasts_is_asked_again_later(
    tickets: Tickets, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="aiokc.net")
    broker = SessionBroker()
    async with serving(broker) as server, logged_in(server, Logins(lambda: tickets)) as connection:
        assert await (await renewing(connection, tickets)) == "a"
        tickets.failure = "no KDC can be reached"
        tickets.answers.set()
        await settled(connection)
        assert "the SASL session is not renewed yet: broker 1: GSSAPI (alice@EXAMPLE.COM): no KDC" in caplog.text
        assert connection.usable
        now = asyncio.get_running_loop().time()
        assert now < connection.admits_until < now + 2
        assert await ask_over(connection, "b") == "b"
        tickets.failure = None
        make_due(connection)
        assert await ask_over(connection, "c") == "c"
        await settled(connection)
    assert broker.seen == [["login", "done", "a", "b", "c", "login", "done"]]


@pytest.mark.parametrize("failure", [None, "no KDC can be reached"], ids=["answers", "fails"])
async def test_requests_after_the_end_of_the_session_wait_for_the_kdc(tickets: Tickets, failure: str | None) -> None:
    broker = SessionBroker()
    async with serving(broker) as server, logged_in(server, Logins(lambda: tickets)) as connection:
        asked = await renewing(connection, tickets, over=True)
        assert not asked.done()
        tickets.failure = failure
        tickets.answers.set()
        if failure is None:
            assert await asked == "a"
        else:
            with pytest.raises(SessionEnded):
                await asked
            assert not connection.usable
    assert broker.seen == [["login", "done", "login", "done", "a"] if failure is None else ["login", "done"]]


async def test_a_session_that_ends_while_the_kdc_is_silent_is_given_up_when_that_fails(tickets: Tickets) -> None:
    broker = SessionBroker()
    async with serving(broker) as server, logged_in(server, Logins(lambda: tickets)) as connection:
        assert await (await renewing(connection, tickets)) == "a"
        make_due(connection, over=True)
        behind = asyncio.ensure_future(ask_over(connection, "b"))
        tickets.failure = "no KDC can be reached"
        tickets.answers.set()
        with pytest.raises(SessionEnded):
            await behind
    assert broker.seen == [["login", "done", "a"]]


async def test_a_connection_that_is_closed_meanwhile_asks_the_broker_nothing(tickets: Tickets) -> None:
    broker = SessionBroker(Verdict())
    async with serving(broker) as server, logged_in(server, Logins(lambda: tickets)) as connection:
        assert await (await renewing(connection, tickets)) == "a"
        connection.retire()  # as when another connection takes its place
        await connection.wait_closed()
        tickets.answers.set()
        assert connection._session is not None
        while connection._session._is_running:  # noqa: ASYNC110 - a closed connection lets go at once
            await asyncio.sleep(0)
    assert broker.seen == [["login", "done", "a"]]
