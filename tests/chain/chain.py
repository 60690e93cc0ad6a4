"""The chain: a writer, processes that copy in transactions, a reader, and the faults that befall them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from aiokc import TopicPartition
from aiokc.testing.kafka import LocalKafka
from tests.comparison.rows import read_by_confluent
from tests.written.open_transactions import open_transactions

from .ledger import Ledger, Row
from .moving_leaders import move_leaders
from .processes import WorkerProcess

PARTITIONS: Final = 4
_COPIERS: Final = 2
_WITHIN: Final = 200.0
_MARKERS_WITHIN: Final = 60.0
_FENCED: Final = "ProducerFenced"


class Place:
    """A role in the chain, and the process that has it at the moment. A fault that holds ``busy`` has it alone."""

    def __init__(self, name: str, process: WorkerProcess) -> None:
        self.name = name
        self.process = process
        self.busy = asyncio.Lock()


class Chain:
    """Numbers go into one topic, and from there, in transactions of several copiers, into another one."""

    def __init__(
        self,
        kafka: LocalKafka,
        name: str,
        protocol: dict[str, Any],
        random: Random,
        folder: Path,
        *,
        longest: float,
        other_copier: Path | None = None,
    ) -> None:
        """``longest``: for how many seconds something is paused or away at most.

        ``other_copier``: the program of another client that is the second copier.
        """
        self.kafka = kafka
        self.ledger = Ledger()
        self.topics = {f"{name}-in": PARTITIONS, f"{name}-out": PARTITIONS}
        self.source, self.target = self.topics
        #: What was done, and to whom; and why copiers have ended without having been told to.
        self.story: list[str] = []
        self.ended: list[str] = []
        self._protocol, self._random, self._folder = protocol, random, folder
        self._group = name
        self._longest = longest
        self._others: dict[str, Path] = {f"{name}-1": other_copier} if other_copier else {}
        self._lives = itertools.count()
        for topic, count in self.topics.items():
            kafka.create_topic(topic, count, 3, {"min.insync.replicas": "2"})
        self.writer = Place("writer", self._new_writer())
        self.copiers = [Place(f"{name}-{number}", self._new_copier(f"{name}-{number}")) for number in range(_COPIERS)]
        self.reader = Place("reader", self._new_reader())
        self._broker = asyncio.Lock()

    def _new(self, role: str, name: str, **given: Any) -> WorkerProcess:
        life = next(self._lives)
        given |= {"name": name, "bootstrap": self.kafka.bootstrap, "seed": self._random.random()}
        log = self._folder / f"{life:03d}-{role}.log"
        return WorkerProcess(role, given, self.ledger.hear, log, program=self._others.get(name))

    def _new_writer(self) -> WorkerProcess:
        return self._new("numbers", f"w{next(self._lives)}", topic=self.source, options={})

    def _new_copier(self, name: str) -> WorkerProcess:
        return self._new("copy", name, topic=self.source, target=self.target, group=self._group, options=self._protocol)

    def _new_reader(self) -> WorkerProcess:
        self.ledger.readings.append([])
        return self._new("read", "reader", topic=self.target, partitions=PARTITIONS)

    @property
    def read(self) -> int:
        """How many records the reader has seen in this life."""
        return len(self.ledger.readings[-1])

    async def start(self) -> None:
        """Return when the first records have come through."""
        for place in (self.writer, *self.copiers, self.reader):
            await place.process.start()
        await self._until_read(1)

    async def _until_read(self, count: int) -> None:
        async with asyncio.timeout(_WITHIN):
            while self.read < count:
                await self._replace_ended()
                await asyncio.sleep(0.05)

    async def _replace_ended(self) -> None:
        """Start a copier again that has ended by itself, as whatever runs it would."""
        for place in self.copiers:
            if not place.busy.locked() and place.process.has_ended:
                await place.process.kill()
                self.ended.append(f"{place.process.ended}")
                place.process = self._new_copier(place.name)
                await place.process.start()

    async def finish(self) -> None:
        """Let everything come through, end all processes, and note what the topics hold."""
        await self.writer.process.stop()
        self.ledger.inputs = await self._committed(self.source)
        await self._until_read(len(self.ledger.inputs))
        for place in (*self.copiers, self.reader):
            await place.process.stop()
        self.ledger.outputs = await self._committed(self.target)
        partitions = [TopicPartition(topic, number) for topic, count in self.topics.items() for number in range(count)]
        assert await self._left_open(partitions) == []

    async def _left_open(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """Return the transactions that are open. Those that only wait for their markers get some time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _MARKERS_WITHIN
        while True:
            left = await asyncio.to_thread(open_transactions, self.kafka.bootstrap, partitions, f"{self._group}-.*")
            if not left or any("Ongoing" in one for one in left) or loop.time() > deadline:
                return left
            await asyncio.sleep(0.5)

    async def _committed(self, topic: str) -> list[Row]:
        found = await asyncio.to_thread(
            read_by_confluent, self.kafka.bootstrap, {topic: self.topics[topic]}, "read_committed"
        )
        return [(row[0], row[1], (row[5] or b"").decode()) for row in found[topic]]

    async def close(self) -> None:
        """Kill what still runs."""
        for place in (self.writer, *self.copiers, self.reader):
            if place.process.running:
                await place.process.kill()

    # Faults: each undoes itself.

    async def suffer(self, faults: Sequence[str], random: Random, *, pause: float) -> None:
        """Have these faults happen, one ``pause`` at most after the other. Return when all are undone."""
        happening: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            for name in faults:
                await asyncio.sleep(random.uniform(0.0, pause))
                happening.add(group.create_task(getattr(self, name)(Random(random.random()))))
            while happening:
                _, happening = await asyncio.wait(happening, timeout=0.2)
                await self._replace_ended()

    def _time(self, random: Random) -> float:
        return random.uniform(0.2, self._longest)

    def _note(self, what: str) -> None:
        self.story.append(f"{asyncio.get_running_loop().time():.1f} {what}")

    async def copier_is_killed(self, random: Random) -> None:
        place = random.choice(self.copiers)
        async with place.busy:
            self._note(f"{place.name} is killed")
            await place.process.kill()
            await asyncio.sleep(random.choice([0.0, self._time(random)]))
            place.process = self._new_copier(place.name)
            await place.process.start()

    async def copier_is_replaced(self, random: Random) -> None:
        """It is paused, another process takes its transactional id, and it goes on: it must find that out."""
        place = random.choice(self.copiers)
        async with place.busy:
            zombie = place.process
            await zombie.is_ready.wait()
            if zombie.has_ended:
                return
            self._note(f"{place.name} is replaced")
            zombie.pause()
            place.process = self._new_copier(place.name)
            await place.process.start()
            await asyncio.sleep(self._time(random))
        zombie.resume()
        try:
            await zombie.ends()
            assert zombie.ended is not None, "a copier whose transactional id was taken over stopped as if all was well"
            assert zombie.ended.startswith(_FENCED), zombie.ended
        finally:
            await zombie.kill()

    async def copier_is_paused(self, random: Random) -> None:
        await self._is_paused(random.choice(self.copiers), self._time(random))

    async def copier_is_stopped(self, random: Random) -> None:
        place = random.choice(self.copiers)
        async with place.busy:
            if place.process.running:
                self._note(f"{place.name} is stopped")
                await place.process.stop()
            place.process = self._new_copier(place.name)
            await place.process.start()

    async def writer_is_killed(self, random: Random) -> None:
        async with self.writer.busy:
            self._note("the writer is killed")
            await self.writer.process.kill()
            await asyncio.sleep(self._time(random))
            self.writer.process = self._new_writer()
            await self.writer.process.start()

    async def writer_is_paused(self, random: Random) -> None:
        await self._is_paused(self.writer, self._time(random))

    async def reader_is_killed(self, random: Random) -> None:
        async with self.reader.busy:
            self._note("the reader is killed")
            await self.reader.process.kill()
            self.reader.process = self._new_reader()
            await self.reader.process.start()

    async def _is_paused(self, place: Place, seconds: float) -> None:
        async with place.busy:
            self._note(f"{place.name} is paused for {seconds:.1f} s")
            place.process.pause()
            await asyncio.sleep(seconds)
            place.process.resume()

    async def broker_is_killed(self, random: Random) -> None:
        async with self._broker:
            node = random.choice(self.kafka.nodes)
            self._note(f"{node.name} is killed")
            await asyncio.to_thread(node.kill)
            await asyncio.sleep(self._time(random))
            await asyncio.to_thread(self.kafka.heal)

    async def broker_is_restarted(self, random: Random) -> None:
        async with self._broker:
            node = random.choice(self.kafka.nodes)
            self._note(f"{node.name} is restarted")
            await asyncio.to_thread(node.terminate)
            await asyncio.to_thread(self.kafka.heal)

    async def broker_is_paused(self, random: Random) -> None:
        async with self._broker:
            node = random.choice(self.kafka.nodes)
            seconds = self._time(random)  # its session ends after 3
            self._note(f"{node.name} is paused for {seconds:.1f} s")
            node.pause()
            try:
                await asyncio.sleep(seconds)
            finally:
                node.resume()
            await asyncio.to_thread(self.kafka.heal)

    async def leaders_move(self, random: Random) -> None:
        """Each partition of the chain's topics, and of Kafka's own for groups and transactions, gets a new leader."""
        async with self._broker:
            self._note("leaders move")
            topics = [*self.topics, "__consumer_offsets", "__transaction_state"]
            await asyncio.to_thread(move_leaders, self.kafka, topics, random)
            await asyncio.to_thread(self.kafka.heal)


#: Every fault there is.
FAULTS: Final = (
    "copier_is_killed",
    "copier_is_replaced",
    "copier_is_paused",
    "copier_is_stopped",
    "writer_is_killed",
    "writer_is_paused",
    "reader_is_killed",
    "broker_is_killed",
    "broker_is_restarted",
    "broker_is_paused",
    "leaders_move",
)
