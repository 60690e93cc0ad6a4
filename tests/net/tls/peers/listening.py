"""A blocking listener on loopback that stands for a broker: a thread serves each connection by the same script."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Script = Callable[[socket.socket], None]

_SECONDS = 20.0


class Listener:
    """The address of a listener, and what its script has noted."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.names: list[str | None] = []


@contextmanager
def listening(script: Script, host: str = "127.0.0.1") -> Iterator[Listener]:
    """Run ``script`` for each connection, each in a thread. An error of a script ends its connection."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        threads: list[threading.Thread] = []
        accepting = threading.Thread(target=_accept, args=(server, script, threads), daemon=True)
        accepting.start()
        try:
            yield Listener(host, server.getsockname()[1])
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *threads):
                thread.join(_SECONDS)
                assert not thread.is_alive()


def _accept(server: socket.socket, script: Script, threads: list[threading.Thread]) -> None:
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        thread = threading.Thread(target=_serve, args=(peer, script), daemon=True)
        threads.append(thread)
        thread.start()


def _serve(peer: socket.socket, script: Script) -> None:
    peer.settimeout(_SECONDS)
    with peer, suppress(OSError):
        script(peer)


def tls(context: ssl.SSLContext, names: list[str | None] | None = None) -> Script:
    """Speak TLS, then send back whatever comes. ``names`` gets the SNI of each client."""
    if names is not None:
        context.sni_callback = lambda connection, name, _: names.append(name)

    def script(peer: socket.socket) -> None:
        secure = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
        with secure:
            try:
                secure.do_handshake()
                while data := secure.recv(65_536):
                    secure.sendall(data)
            except ssl.SSLError:
                # A socket that is closed with unread bytes is reset, and the client may lose the alert.
                while socket.socket.recv(secure, 65_536):
                    pass

    return script


def tls_in_single_bytes(context: ssl.SSLContext, *, cut_after: int | None = None) -> Script:
    """Answer like ``tls``, with a TLS record for each byte. With ``cut_after``, end TLS in good order after so many
    bytes.
    """

    def script(peer: socket.socket) -> None:
        with context.wrap_socket(peer, server_side=True) as secure:
            data = secure.recv(65_536)
            for at in range(len(data) if cut_after is None else cut_after):
                secure.sendall(data[at : at + 1])
            if cut_after is not None:
                secure.unwrap()
            while secure.recv(65_536):
                pass

    return script


def says(answer: bytes, *, then_reads: bool = True) -> Script:
    """Answer the first bytes with ``answer``."""

    def script(peer: socket.socket) -> None:
        peer.recv(65_536)
        peer.sendall(answer)
        peer.shutdown(socket.SHUT_WR)
        while then_reads and peer.recv(65_536):
            pass

    return script


def resets(peer: socket.socket) -> None:
    """Close with bytes unread, as a broker does that takes a ClientHello for a frame that is too long."""
    peer.recv(1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def stays_silent(peer: socket.socket) -> None:
    """Read, and send nothing."""
    while peer.recv(65_536):
        pass
