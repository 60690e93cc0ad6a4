"""The name that a broker's certificate must be for, checked before the client connects."""

from __future__ import annotations

import encodings.idna  # noqa: F401 (ssl encodes each server_hostname by it, and would import it in the event loop)
import ipaddress
import re
from typing import Final

from ...errors import ConnectionFailed, shown

# RFC 952 has no underscore in host names; networks of containers are full of them, and resolvers take them.
_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")
_LONGEST_NAME: Final = 253


def server_name(host: str) -> str:
    """Return the name to verify a certificate by, and to send as SNI, for the broker at ``host``.

    That is ``host`` without a trailing dot, in ASCII; of an IPv6 address the zone is left out. An address is checked
    against the certificate's IP addresses, and not sent as SNI (RFC 6066).

    Raises ConnectionFailed for a host that no certificate can be for. With an empty name, ssl would connect *without*
    checking the name; with an empty or long label it would raise UnicodeError, which is no OSError.
    """
    name = host.removesuffix(".")  # Java's TLS refuses a trailing dot in SNI
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        pass
    else:
        return str(address).partition("%")[0]
    labels = _ascii(name, host).split(".")
    for label in labels:
        if not label:
            raise _illegal(host, "it is empty" if not name else "it has an empty part")
        if len(label) > 63:
            raise _illegal(host, "a part between its dots is longer than 63 characters")
        if not _LABEL.fullmatch(label):
            raise _illegal(host, "it has characters that no host name has")
    found = ".".join(labels)
    if len(found) > _LONGEST_NAME:
        raise _illegal(host, f"it is longer than {_LONGEST_NAME} characters")
    return found


def _ascii(name: str, host: str) -> str:
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise _illegal(host, f"it can't be written in ASCII ({error})") from error


def _illegal(host: str, why: str) -> ConnectionFailed:
    text = shown(host)
    text = text if len(text) <= 100 else f"{text[:100]}..."
    return ConnectionFailed(
        f"the host {text} can have no certificate: {why}; look at bootstrap_servers, and at the broker's "
        "advertised.listeners"
    )
