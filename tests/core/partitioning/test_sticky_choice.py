"""The sticky choice: when it moves on, and which partition comes next."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.partitioning.sticky_choice import StickyChoice, TopicLoad, next_partition


class Drawn:
    """Chance that draws a given share of the range."""

    def __init__(self, share: float) -> None:
        self.share = share

    def uniform(self, a: float, b: float, /) -> float:
        return a + (b - a) * self.share


def shares(load: TopicLoad, draws: int = 6_000) -> dict[int, float]:
    """How often each partition is drawn, with chances that are spread evenly."""
    drawn = Counter(next_partition(load, Drawn(number / draws)) for number in range(draws))
    return {partition: round(count / draws, 2) for partition, count in sorted(drawn.items())}


def test_it_stays_until_a_batch_is_full() -> None:
    sticky = StickyChoice(100, Random(1))
    first = sticky.choose(TopicLoad(3, (0, 1, 2)))
    partitions = [sticky.partition]
    assert not sticky.appended(60, is_open=True)
    partitions.append(sticky.partition)
    assert sticky.appended(60, is_open=False)
    partitions.append(sticky.partition)
    assert partitions == [first, first, None]


def test_it_does_not_leave_an_open_batch_behind() -> None:
    """KAFKA-14156: what was produced counts from the choice on, a batch may have begun before."""
    sticky = StickyChoice(100, Random(1))
    sticky.choose(TopicLoad(3, (0, 1, 2)))
    assert not sticky.appended(99, is_open=False)
    assert not sticky.appended(50, is_open=True)
    assert not sticky.appended(50, is_open=True)
    assert sticky.appended(1, is_open=True), "twice batch_size ends it"


def test_each_choice_counts_from_zero() -> None:
    sticky = StickyChoice(100, Random(1))
    for _ in range(3):
        sticky.choose(TopicLoad(2, (0, 1)))
        assert not sticky.appended(99, is_open=False)
        assert sticky.appended(1, is_open=False)


def test_without_batching_each_record_may_go_elsewhere() -> None:
    sticky = StickyChoice(0, Random(1))
    sticky.choose(TopicLoad(2, (0, 1)))
    assert sticky.appended(7, is_open=False)


def test_the_next_one_is_any_with_a_leader() -> None:
    assert shares(TopicLoad(4, (0, 2, 3))) == {0: 0.33, 2: 0.33, 3: 0.33}
    assert shares(TopicLoad(4, ())) == {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}
    assert shares(TopicLoad(1, (0,), {0: 9})) == {0: 1.0}


def test_a_short_queue_is_preferred() -> None:
    """Java's example: queues of 0, 3 and 1 batches have the weights 4, 1 and 3."""
    assert shares(TopicLoad(3, (0, 1, 2), {0: 0, 1: 3, 2: 1})) == {0: 0.5, 1: 0.12, 2: 0.38}
    assert shares(TopicLoad(2, (0, 1), {0: 5, 1: 5})) == {0: 0.5, 1: 0.5}


def test_queues_count_once_there_is_one_of_each_partition() -> None:
    assert shares(TopicLoad(3, (0, 1, 2), {0: 0, 1: 99})) == {0: 0.33, 1: 0.33, 2: 0.33}


def test_the_queue_of_what_has_no_leader_does_not_count() -> None:
    assert shares(TopicLoad(3, (0, 1), {0: 1, 1: 1, 2: 50})) == {0: 0.5, 1: 0.5}


def test_a_slow_broker_is_left_out_unless_all_are() -> None:
    queues = {0: 0, 1: 0, 2: 0}
    assert shares(TopicLoad(3, (0, 1, 2), queues, slow={1})) == {0: 0.5, 2: 0.5}
    assert shares(TopicLoad(3, (0, 1, 2), queues, slow={0, 1})) == {2: 1.0}
    assert shares(TopicLoad(3, (0, 1, 2), queues, slow={0, 1, 2})) == {0: 0.33, 1: 0.33, 2: 0.33}
    assert shares(TopicLoad(3, (0, 1, 2), None, slow={1})) == {0: 0.33, 1: 0.33, 2: 0.33}, "not adaptive"


def test_a_leader_in_the_rack_is_preferred() -> None:
    queues = {0: 0, 1: 1, 2: 3}
    assert shares(TopicLoad(3, (0, 1, 2), near={1, 2})) == {1: 0.5, 2: 0.5}
    assert shares(TopicLoad(3, (0, 1), near={2})) == {0: 0.5, 1: 0.5}
    assert shares(TopicLoad(3, (0, 1, 2), queues, near={1, 2})) == {1: 0.75, 2: 0.25}
    assert shares(TopicLoad(3, (0, 1, 2), queues, slow={1, 2}, near={1, 2})) == {0: 1.0}


@given(
    st.integers(1, 20).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(st.integers(0, count - 1), unique=True),
            st.none() | st.dictionaries(st.integers(0, count - 1), st.integers(0, 1_000)),
            st.frozensets(st.integers(0, count - 1)),
            st.frozensets(st.integers(0, count - 1)),
        )
    ),
    st.floats(0, 1),
)
def test_what_is_chosen_has_a_leader_if_any_has(
    given: tuple[int, list[int], dict[int, int] | None, frozenset[int], frozenset[int]], share: float
) -> None:
    load = TopicLoad(*given)
    assert next_partition(load, Drawn(share)) in (load.available or range(load.partitions))


@pytest.mark.parametrize("seed", range(3))
def test_in_the_long_run_all_partitions_get_as_much(seed: int) -> None:
    sticky, bytes_of = StickyChoice(1_000, Random(seed)), Counter[int]()
    for _ in range(30_000):
        partition = sticky.partition if sticky.partition is not None else sticky.choose(TopicLoad(5, range(5)))
        bytes_of[partition] += 100
        sticky.appended(100, is_open=bytes_of[partition] % 1_000 != 0)
    assert max(bytes_of.values()) / min(bytes_of.values()) < 1.25
