"""Times and durations as people write them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from aiokc.cli.options.times import duration_ms, is_local, time_ms
from aiokc.cli.problems import UsageProblem

NOW = 1_790_000_000_000


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("1.5s", 1_500),
        ("10", 10_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("PT1H", 3_600_000),
        ("P1DT1M", 86_460_000),
        ("9" * 400 + "d", (1 << 62) - 1),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "x", "10 parsecs", "-5s", "P", "PT", "1h 30m", "5M", "١s", "1e3"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageProblem, match=r"--timeout: .* is no duration"):
        duration_ms(text, "--timeout")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", NOW),
        ("-1h", NOW - 3_600_000),
        ("-1h30m", NOW - 5_400_000),
        ("1700000000123", 1_700_000_000_123),
        ("2026-11-01T00:00:00Z", 1_793_491_200_000),
        ("2026-11-01T00:00:00+01:00", 1_793_487_600_000),
        ("2026-11-01T00:00:00.123Z", 1_793_491_200_123),
        ("-" + "9" * 30 + "d", 0),
        ("1969-12-31T23:59:59.999Z", 0),  # -1 ms: brokers would take that for "the end of the log"
        ("0001-01-01T00:00:00Z", 0),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert time_ms(text, NOW) == ms
    assert not is_local(text)


@pytest.mark.usefixtures("in_berlin")
def test_a_time_without_an_offset_is_local() -> None:
    assert time_ms("2026-11-01T00:00:00", NOW) == 1_793_487_600_000  # winter: UTC+1
    assert time_ms("2026-07-01", NOW) == 1_782_856_800_000  # summer: UTC+2
    assert time_ms("20260701", NOW) == 1_782_856_800_000
    assert time_ms("1970-01-01", NOW) == 0
    assert all(map(is_local, ("2026-11-01T00:00:00", "2026-07-01", "20260701")))


@pytest.mark.parametrize(
    "text", ["", "yesterday", "12", "2026-13-01", "-1x", "2026-11-01T25:00", "0001-01-01T00:00+23:59"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageProblem):
        time_ms(text, NOW, "--at")
