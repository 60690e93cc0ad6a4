"""KIP-368 on one connection: requests wait behind a renewal, keep their order, may be cancelled, and survive brokers
that do it wrongly.
"""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import Any

import pytest

from aiokc.core.sasl.mechanism import Mechanism
from aiokc.errors import AuthenticationFailed, ConnectionFailed, KafkaError, MalformedResponse, RequestTimedOut
from aiokc.net.connection import Connection
from aiokc.net.login.endings import SessionEnded
from aiokc.wire import RequestHeader, Response
from aiokc.wire.messages.discovery import MetadataResponse, MetadataResponseTopic

from ..credentials.tokens.scripted import run_virtually
from ..scripted import (
    WITH_SASL,
    Peer,
    Server,
    ask_over,
    cancelled,
    connected,
    metadata,
    serve_plainly,
    serving,
    ticks,
    topic_of,
)
from .session_broker import HOUR_MS, Logins, SessionBroker, Token, Verdict, alice, bob, logged_in, make_due

pytestmark = [pytest.mark.any_loop, pytest.mark.timeout(20)]


async def until_open(connection: Connection) -> None:
    """Return when no renewal is under way."""
    assert connection._session is not None
    await connection._session._settled.wait()


# In good order


async def test_a_session_that_is_over_is_renewed_before_the_next_request() -> None:
    broker = SessionBroker()
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        assert await ask_over(connection, "a") == "a"
        make_due(connection, over=True)
        assert await asyncio.gather(*(ask_over(connection, topic) for topic in "bcd")) == ["b", "c", "d"]
        assert connection.admits_until > asyncio.get_running_loop().time() + 3000  # 85 % of an hour
        assert await ask_over(connection, "e") == "e"
    assert broker.seen == [["login", "done", "a", "login", "done", "b", "c", "d", "e"]]


async def test_no_request_draws_a_renewal_before_its_time() -> None:
    broker = SessionBroker()
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        for _ in range(3):
            await ask_over(connection, "a")
    assert broker.seen == [["login", "done", "a", "a", "a"]]


async def test_the_handshake_goes_out_behind_what_is_in_flight_and_nothing_between() -> None:
    broker = SessionBroker()
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        parked = asyncio.ensure_future(ask_over(connection, "parked"))
        await broker.has_seen(3)
        make_due(connection)
        trigger = asyncio.ensure_future(ask_over(connection, "trigger"))  # the session lasts: it is written
        await ticks(5)
        behind = [asyncio.ensure_future(ask_over(connection, f"behind{number}")) for number in range(3)]
        await ticks(5)
        assert connection.in_flight == 3 + len(behind)  # parked, trigger, SaslHandshake, and those behind
        broker.release.set()
        assert await asyncio.gather(parked, trigger, *behind) == ["parked", "trigger", "behind0", "behind1", "behind2"]
    assert broker.seen == [["login", "done", "parked", "trigger", "login", "done", "behind0", "behind1", "behind2"]]


async def test_requests_go_on_while_the_credentials_are_fetched_and_the_session_lasts() -> None:
    broker, logins = SessionBroker(), Logins()
    async with serving(broker) as server, logged_in(server, logins) as connection:
        logins.may_go.clear()
        make_due(connection)
        assert await ask_over(connection, "a") == "a"
        assert await ask_over(connection, "b") == "b"
        assert logins.asked == 2
        logins.may_go.set()
        await until_open(connection)
        assert await ask_over(connection, "c") == "c"
    assert broker.seen == [["login", "done", "a", "b", "login", "done", "c"]]


async def test_a_provider_that_hangs_costs_requests_after_the_end_their_deadline_and_no_more() -> None:
    broker, logins = SessionBroker(), Logins()
    async with serving(broker) as server, logged_in(server, logins) as connection:
        logins.may_go.clear()
        make_due(connection, over=True)
        with pytest.raises(RequestTimedOut, match=r"could not be sent within .*: the SASL session has to be renewed"):
            await ask_over(connection, "late", timeout=0.05)
        logins.may_go.set()
        assert await ask_over(connection, "b") == "b"
    assert broker.seen == [["login", "done", "login", "done", "b"]]


