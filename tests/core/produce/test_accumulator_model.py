"""A model of one producer and its brokers: whatever is answered, each record ends once, and no sequence lies twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiokc.core.cluster.snapshot import Cluster
from aiokc.core.produce.accumulator import AccumulatorOptions, RecordAccumulator
from aiokc.core.produce.batch import ProducerBatch, Stored
from aiokc.core.produce.failure import Cause, Failure
from aiokc.core.produce.identity import LAST_EPOCH, NO_SEQUENCE, ProducerIdentity
from aiokc.core.produce.partition_queue import PartitionQueue
from aiokc.core.produce.partition_queues import Ready
from aiokc.core.produce.session import PlainSession
from aiokc.core.produce.settling import PartitionAnswer, settle, split_further, unanswered
from aiokc.error_codes import ErrorCode
from aiokc.records import open_batch, split_batches
from aiokc.types import Broker, PartitionInfo, TopicInfo, TopicPartition
from tests.suite.examples import examples

PARTITIONS = 2
DELIVERY_TIMEOUT = 100.0


@dataclass
class Log:
    """One partition as a broker keeps it: the records, and what it knows of the producer (ProducerAppendInfo)."""

    records: list[bytes] = field(default_factory=list)
    epoch: dict[int, int] = field(default_factory=dict)
    batches: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)

    def append(self, batch: bytes) -> PartitionAnswer:
        ((header, view),) = split_batches(memoryview(batch))
        key = (header.producer_id, header.producer_epoch)
        if header.producer_epoch < self.epoch.get(header.producer_id, -1):
            return PartitionAnswer(ErrorCode.INVALID_PRODUCER_EPOCH)
        known = self.batches.get(key, [])
        if (header.base_sequence, header.record_count) in known[-5:]:
            return PartitionAnswer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        expected = (known[-1][0] + known[-1][1]) % (1 << 31) if known else 0
        is_known = header.producer_id in self.epoch  # of one that is not, any sequence is taken
        if is_known and header.base_sequence != expected:
            return PartitionAnswer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self.epoch[header.producer_id] = header.producer_epoch
        self.batches.setdefault(key, []).append((header.base_sequence, header.record_count))
        base = len(self.records)
        reader = open_batch(header, view, topic="t", partition=0, max_decompressed_bytes=1 << 30)
        self.records += [record.value or b"" for record in reader.take(header.record_count)]
        return PartitionAnswer(0, base)


@dataclass
class Sent:
    """A request as it was written: the batches, and copies of their bytes."""

    batches: list[ProducerBatch]
    frames: list[bytes]


class Producing(RuleBasedStateMachine):
    """Appends, sends, answers, loses answers, lets time pass. ``limit`` is what the brokers take as a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.session = PlainSession(idempotent=True)
        self.session.initialized(ProducerIdentity(9, LAST_EPOCH - 3))
        options = AccumulatorOptions(
            batch_size=300, linger=1.0, delivery_timeout=DELIVERY_TIMEOUT, max_request_size=500, buffer_memory=20_000
        )
        self.accumulator = RecordAccumulator(options, self.session, lambda attempts: 0.5 * attempts)
        self.now = 0.0
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.leader = 1
        self.epoch = 0
        self.seen = Cluster()
        self.in_flight: list[Sent] = []
        self.late: list[tuple[int, bytes]] = []
        self.appended: dict[bytes, tuple[int, ProducerBatch, int]] = {}
        self.contents: dict[tuple[int, ProducerIdentity, int], bytes] = {}
        self.outcomes: dict[ProducerBatch, object] = {}
        self.count = 0
        self.limit = 1 << 20
        #: The leader and its epoch under which each partition's last batch was sent that was alone in its request.
        self.ways: dict[PartitionQueue, tuple[int, int]] = {}

    def cluster(self) -> Cluster:
        partitions = {number: PartitionInfo("t", number, self.leader, self.epoch) for number in range(PARTITIONS)}
        brokers = {node: Broker(node, "h", 1) for node in (1, 2)}
        found = Cluster(brokers=brokers, topics={"t": TopicInfo("t", partitions)})
        if found != self.seen:
            self.seen = found
        return self.seen

    @rule(partition=st.integers(0, PARTITIONS - 1), size=st.sampled_from([1, 60, 150, 400]))
    def append(self, partition: int, size: int) -> None:
        if not self.accumulator.has_room(size + 100):
            return
        value = b"%d:%d:" % (partition, self.count) + bytes(size)
        self.count += 1
        queue = self.accumulator.queue(TopicPartition("t", partition))
        batch = self.accumulator.append(queue, self.count, None, value, (), self.now)
        self.appended[value] = (partition, batch, batch.count - 1)

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 60.0]), held=st.booleans())
    def time_passes(self, seconds: float, held: bool = False) -> None:
        """``held``: by something that runs in the loop."""
        self.now += seconds
        late = self.accumulator.queues.late(self.now)
        self.accumulator.expire(self.now, late=late if held else 0.0)

    @rule()
    def nothing_that_is_due_rests(self) -> None:
        """What is found ready does not depend on which partitions are looked at."""
        cluster = self.cluster()
        found = self.look(cluster)
        nodes = {node: set(queues) for node, queues in found.nodes.items()}
        self.accumulator._seen = None  # look at all
        again = self.look(cluster)
        assert nodes.keys() >= again.nodes.keys()
        for node, queues in nodes.items():  # what was ready without linger stays so
            assert queues >= set(again.nodes.get(node, ()))
        assert found.look_at <= again.look_at

    def look(self, cluster: Cluster) -> Ready:
        """Look at all: what wakes within a round is looked at in the next one."""
        while True:
            found = self.accumulator.ready(cluster, self.now, hurry=False)
            if not self.accumulator.queues.goes_on(self.now):
                return found

    @precondition(lambda self: self.accumulator.splits)
    @rule()
    def split(self) -> None:
        split_further(self.accumulator)

    @rule()
    def leader_moves(self) -> None:
        self.leader, self.epoch = 3 - self.leader, self.epoch + 1

    @rule()
    def broker_takes_less(self) -> None:
        self.limit = 150 if self.limit > 150 else 1 << 20

    @precondition(lambda self: self.session.identity is None)
    @rule()
    def another_producer_id(self) -> None:
        self.session.initialized(ProducerIdentity(10 + self.count, LAST_EPOCH - 2))

    @precondition(lambda self: len(self.in_flight) < 5)
    @rule(hurry=st.booleans())
    def send(self, hurry: bool) -> None:
        cluster = self.cluster()
        for node, queues in list(self.accumulator.ready(cluster, self.now, hurry=hurry).nodes.items()):
            self.drain(node, queues, cluster)

    @precondition(lambda self: self.accumulator.queues.is_empty)
    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 4), looks=st.booleans())
    def records_go_one_by_one(self, partition: int, count: int, looks: bool) -> None:
        """Each meets a producer at rest; what can't be sent at once for that is sent as any other."""
        for _ in range(count):
            self.append(partition, 1)
            self.send_at_rest(looks)
            self.send(True)
            while self.in_flight:
                self.answer(None)
            self.each_batch_ends_once()

    @precondition(lambda self: len(self.in_flight) < 5)
    @rule(looks=st.booleans())
    def send_at_rest(self, looks: bool) -> None:
        """The only batch there is goes to the leader that got the last one; ``ready`` would say no more than that."""
        lone = self.accumulator.queues.lone
        if lone is None:
            return
        if not self.accumulator.queues.has_lone_batch(lone) or self.ways.get(lone) != (self.leader, self.epoch):
            return
        ready = self.accumulator.ready(self.cluster(), self.now, hurry=True) if looks else None
        nodes = {} if ready is None else {node: list(queues) for node, queues in ready.nodes.items()}
        if not self.accumulator.queues.has_lone_batch(lone):  # ``ready`` has given it up
            return
        batch = self.accumulator.take_at_rest(lone, self.now)
        if batch is None:
            return
        if ready is not None:
            assert nodes == {self.leader: [lone]}
            assert (ready.renumbered, ready.without_leader, self.accumulator.finished) == ([], [], [])
        assert (lone.leader, lone.leader_epoch) == (self.leader, self.epoch)
        assert (list(lone.waiting), list(lone.in_flight)) == ([], [batch])
        self.sent([batch])

    def drain(self, node: int, queues: Iterable[PartitionQueue], cluster: Cluster) -> None:
        batches = self.accumulator.drain(node, queues, cluster, self.now)
        assert not self.accumulator.to_compress.take()
        if len(batches) == 1:
            self.ways[self.accumulator.queue(batches[0].tp)] = self.leader, self.epoch
        if batches:
            self.sent(batches)

    def sent(self, batches: list[ProducerBatch]) -> None:
        frames = [bytes(batch.frame()) for batch in batches]
        assert len({batch.tp for batch in batches}) == len(batches)
        assert sum(map(len, frames)) <= 500 or len(frames) == 1
        for batch, frame in zip(batches, frames, strict=True):
            assert batch.sequence != NO_SEQUENCE
            self.one_content(batch, frame)
        self.in_flight.append(Sent(batches, frames))

    def one_content(self, batch: ProducerBatch, frame: bytes) -> None:
        """No (partition, id, epoch, sequence) goes out with two contents, but for the parts of a refused batch."""
        for index in range(batch.count):
            key = (batch.tp.partition, batch.identity, (batch.sequence + index) % (1 << 31))
            record = read_values(frame)[index]
            assert self.contents.setdefault(key, record) == record

    def handle(self, partition: int, frame: bytes) -> PartitionAnswer:
        if len(frame) > self.limit:
            return PartitionAnswer(ErrorCode.MESSAGE_TOO_LARGE)
        return self.logs[partition].append(frame)

    @precondition(lambda self: self.in_flight)
    @rule(
        code=st.sampled_from(
            [
                None,
                None,
                None,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.INVALID_RECORD,
                ErrorCode.UNKNOWN_SERVER_ERROR,
                ErrorCode.UNKNOWN_PRODUCER_ID,
            ]
        )
    )
    def answer(self, code: ErrorCode | None) -> None:
        sent = self.in_flight.pop(0)
        for batch, frame in zip(sent.batches, sent.frames, strict=True):
            answer = self.handle(batch.tp.partition, frame) if code is None else PartitionAnswer(code)
            settle(self.accumulator, batch, answer, self.now)

    @precondition(lambda self: self.in_flight)
    @rule(stored=st.booleans(), code=st.sampled_from([ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION]))
    def unclear_answer(self, stored: bool, code: ErrorCode) -> None:
        sent = self.in_flight.pop(0)
        for batch, frame in zip(sent.batches, sent.frames, strict=True):
            if stored:
                self.handle(batch.tp.partition, frame)
            settle(self.accumulator, batch, PartitionAnswer(code), self.now)

    @precondition(lambda self: self.in_flight)
    @rule(handled=st.integers(0, 5), late=st.booleans())
    def connection_breaks(self, handled: int, late: bool) -> None:
        """All requests in flight fail; the broker has handled some of them, and may get to the others later."""
        for index, sent in enumerate(self.in_flight):
            for batch, frame in zip(sent.batches, sent.frames, strict=True):
                if index < handled:
                    self.handle(batch.tp.partition, frame)
                elif late:
                    self.late.append((batch.tp.partition, frame))
                unanswered(self.accumulator, batch, "gone", self.now)
        self.in_flight.clear()

    @precondition(lambda self: self.late)
    @rule()
    def late_arrival(self) -> None:
        partition, frame = self.late.pop(0)
        self.handle(partition, frame)

    @precondition(lambda self: self.accumulator.queues.is_empty and self.session.identity is not None)
    @rule(partition=st.integers(0, PARTITIONS - 1), handled=st.integers(0, 2), late=st.booleans())
    def one_expires_and_the_next_one_is_unclear(self, partition: int, handled: int, late: bool) -> None:
        """Two are in flight, and neither is answered. The second one's place in the log is in doubt with the first.

        Single rules come to that too seldom. One that is stored comes first: before it, only one at a time is sent.
        """
        self.append(partition, 1)
        self.send(True)
        while self.in_flight:
            self.answer(None)
        for _ in range(2):
            self.append(partition, 1)
            self.send(True)
            if len(self.in_flight) == 2:
                self.connection_breaks(handled, late)
            self.time_passes(DELIVERY_TIMEOUT * 0.6)
        self.each_batch_ends_once()

    @invariant()
    def each_batch_ends_once(self) -> None:
        for batch in self.accumulator.finished:
            assert batch not in self.outcomes
            self.outcomes[batch] = batch.outcome
        self.accumulator.finished.clear()
        assert all(batch.outcome is outcome for batch, outcome in self.outcomes.items())
        assert 0 <= self.accumulator.used <= 40_000
        counters, queues = self.accumulator.counters, self.accumulator.queues
        waiting = sum(batch.count for queue in queues.active for batch in queue.unfinished())
        assert queues.counted().appended == counters.stored + sum(counters.failed.values()) + waiting == self.count

    def teardown(self) -> None:
        """Everything works from now on: all that did not fail is stored, in order."""
        self.limit = 1 << 20
        mark = self.accumulator.flush()
        for _ in range(300):
            while self.in_flight:
                self.answer(None)
            if self.session.identity is None:
                self.another_producer_id()
            self.now += 0.2
            self.accumulator.expire(self.now)
            while split_further(self.accumulator):
                pass
            self.send(True)
            self.each_batch_ends_once()
        assert mark.done
        assert self.accumulator.queues.unanswered == 0
        assert self.accumulator.used == 0
        self.check_logs()

    def check_logs(self) -> None:
        for partition, log in enumerate(self.logs):
            queue = self.accumulator.queue(TopicPartition("t", partition))
            appended = [value for value, (at, _, _) in self.appended.items() if at == partition]
            self.check_log(log, appended, queue.renumbered)

    def check_log(self, log: Log, appended: list[bytes], renumbered: int) -> None:
        """Batches that were renumbered may be there twice, and out of order. What has not happened is in no log."""
        order = []
        for value in appended:
            batch, index = self.appended[value][1].find(self.appended[value][2])
            outcome = batch.outcome
            count = log.records.count(value)
            if isinstance(outcome, Stored):
                assert count >= 1
                assert count == 1 or renumbered
                if outcome.base_offset is not None:
                    assert log.records[outcome.base_offset + index] == value
                order.append(value)
            else:
                assert isinstance(outcome, Failure)
                assert outcome.persisted != "no" or count == 0
                assert count <= 1 or renumbered
                assert outcome.cause in (Cause.REFUSED, Cause.EXPIRED, Cause.UNCLEAR)
        if not renumbered:
            assert [value for value in log.records if value in set(order)] == order


