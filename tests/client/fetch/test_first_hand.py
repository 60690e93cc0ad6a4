"""What a waiting call has asked for is in the application's hand before the callback returns that reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.net.transport import FrameTransport
from aiokc.testing import Cluster
from aiokc.wire.messages.fetch import FetchRequest

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)

KIB = 1 << 10


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the transports of all clients do: "read" and "has read" around a callback, "write" for each request."""
    noted: list[str] = []
    read: Callable[..., None] = FrameTransport.buffer_updated
    write: Callable[..., None] = FrameTransport.write

    def buffer_updated(self: FrameTransport, nbytes: int) -> None:
        noted.append("read")
        read(self, nbytes)
        noted.append("has read")

    def written(self: FrameTransport, frame: Any) -> None:
        noted.append("write")
        write(self, frame)

    monkeypatch.setattr(FrameTransport, "buffer_updated", buffer_updated)
    monkeypatch.setattr(FrameTransport, "write", written)
    return noted


def reading(steps: list[str], value: bytes, call: Callable[[Any], Any]) -> list[str]:
    """Return what happens from the answer to a parked Fetch on, which brings one record to a call that waits."""
    found: list[str] = []

    async def story(cluster: Cluster) -> None:
        fetches = cluster.intercept(FetchRequest, lambda exchange: None)
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("t", 0)])
        async with consumer, asyncio.timeout(30):

            async def application() -> None:
                while not found:
                    await call(consumer)
                    steps.append("in hand")
                    asyncio.get_running_loop().call_later(1e-6, lambda: found.extend(steps))
                    await asyncio.sleep(1)

            task = asyncio.create_task(application())
            await asyncio.sleep(10)  # by now a Fetch is parked
            assert fetches.hits
            steps.clear()
            cluster.append("t", value)
            await task

    virtually(story, brokers=1, topics={"t": 1})
    return found


CALLS: dict[str, Callable[[Any], Any]] = {
    "getmany": lambda consumer: consumer.getmany(),
    "getone": lambda consumer: consumer.getone(),
    "iterator": anext,
    "getmany_columns": lambda consumer: consumer.getmany_columns(),
}


@pytest.mark.parametrize("call", CALLS)
def test_little_is_in_hand_before_the_next_fetch_is_sent_in_the_same_callback(steps: list[str], call: str) -> None:
    assert reading(steps, b"value", CALLS[call])[:4] == ["read", "in hand", "write", "has read"]


@pytest.mark.parametrize("call", CALLS)
def test_much_is_in_hand_behind_the_next_fetch_in_the_same_callback(steps: list[str], call: str) -> None:
    found = reading(steps, bytes(24 * KIB), CALLS[call])
    at = found.index("write")
    assert found[at : at + 3] == ["write", "in hand", "has read"]
