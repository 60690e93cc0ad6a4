"""``IdP``: an identity provider on loopback: it grants tokens by client credentials (OIDC), and fails on demand.

    with IdP({"my-service": "its secret"}) as idp:
        ... sasl_oauthbearer_token_endpoint_url=idp.token_url ...
        idp.fail(500, times=2)

It runs in a thread of its own. Tokens are signed with RS256, which needs the package cryptography.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qs, unquote_plus

from .certificate_authority import Certificates
from .jwt import base64url, encode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

_KEY_ID: Final = "aiokc-testing"
_KEY_BITS: Final = 2048
_TOKEN_PATH: Final = "/token"
_KEYS_PATH: Final = "/jwks"
_SOCKET_SECONDS: Final = 30.0
_CHUNK: Final = bytes(65_536)


@dataclass(frozen=True)
class Asked:
    """One request to the provider: its path, its headers (in lower case), and the fields of its form."""

    path: str
    headers: Mapping[str, str]
    form: Mapping[str, str]


@dataclass
class _Fault:
    answer: Callable[[_Handler], None]
    times: int | None


class IdP:
    """The provider. ``clients`` has the secret of each client id; ``lifetime`` is that of a token, in seconds.

    ``tls`` makes it speak https. ``clock`` gives the tokens their times (seconds since the epoch). The token's subject
    is the client's id. ``asked`` has all requests for tokens so far.
    """

    def __init__(
        self,
        clients: Mapping[str, str] | None = None,
        *,
        lifetime: float = 3600.0,
        audience: str = "kafka",
        tls: Certificates | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.clients = dict(clients or {})
        self.lifetime = lifetime
        self.audience = audience
        self.asked: list[Asked] = []
        self._tls = tls
        self._clock = clock
        self._key: RSAPrivateKey = _rsa().generate_private_key(public_exponent=65_537, key_size=_KEY_BITS)
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server: ThreadingHTTPServer | None = None

    # Starting and stopping

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen on loopback, at a port that the system chooses."""
        server = _Server(("127.0.0.1", 0), _Handler)
        server.idp = self
        if self._tls is not None:
            context = self._tls.server_context()
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.02,), name="aiokc.testing IdP", daemon=True).start()

    def stop(self) -> None:
        """Close the port, and let slow answers end."""
        self._stopping.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    @property
    def issuer(self) -> str:
        """The issuer that the tokens name: the provider's address."""
        if self._server is None:
            raise RuntimeError("the IdP is not started: use it in a with statement")
        scheme, host = ("http", "127.0.0.1") if self._tls is None else ("https", "localhost")
        return f"{scheme}://{host}:{self._server.server_address[1]}"

    @property
    def token_url(self) -> str:
        """Where clients ask for tokens."""
        return self.issuer + _TOKEN_PATH

    @property
    def jwks_url(self) -> str:
        """Where brokers find the public key."""
        return self.issuer + _KEYS_PATH

    # Tokens

    def token(self, user: str, lifetime: float | None = None, **claims: Any) -> str:
        """Return a token of ``user`` that ends in ``lifetime`` seconds, with more (or other) ``claims``.

        idp.token("alice", -1.0)  # ended a second ago
        """
        now = self._clock()
        expires = now + (self.lifetime if lifetime is None else lifetime)
        own = {"sub": user, "iss": self.issuer, "aud": self.audience, "iat": now, "exp": expires}
        signed = encode({"alg": "RS256", "kid": _KEY_ID, "typ": "JWT"}, own | claims)
        padding, hashes = _signing()
        return f"{signed}.{base64url(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def is_signed(self, signed: bytes, signature: bytes, key_id: str) -> bool:
        """Return whether this provider has signed a token."""
        from cryptography.exceptions import InvalidSignature

        padding, hashes = _signing()
        try:
            self._key.public_key().verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return False
        return key_id == _KEY_ID

    @property
    def jwks(self) -> str:
        """The public key as JSON, as a real broker reads it from ``jwks_url`` or from a file."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": _KEY_ID, "alg": "RS256", "use": "sig", "n": _number(numbers.n)}
        return json.dumps({"keys": [key | {"e": _number(numbers.e)}]})

    # Faults

    def fail(self, status: int = 500, body: str = "", *, times: int | None = None) -> None:
        """Answer requests for tokens with this status.

        idp.fail(401, '{"error": "invalid_client"}', times=1)
        """
        self._add(times, lambda handler: handler.reply(status, body.encode()))

    def redirect(self, url: str, *, times: int | None = None) -> None:
        """Send clients elsewhere: one that follows tells its secret there.

        idp.redirect("http://127.0.0.1:9/token")
        """
        self._add(times, lambda handler: handler.reply(302, b"", {"Location": url}))

    def slow(self, seconds: float, *, times: int | None = None) -> None:
        """Answer ``seconds`` later.

        idp.slow(5.0, times=1)
        """

        def answer(handler: _Handler) -> None:
            self._stopping.wait(seconds)
            handler.grant()

        self._add(times, answer)

    def huge(self, size: int = 1 << 30, *, times: int | None = None) -> None:
        """Answer with ``size`` bytes: a client must stop reading.

        idp.huge(times=1)
        """
        self._add(times, lambda handler: handler.flood(size))

    def answer(self, body: str | Mapping[str, Any], *, status: int = 200, times: int | None = None) -> None:
        """Answer requests for tokens with this JSON, or with a text that is none.

        idp.answer({"access_token": idp.token("alice"), "expires_in": "3600"}, times=1)
        """
        text = body if isinstance(body, str) else json.dumps(dict(body))
        self._add(times, lambda handler: handler.reply(status, text.encode()))

    def heal(self) -> None:
        """End all faults."""
        with self._lock:
            self._faults.clear()

    def _add(self, times: int | None, answer: Callable[[_Handler], None]) -> None:
        with self._lock:
            self._faults.append(_Fault(answer, times))

    def take_fault(self) -> Callable[[_Handler], None] | None:
        """Return how to answer this request wrongly, None where it is answered rightly. The handler's threads call."""
        with self._lock:
            for fault in self._faults:
                if fault.times is None or fault.times > 0:
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault.answer
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    idp: IdP

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that gives up in the middle of an answer is what a test may be about."""


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = _SOCKET_SECONDS
    form: Mapping[str, str]

    def do_GET(self) -> None:
        if self.path == _KEYS_PATH:
            self.reply(200, self.server.idp.jwks.encode())
        else:
            self.reply(404, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.form = {name: values[-1] for name, values in parse_qs(body, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.idp.asked.append(Asked(self.path, headers, self.form))
        if self.path != _TOKEN_PATH:
            self.reply(404, b"")
            return
        (self.server.idp.take_fault() or _Handler.grant)(self)

    def grant(self) -> None:
        """Answer with a token, or with the error of RFC 6749."""
        idp = self.server.idp
        client, secret = self._credentials()
        if self.form.get("grant_type") != "client_credentials":
            self.reply(400, json.dumps({"error": "unsupported_grant_type"}).encode())
        elif not client or idp.clients.get(client) != secret:
            refusal = {"error": "invalid_client", "error_description": "unknown client, or a wrong secret"}
            self.reply(401, json.dumps(refusal).encode())
        else:
            scope: dict[str, Any] = {"scope": self.form["scope"]} if "scope" in self.form else {}
            granted = {"access_token": idp.token(client, **scope), "token_type": "Bearer", "expires_in": idp.lifetime}
            self.reply(200, json.dumps(granted | scope).encode())

    def _credentials(self) -> tuple[str, str]:
        """Return the client's id and secret: of the header (also percent-encoded, RFC 6749), or of the form."""
        kind, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "basic":
            return self.form.get("client_id", ""), self.form.get("client_secret", "")
        try:
            client, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return "", ""
        known = self.server.idp.clients.get(client)
        return (client, secret) if known == secret else (unquote_plus(client), unquote_plus(secret))

    def reply(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send an answer."""
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def flood(self, size: int) -> None:
        """Send an answer of ``size`` bytes."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for _ in range(0, size, len(_CHUNK)):
            self.wfile.write(_CHUNK)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: requests hold secrets."""


def _number(value: int) -> str:
    return base64url(value.to_bytes((value.bit_length() + 7) // 8))


def _rsa() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import rsa
    except ImportError as error:
        raise ImportError("aiokc.testing.IdP signs tokens with cryptography: pip install cryptography") from error
    return rsa


def _signing() -> tuple[Any, Any]:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    return padding, hashes
