"""``Stage``: runs a scenario: consumers and a cluster in one loop with virtual time, and all events in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Self, TypeAlias

from aiokc import Consumer, RawRecords, RebalanceListener, TopicPartition
from aiokc.client.aio.signal import Signal
from aiokc.errors import KafkaError
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.virtual.loop import VirtualLoop
from tests.client.virtually import seeded_clients

#: Virtual seconds after which a wait fails: longer than any timeout of the client. An hour takes a fraction of a real
#: second.
NEVER = 3_600.0

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))

Scenario: TypeAlias = "Callable[[Stage], Coroutine[Any, Any, None]]"


def scenario(**cluster: Any) -> Callable[[Scenario], Callable[[], None]]:
    """Make a test of a scenario, which gets a stage of its own; the keywords are those of its Cluster.

    The test also fails for errors that the scenario does not see: in the cluster, or in a callback of the loop.
    """

    def decorate(story: Scenario) -> Callable[[], None]:
        def test() -> None:
            play(story, **cluster)

        test.__name__ = test.__qualname__ = story.__name__
        test.__doc__, test.__module__ = story.__doc__, story.__module__
        return test

    return decorate


def play(story: Scenario, **cluster: Any) -> None:
    """Run a scenario once. Every run of it is the same: the clients' random choices are those of a seed, too."""
    loop = VirtualLoop(Random(1))

    async def happen() -> None:
        async with Cluster(**{"topics": {"t": 2}, "random": Random(2), **cluster}) as running:
            await story(Stage(running, loop))

    try:
        with seeded_clients():
            loop.run_until_complete(happen())
        assert loop.errors == []
    finally:
        loop.end()


@dataclass(frozen=True)
class Event:
    """A request (``what`` is its name, ``content`` the request) or a callback of a member (the partitions)."""

    when: float
    who: str
    what: str
    content: Any


