"""Rates and the time until a lag is gone, from looks at given times."""

from __future__ import annotations

import math
from dataclasses import replace

from aiokc.cli.lag.rates import UNKNOWN, LagHistory, Rates
from aiokc.cli.lag.rows import LagRow, summed, total


def row(committed: int | None, end: int | None, partition: int = 0, member: str | None = None) -> LagRow:
    lag = None if committed is None or end is None else end - committed
    return LagRow("g", "t", partition, committed, end, lag, None, member, member)


def seen(*looks: tuple[float, LagRow], window: float = 30.0) -> Rates:
    history = LagHistory(window)
    for at, what in looks:
        history.add(at, [what])
    return history.rates(looks[-1][1])


def test_one_look_gives_no_rate() -> None:
    assert seen((0, row(5, 10))) == UNKNOWN
    assert LagHistory().rates(row(5, 10)) == UNKNOWN


def test_without_lag_there_is_nothing_to_wait_for() -> None:
    assert seen((0, row(10, 10))) == Rates(None, None, 0.0)
    assert seen((0, row(10, 10)), (2, row(14, 14))) == Rates(2, 2, 0.0)


def test_a_lag_that_drains() -> None:
    assert seen((0, row(0, 1000)), (2, row(100, 1020))) == Rates(into=10, out=50, eta_seconds=920 / 40)


def test_a_lag_that_grows_or_stands_still_never_ends() -> None:
    assert seen((0, row(0, 10)), (2, row(2, 20))) == Rates(5, 1, math.inf)
    assert seen((0, row(0, 10)), (2, row(0, 10))) == Rates(0, 0, math.inf)


def test_a_commit_every_five_seconds_gives_a_steady_rate() -> None:
    history = LagHistory()
    rates = []
    for tick in range(31):
        at = tick * 2.0
        what = row(100 * int(at // 5 * 5), 10_000)
        history.add(at, [what])
        rates.append(history.rates(what).out)
    later = [rate for rate in rates[15:] if rate is not None]
    assert len(later) == 16
    assert all(80 <= rate <= 120 for rate in later)


def test_only_the_window_counts() -> None:
    assert seen((0, row(0, 0)), (10, row(0, 1000)), (20, row(0, 1000)), (30, row(0, 1000)), window=10) == Rates(
        0, 0, math.inf
    )


def test_looks_that_failed_are_bridged() -> None:
    assert seen((0, row(0, 1000)), (2, row(10, 1000)), (22, row(110, 1000))).out == 5


def test_a_reset_starts_anew() -> None:
    assert seen((0, row(500, 1000)), (2, row(0, 1000))) == UNKNOWN
    assert seen((0, row(500, 1000)), (2, row(0, 1000)), (4, row(10, 1000))).out == 5


def test_a_recreated_topic_starts_anew() -> None:
    assert seen((0, row(5, 1000)), (2, row(5, 8))) == UNKNOWN


def test_a_commit_that_is_gone_starts_anew() -> None:
    assert seen((0, row(5, 10)), (2, row(None, 10)), (4, row(5, 10))) == UNKNOWN


def test_a_sum_over_more_partitions_than_before_is_no_rate() -> None:
    history = LagHistory()
    history.add(0, summed([row(0, 100), row(None, 7, partition=1)], "group"))
    more = summed([row(1, 100), row(0, 10_000, partition=1)], "group")
    history.add(2, more)
    assert history.rates(more[0]) == UNKNOWN


def test_a_sum_over_other_partitions_than_before_is_no_rate() -> None:
    history = LagHistory()
    history.add(0, summed([row(0, 100, 0, "a"), row(9_000, 9_100, 1, "b")], "member"))
    swapped = summed([row(0, 100, 0, "b"), row(9_000, 9_100, 1, "a")], "member")
    history.add(2, swapped)
    assert [history.rates(one) for one in swapped] == [UNKNOWN, UNKNOWN]


def test_a_total_over_other_groups_than_before_is_no_rate() -> None:
    """They read the same partitions: b's lag of millions is missing for one look, as where its coordinator moves."""
    a, b = row(90, 100), replace(row(5, 9_000_000), group="b")
    history = LagHistory()
    for at, rows in enumerate([[a, b], [a], [a, b]]):
        of_all = total(rows)
        assert of_all is not None
        history.add(at, [of_all])
        assert history.rates(of_all) == UNKNOWN
    assert total([]) is None


def test_a_partition_that_is_gone_is_forgotten() -> None:
    history = LagHistory()
    one, other = row(0, 10), row(0, 10, partition=1)
    history.add(0, [one, other])
    history.add(2, [one])
    history.add(4, [one, other])
    assert history.rates(other) == UNKNOWN
    assert history.rates(one).into == 0


def test_a_member_that_takes_a_partition_over_does_not_change_its_rate() -> None:
    first = replace(row(0, 100), member="a", member_id="a")
    assert seen((0, first), (2, replace(first, committed=20, member="b", member_id="b"))).out == 10


def test_a_clock_that_stands_still_divides_nothing_by_zero() -> None:
    assert seen((0, row(0, 10)), (0, row(5, 10))) == UNKNOWN


def test_many_short_ticks_use_bounded_memory_and_the_whole_window() -> None:
    history = LagHistory()
    for tick in range(10_000):
        history.add(tick / 100, [row(500 * (tick // 500), 20_000)])
    (samples,) = history._samples.values()
    assert len(samples) <= 66
    assert 29 <= samples[-1].at - samples[0].at <= 32
    assert 80 <= (history.rates(row(9500, 20_000)).out or 0) <= 120


def test_what_is_seen_no_more_is_forgotten() -> None:
    history = LagHistory()
    for number in range(100):
        history.add(number, [row(1, 2, partition=number), row(1, 2, partition=number + 1)])
    assert len(history._samples) == len(history._summed) == 2
