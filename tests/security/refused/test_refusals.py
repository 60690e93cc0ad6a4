"""What a client raises where a broker refuses it: on asyncio, on uvloop, and on the watchdog's blocking socket.

The broker is a real one, and one of the cluster in Python, which has to refuse in the same way.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.config import ConsumerConfig
from aiokc.errors import KafkaError

from ..actors.clock import clock_of_clients
from ..actors.starts import raised_by_start
from ..actors.watchdog import ask, of_the_watchdog
from ..secure_cluster import brokers, certificates, tokens
from ..ways import Brokers
from .refusals import REFUSALS, Refusal

__all__ = ["brokers", "certificates", "tokens"]

pytestmark = [pytest.mark.every_kafka, pytest.mark.timeout(60)]

AT_ONCE_SECONDS = 40.0  # where the timeout is much longer

each_refusal = pytest.mark.parametrize("refusal", [refusal.parameter() for refusal in REFUSALS])


@pytest.mark.any_loop
@each_refusal
async def test_what_start_raises(brokers: Brokers, refusal: Refusal) -> None:
    config = ConsumerConfig(**refusal.options(brokers))

    def make() -> Consumer:
        with clock_of_clients(-refusal.behind):
            return Consumer(config=config)

    if refusal.at_once:
        begun = time.monotonic()
        consumer = make()
        with pytest.raises(refusal.error, match=refusal.text) as raised:
            await consumer.start(timeout_ms=60_000)
        await consumer.stop()
        assert time.monotonic() - begun < AT_ONCE_SECONDS
        error: KafkaError = raised.value
    else:
        error = await raised_by_start(make, refusal.error, refusal.text)
    named = config.bootstrap_servers if refusal.asks else "the token provider"
    assert str(named) in str(error)


@each_refusal
async def test_what_the_watchdogs_connection_raises(brokers: Brokers, refusal: Refusal) -> None:
    with clock_of_clients(-refusal.behind), pytest.raises(refusal.error, match=refusal.text):
        await _ask_once(refusal.options(brokers))


async def _ask_once(options: dict[str, Any]) -> None:
    async with of_the_watchdog(**options) as connect:
        connection = await connect()
        try:
            await ask(connection)
        finally:
            connection.close()
