"""Produced: an accumulator, two brokers and some partitions for tests of the pure core, driven by hand."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from aiokc.core.cluster.snapshot import Cluster
from aiokc.core.produce.accumulator import AccumulatorOptions, RecordAccumulator
from aiokc.core.produce.batch import ProducerBatch
from aiokc.core.produce.identity import ProducerIdentity
from aiokc.core.produce.partition_queues import Ready
from aiokc.core.produce.session import PlainSession
from aiokc.core.produce.settling import PartitionAnswer, settle, split_further
from aiokc.core.produce.verdicts import Verdict
from aiokc.types import Broker, PartitionInfo, TopicInfo, TopicPartition


class Produced:
    """The producer's side of some partitions of topic "t", at a time of its own."""

    def __init__(self, *, idempotent: bool = True, partitions: int = 1, **options: Any) -> None:
        self.session = PlainSession(idempotent=idempotent)
        if idempotent:
            self.session.initialized(ProducerIdentity(7, 0))
        settings = AccumulatorOptions(**{"batch_size": 200, "linger": 0.0, **options})
        self.accumulator = RecordAccumulator(settings, self.session, lambda attempts: 0.1)
        self.now = 100.0
        self.leaders = dict.fromkeys(range(partitions), 1)
        self.epochs = dict.fromkeys(range(partitions), 0)
        self.topic_id: UUID | None = None
        self._cluster = Cluster()
        self.count = 0
        if idempotent:  # as if a batch had been stored in each before: the first one of a producer id goes alone
            for partition in range(partitions):
                self.queue(partition).sequences.begin(ProducerIdentity(7, 0))

    @property
    def cluster(self) -> Cluster:
        infos = {
            number: PartitionInfo("t", number, leader, self.epochs[number]) for number, leader in self.leaders.items()
        }
        found = Cluster(
            brokers={n: Broker(n, "h", 1) for n in (1, 2)}, topics={"t": TopicInfo("t", infos, self.topic_id)}
        )
        if found != self._cluster:  # while nothing changes, the metadata are one and the same snapshot
            self._cluster = found
        return self._cluster

    def queue(self, partition: int = 0) -> Any:
        return self.accumulator.queue(TopicPartition("t", partition))

    def append(self, value: bytes | None = None, partition: int = 0) -> ProducerBatch:
        self.count += 1
        content = b"%d" % self.count if value is None else value
        return self.accumulator.append(self.queue(partition), 0, None, content, (), self.now)

    def append_all(self, values: list[bytes]) -> ProducerBatch:
        """Append these to one batch, which has room for them."""
        (batch,) = {self.append(value) for value in values}
        return batch

    def fill(self, batches: int, partition: int = 0) -> list[ProducerBatch]:
        """Append so many batches of one record each, which leaves no room."""
        return [self.append(bytes(200), partition) for _ in range(batches)]

    def look(self, *, hurry: bool = False) -> Ready:
        """Look at all partitions, in as many steps as that takes."""
        without_leader: list[Any] = []
        while True:
            found = self.accumulator.ready(self.cluster, self.now, hurry=hurry)
            without_leader += found.without_leader
            if not self.accumulator.queues.goes_on(self.now):
                return found._replace(without_leader=without_leader)

    def ready(self, *, hurry: bool = False) -> dict[int, list[int]]:
        nodes = self.look(hurry=hurry).nodes
        return {node: [queue.tp.partition for queue in queues] for node, queues in nodes.items()}

    def look_at(self) -> float:
        return self.look().look_at

    def send(self, node: int = 1, *, hurry: bool = False) -> list[ProducerBatch]:
        """Return the batches of the next request to a broker, in flight from now on."""
        found = self.look(hurry=hurry)
        return self.accumulator.drain(node, found.nodes.get(node, {}), self.cluster, self.now)

    def send_one(self, node: int = 1) -> ProducerBatch:
        (batch,) = self.send(node)
        return batch

    def answer(self, batch: ProducerBatch, code: int = 0, offset: int | None = None, **more: Any) -> Verdict:
        """The broker answers; by default without an offset where it refuses the batch. What is too large is split."""
        verdict = self.only_answer(batch, code, offset, **more)
        while split_further(self.accumulator):
            pass
        return verdict

    def only_answer(self, batch: ProducerBatch, code: int = 0, offset: int | None = None, **more: Any) -> Verdict:
        """The broker answers, and the sender has no turn."""
        offset = (-1 if code else 0) if offset is None else offset
        return settle(self.accumulator, batch, PartitionAnswer(code, offset, **more), self.now)

    def finished(self) -> list[ProducerBatch]:
        found, self.accumulator.finished = self.accumulator.finished, []
        return found
