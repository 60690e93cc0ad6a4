from __future__ import annotations

import pytest

from benchmarks.clients.consumer_performance import Report, parse

NAMES = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
FIGURES = (
    "2026-11-21 07:01:29:862, 2026-11-21 07:01:31:162, 61.7981, 47.5370, 600000, 461538.4615, 359, 941, 65.6728, "
    "637619.5537"
)


def test_the_time_is_that_of_fetching_without_the_join() -> None:
    assert parse(f"{NAMES}\n{FIGURES}\n") == Report(records=600_000, mebibytes=61.7981, fetch_seconds=0.941)


def test_what_else_it_says_is_passed_over() -> None:
    warning = "WARNING: Exiting before consuming the expected number of records: timeout (10000 ms) exceeded."
    assert parse(f"{warning}\n{NAMES}\n{FIGURES}").records == 600_000


@pytest.mark.parametrize("output", ["", NAMES, f"{NAMES}\nERROR, no broker"])
def test_output_without_figures_is_an_error(output: str) -> None:
    with pytest.raises(ValueError, match="no figures"):
        parse(output)
