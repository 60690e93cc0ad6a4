"""HandshakeOrder: few TLS handshakes at a time, and none waits long for brokers that are far away, silent or dead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import pytest

from aiokc.config import ClientConfig
from aiokc.errors import ConnectionFailed
from aiokc.net.connect import connect
from aiokc.net.handshake_order import HandshakeOrder, handshake_order
from aiokc.net.tls.contexts import TlsContexts
from aiokc.testing import Certificates
from aiokc.testing.virtual.loop import VirtualLoop

from ..scripted import dead_port, options

MOST: Final = 4
SHARE: Final = 0.02


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop(Random(1))
    try:
        loop.run_until_complete(main())
        assert loop.errors == []
    finally:
        loop.end()


def begun(takes: list[float]) -> list[float]:
    """Return when each handshake began, in virtual seconds. All are asked for at once; number n lasts ``takes[n]``."""
    found: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        order, since = HandshakeOrder(), loop.time()

        async def shake_hands(seconds: float) -> None:
            async with order.handshake():
                found.append(loop.time() - since)
                await asyncio.sleep(seconds)

        await asyncio.gather(*map(shake_hands, takes))

    in_virtual_time(main)
    return found


def test_the_first_few_begin_at_once_and_each_other_when_one_has_ended() -> None:
    takes = [0.004, 0.003, 0.002, 0.001, 0.010, 0.010]
    assert begun(takes) == pytest.approx([0.0] * MOST + [0.001, 0.002], abs=1e-4)


def test_those_that_take_long_delay_the_others_by_a_share_each() -> None:
    """Brokers that are far away, silent, or drop all packets: four of them would else hold up all connections."""
    begins = begun([60.0] * 12)
    assert begins[:MOST] == pytest.approx([0.0] * MOST, abs=1e-4)
    assert begins[MOST:] == pytest.approx([SHARE * number for number in range(1, 9)], abs=1e-3)


def test_one_that_took_too_long_does_not_count_any_more() -> None:
    begins = begun([60.0] * MOST + [0.001] * 3)
    assert begins[MOST:] == pytest.approx([SHARE, SHARE + 0.001, SHARE + 0.002], abs=1e-3)


@pytest.mark.parametrize("ending", range(1, MOST + 1))
def test_those_that_end_just_when_a_share_is_over_make_room_by_that(ending: int) -> None:
    """The share's timer has cancelled the wait by then. So none of the others loses its share, and none is missing."""
    begins = begun([SHARE] * ending + [60.0] * (MOST - ending) + [60.0] * (ending + 1))
    assert begins[MOST:] == pytest.approx([SHARE] * ending + [2 * SHARE], abs=1e-3)


async def test_while_the_loop_is_busy_the_next_one_waits_for_a_few_shares() -> None:
    """Else the answers to many handshakes come together, and one iteration of the loop looks at all of them."""
    loop = asyncio.get_running_loop()
    order, rounds, ends = HandshakeOrder(), 0, asyncio.Event()

    def hold() -> None:
        nonlocal rounds
        if not ends.is_set():
            rounds += 1
            time.sleep(SHARE + 0.01)
            loop.call_soon(hold)

    async def never_over() -> None:
        async with order.handshake():
            await ends.wait()

    under_way = [asyncio.ensure_future(never_over()) for _ in range(MOST)]
    await asyncio.sleep(0)
    hold()
    async with asyncio.timeout(20), order.handshake():
        ends.set()
    await asyncio.gather(*under_way)
    assert rounds >= 5, "each of five shares ends at least one round of the loop later"


def test_one_cancelled_in_line_or_under_way_holds_up_no_other() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        order, since = HandshakeOrder(), loop.time()

        async def shake_hands() -> None:
            async with order.handshake():
                await loop.create_future()

        tasks = [loop.create_task(shake_hands()) for _ in range(MOST + 2)]
        await asyncio.sleep(0)
        for task in tasks[::-1]:
            task.cancel()
        await asyncio.wait(tasks)
        for _ in range(2):
            async with order.handshake():
                assert loop.time() - since < SHARE / 2

    in_virtual_time(main)


async def test_each_loop_has_an_order_of_its_own() -> None:
    async def order() -> HandshakeOrder:
        return handshake_order()

    mine = handshake_order()
    assert handshake_order() is mine
    assert await asyncio.to_thread(asyncio.run, order()) is not mine


@pytest.mark.any_loop
async def test_connections_over_tls_take_their_turn_which_costs_them_no_time() -> None:
    """Nobody answers at the port: it takes no time to hear of that, and less than the turn took."""
    port, asked = dead_port(), 0
    tls = TlsContexts(ClientConfig(ssl_truststore_certificates=Certificates().ca_pem))

    class Slow(HandshakeOrder):
        @asynccontextmanager
        async def handshake(self) -> AsyncIterator[None]:
            nonlocal asked
            asked += 1
            await asyncio.sleep(1.6)
            async with super().handshake():
                yield

    order = handshake_order()
    order.__class__ = Slow
    for given, turns in (({}, 0), ({"tls": tls}, 1)):
        with pytest.raises(ConnectionFailed, match="cannot connect"):
            await connect("broker 1", ("127.0.0.1", port), options(**given), timeout=1.5)
        assert asked == turns
    tls.close()
