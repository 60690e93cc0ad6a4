"""kafka-python's sockets: one that it drops is closed, and warns nobody."""

from __future__ import annotations

import os
import socket
import warnings

import pytest

from .kafka_python import kafka

_LOCAL = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)


def test_a_dropped_socket_is_closed() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dropped = kafka.net.inet.KafkaNetSocket().socket(*_LOCAL)
        descriptor = dropped.fileno()
        os.fstat(descriptor)
        del dropped
    assert said == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
