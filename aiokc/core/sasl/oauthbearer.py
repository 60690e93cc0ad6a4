"""OAUTHBEARER (RFC 7628, KIP-255, KIP-342): a token in the place of a password. AWS_MSK_IAM sends its token so, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ...errors import AuthenticationFailed
from ...secret import Secret
from .broker_text import SHORTEST_PART, in_parts, quoted
from .jwt_claims import MOST_TOKEN_CHARACTERS, Claims, json_object, read_claims, utc
from .mechanism import Conversation, HiddenBytes

#: A token that ends within so many seconds is not used: it would be over when the broker reads it. The broker would
#: accept it, within its clock skew, and close the connection at the first request. That looks like a broken network.
LEAST_LIFE: Final = 1.0

_TOKEN: Final = re.compile(r"[-._~+/A-Za-z0-9]+=*")  # RFC 6750. Any other character could add a key of its own.
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_SEPARATOR: Final = "\x01"


class OAuthBearer:
    """The mechanism OAUTHBEARER with one token. The broker learns the token, so the connection must be encrypted.

    ``expires_at``: what the token's provider says; a JWT's own ``exp`` counts too, and the earlier of both is the end.
    ``extensions`` go to the broker beside the token (KIP-342). ``now`` returns the Unix time in seconds. ``identity``:
    whose token it is, where the token is no JWT.
    """

    name: Final = "OAUTHBEARER"

    def __init__(
        self,
        token: Secret,
        extensions: Mapping[str, str] | None = None,
        *,
        now: Callable[[], float],
        expires_at: float | None = None,
        identity: str = "",
    ) -> None:
        self._token = token
        self._extensions = dict(extensions or {})
        self._now = now
        self._claims = read_claims(token.reveal())
        self._challenge = ""
        ends = (expires_at, self._claims.expires_at if self._claims is not None else None)
        self.expires_at: float | None = min((end for end in ends if end is not None), default=None)
        subject = self._claims.subject if self._claims is not None else ""
        self.identity = identity or (f"token of subject {quoted(subject)}" if subject else "token")
        # A broker may repeat an extension, which may be a secret as well.
        values = [Secret(value) for value in map(str, self._extensions.values()) if len(value) >= SHORTEST_PART]
        self.secrets: Sequence[Secret] = (*in_parts(token), *values)

    def conversation(self) -> Conversation:
        message = self._first_message()
        if self.expires_at is not None and self.expires_at <= self._now() + LEAST_LIFE:
            when = self._expiry(self.expires_at)
            raise AuthenticationFailed(f"the token {when}: too late to be sent", retriable=True)
        answer = HiddenBytes((yield message))
        if not answer:
            return
        # RFC 7628, 3.2.3: the refusal comes as a challenge. The client answers it with one byte, then the broker fails
        # the exchange. A client that takes the challenge for success hears of the refusal at its first request.
        self._challenge = self._read_challenge(answer)
        yield _SEPARATOR.encode()
        raise AuthenticationFailed(f"the broker answered the token with {self._challenge}; {self.advice()}")

    def advice(self) -> str:
        challenge = f"it says {self._challenge}; " if self._challenge else ""
        if self._claims is None:
            return f"{challenge}the token is no JWT, so nothing is known here of its expiry, issuer or audience"
        return f"{challenge}the token itself says, unverified: {self._said(self._claims)}"

    def _first_message(self) -> HiddenBytes:
        if (length := len(self._token.reveal())) > MOST_TOKEN_CHARACTERS:
            raise AuthenticationFailed(f"the token has {length:,} characters, more than {MOST_TOKEN_CHARACTERS:,}")
        if _TOKEN.fullmatch(self._token.reveal()) is None:
            raise AuthenticationFailed("the token has characters that no bearer token may have (RFC 6750), or is empty")
        for key in self._extensions:  # without its value, which may be a secret: a traceback keeps variables
            if _KEY.fullmatch(key) is None or key == "auth":
                raise AuthenticationFailed(f"the name of the SASL extension {key!r} must be letters, and not 'auth'")
            if _VALUE.fullmatch(self._extensions[key]) is None:
                raise AuthenticationFailed(f"the value of the SASL extension {key!r} must be printable ASCII")
        pairs = (f"auth=Bearer {self._token.reveal()}", *(f"{key}={value}" for key, value in self._extensions.items()))
        text = "n,," + _SEPARATOR + "".join(pair + _SEPARATOR for pair in pairs) + _SEPARATOR
        return HiddenBytes(text.encode())

    def _read_challenge(self, answer: bytes) -> str:
        found = json_object(answer)
        status = found.get("status") if found is not None else None
        if found is None or not isinstance(status, str):
            return quoted(answer.decode("utf-8", "replace"), self.secrets)
        scope = found.get("scope")
        wanted = f" (scope {quoted(scope, self.secrets)})" if isinstance(scope, str) and scope else ""
        return f"{quoted(status, self.secrets)}{wanted}"

    def _said(self, claims: Claims) -> str:
        expiry = f"it {self._expiry(claims.expires_at)}" if claims.expires_at is not None else "no exp"
        issuer = f"iss {quoted(claims.issuer)}" if claims.issuer else "no iss"
        audience = f"aud {quoted(', '.join(claims.audience))}" if claims.audience else "no aud"
        subject = f"sub {quoted(claims.subject)}" if claims.subject else "no sub"
        return f"{expiry}, {issuer}, {audience}, {subject}"

    def _expiry(self, end: float) -> str:
        left = end - self._now()
        if left > 0:
            return f"expires in {left:.0f} s, at {utc(end)}"
        return f"expired {abs(left):.0f} s ago by this clock, at {utc(end)}"