class WithoutRenumbering(Producing):
    """What may be stored is not sent under another sequence (enable_renumbering=False): so nothing is stored twice."""

    def __init__(self) -> None:
        super().__init__()
        self.session.renumbers_unclear = False

    def check_log(self, log: Log, appended: list[bytes], renumbered: int) -> None:
        super().check_log(log, appended, renumbered)
        assert not renumbered


class InSmallSteps(Producing):
    """One partition is looked at in each step: so what is ready may have changed when it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = patch("aiokc.core.produce.partition_queues.MOST_LOOKED_AT", 1)
        self.patch.start()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.patch.stop()


def read_values(frame: bytes) -> list[bytes]:
    ((header, view),) = split_batches(memoryview(frame))
    reader = open_batch(header, view, topic="t", partition=0, max_decompressed_bytes=1 << 30)
    return [record.value or b"" for record in reader.take(header.record_count)]


@pytest.mark.parametrize("handled", [0, 1, 2], ids=["none stored", "first stored", "both stored"])
@pytest.mark.parametrize("model", [Producing, WithoutRenumbering, InSmallSteps])
def test_the_one_behind_an_expired_one_is_renumbered_unless_that_is_off(model: type[Producing], handled: int) -> None:
    """The rule of the models brings about what it is there for, whatever the examples come to."""
    producing = model()
    try:
        producing.one_expires_and_the_next_one_is_unclear(0, handled, False)
    finally:
        producing.teardown()
    causes = [getattr(outcome, "cause", None) for outcome in producing.outcomes.values()]
    renumbered = producing.accumulator.queues.counted().renumbered
    if model is WithoutRenumbering:
        assert (causes, renumbered) == ([None, Cause.EXPIRED, Cause.UNCLEAR], 0)
        assert len(producing.logs[0].records) == 1 + handled
    else:
        assert (causes, renumbered) == ([None, Cause.EXPIRED, None], 1)
        assert len(producing.logs[0].records) == 1 + handled + 1


TestProducing = Producing.TestCase
TestProducing.settings = settings(
    examples(60, thorough=1000), stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
TestWithoutRenumbering = WithoutRenumbering.TestCase
TestWithoutRenumbering.settings = settings(
    examples(40, thorough=1000), stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
TestInSmallSteps = InSmallSteps.TestCase
TestInSmallSteps.settings = TestProducing.settings


@pytest.mark.parametrize("model", [Producing, WithoutRenumbering, InSmallSteps])
def test_one_that_a_later_one_has_passed_is_not_renumbered(model: type[Producing]) -> None:
    """The broker has stored what came before one that it acknowledged, though it never said so."""
    producing = model()
    try:
        producing.append(0, 1)
        producing.send(True)
        producing.answer(None)
        for _ in range(3):
            producing.append(0, 1)
            producing.send(True)
        producing.unclear_answer(True, ErrorCode.NETWORK_EXCEPTION)
        producing.answer(None)
        producing.answer(ErrorCode.INVALID_RECORD)
        producing.each_batch_ends_once()
    finally:
        producing.teardown()
    causes = [getattr(one, "cause", None) for one in producing.outcomes.values()]
    assert (causes.count(None), causes.count(Cause.REFUSED)) == (3, 1)
    assert (producing.accumulator.queues.counted().renumbered, len(producing.logs[0].records)) == (0, 3)
