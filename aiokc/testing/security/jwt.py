"""JSON Web Tokens as brokers check them: unsecured ones, and such that an identity provider has signed (RS256)."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

#: A broker's sasl.oauthbearer.clock.skew.seconds.
CLOCK_SKEW: Final = 30.0


class InvalidToken(Exception):
    """The token is not valid; the text is for the broker's log, as clients are only told "invalid_token"."""


class Signer(Protocol):
    """What checks signatures: an identity provider."""

    @property
    def issuer(self) -> str:
        """The issuer that the provider's tokens name."""

    def is_signed(self, signed: bytes, signature: bytes, key_id: str) -> bool:
        """Return whether the signature is that of the provider's key ``key_id``."""


@dataclass(frozen=True)
class TokenRules:
    """Which tokens the brokers accept.

    With ``idp`` they must be signed by this `IdP`, and name it as their issuer; without, they are unsecured ("alg":
    "none"). ``audience`` is expected unless it is None. A token may have ended ``clock_skew`` seconds ago: such a
    login gets a session of 0 ms, and the next request closes the connection, as with Apache Kafka.
    """

    idp: Signer | None = None
    audience: str | None = None
    clock_skew: float = 0.0


@dataclass(frozen=True)
class Claims:
    """What a valid token says."""

    user: str
    expires_ms: int


def unsecured_token(user: str, lifetime: float = 3600.0, *, now: Callable[[], float] = time.time, **claims: Any) -> str:
    """Return an unsecured JWT for ``user`` that ends in ``lifetime`` seconds, with more ``claims``."""
    issued = now()
    return encode({"alg": "none"}, {"sub": user, "iat": issued, "exp": issued + lifetime, **claims}) + "."


def encode(header: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
    """Return the two parts of a token that a signature signs."""
    return ".".join(base64url(json.dumps(dict(part)).encode()) for part in (header, claims))


def base64url(data: bytes) -> str:
    """Return base64 in the alphabet of URLs, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise InvalidToken("a part of the token is no base64url") from error


def _fields(text: str) -> dict[str, Any]:
    try:
        found = json.loads(_decoded(text))
    except ValueError as error:
        raise InvalidToken("a part of the token is no JSON") from error
    if not isinstance(found, dict):
        raise InvalidToken("a part of the token is no JSON object")
    return found


def check(token: str, rules: TokenRules, now_ms: int) -> Claims:
    """Return what a token says. Raises InvalidToken."""
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("the token has not three parts")
    header, claims = _fields(parts[0]), _fields(parts[1])
    if rules.idp is None:
        if header.get("alg") != "none" or parts[2]:
            raise InvalidToken("the token is not unsecured")
    else:
        signed = f"{parts[0]}.{parts[1]}".encode()
        if header.get("alg") != "RS256" or not rules.idp.is_signed(signed, _decoded(parts[2]), str(header.get("kid"))):
            raise InvalidToken("the signature is wrong")
        if claims.get("iss") != rules.idp.issuer:
            raise InvalidToken("the issuer is another")
    audience = claims.get("aud", [])
    if rules.audience is not None and rules.audience not in ([audience] if isinstance(audience, str) else audience):
        raise InvalidToken("the audience is another")
    user, expires = claims.get("sub"), claims.get("exp")
    if not isinstance(user, str) or not user or not isinstance(expires, int | float):
        raise InvalidToken("the token has no subject, or no end")
    if expires * 1000 + rules.clock_skew * 1000 < now_ms:
        raise InvalidToken("the token has ended")
    return Claims(user, int(expires * 1000))
