"""Workers that copy records from topic to topic exactly once, what happens to them, and what must come of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

from aiokc import Consumer, ConsumerRecords, Producer, TopicPartition
from aiokc.client.transactional_loop.transactional_loop import TransactionalLoop
from aiokc.errors import KafkaError, ProducerFenced
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.faults import deliver_late, disconnect, lose_answer
from tests.suite.unused_faults import may_be_unused

#: Input partitions, and output partitions: a record goes to the one of its own number.
PARTITIONS: Final = 4
TOPICS: Final = {"in": PARTITIONS, "out": PARTITIONS}
_APIS: Final = [
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.PRODUCE,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.HEARTBEAT,
]

Batch = ConsumerRecords[Any, Any]


class Worker:
    """A consumer, a producer and their loop in a task. ``process`` copies a batch, and may be made to fail."""

    def __init__(self, cluster: Cluster, number: int, protocol: dict[str, Any], random: Random) -> None:
        self.random = random
        self.consumer: Consumer[Any, Any] = Consumer(
            "in",
            bootstrap_servers=cluster.bootstrap,
            client_id=f"worker {number}",
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=5,
            **protocol,
        )
        self.producer: Producer[Any, Any] = Producer(
            bootstrap_servers=cluster.bootstrap,
            client_id=f"worker {number}",
            transactional_id=f"worker {number}",
            transaction_timeout_ms=20_000,
            request_timeout_ms=5_000,
            delivery_timeout_ms=15_000,
            max_block_ms=random.choice([1_500, 60_000]),  # with the former, the outcomes of commits come late
        )
        self.loop: TransactionalLoop[Any, Any] | None = None
        self.task: asyncio.Task[None] | None = None
        self.raised: list[BaseException] = []
        self.is_leaving = False

    @property
    def has_ended(self) -> bool:
        """Whether it can't go on: at level 0 a transaction that took too long ends the producer."""
        return self.task is not None and self.task.done()

    async def start(self) -> None:
        await self.producer.start(timeout_ms=600_000)
        await self.consumer.start(timeout_ms=600_000)
        self.loop = TransactionalLoop(self.consumer, self.producer)
        self.task = asyncio.create_task(self._run(self.loop))

    async def _run(self, loop: TransactionalLoop[Any, Any]) -> None:
        """Run again after what the application itself raises; anything else ends the worker."""
        while not self.is_leaving:
            try:
                return await loop.run(self.process)
            except ArithmeticError:
                continue

    async def process(self, batch: Batch) -> None:
        chance = self.random.random()
        for tp, records in batch.items():
            for record in records:
                await self.producer.send("out", record.value, partition=tp.partition)
        if chance < 0.1:
            raise ArithmeticError
        if chance < 0.3:
            await asyncio.sleep(self.random.uniform(0.0, 3.0))
        elif chance < 0.33:
            await asyncio.sleep(self.random.uniform(15.0, 40.0))  # the transaction times out

    async def leaves(self) -> None:
        """Finish the batch, and leave the group."""
        assert self.loop is not None
        assert self.task is not None
        self.is_leaving = True
        self.loop.stop()
        await asyncio.wait([self.task])
        self._note()
        await self.consumer.stop()
        await self.producer.stop()

    async def is_cancelled(self) -> None:
        """The application is cancelled in the middle of a batch, and closes what it has."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])
        self._note()
        await self.consumer.stop()
        await self.producer.stop()

    async def dies(self) -> None:
        """The process is killed: nothing is aborted, and the group hears nothing."""
        assert self.task is not None
        await self.consumer._runtime.cluster_client.stop()
        await self.producer._runtime.cluster_client.stop()
        self.task.cancel()
        await asyncio.wait([self.task])

    def _note(self) -> None:
        assert self.task is not None
        if not self.task.cancelled() and (error := self.task.exception()) is not None:
            self.raised.append(error)


class Trouble:
    """Workers come and go, brokers fail, answers are lost, all by chance, and always the same for one seed."""

    def __init__(self, cluster: Cluster, protocol: dict[str, Any], seed: int) -> None:
        self.cluster = cluster
        self.random = Random(seed)
        self.protocol = protocol
        self.workers: list[Worker] = []
        self.raised: list[BaseException] = []
        self.number = 0
        self.written = 0
        self.fenced = 0

    async def run(self, rounds: int) -> None:
        await self.joins()
        for _ in range(rounds):
            for _ in range(self.random.randrange(15)):
                self.written += 1
                self.cluster.append("in", b"%d" % self.written, partition=self.random.randrange(PARTITIONS))
            await self.something()
            await asyncio.sleep(self.random.uniform(0.0, 6.0))
        self.cluster.heal()
        if not self.workers:
            await self.joins()
        await self.all_is_copied()
        for worker in self.workers:
            await worker.leaves()
            self.raised += worker.raised

    async def replace_ended(self) -> None:
        for worker in [worker for worker in self.workers if worker.has_ended]:
            self.workers.remove(worker)
            await worker.leaves()
            assert all(isinstance(error, ProducerFenced) for error in worker.raised), worker.raised
            self.fenced += 1
            await self.joins()

    async def something(self) -> None:
        await self.replace_ended()
        events: list[tuple[int, Callable[[], Any]]] = [
            (6, self.joins),
            (2, self.leaves),
            (2, self.dies),
            (2, self.is_cancelled),
            (2, self.is_expired),
            (2, self.coordinator_moves),
            (2, self.broker_is_away),
            (6, self.answer_is_lost),
            (1, self.markers_are_slow),
            (3, self.nothing),
        ]
        (event,) = self.random.choices([event for _, event in events], [weight for weight, _ in events])
        await event()

    async def joins(self) -> None:
        if len(self.workers) >= 3:
            return
        self.number += 1
        worker = Worker(self.cluster, self.number, self.protocol, Random(self.random.random()))
        await worker.start()
        self.workers.append(worker)

    def _one(self) -> Worker | None:
        return self.workers.pop(self.random.randrange(len(self.workers))) if self.workers else None

    async def leaves(self) -> None:
        if (worker := self._one()) is not None:
            await worker.leaves()
            self.raised += worker.raised

    async def is_cancelled(self) -> None:
        if (worker := self._one()) is not None:
            await worker.is_cancelled()
            self.raised += worker.raised

    async def dies(self) -> None:
        if (worker := self._one()) is not None:
            await worker.dies()

    async def is_expired(self) -> None:
        if members := self.cluster.members("g"):
            self.cluster.expire_member("g", self.random.choice(members))

    async def coordinator_moves(self) -> None:
        key = self.random.choice(["g", *(f"worker {number}" for number in range(1, self.number + 1))])
        self.cluster.move_coordinator(key, loading=self.random.uniform(0.0, 2.0))

    async def broker_is_away(self) -> None:
        node_id = self.random.choice([1, 2, 3])
        self.cluster.take_down(node_id)
        await asyncio.sleep(self.random.uniform(0.0, 8.0))
        self.cluster.bring_up(node_id)

    async def answer_is_lost(self) -> None:
        fault = self.random.choice([lose_answer(), disconnect(), deliver_late(self.random.uniform(0.0, 5.0))])
        times = self.random.randrange(1, 4)
        may_be_unused(self.cluster.intercept(self.random.choice(_APIS), fault, times=times))

    async def markers_are_slow(self) -> None:
        self.cluster.slow_markers(self.random.uniform(0.0, 2.0))

    async def nothing(self) -> None: ...

    async def all_is_copied(self) -> None:
        """Return when the group has committed all of the input."""
        while True:
            committed = self.cluster.committed("g")
            lag = [
                number
                for number in range(PARTITIONS)
                if committed.get(TopicPartition("in", number), 0) < self.cluster.end_offset("in", number)
            ]
            if not lag:
                return
            await self.replace_ended()
            await asyncio.sleep(1.0)

    def check(self, out: dict[int, list[bytes | None]]) -> None:
        """Each input record has one output record, in the same order."""
        for number in range(PARTITIONS):
            given = [record.value for record in self.cluster.records("in", number)]
            assert out[number] == given, f"partition {number}"
        assert not [error for error in self.raised if not isinstance(error, KafkaError)], self.raised
