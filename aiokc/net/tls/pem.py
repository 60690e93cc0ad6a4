"""PEM (RFC 7468): certificates and private keys in one text, in any order, also on one line as Kafka's options."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...errors import ConfigError
from ...secret import Secret
from .der import is_whole_sequence

_BEGIN: Final = b"-----BEGIN "
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,64})-----(.*?)-----END \1-----", re.DOTALL)
_CERTIFICATES: Final = ("CERTIFICATE", "X509 CERTIFICATE")
_ENCRYPTED: Final = "ENCRYPTED PRIVATE KEY"
_KEY: Final = "PRIVATE KEY"
_LINE: Final = 64


class PrivateKey(NamedTuple):
    """A private key as PEM text."""

    text: Secret
    is_encrypted: bool


class Pem(NamedTuple):
    """What a PEM text holds: certificates in DER, and private keys."""

    certificates: Sequence[bytes]
    keys: Sequence[PrivateKey]
    others: Sequence[str]


def is_pem(data: bytes) -> bool:
    """Whether ``data`` holds PEM, maybe with other text before it, as openssl writes it."""
    return _BEGIN in data


def parse(data: bytes, where: str) -> Pem:
    """Return what the PEM text ``data`` holds; ``where`` names it in messages, which never quote it.

    Raises ConfigError for a text that is cut off or damaged: a file that another program is writing just now.
    """
    certificates, keys, others = list[bytes](), list[PrivateKey](), list[str]()
    blocks = _BLOCK.findall(data)
    if len(blocks) != data.count(_BEGIN):
        raise ConfigError(f"{where}: a '-----BEGIN' without its '-----END': the text is cut off or damaged")
    for number, (name, body) in enumerate(blocks, 1):
        label = name.decode("ascii")
        if label in _CERTIFICATES:
            certificates.append(_certificate(body, f"{where}: PEM block {number} ({label})"))
        elif label.endswith(_KEY):
            keys.append(_private_key(label, body, f"{where}: PEM block {number} ({label})"))
        else:
            others.append(label)
    return Pem(certificates, keys, others)


def text_of(label: str, der: bytes) -> str:
    """Return DER as a PEM text."""
    base64 = b64encode(der).decode("ascii")
    lines = [base64[at : at + _LINE] for at in range(0, len(base64), _LINE)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def _certificate(body: bytes, where: str) -> bytes:
    der = _decoded(body, where)
    if not is_whole_sequence(der):
        raise ConfigError(f"{where} is cut off or damaged")
    return der


def _private_key(label: str, body: bytes, where: str) -> PrivateKey:
    if b":" in body:  # headers (RFC 1421) say how an old key is encrypted; they need their lines
        text = f"-----BEGIN {label}-----{body.decode('ascii', 'replace')}-----END {label}-----\n"
        return PrivateKey(Secret(text), b"ENCRYPTED" in body)
    return PrivateKey(Secret(text_of(label, _decoded(body, where))), label == _ENCRYPTED)


def _decoded(body: bytes, where: str) -> bytes:
    try:
        der = b64decode(b"".join(body.split()), validate=True)
    except ValueError:
        der = b""
    if not der:
        # Without the error as a cause: its frames have the key.
        raise ConfigError(
            f"{where} is not base64: the text is cut off or damaged, or has \\n as two characters in it"
        ) from None
    return der
