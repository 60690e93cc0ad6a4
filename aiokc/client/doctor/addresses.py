"""Looks up a broker's name, and tries to connect to each of its addresses."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from ...core.doctor.reaching import (
    Attempt,
    Endpoint,
    Outcome,
    impossible_host,
    outcome_of,
    resolved_finding,
    slow_name,
    tcp_findings,
    unresolved,
)
from ...core.doctor.report import Finding, Verdict
from ...errors import ConfigError, ConnectionFailed
from ...net.addresses import Address, create_connection, resolved
from ...net.user_errors import cancellation_is_ours
from .kit import Kit, together

#: So many addresses of a name are tried.
_MOST_ADDRESSES: Final = 8


async def look_up(kit: Kit, endpoint: Endpoint) -> tuple[list[Address], Finding]:
    """Return the addresses of an endpoint, in the order in which the client tries them, and the finding about them."""
    if (impossible := impossible_host(endpoint)) is not None:
        return [], impossible
    by_option = kit.config.resolve is not None
    patience, started = kit.patience(), kit.now()
    try:
        async with asyncio.timeout(patience):
            found = await resolved(endpoint.host, endpoint.port, kit.config.resolve)
    except TimeoutError:
        return [], slow_name(endpoint, patience)
    except (ConnectionFailed, ConfigError) as error:
        cause = error.__cause__
        why = getattr(cause, "strerror", None) or str(error).removeprefix(f"{endpoint.address}: ")
        return [], unresolved(endpoint, why, kit.now() - started, by_option=by_option)
    addresses = list(found[:_MOST_ADDRESSES])
    shown = [host for host, _ in addresses]
    return addresses, resolved_finding(endpoint, shown, kit.now() - started, by_option=by_option)


async def try_addresses(kit: Kit, endpoint: Endpoint, addresses: list[Address]) -> tuple[list[Address], list[Finding]]:
    """Return the addresses that accept a connection, and a finding about each."""
    attempts = await together([partial(_attempt, kit, address) for address in addresses])
    reached = [address for address, one in zip(addresses, attempts, strict=True) if one.outcome is Outcome.CONNECTED]
    found = tcp_findings(endpoint, attempts)
    # What keeps the client from all addresses comes first: the others are notes.
    return reached, sorted(found, key=lambda one: one.verdict is not Verdict.PROBLEM)


async def _attempt(kit: Kit, address: Address) -> Attempt:
    patience, started = kit.patience(), kit.now()
    outcome, said = Outcome.CONNECTED, ""
    try:
        async with asyncio.timeout(patience):
            transport = await create_connection(asyncio.Protocol, address)
            transport.abort()
    except OSError as error:
        outcome, said = outcome_of(error), error.strerror or str(error)
    except (ValueError, RuntimeError, asyncio.CancelledError) as error:
        # As in net.connect: names that no resolver takes, and loops of other kinds.
        if isinstance(error, asyncio.CancelledError) and cancellation_is_ours():
            raise
        outcome, said = Outcome.FAILED, str(error)
    return Attempt(*address, outcome, kit.now() - started, said)
