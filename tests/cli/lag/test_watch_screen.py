"""The screen of lag --watch at several widths and heights, as text."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from aiokc.cli.lag.limits import Limit
from aiokc.cli.lag.rates import Rates
from aiokc.cli.lag.rows import LagRow, summed
from aiokc.cli.lag.watch_screen import (
    Line,
    WatchState,
    age_text,
    bar,
    count_text,
    eta_text,
    rate_text,
    screen,
    sparkline,
)

MOST = (1 << 63) - 1


def rows(count: int, group: str = "billing", topic: str = "orders") -> list[tuple[LagRow, Rates]]:
    return [
        (
            LagRow(
                group, topic, number, 1000, 1000 + 10 * number, 10 * number, 5000 * number, f"app-{number}@10.0.0.3"
            ),
            Rates(100, 250, 10.0 * number / 150),
        )
        for number in range(count)
    ]


def state(*pairs: tuple[LagRow, Rates]) -> WatchState:
    total = summed([replace(row, group="all") for row, _ in pairs], "group")[0] if pairs else None
    return WatchState(
        title="aiokc lag billing",
        clock="01:12:03",
        interval_seconds=2,
        rows=pairs,
        total=None if total is None else (total, Rates(300, 700, 42)),
        history=[40, 30, 20, 10, 0],
    )


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def styles(lines: list[Line], text: str) -> set[str]:
    return {style for line in lines for piece, style in line if piece.strip() == text}


def test_a_wide_terminal_shows_all() -> None:
    assert texts(screen(state(*rows(3)), 120, 24)) == [
        "aiokc lag billing" + " " * 84 + "01:12:03  every 2 s",
        "LAG 30  IN/s 300  OUT/s 700  ETA 42.0 s  █▇▅▃▁",
        "TOPIC   PARTITION  COMMITTED   END  LAG              LAG-TIME  IN/s  OUT/s    ETA  MEMBER",
        "orders          0       1000  1000    0                  0 ms   100    250    0 s  app-0@10.0.0.3",
        "orders          1       1000  1010   10  █████          5.0 s   100    250  < 1 s  app-1@10.0.0.3",
        "orders          2       1000  1020   20  ██████████    10.0 s   100    250  < 1 s  app-2@10.0.0.3",
        "Ctrl-C ends",
    ]


def test_forty_columns_show_what_matters() -> None:
    assert texts(screen(state(*rows(3)), 40, 24)) == [
        "aiokc lag billing    01:12:03  every 2 s",
        "LAG 30  IN/s 300  OUT/s 700  ETA 42.0 s",
        "TOPIC   PARTITION  LAG  OUT/s    ETA",
        "orders          0    0    250    0 s",
        "orders          1   10    250  < 1 s",
        "orders          2   20    250  < 1 s",
        "Ctrl-C ends",
    ]


@pytest.mark.parametrize("width", [1, 2, 5, 9, 17, 39, 40, 80, 200])
@pytest.mark.parametrize("height", [1, 2, 3, 5, 24])
def test_no_line_is_too_long_and_no_screen_too_high(width: int, height: int) -> None:
    big = LagRow("g" * 249, "t" * 249, MOST >> 32, 0, MOST, MOST, MOST, "m" * 300)
    pairs = [*rows(30), (big, Rates(1e18, 2e18, math.inf)), (replace(big, lag=None, lag_ms=None), Rates())]
    for shown in (state(*pairs), replace(state(*pairs), problem="no broker is there" * 20, ascii_only=True), state()):
        lines = screen(shown, width, height)
        assert 1 <= len(lines) <= height
        assert all(len(text) <= width for text in texts(lines))


def test_where_not_all_rows_fit_the_worst_are_shown() -> None:
    lines = texts(screen(state(*rows(30)), 80, 10))
    assert [line.split()[1] for line in lines[3:8]] == ["29", "28", "27", "26", "25"]
    assert lines[8:] == ["25 more, with less lag", "Ctrl-C ends"]


def test_long_names_are_cut_before_columns_are_left_out() -> None:
    heading, row = texts(screen(state(*rows(1, topic="a" * 60)), 100, 10))[2:4]
    assert "COMMITTED" in heading
    assert row.startswith("aaaaaaaa")
    assert "…" in row


def test_a_name_of_any_length_is_cut_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever joins a group chooses the client.id. Without a limit it takes a step for each column of it."""
    module = "aiokc.cli.lag.watch_screen.width_of"
    monkeypatch.setattr(module, lambda text: 10**12 if text == "endless" else len(text))
    pairs = [(replace(row, member="endless"), rates) for row, rates in rows(1)]
    heading, row = texts(screen(state(*pairs), 100, 10))[2:4]
    assert "MEMBER" in heading
    assert row.endswith("endless")