async def test_a_provider_that_fails_while_the_session_lasts_is_asked_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, logins = SessionBroker(), Logins()
    async with serving(broker) as server, logged_in(server, logins) as connection:

        def fails() -> Mechanism:
            raise AuthenticationFailed("the token provider is down", retriable=True)

        caplog.set_level("INFO", logger="aiokc.net")
        logins.make = fails
        make_due(connection)
        assert await ask_over(connection, "a") == "a"
        await until_open(connection)
        assert "not renewed yet: the token provider is down" in caplog.text
        now = asyncio.get_running_loop().time()
        assert now < connection.admits_until < now + 2
        logins.make = alice
        make_due(connection)
        assert await ask_over(connection, "b") == "b"
        await until_open(connection)
    assert broker.seen == [["login", "done", "a", "b", "login", "done"]]


async def test_a_provider_that_fails_after_the_end_retires_the_connection() -> None:
    broker, logins = SessionBroker(), Logins()
    async with serving(broker) as server, logged_in(server, logins) as connection:
        parked = asyncio.ensure_future(ask_over(connection, "parked"))
        await broker.has_seen(3)

        def fails() -> Mechanism:
            raise AuthenticationFailed("the token provider is down", retriable=True)

        logins.make = fails
        make_due(connection, over=True)
        with pytest.raises(SessionEnded):
            await ask_over(connection, "a")
        assert not connection.usable
        assert not connection.closed
        broker.release.set()
        assert await parked == "parked"
        await connection.wait_closed()
        assert connection.error is None


# Time


async def test_the_time_of_the_handshake_begins_when_it_is_first_in_line() -> None:
    broker = SessionBroker(Verdict(), Verdict(handshake=None))
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        connection._patience = 0.1
        parked = asyncio.ensure_future(ask_over(connection, "parked"))
        await broker.has_seen(3)
        make_due(connection, over=True)
        behind = asyncio.ensure_future(ask_over(connection, "behind"))
        await asyncio.wait([behind], timeout=0.3)  # three times what the handshake may take
        assert not connection.closed
        released_at = asyncio.get_running_loop().time()
        broker.release.set()
        assert await parked == "parked"
        (handshake,) = connection._pipeline
        assert handshake.waiter.sent_at >= released_at
        assert handshake.waiter.deadline == handshake.waiter.sent_at + connection._patience
        with pytest.raises(ConnectionFailed, match=r"no answer to SaslHandshake v1 within \d+(\.\d+)? s"):
            await behind
        assert isinstance(connection.error, RequestTimedOut)


@pytest.mark.parametrize("verdict", [Verdict(handshake=None), Verdict(authenticate=None)], ids=["handshake", "token"])
async def test_a_broker_that_never_answers_ends_the_connection_in_time(verdict: Verdict) -> None:
    broker = SessionBroker(Verdict(), verdict)
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        connection._patience = 0.05
        make_due(connection, over=True)
        with pytest.raises(ConnectionFailed, match="no answer to Sasl"):
            await ask_over(connection, "a")
        assert connection.closed


# What brokers say


async def test_a_refusal_ends_the_connection_and_is_no_failure_of_the_broker() -> None:
    broker, logins = SessionBroker(Verdict(), Verdict(authenticate=58)), Logins()
    async with serving(broker) as server, logged_in(server, logins) as connection:
        make_due(connection, over=True)
        with pytest.raises(SessionEnded, match=r"could not be renewed .*refused user 'alice'.*connecting anew"):
            await ask_over(connection, "a")
        assert isinstance(connection.error, SessionEnded)
        assert len(logins.refusals) == 1


