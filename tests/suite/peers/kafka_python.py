"""kafka-python as the tests use it: imported without its warnings, and none of its sockets warns that it is unclosed.

A client of kafka-python that is closed while it connects to a broker drops that connection's socket. The garbage
collector finds the socket, maybe minutes later, and pytest would call the test that then runs a failure.
"""

from __future__ import annotations

import socket
import warnings
from typing import Any

with warnings.catch_warnings():  # it reads its schemas in a way that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.net.inet import KafkaNetSocket

__all__ = ["kafka"]


class _ClosedWhenDropped(socket.socket):
    def __del__(self) -> None:
        self.close()


def _socket(_self: object, *kind: Any) -> socket.socket:
    return _ClosedWhenDropped(*kind)


KafkaNetSocket.socket = _socket
