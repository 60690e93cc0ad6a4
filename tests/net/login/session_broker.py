"""A scripted broker with SASL sessions, and the client's end of a connection to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from aiokc.core.sasl.mechanism import Conversation, Mechanism
from aiokc.core.sasl.plain import Plain
from aiokc.net.connection import Connection
from aiokc.net.credentials.credentials import Credentials
from aiokc.net.own_thread import OwnThread
from aiokc.secret import Secret
from aiokc.wire import RequestHeader, Response
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from ..scripted import WITH_SASL, Peer, Server, options, plain_answer, topic_of

HOUR_MS = 3_600_000


@dataclass
class Verdict:
    """The broker's answers to one login: to its SaslHandshake, then to its SaslAuthenticate; None: no answer at all."""

    handshake: int | None = 0
    authenticate: int | None = 0
    session_ms: int = HOUR_MS


class SessionBroker:
    """The script of a broker that demands a login, and lets connections log in again.

    ``verdicts`` are used one after the other; after the last one, every login succeeds. ``seen`` has the requests of
    each connection, by its number: "login" and "done" for the two steps of SASL, else the topic. Requests for the topic
    "parked", and those behind them, are answered once ``release`` is set. Any request between the two steps is an
    error.
    """

    def __init__(self, *verdicts: Verdict, answer: Callable[[RequestHeader], Response] = plain_answer) -> None:
        self.verdicts = deque(verdicts)
        self.seen: list[list[str]] = []
        self.users: list[bytes] = []
        self.release = asyncio.Event()
        self.arrived = asyncio.Condition()
        self._answer = answer

    async def __call__(self, peer: Peer) -> None:
        seen: list[str] = []
        self.seen.append(seen)
        await peer.greet(*WITH_SASL)
        logging_in: Verdict | None = None
        while True:
            asked = await peer.request()
            what = self._name(asked)
            seen.append(what)
            async with self.arrived:
                self.arrived.notify_all()
            if what == "login":
                logging_in = self.verdicts.popleft() if self.verdicts else Verdict()
                if logging_in.handshake is None:
                    return await peer.until_closed()
                mechanisms = [] if logging_in.handshake == 34 else ["PLAIN", "OAUTHBEARER"]
                peer.reply(asked, SaslHandshakeResponse(error_code=logging_in.handshake, mechanisms=mechanisms))
                logging_in = logging_in if logging_in.handshake == 0 else None
            elif what == "done":
                assert logging_in is not None, "SaslAuthenticate without SaslHandshake"
                if logging_in.authenticate is None:
                    return await peer.until_closed()
                self.users.append(asked.body.tobytes())
                peer.reply(asked, self._authenticated(logging_in))
                if logging_in.authenticate != 0:
                    return
                logging_in = None
            else:
                assert logging_in is None, f"{what} came between SaslHandshake and SaslAuthenticate"
                if what == "parked":
                    await self.release.wait()
                peer.reply(asked, self._answer(asked))

    async def has_seen(self, count: int, connection: int = 0) -> list[str]:
        """Return the requests of a connection, once there are ``count`` of them."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.seen) > connection and len(self.seen[connection]) >= count)
        return self.seen[connection]

    @staticmethod
    def _authenticated(verdict: Verdict) -> SaslAuthenticateResponse:
        assert verdict.authenticate is not None
        return SaslAuthenticateResponse(
            error_code=verdict.authenticate,
            error_message="no" if verdict.authenticate else None,
            auth_bytes=b"",
            session_lifetime_ms=verdict.session_ms,
        )

    @staticmethod
    def _name(asked: RequestHeader) -> str:
        if asked.api_key == SaslHandshakeRequest.api_key:
            return "login"
        if asked.api_key == SaslAuthenticateRequest.api_key:
            return "done"
        return topic_of(asked) if asked.api_key == MetadataRequest.api_key else str(asked.api_key)


class Token:
    """A mechanism with one message, and with an end of its credentials."""

    name = "OAUTHBEARER"
    secrets = ()

    def __init__(self, expires_at: float | None, subject: str = "x") -> None:
        self.expires_at = expires_at
        self.identity = f"token of {subject!r}"

    def conversation(self) -> Conversation:
        yield b"token"

    def advice(self) -> str:
        return ""


def alice() -> Mechanism:
    return Plain("alice", Secret("secret"))


def bob() -> Mechanism:
    return Plain("bob", Secret("secret"))


class Logins:
    """Stands for Credentials: ``make`` returns the next mechanism, or raises; ``may_go`` holds up ``login``."""

    def __init__(self, make: Callable[[], Mechanism] = alice) -> None:
        self.make = make
        self.asked = 0
        self.refusals: list[Mechanism] = []
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.is_same_principal = Credentials.is_same_principal

    async def login(self, host: str = "") -> Mechanism:
        self.asked += 1
        await self.may_go.wait()
        return self.make()

    def current(self, host: str = "") -> Mechanism | None:
        return self.make()

    def refused(self, mechanism: Mechanism) -> None:
        self.refusals.append(mechanism)

    async def run(self) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def logged_in(server: Server, logins: Logins, *, timeout: float = 10.0) -> AsyncIterator[Connection]:
    """A connection that is logged in, and the owner of the tasks that renew its session."""
    given: Any = logins
    thread = OwnThread("aiokc test")
    tasks: list[asyncio.Task[None]] = []

    def start(run: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        tasks.append(asyncio.get_running_loop().create_task(run()))
        return True

    connection = await Connection.open(
        "broker 1",
        ("127.0.0.1", server.port),
        options(credentials=given, thread=thread, random=Random(1)),
        timeout=timeout,
        server_hostname="localhost",
        mechanism=await logins.login("localhost"),
        start=start,
    )
    try:
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()
        thread.close()
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [error for error in outcomes if isinstance(error, Exception)] == []


def make_due(connection: Connection, *, over: bool = False) -> None:
    """Make the session due for renewal, or (``over``) make it end."""
    session, now = connection._session, asyncio.get_running_loop().time()
    assert session is not None
    connection.admits_until = session._was_due_at = now
    if over:
        session._ends_at = now
