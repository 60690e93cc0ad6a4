"""PEM in every shape that files and options have it in. Truncated or damaged PEM is refused, and never quoted."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable

import pytest

from aiokc.errors import ConfigError
from aiokc.net.tls.pem import parse, text_of

from . import certificates as made

WHERE = "ssl_keystore_location='client.pem'"


def text() -> bytes:
    return made.identity_pem(made.client())


def of(data: bytes) -> tuple[list[bytes], list[str]]:
    found = parse(data, WHERE)
    return list(found.certificates), [key.text.reveal() for key in found.keys]


@pytest.mark.parametrize(
    "shape",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"\n", b" "),
        lambda data: data.replace(b"\n", b""),
        lambda data: b"Bag Attributes\n    friendlyName: b\xfccher\n" + data + b"\nend",
        lambda data: b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" + data,
        lambda data: data.replace(b"BEGIN CERT", b"BEGIN X509 CERT").replace(b"END CERT", b"END X509 CERT"),
    ],
)
def test_shapes(shape: Callable[[bytes], bytes]) -> None:
    assert of(shape(text())) == of(text())


def test_certificates_and_keys_in_any_order() -> None:
    key, chain = made.key_pem(made.client()), made.chain_pem(made.client())
    assert of(chain + key) == of(key + chain) == (of(chain)[0], of(key)[1])
    assert len(of(chain)[0]) == 1


@pytest.mark.parametrize("encrypted", [made.encrypted_key_pem, made.old_encrypted_key_pem])
def test_encrypted_keys_are_known(encrypted: Callable[..., bytes]) -> None:
    assert [key.is_encrypted for key in parse(encrypted(made.client()), WHERE).keys] == [True]
    assert [key.is_encrypted for key in parse(made.key_pem(made.client()), WHERE).keys] == [False]


def test_a_file_that_is_being_written_is_refused_or_ends_with_a_whole_block() -> None:
    """Also where another program overwrites it in place: then it is truncated anywhere."""
    data = text() + made.chain_pem(made.server("localhost"))
    whole = {0, *(match.end() for match in re.finditer(rb"-----END [A-Z ]+-----", data))}
    for end in range(len(data)):
        try:
            found = parse(data[:end], WHERE)
        except ConfigError:
            continue
        last = data[:end].rfind(b"-----END")
        begun = data[:end].count(b"-----BEGIN ")
        assert len(found.certificates) + len(found.keys) == begun
        assert begun == 0 or end >= min(stop for stop in whole if stop > last)


def key() -> bytes:
    return made.key_pem(made.client())


def chain() -> bytes:
    return made.chain_pem(made.client())


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (lambda: key()[:100], "'-----BEGIN' without its '-----END'"),
        (lambda: chain()[:-10], "'-----BEGIN' without its '-----END'"),
        (lambda: chain() + chain()[:100], "'-----BEGIN' without its '-----END'"),
        (lambda: key().replace(b"\n", b"\\n"), r"block 1 \(.*KEY\) is not base64: .* or has \\n as two characters"),
        (lambda: key().replace(b"M", b"!"), "block 1 .* is not base64"),
        (lambda: re.sub(rb"\n[A-Za-z0-9+/]{64}\n", b"\n", chain(), count=1), r"block 1 \(CERTIFICATE\) is cut off"),
        (lambda: b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----", "block 1 .* is not base64"),
        (lambda: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "block 1 .* is cut off or damaged"),
        (lambda: text_of("CERTIFICATE", b"\x30\x01ab").encode(), "block 1 .* is cut off or damaged"),
        (lambda: text_of("CERTIFICATE", b"\x31\x01a").encode(), "block 1 .* is cut off or damaged"),
    ],
)
def test_damaged_text_is_refused_and_never_quoted(damaged: Callable[[], bytes], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        parse(damaged(), WHERE)
    assert str(caught.value).startswith(WHERE)
    told = "".join(traceback.format_exception(caught.value))
    assert all(line not in told for line in text().decode().splitlines() if not line.startswith("-----"))
