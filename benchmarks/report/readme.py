"""Publishing a run: writes its table into README.md, between two markers, and its JSON and its plot beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .plot import draw
from .results import Results
from .summary import summarize
from .table import render

FOLDER: Final = Path(__file__).resolve().parents[1]
BEGIN: Final = "<!-- results: written by python -m benchmarks --write-readme -->"
END: Final = "<!-- end of results -->"
LEAST_ROUNDS: Final = 3


class Unpublishable(Exception):
    """The run must not be published; str() says why."""


def publish(results: Results, folder: Path = FOLDER) -> None:
    """Write results.json and results.svg into the folder, and the table into its README.md.

    Raises Unpublishable if rows failed, or if the run was a quick one or had studies only.
    """
    if results.failed:
        raise Unpublishable("some measurements failed")
    if not results.cases:
        raise Unpublishable("studies alone are no whole run")
    if results.settings["quick"] or results.settings["rounds"] < LEAST_ROUNDS:
        raise Unpublishable(
            f"a quick run, or one of fewer than {LEAST_ROUNDS} rounds, shows that it works, not how fast"
        )
    rows = summarize(results)
    readme = folder / "README.md"
    section = f"{render(results)}\n\n![Records per second of each client](results.svg)\n"
    text = replace_section(readme.read_text(), section)
    results.write(folder / "results.json")
    draw(rows, folder / "results.svg")
    readme.write_text(text)


def replace_section(text: str, section: str, begins: str = BEGIN, ends: str = END) -> str:
    """Return the text with the part between the markers replaced. Raises ValueError if the markers are missing."""
    before, begin, rest = text.partition(begins)
    _, end, after = rest.partition(ends)
    if not begin or not end:
        raise ValueError(f"README.md must have the lines {begins} and {ends}")
    return f"{before}{begins}\n\n{section}\n{ends}{after}"