class Stage:
    """A cluster, the consumers that this stage has made, and all events in order.

    ``in_flight`` counts the Fetch requests that each broker has not answered, ``most_in_flight`` is its maximum.
    """

    def __init__(self, cluster: Cluster, loop: VirtualLoop) -> None:
        self.cluster = cluster
        self.loop = loop
        self.events: list[Event] = []
        self.changed = Signal()
        self.owners: dict[TopicPartition, str] = {}
        self.in_flight: dict[int, int] = {}
        self.most_in_flight = 0
        serve = cluster._serve

        async def noted(exchange: Exchange) -> None:
            what = type(exchange.request).__name__.removesuffix("Request")
            self.note(exchange.client_id, what, exchange.request)
            if what != "Fetch":
                await serve(exchange)
                return
            self.in_flight[exchange.broker] = self.in_flight.get(exchange.broker, 0) + 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight[exchange.broker])
            try:
                await serve(exchange)
            finally:
                self.in_flight[exchange.broker] -= 1

        for broker in cluster._brokers.values():
            broker.serve = noted

    def note(self, who: str, what: str, content: Any) -> None:
        self.events.append(Event(self.loop.time(), who, what, content))
        self.changed.notify()

    def of(self, who: str, *whats: str, since: int = 0) -> list[Any]:
        """Return the contents of one client's or member's events, in order; ``since`` is an earlier ``len(events)``."""
        return [event.content for event in self.events[since:] if event.who == who and event.what in whats]

    def names(self, who: str, *whats: str, since: int = 0) -> list[str]:
        """Return the names of the same events."""
        return [event.what for event in self.events[since:] if event.who == who and event.what in whats]

    def times(self, who: str, *whats: str, since: int = 0) -> list[float]:
        """Return the times of the same events."""
        return [event.when for event in self.events[since:] if event.who == who and event.what in whats]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when ``condition`` holds. It is checked after every event, and whenever a member has read records."""
        async with asyncio.timeout(NEVER):
            while not condition():
                await self.changed.wait()

    def consumer(self, *topics: Any, **options: Any) -> Consumer[Any, Any]:
        """Return a consumer with default options, except for auto_offset_reset (earliest) and auto-commit (off)."""
        return Consumer(*topics, **self._options(**options))

    def member(self, name: str, *topics: Any, group: str | None = "g", **options: Any) -> Member:
        """Return a member of a group whose client id is its name."""
        return Member(self, name, topics or ("t",), self._options(client_id=name, group_id=group, **options))

    def _options(self, **options: Any) -> dict[str, Any]:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        return {"bootstrap_servers": self.cluster.bootstrap, **settings, **options}


class Member(RebalanceListener):
    """A consumer that records its listener's callbacks. Between ``reads()`` and ``rests()`` it reads all the time.

    ``read`` has the partition and offset of each record that it got, in order. ``errors`` has what getmany() raised.
    """

    def __init__(self, stage: Stage, name: str, topics: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        self.stage = stage
        self.name = name
        self.consumer = Consumer(*topics, listener=self, **options)
        self.owned: frozenset[TopicPartition] = frozenset()
        self.read: list[tuple[TopicPartition, int]] = []
        self.values: list[bytes | None] = []
        self.errors: list[Exception] = []
        self.on_batch: Callable[[RawRecords], None] = lambda batch: None
        self.on_assigned: Callable[[frozenset[TopicPartition]], None] = lambda partitions: None
        self._runtime: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.consumer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.rests()
        await self.consumer.stop()

    # Callbacks

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._gives_up("revoked", partitions)

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._gives_up("lost", partitions)

    def _gives_up(self, what: str, partitions: frozenset[TopicPartition]) -> None:
        assert partitions <= self.owned
        self.owned -= partitions
        for tp in partitions:
            if self.stage.owners.get(tp) == self.name:
                del self.stage.owners[tp]
        self.stage.note(self.name, what, partitions)

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        assert not partitions & self.owned
        self.owned |= partitions
        for tp in partitions:
            assert tp not in self.stage.owners, f"{tp} still belongs to {self.stage.owners[tp]}"
            self.stage.owners[tp] = self.name
        self.stage.note(self.name, "assigned", partitions)
        self.on_assigned(partitions)

    @property
    def told(self) -> list[str]:
        """The names of its callbacks, in order."""
        return self.stage.names(self.name, "assigned", "revoked", "lost")

    @property
    def generation(self) -> int:
        return self.consumer.health().generation

    @property
    def member_id(self) -> str:
        return self.consumer.health().member_id

    # What the scenario's application does

    def reads(self, until: int | None = None) -> Self:
        """Call getmany() again and again, or until it has ``until`` records; then it holds the last batch."""
        assert self._runtime is None or self._runtime.done()
        self._runtime = self.stage.loop.create_task(self._read(until))
        return self

    async def rests(self) -> None:
        """Stop calling getmany()."""
        reading, self._runtime = self._runtime, None
        if reading is None:
            return
        reading.cancel()
        try:
            await reading
        except asyncio.CancelledError:
            return

    async def _read(self, until: int | None) -> None:
        while until is None or len(self.read) < until:
            try:
                batch = await self.consumer.getmany()
            except KafkaError as error:
                self.errors.append(error)
                self.stage.changed.notify()
                return
            self.took(batch)

    def took(self, batch: RawRecords) -> None:
        self.read += [(tp, record.offset) for tp, records in batch.items() for record in records]
        self.values += [record.value for records in batch.values() for record in records]
        self.on_batch(batch)
        if batch:
            self.stage.note(self.name, "read", batch)

    async def has(self, count: int) -> None:
        """Return when it owns ``count`` partitions."""
        await self.stage.until(lambda: len(self.owned) == count)

    async def has_read(self, count: int) -> None:
        """Return when it has read ``count`` records."""
        await self.stage.until(lambda: len(self.read) >= count)
