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
