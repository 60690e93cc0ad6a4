"""Where to begin and to end."""

from __future__ import annotations

import pytest

from aiokc.cli.problems import UsageProblem
from aiokc.cli.reading.histogram import Histogram
from aiokc.cli.reading.window import Place, Window, parse_window

NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("beginning", Window(Place("beginning"))),
        ("end", Window(Place("end"))),
        ("12", Window(Place("offset", 12))),
        ("-12", Window(Place("from end", 12))),
        ("@-1h", Window(Place("time", NOW - 3_600_000))),
        ("@1700000000000", Window(Place("time", 1_700_000_000_000))),
        (
            "@2026-01-01T00:00:00+01:00:@2026-01-01T00:00:00Z",
            Window(Place("time", 1_767_222_000_000), Place("time", 1_767_225_600_000)),
        ),
        ("@-2h:@-1h", Window(Place("time", NOW - 7_200_000), Place("time", NOW - 3_600_000))),
    ],
)
def test_windows(text: str, window: Window) -> None:
    assert parse_window(text, NOW) == (window, [])


def test_local_times_are_echoed_in_utc() -> None:
    _, notes = parse_window("@2026-01-01T00:00:00:@2026-01-02T00:00:00Z", NOW)
    assert len(notes) == 1
    assert notes[0].startswith("2026-01-01T00:00:00 is taken as local time: 202")


@pytest.mark.parametrize(
    "text", ["", "x", "-", "1.5", "@", "@x", "@-1h:@-2h", "@now:", "@now:@", "9" * 19, "9" * 5000, "٣"]
)
def test_wrong_windows(text: str) -> None:
    with pytest.raises(UsageProblem):
        parse_window(text, NOW)


def test_a_window_before_1970_says_why_it_is_empty() -> None:
    with pytest.raises(UsageProblem, match="the end is not after the start; no record is from before 1970"):
        parse_window("@1960-01-01T00:00:00Z:@1965-01-01T00:00:00Z", NOW)


def test_percentiles_of_a_histogram() -> None:
    seen = Histogram()
    assert seen.percentile(50) is None
    assert seen.drawn(80) == []
    seen.add(range(1, 1001))
    seen.add([-5])
    assert (seen.count, seen.least, seen.greatest) == (1001, 0, 1000)
    for percent in (10, 50, 95, 99):
        assert seen.percentile(percent) == pytest.approx(percent * 10, rel=0.02, abs=1)
    assert seen.percentile(100) == 1000
    for width in (20, 40, 120):
        lines = seen.drawn(width)
        assert all(len(line) <= max(width, 32) for line in lines)
    assert len(lines) <= 11
