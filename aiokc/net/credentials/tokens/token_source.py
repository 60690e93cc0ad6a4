"""TokenSource: one token for many connections and clients, replaced ahead of its end, and never used after it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from math import inf
from typing import Final, Protocol

from ....core.backoff import Backoff, Chance
from ....core.connection.late_alarm import LateAlarm
from ....core.rate_limit import RateLimit, and_more
from ....core.sasl.oauthbearer import LEAST_LIFE
from ....errors import AuthenticationFailed, fresh
from ....token_provider import OAuthToken
from .refresh_window import RefreshWindow

logger = logging.getLogger("aiokc.net")

#: How long one call of a provider may take, in seconds.
CALL_SECONDS: Final = 30.0
# The loop's clock may stand still while the computer sleeps. So look at the wall clock at least this often.
_LONGEST_SLEEP: Final = 60.0
# A token that a broker has refused is replaced only if it is older: a provider gives the same token twice.
_FRESH_SECONDS: Final = 10.0
# The pauses after a refusal by the provider itself, such as a wrong client secret.
_REFUSED_PAUSES: Final = (1.0, 30.0)
_WARNING_INTERVAL: Final = 60.0
_KEPT: Final = "kept"  # the one kind of warning


class Asker(Protocol):
    """Where a TokenSource gets its tokens."""

    name: str  # for messages: "the token provider ..."

    @property
    def in_thread(self) -> bool:
        """Whether the call is in a thread just now: then it goes on after its time is over, and nothing can end it."""
        ...

    async def ask(self) -> OAuthToken:
        """Return a token. Raises AuthenticationFailed only."""
        ...

    def close(self) -> None:
        """End the thread, if there is one. ``ask`` may be called again."""
        ...


class TokenSource:
    """Asks for a token when one is needed, one call at a time, and ahead of its end while ``keep_fresh`` runs.

    Where a call fails, the present token serves as long as it is valid. The next call follows after a pause that grows
    from ``pauses[0]`` to ``pauses[1]`` seconds. All clients of one event loop that have the same provider share one
    source. A token without a known end, and any token where ``max_age`` is given, is asked for again before it is used
    if it is older than ``max_age`` (by default the window's least period). Of a call that hangs, for a file on a file
    system that hangs say, one attempt waits until its time is over; then the present token serves until the call ends.
    """

    def __init__(
        self,
        asker: Asker,
        *,
        window: RefreshWindow,
        random: Chance,
        pauses: tuple[float, float] = (0.1, 10.0),
        call_seconds: float = CALL_SECONDS,
        max_age: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._asker = asker
        self._window = window
        self._random = random
        self._call_seconds = call_seconds
        self._max_age = max_age
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._token: OAuthToken | None = None
        self._asked_at = 0.0  # wall clock, of the present or last call
        self._obtained_at = -inf  # the loop's clock, of the present token
        self._due_at: float | None = None  # wall clock
        self._refused = False
        #: Why the last call gave no token; None if it did.
        self.failure: AuthenticationFailed | None = None
        self._retry_at = -inf  # the loop's clock
        self._backoff = Backoff(*pauses, random)
        self._after_refusal = Backoff(*_REFUSED_PAUSES, random)
        self._warnings = RateLimit(_WARNING_INTERVAL)
        # The call may outlive the attempt, if it runs in a thread or does not let itself be cancelled.
        self._call: asyncio.Task[OAuthToken | AuthenticationFailed] | None = None
        self._call_hangs = False  # the present call has outlived an attempt
        self._attempt: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._changed: asyncio.Future[None] = self._loop.create_future()
        self._users = 0

    # What connections ask for

    def current(self) -> OAuthToken | None:
        """Return the present token, None if there is none or its time is over. Any thread may call this."""
        token = self._token
        return None if token is None or self._is_over(token) else token

    async def token(self) -> OAuthToken:
        """Return a valid token: the present one, or else that of the present or of a new call.

        A cancelled caller leaves the call running for all others. Raises AuthenticationFailed if the call fails and
        there is no valid token. Within the pause after a failure the caller waits for the next call; but if the
        provider has refused to give a token at all, the caller gets the same error again.
        """
        while True:
            token = self.current()
            if token is not None and (not self._is_stale(token) or (self._call_hangs and not self._refused)):
                return token
            if (pause := self._retry_at - self._loop.time()) > 0:
                if token is not None:
                    return token
                if self.failure is not None and not self.failure.retriable:
                    raise fresh(self.failure)
                await asyncio.sleep(pause)
                continue
            await asyncio.wait((self._attempt or self._begin(),))
            if (token := self.current()) is not None:
                return token
            if self.failure is not None:
                raise fresh(self.failure)

    def refused(self, token: OAuthToken) -> None:
        """Ask for another token before the next authentication: a broker has refused this one."""
        if token is self._token and self._age() > _FRESH_SECONDS:
            self._refused = True

    # What a client runs

    async def keep_fresh(self) -> None:
        """Ask for the next token ahead of the end of the present one, until cancelled.

        The last client that ends this ends the call that may be under way.
        """
        self._users += 1
        try:
            while True:
                pause = self._pause()
                if pause is not None and pause <= 0:
                    self._begin()
                    pause = None
                await asyncio.wait((self._changed,), timeout=pause)
        finally:
            self._users -= 1
            if self._users == 0:
                self._stop()

    def _pause(self) -> float | None:
        """Return the seconds until the next call is due, at most a minute; None: no call is due until a change."""
        if self._attempt is not None:
            return None
        if self.failure is not None:
            if self.current() is None and not self.failure.retriable:
                return None  # until a login needs a token
            return self._retry_at - self._loop.time()
        return None if self._due_at is None else min(self._due_at - self._clock(), _LONGEST_SLEEP)

    def _stop(self) -> None:
        self._asker.close()
        if self._loop.is_closed():
            return  # it never ended its tasks, and this one is garbage: nothing can be called any more
        if self._call is not None:
            call, self._call, self._call_hangs = self._call, None, False
            call.cancel()
        self._end_attempt()

    # One attempt

    def _begin(self) -> asyncio.Future[None]:
        """Start an attempt: a new call, or the wait for an old one that no attempt waits for any more."""
        if self._call is None:
            self._asked_at = self._clock()
            self._call = self._loop.create_task(self._ask(), name=f"aiokc: {self._asker.name}")
            self._call.add_done_callback(self._answered)
        self._overdue_at(self._loop.time() + self._call_seconds, LateAlarm())
        self._attempt = self._loop.create_future()
        return self._attempt

    async def _ask(self) -> OAuthToken | AuthenticationFailed:
        try:
            return await self._asker.ask()
        except AuthenticationFailed as error:
            return error

    def _answered(self, call: asyncio.Task[OAuthToken | AuthenticationFailed]) -> None:
        if call is not self._call:
            return
        self._call, self._call_hangs = None, False
        if call.cancelled() or (error := call.exception()) is not None:
            outcome: OAuthToken | AuthenticationFailed = self._failed("has not returned: it was cancelled")
            if not call.cancelled():
                outcome = self._failed(f"has ended by {type(error).__name__}")
        else:
            outcome = call.result()
        if isinstance(outcome, OAuthToken):
            if not self._is_over(outcome):
                return self._succeed(outcome)
            outcome = self._failed(self._too_old(outcome))
        if self._attempt is not None:
            self._fail(outcome)

    def _overdue_at(self, due: float, alarm: LateAlarm) -> None:
        self._timer = self._loop.call_at(due, self._overdue, due, alarm)

    def _overdue(self, due: float, alarm: LateAlarm) -> None:
        now = self._loop.time()
        if (more := alarm.extension(now - due, received=self._call)) > 0:  # the token may be there, and not taken in
            return self._overdue_at(now + more, alarm)
        if self._call is not None and not self._asker.in_thread:
            self._call.cancel()
        self._call_hangs = self._call is not None
        self._fail(self._failed(f"has not returned within {self._call_seconds:.3g} s"))

    def _succeed(self, token: OAuthToken) -> None:
        self._token = token
        self._obtained_at = self._loop.time()
        self._refused = False
        self.failure, self._retry_at = None, -inf
        self._backoff.reset()
        self._after_refusal.reset()
        expires_at = token.expires_at
        self._due_at = None if expires_at is None else self._window.due_at(self._asked_at, expires_at, self._random)
        self._warnings.forget(_KEPT)
        self._end_attempt()

    def _fail(self, failure: AuthenticationFailed) -> None:
        backoff = self._backoff if failure.retriable else self._after_refusal
        now = self._loop.time()
        self.failure, self._retry_at = failure, now + backoff.next()
        token = self.current()
        held_back = None if token is None else self._warnings.admit(_KEPT, now)
        if token is not None and held_back is not None:
            left = "" if token.expires_at is None else f", for {token.expires_at - self._clock():.0f} s more"
            logger.warning("%s; the present token serves%s%s", failure, left, and_more(held_back))
        self._end_attempt()

    def _end_attempt(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._attempt is not None:
            self._attempt.set_result(None)
            self._attempt = None
        self._changed.set_result(None)
        self._changed = self._loop.create_future()

    # The token's age

    def _is_over(self, token: OAuthToken) -> bool:
        return token.expires_at is not None and token.expires_at <= self._clock() + LEAST_LIFE

    def _is_stale(self, token: OAuthToken) -> bool:
        limit = self._max_age
        if limit is None:
            limit = self._window.min_period if token.expires_at is None else inf
        return self._refused or self._age() >= limit

    def _age(self) -> float:
        return self._loop.time() - self._obtained_at

    def _too_old(self, token: OAuthToken) -> str:
        assert token.expires_at is not None
        left = token.expires_at - self._clock()
        if left > 0:
            return f"returned a token that expires in {left:.1f} s by this computer's clock: too soon to be used"
        return f"returned a token that expired {-left:.0f} s ago by this computer's clock"

    def _failed(self, what: str) -> AuthenticationFailed:
        return AuthenticationFailed(f"{self._asker.name} {what}", mechanism="OAUTHBEARER", retriable=True)
