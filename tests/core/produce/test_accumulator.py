"""RecordAccumulator: when a batch is ready, what goes into a request, how much memory is used, what expires."""

from __future__ import annotations

import threading
import tracemalloc
from math import inf
from typing import Any, ClassVar
from uuid import UUID

import pytest

from aiokc.config.consumer import ConsumerConfig
from aiokc.core.cluster.snapshot import Cluster
from aiokc.core.produce.accumulator import MOST_BATCHES
from aiokc.core.produce.batch import ProducerBatch
from aiokc.core.produce.batch_memory import BATCH_COST
from aiokc.core.produce.compression.to_compress import COMPRESSION_COST
from aiokc.core.produce.failure import Cause, Failure
from aiokc.core.produce.identity import ProducerIdentity
from aiokc.core.produce.partition_queue import PartitionQueue
from aiokc.core.produce.partition_queues import Counted
from aiokc.core.produce.session import PlainSession
from aiokc.core.produce.settling import unanswered
from aiokc.error_codes import ErrorCode
from aiokc.errors import ProduceError
from aiokc.records import Codec
from aiokc.records.compression import quickly_compressed
from aiokc.records.encoding.batch_builder import BATCH_OVERHEAD
from aiokc.types import TopicPartition

from .one_partition import Produced

QUICKLY = quickly_compressed(Codec.GZIP, None)


def test_a_batch_waits_for_its_linger_from_its_first_record_on() -> None:
    """A record that comes later does not prolong it."""
    world = Produced(linger=5.0)
    world.append()
    assert world.ready() == {}
    assert world.look_at() == 105.0
    world.now = 104.0
    world.append()
    assert world.ready() == {}
    world.now = 105.0
    assert world.ready() == {1: [0]}


def test_a_full_batch_does_not_wait() -> None:
    world = Produced(linger=5.0)
    world.append(bytes(100))
    assert world.ready() == {}
    world.append(bytes(100))  # it has no room for this one
    assert world.ready() == {1: [0]}
    assert len(world.send()) == 1
    assert world.ready() == {}, "the second one waits for its own linger"


def test_nothing_lingers_where_memory_is_wanted_or_a_flush_waits() -> None:
    world = Produced(linger=5.0)
    world.append()
    assert world.ready(hurry=True) == {1: [0]}
    mark = world.accumulator.flush()
    assert not mark.done
    assert world.ready() == {1: [0]}


def test_what_is_appended_after_a_flush_does_not_prolong_it() -> None:
    """It goes into another batch, although there was room."""
    world = Produced(linger=5.0)
    first = world.append()
    mark = world.accumulator.flush()
    second = world.append()
    assert second is not first
    world.answer(world.send_one())
    assert mark.done
    assert world.ready() == {}, "the second one lingers"


def test_each_flush_waits_for_all_that_was_appended_before_it() -> None:
    """Whichever of it is done first."""
    world = Produced(partitions=2)
    slow = world.append(partition=0)
    first = world.accumulator.flush()
    world.append(partition=1)
    second, again = world.accumulator.flush(), world.accumulator.flush()
    _, quick = world.send()
    world.answer(quick)
    assert [mark.done for mark in (first, second, again)] == [False, False, False]
    late = world.append(partition=1)
    world.answer(slow)
    assert [mark.done for mark in (first, second, again)] == [True, True, True]
    third = world.accumulator.flush()
    assert not third.done
    world.answer(world.send_one())
    assert (third.done, late.outcome is None) == (True, False)
    assert world.accumulator.flush().done


