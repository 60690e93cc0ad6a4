"""``TokenMaker``: JSON Web Tokens for OAUTHBEARER: signed with RS256, whose key is in a JWKS file, or unsecured."""

from __future__ import annotations

import base64
import json
import time
from typing import Any, Final

from ..jars import LocalKafkaError

ISSUER: Final = "https://idp.example"
AUDIENCE: Final = "kafka"
_KEY_ID: Final = "aiokc-1"
_KEY_BITS: Final = 2048


class TokenMaker:
    """Signs tokens with an RSA key of its own. Raises LocalKafkaError where cryptography is not installed."""

    def __init__(self) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric import rsa
        except ImportError as error:
            raise LocalKafkaError("signed tokens need a key: pip install cryptography") from error
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)

    def jwks(self) -> str:
        """Return the JSON Web Key Set with the public key (RFC 7517)."""
        public = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": _KEY_ID,
            "n": _number(public.n),
            "e": _number(public.e),
        }
        return json.dumps({"keys": [key]})

    def signed(self, subject: str, *, lifetime: float = 3600.0, **claims: Any) -> str:
        """Return a token of `subject` that expires in `lifetime` whole seconds (less than 0: it has expired).

        `claims` are added, or replace ``iss``, ``aud``, ``iat`` and ``exp``.
        """
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        text = _unsigned({"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}, _claims(subject, lifetime, claims))
        return f"{text}.{_base64url(self._key.sign(text.encode(), PKCS1v15(), SHA256()))}"


def unsecured(subject: str, *, lifetime: float = 3600.0, **claims: Any) -> str:
    """Return a token without a signature, as Kafka's default validator takes it (RFC 7519, section 6)."""
    return f"{_unsigned({'alg': 'none', 'typ': 'JWT'}, _claims(subject, lifetime, claims))}."


def _claims(subject: str, lifetime: float, claims: dict[str, Any]) -> dict[str, Any]:
    # Whole seconds, as most providers have them, and rounded down, as Kafka does with others.
    now = int(time.time())
    expires = now + int(lifetime)
    return {
        "sub": subject,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": min(now, expires - 1),
        "exp": expires,
        **claims,
    }


def _unsigned(header: dict[str, str], claims: dict[str, Any]) -> str:
    return ".".join(_base64url(json.dumps(part).encode()) for part in (header, claims))


def _number(value: int) -> str:
    return _base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
