"""settle(): what each answer does to a batch, to the sequences of its partition, and to the batches behind it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

import pytest

from aiokc.core.produce.batch import ProducerBatch, Stored
from aiokc.core.produce.batch_memory import BATCH_COST
from aiokc.core.produce.failure import Cause, Failure, Harm
from aiokc.core.produce.identity import LAST_EPOCH, SEQUENCES, ProducerIdentity
from aiokc.core.produce.session import PlainSession
from aiokc.core.produce.settling import unanswered, written
from aiokc.core.produce.verdicts import Verdict
from aiokc.error_codes import ErrorCode
from aiokc.records import Codec, open_batch, split_batches
from aiokc.types import TopicPartition

from .one_partition import Produced


def numbers(batch: ProducerBatch) -> tuple[int, int]:
    return batch.identity.epoch, batch.sequence


def contents(batch: ProducerBatch) -> list[bytes | None]:
    ((header, view),) = split_batches(memoryview(bytes(batch.frame())))
    reader = open_batch(header, view, topic="t", partition=0, max_decompressed_bytes=1 << 30)
    return [record.value for record in reader.take(header.record_count)]


def test_sequences_count_records() -> None:
    world = Produced(batch_size=10_000)
    for _ in range(3):
        world.append()
    assert numbers(world.send_one()) == (0, 0)
    world.append()
    assert numbers(world.send_one()) == (0, 3)


def test_a_sequence_wraps_around() -> None:
    """After 2**31 - 1 comes 0."""
    world = Produced()
    first, second = world.fill(2)
    world.send()
    world.answer(first)
    sequences = world.queue().sequences
    sequences.next = sequences.expected = SEQUENCES - 1
    assert numbers(world.send_one()) == (0, SEQUENCES - 1)
    world.answer(second)
    world.append()
    third = world.send_one()
    assert numbers(third) == (0, 0)
    assert world.answer(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.GAP
    assert world.queue().lost_sequence, "it was the next one"


def test_the_same_bytes_are_sent_again() -> None:
    world = Produced()
    batch = world.append()
    world.send()
    sent = bytes(batch.frame())
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.CORRUPT_MESSAGE):
        world.answer(batch, code)
        world.append()  # there was room, but the batch is sealed
        world.now += 1
        assert world.send() == [batch]
        assert bytes(batch.frame()) == sent
    world.answer(batch)
    assert isinstance(batch.outcome, Stored)


def test_a_retry_waits_for_its_pause_unless_the_leader_has_moved() -> None:
    """A new leader need not be spared (KIP-951)."""
    world = Produced()
    batch = world.append()
    world.send()
    world.answer(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.send() == []
    assert world.look_at() == world.now + 0.1
    world.leaders[0] = 2
    assert world.send(2) == [batch]
    world.answer(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.send(2) == []
    world.epochs[0] = 1
    assert world.send(2) == [batch], "the same broker leads in another epoch"


def test_five_in_flight_and_the_first_fails() -> None:
    """Those behind it come too early for the broker, and all are sent again one by one, in order."""
    world = Produced()
    batches = world.fill(5)
    sent = [world.send_one() for _ in range(5)]
    assert sent == batches
    frames = [bytes(batch.frame()) for batch in batches]
    world.answer(batches[0], ErrorCode.NOT_ENOUGH_REPLICAS)
    for batch in batches[1:]:
        assert world.answer(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.GAP
    world.fill(1)
    again: list[ProducerBatch] = []
    while len(again) < 5:
        world.now += 1
        again.append(world.send_one())
        assert bytes(again[-1].frame()) == frames[len(again) - 1]
        if len(again) < 5:
            assert world.send() == [], "one at a time"
        world.answer(again[-1])
    assert again == batches
    assert world.accumulator.queues.counted().begun_anew == 0


def test_a_retry_waits_until_those_behind_it_are_answered() -> None:
    world = Produced()
    first, second = world.fill(2)
    world.send()
    world.send()
    world.answer(first, ErrorCode.NOT_ENOUGH_REPLICAS)
    world.now += 1
    assert world.send() == [], "the answer of the second one may still be that it was stored"
    world.answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.now += 1
    assert world.send() == [first]


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_retry_waits_for_those_behind_it_also_when_one_of_them_was_stored(idempotent: bool) -> None:
    """A broker may have taken the second one without the first (of a producer without idempotence it always does);
    the third is in flight still."""
    world = Produced(idempotent=idempotent)
    first, second, third = world.fill(3)
    for _ in range(3):
        world.send()
    world.answer(first, ErrorCode.NOT_ENOUGH_REPLICAS)
    world.answer(second)
    world.now += 1
    assert world.send() == []
    world.answer(third)
    assert world.send() == [first]


def test_a_new_leader_gets_one_batch_until_it_has_stored_one() -> None:
    """And none while the old one has any (franz-go #223)."""
    world = Produced()
    first, second, third = world.fill(3)
    world.send()
    world.leaders[0] = 2
    assert world.send(2) == []
    world.answer(first)
    assert world.send(2) == [second]
    assert world.send(2) == []
    world.answer(second)
    assert world.send(2) == [third]


def passed_over(code: ErrorCode) -> tuple[Produced, ProducerBatch, ProducerBatch, ProducerBatch]:
    """The first of three batches gets ``code``, the second is stored, the third gets no answer; and they are answered.

    The first is in flight again.
    """
    world = Produced()
    first, second, third = world.fill(3)
    for _ in range(3):
        world.send_one()
    world.answer(first, code)
    world.answer(second)
    unanswered(world.accumulator, third, "gone", world.now)
    world.now += 1
    assert world.send_one() is first
    return world, first, second, third


@pytest.mark.parametrize(
    ("code", "persisted"), [(ErrorCode.NOT_ENOUGH_REPLICAS, "no"), (ErrorCode.REQUEST_TIMED_OUT, "maybe")]
)
def test_a_batch_that_was_passed_over_fails_at_once_and_those_behind_it_keep_their_place(
    code: ErrorCode, persisted: str
) -> None:
    """KAFKA-15591: sent again, it would be refused until its time is over, and hold up the others.

    The one behind it may be stored, so it goes out as it was: in another epoch it might be stored twice.
    """
    world, first, second, third = passed_over(code)
    before = numbers(third)
    assert world.answer(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.GAP
    assert isinstance(first.outcome, Failure)
    assert (first.outcome.cause, first.outcome.persisted) == (Cause.REFUSED, persisted)
    assert "a later batch is stored" in first.outcome.text
    assert world.send_one() is third
    assert numbers(third) == before
    world.answer(third)
    assert isinstance(second.outcome, Stored)
    assert isinstance(third.outcome, Stored)
    assert world.queue().begun_anew == 0


def test_a_batch_that_was_passed_over_may_be_the_duplicate_of_itself() -> None:
    world, first, _, _ = passed_over(ErrorCode.REQUEST_TIMED_OUT)
    world.answer(first, 0, 0)
    assert first.outcome == Stored(0)


def _passed_over_and_refused(code: ErrorCode) -> tuple[Produced, ProducerBatch]:
    """The first of three batches gets ``code``, the second is stored, and the third fails for good: a gap."""
    world = Produced()
    first, second, third = world.fill(3)
    for _ in range(3):
        world.send_one()
    world.answer(first, code)
    world.answer(second)
    world.answer(third, ErrorCode.INVALID_RECORD)
    return world, first


def _passed_over_and_expired(code: ErrorCode) -> tuple[Produced, ProducerBatch]:
    """A batch before the two expires in flight, and is stored all the same: nothing is lost."""
    world = Produced(delivery_timeout=5.0)
    (early,) = world.fill(1)
    world.send_one()
    world.now += 4
    first, second = world.fill(2)
    for _ in range(2):
        world.send_one()
    world.now += 2
    world.accumulator.expire(world.now)
    assert isinstance(early.outcome, Failure)
    world.answer(early)
    world.answer(first, code)
    world.answer(second)
    return world, first


@pytest.mark.parametrize(("story", "gap"), [(_passed_over_and_refused, True), (_passed_over_and_expired, False)])
def test_a_batch_that_was_passed_over_is_not_numbered_anew_because_of_another_one(
    story: Callable[[ErrorCode], tuple[Produced, ProducerBatch]], gap: bool
) -> None:
    """It may be stored under its number; behind the second one it has no place."""
    for code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS):
        world, first = story(code)
        world.now += 1
        before = numbers(first)
        (behind,) = world.fill(1)
        assert world.send_one() is first
        assert numbers(first) == before
        assert world.send() == [], "nothing else, before that is answered"
        if code == ErrorCode.REQUEST_TIMED_OUT:
            world.answer(first, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
            assert isinstance(first.outcome, Stored)
        else:
            world.answer(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            assert isinstance(first.outcome, Failure)
        assert world.send_one() is behind
        assert numbers(behind) == ((1, 0) if gap else (0, 3))
        assert world.queue().renumbered == 0


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_batch_that_was_passed_over_is_not_numbered_anew_where_the_broker_knows_no_producer(code: ErrorCode) -> None:
    world, first, _, third = passed_over(ErrorCode.REQUEST_TIMED_OUT)
    world.answer(first, code, log_start_offset=10)
    assert isinstance(first.outcome, Failure)
    assert (first.outcome.cause, first.outcome.persisted) == (Cause.REFUSED, "maybe")
    assert world.send_one() is third


def test_those_behind_a_batch_that_was_passed_over_begin_another_epoch_where_the_broker_counts_otherwise() -> None:
    world, first, _, third = passed_over(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.answer(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert world.send_one() is third
    world.answer(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.now += 1
    assert world.send_one() is third
    assert numbers(third) == (1, 0)


def test_a_gap_at_the_head_begins_another_epoch() -> None:
    """The batch that has to be the next one is refused, so the broker counts otherwise."""
    world = Produced()
    first, second, third = world.fill(3)
    for _ in range(3):
        world.send()
    world.answer(first)
    world.answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert world.send() == [], "the third one is still in flight under the old epoch"
    world.answer(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.now += 1
    assert world.send() == [second]
    assert numbers(second) == (1, 0)
    assert numbers(third) == (-1, -1)
    world.answer(second)
    assert world.send() == [third]
    assert numbers(third) == (1, 1)
    assert world.accumulator.queues.counted().begun_anew == 1


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_broker_that_does_not_know_the_producer_gets_another_epoch(code: ErrorCode) -> None:
    world = Produced()
    first, second = world.fill(2)
    world.send()
    world.send()
    world.answer(first, code, log_start_offset=10)
    world.answer(second, code, log_start_offset=10)
    world.now += 1
    assert world.send() == [first]
    assert numbers(first) == (1, 0)


def test_an_unknown_producer_id_without_a_log_start_is_tried_again() -> None:
    world = Produced()
    first = world.append()
    world.send()
    world.answer(first, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=-1)
    world.now += 1
    assert world.send() == [first]
    assert numbers(first) == (0, 0)


def test_other_partitions_change_over_when_they_have_nothing_unfinished() -> None:
    """A bump under batches in flight would let a retry of them be stored twice (KAFKA-12152)."""
    world = Produced(partitions=2)
    (broken,) = world.fill(1, 0)
    first, second, third = world.fill(3, 1)
    assert world.send() == [broken, first]
    world.answer(broken, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.now += 1
    assert set(world.send()) == {broken, second}
    assert numbers(broken) == (1, 0)
    assert numbers(second) == (0, 1)
    world.answer(first)
    world.answer(second)
    assert world.send() == [third]
    assert numbers(third) == (1, 0)


def test_after_the_last_epoch_another_id_is_asked_for() -> None:
    world = Produced()
    world.session.initialized(ProducerIdentity(7, LAST_EPOCH))
    batch = world.append()
    world.send()
    world.answer(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.now += 1
    assert world.send() == []
    assert world.session.wants_id
    world.session.initialized(ProducerIdentity(8, 0))
    assert world.send() == [batch]
    assert batch.identity == ProducerIdentity(8, 0)


def test_nothing_is_sent_before_there_is_an_id() -> None:
    world = Produced()
    world.session.identity = None
    batch = world.append()
    assert world.send() == []
    world.session.initialized(ProducerIdentity(8, 0))
    assert world.send() == [batch]


def test_a_definite_failure_gives_its_sequence_up() -> None:
    """In the next epoch the partition goes on from 0; a retry under the same epoch would meet a gap for ever."""
    world = Produced()
    first, second, third = world.fill(3)
    for _ in range(3):
        world.send()
    world.answer(first, ErrorCode.INVALID_RECORD)
    assert isinstance(first.outcome, Failure)
    assert first.outcome.persisted == "no"
    world.answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.answer(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.now += 1
    assert world.send() == [second]
    assert numbers(second) == (1, 0)


def test_a_refusal_after_an_attempt_that_ended_unclear_is_maybe() -> None:
    world = Produced()
    batch = world.append()
    world.send()
    unanswered(world.accumulator, batch, "gone", world.now)
    world.now += 1
    world.send()
    world.answer(batch, ErrorCode.INVALID_RECORD)
    assert isinstance(batch.outcome, Failure)
    assert batch.outcome.persisted == "maybe"


@pytest.mark.parametrize(
    ("code", "offset", "persisted"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, "maybe"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 7, "maybe"),
        (ErrorCode.KAFKA_STORAGE_ERROR, 7, "maybe"),
        (ErrorCode.NOT_ENOUGH_REPLICAS, 7, "maybe"),
        (ErrorCode.KAFKA_STORAGE_ERROR, -1, "maybe"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, "no"),
    ],
)
def test_a_refusal_with_an_offset_came_after_the_append(code: ErrorCode, offset: int, persisted: str) -> None:
    """A leader that loses the partition while a batch waits for the followers answers so (Kafka's DelayedProduce).

    The disk may fail in the midst of the append: the segment has the batch then, and the answer has no offset.
    """
    world = Produced(delivery_timeout=10.0)
    batch = world.append()
    world.send()
    world.answer(batch, code, offset)
    world.now += 11
    world.accumulator.expire(world.now)
    assert isinstance(batch.outcome, Failure)
    assert batch.outcome.persisted == persisted


@pytest.mark.parametrize("begins_at", [0, SEQUENCES - 2], ids=["", "wraps around"])
def test_a_batch_that_is_acknowledged_behind_a_later_one_takes_no_sequence_back(begins_at: int) -> None:
    """Else the third batch would seem to have lost its place, and be stored a second time in another epoch:

    1. All three are stored; the first and the third get REQUEST_TIMED_OUT, since a follower was late.
    2. The first is sent again, expires, and is acknowledged, as the duplicate that it is.
    3. The third is sent again, under its own sequence.
    """
    world = Produced(delivery_timeout=10.0)
    sequences = world.queue().sequences
    sequences.next = sequences.expected = begins_at
    sent: list[ProducerBatch] = []
    for _ in range(3):
        sent += world.fill(1)
        world.send_one()
        world.now += 1
    first, second, third = sent
    before = numbers(third)
    world.answer(first, ErrorCode.REQUEST_TIMED_OUT, 0)
    world.answer(second, 0, 1)
    world.answer(third, ErrorCode.REQUEST_TIMED_OUT, 2)
    world.now += 1
    assert world.send_one() is first
    world.now = 110.5
    world.accumulator.expire(world.now)
    assert isinstance(first.outcome, Failure)
    world.answer(first, 0, 0)
    assert world.send_one() is third
    assert numbers(third) == before
    assert world.queue().renumbered == 0


def test_what_a_lost_leader_had_appended_is_not_sent_again_in_another_epoch_where_that_is_off() -> None:
    """The next leader may have it under its former sequence."""
    world = Produced()
    world.session.renumbers_unclear = False
    batch = world.append()
    world.send()
    world.answer(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    world.now += 1
    world.send()
    world.answer(batch, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=1)
    world.now += 1
    assert world.send() == []
    assert isinstance(batch.outcome, Failure)
    assert (batch.outcome.cause, batch.outcome.persisted) == (Cause.UNCLEAR, "maybe")


def test_a_batch_that_gets_another_sequence_though_it_may_be_stored_is_counted() -> None:
    world = Produced()
    batch = world.append()
    world.send()
    unanswered(world.accumulator, batch, "gone", world.now)
    world.now += 1
    world.send()
    world.answer(batch, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=1)
    world.now += 1
    world.send()
    assert world.queue().renumbered == 1


def test_where_what_may_be_stored_may_not_be_sent_again_it_fails_and_the_partition_goes_on() -> None:
    """The batch behind it had a definite answer, and begins the next epoch."""
    world = Produced()
    world.session.renumbers_unclear = False
    first, second, third = world.fill(3)
    for _ in range(2):
        world.send_one()
    unanswered(world.accumulator, first, "gone", world.now)
    world.answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.now += 1
    assert world.send_one() is first
    world.answer(first, ErrorCode.INVALID_PRODUCER_EPOCH)
    world.now += 1
    used = world.accumulator.used
    assert world.send_one() is second
    assert isinstance(first.outcome, Failure)
    assert (first.outcome.cause, first.outcome.persisted) == (Cause.UNCLEAR, "maybe")
    assert first in world.finished()
    assert world.accumulator.used < used
    assert (second.identity, second.sequence) == (ProducerIdentity(7, 1), 0)
    assert world.queue().renumbered == 0
    world.answer(second)
    assert world.send_one() is third
    assert third.sequence == 1


@pytest.mark.parametrize("offset", [-1, 7])
def test_a_duplicate_is_stored_at_an_unknown_offset(offset: int) -> None:
    """Whatever offset comes with the error: it need not be that of the first arrival."""
    world = Produced()
    batch = world.append()
    world.send()
    world.answer(batch, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, offset)
    assert batch.outcome == Stored(None)


def test_an_offset_that_the_broker_does_not_tell_is_unknown() -> None:
    world = Produced()
    batch = world.append()
    world.send()
    world.answer(batch, 0, -1)
    assert batch.outcome == Stored(None)


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_where_no_other_epoch_may_begin_the_batch_fails(code: ErrorCode) -> None:
    """A transaction has to be aborted then."""

    class Unbending(PlainSession):
        renumbers = False
        failures: ClassVar[list[Failure]] = []

        def failed(self, tp: TopicPartition, failure: Failure) -> None:
            self.failures.append(failure)

        def bump(self, lost: ProducerIdentity) -> None:
            return None

    world = Produced()
    world.accumulator.session = session = Unbending(idempotent=True)
    session.initialized(ProducerIdentity(7, 0))
    first, second = world.fill(2)
    world.send()
    world.send()
    world.answer(first, code, text="why")
    world.answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    (failure,) = session.failures
    assert first.outcome is failure
    assert (failure.code, failure.text, failure.harm) == (code, "why", Harm.TRANSACTION)
    world.now += 1
    assert world.send() == [], "nothing goes on before the session has another identity"
    assert second.outcome is None


def test_the_brokers_timestamp_is_told() -> None:
    world = Produced()
    batch = world.append()
    world.send()
    world.answer(batch, 0, 5, append_time=1234)
    assert batch.outcome == Stored(5, 1234)


# Batches that are too large


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_a_batch_that_is_too_large_is_split_in_order_under_the_same_sequences(code: ErrorCode) -> None:
    world = Produced(batch_size=2000)
    batch = world.append_all([b"%02d" % number + bytes(100) for number in range(10)])
    world.accumulator.options = Produced(batch_size=300).accumulator.options
    world.send()
    later = world.append()
    world.accumulator.ratios.closed("t", 1000, 100)  # it looked as if the topic compressed well
    assert world.answer(batch, code) is Verdict.SPLIT
    assert batch.outcome is None
    waiting = list(world.queue().waiting)
    assert world.accumulator.used == sum(one.size + BATCH_COST for one in waiting)
    assert world.accumulator.ratios["t"] >= 1.0
    found: list[bytes | None] = []
    sequence = 0
    while not found or len(found) < 10:
        part = world.send_one()
        assert part.created == batch.created
        assert numbers(part) == (0, sequence)
        assert len(part.frame()) <= 300
        sequence += part.count
        found += contents(part)
        world.answer(part, 0, sequence)
    assert [value[:2] for value in found if value] == [b"%02d" % number for number in range(10)]
    assert numbers(world.send_one()) == (0, 10)
    assert later.sequence == 10
    assert batch.find(9)[0].outcome is not None


def test_parts_are_split_again_down_to_single_records() -> None:
    """To half, never under the largest record; then it is the record that is too large."""
    world = Produced(batch_size=10_000)
    batch = world.append_all([bytes(400)] * 8)
    world.send()
    world.answer(batch, ErrorCode.MESSAGE_TOO_LARGE)
    splits = 0
    failed = 0
    for _ in range(40):
        world.now += 1
        for part in world.send():
            if len(part.frame()) > 300 and part.count > 1:
                splits += 1
            failed += world.answer(part, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT and part.outcome is not None
    assert splits > 2
    assert failed == 8
    assert world.accumulator.queues.unanswered == world.accumulator.used == 0


def test_a_split_may_take_more_memory_than_there_is_and_nothing_is_appended_before_there_is_room() -> None:
    """Each part counts with what describes a batch, as it takes that memory."""
    world = Produced(batch_size=4_000, buffer_memory=5_000)
    batch = world.append_all([bytes(900)] * 4)
    assert world.accumulator.used <= 5_000
    world.send()
    world.answer(batch, ErrorCode.MESSAGE_TOO_LARGE)
    assert world.accumulator.used == sum(part.size + BATCH_COST for part in world.queue().waiting) > 5_000
    assert not world.accumulator.has_room(0)
    for _ in batch.parts:
        world.answer(world.send_one())
    assert world.accumulator.used == 0


def test_parts_are_smaller_also_where_compression_makes_records_longer() -> None:
    """A part with all records of the batch would be refused like the batch, and split again, without end."""
    world = Produced(batch_size=1_000, codec=Codec.GZIP)
    random = Random(3)
    batch = world.append_all([random.randbytes(84) for _ in range(10)])
    world.send()
    assert batch.size > 1_000
    assert world.answer(batch, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT
    assert [part.count for part in batch.parts] == [4, 4, 2]


def test_a_flush_waits_for_the_parts_of_a_split() -> None:
    world = Produced(batch_size=10_000)
    batch = world.append_all([bytes(400)] * 8)
    mark = world.accumulator.flush()
    world.send()
    world.answer(batch, ErrorCode.MESSAGE_TOO_LARGE)
    parts = 0
    while not mark.done:
        (part,) = world.send()
        world.answer(part)
        parts += 1
    assert parts > 1
    assert all(batch.find(index)[0].outcome is not None for index in range(8))


def test_who_waits_for_a_record_of_a_split_batch_waits_for_its_part() -> None:
    world = Produced(batch_size=10_000)
    batch = world.append_all([bytes(400)] * 8)
    for index in range(8):
        batch.waiting[f"waits for {index}"] = index
        batch.callbacks.append((index, f"called for {index}"))
    world.send()
    world.answer(batch, ErrorCode.MESSAGE_TOO_LARGE)
    seen: list[Any] = []
    for index in range(8):
        part, at = batch.find(index)
        assert part.waiting[f"waits for {index}"] == at
        assert (at, f"called for {index}") in part.callbacks
        seen += [part]
    assert (batch.waiting, batch.callbacks) == ({}, [])


def test_who_watches_records_of_a_split_batch_watches_its_parts() -> None:
    """Else flush() would raise a failure that is about to be seen."""
    world = Produced(batch_size=10_000)
    batch = world.append_all([bytes(400)] * 4)
    batch.watch("somebody", 1, 2)
    world.send()
    world.answer(batch, ErrorCode.MESSAGE_TOO_LARGE)
    assert len(batch.parts) > 1
    assert [part._seen()[at] for part, at in map(batch.find, range(4))] == [0, 1, 1, 0]


def test_a_batch_that_may_be_stored_is_not_split() -> None:
    """Its parts would be other contents under sequences that the broker may have taken."""
    world = Produced(batch_size=10_000)
    batch = world.append_all([bytes(400)] * 8)
    world.send()
    unanswered(world.accumulator, batch, "gone", world.now)
    world.now += 1
    world.send()
    world.answer(batch, ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(batch.outcome, Failure)
    assert batch.outcome.persisted == "maybe"
    assert not batch.parts
    assert "takes no batch of this size any more" in str(batch.outcome.error_of(batch.tp, 0))


def test_a_batch_that_is_too_large_was_not_stored_whatever_offset_the_broker_gives() -> None:
    world = Produced(batch_size=10_000)
    batch = world.append_all([bytes(400)] * 8)
    world.send()
    assert world.answer(batch, ErrorCode.MESSAGE_TOO_LARGE, 0) is Verdict.SPLIT
    assert len(batch.parts) > 1
    assert not any(part.unclear for part in batch.parts)


# Producers without idempotence


def test_without_idempotence_there_are_no_sequences() -> None:
    world = Produced(idempotent=False)
    first, second = world.fill(2)
    world.send()
    world.send()
    assert first.sequence == second.sequence == -1
    world.answer(first, ErrorCode.INVALID_RECORD)
    world.answer(second)
    assert world.accumulator.queues.counted().begun_anew == 0
    assert not world.queue().lost_sequence
    assert world.answer(world.append(), 0) is Verdict.STORED, "it was not sent, and nothing happens"


def test_one_in_flight_keeps_the_order_without_idempotence() -> None:
    world = Produced(idempotent=False, window=1)
    first, second = world.fill(2)
    assert world.send() == [first]
    assert world.send() == []
    world.answer(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.now += 1
    assert world.send() == [first]
    world.answer(first)
    assert world.send() == [second]


def test_what_is_not_answered_is_stored_when_it_is_written() -> None:
    world = Produced(idempotent=False)
    batch = world.append()
    world.send()
    written(world.accumulator, batch)
    assert batch.outcome == Stored(None)
    assert world.accumulator.used == 0


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_some_refusals_end_the_producer(code: ErrorCode) -> None:
    world = Produced()
    batch = world.append()
    world.send()
    world.answer(batch, code)
    assert world.session.doom is not None
    assert world.session.doom.harm is Harm.PRODUCER
    with pytest.raises(Exception, match=code.name):
        world.session.check_append()


@pytest.mark.parametrize("code", [999, -7])
def test_a_code_that_nobody_knows_says_nothing_about_the_log(code: int) -> None:
    world = Produced()
    batch = world.append()
    world.send_one()
    assert world.answer(batch, code) is Verdict.REFUSED
    assert isinstance(batch.outcome, Failure)
    assert batch.outcome.persisted == "maybe"
