from __future__ import annotations

import pytest

from benchmarks.measuring.job import Stalls
from benchmarks.report.results import Results
from benchmarks.report.summary import summarize
from benchmarks.report.table import render_header, render_rate, render_table

from ..examples import measurement, results


def table(found: Results) -> list[str]:
    return render_table(summarize(found)).splitlines()


def test_columns_are_aligned_and_the_case_is_named_once() -> None:
    lines = table(
        results(
            aiokc=[measurement(stalls=Stalls(p50=0.44, p99=1.26, max=12.4))],
            confluent=[measurement(seconds=0.5)],
        )
    )
    assert len({len(line) for line in lines}) == 1
    assert {line.count("|") for line in lines} == {10}
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[2][:4] == ["100B-none", "aiokc getmany", "1.0 k", "1.0 k - 1.0 k"]
    assert cells[2][7:] == ["0.4 / 1.3 / 12", "1.00x"]
    assert cells[3][:2] == ["", "confluent consume"]
    assert cells[3][7:] == ["-", "2.00x"]


def test_a_failed_row_shows_its_reason_and_no_figure() -> None:
    lines = table(results(aiokc=[measurement(), "read 5 records instead of 1000"]))
    assert [cell.strip() for cell in lines[2].strip("|").split("|")][2:] == ["failed", *"------"]
    assert lines[-2:] == ["Failed:", "- 100B-none, aiokc getmany: round 2: read 5 records instead of 1000"]


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (950.0, "0.9 k"),
        (60_049, "60.0 k"),
        (99_949, "99.9 k"),
        (99_951, "100 k"),
        (999_499, "999 k"),
        (999_501, "1.00 M"),
        (12_345_678, "12.35 M"),
    ],
)
def test_rates_have_three_digits(rate: float, text: str) -> None:
    assert render_rate(rate) == text


def test_the_header_says_what_was_run_with_what() -> None:
    header = render_header(results(aiokc=[measurement()], confluent=[measurement()]))
    assert "- Python: CPython 3.11" in header
    assert "fetch_max_bytes=52428800" in header
    assert "- checksums, confluent-kafka: yes (check.crcs=true; its default is false)" in header
    assert "- 1 rounds, at most 500 records per call, 6 partitions; clients and broker share all CPUs" in header
    assert "- records: 100B-none 1,000" in header
