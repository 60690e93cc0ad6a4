"""Connecting to a broker by name: tries every address of the name, each with its share of the timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..errors import AuthenticationFailed, ConnectionFailed, KafkaError, UnsupportedVersion
from .addresses import Address, address_text, resolved
from .connection import Connection, ConnectionOptions


async def connect(
    name: str,
    address: Address,
    options: ConnectionOptions,
    *,
    timeout: float,
    on_closed: Callable[[Connection], None] | None = None,
) -> Connection:
    """Return a connection that is ready for requests, to ``address`` as the broker ``name`` advertises it.

    Raises ConnectionFailed after ``timeout`` seconds, or sooner if all addresses of the host have failed; its message
    has the error of each address. Raises MalformedResponse if the only address does not speak Kafka's protocol.
    Raises AuthenticationFailed or UnsupportedVersion at once: another address of the same broker would answer the same.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    try:
        async with asyncio.timeout_at(deadline):
            found = await resolved(*address, options.resolve)
    except TimeoutError as error:
        raise ConnectionFailed(f"{name}: the name was not resolved within {timeout:.3g} s") from error
    failures: list[KafkaError] = []
    for index, target in enumerate(found):
        share = (deadline - loop.time()) / (len(found) - index)
        where = name if address_text(*target) in name else f"{name} at {address_text(*target)}"
        try:
            return await Connection.open(
                where, target, options, timeout=share, server_hostname=address[0], on_closed=on_closed
            )
        except (AuthenticationFailed, UnsupportedVersion):
            raise
        except KafkaError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    raise ConnectionFailed("; ".join(map(str, failures))) from failures[-1]
