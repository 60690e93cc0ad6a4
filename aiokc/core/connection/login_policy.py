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

    ``refusal`` may be read by any thread: while it is not None, the watchdog makes no connection. Nor after a refusal
    that it got itself (``refusal_to_thread``), until a login of the loop succeeds.

    Each connection also logs in again before the end of its SASL session, and a client may have hundreds of them. So
    once one was refused that, the others wait (``in_doubt``) until a new connection shows whether the credentials are
    good.
    """

    def __init__(self, random: Chance) -> None:
        self.refusal: AuthenticationFailed | None = None
        self.refusal_to_thread: AuthenticationFailed | None = None
        self.retry_at = -math.inf
        self._backoff = login_backoff(random)
        self._untold: AuthenticationFailed | None = None
        self._refused_renewal: AuthenticationFailed | None = None

    def refused(self, error: AuthenticationFailed, now: float) -> None:
        """A broker has refused the credentials. Refusals within one pause lengthen it only once."""
        self.refusal = self._untold = error
        if now >= self.retry_at:
            self.retry_at = now + self._backoff.next()

    def refused_to_thread(self, error: AuthenticationFailed) -> None:
        """A broker has refused the credentials that a thread offered, while the event loop was blocked."""
        self.refusal_to_thread = error

    def refused_renewal(self, error: AuthenticationFailed) -> None:
        """A broker has refused to renew the session of a connection. On a new connection it may accept the same."""
        self._refused_renewal = error

    def succeeded(self) -> None:
        """A broker has accepted the credentials on a new connection."""
        self.refusal_to_thread = self._refused_renewal = None
        if self.refusal is None:
            return
        self.refusal = self._untold = None
        self.retry_at = -math.inf
        self._backoff.reset()

    @property
    def in_doubt(self) -> AuthenticationFailed | None:
        """Why no session is to be renewed until a login on a new connection succeeds; None: nothing is wrong."""
        return self.refusal or self._refused_renewal

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
