"""One connection to one broker over a blocking socket, for a thread without an event loop (the watchdog thread)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..core.connection.handshake import handshake
from ..core.connection.in_flight import InFlightRequests, api_name
from ..core.sasl.mechanism import Work
from ..errors import ConnectionFailed, KafkaError, MalformedResponse, RequestTimedOut
from ..wire import Request, Response, decode
from .connection import SOFTWARE, ConnectionOptions, Route

R = TypeVar("R", bound=Response)

_LENGTH_BYTES = 4


class BlockingConnection:
    """Sends one request at a time and reads its reply. Belongs to one thread; each socket operation has a timeout.

    After an error the connection is closed, and stays closed. Create it with ``open``.
    """

    def __init__(self, name: str, sock: socket.socket, options: ConnectionOptions) -> None:
        self.name = name
        self._socket = sock
        self._options = options
        self._pipeline: InFlightRequests[None] = InFlightRequests(name, options.client_id)

    @classmethod
    def open(cls, route: Route, options: ConnectionOptions, *, timeout: float) -> BlockingConnection:
        """Connect to the address that the event loop connected to, and return once the handshake is over.

        Raises ConnectionFailed, RequestTimedOut after ``timeout`` seconds, MalformedResponse, AuthenticationFailed.
        """
        deadline = time.monotonic() + timeout
        try:
            plain = socket.create_connection(route.address, timeout=timeout)
        except OSError as error:
            raise ConnectionFailed(f"{route.name}: cannot connect ({error.strerror or error})") from error
        sock = plain
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if options.ssl is not None:
                plain.settimeout(_left(deadline))
                sock = options.ssl.wrap_socket(plain, server_hostname=route.server_hostname)
            connection = cls(route.name, sock, options)
            connection._greet(deadline)
        except TimeoutError as error:
            sock.close()
            raise RequestTimedOut(f"{route.name}: no handshake within {timeout:.3g} s") from error
        except OSError as error:
            sock.close()
            if isinstance(error, KafkaError):
                raise
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

    def close(self) -> None:
        """End the connection now."""
        self._socket.close()

    def _greet(self, deadline: float) -> None:
        software, version = SOFTWARE
        dialogue = handshake(
            broker=self.name,
            software_name=software,
            software_version=version,
            mechanism=self._options.sasl,
            clock=time.monotonic,
        )
        try:
            step = next(dialogue)
            while True:
                if isinstance(step, Work):
                    step = dialogue.send(step.function())
                else:
                    step = dialogue.send(self._exchange(step.request, step.version, deadline))
        except StopIteration as end:
            self._pipeline.versions = end.value.versions

    def _exchange(self, request: Request[Any], version: int, deadline: float) -> memoryview:
        _, frame = self._pipeline.send(request, version, None)
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(frame)
        length = int.from_bytes(self._receive(_LENGTH_BYTES, deadline), "big", signed=True)
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
                raise ConnectionFailed(f"{self.name} closed the connection")
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
