"""virtually(): a test's consumers and its cluster run in one loop with virtual time, and their requests are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire import Request

#: What draws the jitter of its pauses from a Random of its own.
_CLIENTS = (
    "aiokc.client.client.Random",
    "aiokc.client.consumer.consumer.Random",
    "aiokc.client.producer.producer.Random",
)


@contextmanager
def seeded_clients() -> Iterator[None]:
    """Let the random choices of all clients that are made within be those of a seed."""
    seeds = Random(3)  # two clients of one seed would draw the same member id
    with ExitStack() as seeded:
        for client in _CLIENTS:
            seeded.enter_context(patch(client, lambda: Random(seeds.random())))
        yield


def virtually(story: Callable[[Cluster], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run ``story`` beside a cluster of its own. Fail also for errors that only the loop's exception handler saw.

    Every run is the same: the clients' random choices are those of a seed, too. Else a request would now and then be
    under way just when a deadline passes, and "maybe" be the truth where a test expects "no".
    """
    loop = VirtualLoop(Random(1))

    async def happen() -> None:
        async with Cluster(**{"brokers": 3, "topics": {"t": 2}, "random": Random(2), **options}) as cluster:
            await story(cluster)

    try:
        with seeded_clients():
            loop.run_until_complete(happen())
        assert loop.errors == []
    finally:
        loop.end()


def on_a_virtual_clock(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``story`` in virtual time, without a cluster. Fail also for errors that only the exception handler saw."""
    loop = VirtualLoop(Random(1))
    try:
        loop.run_until_complete(story())
        assert loop.errors == []
    finally:
        loop.end()


def port_of(cluster: Cluster, node_id: int) -> int:
    """Return the port at which this broker listens."""
    return int(cluster.bootstrap.split(",")[node_id - 1].rpartition(":")[2])


class Asked:
    """All requests of clients to a cluster, with their times, and all attempts to connect, successful or not."""

    def __init__(self, cluster: Cluster, loop: VirtualLoop) -> None:
        self.log: list[tuple[float, str, Any]] = []
        self._loop = loop
        serve, connect = cluster._serve, loop.network.connect

        async def noted_serve(exchange: Exchange) -> None:
            self.log.append((loop.time(), type(exchange.request).__name__, exchange.request))
            await serve(exchange)

        async def noted_connect(factory: Callable[[], Any], host: str, port: int) -> Any:
            self.log.append((loop.time(), "connect", port))
            return await connect(factory, host, port)

        for broker in cluster._brokers.values():
            broker.serve = noted_serve
        loop.network.connect = noted_connect  # type: ignore[method-assign]

    def of(self, kind: type[Request[Any]]) -> list[tuple[float, Any]]:
        """Return the requests of a kind, with their times."""
        return [(when, request) for when, _, request in self.log if isinstance(request, kind)]

    def since(self, start: float) -> Counter[str]:
        """Return how many requests of each kind there were since then."""
        return Counter(kind for when, kind, _ in self.log if when >= start)

    def requests_per_second(self, start: float) -> list[int]:
        """Return how many requests there were in each second from then on."""
        return self._per_second(start, [when for when, kind, _ in self.log if kind != "connect"])

    def connects_per_second(self, start: float) -> dict[int, list[int]]:
        """Return, for each port, how many attempts to connect there were in each second from then on."""
        connects = [(when, port) for when, kind, port in self.log if kind == "connect"]
        return {
            wanted: self._per_second(start, [when for when, port in connects if port == wanted])
            for wanted in {port for _, port in connects}
        }

    def _per_second(self, start: float, times: list[float]) -> list[int]:
        counts = [0] * (int(self._loop.time() - start) + 1)
        for when in times:
            if when >= start:
                counts[int(when - start)] += 1
        return counts
