"""How long an authentication holds, and when to repeat it (KIP-368); net/login/reauthentication.py carries it out."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..backoff import Chance

_YEAR: Final = 365 * 86_400.0
_SOONEST: Final = 1.0  # the broker refuses to authenticate a connection again within a second
# Java's share of a session after which it authenticates again. Sessions that began together must not end together.
_FROM, _TO = 0.85, 0.95


class Session(NamedTuple):
    """What the broker said of an authentication. ``lifetime_ms``: 0 or less is no limit, or a broker too old to tell.

    ``sent_at``: the time, on the caller's clock, just before the last SaslAuthenticate was sent. The broker's count
    begins later than that, never sooner.
    """

    lifetime_ms: int
    sent_at: float


def due_at(session: Session, random: Chance) -> float | None:
    """Return when to authenticate again, on the clock of ``sent_at``; None: the session has no end."""
    if session.lifetime_ms <= 0:
        return None
    return session.sent_at + _share(session.lifetime_ms / 1e3, random)


def retire_at(session: Session, remaining: float | None, random: Chance) -> float | None:
    """Return when to replace the connection, on the clock of ``sent_at``, or None if it may stay.

    ``remaining``: the seconds that the credential had left at ``sent_at``; None if it does not expire. A broker that
    names no lifetime refuses to authenticate again, so the connection can't outlive its credential: some brokers close
    it then.
    """
    if session.lifetime_ms > 0 or remaining is None:
        return None
    return session.sent_at + _share(max(remaining, 0.0), random)


def _share(seconds: float, random: Chance) -> float:
    return max(min(seconds, _YEAR) * random.uniform(_FROM, _TO), _SOONEST)
