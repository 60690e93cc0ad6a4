"""Connecting to a broker by name: tries the addresses of the name, each with its share of the timeout."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

from ..errors import (
    AuthenticationFailed,
    CertificateRefused,
    ConfigError,
    ConnectionFailed,
    KafkaError,
    UnsupportedVersion,
)
from ..types import address_text
from .addresses import Address, TriedAddresses, resolved
from .connection import Connection
from .handshake_order import handshake_limit, handshake_order
from .login.reauthentication import Start, no_owner
from .options import ConnectionOptions

logger = logging.getLogger("aiokc.net")

# A third of the time is enough for a broker that answers. A hundred addresses with a hundredth each would all fail.
_LEAST_SHARE: Final = 1 / 3
_NOTHING_LEFT: Final = 1 / 100  # of the time
_MOST_TOLD: Final = 3


async def connect(
    name: str,
    address: Address,
    options: ConnectionOptions,
    *,
    timeout: float,
    first: Address | None = None,
    tried: TriedAddresses | None = None,
    on_closed: Callable[[Connection], None] | None = None,
    start: Start = no_owner,
) -> Connection:
    """Return a connection that is ready for requests, to ``address`` as the broker ``name`` advertises it.

    ``first`` is the address to begin with where the name still has it, since it worked before: one that is silent takes
    its whole share of the time, for each connection that begins with it. ``tried`` are those of attempts before, which
    come last.

    Raises ConnectionFailed after ``timeout`` seconds, up to a third later if the name's addresses were found late, or
    sooner if all of them have failed; its message has the errors of some.
    Raises MalformedResponse if the only address does not speak Kafka's protocol.
    Raises AuthenticationFailed, UnsupportedVersion or ConfigError (the package for Kerberos is missing, say) at once:
    another address of the same broker would answer the same, or would not even be asked.
    A certificate that is refused may be another one there (CertificateRefused). The time in which the TLS context is
    built and the credentials are fetched does not count, nor does a wait for other handshakes. See ``Connection.open``.
    """
    loop = asyncio.get_running_loop()
    host = address[0]
    if options.tls is not None:
        host = options.tls.server_name(host)
        await options.tls.get()
    deadline = loop.time() + timeout
    found = await _looked_up(name, address, options, timeout)
    # The name may have come late, or after the deadline where something has held the loop.
    deadline = max(deadline, loop.time() + timeout * _LEAST_SHARE)
    failures: list[KafkaError] = []
    tried = tried or TriedAddresses()
    untried = tried.order(found, first)
    while untried and (not failures or deadline - loop.time() > timeout * _NOTHING_LEFT):
        target, mechanism = untried[0], None
        tried.trying(target)
        if options.credentials is not None:
            asked_at = loop.time()
            mechanism = await options.credentials.login(host)
            deadline += loop.time() - asked_at
        where = name if address_text(*target) in name else f"{name} at {address_text(*target)}"
        asked_at = loop.time()
        try:
            async with _turn(options):
                deadline += loop.time() - asked_at
                left = deadline - loop.time()
                connection = await Connection.open(
                    where,
                    target,
                    options,
                    timeout=max(left / len(untried), min(left, timeout * _LEAST_SHARE)),
                    server_hostname=host,
                    mechanism=mechanism,
                    on_closed=on_closed,
                    start=start,
                )
        except (AuthenticationFailed, ConfigError, UnsupportedVersion) as error:
            if not isinstance(error, CertificateRefused):
                raise
            failures.append(error)
        except KafkaError as error:
            failures.append(error)
        else:
            if failures:
                logger.info("connected to %s, but: %s", where, _told(failures))
            return connection
        untried = untried[1:]
    raise _why_none(failures, len(untried))


async def _looked_up(name: str, address: Address, options: ConnectionOptions, timeout: float) -> Sequence[Address]:
    try:
        async with handshake_limit(timeout, lambda: 0):
            return await resolved(*address, options.resolve)
    except TimeoutError as error:
        raise ConnectionFailed(f"{name}: the name was not resolved within {timeout:.3g} s") from error


def _why_none(failures: list[KafkaError], untried: int) -> KafkaError:
    """Return the error of a name of which no address could be connected to."""
    refused = [error for error in failures if isinstance(error, CertificateRefused)]
    if refused or (len(failures) == 1 and not untried):
        return (refused or failures)[0]
    more = f"; no time was left for {untried} more addresses" if untried else ""
    error = ConnectionFailed(_told(failures) + more)
    error.__cause__ = failures[-1]
    return error


def _told(failures: list[KafkaError]) -> str:
    more = f"; and {len(failures) - _MOST_TOLD} more" if len(failures) > _MOST_TOLD else ""
    return "; ".join(map(str, failures[:_MOST_TOLD])) + more


def _turn(options: ConnectionOptions) -> AbstractAsyncContextManager[None]:
    return nullcontext() if options.tls is None else handshake_order().handshake()
