"""OidcAsker: tokens from an OpenID provider, for a client's secret or for an assertion in a file (KIP-768)."""

from __future__ import annotations

import os
import ssl
from base64 import b64encode
from collections.abc import Callable
from math import isfinite
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus, urlencode

from ....config import SecurityConfig
from ....core.sasl.broker_text import broker_text, in_parts
from ....core.sasl.jwt_claims import json_object
from ....core.sasl.mechanism import HiddenBytes
from ....errors import AuthenticationFailed, ConfigError
from ....secret import Secret
from ....token_provider import OAuthToken, is_unix_seconds
from ...own_thread import OwnThread
from ..application_code import called
from .checked_token import checked
from .https_post import Answer, HttpFailure, check_url, post
from .token_file import read_token
from .token_source import CALL_SECONDS
from .trust import Trusted, context_for

_MECHANISM: Final = "OAUTHBEARER"
_URL: Final = "sasl_oauthbearer_token_endpoint_url"
_CLIENT: Final = "sasl_oauthbearer_client_credentials_client_"
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_RETRIABLE_STATUS: Final = (408, 429)
_RESERVE_SECONDS: Final = 5.0
_NAMES_OF_SECRETS: Final = ("access_token", "refresh_token", "id_token")


class OidcOptions(NamedTuple):
    """Where to ask for tokens, and as whom. Clients with equal options share their tokens.

    With a ``client_secret``: the client_credentials grant (KIP-768). With an ``assertion_file`` and a ``client_id``:
    the same, with the file's assertion in the place of the secret (KIP-1258). With an ``assertion_file`` alone: the
    JWT-bearer grant (KIP-1139).
    """

    url: str
    client_id: str
    client_secret: Secret | None
    scope: str
    header_urlencode: bool
    assertion_file: str | None
    connect_timeout: float
    read_timeout: float
    trusted: Trusted

    @classmethod
    def of(cls, config: SecurityConfig) -> OidcOptions:
        """Return the options of a config. Raises ConfigError for what can't work."""
        url, secret = config.sasl_oauthbearer_token_endpoint_url, getattr(config, f"{_CLIENT}secret")
        assertion, client_id = config.sasl_oauthbearer_assertion_file, getattr(config, f"{_CLIENT}id") or ""
        if url is None:
            raise ConfigError(f"sasl_mechanism='OAUTHBEARER' needs a sasl_oauth_token_provider or a {_URL}")
        check_url(url, _URL)
        if assertion is not None and secret is not None:
            raise ConfigError(f"sasl_oauthbearer_assertion_file replaces {_CLIENT}secret: leave one of both out")
        if assertion is None and (not client_id or not secret):
            raise ConfigError(f"{_URL} needs {_CLIENT}id and _secret, or sasl_oauthbearer_assertion_file")
        return cls(
            url,
            client_id,
            secret if secret is None else Secret(secret),
            config.sasl_oauthbearer_scope or "",
            config.sasl_oauthbearer_header_urlencode,
            None if assertion is None else os.fspath(assertion),
            config.sasl_login_connect_timeout_ms / 1e3,
            config.sasl_login_read_timeout_ms / 1e3,
            Trusted.of(config),
        )

    @property
    def call_seconds(self) -> float:
        """How long a call may take: 30 s, or longer if the timeouts of the options are."""
        return max(CALL_SECONDS, self.connect_timeout + self.read_timeout + _RESERVE_SECONDS)


