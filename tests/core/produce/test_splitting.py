"""A batch that a broker finds too large is split in steps: what may happen between them, and what each may cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pytest

from aiokc.core.produce.batch import ProducerBatch
from aiokc.core.produce.failure import Cause, Failure
from aiokc.core.produce.settling import split_further
from aiokc.core.produce.verdicts import Verdict
from aiokc.error_codes import ErrorCode
from aiokc.errors import ProduceError
from aiokc.records import Codec
from aiokc.records.encoding.batch_builder import ClosedBatch, OpenBatch
from tests.core.produce.one_partition import Produced

RECORDS = 1000


def too_large(world: Produced) -> ProducerBatch:
    """Return a batch of many records that its broker has just refused."""
    batch = world.append_all([b"%04d" % number for number in range(RECORDS)])
    world.send()
    assert world.only_answer(batch, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT
    return batch


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_each_step_moves_few_records_and_the_answer_none(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, a batch of 1 MiB would hold the event loop for ten milliseconds, and one of 16 MiB for a hundred."""
    world = Produced(batch_size=100_000, codec=codec)
    moved: list[int] = []

    class Counting(OpenBatch):
        __slots__ = ()

        def append(self, *record: object) -> bool:
            moved[-1] += 1
            return super().append(*record)  # type: ignore[arg-type]

    monkeypatch.setattr("aiokc.records.encoding.batch_builder.OpenBatch", Counting)
    moved.append(0)
    batch = too_large(world)
    assert moved == [0]
    while world.accumulator.splits:
        moved.append(0)
        split_further(world.accumulator)
    assert max(moved) <= 130
    assert RECORDS <= sum(moved) < RECORDS + 3 * len(batch.parts)


def test_nothing_of_the_partition_is_sent_until_the_parts_are_there() -> None:
    world = Produced(batch_size=16_000, partitions=2)
    batch = too_large(world)
    later = world.append()
    assert later is not batch
    other = world.append(partition=1)
    assert world.send_one() is other
    world.only_answer(other)
    while split_further(world.accumulator):
        assert world.send() == []
        assert world.look_at() == batch.created + 120.0, "each step is the sender's next turn, without a timer"
        assert world.accumulator.queues.unanswered == 2
    sent = []
    while world.accumulator.queues.unanswered:
        for one in world.send():
            if one.tp.partition == 0:
                sent.append(one)
            world.answer(one)
    assert sent == [*batch.parts, later]
    assert [one.sequence for one in sent] == [*batch.starts, RECORDS]
    assert world.accumulator.used == 0


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_it_may_expire_while_it_is_split(steps: int) -> None:
    world = Produced(batch_size=16_000, delivery_timeout=10.0)
    batch = too_large(world)
    for _ in range(steps):
        split_further(world.accumulator)
    world.now += 10.0
    world.accumulator.expire(world.now)
    assert isinstance(batch.outcome, Failure)
    assert (batch.outcome.cause, batch.outcome.persisted) == (Cause.EXPIRED, "no")
    assert batch.outcome.text == "it was still to be split"
    assert not split_further(world.accumulator)
    assert (batch.parts, world.accumulator.used) == ((), 0)
    next_one = world.append()
    assert world.send() == [next_one]
    assert next_one.identity.epoch == 1, "no record will ever have the sequences of those that were not sent again"


def test_the_parts_expire_when_it_would_have() -> None:
    """As often as it was put off, they are not put off again."""
    world = Produced(batch_size=16_000, delivery_timeout=10.0)
    batch = too_large(world)
    for _ in range(3):
        world.now += 20.0
        world.accumulator.expire(world.now, late=5.0)
    while split_further(world.accumulator):
        pass
    assert len(batch.parts) > 1
    world.now += 0.9
    world.accumulator.expire(world.now)
    assert not any(part.outcome for part in batch.parts)
    world.now += 5.0
    world.accumulator.expire(world.now, late=4.9)
    assert all(isinstance(part.outcome, Failure) for part in batch.parts)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_it_may_be_aborted_while_it_is_split(steps: int) -> None:
    """As a transaction ends what is not in flight (KIP-654), and stop() what is left."""
    world = Produced(batch_size=16_000)
    batch = too_large(world)
    for _ in range(steps):
        split_further(world.accumulator)
    world.accumulator.fail_waiting(Failure(Cause.ABORTED))
    assert world.finished() == [batch]
    assert not split_further(world.accumulator)
    assert (batch.parts, world.accumulator.used, world.send()) == ((), 0, [])


