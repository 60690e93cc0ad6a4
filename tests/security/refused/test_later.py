"""What brokers refuse to a member that reads already: its login.

The brokers are a real one, and those of the cluster in Python.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.errors import AuthenticationFailed

from ..actors.counting_proxy import CountingProxy
from ..actors.members import committed, read, read_after
from ..actors.places import Place, place

__all__ = ["place"]

pytestmark = [pytest.mark.every_kafka, pytest.mark.timeout(60)]


async def no_hammering(consumer: Consumer[Any, Any], proxy: CountingProxy) -> None:
    """Poll for a while: each attempt raises once, and the pauses between them grow from a second on."""
    loop = asyncio.get_running_loop()
    await consumer.getmany(timeout_ms=200)  # in the first pause; the proxy has counted all attempts before it by then
    opened, begun, raised = proxy.opened, loop.time(), 0
    while (passed := loop.time() - begun) < 1.5:
        try:
            await consumer.getmany(timeout_ms=100)
        except AuthenticationFailed:
            raised += 1
    attempts = proxy.opened - opened
    assert raised <= attempts + 1
    assert attempts <= 1 + passed / 0.8


@pytest.mark.any_loop(uvloop="long")
async def test_a_password_that_is_changed_while_a_member_reads(place: Place, topic_name: str) -> None:
    """The connections that are there go on. Without them, the next call raises; with the right password all goes on."""
    place.new_topic(topic_name)
    place.grant("TOPIC", topic_name)
    place.grant("GROUP", topic_name)
    options = place.options(group_id=topic_name)
    with CountingProxy(str(options["bootstrap_servers"])) as proxy:
        async with Consumer(topic_name, **options, resolve=proxy.resolve) as consumer:
            assert await read(consumer, 2) == [b"0", b"1"]
            place.set_password("another")
            try:
                place.produce(topic_name, b"2")
                assert await read(consumer, 1) == [b"2"]
                proxy.drop()
                with pytest.raises(AuthenticationFailed, match=r"refused user 'bob' \(SCRAM-SHA-\d+\)"):
                    await read(consumer, 1)
                await no_hammering(consumer, proxy)
            finally:
                place.set_password(None)
            place.produce(topic_name, b"3")
            assert await read_after(AuthenticationFailed, consumer, 1) == [b"3"]
            await consumer.commit()
            assert await committed(consumer, topic_name) == 4
