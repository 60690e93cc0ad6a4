"""From a name to the addresses to try."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from typing import TypeAlias

from ..config import Resolve
from ..errors import ConnectionFailed

Address: TypeAlias = tuple[str, int]


def address_text(host: str, port: int) -> str:
    """Return "host:port", an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def resolved(host: str, port: int, resolve: Resolve | None) -> Sequence[Address]:
    """Return the addresses of ``host``, in the order in which to try them, each once; at least one.

    ``resolve`` takes the place of DNS. Raises ConnectionFailed where there is no address.
    """
    name = address_text(host, port)
    if resolve is not None:
        try:
            answer = await resolve(host, port)
        except Exception as error:  # a function of the user: whatever it raises, this address cannot be used now
            raise ConnectionFailed(f"{name}: the configured resolve() raised {error!r}") from error
        found = [(str(address[0]), int(address[1])) for address in answer]
    elif not 0 < port < 65_536:
        raise ConnectionFailed(f"{name}: {port} is no port; look at the broker's advertised.listeners")
    elif _is_numeric(host):
        return [(host, port)]
    else:
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:  # UnicodeError, for a name with an empty label say, is no OSError
            why = (error.strerror if isinstance(error, OSError) else None) or error
            raise ConnectionFailed(f"{name}: the name cannot be resolved ({why})") from error
        found = [(str(info[4][0]), port) for info in infos]
    if not found:
        raise ConnectionFailed(f"{name}: the name resolves to no address")
    return list(dict.fromkeys(found))


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
