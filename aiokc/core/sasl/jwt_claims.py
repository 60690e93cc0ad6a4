"""What a token says of itself, read without checking the signature: for messages and for the client's own planning."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final, NamedTuple

#: Of any token. Brokers take none as long, and it costs time and memory at each login.
MOST_TOKEN_CHARACTERS: Final = 64 * 1024


class Claims(NamedTuple):
    """The registered claims of a JSON Web Token (RFC 7519) that matter to Kafka; None or empty where they lack.

    ``expires_at`` is a Unix time in seconds.
    """

    expires_at: float | None
    issuer: str
    subject: str
    audience: tuple[str, ...]


def read_claims(token: str) -> Claims | None:
    """Return the claims of a signed or unsecured JWT; None for an opaque token. Nothing here is verified."""
    parts = token.split(".", 5)
    if len(parts) != 3 or len(token) > MOST_TOKEN_CHARACTERS:
        return None
    claims = json_object(_decoded(parts[1]))
    if claims is None or json_object(_decoded(parts[0])) is None:
        return None
    audience = claims.get("aud")
    return Claims(
        _time(claims.get("exp")),
        _text(claims.get("iss")),
        _text(claims.get("sub")),
        tuple(_text(one) for one in (audience if isinstance(audience, list) else [audience]) if _text(one)),
    )


def json_object(text: bytes) -> dict[str, Any] | None:
    """Return the JSON object that ``text`` is, or None. Whatever ``text`` is, this raises nothing."""
    import json  # takes long, and not within the making of a client, which may hold the event loop

    try:
        # RecursionError: thousands of brackets. ValueError: no JSON, no UTF-8, a number of thousands of digits.
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def utc(moment: float) -> str:
    """Return a Unix time as text, to the second."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # beyond the year 9999, or what the platform can count
        return f"{moment:.0f} s after 1970"


def _decoded(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        return b""


def _time(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        moment = float(value)
    except OverflowError:
        return None
    return moment if isfinite(moment) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
