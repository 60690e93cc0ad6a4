from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from benchmarks.cases import Case
from benchmarks.environment import WARNING
from benchmarks.report.plot import Theme, draw
from benchmarks.report.results import Results

from ..examples import CASE, measurement, results

SVG = "{http://www.w3.org/2000/svg}"
VALUES = replace(CASE, name="100B-none-value", takes="value")


def run(case: Case = VALUES) -> Results:
    return results(
        case,
        aiokc=[measurement(1.0), measurement(2.0), measurement(4.0)],
        franz_go=[measurement(5.0)] * 3,
        kafka_python=[measurement(20.0)] * 3,
    )


def bars(drawn: str) -> dict[str, float]:
    """The lengths of the bars by their class."""
    picture = ElementTree.fromstring(drawn)
    found = [(one.get("class"), one.get("width")) for one in picture.iter(f"{SVG}rect")]
    return {kind: float(width) for kind, width in found if kind in ("ours", "others") and width}


def words(drawn: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(drawn).iter(f"{SVG}text")]


def test_bars_are_medians_beside_each_other_and_ours_stands_out() -> None:
    found = bars(draw(run()))
    assert found["ours"] == pytest.approx(2.5 * found["others"])
    said = words(draw(run()))
    assert said[:2] == [
        "Records read per second: longer is better",
        "One program, one broker, one machine; the program takes the value of each record.",
    ]
    assert said[2:-1] == ["Records of 100 bytes", "aiokc", "asyncio", "0.5 k", "franz-go", "Go", "0.2 k"], "few bars"
    assert said[-1].startswith("Bars: medians of 3 rounds")


def test_without_reads_of_values_alone_those_of_all_are_shown_and_said() -> None:
    assert "the program takes key, value and offset of each record." in words(draw(run(CASE)))[1]


@pytest.mark.parametrize(("theme", "is_dark"), [("light", False), ("dark", True)])
def test_a_theme_has_its_colours_alone(theme: Theme, is_dark: bool) -> None:
    drawn = draw(run(), theme)
    assert ("#0d1117" in drawn) is is_dark
    assert ("#ffffff" in drawn) is not is_dark
    assert "prefers-color-scheme" not in drawn


def test_a_page_has_the_colours_that_its_reader_wants() -> None:
    drawn = draw(run())
    assert drawn.index("#ffffff") < drawn.index("@media(prefers-color-scheme:dark)") < drawn.index("#0d1117")


def test_figures_of_a_busy_machine_say_so() -> None:
    busy = replace(run(), environment={WARNING: "the machine was busy"})
    assert words(draw(busy))[-1] == "The machine was busy: these figures say little."
    assert words(draw(run()))[-1] != words(draw(busy))[-1]
