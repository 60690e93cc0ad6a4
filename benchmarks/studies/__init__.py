"""Studies beside the table of throughput (startup, latency, stalls, memory, many partitions), each with its own table.

A module has TITLE, and ``run(bootstrap, rounds)``, which returns the rows, each a dict of its cells by column.
Every measurement is a process of its own: ``measured`` runs the module with a job as JSON.
"""

from __future__ import annotations

import importlib
import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..measuring.process import ProcessFailed, last_line

NAMES: Final = (
    "startup",
    "latency",
    "stalls",
    "memory",
    "logins",
    "observing",
    "producing",
    "acknowledging",
    "stopped_broker",
    "scale",
)  # the last one leaves the broker with 10,000 partitions

#: In the cell of a row that failed: "failed: no broker", "round 3 failed: not done after 300 s". A "-" alone says only
#: that there is no such figure: librdkafka stalls no loop.
FAILED: Final = "failed: "

#: In a cell of a study that this machine can't make, before the reason: that is no failure.
NOT_MEASURED: Final = "not measured: "

_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class Study:
    """The results of a study."""

    name: str
    title: str
    rows: Sequence[Mapping[str, str]]

    @property
    def failed(self) -> bool:
        """Whether a measurement of it failed."""
        return any(map(is_failed, self.rows))

    @property
    def left_out(self) -> bool:
        """Whether it was not made, since something that it needs is not here."""
        return any(NOT_MEASURED in cell for row in self.rows for cell in row.values())


def is_failed(row: Mapping[str, str]) -> bool:
    """Whether a measurement of the row failed: the reason stands in the place of figures."""
    return any(FAILED in cell for cell in row.values())


def complete(rows: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the rows that did not fail."""
    return [row for row in rows if not is_failed(row)]


class StudyFailed(Exception):
    """A process of a study failed; str() is the reason, on one line."""


def run(name: str, bootstrap: str, rounds: int) -> Study:
    """Run one study. A measurement that fails has the reason in its row, and a study that does is one such row."""
    title = name
    try:
        module = importlib.import_module(f".{name}", __package__)
        title = module.TITLE
        return Study(name, title, module.run(bootstrap, rounds))
    except Exception as error:
        # What nobody foresaw costs this study its rows, and not the hour of measurements before it.
        traceback.print_exc()
        return failed(name, f"{type(error).__name__}: {error}", title)


def failed(name: str, reason: str, title: str | None = None) -> Study:
    """Return what is left of a study that failed as a whole."""
    return Study(name, title or name, [{"study": name, "figures": f"{FAILED}{reason}"}])


def measured(name: str, **job: Any) -> dict[str, float]:
    """Return what ``python -m benchmarks.studies.NAME JOB`` has measured. Raises StudyFailed.

    ``name`` may also be that of another module, in full.
    """
    module = name if "." in name else f"{__package__}.{name}"
    try:
        said = last_line(module, json.dumps(job), timeout=_SECONDS)
        found: dict[str, float] = json.loads(said)
    except ProcessFailed as error:
        raise StudyFailed(str(error)) from None
    except ValueError:
        raise StudyFailed(f"said {said!r} where its figures belong") from None
    return found


def render(study: Study) -> str:
    """Return the study as Markdown."""
    names = list(dict.fromkeys(name for row in study.rows for name in row))  # a row that failed may lack some
    lines = [study.title, "", f"| {' | '.join(names)} |", f"| {' | '.join('-' for _ in names)} |"]
    for row in study.rows:
        cells = (row.get(name, "-").replace("\n", " ") for name in names)  # a reason may have several lines
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
