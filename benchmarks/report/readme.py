"""Publishing a run: its aims and table in README.md, between two markers, its JSON, and its picture.

A run over TLS only has a section and a file of its own, so that it need not be made together with all else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..cases import BY_NAME, CASES
from ..clients import CLIENTS
from ..environment import WARNING
from ..studies import NAMES
from .plot import draw
from .results import Results
from .table import render

FOLDER: Final = Path(__file__).resolve().parents[1]
#: Those of the documentation, for its home page and the README of the project.
PICTURES: Final = FOLDER.parent / "docs" / "pictures"
BEGIN: Final = "<!-- results: written by python -m benchmarks --write-readme -->"
END: Final = "<!-- end of results -->"
TLS_BEGIN: Final = "<!-- results over TLS: written by python -m benchmarks --cases 1kB-SSL,... --write-readme -->"
TLS_END: Final = "<!-- end of results over TLS -->"
LEAST_ROUNDS: Final = 3


class Unpublishable(Exception):
    """The run must not be published; str() says why."""


def publish(results: Results, folder: Path = FOLDER, pictures: Path = PICTURES) -> None:
    """Write results.json and results.svg into the folder, and the aims and the table into its README.md.

    ``pictures`` gets the picture twice, for light and for dark pages. If all cases are over TLS, tls_results.json is
    written instead, the section of these in README.md, and no picture.

    Raises Unpublishable if something failed, if the run was a quick one, had studies only or a busy machine, or if it
    is not over TLS and lacks a part of the default run.
    """
    _check(results)
    readme = folder / "README.md"
    if all(case.secure for case in results.cases):
        text = replace_section(readme.read_text(), f"{render(results)}\n", TLS_BEGIN, TLS_END)
        results.write(folder / "tls_results.json")
        readme.write_text(text)
        return
    section = f"![Bars: records per second of aiokc and other clients](results.svg)\n\n{render(results)}\n"
    text = replace_section(readme.read_text(), section)
    results.write(folder / "results.json")
    write_pictures(results, folder, pictures)
    readme.write_text(text)


def _check(results: Results) -> None:
    if results.failed:
        raise Unpublishable("some measurements failed")
    if not results.cases:
        raise Unpublishable("studies alone are no whole run")
    if results.settings["quick"] or results.settings["rounds"] < LEAST_ROUNDS:
        raise Unpublishable(
            f"a quick run, or one of fewer than {LEAST_ROUNDS} rounds, shows that it works, not how fast"
        )
    if WARNING in results.environment:
        raise Unpublishable("the machine was busy when the run began")
    if not all(case.secure for case in results.cases) and (missing := list(lacks(results))):
        raise Unpublishable(f"the whole default run belongs there, and this one is without {', '.join(missing)}")


def lacks(results: Results) -> Iterator[str]:
    """Yield what of the default run is not there: cases, or some of their records, clients and studies."""
    measured = {case.name: case.records for case in results.cases}
    for case in CASES.values():
        if case.name not in BY_NAME and measured.get(case.name) != case.records:
            yield f"{case.name} of {case.records:,} records"
    yield from (client for client in CLIENTS if client not in results.settings["clients"])
    studied = {study.name for study in results.studies if not study.left_out}
    yield from (f"the study {name}" for name in NAMES if name not in studied)


def write_pictures(results: Results, folder: Path = FOLDER, pictures: Path = PICTURES) -> None:
    """Draw the run anew."""
    (folder / "results.svg").write_text(draw(results))
    for theme in ("light", "dark"):
        (pictures / f"benchmark-{theme}.svg").write_text(draw(results, theme))


def replace_section(text: str, section: str, begins: str = BEGIN, ends: str = END) -> str:
    """Return the text with the part between the markers replaced. Raises ValueError if the markers are missing."""
    before, begin, rest = text.partition(begins)
    _, end, after = rest.partition(ends)
    if not begin or not end:
        raise ValueError(f"README.md must have the lines {begins} and {ends}")
    return f"{before}{begins}\n\n{section}\n{ends}{after}"
