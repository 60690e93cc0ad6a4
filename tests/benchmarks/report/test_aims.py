from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cases import CASES
from benchmarks.measuring.job import Measurement, Stalls
from benchmarks.report.aims import AIMS, render_aims
from benchmarks.report.judging import Judged
from benchmarks.report.results import Results
from benchmarks.report.summary import summarize
from benchmarks.report.table import render

from ..examples import CASE, measurement, results

VALUES = replace(CASE, name="100B-none-value", takes="value")


def stalled(seconds: float, p99: float) -> Measurement:
    return measurement(seconds, stalls=Stalls(p50=0.1, p99=p99, max=9))


def cells(found: Results) -> list[str]:
    lines = render_aims(summarize(found)).splitlines()
    assert lines[:2] == ["What is aimed at", ""]
    assert len(lines) == 5
    return [cell.strip() for cell in lines[-1].strip("|").split("|")]


def test_an_aim_is_about_a_case_that_is_measured() -> None:
    assert {aim.case for aim in AIMS} <= CASES.keys()
    assert len({aim.case for aim in AIMS}) == len(AIMS)


def test_each_aim_is_reached_or_missed_by_so_much_or_within_what_the_rounds_differ() -> None:
    found = results(
        VALUES,
        aiokc=[stalled(1.0, 3.4), stalled(1.0, 3.3), stalled(1.0, 3.2)],
        franz_go=[measurement(2.2), measurement(2.1), measurement(2.3)],
        aiokafka=[measurement(9.6), measurement(9.4), measurement(10.2)],
    )
    assert cells(found) == [
        "100 B, value only",
        "2.20x (2.10 - 2.30), of 2x: reached",
        "9.60x (9.40 - 10.20), of 10x: 4 % off, within the spread",
        "3.3 ms, of 3: **missed** by 10 %",
    ]


def test_rounds_are_compared_with_those_beside_them() -> None:
    """A machine that is twice as slow in the second round is that for both clients."""
    found = results(VALUES, aiokc=[measurement(1.0), measurement(2.0)], franz_go=[measurement(1.5), measurement(3.0)])
    assert cells(found)[1] == "1.50x (1.50 - 1.50), of 2x: **missed** by 25 %"


def test_what_was_not_measured_is_not_judged() -> None:
    assert cells(results(VALUES, aiokc=[measurement()], aiokafka=[measurement(11.0)]))[1:] == [
        "-",
        "11.00x (11.00 - 11.00), of 10x: reached",
        "-",
    ]
    assert render_aims(summarize(results(VALUES, aiokc=[measurement()]))) == ""
    assert render_aims(summarize(results(VALUES, aiokc=["no"], aiokafka=[measurement()]))) == ""


def test_the_aims_stand_above_the_table() -> None:
    text = render(results(VALUES, aiokc=[stalled(1.0, 2.0)], aiokafka=[measurement()]))
    assert text.index("What is aimed at") < text.index("| case ")


@pytest.mark.parametrize(
    ("judged", "outcome"),
    [
        (Judged(2.0, 2.0), "reached"),
        (Judged(1.0, 2.0, [1.0, 1.9]), "**missed** by 50 %"),
        (Judged(1.9, 2.0, [1.8, 1.9, 2.0]), "5 % off, within the spread"),
        (Judged(3.0, 3.0, is_least=False), "reached"),
        (Judged(3.6, 3.0, [3.5, 3.7], is_least=False), "**missed** by 20 %"),
        (Judged(3.3, 3.0, [2.9, 3.3, 3.7], is_least=False), "10 % off, within the spread"),
    ],
)
def test_outcomes(judged: Judged, outcome: str) -> None:
    assert judged.outcome == outcome