@pytest.mark.parametrize("code", [33, 35, 58], ids=["mechanism", "version", "credentials"])
async def test_a_handshake_that_is_refused_ends_the_connection(code: int) -> None:
    broker = SessionBroker(Verdict(), Verdict(handshake=code))
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        make_due(connection, over=True)
        with pytest.raises(SessionEnded):
            await ask_over(connection, "a")


async def test_illegal_state_in_the_middle_is_a_failure() -> None:
    broker = SessionBroker(Verdict(), Verdict(authenticate=34))
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        make_due(connection, over=True)
        with pytest.raises(SessionEnded, match="could not be renewed"):
            await ask_over(connection, "a")


async def test_another_user_retires_the_connection() -> None:
    broker, logins = SessionBroker(), Logins()
    async with serving(broker) as server, logged_in(server, logins) as connection:
        parked = asyncio.ensure_future(ask_over(connection, "parked"))
        await broker.has_seen(3)
        logins.make = bob
        make_due(connection, over=True)
        with pytest.raises(SessionEnded):
            await ask_over(connection, "a")
        broker.release.set()
        assert await parked == "parked"
        await connection.wait_closed()
    assert broker.seen == [["login", "done", "parked"]]


async def test_a_new_password_of_the_same_user_renews() -> None:
    broker, logins = SessionBroker(), Logins()
    async with serving(broker) as server, logged_in(server, logins) as connection:
        make_due(connection, over=True)
        assert await ask_over(connection, "a") == "a"
        assert logins.asked == 2


async def test_without_a_lifetime_a_token_retires_the_connection_before_its_end() -> None:
    broker, logins = SessionBroker(Verdict(session_ms=0)), Logins(lambda: Token(time.time() + 100))
    async with serving(broker) as server, logged_in(server, logins) as connection:
        now = asyncio.get_running_loop().time()
        assert now + 80 < connection.admits_until < now + 96
        parked = asyncio.ensure_future(ask_over(connection, "parked"))
        await broker.has_seen(3)
        make_due(connection)
        with pytest.raises(SessionEnded):
            await ask_over(connection, "a")
        broker.release.set()
        assert await parked == "parked"
        await connection.wait_closed()
        assert logins.asked == 1
    assert broker.seen == [["login", "done", "parked"]]


@pytest.mark.parametrize(
    ("told", "soonest", "latest"),
    [(0, inf, inf), (-1, inf, inf), (1, 0.9, 1.1), (2**63 - 1, 0.85 * 365 * 86_400, 0.95 * 365 * 86_400)],
)
async def test_lifetimes_that_are_lies(told: int, soonest: float, latest: float) -> None:
    broker = SessionBroker(Verdict(session_ms=told))
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        left = connection.admits_until - asyncio.get_running_loop().time()
        assert soonest - 1 <= left <= latest
        assert await ask_over(connection, "a") == "a"


async def test_a_close_after_the_due_time_is_the_end_of_the_session() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        await peer.log_in(session_ms=HOUR_MS)
        await peer.request()

    async with serving(script) as server, logged_in(server, Logins()) as connection:
        assert connection._session is not None
        connection._session._was_due_at = 0.0
        with pytest.raises(SessionEnded, match="closed the connection at the end of its SASL session"):
            await ask_over(connection, "a")


async def test_a_close_before_the_due_time_is_a_failure() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        await peer.log_in(session_ms=HOUR_MS)
        await peer.request()

    async with serving(script) as server, logged_in(server, Logins()) as connection:
        with pytest.raises(ConnectionFailed, match="broker 1 closed the connection, while") as raised:
            await ask_over(connection, "a")
        assert not isinstance(raised.value, SessionEnded)


# Hostile


