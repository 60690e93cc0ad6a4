from __future__ import annotations

from aiokc.core.rate_limit import RateLimit


def test_the_first_event_passes_and_the_next_ones_are_counted() -> None:
    limit = RateLimit(10)
    assert limit.admit("a", 0.0) == 0
    assert limit.admit("a", 1.0) is None
    assert limit.admit("a", 9.9) is None
    assert limit.admit("a", 10.0) == 2
    assert limit.admit("a", 11.0) is None
    assert limit.admit("a", 20.0) == 1


def test_kinds_do_not_hold_each_other_back() -> None:
    limit = RateLimit(10)
    assert limit.admit("a", 0.0) == 0
    assert limit.admit("b", 0.0) == 0


def test_a_forgotten_kind_passes_at_once() -> None:
    limit = RateLimit(10)
    limit.admit("a", 0.0)
    limit.forget("a")
    limit.forget("never seen")
    assert limit.admit("a", 0.1) == 0


def test_kinds_that_do_not_come_again_are_let_go_of() -> None:
    """For months, with topics that come and go; the same in a failure of all of their partitions, which repeats."""
    limit = RateLimit(10)
    for number in range(10_000):
        assert limit.admit(number, float(number)) == 0
        assert limit.admit(number, number + 0.5) is None
        assert limit.admit("often", float(number)) == (9 if number and number % 10 == 0 else None if number else 0)
        assert len(limit._seen) < 600


def test_many_kinds_within_one_interval_are_all_held_back() -> None:
    limit = RateLimit(10)
    assert [limit.admit(number, 0.0) for number in range(1_000)] == [0] * 1_000
    assert [limit.admit(number, 9.0) for number in range(1_000)] == [None] * 1_000
    assert [limit.admit(number, 11.0) for number in range(1_000)] == [1] * 1_000
