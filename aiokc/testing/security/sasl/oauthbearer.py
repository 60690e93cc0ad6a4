"""The server's half of OAUTHBEARER (RFC 7628, KIP-255), as Kafka's OAuthBearerSaslServer."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Final

from ..jwt import InvalidToken, TokenRules, check
from ..login_faults import LoginFaults
from .refused_login import LoginRefused, WrongCredentials

_log = logging.getLogger(__name__)

_CONTROL_A: Final = b"\x01"
_CLIENT_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER: Final = re.compile(r"Bearer[ ]+(?P<token>[-_.~+/A-Za-z0-9]+=*)", re.IGNORECASE)


class OAuthBearerServer:
    """One login by OAUTHBEARER."""

    def __init__(self, rules: TokenRules, faults: LoginFaults, now_ms: Callable[[], int]) -> None:
        self.user: str | None = None
        self.is_complete = False
        self.expires_ms: int | None = None
        self.extensions: dict[str, str] = {}
        self._rules = rules
        self._faults = faults
        self._now_ms = now_ms
        self._refused: str | None = None

    def respond(self, message: bytes) -> bytes:
        """Check the token. A refused client gets JSON first; when it has answered that, this raises LoginRefused."""
        if self._refused is not None:
            if message == _CONTROL_A:
                raise LoginRefused(self._refused)
            raise WrongCredentials("the client does not answer the refusal with one byte 01")
        found = _CLIENT_FIRST.fullmatch(message.decode("utf-8", "replace"))
        if found is None:
            raise WrongCredentials("Invalid OAUTHBEARER client first message")
        pairs = dict(one.split("=", 1) for one in found["pairs"].split("\x01")[:-1])
        bearer = _BEARER.fullmatch(pairs.pop("auth", ""))
        if bearer is None:
            raise WrongCredentials("Invalid OAUTHBEARER client first message: 'auth' not specified")
        fault = self._faults.take("oauth_error")
        if fault is not None:
            return self._refuse(fault.value)
        try:
            claims = check(bearer["token"], self._rules, self._now_ms())
        except InvalidToken as error:
            _log.info("a token is refused: %s", error)
            return self._refuse(json.dumps({"status": "invalid_token"}))
        if found["authzid"] and found["authzid"] != claims.user:
            raise LoginRefused(
                f"Authentication failed: Client requested an authorization id ({found['authzid']}) that is different"
                f" from the token's principal name ({claims.user})"
            )
        self.user, self.expires_ms, self.extensions, self.is_complete = claims.user, claims.expires_ms, pairs, True
        return b""

    def _refuse(self, answer: str) -> bytes:
        self._refused = answer
        return answer.encode()
