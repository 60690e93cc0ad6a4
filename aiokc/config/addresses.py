"""bootstrap_servers: the addresses that lead to a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..errors import ConfigError

_DEFAULT_PORT: Final = 9092
_MOST_SHOWN: Final = 100  # characters
_MOST_DIGITS: Final = 5  # of a port; int() refuses thousands of them


def parse_addresses(servers: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return (host, port) of each bootstrap server; IPv6 hosts stand in brackets. Raises ConfigError."""
    text = ",".join([servers] if isinstance(servers, str) else servers)  # as Java joins a list
    if "@" in text:  # nothing is shown: of user:pass,word@host, the first entry looks like a host with a port
        raise ConfigError(
            "bootstrap_servers has an entry with '@': give 'host:port'; there are options for credentials"
        )
    entries = text.split(",")
    addresses = tuple(_parse_address(entry.strip()) for entry in entries if entry.strip())
    if not addresses:
        raise ConfigError("bootstrap_servers names no server; give 'host:port'")
    return addresses


def _parse_address(entry: str) -> tuple[str, int]:
    what = f"bootstrap_servers entry {entry if len(entry) <= _MOST_SHOWN else entry[:_MOST_SHOWN] + '…'!r}"
    if "://" in entry:
        raise ConfigError(f"{what} is a URL; give 'host:port'")
    if entry.startswith("["):
        host, bracket, rest = entry[1:].partition("]")
        if not bracket or rest[:1] not in ("", ":"):
            raise ConfigError(f"{what}: write an IPv6 address in brackets, '[::1]:9092'")
        colon, port = rest[:1], rest[1:]
    elif entry.count(":") > 1:
        raise ConfigError(f"{what}: write an IPv6 address in brackets, '[::1]:9092'")
    else:
        host, colon, port = entry.partition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= _MOST_DIGITS
    number = _DEFAULT_PORT if not colon else int(port) if is_number else 0
    if not host or not 0 < number < 65_536:
        raise ConfigError(f"{what} is not 'host:port'")
    if not host.isprintable() or " " in host:  # bytes that are no UTF-8 are surrogates here: not printable
        raise ConfigError(
            f"{what}: no host has such a name: it has a blank, a control character or what is no UTF-8 text"
        )
    return host, number
