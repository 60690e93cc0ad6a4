from __future__ import annotations

import pytest

from benchmarks.measuring.job import Measurement, Stalls
from benchmarks.report.results import Outcome, Results
from benchmarks.report.summary import Figures, Row, Spread, summarize

from ..examples import CASE, measurement, results


def row(found: Results, client: str) -> Row:
    return next(row for row in summarize(found) if row.client == client)


def figures(found: Results, client: str) -> Figures:
    found_figures = row(found, client).figures
    assert found_figures is not None
    return found_figures


def test_medians_and_spread_of_the_rounds() -> None:
    seconds = (2.0, 1.0, 4.0)
    found = figures(results(aiokc=[measurement(seconds=each, cpu_seconds=each / 2) for each in seconds]), "aiokc")

    assert found.records_per_second == Spread(median=500.0, least=250.0, greatest=1000.0)
    assert found.megabytes_per_second == pytest.approx(500 * 108 / 1e6)
    assert found.cpu_seconds_per_million == pytest.approx(1000)
    assert found.peak_mebibytes == pytest.approx(64)


def test_the_ratio_is_to_aiokc_in_the_same_case() -> None:
    found = results(aiokc=[measurement(seconds=1.0)], aiokafka=[measurement(seconds=4.0)])
    assert figures(found, "aiokafka").relative == pytest.approx(0.25)
    assert figures(found, "aiokc").relative == 1


def test_no_ratio_without_a_complete_run_of_aiokc() -> None:
    assert figures(results(aiokafka=[measurement()]), "aiokafka").relative is None
    half_failed = results(aiokc=[measurement(), "read 5 records instead of 1000"], aiokafka=[measurement()])
    assert figures(half_failed, "aiokafka").relative is None


def test_one_failed_round_leaves_no_figures() -> None:
    found = row(results(aiokc=[measurement(), "read 5 records instead of 1000", measurement()]), "aiokc")
    assert found.figures is None
    assert found.failures == ("round 2: read 5 records instead of 1000",)


def test_stalls_are_medians_and_the_worst_of_all() -> None:
    rounds: list[Measurement | str] = [
        measurement(stalls=Stalls(p50=1, p99=5, max=100)),
        measurement(stalls=Stalls(p50=2, p99=4, max=7)),
        measurement(stalls=Stalls(p50=3, p99=9, max=20)),
    ]
    assert figures(results(aiokc=rounds), "aiokc").stalls == Stalls(p50=2, p99=5, max=100)
    assert figures(results(confluent=[measurement()]), "confluent").stalls is None


def test_a_client_that_was_never_run_has_no_row() -> None:
    found = results(aiokc=[measurement()])
    other = Results(found.environment, {**found.settings, "clients": ["aiokc", "java"]}, [CASE], found.outcomes)
    assert [row.client for row in summarize(other)] == ["aiokc"]
    assert isinstance(other.outcomes[0], Outcome)
