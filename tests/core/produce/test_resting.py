"""Partitions whose next batch is due later are not looked at before, unless something happens to them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from aiokc.core.produce.accumulator import MOST_BATCHES
from aiokc.core.produce.batch import ProducerBatch
from aiokc.core.produce.failure import Cause, Failure
from aiokc.core.produce.partition_queue import PartitionQueue
from aiokc.core.produce.partition_queues import MOST_LOOKED_AT
from aiokc.core.produce.settling import split_further
from aiokc.error_codes import ErrorCode
from tests.core.produce.one_partition import Produced

MANY = 300


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that were looked at."""
    found: list[int] = []
    resolve = PartitionQueue.resolve

    def note(self: PartitionQueue, session: Any) -> bool:
        found.append(self.tp.partition)
        return resolve(self, session)

    monkeypatch.setattr(PartitionQueue, "resolve", note)
    return found


def lingering(**options: Any) -> Produced:
    """Many partitions of which each has one batch, begun a second after that of the one before."""
    world = Produced(**{"partitions": MANY, "linger": 1000.0, "delivery_timeout": 10_000.0, **options})
    for partition in range(MANY):
        world.append(partition=partition)
        if partition == 0:
            assert world.ready() == {}
        world.now += 1
    return world


def test_each_is_looked_at_when_its_batch_is_due(looked_at: list[int]) -> None:
    """But for the first one: the sender looks at it, and comes in time for all others."""
    world = lingering()
    assert looked_at == [0]
    looked_at.clear()
    for _ in range(3):
        assert world.look_at() == 100.0 + 1000.0
    assert looked_at == []
    for partition in range(MANY):
        world.now = 1100.0 + partition
        assert [batch.tp.partition for batch in world.send()] == [partition]
        after = 10_100.0 if partition == MANY - 1 else world.now + 1
        assert world.look_at() == after, "the next one is due, or the oldest one expires"
    assert looked_at == [*range(MANY)]


def _full(world: Produced) -> None:
    world.append(bytes(150), partition=7)


def _another_batch(world: Produced) -> None:
    world.append(bytes(180), partition=7)


def _sealed(world: Produced) -> None:
    world.accumulator.seal(world.queue(7))


@pytest.mark.parametrize("happens", [_full, _another_batch, _sealed])
def test_only_the_one_is_looked_at_to_which_something_happens(
    happens: Callable[[Produced], None], looked_at: list[int]
) -> None:
    world = lingering()
    world.ready()
    looked_at.clear()
    happens(world)
    assert world.ready() == {1: [7]}
    assert looked_at == [7]


def test_all_are_looked_at_without_linger_for_a_flush_and_for_other_metadata() -> None:
    for without_linger in ("memory is wanted", "a transaction ends", "a flush"):
        world = lingering()
        assert world.ready() == {}
        if without_linger == "a flush":
            world.accumulator.flush()
        world.session.hurries = without_linger == "a transaction ends"
        assert world.ready(hurry=without_linger == "memory is wanted") == {1: [*range(MANY)]}
        world.session.hurries = False
        assert world.ready() == {1: [*range(MANY)]}, "it stays so, whether or not the broker could take them then"
    world = lingering()
    world.leaders[5] = 9
    for _ in range(2):
        assert [queue.tp.partition for queue in world.look().without_leader] == [5], "the search for its leader goes on"
    world.leaders[5] = 2
    assert world.ready() == {}
    world.accumulator.flush()
    assert world.ready() == {1: [number for number in range(MANY) if number != 5], 2: [5]}


MORE = 10 * MOST_LOOKED_AT


@pytest.mark.parametrize("due", ["without linger", "linger is over", "flush", "memory is wanted", "other metadata"])
def test_a_step_looks_at_few_of_those_that_are_due_and_each_gets_its_turn(due: str, looked_at: list[int]) -> None:
    world = Produced(partitions=MORE, linger=0.0 if due == "without linger" else 5.0)
    for partition in range(MORE):
        world.append(partition=partition)
    if due not in ("without linger", "linger is over"):
        assert world.ready() == {}
        looked_at.clear()
    if due == "linger is over":
        world.now += 5.0
    if due == "flush":
        world.accumulator.flush()
    if due == "other metadata":
        world.leaders[0] = 2
    steps = []
    goes_on = True
    while goes_on:
        before = len(looked_at)
        world.accumulator.ready(world.cluster, world.now, hurry=due == "memory is wanted")
        goes_on = world.accumulator.queues.goes_on(world.now)
        steps.append(len(looked_at) - before)
    assert max(steps) == MOST_LOOKED_AT
    assert sorted(looked_at) == [*range(MORE)]
    assert set(world.ready()) == (set() if due == "other metadata" else {1})


def _step(world: Produced) -> bool:
    """Look at as many as one step may, and return whether the round is over."""
    return world.accumulator.ready(world.cluster, world.now, hurry=False).round_is_over


