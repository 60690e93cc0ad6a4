from __future__ import annotations

import pytest

from aiokc.errors import ConnectionFailed
from aiokc.net.tls.server_name import server_name


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("b-1.kafka.example", "b-1.kafka.example"),
        ("b-1.kafka.example.", "b-1.kafka.example"),
        ("Broker.Example", "Broker.Example"),
        ("broker_1", "broker_1"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("a" * 63 + ".b", "a" * 63 + ".b"),
        (".".join(["a" * 49] * 5) + ".abc", ".".join(["a" * 49] * 5) + ".abc"),
    ],
)
def test_a_name_that_a_certificate_can_be_for(host: str, name: str) -> None:
    assert server_name(host) == name


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("", "it is empty"),
        (".", "it is empty"),
        ("..", "an empty part"),
        ("a..b", "an empty part"),
        (".a", "an empty part"),
        ("a..", "an empty part"),
        ("a" * 64, "longer than 63"),
        ("a." + "b" * 64 + ".c", "longer than 63"),
        (".".join(["a" * 49] * 5) + ".abcd", "longer than 253"),
        ("a b", "characters"),
        ("*.example", "characters"),
        ("[::1]", "characters"),
        ("fe80::1%", "characters"),
        ("a\0b", "characters"),
        ("a/b", "characters"),
        ("bücher..example", "ASCII"),
        ("ü" * 300, "ASCII"),
        ("\udc80", "ASCII"),
    ],
)
def test_a_name_that_no_certificate_can_be_for(host: str, why: str) -> None:
    with pytest.raises(ConnectionFailed, match=why) as caught:
        server_name(host)
    assert "advertised.listeners" in str(caught.value)
    assert len(str(caught.value)) < 400
