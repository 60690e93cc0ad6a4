"""How long an authentication holds, and when to repeat it (KIP-368); net/login/reauthentication.py carries it out."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..backoff import Chance

_YEAR: Final = 365 * 86_400.0
_SOONEST: Final = 1.0
#: A broker lets a connection authenticate again so many seconds after the last time that it did, and not sooner.
BROKERS_INTERVAL: Final = 1.0
#: No session can be meant to be shorter: with the broker's interval, hardly any time would be left in it for requests.
_LEAST: Final = 0.1
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
    """Return when to authenticate again, on the clock of ``sent_at``; None: the session has no end.

    That may be sooner than the broker lets the connection authenticate again (``BROKERS_INTERVAL``).
    """
    if session.lifetime_ms <= 0:
        return None
    lifetime = session.lifetime_ms / 1e3
    return session.sent_at + (_SOONEST if lifetime < _LEAST else _share(lifetime, random))


def retire_at(session: Session, remaining: float | None, random: Chance) -> float | None:
    """Return when to replace the connection, on the clock of ``sent_at``, or None if it may stay.

    ``remaining``: the seconds that the credential had left at ``sent_at``; None if it does not expire. A broker that
    names no lifetime refuses to authenticate again, so the connection can't outlive its credential: some brokers close
    it then.
    """
    if session.lifetime_ms > 0 or remaining is None:
        return None
    return session.sent_at + max(_share(remaining, random), _SOONEST)


def _share(seconds: float, random: Chance) -> float:
    return min(seconds, _YEAR) * random.uniform(_FROM, _TO)
