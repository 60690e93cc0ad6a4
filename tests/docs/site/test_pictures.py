"""The pictures of the documentation come from real runs: the recorder of terminals, the timeline, the plot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.report.readme import write_pictures
from benchmarks.report.results import Results

from ..examples import ROOT
from .programs import program

drawing, recording, timeline = (program(name) for name in ("drawing", "recording", "timeline"))
SVG = "{http://www.w3.org/2000/svg}"

# It redraws as a live view does, and goes on when the recorder has seen what it shows: for each screen it waits for a
# file. The last one stays on the screen.
SHOW = """
import os, sys, time
columns, lines = os.get_terminal_size()
for number in range(3):
    print(f"\\x1b[H\\x1b[2J\\x1b[1;36mlag\\x1b[0m {number} of {columns}x{lines}", end="", flush=True)
    while not os.path.exists(os.path.join(sys.argv[1], str(number))):
        time.sleep(0.01)
"""


def after_each_look(monkeypatch: pytest.MonkeyPatch, told: Callable[[list[Any]], None]) -> None:
    """Tell of all screens that the recorder has seen, each time that it has looked."""
    look = recording._look

    def looks(screen: Any, now: float, seen: list[Any]) -> None:
        look(screen, now, seen)
        told(seen)

    monkeypatch.setattr(recording, "_look", looks)


@pytest.mark.parametrize("palette", drawing.PALETTES, ids=lambda palette: palette.name)
async def test_a_terminal_is_drawn_as_it_was_seen(
    palette: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_on(seen: list[Any]) -> None:
        for number in range(3):
            if any(f"{number} of 40x3" in words for _, screen in seen for row in screen for _, words, *_ in row):
                (tmp_path / str(number)).touch()

    after_each_look(monkeypatch, go_on)
    command = [sys.executable, "-c", SHOW, str(tmp_path)]
    seen = await recording.record(command, columns=40, lines=3, seconds=200, each=0.02)
    shown = [seen.text(index) for index in range(len(seen.screens))]
    assert shown[-1] == "lag 2 of 40x3"
    assert {"lag 0 of 40x3", "lag 1 of 40x3"} <= set(shown)

    picture = ElementTree.fromstring(recording.draw(seen, palette, "lag <1>"))
    screens = list(picture.iter(f"{SVG}g"))
    assert len(screens) == len(seen.screens)
    first = next(screens[-1].iter(f"{SVG}text"))
    assert (first.text, first.get("font-weight")) == ("lag", "700")
    assert first.get("fill") == palette.ansi["cyan"]  # type: ignore[attr-defined]
    style = "".join(picture.find(f"{SVG}style").itertext())  # type: ignore[union-attr]
    assert "prefers-reduced-motion" in style


async def test_a_command_that_runs_for_ever_is_ended_and_one_that_fails_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forever = ["sh", "-c", "echo on; exec sleep 3600"]
    with monkeypatch.context() as patched:
        now = 0.0

        def pass_time(seen: list[Any]) -> None:
            """No time passes until the command shows something, and then all that it has."""
            nonlocal now
            now = 2.5 if seen else 0.0

        after_each_look(patched, pass_time)
        patched.setattr(recording, "time", SimpleNamespace(monotonic=lambda: now))
        seen = await recording.record(forever, columns=20, lines=2, seconds=2.5)
    assert seen.text(0) == "on"
    with pytest.raises(RuntimeError, match=r"(?s)ended with 3:\nno"):
        await recording.record([sys.executable, "-c", "print('no'); raise SystemExit(3)"], seconds=300)


async def test_an_eager_rebalance_stops_all_partitions_and_a_cooperative_one_only_what_moves() -> None:
    eager, cooperative = await timeline.run("range"), await timeline.run("cooperative-sticky")
    stopped = [number for number in range(timeline.PARTITIONS) if eager.gap(number) > 0]
    assert stopped == list(range(timeline.PARTITIONS))
    stopped = [number for number in range(timeline.PARTITIONS) if cooperative.gap(number) > 0]
    assert len(stopped) == timeline.PARTITIONS // 2

    for palette in drawing.PALETTES:
        picture = ElementTree.fromstring(timeline.draw([eager, cooperative], palette))
        bars = [one for one in picture.iter(f"{SVG}rect") if one.get("fill") in palette.members]
        assert len(bars) >= 12 + 9 + 2


def test_the_plot_is_that_of_the_last_benchmark(tmp_path: Path) -> None:
    write_pictures(Results.read(ROOT / "benchmarks" / "results.json"), tmp_path, tmp_path)
    anew = "draw it anew: python -m benchmarks --read benchmarks/results.json --write-readme"
    for drawn in tmp_path.iterdir():
        folder = ROOT / "benchmarks" if drawn.name == "results.svg" else ROOT / "docs" / "pictures"
        assert (folder / drawn.name).read_text(encoding="utf-8") == drawn.read_text(encoding="utf-8"), anew


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=lambda path: path.stem)
def test_pictures_are_whole_and_say_what_they_show(path: Path) -> None:
    picture = ElementTree.parse(path).getroot()
    assert picture.get("aria-label")
    assert picture.find(f"{SVG}title") is not None
    assert path.stat().st_size < 200_000
