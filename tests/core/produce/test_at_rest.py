"""A batch that meets a producer at rest: it is taken in the step of its append, or left to ``ready`` and ``drain``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokc.core.produce.failure import Cause, Failure
from aiokc.core.produce.identity import ProducerIdentity
from aiokc.records import Codec
from aiokc.records.encoding.batch_builder import ClosedBatch, OpenBatch

from .one_partition import Produced


def at_rest(**options: object) -> Produced:
    """Return a producer that has sent a batch, which is stored."""
    world = Produced(**options)  # type: ignore[arg-type]
    world.append()
    world.answer(world.send_one())
    world.finished()
    return world


def test_it_is_in_flight_as_if_drained() -> None:
    world = at_rest()
    other, batch = at_rest(), world.append()
    assert world.accumulator.queues.has_lone_batch(world.queue())
    assert world.accumulator.take_at_rest(world.queue(), world.now) is batch
    assert not world.accumulator.news
    other.append()
    drained = other.send_one()
    assert (batch.identity, batch.sequence, batch.attempts, bytes(batch.frame())) == (
        drained.identity,
        drained.sequence,
        drained.attempts,
        bytes(drained.frame()),
    )
    assert (batch.memory, world.accumulator.used) == (drained.memory, other.accumulator.used)
    assert list(world.queue().in_flight) == [batch]
    assert (world.queue().leader, world.queue().leader_epoch) == (1, 0)
    world.answer(batch)
    assert world.finished() == [batch]
    assert world.accumulator.used == 0


@pytest.mark.parametrize("options", [{"idempotent": False}, {"codec": Codec.LZ4}, {"codec": Codec.GZIP}])
def test_so_it_is_without_sequences_and_with_a_codec(options: dict[str, object]) -> None:
    world = at_rest(**options)
    batch = world.append(b"value " * 20)
    assert world.accumulator.take_at_rest(world.queue(), world.now) is batch
    assert batch.memory == batch.size
    world.answer(batch)
    assert world.accumulator.used == 0


def _is_doomed(world: Produced) -> None:
    world.session.doom = Failure(Cause.BROKEN)


def _has_another_identity(world: Produced) -> None:
    world.session.initialized(ProducerIdentity(8, 0))


def _has_none(world: Produced) -> None:
    world.session.identity = None


def _has_lost_a_sequence(world: Produced) -> None:
    world.queue().lost_sequence = True


def _may_have_lost_one(world: Produced) -> None:
    world.queue().unresolved = True


def _is_late(world: Produced) -> None:
    world.now += 1_000


def _has_to_tell_of_others(world: Produced) -> None:
    world.accumulator.finished.append(world.queue().waiting[0])


def _compresses_it(world: Produced) -> None:
    world.queue().waiting[0].closing = True


def _may_not_drain_it(world: Produced) -> None:
    world.session.may_drain = lambda tp: False  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "changed",
    [
        _is_doomed,
        _has_another_identity,
        _has_none,
        _has_lost_a_sequence,
        _may_have_lost_one,
        _is_late,
        _has_to_tell_of_others,
        _compresses_it,
        _may_not_drain_it,
    ],
)
def test_where_there_is_more_to_do_it_is_left_as_it_is(changed: Callable[[Produced], None]) -> None:
    world = at_rest()
    batch = world.append()
    changed(world)
    assert world.accumulator.take_at_rest(world.queue(), world.now) is None
    assert (list(world.queue().waiting), dict(world.queue().in_flight)) == ([batch], {})
    assert (batch.open is not None, batch.is_numbered, batch.attempts) == (True, False, 0)


def test_a_batch_that_comes_back_is_left() -> None:
    world = at_rest()
    batch = world.append()
    world.accumulator.take_at_rest(world.queue(), world.now)
    world.answer(batch, 7)  # REQUEST_TIMED_OUT
    assert world.accumulator.take_at_rest(world.queue(), world.now) is None
    assert world.queue().waiting[0] is batch


def test_one_that_can_not_be_closed_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(_: OpenBatch) -> ClosedBatch:
        raise MemoryError

    world = at_rest()
    batch = world.append()
    with monkeypatch.context() as patched:
        patched.setattr(OpenBatch, "close", no_memory)
        assert world.accumulator.take_at_rest(world.queue(), world.now) is None
    assert world.finished() == [batch]
    assert isinstance(batch.outcome, Failure)
    following = world.append()
    assert world.accumulator.take_at_rest(world.queue(), world.now) is following
    assert following.sequence == 1


def test_only_a_batch_that_is_alone_is_at_rest() -> None:
    world = at_rest(partitions=2)
    queues = world.accumulator.queues
    assert not queues.has_lone_batch(world.queue())
    world.append()
    assert (queues.has_lone_batch(world.queue()), queues.lone) == (True, world.queue())
    other = world.append(partition=1)
    assert (queues.has_lone_batch(world.queue()), queues.lone) == (False, None)
    assert other in world.send()
    assert not queues.has_lone_batch(world.queue(1))


def test_what_was_ready_and_is_taken_meanwhile_is_not_drained() -> None:
    """An observer that is told of another batch may send a record between the two."""
    world = at_rest()
    batch = world.append()
    ready = [*world.look().nodes[1]]
    assert world.accumulator.take_at_rest(world.queue(), world.now) is batch
    assert world.accumulator.drain(1, ready, world.cluster, world.now) == []
    assert world.ready() == {}
