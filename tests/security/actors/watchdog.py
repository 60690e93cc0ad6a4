"""The watchdog's connections over a blocking socket, with what the event loop has got ready for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from aiokc.config import ConsumerConfig
from aiokc.net.blocking import BlockingConnection
from aiokc.net.options import Route
from aiokc.net.pool import Pool
from aiokc.wire.messages.discovery import MetadataRequest


@asynccontextmanager
async def of_the_watchdog(**options: Any) -> AsyncIterator[Callable[[], Awaitable[BlockingConnection]]]:
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
        yield lambda: asyncio.to_thread(BlockingConnection.open, route, pool.options, timeout=10)
    finally:
        await pool.aclose()


async def ask(connection: BlockingConnection) -> int:
    """Return the number of brokers, as the connection's broker tells it."""
    found = await asyncio.to_thread(
        connection.request, MetadataRequest, lambda _: MetadataRequest(topics=[]), timeout=10
    )
    return len(found.brokers)
