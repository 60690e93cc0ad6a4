"""``ReservedPort``: a TCP port that the system chooses for nobody else, whether or not its server listens."""

from __future__ import annotations

import socket
import sys


class ReservedPort:
    """A TCP port of an address of this machine, which the system chooses for nobody else until `release`.

    The socket is bound and never listens. A broker may listen on the port, again and again (SO_REUSEADDR, which Java
    and asyncio set), but neither bind(0) nor connect() picks it. Without the reservation another process may get the
    port while the broker is down: clients are then connected to a stranger, or, where a client itself got it as the
    source port of a connection to the dead broker, to themselves. The broker cannot start again. Who asks for the port
    by its number, and sets SO_REUSEADDR, gets it while no one listens there.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Reserve this port, or with 0 one that the system chooses. Raises OSError where somebody listens there.

        ``host`` may be "": all addresses.
        """
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        self._socket = socket.socket(family, kind, protocol)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            raise OSError(
                error.errno, f"port {port} of {host or 'all addresses'} cannot be had: {error.strerror}"
            ) from error
        self.number: int = self._socket.getsockname()[1]
        if not sys.platform.startswith("linux"):  # on other systems the bound socket would block the broker too
            self._socket.close()

    def release(self) -> None:
        self._socket.close()