def test_each_gets_its_turn_though_others_are_due_in_every_step() -> None:
    """And rounds end meanwhile: what is done once in a round, such as the search for leaders, is done."""
    world = Produced(partitions=MORE + 1, linger=5.0)
    first = world.append(partition=MORE)
    world.accumulator.flush()
    assert world.send() == [first]
    for partition in range(MORE):
        world.append(partition=partition)
    assert world.ready() == {}
    world.now += 5.0
    assert _step(world)
    world.append(bytes(200), partition=MORE)
    _step(world)
    assert world.queue(MORE) in world.accumulator.queues.ready[1]
    rounds = 0
    while world.accumulator.queues.goes_on(world.now):
        rounds += _step(world)
    assert rounds >= 4


def _one_is_sent(world: Produced) -> None:
    assert len(world.accumulator.drain(1, [world.queue(0)], world.cluster, world.now)) == 1


def _one_expires(world: Produced) -> None:
    world.now = 200.0
    world.accumulator.expire(world.now)
    assert len(world.finished()) == 1


def _a_split_ends(world: Produced) -> None:
    while split_further(world.accumulator):
        pass


@pytest.mark.parametrize("happens", [_one_is_sent, _one_expires, _a_split_ends])
def test_what_happens_in_a_round_makes_for_another_one(
    happens: Callable[[Produced], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender is not told of it: it does that itself. 1. It looks at partition 0. 2. It happens to that partition.
    3. It looks at partition 1, of which nothing can be sent, and the round is over.
    """
    monkeypatch.setattr("aiokc.core.produce.partition_queues.MOST_LOOKED_AT", 1)
    world = Produced(partitions=2, delivery_timeout=100.0)
    world.accumulator.pause = lambda attempts: 1000.0
    world.leaders[1] = 9
    first = world.append_all([b"1", b"2", b"3"])
    if happens is not _one_is_sent:
        assert world.send() == [first]
        is_split = happens is _a_split_ends
        world.only_answer(first, ErrorCode.MESSAGE_TOO_LARGE if is_split else ErrorCode.NOT_ENOUGH_REPLICAS)
    world.now = 190.0
    world.append(bytes(200))
    world.append(partition=1)
    assert not _step(world)
    happens(world)
    assert _step(world)
    assert world.accumulator.queues.goes_on(world.now)
    assert world.ready() == {1: [0]}
    assert not world.accumulator.queues.goes_on(world.now)


def test_a_round_is_over_where_what_it_was_still_to_look_at_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the sender would look again and again, at nothing."""
    monkeypatch.setattr("aiokc.core.produce.partition_queues.MOST_LOOKED_AT", 1)
    world = Produced(partitions=3)
    for partition in range(3):
        world.append(partition=partition)
    assert not _step(world)
    world.accumulator.fail_waiting(Failure(Cause.ABORTED))
    assert _step(world)
    assert not world.accumulator.queues.goes_on(world.now)


def test_a_batch_that_begins_in_a_round_is_sent_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. The sender looks at one of the partitions without a leader, and knows when to look again at the latest.
    2. A batch begins behind one in flight. The sender is not told, for it looks sooner than that is due.
    3. That time passes within the round: an alarm that is not needed any more.
    """
    monkeypatch.setattr("aiokc.core.produce.partition_queues.MOST_LOOKED_AT", 1)
    world = Produced(partitions=4, linger=5.0)
    world.leaders[2] = world.leaders[3] = 9
    for partition in (2, 3):
        world.append(partition=partition)
    first = world.append()
    world.accumulator.flush()
    assert world.send() == [first]
    world.now = 105.0
    early = world.append(partition=1)
    assert world.look_at() == 110.0
    world.accumulator.flush()
    assert world.send() == [early]
    world.answer(early)
    world.look()
    world.now = 109.0
    assert not _step(world)
    world.accumulator.news = False
    second = world.append()
    assert not world.accumulator.news
    world.now = 110.0
    assert _step(world)
    assert world.accumulator.queues.goes_on(world.now)
    assert world.look_at() == 114.0
    world.now = 114.0
    assert world.send() == [second]


def test_a_batch_that_expires_costs_no_look_at_other_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = lingering()
    world.ready()
    seen: list[int] = []
    overdue = PartitionQueue.overdue

    def note(self: PartitionQueue, now: float) -> Any:
        seen.append(self.tp.partition)
        return overdue(self, now)

    monkeypatch.setattr(PartitionQueue, "overdue", note)
    for partition in range(MANY):
        world.now = 10_100.0 + partition
        world.accumulator.expire(world.now - 0.5)
        assert seen == []
        world.accumulator.expire(world.now)
        assert [batch.tp.partition for batch in world.finished()] == [partition]
        assert seen == [partition]
        seen.clear()


def test_many_that_expire_do_so_in_many_steps() -> None:
    world = Produced(partitions=MORE, delivery_timeout=100.0)
    for _ in range(2):
        for partition in range(MORE):
            world.append(bytes(200), partition)
        world.now += 10.0
    world.now += 80.0
    for expired in (80.0, 90.0):
        steps, began = [], world.now
        while world.accumulator.queues.wakes_at <= world.now:
            looks_at_what_expires(world)
            steps.append(len(world.finished()))
            world.now += 0.02
        assert steps == [MOST_LOOKED_AT] * 10, f"{expired}: its own steps do not make the sender late"
        world.now = began + 10.0
    assert world.accumulator.queues.is_empty


def looks_at_what_expires(world: Produced) -> None:
    """As the sender does."""
    world.accumulator.expire(world.now, late=world.accumulator.queues.late(world.now))


@pytest.mark.parametrize("partitions", [1, 3 * MOST_LOOKED_AT])
def test_after_one_hold_all_that_is_overdue_ends_together_whatever_its_number(partitions: int) -> None:
    world = Produced(partitions=partitions, batch_size=0, delivery_timeout=2.0)
    batches = [world.append(partition=number % partitions) for number in range(3 * MOST_LOOKED_AT)]
    world.now += 5.0
    held_until, queues = world.now, world.accumulator.queues
    while queues.expiry.next_at <= world.now:
        looks_at_what_expires(world)
        world.now += 0.15 if world.now == held_until else 0.001  # a shorter hold, once
    assert world.finished() == []
    assert queues.expiry.next_at == held_until + 1.0
    world.now = held_until + 1.0
    for _ in range(3):
        looks_at_what_expires(world)
        world.now += 0.001
    assert set(world.finished()) == set(batches)


def test_no_alarm_is_left_of_batches_that_were_sent_at_rest() -> None:
    """The sender did not look at them, and would take the alarm for one that it has missed in a held loop."""
    world = Produced(delivery_timeout=2.0)
    batch = world.append()
    world.send()
    assert world.accumulator.queues.expiry.next_at == world.now + 2.0
    world.answer(batch, offset=0)
    assert world.accumulator.queues.expiry.next_at == inf


def test_partitions_of_many_batches_share_a_step() -> None:
    world = Produced(partitions=2, batch_size=0, delivery_timeout=2.0)
    for number in range(2 * MOST_LOOKED_AT):
        world.append(partition=number % 2)
    world.now += 2.0
    ended = []
    while world.accumulator.queues.expiry.next_at <= world.now:
        world.accumulator.expire(world.now)
        ended.append(len(world.finished()))
    assert [number for number in ended if number] == [MOST_LOOKED_AT] * 2


def test_many_of_one_partition_expire_in_many_steps_that_look_at_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Produced(batch_size=0, delivery_timeout=100.0)
    batches = []
    for _ in range(4 * MOST_LOOKED_AT):
        batches.append(world.append())
        world.now += 0.01
    asked: list[ProducerBatch] = []

    def note(batch: ProducerBatch, *_: object) -> None:
        asked.append(batch)

    monkeypatch.setattr(ProducerBatch, "put_off", note)
    world.now = batches[2 * MOST_LOOKED_AT].expires_at + 0.001
    for _ in range(3):
        assert world.accumulator.queues.wakes_at <= world.now
        world.accumulator.expire(world.now, late=1.0)
        assert world.finished() == asked != []
        assert len(asked) <= MOST_LOOKED_AT
        asked.clear()
    assert world.look_at() == batches[2 * MOST_LOOKED_AT + 1].expires_at


def test_what_is_ready_is_not_looked_at_again_while_others_are_sent(looked_at: list[int]) -> None:
    """Brokers that can't keep up make that a long time."""
    world = Produced(partitions=MORE)
    for partition in range(MORE):
        world.append(partition=partition)
    world.ready()
    looked_at.clear()
    served = []
    while sent := world.send():
        assert len(sent) == MOST_BATCHES
        for batch in sent:
            served.append(batch.tp.partition)
            world.append(partition=batch.tp.partition)
            world.answer(batch)
        if len(served) == 2 * MORE:
            break
    assert served == [*range(MORE), *range(MORE)], "all others come before one is served again"
    assert len(looked_at) <= 2 * MORE


def test_what_was_ready_and_meets_a_pause_since_is_not_sent_before() -> None:
    """1. A partition has a batch in flight, and one that is ready. 2. The first is refused. 3. Its broker has room."""
    world = Produced(partitions=2)
    first, second = world.fill(2)
    other = world.append(partition=1)
    assert world.send() == [first, other]
    ready = [*world.look().nodes[1]]
    world.answer(first, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.accumulator.drain(1, ready, world.cluster, world.now) == []
    assert world.ready() == {}
    world.now += 0.1
    assert world.send_one() is first
    world.answer(first)
    assert world.send_one() is second


def test_brokers_take_turns() -> None:
    world = Produced(partitions=4, max_request_size=300)
    world.leaders = {0: 1, 1: 1, 2: 2, 3: 2}
    for partition in range(4):
        world.append(bytes(150), partition)
    assert [*world.ready()] == [1, 2]
    world.send(1)
    assert [*world.ready()] == [2, 1]


def test_what_begins_while_memory_is_wanted_does_not_linger() -> None:
    world = Produced(partitions=2, linger=1000.0)
    world.append()
    assert world.ready(hurry=True) == {1: [0]}
    world.accumulator.news = False
    world.append(partition=1)
    assert world.accumulator.news
    assert world.ready(hurry=True) == {1: [0, 1]}


def test_what_comes_back_rests_for_its_pause_unless_its_leader_moves(looked_at: list[int]) -> None:
    world = Produced(partitions=2)
    for partition in range(2):
        world.append(partition=partition)
    for batch in world.send():
        world.answer(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    looked_at.clear()
    assert world.ready() == {}
    assert world.ready() == {}
    assert looked_at == [0, 1]
    assert world.look_at() == pytest.approx(world.now + 0.1)
    world.leaders[1] = 2
    assert world.ready() == {2: [1]}
    world.now += 0.1
    assert world.ready() == {1: [0], 2: [1]}


def test_a_batch_that_becomes_the_first_one_is_looked_at() -> None:
    """The one before it has expired while it was to be sent again after a long pause."""
    world = Produced(batch_size=0, delivery_timeout=10.0)
    world.accumulator.pause = lambda attempts: 100.0
    first = world.append()
    world.send()
    world.answer(first, ErrorCode.NOT_ENOUGH_REPLICAS)
    world.now += 9.0
    second = world.append()
    assert world.ready() == {}
    world.now += 1.0
    world.accumulator.expire(world.now)
    assert world.finished() == [first]
    assert world.send() == [second]


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE])
def test_what_comes_back_in_front_of_a_batch_that_lingers_does_not_linger(code: ErrorCode) -> None:
    world = Produced(linger=50.0)
    first = world.append_all([b"1", b"2", b"3"])
    world.accumulator.flush()
    assert world.send() == [first]
    world.append()
    assert world.look_at() == 150.0
    world.answer(first, code)
    assert world.look_at() <= world.now + 0.1 or world.ready()
    world.now += 0.1
    assert world.send_one() in (first, *first.parts)


def test_a_partition_that_fills_many_batches_in_its_linger_time_sets_one_alarm() -> None:
    world = Produced(linger=10.0)
    for _ in range(100):
        world.append()
        assert world.ready() == {}
        world.accumulator.seal(world.queue())
        world.answer(world.send_one())
        world.now += 0.01
    assert len(world.accumulator.queues._alarms._heap) == 1


def test_alarms_that_are_not_needed_any_more_do_not_pile_up() -> None:
    """Each attempt that is to be repeated soon leaves the alarm of a batch behind it that lingers for long."""
    world = Produced(partitions=20, linger=1000.0, delivery_timeout=10_000.0)
    alarms = world.accumulator.queues._alarms
    first = [world.append(partition=partition) for partition in range(20)]
    world.accumulator.flush()
    assert world.send() == first
    for _ in range(50):
        for batch in first:
            world.append(partition=batch.tp.partition)
            world.answer(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
        assert world.ready() == {}
        world.now += 0.1
        assert set(world.send()) == set(first)
        for batch in first:
            world.queue(batch.tp.partition).in_flight.pop(batch)
            assert world.look_at() > world.now
            world.queue(batch.tp.partition).in_flight[batch] = None
    assert len(alarms._heap) <= 2 * 20 + 64
    for batch in first:
        world.answer(batch)
    world.now += 1000.0
    assert world.ready() == {1: [*range(20)]}, "each has the alarm that it needs"


def test_nothing_is_kept_of_those_that_are_at_rest_for_good() -> None:
    world = lingering()
    world.ready()
    world.accumulator.fail_waiting(Failure(Cause.CLOSED))
    world.now += 2000.0
    assert world.look_at() == inf
    queues = world.accumulator.queues
    assert (queues.active, queues._awake) == ([], {})
    for alarms in (queues._alarms, queues.expiry):
        assert (alarms._heap, alarms._at) == ([], {})


def test_partitions_take_turns_though_some_rest_between() -> None:
    world = Produced(partitions=6, linger=1.0, max_request_size=300)
    served = []
    for _ in range(60):
        for partition in range(6):
            world.fill(1, partition)
        world.now += 0.5
        for batch in world.send():
            served.append(batch.tp.partition)
            world.answer(batch)
    assert {served.count(partition) for partition in range(6)} == {10}