def test_flushes_that_nobody_waits_for_any_more_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As flush(timeout_ms=0) behind each send. No broker can be reached, so batches pile up."""
    world = Produced()
    sealed: list[ProducerBatch] = []
    seal = ProducerBatch.seal

    def noted(batch: ProducerBatch) -> None:
        sealed.append(batch)
        seal(batch)

    monkeypatch.setattr(ProducerBatch, "seal", noted)

    def takes() -> int:
        """Return how many bytes more a thousand batches take, and their flushes."""
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1_000):
            world.append()
            world.accumulator.flush()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        first, second = takes(), takes()
    finally:
        tracemalloc.stop()
    assert second < 1.3 * first
    assert len(sealed) == len(set(sealed)) == 2_000, "a flush does not go through what others wait for, too"


def test_without_batching_each_record_is_a_batch() -> None:
    world = Produced(batch_size=0, linger=5.0)
    assert len({world.append() for _ in range(3)}) == 3
    assert world.ready() == {1: [0]}


def test_a_request_has_one_batch_of_each_partition_up_to_its_size() -> None:
    world = Produced(partitions=3, max_request_size=700)
    for partition in range(3):
        world.fill(2, partition)
    first = world.send()
    assert [batch.tp.partition for batch in first] == [0, 1]
    assert [batch.tp.partition for batch in world.send()] == [2, 0], "partitions take turns"


def test_a_batch_above_the_size_of_a_request_goes_alone() -> None:
    world = Produced(partitions=2, max_request_size=100)
    world.fill(1, 0)
    world.fill(1, 1)
    assert [batch.tp.partition for batch in world.send()] == [0]
    assert [batch.tp.partition for batch in world.send()] == [1]


def test_the_tenth_partition_does_not_starve() -> None:
    world = Produced(partitions=10, max_request_size=300)
    for partition in range(10):
        world.fill(30, partition)
    served = []
    for _ in range(30):
        for batch in world.send():
            served.append(batch.tp.partition)
            world.answer(batch)
    assert [served.count(partition) for partition in range(10)] == [3] * 10


def test_no_more_batches_of_a_partition_are_in_flight_than_brokers_remember() -> None:
    world = Produced(window=5)
    world.fill(7)
    sent = [world.send() for _ in range(7)]
    assert [len(one) for one in sent] == [1] * 5 + [0] * 2
    world.answer(sent[0][0])
    assert len(world.send()) == 1


def test_a_partition_without_a_leader_waits() -> None:
    world = Produced()
    world.append()
    world.leaders[0] = 9  # a broker that the metadata do not know
    found = world.accumulator.ready(world.cluster, world.now, hurry=False)
    assert found.nodes == {}
    assert [queue.tp.partition for queue in found.without_leader] == [0]
    world.leaders[0] = 2
    assert world.ready() == {2: [0]}


def test_memory_counts_what_has_no_outcome_and_is_free_afterwards() -> None:
    world = Produced(buffer_memory=4000)
    cost = world.accumulator.cost(0)
    assert world.accumulator.has_room(4000 - cost)
    assert not world.accumulator.has_room(4001 - cost)
    batch = world.append(bytes(1000))
    assert world.accumulator.used == batch.size + BATCH_COST >= 1000 + BATCH_OVERHEAD + BATCH_COST
    assert not world.accumulator.has_room(1000)
    world.send()
    assert world.accumulator.used == batch.size + BATCH_COST, "a batch in flight may have to be sent again"
    world.answer(batch)
    assert world.accumulator.used == 0


@pytest.mark.parametrize("told_first", [True, False], ids=["told while in flight", "told after the answer"])
def test_a_batch_takes_its_memory_until_its_callbacks_are_called(told_first: bool) -> None:
    """Else callbacks that are slower than sends pile up without an end. A batch that expired may be in flight still."""
    world = Produced()
    batch = world.append(bytes(1000))
    batch.callbacks.append((0, None))
    world.send()
    taken = world.accumulator.used
    if told_first:
        world.now += 1_000
        world.accumulator.expire(world.now)
        assert batch.outcome is not None
        world.accumulator.batch_memory.told(batch)
    else:
        world.answer(batch)
    assert world.accumulator.used == taken > 1000
    assert world.accumulator.batch_memory.untold == (0 if told_first else taken)
    if told_first:
        world.answer(batch)
    else:
        world.accumulator.batch_memory.told(batch)
    assert world.accumulator.used == world.accumulator.batch_memory.untold == 0
    assert not batch.callbacks


def test_callbacks_that_a_batch_gets_once_it_has_left_take_no_memory() -> None:
    """Its compression fails in the append of a record, whose callback is added behind that."""
    world = Produced()
    batch = world.append(bytes(1000))
    world.send()
    world.answer(batch)
    batch.callbacks.append((0, None))
    world.accumulator.batch_memory.told(batch)
    assert world.accumulator.used == world.accumulator.batch_memory.untold == 0


def test_a_compressed_batch_gives_back_what_it_does_not_need() -> None:
    world = Produced(batch_size=100_000, codec=Codec.GZIP, window=1)
    batch = world.append(bytes(50_000))
    before = world.accumulator.used
    assert before > 50_000
    world.send()
    assert world.accumulator.used == batch.size + BATCH_COST < 2000


def test_compressed_batches_come_out_near_their_size() -> None:
    """Each batch shows how well the topic compresses; the next takes more records, and one that does not, fewer."""
    world = Produced(batch_size=1000, codec=Codec.GZIP)
    ratios = world.accumulator.ratios
    world.append(b"abcabc" * 100)
    world.answer(world.send_one())
    assert ratios["t"] == 1.0 - 0.005, "slowly, since one good batch says little"
    for _ in range(40):
        ratios.closed("t", 1000, 100)
    learned = ratios["t"]
    assert learned == pytest.approx(1.0 - 41 * 0.005)
    ratios.closed("t", 1000, 801)
    assert ratios["t"] == pytest.approx(learned + 0.05), "at once, since a batch that is too large costs a request"
    ratios.closed("t", 1000, 950)
    assert ratios["t"] == 0.95
    assert ratios.capacity("t", 1000) == int(1000 / (0.95 * 1.05)), "with 5 % to spare"
    ratios.refused_as_too_large("t")
    assert ratios["t"] == 1.0


def test_a_topic_that_compresses_well_gets_larger_batches() -> None:
    world = Produced(batch_size=1000, codec=Codec.GZIP)
    for _ in range(150):
        world.accumulator.ratios.closed("t", 1000, 100)
    assert world.accumulator.ratios.capacity("t", 1000) > 3000
    assert world.accumulator.ratios.capacity("other", 1000) == 1000


def test_no_batch_holds_more_than_a_consumer_decompresses_by_default() -> None:
    world = Produced(batch_size=1 << 18, codec=Codec.GZIP)
    ratios = world.accumulator.ratios
    for _ in range(300):
        ratios.closed("t", 1_000_000, 1000)
    assert ratios["t"] == 0.001
    assert ratios.capacity("t", 1 << 18) == ConsumerConfig().max_decompressed_batch_bytes // 2
    assert ratios.capacity("t", 1 << 28) == 1 << 28, "who asks for larger batches gets them"


def test_a_large_batch_is_left_to_a_thread() -> None:
    world = Produced(batch_size=1 << 20, codec=Codec.GZIP, max_request_size=2 << 20)
    batch = world.append(bytes(QUICKLY + 1))
    assert world.send() == []
    ((left, opened),) = world.accumulator.to_compress.take()
    assert left is batch
    assert world.append() is not batch, "the thread reads it"
    assert world.send() == []
    assert world.accumulator.to_compress.take() == []
    world.accumulator.compressed(batch, opened, opened.close())
    assert world.send() == [batch]


def test_many_small_batches_are_left_to_a_thread_where_they_are_large_together() -> None:
    """Else a hundred partitions would hold the loop for 25 ms in one step."""
    world = Produced(partitions=10, batch_size=1 << 20, codec=Codec.GZIP, max_request_size=2 << 20)
    batches = [world.append(bytes(QUICKLY // 4), partition) for partition in range(10)]
    sent = world.send()
    assert 0 < len(sent) < 4
    assert sent == batches[: len(sent)]
    rest = batches[len(sent) :]
    left = world.accumulator.to_compress.take()
    assert [batch for batch, _ in left] == rest
    assert world.send() == []
    for batch, opened in left:
        world.accumulator.compressed(batch, opened, opened.close())
    assert world.send() == rest


def test_batches_of_a_few_bytes_are_left_to_a_thread_where_there_are_many() -> None:
    """A codec takes some 50 us to begin: a hundred of them would hold the loop, too."""
    most = QUICKLY // COMPRESSION_COST
    world = Produced(partitions=2 * most, codec=Codec.GZIP)
    for partition in range(2 * most):
        world.append(b"v", partition)
    assert 0 < len(world.send()) < most
    assert len(world.accumulator.to_compress.take()) > most


def test_no_more_is_compressed_ahead_than_a_request_holds() -> None:
    """The batches of other partitions are filled on meanwhile."""
    world = Produced(partitions=3, batch_size=1 << 20, codec=Codec.GZIP, max_request_size=QUICKLY * 5 // 2)
    batches = [world.append(bytes(QUICKLY), partition) for partition in range(3)]
    assert world.send() == []
    left = world.accumulator.to_compress.take()
    assert [batch for batch, _ in left] == batches[:2]
    assert world.append(b"", 2) is batches[2]
    batch, opened = left[0]
    world.accumulator.compressed(batch, opened, opened.close())
    assert world.send() == [batch]
    assert [batch for batch, _ in world.accumulator.to_compress.take()] == batches[2:]


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_batch_that_expires_while_it_is_compressed_stays_failed(has_begun: bool) -> None:
    """A thread that comes to it later finds no bytes any more."""
    world = Produced(batch_size=1 << 20, codec=Codec.GZIP, delivery_timeout=1.0)
    batch = world.append(bytes(QUICKLY + 1))
    world.send()
    ((_, opened),) = world.accumulator.to_compress.take()
    result: Any = opened.close() if has_begun else None
    world.now += 2
    world.accumulator.expire(world.now)
    assert isinstance(batch.outcome, Failure)
    assert "still to be compressed" in str(batch.outcome.error_of(batch.tp, 0))
    if not has_begun:
        with pytest.raises(ValueError, match="taken before") as raised:
            opened.close()
        result = raised.value
    world.accumulator.compressed(batch, opened, result)
    assert (batch.closed, world.accumulator.used) == (None, 0)
    after = world.append()
    assert world.send() == [after]


def test_a_batch_that_expires_tells_of_its_last_attempt_and_of_what_kept_it_from_another() -> None:
    """The credentials may be refused since: then that is what to mend."""
    world = Produced(delivery_timeout=1.0)
    batch = world.append()
    world.send()
    unanswered(world.accumulator, batch, "the connection was closed", world.now)
    world.queue().trouble = "credentials were refused"
    world.now += 2
    world.accumulator.expire(world.now)
    assert isinstance(batch.outcome, Failure)
    told = str(batch.outcome.error_of(batch.tp, 0))
    assert "NETWORK_EXCEPTION (the connection was closed; since then: credentials were refused)" in told


def test_a_batch_that_is_ready_and_expires_says_why_its_broker_could_not_be_reached() -> None:
    world = Produced(partitions=2)
    world.leaders[1] = 2
    for partition in range(2):
        world.append(partition=partition)
    world.ready()
    world.accumulator.queues.unreachable[2] = "connection refused"
    assert [world.accumulator.queues.trouble_of(world.queue(partition)) for partition in range(2)] == [
        "",
        "connection refused",
    ]
    world.now += 1000.0
    world.accumulator.expire(world.now)
    outcomes = [batch.outcome for batch in world.finished()]
    assert [one.text for one in outcomes if isinstance(one, Failure)] == ["", "connection refused"]


def test_a_batch_that_could_not_be_compressed_fails_alone() -> None:
    world = Produced(batch_size=1 << 20, codec=Codec.GZIP)
    batch = world.append(bytes(QUICKLY + 1))
    world.send()
    ((_, opened),) = world.accumulator.to_compress.take()
    world.accumulator.compressed(batch, opened, MemoryError("no room"))
    assert isinstance(batch.outcome, Failure)
    told = batch.outcome.error_of(batch.tp, 0)
    assert isinstance(told, ProduceError)
    assert str(told) == "t-0: the batch could not be compressed: MemoryError('no room')"
    assert (told.persisted, type(told.__cause__)) == ("no", MemoryError)
    after = world.append()
    assert world.send() == [after]
    assert (after.sequence, world.accumulator.used > 0) == (0, True)


def test_an_append_that_raises_leaves_no_batch() -> None:
    world = Produced()
    with pytest.raises(OverflowError):
        world.accumulator.append(world.queue(), 1 << 63, None, b"", (), world.now)
    assert (len(world.queue()), world.accumulator.used, world.accumulator.queues.active) == (0, 0, [])
    batch = world.append()
    with pytest.raises(OverflowError):
        world.accumulator.append(world.queue(), 1 << 63, None, b"", (), world.now)
    assert (batch.count, world.accumulator.queues.unanswered) == (1, 1)


def test_an_append_says_whether_it_is_news_to_the_sender() -> None:
    """A first record, which may set a timer, and a full batch; not each record."""
    world = Produced()
    found = []
    for size in (10, 10, 100, 10, 200):
        world.accumulator.news = False
        world.append(bytes(size))
        found.append(world.accumulator.news)
    assert found == [True, False, True, False, True]


def test_a_batch_that_is_due_after_the_next_look_is_no_news() -> None:
    """To look at thousands of partitions takes milliseconds: that is not to be done for the first record of each."""
    world = Produced(partitions=3, linger=5.0)
    found = []
    for partition in range(2):
        world.accumulator.news = False
        world.append(partition=partition)
        found.append(world.accumulator.news)
        assert world.look_at() == 105.0
        world.now += 1
    assert found == [True, False]
    world.now = 105.0
    assert world.ready() == {1: [0]}
    assert world.look_at() == 106.0


def test_a_session_may_hold_partitions_back() -> None:
    """As transactions do until AddPartitionsToTxn is answered."""

    class Holding(PlainSession):
        held: ClassVar[set[int]] = {0}

        def may_drain(self, tp: TopicPartition) -> bool:
            return tp.partition not in self.held

    world = Produced(partitions=2)
    world.accumulator.session = session = Holding(idempotent=True)
    session.initialized(ProducerIdentity(7, 0))
    world.append(partition=0)
    world.append(partition=1)
    assert world.ready() == {1: [1]}
    session.held.clear()
    assert world.ready() == {1: [1, 0]}
    session.held.add(1)
    assert [batch.tp.partition for batch in world.send()] == [0], "it was ready"
    assert world.ready() == {}


def test_a_session_may_want_no_linger() -> None:
    world = Produced(linger=5.0)
    world.append()
    assert world.ready() == {}
    world.session.hurries = True  # as a commit does
    assert world.ready() == {1: [0]}


# What takes too long


def test_a_batch_that_was_never_sent_expires_and_is_certainly_not_stored() -> None:
    world = Produced(delivery_timeout=10.0)
    batch = world.append()
    world.leaders[0] = 9
    assert world.look_at() == 110.0
    world.now = 109.9
    world.accumulator.expire(world.now)
    assert world.finished() == []
    world.now = 110.0
    world.accumulator.expire(world.now)
    assert world.finished() == [batch]
    assert isinstance(batch.outcome, Failure)
    assert (batch.outcome.cause, batch.outcome.persisted) == (Cause.EXPIRED, "no")
    assert world.accumulator.used == 0
    world.leaders[0] = 1
    appended = world.append()
    (next_batch,) = world.send()
    assert next_batch is appended
    assert (next_batch.identity.epoch, next_batch.sequence) == (0, 0), "no sequence was lost with it"


def test_a_batch_that_expires_in_flight_may_be_stored_and_the_partition_waits_for_its_answer() -> None:
    """Nothing new is sent before; its late acknowledgement shows that no sequence was lost."""
    world = Produced(delivery_timeout=10.0)
    batch = world.append()
    world.send()
    world.now = 110.0
    world.accumulator.expire(world.now)
    assert isinstance(batch.outcome, Failure)
    assert batch.outcome.persisted == "maybe"
    assert world.accumulator.used > 0, "its frame is still being written, perhaps"
    assert world.accumulator.queues.unanswered == 0
    assert world.look_at() == inf, "nothing is to be done before the answer"
    world.append()
    assert world.send() == []
    world.answer(batch, offset=5)
    assert isinstance(batch.outcome, Failure), "its outcome stays what it was"
    (second,) = world.send()
    assert (second.identity.epoch, second.sequence) == (0, 1)


def test_where_something_held_the_loop_a_batch_that_was_never_sent_is_sent_and_one_in_flight_answered() -> None:
    """The driver looks at the clock before it reads from the sockets, so an answer may lie there."""
    world = Produced(delivery_timeout=10.0)
    first = world.append()
    world.send()
    second = world.append()
    world.now = 150.0
    world.accumulator.expire(world.now, late=40.0)
    assert world.finished() == []
    assert world.send() == [second]
    assert world.look_at() == 151.0
    world.now = 150.9
    world.answer(first, offset=5)
    world.answer(second, offset=6)
    assert world.finished() == [first, second]
    assert world.accumulator.counters.expired == 0
    world.now = 151.0
    world.accumulator.expire(world.now)


def test_a_batch_expires_also_where_something_holds_the_loop_again_and_again() -> None:
    world = Produced(delivery_timeout=10.0)
    batch = world.append()
    world.send()
    for _ in range(3):
        world.now += 50.0
        world.accumulator.expire(world.now, late=40.0)
        assert batch.outcome is None
    world.now += 50.0
    world.accumulator.expire(world.now, late=40.0)
    assert isinstance(batch.outcome, Failure)
    assert batch.outcome.persisted == "maybe"


def test_a_batch_that_was_put_off_expires_then_unless_it_is_late_again() -> None:
    world = Produced(delivery_timeout=10.0)
    batch = world.append()
    world.now = 110.3
    world.accumulator.expire(world.now, late=0.3)
    world.now = 110.5
    world.accumulator.expire(world.now)
    assert batch.outcome is None
    world.now = 110.65
    world.accumulator.expire(world.now, late=0.05)
    assert world.finished() == [batch]


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NETWORK_EXCEPTION])
def test_a_batch_that_expires_in_flight_and_is_not_acknowledged_ends_the_epoch(code: ErrorCode) -> None:
    world = Produced(delivery_timeout=10.0)
    batch = world.append()
    world.send()
    world.now = 110.0
    world.accumulator.expire(world.now)
    world.append()
    world.answer(batch, code)
    (second,) = world.send()
    assert (second.identity.epoch, second.sequence) == (1, 0)
    assert world.accumulator.used == second.size + BATCH_COST


def test_a_batch_that_was_sent_and_waits_for_another_attempt_expires_with_what_is_known() -> None:
    for code, persisted in ((ErrorCode.NOT_LEADER_OR_FOLLOWER, "no"), (ErrorCode.REQUEST_TIMED_OUT, "maybe")):
        world = Produced(delivery_timeout=10.0)
        batch = world.append()
        world.send()
        world.answer(batch, code)
        world.now = 110.0
        world.accumulator.expire(world.now)
        assert isinstance(batch.outcome, Failure)
        assert (batch.outcome.persisted, batch.outcome.code) == (persisted, code)
        world.append()
        (second,) = world.send()
        assert (second.identity.epoch, second.sequence) == (1, 0), "the sequence of the first one is lost"


def test_every_batch_ends_when_the_producer_does() -> None:
    world = Produced()
    sent, waits = world.fill(2)
    world.send()
    world.accumulator.fail_all(Failure(Cause.CLOSED))
    assert world.finished() == [sent, waits]
    assert isinstance(sent.outcome, Failure)
    assert isinstance(waits.outcome, Failure)
    assert (sent.outcome.persisted, waits.outcome.persisted) == ("maybe", "no")
    assert world.accumulator.used == world.accumulator.queues.unanswered == 0
    world.answer(sent, ErrorCode.NOT_LEADER_OR_FOLLOWER)  # comes late
    assert isinstance(sent.outcome, Failure)
    assert world.accumulator.queues.active == []


# A topic that is created again


def test_records_of_a_topic_do_not_land_in_its_successor() -> None:
    """What waits fails at once, what is in flight unless the old topic stored it."""
    world = Produced(window=5)
    world.topic_id = UUID(int=1)
    stored, refused, waits = world.fill(3)
    assert world.send() == [stored]
    assert world.send() == [refused]
    world.topic_id = UUID(int=2)
    assert world.ready() == {}
    assert isinstance(waits.outcome, Failure)
    assert (waits.outcome.cause, waits.outcome.persisted) == (Cause.RECREATED, "no")
    world.answer(stored)
    world.answer(refused, ErrorCode.UNKNOWN_TOPIC_ID)
    assert not isinstance(stored.outcome, Failure)
    assert isinstance(refused.outcome, Failure)
    assert refused.outcome.cause is Cause.RECREATED
    world.append()
    (next_batch,) = world.send()
    assert next_batch.topic_id == UUID(int=2)
    assert (next_batch.identity.epoch, next_batch.sequence) == (1, 0)


def test_the_sequences_go_on_in_a_new_topic_of_the_name() -> None:
    """Sent by name, what has sequence 0 may lie in the new topic. Another record of that number would pass for it."""
    world = Produced(window=5)
    world.topic_id = UUID(int=1)
    world.append()
    world.answer(world.send_one())
    world.topic_id = UUID(int=2)
    world.append()
    assert world.send() == [], "it was appended for the topic that the metadata had"
    world.fill(2)
    batch = world.send_one()
    assert (batch.identity.epoch, batch.sequence) == (0, 1)
    assert world.send() == [], "the first one goes alone: the new topic may refuse to begin with it"
    world.answer(batch)
    assert world.send_one().sequence == 2


def test_what_the_old_topic_still_stores_does_not_count_in_the_new_one() -> None:
    world = Produced()
    world.topic_id = UUID(int=1)
    world.append()
    in_flight = world.send_one()
    world.topic_id = UUID(int=2)
    assert world.ready() == {}
    world.answer(in_flight)
    world.append()
    batch = world.send_one()
    assert (batch.identity.epoch, batch.sequence) == (1, 0)


def test_a_topic_that_is_gone_is_waited_for() -> None:
    world = Produced()
    world.append()
    found = world.accumulator.ready(Cluster(), world.now, hurry=False)
    assert [queue.tp.partition for queue in found.without_leader] == [0]


def test_an_id_that_becomes_known_is_no_other_topic() -> None:
    world = Produced()
    batch = world.append()
    world.topic_id = UUID(int=1)
    assert world.send() == [batch]
    assert batch.topic_id == UUID(int=1)
    world.topic_id = None  # asked of an older broker
    world.answer(batch)
    world.append()
    assert world.look_at() < inf
    assert len(world.send()) == 1


def test_a_topic_that_is_forgotten_begins_again_in_another_epoch() -> None:
    """Brokers remember the sequences of its partitions: from 0 on under the same epoch they would look like repeats."""
    world = Produced(partitions=2)
    for _ in range(2):
        world.append()
        world.answer(world.send_one())
    queue = world.queue()
    world.accumulator.forget("t", 2)
    assert world.queue() is not queue
    world.append()
    world.append(partition=1)
    for batch in world.send():
        assert (batch.identity, batch.sequence) == (ProducerIdentity(7, 1), 0)
    assert world.session.identity == ProducerIdentity(7, 1), "one epoch for all partitions"


def test_a_partition_that_is_not_at_rest_is_not_forgotten() -> None:
    world = Produced(partitions=3)
    waiting, sent = world.append(partition=0), world.append(partition=1)
    world.answer(world.send()[1])
    queues = [world.queue(partition) for partition in range(3)]
    assert (len(queues[0]), len(queues[1])) == (1, 0)
    world.accumulator.forget("t", 3)
    assert [world.queue(partition) is queue for partition, queue in enumerate(queues)] == [True, False, False]
    world.answer(waiting)
    after = world.append(partition=0)
    assert world.send() == [after]
    assert (sent.identity, after.identity) == (ProducerIdentity(7, 0), ProducerIdentity(7, 1))


def test_what_was_counted_of_a_forgotten_partition_still_counts() -> None:
    world = Produced()
    world.append()
    world.answer(world.send_one())
    queue = world.queue()
    queue.begun_anew, queue.renumbered = 3, 2
    world.accumulator.forget("t", 1)
    assert world.accumulator.queues.counted() == (1, 2, 3)


def test_another_thread_that_asks_while_a_partition_is_forgotten_waits_for_its_figures() -> None:
    looked, answers = threading.Event(), list[Counted]()

    class Known(dict[TopicPartition, PartitionQueue]):
        def values(self) -> Any:
            looked.set()
            return super().values()

        def __delitem__(self, tp: TopicPartition) -> None:
            super().__delitem__(tp)
            reader.start()
            assert looked.wait(20)

    world = Produced()
    queues = world.accumulator.queues
    world.append()
    world.answer(world.send_one())
    queues.known = Known(queues.known)
    reader = threading.Thread(target=lambda: answers.append(queues.counted()))
    world.accumulator.forget("t", 1)
    reader.join(20)
    assert answers == [(1, 0, 0)]


def test_a_request_has_so_many_batches_at_most_and_the_others_come_next() -> None:
    """With thousands of partitions, one request for all of them would hold the event loop."""
    count = 2 * MOST_BATCHES + 1
    world = Produced(partitions=count)
    for partition in range(count):
        world.append(partition=partition)
    requests = [world.send() for _ in range(4)]
    assert [len(batches) for batches in requests] == [MOST_BATCHES, MOST_BATCHES, 1, 0]
    assert [batch.tp.partition for batches in requests for batch in batches] == list(range(count))


def test_the_oldest_batch_is_found_again_after_others_have_expired() -> None:
    """What is in flight alone is not looked at each time."""
    world = Produced(partitions=2, delivery_timeout=10.0)
    world.append(partition=0)
    world.now = 105.0
    sent = world.append(partition=1)
    assert len(world.send()) == 2
    world.now = 110.0
    world.accumulator.expire(world.now)
    (first,) = world.finished()
    assert first.tp.partition == 0
    assert world.look_at() == 115.0
    world.now = 115.0
    world.accumulator.expire(world.now)
    assert world.finished() == [sent]


def test_what_was_ready_for_a_former_leader_is_ready_for_the_new_one_only() -> None:
    world = Produced()
    world.append()
    assert world.ready() == {1: [0]}
    world.leaders[0] = 2
    assert world.ready() == {2: [0]}