def test_a_flush_and_a_callback_that_come_while_it_is_split_are_of_the_parts() -> None:
    world = Produced(batch_size=16_000)
    batch = too_large(world)
    split_further(world.accumulator)
    mark = world.accumulator.flush()
    batch.call_when_done(RECORDS - 1, "told")
    while split_further(world.accumulator):
        pass
    assert len(batch.parts) > 1
    part, index = batch.find(RECORDS - 1)
    assert part.callbacks == [(index, "told")]
    for _ in batch.parts:
        assert not mark.done
        world.answer(world.send_one())
    assert mark.done


def test_a_partition_that_begins_anew_meanwhile_numbers_the_parts_anew() -> None:
    """1. A batch is refused as too large, and is being split. 2. The next one, in flight, is refused for good."""
    world = Produced(batch_size=16_000)
    batch = world.append_all([b"%04d" % number for number in range(RECORDS)])
    world.accumulator.seal(world.queue())
    world.send()
    refused = world.append()
    world.send()
    world.only_answer(batch, ErrorCode.MESSAGE_TOO_LARGE)
    split_further(world.accumulator)
    world.only_answer(refused, ErrorCode.INVALID_RECORD)
    assert world.send() == []
    while split_further(world.accumulator):
        pass
    part = world.send_one()
    assert part is batch.parts[0]
    assert (part.identity.epoch, part.sequence) == (1, 0)


def test_several_are_split_one_after_the_other() -> None:
    world = Produced(batch_size=16_000, partitions=3)
    batches = [world.append(b"%d" % number, partition) for partition in range(3) for number in range(300)][::300]
    world.send()
    for batch in batches:
        world.only_answer(batch, ErrorCode.MESSAGE_TOO_LARGE)
    done = []
    while split_further(world.accumulator):
        done.append([bool(batch.parts) for batch in batches])
    assert all(batch.parts for batch in batches)
    assert [True, False, False] in done
    assert world.ready() == {1: [0, 1, 2]}


def no_memory(*_: object) -> NoReturn:
    raise MemoryError("no room")


def variables_of(error: BaseException) -> Iterator[object]:
    """All that the frames of an error's traceback refer to."""
    traced = error.__traceback__
    while traced is not None:
        yield from traced.tb_frame.f_locals.values()
        traced = traced.tb_next


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(
    ("steps", "lacks"),
    [
        (0, "aiokc.records.encoding.batch_builder.decompress"),
        (0, "aiokc.records.encoding.batch_builder.OpenBatch"),
        (3, "aiokc.records.encoding.batch_builder.OpenBatch"),
        (3, "aiokc.core.produce.settling.ProducerBatch"),
        (3, "aiokc.core.produce.batch.ProducerBatch._in_parts"),
    ],
)
def test_without_memory_for_the_parts_it_fails_alone(
    codec: Codec, steps: int, lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Produced(batch_size=16_000, codec=codec, partitions=2)
    batch = too_large(world)
    mark = world.accumulator.flush()
    later, other = world.append(), world.append(partition=1)
    for _ in range(steps):
        assert split_further(world.accumulator)
    with monkeypatch.context() as patched:
        patched.setattr(lacks, no_memory)
        while split_further(world.accumulator):
            pass
    assert world.finished() == [batch]
    assert (batch.parts, mark.done) == ((), True)
    assert isinstance(batch.outcome, Failure)
    told = batch.outcome.error_of(batch.tp, 0)
    assert isinstance(told, ProduceError)
    why = "a broker finds the batch too large, and it could not be split: MemoryError('no room')"
    assert (str(told), told.persisted) == (f"t-0: {why}", "no")
    assert isinstance(told.__cause__, MemoryError)
    assert not any(isinstance(one, list | ClosedBatch | OpenBatch) for one in variables_of(told.__cause__))
    sent = world.send()
    assert sorted(sent, key=lambda one: one.tp.partition) == [later, other]
    assert later.identity.epoch == 1, "no record will ever have the sequences of those that failed"
    for one in sent:
        world.answer(one)
    assert world.accumulator.used == 0
