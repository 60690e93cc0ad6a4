"""Two members of one group read a topic while it is being written; a Client watches the group from outside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from events import Production

from aiokc import LATEST, Client, Consumer, TopicPartition

LOOK_SECONDS = 0.5
# Handling takes time on purpose, as a call to a database would, so that one member cannot keep up and two can.
HANDLING_SECONDS = 0.08
RECORDS_PER_CALL = 100


class Receipt(NamedTuple):
    """A ride that a member received, and where it lay."""

    ride_id: str
    partition: int
    offset: int


@dataclass
class Member:
    """A member of the group, and what it has handled and committed."""

    name: str
    assignment: tuple[int, ...] = ()
    received: list[Receipt] = field(default_factory=list)

    async def read(self, bootstrap: str, topic: str, group: str, *, done: asyncio.Event) -> None:
        """Read, handle and commit until ``done``."""
        async with Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            while not done.is_set():
                batch = await consumer.getmany(timeout_ms=250, max_records=RECORDS_PER_CALL)
                self.assignment = tuple(sorted(tp.partition for tp in consumer.assignment()))
                if not batch:
                    continue
                await asyncio.sleep(HANDLING_SECONDS)
                for tp, records in batch.items():
                    for record in records:
                        ride = json.loads(record.value or b"")
                        self.received.append(Receipt(ride["id"], tp.partition, record.offset))
                await consumer.commit()
        self.assignment = ()


class MemberState(NamedTuple):
    """One member at one moment; ``lag`` is what its partitions hold beyond the group's committed offsets."""

    name: str
    assignment: tuple[int, ...]
    received: int
    per_second: float
    lag: int


class Glance(NamedTuple):
    """The whole group at one moment."""

    seconds: float
    written: int
    members: tuple[MemberState, ...]
    lag: int


@dataclass
class Demonstration:
    """Producing, and the group: the second member joins once the first one has received ``join_after`` rides."""

    bootstrap: str
    topic: str
    group: str
    partitions: int
    production: Production
    join_after: int
    show: Callable[[Glance], None]
    members: tuple[Member, Member] = field(default_factory=lambda: (Member("member 1"), Member("member 2")))
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    lag: int = 0
    _enough_for_two: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, *, timeout: float) -> None:
        """Return when everything is written, handled and committed. Raises TimeoutError after ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._run()
        except TimeoutError as error:
            raise TimeoutError(f"the group was not done after {timeout:g} s, and its lag was {self.lag:,}") from error

    async def _run(self) -> None:
        done = asyncio.Event()
        first, second = self.members
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(done))
                tasks.create_task(first.read(self.bootstrap, self.topic, self.group, done=done))
                tasks.create_task(asyncio.to_thread(self.production.run))
                await self._enough_for_two.wait()
                tasks.create_task(second.read(self.bootstrap, self.topic, self.group, done=done))
        finally:
            self.production.stop()

    async def _watch(self, done: asyncio.Event) -> None:
        """Compare, twice a second, what is written with what the group has committed."""
        partitions = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        loop = asyncio.get_running_loop()
        started = before = loop.time()
        counts = [0] * len(self.members)
        async with Client(bootstrap_servers=self.bootstrap) as client:
            while not done.is_set():
                finished = self.production.finished  # asked first: nothing can be written after the ends are known
                self.ends, committed = await _ends_and_committed(client, self.group, partitions)
                lags = {tp.partition: end - committed[tp] for tp, end in self.ends.items()}
                self.lag = sum(lags.values())
                now = loop.time()
                seconds, before = max(now - before, 0.001), now
                states = self._states(counts, seconds, lags)
                counts = [state.received for state in states]
                self.show(Glance(now - started, self.production.written, states, self.lag))
                if counts[0] >= self.join_after:
                    self._enough_for_two.set()
                if finished and not self.lag:
                    done.set()
                else:
                    await asyncio.sleep(LOOK_SECONDS)

    def _states(self, counts: Sequence[int], seconds: float, lags: dict[int, int]) -> tuple[MemberState, ...]:
        return tuple(
            MemberState(
                member.name,
                member.assignment,
                len(member.received),
                (len(member.received) - count) / seconds,
                sum(lags[partition] for partition in member.assignment),
            )
            for member, count in zip(self.members, counts, strict=True)
        )


async def _ends_and_committed(
    client: Client, group: str, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    found = await client.list_offsets(dict.fromkeys(partitions, LATEST))
    committed = await client.committed(group, partitions)
    ends = {tp: end.offset for tp, end in found.items()}
    return ends, {tp: 0 if offset is None else offset.offset for tp, offset in committed.items()}
