"""Worlds of TransactionalLoops: workers copy a topic to another, amid faults, and each record arrives exactly once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from aiokc import Consumer, ConsumerRecords, Producer, TopicPartition, TransactionalLoop
from aiokc.errors import KafkaError
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import BusyLoop, NothingLeft, TooLate, VirtualLoop
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.produce import ProduceRequest

from ..checking.checker import Anomaly
from ..checking.history import Crashed, CutShort, Failure, History
from ..worlds.determinism import determined
from ..worlds.faults import Nemesis
from ..worlds.plan import FAULTS, GROUP_FAULTS, FaultPlan
from ..worlds.world import quiet
from ..worlds.wrong_leaders import naming_wrong_leaders, with_wrong_leaders
from .application import EPOCH
from .faults import PRODUCE_APPLY, TRANSACTION_APIS
from .observing import hosts_apart
from .plan import TRANSACTION_FAULTS
from .world import committed_values

_KINDS: Final = (*FAULTS, *GROUP_FAULTS, *TRANSACTION_FAULTS, "produce error", "refused after append", "lose produce")
_CATCH_UP_SECONDS: Final = 150.0
_GROUP: Final = "g"


@dataclass(frozen=True)
class WorkerPlan:
    """One worker: a consumer and a producer on a host of their own."""

    name: str
    starts: float
    lasts: float | None
    end: str
    seed: int
    max_records: int
    cancels: float  # the share of runs of its loop that are cancelled
    raises: float  # the share of batches at which its function raises
    work: float  # seconds for a batch


@dataclass(frozen=True)
class LoopPlan:
    """One world of workers."""

    seed: int
    seconds: float
    brokers: int
    partitions: int
    records: int
    transaction_version: int
    protocol: str
    workers: tuple[WorkerPlan, ...]
    faults: tuple[FaultPlan, ...]

    @property
    def text(self) -> str:
        """The plan as text for people."""
        return "\n  ".join(map(str, (replace(self, workers=(), faults=()), *self.workers, *self.faults)))


def draw(seed: int) -> LoopPlan:
    """Draw a world."""
    random = Random(f"{seed} loops")
    seconds = random.uniform(10, 25)
    kinds = random.sample(_KINDS, random.randint(1, 5))
    faults = [
        FaultPlan(random.uniform(0, seconds), random.choice(kinds), random.uniform(0.05, 5.0), random.getrandbits(32))
        for _ in range(random.randint(0, 10))
    ]
    plan = LoopPlan(
        seed=seed,
        seconds=seconds,
        brokers=random.choice((1, 3)),
        partitions=random.randint(1, 4),
        records=random.randint(20, 120),
        transaction_version=random.choice((0, 1, 2, 2)),
        protocol=random.choice(("classic", "consumer")),
        workers=tuple(_worker(random, f"w{number}", seconds) for number in range(random.randint(1, 3))),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )
    return with_wrong_leaders(plan)


def _worker(random: Random, name: str, seconds: float) -> WorkerPlan:
    return WorkerPlan(
        name=name,
        starts=random.choice((0.0, random.uniform(0, seconds * 0.7))),
        lasts=random.choice((None, random.uniform(1, seconds))),
        end=random.choice(("stop", "crash", "vanish")),
        seed=random.getrandbits(32),
        max_records=random.choice((1, 5, 100)),
        cancels=random.choice((0.0, 0.5)),
        raises=random.choice((0.0, 0.1)),
        work=random.choice((0.0, 0.05)),
    )


class _Moody(Exception):
    """The function of the application has raised."""


class LoopWorld:
    """One world while it runs: the topic "in" gets values, the workers copy them to "out", partition by partition."""

    def __init__(self, plan: LoopPlan, loop: VirtualLoop, history: History) -> None:
        self._plan, self._loop, self._history = plan, loop, history
        self._frozen: set[str] = set()
        self._crashed: set[str] = set()
        self._running: dict[str, asyncio.Future[None]] = {}  # by worker: what tells it to stop
        self._values: dict[int, list[bytes]] = {index: [] for index in range(plan.partitions)}
        self._cluster = Cluster(
            brokers=plan.brokers,
            topics={"in": plan.partitions, "out": plan.partitions},
            random=Random(plan.seed + 2),
            clock=lambda: EPOCH + loop.time(),
            features={"transaction.version": plan.transaction_version},
            group_consumer_heartbeat_interval_ms=500,
            group_consumer_session_timeout_ms=6_000,
        )

    async def happen(self) -> None:
        """Run the whole world, from the start of the brokers to their end."""
        plan, loop, topics = self._plan, self._loop, {"in": self._plan.partitions, "out": self._plan.partitions}
        async with self._cluster:
            nemesis = Nemesis(
                self._cluster,
                loop,
                self._history,
                topics,
                self._hosts,
                group=True,
                has_consumer_groups=plan.protocol == "consumer",
                more={**PRODUCE_APPLY, "wrong leader": naming_wrong_leaders(FetchRequest, ProduceRequest)},
            )
            nemesis.frozen = self._frozen
            nemesis.apis = (*nemesis.apis, *TRANSACTION_APIS)
            lives = [loop.create_task(self._life(worker)) for worker in plan.workers]
            troubles = [loop.create_task(nemesis.inflict(fault)) for fault in plan.faults]
            await self._write(Random(plan.seed))
            for trouble in troubles:
                trouble.cancel()
            await asyncio.wait([loop.create_task(nemesis.heal()), *troubles])
            calm = WorkerPlan("last", 0.0, None, "stop", plan.seed, 100, 0.0, 0.0, 0.0)
            lives.append(loop.create_task(self._life(calm)))
            await self._catch_up()
            for leaving in self._running.values():
                if not leaving.done():
                    leaving.set_result(None)
            await asyncio.wait(lives, timeout=60.0)
            self._look()

    def _hosts(self) -> list[str]:
        return [name for name in self._running if name not in self._crashed]

    async def _write(self, random: Random) -> None:
        """Append the values at random times, until the end of the faults."""
        moments = sorted(random.uniform(0, self._plan.seconds) for _ in range(self._plan.records))
        start = self._loop.time()
        for number, moment in enumerate(moments):
            await asyncio.sleep(start + moment - self._loop.time())
            index = random.randrange(self._plan.partitions)
            value = b"%d/%d" % (index, number)
            self._values[index].append(value)
            self._cluster.append("in", value, partition=index)
        await asyncio.sleep(start + self._plan.seconds - self._loop.time())

    async def _life(self, plan: WorkerPlan) -> None:
        await asyncio.sleep(plan.starts)
        loop, leaving = self._loop, self._loop.create_future()
        self._running[plan.name] = leaving
        living = loop.spawn_on(plan.name, self._live(plan, leaving))
        await asyncio.wait((living,), timeout=plan.lasts)
        if plan.lasts is not None and plan.end != "stop" and not living.done():
            self._history.add(Crashed(plan.name))
            self._crashed.add(plan.name)
            self._frozen.discard(plan.name)
            loop.freeze(plan.name)
            loop.network.forsake(plan.name, silently=plan.end == "vanish")
            return
        if plan.lasts is not None and not leaving.done():
            leaving.set_result(None)
        await living

    async def _live(self, plan: WorkerPlan, leaving: asyncio.Future[None]) -> None:
        """Run loops, one after the other: a worker that has failed begins anew."""
        while not leaving.done():
            try:
                await self._work(plan, leaving)
            except KafkaError as error:
                self._history.about(plan.name, f"begins anew after {error!r}")
                await asyncio.wait((leaving,), timeout=0.5)
            except Exception as error:
                self._history.add(Failure("error", f"{plan.name}: {error!r}"))
                return

    async def _work(self, plan: WorkerPlan, leaving: asyncio.Future[None]) -> None:
        random = Random(plan.seed)
        common: dict[str, Any] = {"bootstrap_servers": self._cluster.bootstrap, "client_id": plan.name}
        reading: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        if self._plan.protocol == "classic":
            reading |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
        consumer: Consumer[bytes, bytes] = Consumer(
            "in",
            group_id=_GROUP,
            group_protocol=self._plan.protocol,  # type: ignore[arg-type]
            isolation_level="read_committed",
            request_timeout_ms=3_000,
            **common,
            **reading,
        )
        producer: Producer[bytes, bytes] = Producer(
            transactional_id=plan.name, transaction_timeout_ms=5_000, request_timeout_ms=2_000, **common
        )

        async def process(batch: ConsumerRecords[bytes | None, bytes | None]) -> None:
            for tp, records in batch.items():
                for record in records:
                    now = int((EPOCH + self._loop.time()) * 1000)
                    await producer.send("out", record.value, partition=tp.partition, timestamp_ms=now)
            if plan.work:
                await asyncio.sleep(random.uniform(0, plan.work))
            if random.random() < plan.raises:
                raise _Moody

        async with consumer, producer:
            loop = TransactionalLoop(consumer, producer)
            while not leaving.done():
                running = self._loop.create_task(loop.run(process, max_records=plan.max_records))
                patience = random.expovariate(1.0) if random.random() < plan.cancels else None
                await asyncio.wait((running, leaving), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    loop.stop()
                    await asyncio.wait((running,), timeout=30.0)
                if not running.done():
                    self._history.add(CutShort(plan.name, "run"))
                    running.cancel()
                    await asyncio.wait((running,))
                if not running.cancelled() and (error := running.exception()) is not None:
                    if not isinstance(error, _Moody):
                        raise error
                    self._history.about(plan.name, "the function has raised")

    # The end

    def _copied(self) -> dict[int, list[bytes]]:
        partitions = {index: TopicPartition("out", index) for index in self._values}
        return {index: list(committed_values(self._cluster, tp).values()) for index, tp in partitions.items()}

    async def _catch_up(self) -> None:
        deadline = self._loop.time() + _CATCH_UP_SECONDS
        while self._loop.time() < deadline:
            if all(len(self._copied()[index]) >= len(values) for index, values in self._values.items()):
                return
            await asyncio.sleep(0.5)

    def _look(self) -> None:
        """Compare what readers of committed records see with what was written: the same values in the same order."""
        copied, offsets = self._copied(), self._cluster.committed(_GROUP)
        for index, values in self._values.items():
            if copied[index] != values:
                lost = [value for value in values if value not in copied[index]]
                twice = sorted({value for value in copied[index] if copied[index].count(value) > 1})
                what = f"lost {lost[:3]}" if lost else f"twice {twice[:3]}" if twice else "another order"
                self._history.add(
                    Failure("lost" if lost else "duplicate" if twice else "reordered", f"out-{index}: {what}")
                )
            done = offsets.get(TopicPartition("in", index), 0)
            if done != len(values):
                self._history.add(Failure("offsets", f"in-{index}: {done} of {len(values)} are committed"))


def run(plan: LoopPlan) -> tuple[list[Anomaly], History]:
    """Run a world; return the anomalies, and its history."""
    loop = VirtualLoop(Random(plan.seed), most_seconds=plan.seconds + 1_000.0)
    history = History(loop.time)
    world = LoopWorld(plan, loop, history)
    with quiet(), hosts_apart(), determined(Random(plan.seed)):
        try:
            try:
                loop.run_until_complete(world.happen())
            except (NothingLeft, BusyLoop, TooLate) as error:
                history.add(Failure("stuck", str(error)))
            for context in loop.errors:
                history.add(Failure("error", f"{context.get('message')}: {context.get('exception')!r}"))
            found = [(at, event) for at, event in history if isinstance(event, Failure)]
            return [Anomaly(event.kind, at, event.what) for at, event in found], history
        finally:
            loop.end()
