"""The plot: records per second of each client in each case."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ..clients import CLIENTS
from .summary import Row

_OURS: Final = "#c2410c"
_OTHERS: Final = "#94a3b8"
_COLUMNS: Final = 3


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write a plot of the rows that have figures, in the format of the suffix. Bars are medians, lines are spreads."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    # The same figures give the same file. If the file changed with every run, a commit would not show what has changed.
    with mpl.rc_context({"svg.hashsalt": "aiokc", "font.size": 9}):
        cases = list(dict.fromkeys(row.case.name for row in rows if row.figures))
        columns = max(1, min(_COLUMNS, len(cases)))
        lines = max(1, -(-len(cases) // columns))
        figure, axes = pyplot.subplots(
            lines, columns, figsize=(4.5 * columns, 2.6 * lines), squeeze=False, sharey=True, layout="constrained"
        )
        for axis in axes.flat[len(cases) :]:
            axis.set_axis_off()
        for axis, case in zip(axes.flat, cases, strict=False):
            _draw_case(axis, case, [row for row in rows if row.case.name == case])
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)


def _draw_case(axis: Any, case: str, rows: Sequence[Row]) -> None:
    drawn = [(row.client, row.figures.records_per_second) for row in reversed(rows) if row.figures]
    axis.barh(
        [CLIENTS[client].label for client, _ in drawn],
        [rate.median / 1e3 for _, rate in drawn],
        xerr=[
            [(rate.median - rate.least) / 1e3 for _, rate in drawn],
            [(rate.greatest - rate.median) / 1e3 for _, rate in drawn],
        ],
        color=[_OURS if CLIENTS[client].distribution == "aiokc" else _OTHERS for client, _ in drawn],
        ecolor="#334155",
        capsize=2,
    )
    axis.set_title(case)
    axis.set_xlabel("thousand records/s")
    axis.spines[["top", "right"]].set_visible(False)
