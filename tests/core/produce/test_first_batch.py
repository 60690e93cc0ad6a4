"""The first batches of a producer in a partition: brokers take any sequence of a producer that they do not know."""

from __future__ import annotations

import pytest

from aiokc.core.cluster.snapshot import Cluster
from aiokc.core.produce.accumulator import AccumulatorOptions, RecordAccumulator
from aiokc.core.produce.batch import ProducerBatch
from aiokc.core.produce.identity import ProducerIdentity
from aiokc.core.produce.session import PlainSession
from aiokc.core.produce.settling import PartitionAnswer, settle
from aiokc.error_codes import ErrorCode
from aiokc.types import Broker, PartitionInfo, TopicInfo, TopicPartition

CLUSTER = Cluster(brokers={1: Broker(1, "h", 1)}, topics={"t": TopicInfo("t", {0: PartitionInfo("t", 0, 1, 0)})})


class Scene:
    """A producer with one partition, whose records are each a batch."""

    def __init__(self) -> None:
        self.session = PlainSession(idempotent=True)
        self.session.initialized(ProducerIdentity(9, 0))
        options = AccumulatorOptions(batch_size=0, linger=0.0)
        self.accumulator = RecordAccumulator(options, self.session, lambda attempts: 0.0)

    def append(self, count: int) -> None:
        queue = self.accumulator.queue(TopicPartition("t", 0))
        for _ in range(count):
            self.accumulator.append(queue, 1, None, b"v", (), 0.0)

    def sent(self) -> list[int]:
        """Send what is ready; return the sequences."""
        return [batch.sequence for batch in self.drained()]

    def drained(self) -> list[ProducerBatch]:
        ready = self.accumulator.ready(CLUSTER, 1.0, hurry=True)
        return self.accumulator.drain(1, ready.nodes.get(1, []), CLUSTER, 1.0)

    def answer(self, batch: ProducerBatch, code: int = 0) -> None:
        settle(self.accumulator, batch, PartitionAnswer(code, 0), 1.0)


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CORRUPT_MESSAGE])
def test_no_second_batch_goes_before_the_first_is_stored(code: ErrorCode) -> None:
    """The broker would take its sequence without the first one's, and refuse that one for ever (KIP-360)."""
    scene = Scene()
    scene.append(3)
    (first,) = scene.drained()
    assert (first.sequence, scene.sent()) == (0, [])
    scene.answer(first, code)
    assert scene.drained() == [first]
    assert scene.sent() == []
    scene.answer(first)
    assert [scene.sent(), scene.sent()] == [[1], [2]]


def test_so_it_is_under_each_producer_id_and_not_in_each_epoch() -> None:
    scene = Scene()
    scene.append(1)
    scene.answer(scene.drained()[0])
    scene.session.initialized(ProducerIdentity(9, 1))
    scene.append(2)
    (first, second) = [*scene.drained(), *scene.drained()]
    scene.answer(first)
    scene.answer(second)
    scene.session.initialized(ProducerIdentity(10, 0))
    scene.append(2)
    assert [scene.sent(), scene.sent()] == [[0], []]


def test_so_it_is_after_a_sequence_was_lost() -> None:
    scene = Scene()
    scene.append(3)
    (first,) = scene.drained()
    scene.answer(first, ErrorCode.INVALID_RECORD)
    assert [scene.sent(), scene.sent()] == [[0], []]
    assert scene.session.identity == ProducerIdentity(9, 1)
