"""Re-authentication (KIP-368): renews the SASL session of a connection behind what is in flight, without a reconnect.

The broker closes nothing when a session ends. It closes the connection when a request comes after that which is no
SaslHandshake. So there is no timer: the connection compares ``admits_until`` with the time before it writes a request.
core/sasl/session.py decides when a session is due.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ...core.backoff import Backoff, Chance
from ...core.connection.login_policy import LoginPolicy
from ...core.sasl.authentication import authenticate
from ...core.sasl.mechanism import Mechanism
from ...core.sasl.session import BROKERS_INTERVAL, Session, due_at, retire_at
from ...core.versions import AnyRequest, VersionRange
from ...error_codes import ErrorCode
from ...errors import AuthenticationFailed, KafkaError, fresh
from ...wire.messages.sasl import SaslHandshakeRequest
from ..own_thread import OwnThread
from .dialogue import carry_out
from .endings import SessionEnded

if TYPE_CHECKING:
    from ..credentials.credentials import Credentials

logger = logging.getLogger("aiokc.net")

#: Runs a coroutine function in a task that ends with the connection's owner; False: there is no owner that runs.
Start: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], bool]


def no_owner(run: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """Stand in for ``Start`` where no owner runs anything: a session that is over is not renewed."""
    return False


# A request that is written just before the end of a session may reach the broker after it. So requests wait for the
# renewal from so much before it on: a share of the session, and at most so many seconds.
_ON_THE_WAY: Final = 0.05
_LONGEST_WAY: Final = 1.0
# The pauses between attempts to renew a session that goes on meanwhile.
_LATER_SECONDS: Final = (1.0, 60.0)


class Line(Protocol):
    """What a re-authentication needs of its connection.

    A request that is written from ``admits_until`` on needs ``SaslSession.admission`` before, on the loop's clock. A
    denial that comes from ``doubts_from`` on, or answers what was sent before ``doubts_before``, may be due to the age
    of the token.
    """

    name: str
    admits_until: float
    doubts_from: float
    doubts_before: float

    @property
    def versions(self) -> Mapping[int, VersionRange]: ...

    @property
    def closed(self) -> bool: ...

    def retire(self) -> None: ...

    def end_session(self, error: SessionEnded) -> None:
        """End the connection, since its session is over. Nothing but requests at the gate waits for it."""

    async def calm(self) -> None:
        """Return when a request may be written, or when the connection is closed."""

    async def ask_in_turn(self, request: AnyRequest, version: int) -> memoryview:
        """Write a request behind what is in flight. Its time begins to run when all before it are answered."""


class SaslSession:
    """The session of one connection, and the gate that new requests wait at while it is renewed."""

    def __init__(
        self,
        line: Line,
        session: Session,
        mechanism: Mechanism,
        credentials: Credentials,
        *,
        host: str,
        thread: OwnThread | None,
        random: Chance,
        start: Start,
        logins: LoginPolicy | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._line = line
        self._mechanism = mechanism
        self._credentials = credentials
        self._host = host
        self._thread = thread
        self._random = random
        self._start = start
        self._logins = logins
        self._wall_clock = wall_clock
        self._loop = asyncio.get_running_loop()
        self._later = Backoff(*_LATER_SECONDS, random)
        self._retires = False
        self._was_due_at = inf  # when the present session was to be renewed; it stays while that is under way
        self._ends_at = inf
        self._renewable_at = -inf
        self._number = 0  # of the session; each renewal makes another one
        self._is_running = self._has_begun = False
        self._is_shut = False
        self._asked: type[AnyRequest] | None = None  # what the renewal under way has written last
        self._settled = asyncio.Event()  # no renewal is under way
        self._settled.set()
        self._take_over(session, mechanism)

    # What the connection asks

    def is_due(self, now: float) -> bool:
        """Whether the session should have been renewed by now: then a close by the broker is no failure."""
        return now >= self._was_due_at

    @property
    def is_by_token(self) -> bool:
        """Whether the session began with credentials that expire."""
        return self._mechanism.expires_at is not None

    async def admission(self) -> bool:
        """Return True if a request may be written now; False after a wait: ask again. Begins the renewal that is due.

        Raises SessionEnded where the session can't be renewed: another connection has to take its place.
        """
        now = self._loop.time()
        if not self._is_running:
            self._begin()
        if self._retires:
            raise SessionEnded(f"{self._line.name}: not sent, the connection's credentials are not valid any more")
        if self._is_running and (self._is_shut or now >= self._ends_at):
            await self._settled.wait()
            return False
        return True

    async def renew(self, sent_at: float, deadline: float) -> bool:
        """Renew the session in which a request was ``sent_at``. Return whether there is another one now.

        Not if the renewal takes until ``deadline``, or can't be. Then no other denial in this session is doubted.
        Several requests may have been denied, each before the first one had the session renewed:

        1. Five Produce requests are in flight. The first is denied, and SaslHandshake goes out behind them.
        2. The others are denied: by the same token. They wait for the same renewal, or find it done.
        """
        if sent_at < self._line.doubts_before:
            return True
        before = self._number
        if not (self._is_running or self._retires or self._line.closed):
            self._begin()
        try:
            async with asyncio.timeout_at(deadline):
                await self._settled.wait()
        except TimeoutError:
            pass
        if self._number > before:
            return True
        self._line.doubts_from = inf
        return False

    def lose_owner(self) -> None:
        """Nothing runs what ``start`` was given, from now on, or goes on with it."""
        self._start = no_owner
        if self._is_running and not self._has_begun:
            self._is_running = False
            self._line.admits_until = inf
            self._settled.set()

    def close(self) -> None:
        """The connection has ended: let those go on that wait at the gate."""
        self._line.admits_until = self._line.doubts_from = inf
        self._line.doubts_before = -inf
        self._settled.set()

    # Renewing

    def _begin(self) -> None:
        if self._retires:
            self._line.admits_until = -inf  # each request that comes now finds out
            self._line.retire()
            return
        self._is_running, self._has_begun, self._asked = True, False, None
        self._settled.clear()
        # As long as the session lasts, requests go on being written until credentials and the first message are there.
        self._line.admits_until = self._ends_at
        if not self._start(self._run):
            self._is_running = False  # the owner has ended: use the connection as long as the broker serves it
            self._line.admits_until = inf
            self._settled.set()

    async def _run(self) -> None:
        """Renew the session. However this ends, no request is left waiting at the gate."""
        self._has_begun = True
        try:
            await self._renew()
        except KafkaError as error:
            # A connection that broke has told why already. All else means that a new connection has to be made: the
            # broker may accept there what it refuses here, and if not, that is where the refusal counts.
            if not self._line.closed:
                self._give_up(f"the SASL session could not be renewed ({error})", error)
        except BaseException:
            if self._asked is not None and not self._line.closed:
                self._give_up("the renewal of the SASL session was cancelled half way", None)
            raise
        finally:
            self._is_running = self._is_shut = False
            self._settled.set()

    async def _renew(self) -> None:
        line = self._line
        try:
            if self._logins is not None and (refusal := self._logins.begin_renewal(self._loop.time())) is not None:
                raise fresh(refusal)  # the broker would only refuse this session, too
            mechanism = await self._credentials.login(self._host)
        except AuthenticationFailed as error:
            return self._put_off(error)
        if not self._credentials.is_same_principal(self._mechanism, mechanism):
            logger.info("%s: logging in as another principal, over a new connection", line.name)
            self._retires, self._was_due_at, self._line.admits_until = True, -inf, -inf
            return line.retire()
        if (early := self._renewable_at - self._loop.time()) > 0:
            await asyncio.sleep(early)  # requests that come before the end of the session are written meanwhile
        dialogue = authenticate(mechanism, broker=line.name, versions=line.versions, clock=self._loop.time)
        try:
            session = await carry_out(dialogue, self._ask, self._thread)
        except AuthenticationFailed as error:
            if self._asked is None:
                return self._put_off(error)
            if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
                self._credentials.refused(mechanism)
                if self._logins is not None:
                    self._logins.refused_renewal(error)
            if error.code != ErrorCode.ILLEGAL_SASL_STATE or self._asked is not SaslHandshakeRequest:
                raise
            self._put_off(error)  # the broker does not let the connection authenticate again now
        else:
            logger.debug("%s: authenticated again", line.name)
            if self._logins is not None:
                self._logins.renewed(self._loop.time())
            self._later.reset()
            self._take_over(session, mechanism)

    def _put_off(self, error: AuthenticationFailed) -> None:
        """Try again later: the credentials, or the first message, were not to be had, or the broker was asked too soon.

        Raises ``error`` where the session is over.
        """
        now = self._loop.time()
        if now >= self._ends_at:
            raise error
        logger.info("%s: the SASL session is not renewed yet: %s", self._line.name, error)
        self._line.admits_until = min(now + self._later.next(), self._ends_at)

    async def _ask(self, request: AnyRequest, version: int) -> memoryview:
        await self._line.calm()
        # Not before the first message is made: for Kerberos that asks a KDC, which may be silent for a minute, and the
        # session still lasts. From now on no request is written.
        self._is_shut, self._line.admits_until = True, -inf
        self._asked = type(request)
        return await self._line.ask_in_turn(request, version)

    def _give_up(self, why: str, cause: KafkaError | None) -> None:
        error = SessionEnded(f"{self._line.name}: {why}: connecting anew")
        error.__cause__ = cause
        if self._asked is not None:
            self._line.end_session(error)  # the broker is in the middle of it, and accepts no other request
        else:
            self._retires, self._was_due_at, self._line.admits_until = True, -inf, -inf
            logger.info("%s", error)
            self._line.retire()

    def _take_over(self, session: Session, mechanism: Mechanism) -> None:
        self._mechanism = mechanism
        self._number += 1
        due = due_at(session, self._random)
        expires = mechanism.expires_at
        life = None if expires is None else expires - self._wall_clock()
        self._retires = False
        self._ends_at, self._renewable_at = inf, -inf
        if due is not None:
            lifetime = session.lifetime_ms / 1e3
            if self._number > 1 and due < session.sent_at + BROKERS_INTERVAL:
                self._renewable_at = session.sent_at + BROKERS_INTERVAL
            self._ends_at = max(due, session.sent_at + lifetime - min(_ON_THE_WAY * lifetime, _LONGEST_WAY))
        elif (due := retire_at(session, life, self._random)) is not None:
            self._retires = True
        self._line.admits_until = self._was_due_at = inf if due is None else due
        if (now := self._loop.time()) >= self._line.doubts_from:
            self._line.doubts_before = now
        has_token = mechanism.name == "OAUTHBEARER" and life is not None and not self._retires
        self._line.doubts_from = session.sent_at + life / 2 if has_token and life is not None else inf
