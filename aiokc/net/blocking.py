"""One connection to one broker over a blocking socket, for a thread without an event loop (the watchdog thread)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Final, TypeVar, cast

from ..core.cluster.home_cluster import ASKED_FROM, whose_question
from ..core.connection.handshake import Dialogue, handshake
from ..core.connection.in_flight import InFlightRequests
from ..core.sasl.mechanism import Mechanism, Work
from ..core.versions import api_name
from ..errors import (
    AuthenticationFailed,
    ConnectionFailed,
    KafkaError,
    MalformedResponse,
    RequestTimedOut,
    UnsupportedVersion,
)
from ..wire import Request, Response, decode, what_else_speaks
from ..wire.messages.discovery import MetadataRequest
from .login.endings import at_first_request_text
from .options import SOFTWARE, ConnectionOptions, Route
from .transport import keep_alive

R = TypeVar("R", bound=Response)
T = TypeVar("T")

_LENGTH_BYTES = 4
# How much of a SASL session a connection is used for. It is not renewed: a thread that sends heartbeats connects anew.
_SHARE_OF_SESSION: Final = 0.85


class BlockingConnection:
    """Sends one request at a time and reads its reply. Belongs to one thread; each socket operation has a timeout.

    After an error the connection is closed, and stays closed. Create it with ``open``.
    """

    def __init__(self, name: str, sock: socket.socket, options: ConnectionOptions) -> None:
        self.name = name
        self._socket = sock
        self._options = options
        self._pipeline: InFlightRequests[None] = InFlightRequests(name, options.client_id)
        self._over_at = inf  # monotonic seconds: the end of the SASL session
        self._expires_at: float | None = None  # Unix seconds: the end of the credentials
        self._has_answered = False  # a request after the handshake, or before, where no login is asked for

    @classmethod
    def open(cls, route: Route, options: ConnectionOptions, *, timeout: float) -> BlockingConnection:
        """Connect to the address that the event loop connected to, and return once the handshake is over.

        By then the broker has also said, where it can, that it belongs to the client's cluster: its address may lead to
        another one by now, and that would not know the member.

        Uses the TLS context and the credentials that the event loop had last. Raises ConnectionFailed, RequestTimedOut
        after ``timeout`` seconds, MalformedResponse, AuthenticationFailed. Without valid credentials, and while a
        broker's refusal of them counts, it raises AuthenticationFailed before it connects.
        """
        deadline = time.monotonic() + timeout
        mechanism = _credentials(route, options)
        try:
            plain = socket.create_connection(route.address, timeout=timeout)
        except OSError as error:
            raise ConnectionFailed(f"{route.name}: cannot connect ({error.strerror or error})") from error
        sock = plain
        connection: BlockingConnection | None = None
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(plain)
            if options.tls is not None:
                plain.settimeout(_left(deadline))
                sock = options.tls.current().wrap_socket(plain, server_hostname=route.server_hostname)
            connection = cls(route.name, sock, options)
            connection._has_answered = options.takes_no_login(route.address)
            connection._greet(deadline, mechanism)
            connection._check_home(deadline)
        except TimeoutError as error:
            sock.close()
            raise RequestTimedOut(f"{route.name}: no handshake within {timeout:.3g} s") from error
        except AuthenticationFailed as error:
            sock.close()
            if options.logins is not None and not error.retriable:
                options.logins.refused_to_thread(error)
            raise
        except OSError as error:
            sock.close()
            if isinstance(error, KafkaError):
                raise
            if failure := _tls_failure(error, route, options, connection):
                raise failure from error
            raise ConnectionFailed(f"{route.name}: the handshake broke off ({error.strerror or error})") from error
        except BaseException:
            sock.close()
            raise
        return connection

    def request(self, request_type: type[Request[R]], build: Callable[[int], Request[R]], *, timeout: float) -> R:
        """Send the request that ``build`` makes for the highest version that both sides speak; return the response.

        Raises RequestTimedOut after ``timeout`` seconds, ConnectionFailed, MalformedResponse, UnsupportedVersion.
        """
        version = self._pipeline.usable_version(request_type)
        api = f"{api_name(request_type)} v{version}"
        try:
            body = self._exchange(build(version), version, time.monotonic() + timeout)
            self._has_answered = True
            return decode(cast(type[R], request_type.response), body, version)
        except MalformedResponse as error:
            self.close()
            raise MalformedResponse(f"{self.name}: {api}: {error}") from error
        except TimeoutError as error:
            self.close()
            raise RequestTimedOut(f"{self.name}: no answer to {api} within {timeout:.3g} s") from error
        except OSError as error:
            self.close()
            if isinstance(error, KafkaError):
                raise
            raise ConnectionFailed(f"{self.name}: the connection broke ({error.strerror or error})") from error

    @property
    def is_over(self) -> bool:
        """Whether the SASL session is over, or about to be: the broker would close the connection at a request."""
        expires = self._expires_at
        return time.monotonic() >= self._over_at or (expires is not None and time.time() >= expires)

    def close(self) -> None:
        """End the connection now."""
        self._socket.close()

    def _greet(self, deadline: float, mechanism: Mechanism | None) -> None:
        software, version = SOFTWARE
        dialogue = handshake(
            broker=self.name,
            software_name=software,
            software_version=version,
            mechanism=mechanism,
            clock=time.monotonic,
        )
        greeting = self._carry_out(dialogue, deadline)
        self._pipeline.versions = greeting.versions
        if mechanism is not None:
            self._expires_at = mechanism.expires_at
        if greeting.session is not None and greeting.session.lifetime_ms > 0:
            self._over_at = greeting.session.sent_at + greeting.session.lifetime_ms / 1e3 * _SHARE_OF_SESSION

    def _check_home(self, deadline: float) -> None:
        home = self._options.home
        if home is None or home.cluster_id is None:
            return
        with suppress(UnsupportedVersion):
            if self._pipeline.usable_version(MetadataRequest) >= ASKED_FROM:
                answer = self.request(MetadataRequest, lambda version: whose_question(), timeout=_left(deadline))
                if (error := home.why_foreign(self.name, answer.cluster_id)) is not None:
                    raise error

    def _carry_out(self, dialogue: Dialogue[T], deadline: float) -> T:
        try:
            step = next(dialogue)
            while True:
                if isinstance(step, Work):
                    step = dialogue.send(step.function())
                else:
                    step = dialogue.send(self._exchange(step.request, step.version, deadline))
        except StopIteration as end:
            agreed: T = end.value
            return agreed
        finally:
            dialogue.close()

    def _hint(self) -> str:
        """Return what the end of the connection probably means, for the error's message, or ""."""
        if not self._pipeline.versions or self._has_answered:
            return ""
        return at_first_request_text(self._options, is_by_token=self._expires_at is not None)

    def _exchange(self, request: Request[Any], version: int, deadline: float) -> memoryview:
        _, frame = self._pipeline.send(request, version, None)
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(frame)
        head = self._receive(_LENGTH_BYTES, deadline)
        if stranger := what_else_speaks(bytes(head)):
            raise MalformedResponse(f"{self.name}: not Kafka's protocol: this looks like {stranger}")
        length = int.from_bytes(head, "big", signed=True)
        if not 0 < length <= self._options.max_response_bytes:
            raise MalformedResponse(
                f"a frame of {length} bytes, where max_response_bytes allows 1 to {self._options.max_response_bytes}"
            )
        _, body = self._pipeline.receive(self._receive(length, deadline))
        return body

    def _receive(self, count: int, deadline: float) -> memoryview:
        """Return exactly ``count`` bytes. Memory grows with the bytes that arrive, not with the announced length."""
        received = bytearray()
        while len(received) < count:
            self._socket.settimeout(_left(deadline))
            piece = self._socket.recv(min(count - len(received), 65_536))
            if not piece:
                raise ConnectionFailed(f"{self.name} closed the connection{self._hint()}")
            received += piece
        return memoryview(received)


def _left(deadline: float) -> float:
    """Return the timeout of the next socket operation. Raises TimeoutError if no time is left.

    0 would not do as a timeout: it makes a socket non-blocking.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _credentials(route: Route, options: ConnectionOptions) -> Mechanism | None:
    """Return the credentials to log in with; None without SASL. Raises AuthenticationFailed if there are none now."""
    if options.credentials is None:
        return None
    if options.logins is not None and (refusal := options.logins.bars_thread(time.monotonic())) is not None:
        raise AuthenticationFailed(
            f"{route.name}: not connecting, since a broker has refused the credentials: {refusal}"
        )
    mechanism = options.credentials.current(route.server_hostname)
    if mechanism is None:
        raise AuthenticationFailed(f"{route.name}: not connecting, the event loop has fetched no valid credentials")
    return mechanism


def _tls_failure(
    error: OSError, route: Route, options: ConnectionOptions, connection: BlockingConnection | None
) -> KafkaError | None:
    """Return what a failure of the handshake means by TLS. ``connection``: None until the TLS handshake was over."""
    if options.tls is None:
        return None
    return options.tls.failure(error, route.name, route.server_hostname, established=connection is not None)