def test_several_groups_are_told_apart() -> None:
    lines = texts(screen(state(*rows(1), *rows(1, group="shipping")), 120, 10))
    assert lines[2].startswith("GROUP     TOPIC")
    assert [line.split()[0] for line in lines[3:5]] == ["billing", "shipping"]


def test_sums_of_members_have_no_topics() -> None:
    by_member = [(row, Rates()) for row in summed([replace(r, member_id="m") for r, _ in rows(2)], "member")]
    heading, row = texts(screen(state(*by_member), 120, 10))[2:4]
    assert heading.split() == ["PARTITIONS", "COMMITTED", "END", "LAG", "LAG-TIME", "IN/s", "OUT/s", "ETA", "MEMBER"]
    assert row.split()[0] == "2"


def test_a_broker_that_is_gone_is_named_and_the_rows_stay() -> None:
    lines = screen(replace(state(*rows(2)), problem="no answer for 12s: broker 1 is gone"), 80, 24)
    assert texts(lines)[-1] == "no answer for 12s: broker 1 is gone"
    assert styles(lines, "no answer for 12s: broker 1 is gone") == {"bad"}
    assert len(lines) == 6


def test_without_a_row_it_says_so() -> None:
    assert texts(screen(state(), 80, 24))[1] == "no partition with a commit or a member"


def test_styles_say_what_is_good_and_what_is_not() -> None:
    (good, _), (draining, rates), (growing, _) = rows(3)
    shown = state((good, rates), (draining, rates), (growing, Rates(5, 1, math.inf)))
    lines = screen(replace(shown, total=None), 120, 24)
    assert (styles(lines, "0"), styles(lines, "10"), styles(lines, "20")) == ({"good", ""}, {""}, {"warn"})
    assert styles(lines, "never") == {"warn"}
    limited = screen(replace(shown, total=None, limit=Limit(records=9)), 120, 24)
    assert (styles(limited, "10"), styles(limited, "20")) == ({"bad"}, {"bad"})


def test_unknown_partitions_are_counted_in_the_total() -> None:
    row, rates = rows(1)[0]
    lines = texts(screen(state((row, rates), (replace(row, partition=1, lag=None), Rates())), 120, 24))
    assert lines[1].startswith("LAG 0 (1 of 2 unknown)  IN/s")


def test_an_ascii_terminal_gets_ascii() -> None:
    for width in (30, 40, 80, 120):
        shown = replace(state(*rows(30, topic="a" * 60)), ascii_only=True)
        for text in texts(screen(shown, width, 10)):
            assert text.isascii()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (9_999_999, "9,999,999"),
        (10_000_000, "10.0 M"),
        (999_000_000, "999 M"),
        (1_500_000_000, "1.5 G"),
        (2 * 10**12, "2.0 T"),
        (MOST, "9.2 E"),
    ],
)
def test_counts(value: int | None, text: str) -> None:
    assert count_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (0.25, "0.2"), (9.96, "10.0"), (10.4, "10"), (-3.0, "-3.0"), (1e4, "10,000")],
)
def test_rates(value: float | None, text: str) -> None:
    assert rate_text(value) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (500, "500 ms"),
        (9_000, "9.0 s"),
        (59_400, "59.4 s"),
        (61_000, "1m 1s"),
        (3_600_000, "1h 0m"),
        (90_000_000, "25h 0m"),
        (MOST, "106751991167d 7h"),
    ],
)
def test_ages(milliseconds: int | None, text: str) -> None:
    assert age_text(milliseconds) == text


def test_times_to_the_end() -> None:
    assert [eta_text(Rates(0, 0, eta)) for eta in (None, 0.0, 0.3, 75.0, math.inf)] == [
        "-",
        "0 s",
        "< 1 s",
        "1m 15s",
        "never",
    ]


def test_bars() -> None:
    assert bar(0, 100) == " " * 10
    assert bar(100, 100) == "█" * 10
    assert bar(1, 10**18) == "▏         "
    assert bar(50, 100) == "█████     "
    assert bar(1, 100, ascii_only=True) == "#         "
    assert bar(5, 0) == " " * 10


def test_sparklines() -> None:
    assert sparkline([0, 0], 5) == "▁▁"
    assert sparkline([0, 1, 50, 100], 5) == "▁▂▅█"
    assert sparkline(range(100), 4) == "████"
    assert sparkline([], 4) == ""
