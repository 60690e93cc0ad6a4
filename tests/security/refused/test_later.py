"""What brokers refuse to a member that reads already: its login, and its group while a handler blocks the event loop.

The brokers are a real one, and those of the cluster in Python.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthenticationFailed, AuthorizationFailed, KafkaError

from ..actors.counting_proxy import CountingProxy
from ..actors.members import SECONDS, committed, read
from ..actors.places import Place, place

__all__ = ["place"]

pytestmark = [pytest.mark.every_kafka, pytest.mark.timeout(60)]


async def read_after(refusals: type[KafkaError], consumer: Consumer[Any, Any], count: int) -> list[bytes | None]:
    """Read on; ignore what is refused until the brokers know of a change."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return await read(consumer, count)
            except refusals:
                pass


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


def allowed(place: Place, topic: str) -> Place:
    place.new_topic(topic)
    place.grant("TOPIC", topic)
    return place


@pytest.mark.any_loop(uvloop="long")
async def test_a_password_that_is_changed_while_a_member_reads(place: Place, topic_name: str) -> None:
    """The connections that are there go on. Without them, the next call raises; with the right password all goes on."""
    allowed(place, topic_name).grant("GROUP", topic_name)
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


async def test_a_group_that_is_forbidden_while_a_handler_blocks_the_loop(place: Place, topic_name: str) -> None:
    """The watchdog's heartbeat is refused, over its blocking socket. The application is told by its next call."""
    allowed(place, topic_name)
    # The consumer has a loop of its own, which it blocks.
    await asyncio.to_thread(asyncio.run, _read_and_block(place, topic_name))


async def _read_and_block(place: Place, topic: str) -> None:
    right = place.grant("GROUP", topic)
    times = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200}
    async with Consumer(topic, **place.options(group_id=topic, **times)) as consumer:
        assert await read(consumer, 2) == [b"0", b"1"]
        await consumer.commit()
        place.revoke(right)
        time.sleep(1.5)  # noqa: ASYNC251  (this is the handler)
        with pytest.raises(AuthorizationFailed) as raised:
            await read(consumer, 1)
        assert raised.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert topic in str(raised.value)
        place.grant("GROUP", topic)
        place.produce(topic, b"2")
        assert await read_after(AuthorizationFailed, consumer, 1) == [b"2"]
