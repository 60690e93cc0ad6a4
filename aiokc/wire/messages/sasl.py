"""SaslHandshake and SaslAuthenticate: authentication."""

from __future__ import annotations

from ..primitives import Bytes, Int16, Int64, String
from ..schema import Request, Response, field


class SaslHandshakeResponse(Response, key=17, versions="0-1", flexible="none"):
    error_code: Int16
    mechanisms: list[String]


class SaslHandshakeRequest(Request[SaslHandshakeResponse], key=17, versions="0-1", flexible="none"):
    mechanism: String


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: Int16
    error_message: String | None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)


class SaslAuthenticateRequest(Request[SaslAuthenticateResponse], key=36, versions="0-2", flexible="2+"):
    auth_bytes: Bytes
