"""The aims at a glance: what aiokc reads per second beside franz-go and aiokafka, and the stalls of its loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .judging import Judged
from .summary import Figures, Row

_PEERS: Final = ("franz-go", "aiokafka")
_NOT_MEASURED: Final = "-"


@dataclass(frozen=True, slots=True)
class Aim:
    """At least so many times the rate of each peer, and at most so many ms for 99 % of the loop's timers."""

    case: str
    franz_go: float
    aiokafka: float
    stall_p99: float


AIMS: Final = (
    Aim("100B-none-value", 2, 10, 3),
    Aim("100B-none", 1.2, 6, 3),
    Aim("1kB-none-value", 1.2, 5, 3),
    Aim("100B-lz4-value", 1.8, 10, 3),
    Aim("100B-zstd-value", 2, 8.5, 4),
)


def render_aims(rows: Sequence[Row]) -> str:
    """Return the table of the aims that the rows say something about; empty where there are none."""
    figures = {(row.case.name, row.client): row.figures for row in rows if row.figures is not None}
    titles = {row.case.name: row.case.title for row in rows}
    lines = []
    for aim in AIMS:
        cells = _cells(aim, figures)
        if cells is not None and set(cells) != {_NOT_MEASURED}:
            lines.append(f"| {titles[aim.case]} | {' | '.join(cells)} |")
    if not lines:
        return ""
    head = "| aiokc getmany reads | beside franz-go | beside aiokafka | stalls of its loop, p99 |"
    return "\n".join(["What is aimed at\n", head, "| - | - | - | - |", *lines])


def _cells(aim: Aim, figures: Mapping[tuple[str, str], Figures]) -> list[str] | None:
    mine = figures.get((aim.case, "aiokc"))
    if mine is None:
        return None
    cells = []
    for peer, least in zip(_PEERS, (aim.franz_go, aim.aiokafka), strict=True):
        theirs = figures.get((aim.case, peer))
        if theirs is None:
            cells.append(_NOT_MEASURED)
            continue
        ratio = beside(mine, theirs, least)
        spread = f" ({min(ratio.rounds):.2f} - {max(ratio.rounds):.2f})" if ratio.rounds else ""
        cells.append(f"{ratio.found:.2f}x{spread}, of {least:g}x: {ratio.outcome}")
    if mine.stalls is None:
        return [*cells, _NOT_MEASURED]
    stall = Judged(mine.stalls.p99, aim.stall_p99, mine.stall_p99s, is_least=False)
    return [*cells, f"{stall.found:.1f} ms, of {aim.stall_p99:g}: {stall.outcome}"]


def beside(mine: Figures, theirs: Figures, least: float) -> Judged:
    """Compare the medians of two clients' rates; the rounds, which they ran by turns, show the spread."""
    found = mine.records_per_second.median / theirs.records_per_second.median
    is_paired = len(mine.rates) == len(theirs.rates)
    rounds = [one / other for one, other in zip(mine.rates, theirs.rates, strict=True)] if is_paired else []
    return Judged(found, least, rounds)