async def test_answers_out_of_order_are_not_believed() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        await peer.log_in(session_ms=HOUR_MS)
        first = await peer.request()
        later = await peer.request()
        peer.reply(later, metadata())  # the handshake is answered before the request before it
        peer.reply(first, metadata())
        await peer.until_closed()

    async with serving(script) as server, logged_in(server, Logins()) as connection:
        first = asyncio.ensure_future(ask_over(connection, "first"))
        await ticks(3)
        make_due(connection, over=True)
        with pytest.raises(ConnectionFailed, match=r"not sent, the connection is closed: .* was due"):
            await ask_over(connection, "behind")
        with pytest.raises(MalformedResponse, match="was due"):
            await first


@pytest.mark.parametrize("when", ["login", "renewal"])
async def test_a_frame_of_two_gigabytes_is_refused_by_its_length(when: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        if when == "renewal":
            await peer.log_in(session_ms=HOUR_MS)
        await peer.request()
        peer.send(b"\x7f\xff\xff\xff" + bytes(100))
        await peer.until_closed()

    async def log_in_and_ask(server: Server) -> None:
        async with logged_in(server, Logins()) as connection:
            make_due(connection, over=True)
            await ask_over(connection, "a")

    async with serving(script) as server:
        with pytest.raises(KafkaError, match="2147483647 bytes"):
            await log_in_and_ask(server)


# Cancellation


async def test_a_cancelled_request_never_leaves_the_gate_closed() -> None:
    """The request that happened to begin the renewal is cancelled at each step: no other request suffers."""
    broker = SessionBroker()
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        in_time = 0
        for steps in range(40):
            make_due(connection, over=steps % 2 == 0)
            in_time += await cancelled(ask_over(connection, "x"), steps)
            assert await ask_over(connection, "after") == "after"
            await until_open(connection)
        assert in_time > 5
        assert server.accepted == 1


async def test_an_owner_that_ends_at_any_step_leaves_no_request_waiting() -> None:
    broker = SessionBroker()
    async with serving(broker) as server:
        ended = 0
        for steps in range(25):
            async with logged_in(server, Logins()) as connection:
                task = await _renewed_by_hand(connection)
                asked = asyncio.ensure_future(ask_over(connection, "x", timeout=5))
                await ticks(steps)
                task.cancel()
                connection.lose_owner()
                try:
                    assert await asked == "x"
                except SessionEnded:
                    ended += 1
                except ConnectionFailed as error:
                    raise AssertionError("only a session that is half renewed ends the connection") from error
                await asyncio.wait([task])
        assert 0 < ended < 25


async def _renewed_by_hand(connection: Connection) -> asyncio.Task[Any]:
    """Have a task of the test renew the session, which has ended."""
    session = connection._session
    assert session is not None
    begun: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def renew() -> None:
        await (await begun)()

    def start(run: Any) -> bool:
        if task.done() or begun.done():
            return False
        begun.set_result(run)
        return True

    session._start = start
    task = asyncio.ensure_future(renew())
    await ticks(1)
    make_due(connection, over=True)
    return task


async def test_without_an_owner_the_connection_lives_as_long_as_the_broker_lets_it() -> None:
    broker = SessionBroker()
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        assert connection._session is not None
        connection._session._start = lambda run: False
        make_due(connection, over=True)
        assert await ask_over(connection, "a") == "a"
    assert broker.seen == [["login", "done", "a"]]


async def test_a_connection_closed_while_it_renews_lets_all_go() -> None:
    broker = SessionBroker(Verdict(), Verdict(handshake=None))
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        make_due(connection, over=True)
        asked = [asyncio.ensure_future(ask_over(connection, "x")) for _ in range(3)]
        await broker.has_seen(3)
        connection.close()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionFailed] * 3


# Denials


def denied(asked: RequestHeader, code: int = 29) -> MetadataResponse:
    topic = MetadataResponseTopic(error_code=code, name=topic_of(asked), partitions=[])
    return MetadataResponse(brokers=[], cluster_id="denied", topics=[topic])


