"""The watchdog's connections over a blocking socket, with what the event loop has got ready for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.client.group import watchdog
from aiokc.config import ConsumerConfig
from aiokc.errors import KafkaError
from aiokc.net.blocking import BlockingConnection
from aiokc.net.options import ConnectionOptions, Route
from aiokc.net.pool import Pool
from aiokc.wire.messages.discovery import MetadataRequest

from .held import Held

SECONDS = 20.0
# A session timeout of a group: with the longer one, the watchdog has 8 s to connect.
SESSIONS_SECONDS = (3.0, 12.0)


@pytest.fixture
def patient_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the watchdog wait longer for a connection: a busy machine needs more than its second for a TLS handshake."""
    monkeypatch.setattr(watchdog, "_LEAST_PATIENCE", 10.0)


async def within_a_session(block: Callable[[float], Awaitable[None]], bootstrap: str | None = None) -> None:
    """Let a member ``block`` its loop for longer than these seconds, its session timeout, and stay in its group.

    The watchdog of a busy machine may be too late with its first heartbeat: then another member has a longer session.
    ``bootstrap``: that of ``Held``.
    """
    *short, longest = SESSIONS_SECONDS
    for seconds in short:
        try:
            with Held(bootstrap) as held:
                return await block(seconds)
        except (AssertionError, KafkaError):
            if held.longest < 0.1 * seconds:
                raise
    await block(longest)


class Connecting:
    """Opens such connections, when it is called. `options` has the TLS contexts and the credentials of the client."""

    def __init__(self, route: Route, options: ConnectionOptions) -> None:
        self._route = route
        self.options = options

    async def __call__(self) -> BlockingConnection:
        return await asyncio.to_thread(BlockingConnection.open, self._route, self.options, timeout=10)


@asynccontextmanager
async def of_the_watchdog(**options: Any) -> AsyncIterator[Connecting]:
    """Return what opens such a connection to the only bootstrap server, as the client with these options has it.

    It has the TLS context and the credentials that the event loop had last.
    """
    config = ConsumerConfig(**options)
    pool = Pool(config, random=Random(0))
    try:
        ((host, port),) = config.addresses
        address = ("127.0.0.1", port)
        if config.resolve is not None:
            ((name, port),) = await config.resolve(host, port)
            address = (name, port)
        route = Route(str(config.bootstrap_servers), address, host)
        if pool.options.tls is not None:
            await pool.options.tls.get()
        if pool.options.credentials is not None:
            await pool.options.credentials.login(host)
        yield Connecting(route, pool.options)
    finally:
        await pool.aclose()


async def ask(connection: BlockingConnection) -> int:
    """Return the number of brokers, as the connection's broker tells it."""
    found = await asyncio.to_thread(
        connection.request, MetadataRequest, lambda _: MetadataRequest(topics=[]), timeout=10
    )
    return len(found.brokers)


def block_until_heard(consumer: Consumer[Any, Any], kind: type[object]) -> None:
    """Block the event loop, as a handler may, until the watchdog has got such an answer to one of its heartbeats."""
    membership = consumer._runtime.membership
    assert membership is not None
    heard = membership._driver._watchdog._heard
    assert not heard, "of the time before"
    end = time.monotonic() + SECONDS
    while not any(isinstance(event, kind) for event in list(heard)):
        assert time.monotonic() < end, (
            f"no {kind.__name__} came, only {[type(event).__name__ for event in list(heard)]}"
        )
        time.sleep(0.01)
