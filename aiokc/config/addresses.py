"""bootstrap_servers: the addresses that lead to a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..errors import ConfigError

_DEFAULT_PORT: Final = 9092


def parse_addresses(servers: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return (host, port) of each bootstrap server; IPv6 hosts stand in brackets. Raises ConfigError."""
    entries = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = tuple(_parse_address(entry.strip()) for entry in entries if entry.strip())
    if not addresses:
        raise ConfigError("bootstrap_servers names no server; give 'host:port'")
    return addresses


def _parse_address(entry: str) -> tuple[str, int]:
    if "://" in entry:
        raise ConfigError(f"bootstrap_servers entry {entry!r} is a URL; give 'host:port'")
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        colon, port = rest[:1], rest[1:]
    elif entry.count(":") > 1:
        raise ConfigError(f"bootstrap_servers entry {entry!r}: write an IPv6 address in brackets, '[::1]:9092'")
    else:
        host, colon, port = entry.partition(":")
    number = _DEFAULT_PORT if not colon else int(port) if port.isascii() and port.isdigit() else 0
    if not host or not 0 < number < 65_536:
        raise ConfigError(f"bootstrap_servers entry {entry!r} is not 'host:port'")
    return host, number
