"""When a client may log in again after a broker has refused its credentials: directories lock accounts."""

from __future__ import annotations

import math
from typing import Final, TypeGuard

from ...errors import AuthenticationFailed, CertificateRefused, KafkaError
from ..backoff import Backoff, Chance

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0


def login_backoff(random: Chance) -> Backoff:
    """Return the pauses between attempts that are sure to fail until someone changes a password or a certificate."""
    return Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, random)


class LoginPolicy:
    """One clock for the logins of a client, to all brokers and for all purposes. Times in seconds, on the loop's clock.

    All brokers of a cluster know the same users. So after a refusal no connection is made until ``retry_at``, and then
    one; a login that succeeds ends this. What is connected already goes on.

    ``refusal`` stays until a new connection logs in, and the client may need none for days. So after the pause it stops
    no login but those of new connections. The watchdog connects; once it was refused that (``refusal_to_thread``), it
    waits until a login of the loop succeeds, on a new connection or on one that was there.

    Each connection also logs in again before the end of its SASL session, and a client may have hundreds of them. So
    after the pause one of them does, and the others wait for its outcome. Once one was refused that, they wait until a
    new connection shows whether the credentials are good.
    """

    def __init__(self, random: Chance) -> None:
        self.refusal: AuthenticationFailed | None = None
        self.refusal_to_thread: AuthenticationFailed | None = None
        self.retry_at = -math.inf
        self._backoff = login_backoff(random)
        self._untold: AuthenticationFailed | None = None
        self._doubt: AuthenticationFailed | None = None  # why sessions are not renewed
        self._renewal_at = -math.inf  # when one of them is, in spite of that, unless there is a pause

    def refused(self, error: AuthenticationFailed, now: float) -> None:
        """A broker has refused the credentials. Refusals within one pause lengthen it only once."""
        if now >= self.retry_at:
            self.retry_at = now + self._backoff.next()
        self.refusal = self._untold = self._doubt = error  # after ``retry_at``, since a thread reads both

    def refused_to_thread(self, error: AuthenticationFailed) -> None:
        """A broker has refused the credentials that a thread offered, while the event loop was blocked."""
        self.refusal_to_thread = error

    def refused_renewal(self, error: AuthenticationFailed) -> None:
        """A broker has refused to renew the session of a connection. On a new connection it may accept the same."""
        self._doubt, self._renewal_at = error, math.inf

    def renewed(self, now: float) -> None:
        """A broker has accepted the credentials again on a connection that was there.

        New connections wait as before: the broker that they lead to may refuse what this one accepts, and would be
        offered it each time that one of hundreds of sessions is renewed. And a renewal that began before the refusal of
        another one, or before that of a new connection, tells nothing of what comes after.
        """
        self.refusal_to_thread = None
        if self._renewal_at < math.inf and self.pause(now) <= 0:
            self._doubt, self._renewal_at = None, -math.inf

    def succeeded(self) -> None:
        """A broker has accepted the credentials on a new connection."""
        self.refusal_to_thread = self._doubt = None
        self._renewal_at = -math.inf
        if self.refusal is None:
            return
        self.refusal = self._untold = None
        self.retry_at = -math.inf
        self._backoff.reset()

    def begin_renewal(self, now: float) -> AuthenticationFailed | None:
        """Return why a session is not to be renewed now; None: the caller renews it.

        After a refusal the others wait for the outcome of that one, or, if nothing is heard of it, the longest pause.
        """
        if self._doubt is None:
            return None
        if now < self._renewal_at or self.pause(now) > 0:
            return self._doubt
        self._renewal_at = now + _LONGEST_PAUSE
        return None

    def bars_thread(self, now: float) -> AuthenticationFailed | None:
        """Why the watchdog is not to connect now; None: it may. ``now``: by the monotonic clock, which is the loop's.

        Any thread may ask.
        """
        return self.refusal_to_thread or (self.refusal if self.pause(now) > 0 else None)

    def take(self) -> AuthenticationFailed | None:
        """Return the refusal that ``take`` has not returned yet, for the application's next call; None: there is none.

        So each attempt raises once, and what is connected already can be used meanwhile.
        """
        untold, self._untold = self._untold, None
        return untold

    def pause(self, now: float) -> float:
        """How many seconds are left until the next attempt; 0 if it may begin."""
        return max(0.0, self.retry_at - now) if self.refusal is not None else 0.0

    def in_pause(self, now: float) -> AuthenticationFailed | None:
        """Return the error of what needs a new connection now, if it has to wait for the next attempt."""
        refusal, left = self.refusal, self.pause(now)
        if refusal is None or left <= 0:
            return None
        error = AuthenticationFailed(
            f"{refusal} (not tried again yet: the next attempt is in {left:.3g} s)",
            mechanism=refusal.mechanism,
            code=refusal.code,
        )
        error.__cause__ = refusal.__cause__
        return error


def is_refusal(error: KafkaError) -> TypeGuard[AuthenticationFailed]:
    """Whether a broker has refused the credentials: then so will all other brokers of the cluster."""
    return isinstance(error, AuthenticationFailed) and not error.retriable and not isinstance(error, CertificateRefused)