class OidcAsker:
    """Asks an OpenID provider for tokens, in a thread. One call makes one request: the TokenSource repeats calls."""

    in_thread = True

    def __init__(self, options: OidcOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._url = check_url(options.url, _URL)
        self.name = f"the token provider {self._url.scheme}://{self._url.netloc}{self._url.path}"
        self._clock = clock
        self._thread = OwnThread("aiokc oidc")

    async def ask(self) -> OAuthToken:
        return await called(self.name, _MECHANISM, self._thread.run(self._fetch))

    def close(self) -> None:
        self._thread.close()

    def _fetch(self) -> OAuthToken:
        options = self._options
        assertion = None if options.assertion_file is None else read_token(options.assertion_file, self.name)
        context = context_for(options.trusted) if self._url.scheme == "https" else None
        asked_at = self._clock()
        answer = self._answer(assertion, context)
        if answer.status not in (200, 201):
            raise self._refusal(answer, assertion)
        token = self._token(answer, asked_at)
        if isinstance(token, OAuthToken):
            token = checked(token, self.name, retriable=True)
        if isinstance(token, AuthenticationFailed):
            raise token  # here, where no variable has what the provider has sent
        return token

    def _answer(self, assertion: Secret | None, context: ssl.SSLContext | None) -> Answer:
        options = self._options
        try:
            return post(
                self._url,
                _body(options, assertion),
                _headers(options),
                connect_timeout=options.connect_timeout,
                read_timeout=options.read_timeout,
                context=context,
            )
        except HttpFailure as error:
            raise AuthenticationFailed(f"{self.name}: {error}", retriable=True) from error
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationFailed(
                f"{self.name}: its certificate was refused ({error.verify_message}); trusted are the authorities of "
                "the system and of ssl_truststore_location",
                retriable=True,
            ) from error
        except TimeoutError as error:
            raise AuthenticationFailed(
                f"{self.name} did not answer within sasl_login_connect_timeout_ms={options.connect_timeout * 1e3:.0f} "
                f"and sasl_login_read_timeout_ms={options.read_timeout * 1e3:.0f}",
                retriable=True,
            ) from error
        except OSError as error:
            raise AuthenticationFailed(
                f"{self.name} can't be reached ({error.strerror or type(error).__name__})", retriable=True
            ) from error

    def _token(self, answer: Answer, asked_at: float) -> OAuthToken | AuthenticationFailed:
        found = json_object(answer.body)
        if found is None:
            return AuthenticationFailed(f"{self.name} answered {answer.status}, and no JSON object", retriable=True)
        token = found.get("access_token")
        if not isinstance(token, str) or not token:
            return AuthenticationFailed(f"{self.name} answered {answer.status} without an access_token", retriable=True)
        life = _seconds(found.get("expires_in"))
        return OAuthToken(token, None if life is None else _end(asked_at + life))

    def _refusal(self, answer: Answer, assertion: Secret | None) -> AuthenticationFailed:
        """Return the error for a status that is no success, with the error's name and description (RFC 6749, 5.2)."""
        if 300 <= answer.status < 400:
            return AuthenticationFailed(
                f"{self.name} answered {answer.status}, a redirect, which the client does not follow with its secret: "
                f"give the final address as {_URL}"
            )
        found = json_object(answer.body) or {}
        tokens = [] if assertion is None else [assertion]
        tokens += [Secret(text) for name in _NAMES_OF_SECRETS if isinstance(text := found.get(name), str)]
        secrets = [part for token in tokens for part in in_parts(token)]
        if self._options.client_secret is not None:
            secrets.append(self._options.client_secret)
        told = [broker_text(text, secrets) for name in ("error", "error_description") if (text := _text(found, name))]
        said = "".join(f": {text}" for text in told)
        is_final = 400 <= answer.status < 500 and answer.status not in _RETRIABLE_STATUS
        return AuthenticationFailed(f"{self.name} answered {answer.status}{said}", retriable=not is_final)


def _body(options: OidcOptions, assertion: Secret | None) -> HiddenBytes:
    fields = {"grant_type": "client_credentials"}
    if assertion is not None and options.client_id:
        fields |= {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion.reveal()}
        fields |= {"client_id": options.client_id}
    elif assertion is not None:
        fields = {"grant_type": _JWT_BEARER, "assertion": assertion.reveal()}
    if options.scope:
        fields["scope"] = options.scope
    return HiddenBytes(urlencode(fields, quote_via=quote).encode())


def _headers(options: OidcOptions) -> dict[str, str | Secret]:
    headers: dict[str, str | Secret] = {
        "Accept": "application/json",
        "Cache-Control": "no-cache",
        "Connection": "close",
        "Content-Type": "application/x-www-form-urlencoded",
        "User-Agent": "aiokc",
    }
    if options.client_secret is not None:
        # RFC 6749 wants both percent-encoded first. Java's client does not, unless it is told, nor do most providers.
        encode = quote_plus if options.header_urlencode else str
        pair = f"{encode(options.client_id)}:{encode(options.client_secret.reveal())}"
        headers["Authorization"] = Secret(f"Basic {b64encode(pair.encode()).decode()}")
    return headers


def _seconds(value: object) -> float | None:
    """Return the life of a token. Some providers write it as a string, and some leave it out."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if isfinite(seconds) else None


def _end(moment: float) -> float | None:
    """Return the end of a token's life, within what an OAuthToken takes; None for that of a life of thousands of years.

    Some providers write such a life for "never", and Java's client does not look at it: a JWT has its own ``exp``.
    """
    end = max(0.0, moment)
    return end if is_unix_seconds(end) else None


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""