@pytest.mark.parametrize("stays", [False, True], ids=["cured", "real"])
async def test_a_denial_late_in_a_tokens_life_is_doubted_once(stays: bool) -> None:
    def answer(asked: RequestHeader) -> Response:
        is_denied = len(broker.seen[0]) < 4 or stays
        return denied(asked) if is_denied else metadata("allowed")

    broker = SessionBroker(answer=answer)
    async with (
        serving(broker) as server,
        logged_in(server, Logins(lambda: Token(time.time() + 1000))) as connection,
    ):
        now = asyncio.get_running_loop().time()
        assert now + 490 < connection.doubts_from < now + 501
        connection.doubts_from = now
        assert await ask_over(connection, "t") == ("denied" if stays else "allowed")
        assert broker.seen == [["login", "done", "t", "login", "done", "t"]]
        assert connection.doubts_from > now + 490


async def test_a_denial_early_in_a_tokens_life_is_believed() -> None:
    broker = SessionBroker(answer=denied)
    async with serving(broker) as server, logged_in(server, Logins(lambda: Token(time.time() + 1000))) as connection:
        assert await ask_over(connection, "t") == "denied"
    assert broker.seen == [["login", "done", "t"]]


@pytest.mark.parametrize("verdict", [Verdict(handshake=34), Verdict(authenticate=None)], ids=["too early", "silent"])
def test_a_denial_is_believed_where_the_session_cannot_be_renewed(verdict: Verdict) -> None:
    async def story() -> None:
        broker = SessionBroker(Verdict(), verdict, answer=denied)
        async with (
            serving(broker) as server,
            logged_in(server, Logins(lambda: Token(time.time() + 1000))) as connection,
        ):
            connection.doubts_from = 0.0
            assert await ask_over(connection, "t", timeout=1.0) == "denied"
            assert connection.doubts_from == inf  # or each denial would cost another attempt

    run_virtually(story)


@pytest.mark.parametrize("count", [2, 5])
async def test_what_was_denied_while_another_denial_had_the_session_renewed_is_sent_again(count: int) -> None:
    """All were sent in the session before, and SaslHandshake is behind them."""

    def answer(asked: RequestHeader) -> Response:
        return denied(asked) if broker.seen[0].count("login") == 1 else metadata("allowed")

    broker = SessionBroker(answer=answer)
    async with serving(broker) as server, logged_in(server, Logins(lambda: Token(time.time() + 1000))) as connection:
        connection.doubts_from = asyncio.get_running_loop().time()
        asked = [asyncio.ensure_future(ask_over(connection, topic)) for topic in ["parked", *"x" * (count - 1)]]
        await broker.has_seen(3)
        broker.release.set()
        assert await asyncio.gather(*asked) == ["allowed"] * count
        assert broker.seen == [
            ["login", "done", "parked", *"x" * (count - 1), "login", "done", *broker.seen[0][-count:]]
        ]


async def test_passwords_have_no_age() -> None:
    broker = SessionBroker()
    async with serving(broker) as server, logged_in(server, Logins()) as connection:
        assert connection.doubts_from == inf


# Without a session


async def test_a_connection_without_a_session_checks_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*given: Any) -> None:
        raise AssertionError("the slow way")

    async with serving(serve_plainly) as server, connected(server) as connection:
        monkeypatch.setattr(Connection, "_permission_to_write", never)
        assert (connection.admits_until, connection.doubts_from, connection._session) == (inf, inf, None)
        assert await ask_over(connection, "t") == "t"


async def test_a_refused_login_opens_nothing() -> None:
    broker, logins = SessionBroker(Verdict(authenticate=58)), Logins()
    async with serving(broker) as server:
        with pytest.raises(AuthenticationFailed, match="refused user 'alice'") as raised:
            async with logged_in(server, logins):
                pass
        error: KafkaError = raised.value
        assert (getattr(error, "code", None), getattr(error, "mechanism", None)) == (58, "PLAIN")
        assert len(logins.refusals) == 1
        await server.all_closed()
